use super::*;

fn filled(flow: NtupleFlow, queue: u32) -> CommandBuffer {
    let mut buffer = CommandBuffer::new(ETHTOOL_SRXCLSRLINS, LEN).unwrap();
    fill(&mut buffer, 7, flow, queue);
    buffer
}

#[test]
fn a_rule_is_read_as_it_was_written() {
    for flow in [
        NtupleFlow::VlanPriority(0),
        NtupleFlow::VlanPriority(7),
        NtupleFlow::UdpPort(1),
        NtupleFlow::UdpPort(u16::MAX),
    ] {
        let rule = parse(&filled(flow, 3));
        assert_eq!((rule.location, rule.flow, rule.queue), (7, flow, Some(3)));
        let (text, queue) = value(&rule)
            .split_once(' ')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_eq!((text.parse(), queue.as_str()), (Ok(flow), "3"));
    }
}

/// The bytes that `ethtool -N eth0 flow-type ether vlan 0xa000 vlan-mask 0x1fff action 1` hands over, by the layout in the kernel's header.
#[test]
fn a_priority_stands_where_the_kernel_looks_for_it() {
    let buffer = filled(NtupleFlow::VlanPriority(5), 1);
    let bytes = buffer.bytes();
    assert_eq!(bytes[16..20], 0x8000_0012_u32.to_ne_bytes());
    assert_eq!(bytes[82..84], [0xa0, 0x00]);
    assert_eq!(bytes[154..156], [0xe0, 0x00]);
    assert_eq!(bytes[168..176], 1_u64.to_ne_bytes());
    assert_eq!(bytes[176..180], 7_u32.to_ne_bytes());
    assert_eq!(
        NtupleFlow::VlanPriority(5).ethtool(),
        "flow-type ether vlan 0xa000 vlan-mask 0x1fff"
    );
}

#[test]
fn what_others_have_put_there_is_not_taken_for_ours() {
    let mut whole_tag = filled(NtupleFlow::VlanPriority(5), 1);
    whole_tag.set_u32(VLAN_MASK, pair(0, 0xffff));
    assert_eq!(parse(&whole_tag).flow, NtupleFlow::Other);
    let mut with_address = filled(NtupleFlow::UdpPort(9), 1);
    with_address.set_u32(MASKS, u32::MAX);
    assert_eq!(parse(&with_address).flow, NtupleFlow::Other);
    let mut discarded = filled(NtupleFlow::UdpPort(9), 1);
    discarded.set_u64(QUEUE, u64::MAX);
    assert_eq!(parse(&discarded).queue, None);
}

#[test]
fn kinds_of_packets_that_make_no_sense_are_refused() {
    for text in [
        "pcp",
        "pcp:",
        "pcp:8",
        "pcp:-1",
        "udp:0",
        "udp:65536",
        "tcp:80",
        ":5",
        "",
    ] {
        assert!(text.parse::<NtupleFlow>().is_err(), "{text}");
    }
}
