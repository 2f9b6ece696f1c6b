use std::string::ToString;

use proptest::prelude::*;

use super::*;

#[test]
fn reads_a_known_header() {
    let bytes = [
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x86, 0xdd, 0x60,
    ];
    let frame = Frame::parse(&bytes).unwrap();
    assert_eq!(frame.dst(), MacAddr([1, 2, 3, 4, 5, 6]));
    assert_eq!(frame.src(), MacAddr([10, 11, 12, 13, 14, 15]));
    assert_eq!(frame.ethertype(), EtherType::IPV6);
    assert_eq!(frame.payload(), [0x60]);
}

#[test]
fn swap_leaves_the_rest_alone() {
    let mut bytes: [u8; 16] = core::array::from_fn(|i| u8::try_from(i).unwrap());
    swap_macs(&mut bytes).unwrap();
    assert_eq!(bytes, [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15]);
}

#[test]
fn short_frames_are_told_with_their_length() {
    assert_eq!(
        Frame::parse(&[0; 13]).unwrap_err(),
        Error::Truncated {
            layer: LAYER,
            need: 14,
            have: 13
        }
    );
    let mut short = [1u8; 13];
    assert!(swap_macs(&mut short).is_err());
    assert_eq!(short, [1; 13]);
}

#[test]
fn addresses_as_text() {
    let mac: MacAddr = "02-AB-00-00-00-fF".parse().unwrap();
    assert_eq!(mac.to_string(), "02:ab:00:00:00:ff");
    for bad in [
        "",
        "02:00:00:00:00",
        "02:00:00:00:00:01:02",
        "2:0:0:0:0:1",
        "+2:00:00:00:00:01",
        "02:00:00:00:00:0g",
        "020000000001",
    ] {
        assert_eq!(bad.parse::<MacAddr>(), Err(MacAddrParseError), "{bad}");
    }
}

#[test]
fn types_and_errors_as_text() {
    assert_eq!(EtherType::IPV6.to_string(), "0x86dd");
    assert_eq!(EtherType(6).to_string(), "0x0006");
    let error = MacAddrParseError.to_string();
    assert!(error.contains("02:00:00:00:00:01"), "no example in {error}");
}

#[test]
fn group_addresses() {
    assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
    let all_nodes = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    assert!(all_nodes.is_multicast() && !all_nodes.is_broadcast());
    assert!(!MacAddr([2, 0, 0, 0, 0, 1]).is_multicast());
}

proptest! {
    #[test]
    fn emit_then_parse(dst: [u8; 6], src: [u8; 6], ethertype: u16) {
        let header = Header { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType(ethertype) };
        let mut bytes = [0u8; HEADER_LEN];
        header.emit(&mut bytes).unwrap();
        prop_assert_eq!(Frame::parse(&bytes).unwrap().header(), header);
    }

    #[test]
    fn text_and_back(octets: [u8; 6]) {
        let mac = MacAddr(octets);
        prop_assert_eq!(mac.to_string().parse::<MacAddr>(), Ok(mac));
    }
}
