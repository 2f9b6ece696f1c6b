use super::*;

/// The example of RFC 7348 figure 1: flags, reserved, number, reserved.
#[test]
fn a_header_is_what_the_rfc_says() {
    let mut bytes = [0xff; 9];
    Header { vni: 0x12_34_56 }.emit(&mut bytes).unwrap();
    assert_eq!(bytes, [8, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xff]);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.vni(), packet.frame()), (0x12_34_56, &[0xff][..]));
}

#[test]
fn reserved_bits_are_ignored() {
    let packet = [0xff, 1, 2, 3, 0, 0, 7, 0x99];
    assert_eq!(Packet::parse(&packet).unwrap().vni(), 7);
}

#[test]
fn what_is_no_vxlan_is_refused() {
    let malformed = Error::Malformed {
        layer: LAYER,
        field: "flags",
        value: 0xf7,
    };
    assert_eq!(Packet::parse(&[0xf7, 0, 0, 0, 0, 0, 7, 0]).unwrap_err(), malformed);
    for len in 0..HEADER_LEN {
        let error = Packet::parse(&[8; HEADER_LEN][..len]).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { need: 8, have, .. } if have == len),
            "{error}"
        );
    }
    let error = Header { vni: 1 }.emit(&mut [0; 7]).unwrap_err();
    assert!(matches!(error, Error::NoRoom { need: 8, have: 7, .. }), "{error}");
}
