//! A TX side that makes no progress: since when, and when the driver is woken again.

use std::time::{Duration, Instant};

/// Pauses between two wake-ups of a zero-copy driver that has not taken anything: the first, and
/// the longest.
const WAKE_PAUSE: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];

/// The state of a TX side after a pass without progress.
#[derive(Default)]
pub(super) struct Stall {
    /// The times of the first look and of the last. None after a single pass: mostly the driver
    /// takes the rest in a moment, so the clock is not read.
    looks: Option<(Instant, Instant)>,
    /// When to wake the driver again, and the pause after that.
    wake: Option<(Instant, Duration)>,
}

impl Stall {
    /// Notes a look at the rings without progress, and returns for how long there has been none.
    /// The time since the previous look does not count: this thread may have had no CPU.
    pub(super) fn look(&mut self) -> Duration {
        let now = Instant::now();
        let (since, looked) = self.looks.get_or_insert((now, now));
        let waited = looked.duration_since(*since);
        *looked = now;
        waited
    }

    /// Returns whether a zero-copy driver is to be woken now. It was woken for what waits, and
    /// takes that when its NIC has room; each further wake-up costs an interrupt.
    pub(super) fn wakes_driver(&mut self) -> bool {
        let now = Instant::now();
        let [first, longest] = WAKE_PAUSE;
        let (next, pause) = self.wake.unwrap_or((now, first));
        if now < next {
            return false;
        }
        self.wake = Some((now + pause, longest.min(pause * 2)));
        true
    }
}
