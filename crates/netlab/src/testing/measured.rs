//! Tests of times and rates, which other work on the machine can disturb.

use std::fmt::{self, Display};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::record;

/// Environment variable with the file that repeated tests are recorded in.
pub const REPEATS: &str = "RINGSIDE_REPEATS";

/// How often a measurement that was disturbed is made again.
const REPEATED: u32 = 2;
/// How long the watching threads sleep.
const STEP: Duration = Duration::from_millis(2);
/// Much longer than a thread waits for its turn among some that compute.
const LATE: Duration = Duration::from_millis(30);

/// A time or a rate that is not what it is on a machine with nothing else to do.
#[derive(Debug)]
pub struct Off(String);

impl Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a time or a rate in a run of [`measured`], with what to say if it is off.
///
/// # Errors
///
/// [`Off`] unless it holds.
pub fn expect(holds: bool, what: impl Display) -> Result<(), Off> {
    match holds {
        true => Ok(()),
        false => Err(Off(what.to_string())),
    }
}

/// Runs a measurement, and returns what it does.
///
/// A run checks its times and rates with [`expect`]. If one is off and a CPU was taken from this
/// process for 30 ms or more meanwhile, the measurement is made again, at most twice. The repeat is
/// printed, and recorded in the file that [`REPEATS`] names. What no disturbance excuses (counts,
/// order, structure) a run asserts itself: after a panic nothing is repeated.
///
/// # Panics
///
/// When a run panics; when a time or a rate is off and nothing disturbed the run, or it was the third.
#[track_caller]
pub fn measured<T>(mut run: impl FnMut() -> Result<T, Off>) -> T {
    let caller = Location::caller();
    let watch = || {
        let watch = Watch::start();
        Box::new(move || watch.longest().filter(|late| late.by >= LATE)) as Disturbance
    };
    let repeat = |reason: &str| record(REPEATS, "repeated", reason, caller);
    measured_by(&mut run, watch, repeat).unwrap_or_else(|why| panic!("{why}"))
}

type Disturbance = Box<dyn FnOnce() -> Option<Late>>;

/// `Err` says why the measurement failed.
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
        if repeats == REPEATED {
            return Err(format!("{off}; each of {} runs was disturbed: {late}", repeats + 1));
        }
        repeats += 1;
        // A record is a line.
        let told: String = off.0.lines().next().unwrap_or_default().chars().take(200).collect();
        repeat(&format!("{told}; {late}"));
    }
}

/// How late a thread woke up that had nothing else to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    by: Duration,
    cpu: usize,
}

impl Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {} was taken away for {} ms", self.cpu, self.by.as_millis())
    }
}

/// A thread on each CPU of this process that does nothing but wake up.
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
            thread::spawn(move || wake_up(cpu, &over))
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

fn wake_up(cpu: usize, over: &AtomicBool) -> Late {
    let mut only = CpuSet::new();
    only.set(cpu);
    // One that went offline disturbs nobody.
    let pinned = sched_setaffinity(None, &only).is_ok();
    let mut by = Duration::ZERO;
    while pinned && !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        thread::sleep(STEP);
        by = by.max(begin.elapsed().saturating_sub(STEP));
    }
    Late { by, cpu }
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
