use super::*;

#[test]
fn a_priority_is_in_a_tag_between_addresses_and_type() {
    let end = |last| Addresses {
        mac: [2, 0, 0, 0, 0, last],
        ipv4: None,
    };
    let plain = frame(NtupleFlow::VlanPriority(5), end(1), end(2), None).unwrap();
    let tagged = frame(NtupleFlow::VlanPriority(5), end(1), end(2), Some(5)).unwrap();
    assert_eq!(tagged[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    assert_eq!(tagged[12..18], [0x81, 0, 0xa0, 0, 8, 0]);
    assert_eq!((tagged.len(), &tagged[16..]), (plain.len() + 4, &plain[12..]));
    // Source and destination ports behind Ethernet and IPv4.
    let port = frame(NtupleFlow::UdpPort(7000), end(1), end(2), None).unwrap();
    assert_eq!(port[34..38], [OWN_PORT.to_be_bytes(), 7000_u16.to_be_bytes()].concat());
}
