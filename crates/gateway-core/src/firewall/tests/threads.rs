//! Many threads, one table.

use std::sync::Barrier;

use super::bench::{turned, udp};
use super::*;

/// Whatever threads do at once, all counts are right in the end, and limits were kept all the time.
#[test]
fn counts_are_right_whoever_comes_in_between() {
    const THREADS: u16 = 4;
    let limits = Limits {
        connections: 300,
        per_tenant: 200,
        ..Limits::default()
    };
    let bench = Bench::open(limits);
    let start = Barrier::new(usize::from(THREADS));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (mut firewall, start) = (bench.firewall.clone(), &start);
            let (client, server) = (bench.client, bench.server);
            scope.spawn(move || {
                start.wait();
                for step in 0..20_000_u32 {
                    let random = step.wrapping_mul(2_654_435_761).rotate_left(u32::from(thread) * 5);
                    let port = u16::try_from(random % 400).unwrap();
                    let vni = Vni::new(random >> 9 & 3).unwrap();
                    let now = bench.now + u64::from(step) * SECOND / 500;
                    let flow = udp(port, 53);
                    let judged = match random >> 20 & 3 {
                        0 => firewall.judge(now, vni, &turned(flow), server, client),
                        _ => firewall.judge(now, vni, &flow, client, server),
                    };
                    let conntrack = firewall.conntrack();
                    match (judged, random >> 24 & 7) {
                        (Ok(passed), 0) => _ = conntrack.touch(passed.connection.unwrap(), now),
                        (Ok(passed), 1) => _ = conntrack.hand_over(passed.connection.unwrap()),
                        (_, 2) if step % 64 == 0 => _ = conntrack.sweep(now),
                        _ => {}
                    }
                    // Each thread may count one that it then does not put in.
                    assert!(conntrack.len() <= 300 + usize::from(THREADS));
                }
            });
        }
    });
    let conntrack = bench.firewall.conntrack();
    let mut tenants = [0; 4];
    conntrack.for_each(|connection| tenants[connection.vni.number() as usize] += 1);
    let counts = conntrack.counts();
    assert_eq!(counts.total(), conntrack.len() as u64);
    assert_eq!(counts.total(), tenants.iter().sum::<usize>() as u64);
    for (vni, count) in (0..).zip(tenants) {
        assert_eq!(conntrack.tenant_len(Vni::new(vni).unwrap()), count);
    }
    let ended = counts.timed_out + counts.replaced + counts.evicted.iter().sum::<u64>();
    assert_eq!(counts.begun, counts.total() + ended);
    // All can be ended, so no list has lost one.
    assert_eq!(conntrack.sweep(bench.now + 1_000_000 * SECOND) as u64, counts.total());
    assert_eq!((conntrack.len(), conntrack.weak()), (0, 0));
}

/// A rule is taken away while threads send: what passes after the writer is done was allowed by the rules after it.
#[test]
fn no_packet_passes_by_rules_that_are_gone() {
    let mut bench = Bench::open(few());
    for port in 0..200 {
        bench.pass(&udp(port, 53));
        bench.pass(&turned(udp(port, 53)));
    }
    let gone = std::sync::atomic::AtomicBool::new(false);
    let (client, server, vni, now) = (bench.client, bench.server, bench.vni, bench.now);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut firewall, gone) = (bench.firewall.clone(), &gone);
            scope.spawn(move || {
                loop {
                    let was_gone = gone.load(std::sync::atomic::Ordering::Acquire);
                    for port in 0..200 {
                        let passed = firewall.judge(now, vni, &turned(udp(port, 53)), server, client);
                        assert!(!(was_gone && passed.is_ok()), "{port}");
                    }
                    if was_gone {
                        break;
                    }
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut writer = bench.policy.write();
        writer.put_group(bench::SERVER, Vec::new()).unwrap();
        writer.publish();
        gone.store(true, std::sync::atomic::Ordering::Release);
    });
    assert!(bench.firewall.conntrack().is_empty());
}
