use proptest::prelude::*;

use super::*;

/// Who has 10.0.0.2? Tell 10.0.0.1 at 02:00:00:00:00:01, followed by padding.
const REQUEST: [u8; 32] = [
    0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2, 0xaa, 0xaa, 0xaa, 0xaa,
];

#[test]
fn request_and_its_reply() {
    let request = Packet::parse(&REQUEST).unwrap();
    assert_eq!(request.operation, Operation::Request);
    assert_eq!(request.sender_ip, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(request.target_ip, Ipv4Addr::new(10, 0, 0, 2));
    let mut out = [0u8; PACKET_LEN];
    request.reply(MacAddr([2, 0, 0, 0, 0, 2])).emit(&mut out).unwrap();
    assert_eq!(
        out,
        [
            0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1
        ]
    );
}

#[test]
fn others_are_told_apart() {
    let mut bytes = REQUEST;
    bytes[7] = 3;
    assert!(matches!(
        Packet::parse(&bytes),
        Err(Error::Unsupported {
            field: "operation",
            value: 3,
            ..
        })
    ));
    bytes[1] = 6;
    assert!(matches!(
        Packet::parse(&bytes),
        Err(Error::Unsupported { value: 0x0006_0800, .. })
    ));
    assert!(matches!(
        Packet::parse(&REQUEST[..27]),
        Err(Error::Truncated { need: 28, have: 27, .. })
    ));
}

proptest! {
    #[test]
    fn emit_then_parse(reply: bool, a: [u8; 6], b: [u8; 4], c: [u8; 6], d: [u8; 4]) {
        let packet = Packet {
            operation: if reply { Operation::Reply } else { Operation::Request },
            sender_mac: MacAddr(a),
            sender_ip: Ipv4Addr::from(b),
            target_mac: MacAddr(c),
            target_ip: Ipv4Addr::from(d),
        };
        let mut bytes = [0u8; PACKET_LEN];
        packet.emit(&mut bytes).unwrap();
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Packet::parse(&bytes);
    }
}
