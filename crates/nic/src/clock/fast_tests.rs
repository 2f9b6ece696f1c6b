use std::thread;
use std::time::{Duration, Instant};

use super::{FastClock, FastSource};
use crate::clock::{Monotonic, Timestamp};

/// Between two readings of CLOCK_MONOTONIC it shows a time between the two, give or take its bound: at every reading,
/// however busy the machine is.
fn agrees(clock: &mut FastClock, time: Duration, pause: Duration) {
    // Instructions may be done out of order.
    const IN_FLIGHT_NS: u64 = 500;
    let end = Instant::now() + time;
    let mut last = clock.now();
    while Instant::now() < end {
        let before = Timestamp::<Monotonic>::now().as_nanos();
        let shown = clock.now_in_order();
        let after = Timestamp::<Monotonic>::now().as_nanos();
        let margin = clock.bound_ns() + IN_FLIGHT_NS;
        assert!(
            shown.as_nanos() + margin >= before && shown.as_nanos() <= after + margin,
            "{} {} {}: {clock:?}",
            before,
            shown.as_nanos(),
            after
        );
        assert!(shown >= last, "went back: {clock:?}");
        last = shown;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
}

#[test]
fn it_agrees_with_the_kernels_clock() {
    let mut clock = FastClock::new();
    agrees(&mut clock, Duration::from_millis(300), Duration::ZERO);
    agrees(&mut clock, Duration::from_millis(100), Duration::from_millis(3));
    match clock.source() {
        FastSource::Tsc { hz } => {
            assert!(*hz > 10_000_000, "{hz}");
            assert!(clock.checks() > 10 && clock.bound_ns() > 0, "{clock:?}");
            let offset = clock.offset();
            assert_eq!((offset.delta_ns(), offset.uncertainty_ns()), (0, clock.bound_ns()));
        }
        FastSource::Kernel { reason } => assert!(!reason.is_empty() && clock.bound_ns() == 0),
    }
}

#[test]
fn where_the_counter_is_no_good_the_kernels_clock_is_read() {
    let mut clock = FastClock::kernel();
    agrees(&mut clock, Duration::from_millis(20), Duration::ZERO);
    assert!(matches!(clock.source(), FastSource::Kernel { .. }));
    assert_eq!((clock.bound_ns(), clock.checks()), (0, 0));
    assert_eq!(clock.offset().uncertainty_ns(), 0);
}
