use super::super::{StampCounters, StampSource};
use super::*;

fn told(told: u32) -> RingsideNic {
    RingsideNic {
        hw_time: 7,
        rx_ktime: 1000,
        packet: 1,
        hash: 0xdead_beef,
        hash_type: 0x29,
        vlan_proto: 0x8100,
        vlan_tci: 0x2005,
        told,
        rx_cpu: 2,
        rx_queue: 3,
        mark: 4,
        btf_id: 5,
    }
}

#[test]
fn values_that_were_not_told_are_none() {
    let nothing = told(0);
    assert_eq!(
        (nothing.hardware_time(), nothing.hash(), nothing.vlan()),
        (None, None, None)
    );
    assert!(!nothing.zero_hardware_time());
    let all = told(TOLD_TIME | TOLD_HASH | TOLD_VLAN);
    assert_eq!(all.hardware_time(), Some(HardwareStamp(7)));
    assert_eq!(all.hash().unwrap().kind.to_string(), "L4 IPv4 UDP");
    assert_eq!(all.vlan().unwrap().to_string(), "802.1Q id 5 priority 1");
    // Each by itself.
    assert!(told(TOLD_HASH).vlan().is_none() && told(TOLD_HASH).hash().is_some());
}

#[test]
fn a_stamp_of_zero_falls_down_the_ladder_and_is_counted() {
    let mut counters = StampCounters::default();
    for (hints, source, text) in [
        (Some(told(TOLD_TIME)), StampSource::Hardware, "7 ns of PHC (hardware)"),
        (
            Some(told(TOLD_ZERO)),
            StampSource::Xdp,
            "1000 ns of CLOCK_MONOTONIC (XDP)",
        ),
        (Some(told(0)), StampSource::Xdp, "1000 ns of CLOCK_MONOTONIC (XDP)"),
        (None, StampSource::Application, "99 ns of CLOCK_MONOTONIC (application)"),
    ] {
        let stamp = RxStamp::or(hints.as_ref(), || Timestamp::from_nanos(99));
        assert_eq!((stamp.source(), &*stamp.to_string()), (source, text));
        assert_eq!(stamp.monotonic().is_none(), source == StampSource::Hardware);
        counters.note(hints.as_ref());
    }
    let expected = StampCounters {
        hardware: 1,
        xdp: 2,
        application: 1,
        zero_hardware: 1,
    };
    assert_eq!((counters, counters.packets()), (expected, 4));
    assert!(matches!(RxStamp::of(None), RxStamp::Application(at) if at.as_nanos() > 0));
}

#[test]
fn types_of_hashes_have_the_names_of_people() {
    for (bits, name) in [
        (0, "none"),
        (0x1, "L3 IPv4"),
        (0x5, "L3 IPv4 options"),
        (0x6, "L3 IPv6 options"),
        (0x8, "L4"),
        (0x19, "L4 IPv4 TCP"),
        (0x2a, "L4 IPv6 UDP"),
        (0x4e, "L4 IPv6 options SCTP"),
        (0x89, "L4 IPv4 IPsec"),
        (0x109, "L4 IPv4 ICMP"),
        (0x400, "0x400"),
        (0x409, "L4 IPv4 0x400"),
    ] {
        assert_eq!(HashType::from_bits(bits).to_string(), name, "{bits:#x}");
    }
}

#[test]
fn tags_are_taken_apart() {
    let tag = |protocol, tci| VlanTag { protocol, tci };
    let (id, priority, eligible) = (
        tag(0x8100, 0xffff).id(),
        tag(0, 0xffff).priority(),
        tag(0, 0xffff).drop_eligible(),
    );
    assert_eq!((id, priority, eligible), (4095, 7, true));
    assert_eq!(
        tag(0x88a8, 0x1064).to_string(),
        "802.1ad id 100 priority 0 drop eligible"
    );
    assert_eq!(tag(0x9100, 0).to_string(), "0x9100 id 0 priority 0");
}

/// What a program without the NIC told is all there.
#[test]
fn the_other_struct_becomes_this_one() {
    let rx = RingsideRx {
        rx_ktime: 1,
        packet: 2,
        rx_cpu: 3,
        rx_queue: 4,
        mark: 5,
        btf_id: 6,
    };
    let nic = RingsideNic::from(rx);
    assert_eq!((nic.rx_ktime, nic.packet, nic.rx_cpu), (1, 2, 3));
    assert_eq!((nic.rx_queue, nic.mark, nic.btf_id), (4, 5, 6));
    assert_eq!(nic.stamp(), RxStamp::Xdp(Timestamp::from_nanos(1)));
}

#[test]
fn our_own_structs_are_in_one_object() {
    let (layouts, _) = Layouts::ringside_nic();
    let ids: Vec<_> = layouts.iter().map(|layout| (layout.name(), layout.size())).collect();
    assert_eq!(ids, [("ringside_rx", 32), ("ringside_nic", 56)]);
    assert!(layouts.problems().is_empty());
}
