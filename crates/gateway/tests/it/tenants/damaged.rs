//! Packets of tenants whose own checksums are wrong, where rules are bound: they begin no connection.

use std::net::IpAddr;

use ringside_gateway_core::testing::{pseudo, tenant_ip};
use ringside_wire::tcp::{self, Flags};
use ringside_wire::{MacAddr, Protocol};

use crate::bed::{Bed, Family, Kind, Place, Tenant, Tunnel};
use crate::peers::{answered, chat, connect};
use crate::ringside::Gateway;
use crate::tenants::groups::allow_all;
use crate::tenants::on;
use crate::vtep::in_vxlan;

on! {
    fast = crate::tenants::FAST => damaged_packets_begin_nothing, connections_begin_with_checksums_left_to_a_nic;
    workers = crate::tenants::WORKERS => damaged_packets_begin_nothing;
    unsummed = crate::tenants::UNSUMMED => connections_begin_with_checksums_left_to_a_nic;
}

const HOST: Place = Place::new(Family::V4, Tunnel::UserVxlan);

/// A SYN, a datagram and an echo request from one tenant to another.
fn beginnings(from: &Tenant, to: &Tenant, family: Family) -> [Vec<u8>; 3] {
    let ips: [IpAddr; 2] = [from.address(family), to.address(family)];
    let mut syn = [0; tcp::Header::MOST];
    let len = tcp::Header::new(5000, 80, Flags::SYN).emit(&mut syn).expect("room");
    let datagram = [0x13, 0x88, 0, 9, 0, 12, 0, 0, b'd', b'a', b't', b'a'];
    let (icmp, kind) = match family {
        Family::V4 => (Protocol::ICMP, 8),
        Family::V6 => (Protocol::ICMPV6, 128),
    };
    let echo = [kind, 0, 0, 0, 0x12, 0x34, 0, 1];
    [
        (Protocol::TCP, &syn[..len]),
        (Protocol::UDP, &datagram[..]),
        (icmp, &echo[..]),
    ]
    .map(|(protocol, upper)| tenant_ip([from.card.mac, to.card.mac].map(MacAddr), ips, protocol, upper))
}

fn damaged_packets_begin_nothing(kind: Kind) {
    let mut bed = Bed::new("damaged", kind, &[HOST; 2]);
    allow_all(&mut bed);
    let begun = |gateway: &Gateway| {
        let counts = &gateway.statistics()["connections"]["events"];
        counts["begun"].as_u64().expect("a number")
    };
    let mut before = begun(bed.ringside());
    let mut damaged = 0;
    for family in crate::bed::FAMILIES {
        let network = bed.at(1).card.vni;
        let frames = beginnings(bed.at(1), bed.at(2), family);
        let upper = if family == Family::V4 { 34 } else { 54 };
        for frame in &frames {
            // Of what it carries, and of IPv4's header.
            for at in [Some(frame.len() - 1), (family == Family::V4).then_some(24)] {
                let Some(at) = at else { continue };
                let mut wrong = frame.clone();
                wrong[at] ^= 4;
                bed.hosts[0].vtep().send(&in_vxlan(network, &wrong));
                damaged += 1;
                bed.ringside()
                    .wait_until(|gateway| gateway.dropped_by("slow", "inner-damaged") == damaged);
            }
        }
        assert_eq!(begun(bed.ringside()), before, "{family:?}");
        // The same as they should be; and as a kernel leaves them to a NIC.
        let [syn, datagram, echo] = frames;
        let mut left = datagram.clone();
        left[upper] ^= 1;
        let sum = pseudo(
            [bed.at(1).address(family), bed.at(2).address(family)],
            Protocol::UDP,
            left.len() - upper,
        );
        left[upper + 6..upper + 8].copy_from_slice(&sum.fold().to_be_bytes());
        for frame in [syn, datagram, echo, left] {
            bed.hosts[0].vtep().send(&in_vxlan(network, &frame));
        }
        bed.ringside().wait_until(|gateway| begun(gateway) == before + 4);
        before += 4;
    }
}

/// Behind hosts that make their checksums and behind such that leave them: none is refused.
fn connections_begin_with_checksums_left_to_a_nic(kind: Kind) {
    let mut bed = Bed::new("left", kind, &[Place::vxlan(Family::V4); 2]);
    allow_all(&mut bed);
    for inner in crate::bed::FAMILIES {
        let to = bed.at(2).address(inner);
        answered(bed.at(1), to);
        let streams = connect(bed.at(1), (bed.at(2), to), 7000);
        for _ in 0..20 {
            chat(&streams).expect("goes");
        }
    }
    assert_eq!(bed.ringside().dropped("inner-damaged"), 0);
}
