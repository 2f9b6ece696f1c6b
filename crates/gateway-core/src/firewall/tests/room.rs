//! Limits, and who goes when they are met.

use std::time::Duration;

use proptest::prelude::*;

use super::bench::{packet, turned, udp};
use super::*;
use crate::conntrack::{Counts, Rank};

fn limits(connections: u32) -> Limits {
    Limits {
        connections,
        ..Limits::default()
    }
}

/// A connection that was answered.
#[track_caller]
fn open(bench: &mut Bench, port: u16) {
    bench.pass(&udp(port, 53));
    assert!(bench.pass(&turned(udp(port, 53))));
}

fn ports(bench: &Bench) -> Vec<u16> {
    let mut ports = Vec::new();
    bench
        .firewall
        .conntrack()
        .for_each(|connection| ports.push(connection.ports[0]));
    ports.sort_unstable();
    ports
}

#[test]
fn the_oldest_that_was_not_answered_goes_first() {
    let mut bench = Bench::open(limits(4));
    open(&mut bench, 1);
    bench.wait(1);
    bench.pass(&udp(2, 53));
    bench.wait(1);
    bench.pass(&udp(3, 53));
    bench.pass(&packet(Protocol(47), Upper::Other));
    bench.wait(1);
    bench.pass(&udp(4, 53));
    assert_eq!(ports(&bench), [0, 1, 3, 4]);
    open(&mut bench, 5);
    open(&mut bench, 6);
    assert_eq!(ports(&bench), [1, 4, 5, 6], "of two states the older one each time");
    let counts = bench.firewall.conntrack().counts();
    assert_eq!((counts.evicted, counts.total(), counts.begun), ([3, 0, 0], 4, 7));
}

#[test]
fn one_that_had_no_packet_for_too_long_goes_before_all() {
    let mut bench = Bench::open(limits(3));
    open(&mut bench, 1);
    bench.wait(100);
    bench.pass(&udp(2, 53));
    bench.wait(21);
    bench.pass(&udp(3, 53));
    bench.pass(&udp(4, 53));
    assert_eq!(ports(&bench), [2, 3, 4]);
    let counts = bench.firewall.conntrack().counts();
    assert_eq!((counts.evicted, counts.timed_out), ([0, 0, 0], 1));
}

#[test]
fn established_ones_go_last_and_only_if_idle() {
    let limits = Limits {
        idle: Duration::from_secs(50),
        ..limits(3)
    };
    let mut bench = Bench::open(limits);
    open(&mut bench, 1);
    open(&mut bench, 2);
    bench.wait(30);
    open(&mut bench, 3);
    bench.refuse(&udp(4, 53), Refused::TableFull);
    assert_eq!(ports(&bench), [1, 2, 3]);
    bench.wait(20);
    // The first is the older one in its list, and not idle.
    bench.pass(&udp(1, 53));
    bench.pass(&udp(4, 53));
    assert_eq!(ports(&bench), [1, 3, 4]);
    bench.pass(&udp(5, 53));
    assert_eq!(ports(&bench), [1, 3, 5]);
    assert_eq!(bench.firewall.conntrack().counts().evicted, [1, 0, 1]);
}

#[test]
fn what_is_established_stays_while_there_are_others_anywhere() {
    // Stripes enough that the new one and the one that can go are seldom in the same.
    let mut bench = Bench::open(limits(4096));
    for port in 1..4096 {
        open(&mut bench, port);
    }
    bench.wait(119);
    bench.pass(&udp(5000, 1));
    for port in 1..200 {
        bench.pass(&udp(5000, port + 1));
        assert_eq!(bench.len(), 4096);
    }
    let counts = bench.firewall.conntrack().counts();
    assert_eq!(counts.of(State::UdpReplied), 4095);
    assert_eq!(counts.evicted, [199, 0, 0]);
}

#[test]
fn a_network_has_its_own_limit() {
    let per_tenant = Limits {
        per_tenant: 2,
        ..limits(1000)
    };
    let mut bench = Bench::open(per_tenant);
    open(&mut bench, 1);
    bench.pass(&udp(2, 53));
    bench.pass(&udp(3, 53));
    assert_eq!(ports(&bench), [1, 3], "its own that was not answered goes");
    bench.pass(&turned(udp(3, 53)));
    bench.refuse(&udp(4, 53), Refused::TenantFull);
    let first = bench.vni;
    bench.vni = Vni::new(8).unwrap();
    bench.pass(&udp(4, 53));
    assert_eq!(bench.firewall.conntrack().tenant_len(first), 2);
    assert_eq!(bench.firewall.conntrack().tenant_len(bench.vni), 1);
    bench.vni = first;
    bench.refuse(&udp(4, 53), Refused::TenantFull);
    bench.firewall.conntrack().limit_tenant(first, Some(3));
    bench.pass(&udp(4, 53));
    bench.firewall.conntrack().limit_tenant(first, None);
    bench.wait(121);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 4);
    assert_eq!(bench.firewall.conntrack().tenant_len(first), 0);
    assert!(bench.firewall.conntrack().is_empty());
    bench.firewall.conntrack().limit_tenant(first, Some(0));
    bench.refuse(&udp(4, 53), Refused::TenantFull);
}

