use std::cell::Cell;

use super::*;

/// Stamps a packet that arrived at 1000 ns. The clocks differ by 50 ns and a reading takes 20 ns.
/// `waits` has the number of a reading and the delay before it in nanoseconds.
fn stamps(waits: &[(u32, u64)]) -> FarStamps {
    let (now, readings) = (Cell::new(1100), Cell::new(0));
    let read = || {
        let number = readings.replace(readings.get() + 1);
        let waited = waits.iter().find(|wait| wait.0 == number).map_or(0, |wait| wait.1);
        now.set(now.get() + 20 + waited);
        now.get()
    };
    translate(1000, read, || read() + 50)
}

#[test]
fn preemption_between_readings_keeps_arrival_time() {
    // The packet arrived at 1050 by CLOCK_MONOTONIC.
    for waits in [
        &[][..],
        &[(1, 500_000)],
        &[(2, 500_000)],
        &[(0, 9_000)],
        &[(1, 9), (3, 7_000), (6, 1_000)],
    ] {
        let FarStamps { came_ns, left_ns } = stamps(waits);
        assert!(came_ns.abs_diff(1050) <= 20, "{waits:?}: came at {came_ns}");
        assert!(left_ns > came_ns, "{waits:?}");
    }
}

#[test]
fn stamps_only_probes_that_request_it() {
    let probe = Probe {
        kind: ringside_measure::probe::Kind::Request,
        clock: Clock::Monotonic,
        session: 1,
        sequence: 1,
        intended_ns: 1,
        sent_ns: 1,
    };
    let times = FarStamps { came_ns: 7, left_ns: 9 };
    let mut payload = [0; 100];
    probe.encode(&mut payload).unwrap();
    assert!(matches!(stamp(&probe, &mut payload, || unreachable!()), Reply::AsItIs));
    FarStamps::ask(&mut payload).unwrap();
    assert!(matches!(stamp(&probe, &mut payload, || times), Reply::Changed));
    assert_eq!(FarStamps::read(&payload), Some(times));
}
