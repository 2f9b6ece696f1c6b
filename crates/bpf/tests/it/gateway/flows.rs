//! Of packets that are sent on one of many is told: who sends to whom.

use std::time::Duration;

use ringside_bpf::gateway::{CachedNeighbor, FlowSample, Outcome, PolicySince, PolicySlot};
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::corpus::{VNI, gateway, host, mac, tenant};
use ringside_gateway_core::testing::{Sent, tenant_udp};

use crate::common::privileged;
use crate::gateway::bed::{Bed, Wanted, in_namespace, key, neighbor};

/// From tenant 1 to tenant 2.
fn frame(outer_v6: bool, inner_v6: bool, encapsulation: Encapsulation) -> Vec<u8> {
    let ips = [tenant(1, inner_v6), tenant(2, inner_v6)];
    let frame = tenant_udp([mac(1), mac(2)], ips, [1000, 53], 64, b"data");
    Sent::new([host(1, outer_v6), gateway(outer_v6)], encapsulation, VNI, frame).bytes()
}

fn run(bed: &Bed, frame: &[u8], packets: u64) {
    let before = bed.program.count(Outcome::Forwarded).unwrap().packets;
    for _ in 0..packets {
        ringside_bpf::dry_run(&bed.program, frame).unwrap();
    }
    let after = bed.program.count(Outcome::Forwarded).unwrap().packets;
    assert_eq!(after - before, packets, "all are sent on");
}

#[test]
fn one_of_many_is_told() {
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
            let flows = bed.program.flows().unwrap();
            bed.configure(|config| config.sampling = None);
            run(&bed, &frame(v6, false, Encapsulation::Vxlan), 100);
            assert_eq!(flows.read(Duration::ZERO).unwrap(), [], "nobody asked");
            bed.configure(|config| config.one_in = 8);
            // Plain VXLAN over IPv4 has a lane of its own.
            for (inner_v6, encapsulation) in [
                (false, Encapsulation::Vxlan),
                (true, Encapsulation::Vxlan),
                (false, Encapsulation::Geneve),
            ] {
                run(&bed, &frame(v6, inner_v6, encapsulation), 3000);
                let told = flows.read(Duration::ZERO).unwrap();
                let expected = FlowSample {
                    host: host(1, v6),
                    vni: VNI,
                    source: tenant(1, inner_v6),
                    destination: tenant(2, inner_v6),
                };
                assert!(told.iter().all(|flow| *flow == expected), "{told:?}");
                // 3000 / 8.5 ± 5 standard deviations of the sum of that many gaps.
                assert!((300..=410).contains(&told.len()), "{}", told.len());
            }
        });
    }
}

/// Whoever has rules is not to be sent to past the gateway.
#[test]
fn nobody_is_told_of_who_has_rules() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let mut bed = Bed::new(second, Wanted::default());
        let flows = bed.program.flows().unwrap();
        let guarded = |last, policed| CachedNeighbor {
            policed,
            guarded: true,
            ..neighbor(last, false)
        };
        let entries = [(1, true), (2, false)].map(|(last, policed)| (key(last, false), guarded(last, policed)));
        bed.program.neighbors().put(&entries);
        let since = (PolicySlot::of(VNI), PolicySince::first(1));
        bed.program.policies().put(&[since]).unwrap();
        bed.configure(|config| (config.one_in, config.sampling) = (1, None));
        for _ in 0..100 {
            let frame = frame(false, false, Encapsulation::Vxlan);
            ringside_bpf::dry_run(&bed.program, &frame).unwrap();
        }
        assert_eq!(flows.read(Duration::ZERO).unwrap(), []);
    });
}