#[test]
fn a_sweep_ends_what_is_over_and_nothing_else() {
    let mut bench = Bench::open(limits(100_000));
    for port in 1..=1000 {
        bench.pass(&udp(port, 53));
    }
    bench.wait(20);
    for port in 1..=400 {
        open(&mut bench, port);
    }
    bench.wait(11);
    for port in 401..=500 {
        bench.pass(&udp(port, 54));
    }
    // Of the thousand, 600 were not answered.
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 600);
    let counts = bench.firewall.conntrack().counts();
    assert_eq!(
        (counts.of(State::UdpReplied), counts.of(State::UdpUnreplied)),
        (400, 100)
    );
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 0);
    bench.wait(1000);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 500);
    assert!(ports(&bench).is_empty());
}

#[test]
fn a_lively_connection_does_not_hide_those_behind_it() {
    let mut bench = Bench::open(limits(10));
    open(&mut bench, 1);
    open(&mut bench, 2);
    for _ in 0..17 {
        bench.wait(8);
        bench.pass(&udp(1, 53));
    }
    // An eighth of 120 s after its end at the latest.
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1);
    assert_eq!(ports(&bench), [1]);

    let limits = Limits {
        idle: Duration::from_secs(5),
        ..limits(2)
    };
    let mut bench = Bench::open(limits);
    open(&mut bench, 1);
    open(&mut bench, 2);
    bench.wait(6);
    bench.pass(&udp(1, 53));
    bench.pass(&udp(3, 53));
    assert_eq!(ports(&bench), [1, 3]);
}

#[test]
fn packets_keep_a_connection_from_being_swept() {
    let mut bench = Bench::open(limits(10));
    open(&mut bench, 1);
    for _ in 0..50 {
        bench.wait(119);
        assert_eq!(bench.firewall.conntrack().sweep(bench.now), 0);
        bench.pass(&udp(1, 53));
    }
    bench.wait(121);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1);
}

/// Those that are there, too.
#[test]
fn limits_change_while_connections_are_there() {
    let mut bench = Bench::open(limits(10));
    bench.pass(&udp(1, 53));
    bench.firewall.conntrack().limit_each(1);
    assert_eq!(
        bench.judge(&udp(2, 53)).err(),
        None,
        "the one that nobody answered goes"
    );
    bench.pass(&turned(udp(2, 53)));
    assert_eq!(bench.judge(&udp(3, 53)), Err(Refused::TenantFull));
    bench.firewall.conntrack().limit_each(2);
    bench.pass(&udp(3, 53));
    bench.pass(&turned(udp(3, 53)));
    let mut timeouts = bench.firewall.conntrack().timeouts();
    assert_eq!(timeouts, Limits::default().timeouts);
    timeouts.set(State::UdpReplied, Duration::from_secs(5));
    bench.firewall.conntrack().set_timeouts(&timeouts);
    assert_eq!(bench.firewall.conntrack().timeouts(), timeouts);
    bench.wait(4);
    bench.pass(&udp(3, 53));
    bench.wait(4);
    assert_eq!(
        bench.firewall.conntrack().sweep(bench.now),
        1,
        "the one without packets"
    );
    bench.pass(&udp(3, 53));
}

#[test]
fn the_fast_path_keeps_a_connection_alive() {
    let mut bench = Bench::open(limits(10));
    let id = bench.judge(&udp(1, 53)).unwrap().connection.unwrap();
    assert_eq!(bench.firewall.conntrack().hand_over(id), None, "not answered yet");
    bench.pass(&turned(udp(1, 53)));
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    for _ in 0..10 {
        bench.wait(100);
        assert!(bench.firewall.conntrack().touch(id, bench.now));
    }
    bench.wait(100);
    assert!(
        bench.firewall.conntrack().touch(id, bench.now - 99 * SECOND),
        "late news"
    );
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 0);
    bench.wait(30);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1);
    assert!(!bench.firewall.conntrack().touch(id, bench.now));
    // The place has another connection, whose name is another.
    bench.pass(&udp(2, 53));
    bench.pass(&turned(udp(2, 53)));
    assert!(!bench.firewall.conntrack().touch(id, bench.now) && bench.firewall.conntrack().hand_over(id).is_none());
    for bits in [0, 3, 1 << 32 | 1, 1 << 54, u64::MAX] {
        let nobody = crate::conntrack::ConnectionId::from_bits(bits);
        assert!(!bench.firewall.conntrack().touch(nobody, bench.now));
    }
}

#[test]
fn looking_ahead_changes_nothing() {
    let mut bench = Bench::open(limits(5000));
    for port in 1..=3000 {
        bench.pass(&udp(port, 53));
    }
    let conntrack = bench.firewall.conntrack();
    let before = conntrack.counts();
    let burst: Vec<_> = (0..4000)
        .map(|port| conntrack.place(bench.vni, &udp(port, 53)).unwrap())
        .collect();
    conntrack.look_ahead(&burst);
    conntrack.look_ahead(&[]);
    assert_eq!(conntrack.counts(), before);
    // Both directions are kept in one place, and what belongs to no connection in none.
    assert_eq!(burst[1..=1], [conntrack.place(bench.vni, &turned(udp(1, 53))).unwrap()]);
    assert_ne!(burst[1], burst[2]);
    assert_eq!(conntrack.place(bench.vni, &packet(Protocol::UDP, Upper::Later)), None);
}

