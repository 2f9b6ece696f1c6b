use std::cell::Cell;

use super::*;

/// Stamps of a packet that came at 1000 ns, by two clocks that are 50 ns apart, when each reading
/// takes 20 ns and the thread has to wait before some of them.
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
fn a_thread_that_waits_between_two_clocks_tells_no_wrong_times() {
    // By the other clock the packet came at 1050.
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
fn only_who_asks_for_times_gets_them() {
    let probe = |clock| Probe {
        kind: ringside_measure::probe::Kind::Request,
        clock,
        session: 1,
        sequence: 1,
        intended_ns: 1,
        sent_ns: 1,
    };
    let times = FarStamps { came_ns: 7, left_ns: 9 };
    let mut payload = [0; 100];
    let given = probe(Clock::Monotonic);
    given.encode(&mut payload).unwrap();
    assert!(matches!(stamp(&given, &mut payload, || unreachable!()), Reply::AsItIs));
    FarStamps::ask(&mut payload).unwrap();
    assert!(matches!(stamp(&given, &mut payload, || times), Reply::Changed));
    assert_eq!(FarStamps::read(&payload), Some(times));
}
