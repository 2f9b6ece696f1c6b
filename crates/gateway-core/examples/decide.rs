//! What a decision costs: nanoseconds a packet by how many neighbours there are, in a network without rules, for packets of a burst
//! that are read, looked up and rewritten: plain ones, which have a lane of their own, and others (Geneve), also while another network
//! has rules.
//!
//! `cargo run --release -p ringside-gateway-core --example decide [NEIGHBORS …]`

mod common;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use common::{ROUNDS, timed};
use ringside_gateway_core::conntrack::{Conntrack, Limits};
use ringside_gateway_core::decide::{Decider, Decision, PortSettings, Settings};
use ringside_gateway_core::policy::Policy;
use ringside_gateway_core::table::{Bindings, Encapsulation, Host, Hosts, Neighbor, Neighbors};
use ringside_gateway_core::testing::{Sent, tenant_udp};
use ringside_gateway_core::{Firewall, Roomy, TenantAddress, Underlay, Vni};
use ringside_wire::MacAddr;

const BURST: usize = 64;
/// Packets of a round.
const PACKETS: usize = 1 << 20;
const VNI: u32 = 42;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Spread over the whole table, in an order that is nobody's.
fn receiver(number: usize, of: u32) -> Ipv4Addr {
    let mixed = u32::try_from(number & 0xffff_ffff)
        .unwrap_or(0)
        .wrapping_mul(0x9e37_79b1)
        ^ 0x5bd1_e995;
    Ipv4Addr::from(0x0a00_0000 + mixed % of)
}

/// What packets come in, and whether rules are bound to an address of another network.
const WAYS: [(&str, Encapsulation, bool); 3] = [
    ("plain", Encapsulation::Vxlan, false),
    ("others", Encapsulation::Geneve, false),
    ("others, rules elsewhere", Encapsulation::Geneve, true),
];

fn main() {
    let sizes: Vec<u32> = common::sizes([1000, 1_000_000, 8_000_000]);
    let vni = Vni::new(VNI).expect("a number");
    println!("nanoseconds a packet, least and median of {ROUNDS} rounds of {PACKETS} packets in bursts of {BURST}");
    for size in sizes {
        let (neighbors, hosts, policy) = (Neighbors::new(), Hosts::new(), Policy::new());
        let host = hosts.intern(Host {
            ip: HOST.into(),
            mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
            port: None,
            encapsulation: None,
        });
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let mut writer = neighbors.write();
        for number in 0..size {
            let ip = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number));
            let neighbor = Neighbor {
                mac,
                host,
                policy: 0,
                version: 1,
            };
            writer.put(TenantAddress::new(vni, ip), neighbor);
        }
        drop(writer);
        for (what, encapsulation, has_policy) in WAYS {
            let bindings = Bindings::new();
            if has_policy {
                let profile = policy.write().profile(&[]);
                let other = Vni::new(VNI + 1).expect("a number");
                bindings.set(TenantAddress::new(other, HOST.into()), Some(profile));
            }
            let settings = Settings {
                underlay: Underlay::at(&[GATEWAY.into()]),
                ports: vec![PortSettings {
                    mac: MacAddr([2, 0, 0, 0, 0, 2]),
                    v4: Some(GATEWAY),
                    v6: None,
                    mtu: 1500,
                }],
                source_check: false,
                derive_source_port: false,
                ttl: 64,
                errors_per_second: 0,
            };
            let conntrack = Arc::new(Conntrack::new(Limits {
                connections: 1000,
                ..Limits::default()
            }));
            let firewall = Firewall::new(&policy, conntrack);
            let mut decider = Decider::new(
                Arc::new(settings),
                neighbors.reader(),
                hosts.reader(),
                bindings.reader(),
                firewall,
                BURST,
            );
            let frame = |number| {
                let ips = [receiver(number + PACKETS, size).into(), receiver(number, size).into()];
                let frame = tenant_udp([MacAddr([2, 0, 0, 0, 0, 8]), mac], ips, [1000, 53], 64, &[0; 18]);
                Sent::new([HOST.into(), GATEWAY.into()], encapsulation, VNI, frame).bytes()
            };
            // As many as are in a UMEM: the same memory again and again.
            let mut frames: Vec<Roomy> = (0..8 * BURST).map(|number| Roomy::new(&frame(number), 0, 0)).collect();
            let originals: Vec<Vec<u8>> = (0..PACKETS.min(1 << 16)).map(frame).collect();
            let mut at = 0;
            let (least, median) = timed(PACKETS, || {
                for _ in 0..PACKETS / BURST {
                    let first = at % frames.len();
                    let burst = &mut frames[first..first + BURST];
                    for (frame, original) in burst.iter_mut().zip(&originals[at % originals.len()..]) {
                        *frame = black_box(Roomy::new(original, 0, 0));
                    }
                    decider.begin(has_policy);
                    for frame in burst.iter() {
                        decider.read(ringside_gateway_core::Buffer::bytes(frame));
                    }
                    let mut decisions = decider.look_up();
                    for frame in burst {
                        let decision = decisions.next(1, 0, frame);
                        assert!(matches!(decision, Decision::Send { .. }));
                    }
                    at += BURST;
                }
            });
            let (least_copy, _) = timed(PACKETS, || {
                for _ in 0..PACKETS / BURST {
                    let first = at % frames.len();
                    let burst = &mut frames[first..first + BURST];
                    for (frame, original) in burst.iter_mut().zip(&originals[at % originals.len()..]) {
                        *frame = black_box(Roomy::new(original, 0, 0));
                    }
                    at += BURST;
                }
            });
            println!(
                "{size:>9}  {:6.1} {:6.1}   {what} (making frames, subtracted: {least_copy:.1})",
                least - least_copy,
                median - least_copy
            );
        }
    }
}