#[test]
fn ranks_are_in_order() {
    assert!(Rank::Unreplied < Rank::Closing && Rank::Closing < Rank::Established);
    let open = State::ALL.iter().filter(|state| state.rank() == Rank::Established);
    assert!(open.clone().all(|state| state.is_open()) && open.count() == 3);
}

/// Of the process, in bytes.
fn resident_memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn connections_take_memory_when_they_come() {
    const COUNT: u32 = 4 << 20;
    const FEW: u16 = 5000;
    const { assert!(Conntrack::BYTES <= 192) };
    let before = resident_memory();
    let mut bench = Bench::open(limits(COUNT));
    let taken = resident_memory().saturating_sub(before);
    // Other tests run meanwhile.
    assert!(taken < COUNT as usize * Conntrack::BYTES / 2, "{taken}");
    let index = bench.firewall.conntrack().memory();
    assert!(index <= COUNT as usize * 16, "{index}");
    for port in 0..FEW {
        bench.pass(&udp(port, 53));
    }
    let more = bench.firewall.conntrack().memory() - index;
    assert_eq!(more, usize::from(FEW) * 128);
}

fn of_rank(counts: &Counts, rank: Rank) -> u32 {
    let states = State::ALL.iter().filter(|state| state.rank() == rank);
    states.map(|state| counts.of(*state)).sum()
}

proptest! {
    /// Whatever comes: limits are kept, nobody goes while somebody of a lower rank is there, and nobody is refused for whom
    /// there would be room.
    #[test]
    fn who_goes(
        packets in prop::collection::vec((0..2_u32, 1..40_u16, 0..4_u8, 0..3_u64), 0..300),
        idle in prop::sample::select(vec![0_u64, 20, 1000]),
    ) {
        let limits = Limits {
            connections: 8,
            per_tenant: 6,
            idle: Duration::from_secs(idle),
            ..Limits::default()
        };
        let mut bench = Bench::open(limits);
        for (vni, port, kind, seconds) in packets {
            bench.wait(seconds);
            bench.vni = Vni::new(vni).unwrap();
            bench.firewall.conntrack().sweep(bench.now);
            let before = bench.firewall.conntrack().counts();
            let mut tenants_weak = 0;
            let mut idlest = 0;
            bench.firewall.conntrack().for_each(|connection| {
                let weak = connection.state.rank() < Rank::Established;
                tenants_weak += u32::from(weak && connection.vni == bench.vni);
                if !weak {
                    idlest = idlest.max(bench.now - connection.seen);
                }
            });
            let flow = match kind {
                0 | 1 => udp(port, 53),
                2 => turned(udp(port, 53)),
                _ => packet(Protocol(port.to_be_bytes()[1]), Upper::Other),
            };
            let judged = bench.judge(&flow);
            let after = bench.firewall.conntrack().counts();
            prop_assert!(after.total() <= 8);
            let weak = of_rank(&after, Rank::Unreplied) + of_rank(&after, Rank::Closing);
            prop_assert_eq!(bench.firewall.conntrack().weak(), weak);
            for vni in 0..2 {
                prop_assert!(bench.firewall.conntrack().tenant_len(Vni::new(vni).unwrap()) <= 6);
            }
            let gone: Vec<u64> = after.evicted.iter().zip(before.evicted).map(|(after, before)| after - before).collect();
            prop_assert!(gone.iter().sum::<u64>() <= 1);
            let own_limit = before.total() < 8;
            if gone[1] == 1 && !own_limit {
                prop_assert_eq!(of_rank(&before, Rank::Unreplied), 0);
            }
            if gone[2] == 1 {
                prop_assert_eq!(of_rank(&before, Rank::Unreplied) + of_rank(&before, Rank::Closing), 0);
                prop_assert!(idlest >= idle * SECOND);
            }
            match judged {
                Err(Refused::TenantFull) => prop_assert_eq!(tenants_weak, 0),
                Err(Refused::TableFull) => {
                    prop_assert_eq!(of_rank(&before, Rank::Established), 8);
                    prop_assert!(idlest < idle * SECOND);
                }
                Err(Refused::Denied(_)) => prop_assert_eq!(kind, 2),
                Err(other) => prop_assert!(false, "{:?}", other),
                Ok(_) => {}
            }
        }
    }
}

#[test]
fn what_is_drained_goes_on_and_begins_nothing() {
    let mut bench = Bench::open(limits(10));
    bench.pass(&udp(1, 53));
    bench.firewall.conntrack().drain(true);
    assert_eq!(bench.judge(&udp(2, 53)), Err(Refused::Draining));
    assert!(bench.pass(&turned(udp(1, 53))), "an answer");
    bench.firewall.conntrack().drain(false);
    bench.pass(&udp(2, 53));
}
