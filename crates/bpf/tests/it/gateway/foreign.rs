//! Packets to networks that are other gateways': as any others, and counted.

use std::net::IpAddr;

use ringside_bpf::gateway::{CachedNeighbor, Counter, Outcome};
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::corpus::{VNI, gateway, host, mac, tenant};
use ringside_gateway_core::testing::{Sent, tenant_arp, tenant_solicitation, tenant_udp};

use crate::common::privileged;
use crate::gateway::bed::{Bed, Wanted, in_namespace, key, neighbor};

/// From tenant 1, to tenant 2 or for it.
fn frames(outer_v6: bool) -> Vec<Vec<u8>> {
    let sent =
        |frame, encapsulation| Sent::new([host(1, outer_v6), gateway(outer_v6)], encapsulation, VNI, frame).bytes();
    let udp = |v6| {
        tenant_udp(
            [mac(1), mac(2)],
            [1, 2].map(|last| tenant(last, v6)),
            [1000, 53],
            64,
            b"data",
        )
    };
    let (IpAddr::V4(asker), IpAddr::V4(target)) = (tenant(1, false), tenant(2, false)) else {
        unreachable!("IPv4")
    };
    let (IpAddr::V6(asker6), IpAddr::V6(target6)) = (tenant(1, true), tenant(2, true)) else {
        unreachable!("IPv6")
    };
    vec![
        // By the straight lane, unless it is to be counted.
        sent(udp(false), Encapsulation::Vxlan),
        sent(udp(true), Encapsulation::Vxlan),
        sent(udp(false), Encapsulation::Geneve),
        sent(tenant_arp(mac(1), asker, target), Encapsulation::Vxlan),
        sent(tenant_solicitation(mac(1), asker6, target6), Encapsulation::Vxlan),
    ]
}

#[test]
fn packets_of_others_networks_are_sent_on_and_counted() {
    if !privileged() {
        return;
    }
    for v6 in [false, true] {
        let wanted = Wanted {
            v6,
            ..Wanted::default()
        };
        in_namespace(|second| {
            let mut bed = Bed::new(second, wanted);
            // Without this the lane is not taken.
            bed.configure(|config| config.sampling = None);
            let run = |bed: &Bed| {
                let all = frames(v6).into_iter();
                all.map(|frame| ringside_bpf::dry_run(&bed.program, &frame).unwrap())
                    .collect::<Vec<_>>()
            };
            let own = run(&bed);
            assert_eq!(bed.program.foreign().unwrap(), Counter::default());
            for inner_v6 in [false, true] {
                let foreign = CachedNeighbor {
                    foreign: true,
                    ..neighbor(2, v6)
                };
                bed.program.neighbors().put(&[(key(2, inner_v6), foreign)]);
            }
            assert_eq!(run(&bed), own, "the same bytes, the same way");
            let counted = bed.program.foreign().unwrap();
            let lengths: usize = frames(v6).iter().map(Vec::len).sum();
            assert_eq!(counted.packets, frames(v6).len() as u64);
            assert_eq!(counted.bytes, lengths as u64);
            let forwarded = bed.program.count(Outcome::Forwarded).unwrap().packets;
            let answered = bed.program.count(Outcome::Answered).unwrap().packets;
            assert_eq!((forwarded, answered), (6, 4), "of both rounds");
            // What is a worker's to decide is a worker's to count.
            bed.configure(|config| config.source_check = true);
            let stranger = tenant_udp([mac(99), mac(2)], [99, 2].map(|last| tenant(last, v6)), [1, 2], 64, b"");
            let stranger = Sent::new([host(1, v6), gateway(v6)], Encapsulation::Vxlan, VNI, stranger);
            ringside_bpf::dry_run(&bed.program, &stranger.bytes()).unwrap();
            assert_eq!(bed.program.foreign().unwrap(), counted);
        });
    }
}
