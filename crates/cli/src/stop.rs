//! When a run ends: at its time, at its count, or at SIGINT and SIGTERM, always with its results.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Tells all threads of a run to end. Without more no signal sets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    /// It was a signal. Apart from `flag`: at the regular end of a run the first signal must not kill the process while
    /// it puts its results together.
    signal: Arc<AtomicBool>,
}

impl Stop {
    /// One that SIGINT and SIGTERM set. A second signal ends the process at once.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let stop = Self {
            flag: Arc::default(),
            signal: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second signal finds the flag set by the first.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop.signal))?;
            signal_hook::flag::register(signal, Arc::clone(&stop.signal))?;
            signal_hook::flag::register(signal, Arc::clone(&stop.flag))?;
        }
        Ok(stop)
    }

    /// One for a part of the run, which is ended by itself: whoever ends the whole has to end the part.
    pub(crate) fn part(&self) -> Self {
        Self {
            flag: Arc::default(),
            signal: Arc::clone(&self.signal),
        }
    }

    /// True when a signal asked for the end: the user waits.
    pub(crate) fn is_signal(&self) -> bool {
        self.signal.load(Ordering::Relaxed)
    }

    /// True when the run shall end.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// What is true then, for who knows nothing of this.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Ends the run.
    pub(crate) fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Lets the run go on whose end was no signal's: what set this has been mended.
    pub(crate) fn clear(&self) {
        self.flag.store(false, Ordering::Relaxed);
        // One that came meanwhile stays.
        if self.is_signal() {
            self.set();
        }
    }

    /// Sleeps until `deadline` or the stop; true when it was the stop.
    pub(crate) fn sleep_until(&self, deadline: Instant) -> bool {
        while !self.is_set() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
        true
    }
}
