use proptest::prelude::*;

use super::*;

fn frame(after_macs: &[u8]) -> std::vec::Vec<u8> {
    let mut bytes = std::vec![0u8; 12];
    bytes.extend_from_slice(after_macs);
    bytes
}

#[test]
fn untagged() {
    let network = Network::parse(&frame(&[0x08, 0x06])).unwrap();
    assert_eq!((network.ethertype, network.offset), (EtherType::ARP, 14));
    assert_eq!((network.outer, network.inner), (None, None));
}

#[test]
fn two_tags() {
    let bytes = frame(&[0x88, 0xa8, 0x30, 0x01, 0x81, 0x00, 0xef, 0xff, 0x86, 0xdd]);
    let network = Network::parse(&bytes).unwrap();
    assert_eq!((network.ethertype, network.offset), (EtherType::IPV6, 22));
    let (outer, inner) = (network.outer.unwrap(), network.inner.unwrap());
    assert_eq!((outer.priority(), outer.drop_eligible(), outer.id()), (1, true, 1));
    assert_eq!((inner.priority(), inner.drop_eligible(), inner.id()), (7, false, 4095));
}

#[test]
fn a_third_tag_is_left_alone() {
    let bytes = frame(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 0x08, 0]);
    let network = Network::parse(&bytes).unwrap();
    assert_eq!((network.ethertype, network.offset), (EtherType::VLAN, 22));
}

#[test]
fn cut_in_the_tag() {
    let error = Network::parse(&frame(&[0x81, 0, 0, 1, 8])).unwrap_err();
    assert_eq!(
        error,
        Error::Truncated {
            layer: LAYER,
            need: 18,
            have: 17
        }
    );
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(network) = Network::parse(&bytes) {
            prop_assert!(network.offset <= bytes.len());
        }
    }
}
