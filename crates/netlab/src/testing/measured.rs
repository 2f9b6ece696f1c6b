//! Repetition of measurements that other work on the machine disturbed.

use std::fmt::{self, Display};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::record;

/// Environment variable with the path of the file that lists repeated measurements.
pub const REPEATS: &str = "RINGSIDE_REPEATS";

/// Maximum number of repeats of a disturbed measurement.
const MAX_REPEATS: u32 = 2;
/// Sleep of a watching thread.
const SLEEP: Duration = Duration::from_millis(2);
/// Wake-up delay that counts as a disturbance: much longer than the scheduling delay under load.
const MIN_DELAY: Duration = Duration::from_millis(30);

/// A time or a rate outside of its limits.
#[derive(Debug)]
pub struct Off(String);

impl Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a time or a rate in a run of [`measured`]. `message` describes the violation.
///
/// # Errors
///
/// [`Off`] unless `holds`.
pub fn expect(holds: bool, message: impl Display) -> Result<(), Off> {
    match holds {
        true => Ok(()),
        false => Err(Off(message.to_string())),
    }
}

/// Runs a measurement and returns its result.
///
/// A run checks its times and rates with [`expect`]. If a value is outside of its limits and this
/// process lost a CPU for 30 ms or more during the run, the measurement is repeated, at most twice.
/// Each repeat is printed and appended to the file that [`REPEATS`] names. A run asserts counts,
/// order and structure itself: a panic is never repeated.
///
/// # Panics
///
/// Panics if a run panics, if a value is outside of its limits without a disturbance, and if the
/// third run was disturbed, too.
#[track_caller]
pub fn measured<T>(mut run: impl FnMut() -> Result<T, Off>) -> T {
    let caller = Location::caller();
    let watch = || {
        let watch = Watch::start();
        Box::new(move || watch.longest().filter(|late| late.by >= MIN_DELAY)) as Disturbance
    };
    let repeat = |reason: &str| record(REPEATS, "repeated", reason, caller);
    measured_by(&mut run, watch, repeat).unwrap_or_else(|why| panic!("{why}"))
}

type Disturbance = Box<dyn FnOnce() -> Option<Late>>;

/// Implements [`measured`] with any watch and any record. Returns the panic message as an error.
fn measured_by<T>(
    run: &mut dyn FnMut() -> Result<T, Off>,
    watch: impl Fn() -> Disturbance,
    repeat: impl Fn(&str),
) -> Result<T, String> {
    let mut repeats = 0;
    loop {
        let disturbance = watch();
        let off = match run() {
            Ok(value) => return Ok(value),
            Err(off) => off,
        };
        let Some(late) = disturbance() else {
            return Err(format!("{off}; nothing disturbed the measurement"));
        };
        if repeats == MAX_REPEATS {
            return Err(format!("{off}; each of {} runs was disturbed: {late}", repeats + 1));
        }
        repeats += 1;
        // The record has one line for each repeat.
        let summary = off.0.split_whitespace().collect::<Vec<_>>().join(" ");
        repeat(&format!("{summary:.200}; {late}"));
    }
}

/// The longest wake-up delay on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    by: Duration,
    cpu: usize,
}

impl Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {} was unavailable for {} ms", self.cpu, self.by.as_millis())
    }
}

/// One thread for each CPU of this process, which measures its wake-up delays.
struct Watch {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Late>>,
}

impl Watch {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let own = sched_getaffinity(None).expect("the CPUs of this process");
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| own.is_set(cpu));
        let threads = cpus.map(|cpu| {
            let over = Arc::clone(&over);
            thread::spawn(move || measure_delay(cpu, &over))
        });
        let threads = threads.collect();
        Self { over, threads }
    }

    fn longest(mut self) -> Option<Late> {
        self.over.store(true, Ordering::Relaxed);
        self.threads
            .drain(..)
            .map(|thread| thread.join().expect("watches"))
            .max()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Returns the longest wake-up delay on `cpu` until `over` is set.
fn measure_delay(cpu: usize, over: &AtomicBool) -> Late {
    let mut only = CpuSet::new();
    only.set(cpu);
    // An offline CPU disturbs nothing.
    let pinned = sched_setaffinity(None, &only).is_ok();
    let mut by = Duration::ZERO;
    while pinned && !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        thread::sleep(SLEEP);
        by = by.max(begin.elapsed().saturating_sub(SLEEP));
    }
    Late { by, cpu }
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
