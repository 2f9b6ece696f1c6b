use std::vec::Vec;

use super::*;

/// Two options: a critical one with a word of data, one without data.
const WITH_OPTIONS: [u8; 22] = [
    3, 0x40, 0x65, 0x58, 0x12, 0x34, 0x56, 0, //
    0x01, 0x02, 0x83, 0x01, 0xca, 0xfe, 0xca, 0xfe, //
    0xff, 0xfe, 0x05, 0x00, //
    0xaa, 0xbb,
];

#[test]
fn a_header_is_what_the_rfc_says() {
    let mut bytes = [0xff; 9];
    Header { vni: 0x12_34_56 }.emit(&mut bytes).unwrap();
    assert_eq!(bytes, [0, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0, 0xff]);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.vni(), packet.payload()), (0x12_34_56, &[0xff][..]));
    assert_eq!(packet.protocol(), EtherType::TRANSPARENT_ETHERNET);
    assert!(!packet.is_control() && !packet.has_critical_options());
}

/// RFC 8926 §3.4: O is bit 7 and C bit 6 of the second byte.
#[test]
fn the_two_flags_are_told_apart() {
    for (byte, flags) in [(0x80, (true, false)), (0x40, (false, true)), (0x3f, (false, false))] {
        let packet = [0, byte, 0x65, 0x58, 0, 0, 1, 0];
        let packet = Packet::parse(&packet).unwrap();
        assert_eq!((packet.is_control(), packet.has_critical_options()), flags, "{byte:#x}");
    }
}

#[test]
fn options_are_read_in_their_order() {
    let packet = Packet::parse(&WITH_OPTIONS).unwrap();
    let options: Vec<_> = packet.options().collect();
    let option = |class, option_type, data| GeneveOption {
        class,
        option_type,
        data,
    };
    assert_eq!(
        options,
        [
            option(0x0102, 0x83, &[0xca, 0xfe, 0xca, 0xfe][..]),
            option(0xfffe, 5, &[])
        ]
    );
    assert!(options[0].is_critical() && !options[1].is_critical());
    assert!(packet.has_critical_options() && !packet.is_control());
    assert_eq!(
        (packet.options_bytes().len(), packet.payload()),
        (12, &[0xaa, 0xbb][..])
    );
}

#[test]
fn options_fill_their_length_exactly() {
    // The last one would reach behind the options, though not behind the packet.
    let mut bytes = WITH_OPTIONS;
    bytes[19] = 1;
    let error = Packet::parse(&bytes).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Malformed {
                layer: OPTION,
                value: 1,
                ..
            }
        ),
        "{error}"
    );
    // Reserved bits beside the length do not count.
    bytes[19] = 0xe0;
    assert!(Packet::parse(&bytes).is_ok());
}

#[test]
fn what_is_no_geneve_is_refused() {
    let mut bytes = WITH_OPTIONS;
    bytes[0] |= 0x40;
    let error = Packet::parse(&bytes).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unsupported {
                field: "version",
                value: 1,
                ..
            }
        ),
        "{error}"
    );
    for len in 0..HEADER_LEN + 12 {
        let error = Packet::parse(&WITH_OPTIONS[..len]).unwrap_err();
        // Header, then options: each as a whole.
        let needed = if len < HEADER_LEN { HEADER_LEN } else { HEADER_LEN + 12 };
        assert!(
            matches!(error, Error::Truncated { have, need, .. } if have == len && need == needed),
            "{error}"
        );
    }
}
