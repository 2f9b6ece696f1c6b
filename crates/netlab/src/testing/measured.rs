//! Repetition of measurements that other work on the machine disturbed.

use std::fmt::{self, Display};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringside_nic::host::CpuTimes;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::record;

/// Environment variable with the path of the file that lists repeated measurements.
pub const REPEATS: &str = "RINGSIDE_REPEATS";

/// Maximum number of repeats of a disturbed measurement.
const MAX_REPEATS: u32 = 2;
/// Sleep of a watching thread.
const SLEEP: Duration = Duration::from_millis(2);
/// Wake-up delay that counts as a disturbance: much longer than the scheduling delay under load.
pub const LONG_DELAY: Duration = Duration::from_millis(30);
/// Mean wake-up delay that counts as a disturbance: ten times that of an idle machine. A packet
/// that needs several wake-ups has the sum of their delays.
const LONG_MEAN_DELAY: Duration = Duration::from_millis(1);
/// Share of a CPU's time, 0 to 1, that counts as a disturbance if the hypervisor took more.
const STEAL: f64 = 0.04;

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
/// process lost a CPU during the run, the measurement is repeated, at most twice. Lost means: for
/// 30 ms or more at a time, for 1 ms or more per wake-up on average, or to the hypervisor for more
/// than 4 % of the time.
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
        Box::new(move || watch.disturbance()) as Disturbance
    };
    let repeat = |reason: &str| record(REPEATS, "repeated", reason, caller);
    measured_by(&mut run, watch, repeat).unwrap_or_else(|why| panic!("{why}"))
}

type Disturbance = Box<dyn FnOnce() -> Option<Delays>>;

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
        let Some(delays) = disturbance() else {
            return Err(format!("{off}; nothing disturbed the measurement"));
        };
        if repeats == MAX_REPEATS {
            return Err(format!("{off}; each of {} runs was disturbed: {delays}", repeats + 1));
        }
        repeats += 1;
        // The record has one line for each repeat.
        let summary = off.0.split_whitespace().collect::<Vec<_>>().join(" ");
        repeat(&format!("{summary:.200}; {delays}"));
    }
}

/// The wake-up delays on a CPU, and the share of its time that the hypervisor took, 0 to 1.
#[derive(Clone, Copy, Debug)]
struct Delays {
    cpu: usize,
    longest: Duration,
    mean: Duration,
    steal: f64,
}

impl Delays {
    fn are_disturbance(&self) -> bool {
        self.longest >= LONG_DELAY || self.mean >= LONG_MEAN_DELAY || self.steal > STEAL
    }
}

impl Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.longest.as_millis();
        let mean = self.mean.as_secs_f64() * 1e3;
        write!(
            f,
            "CPU {} was unavailable for {longest} ms ({mean:.1} ms per wake-up, {:.0} % stolen)",
            self.cpu,
            self.steal * 100.0
        )
    }
}

/// One thread for each CPU of this process, which measures its wake-up delays.
struct Watch {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Delays>>,
    before: CpuTimes,
}

impl Watch {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let own = sched_getaffinity(None).expect("the CPUs of this process");
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| own.is_set(cpu));
        let threads = cpus.map(|cpu| {
            let over = Arc::clone(&over);
            thread::spawn(move || measure_delays(cpu, &over))
        });
        let threads = threads.collect();
        let before = CpuTimes::read().expect("the times of the CPUs");
        Self { over, threads, before }
    }

    /// The delays on the most disturbed CPU, if they are a disturbance.
    fn disturbance(mut self) -> Option<Delays> {
        self.over.store(true, Ordering::Relaxed);
        let delays = self.threads.drain(..).map(|thread| thread.join().expect("watches"));
        let passed = CpuTimes::read().expect("the times of the CPUs").since(&self.before);
        let with_steal = |delays: Delays| {
            let time = u32::try_from(delays.cpu).ok().and_then(|cpu| passed.cpu(cpu));
            let steal = time.and_then(|time| time.fraction(time.steal)).unwrap_or(0.0);
            Delays { steal, ..delays }
        };
        delays
            .map(with_steal)
            .filter(Delays::are_disturbance)
            .max_by_key(|delays| delays.longest)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Returns the wake-up delays on `cpu` until `over` is set.
fn measure_delays(cpu: usize, over: &AtomicBool) -> Delays {
    let mut only = CpuSet::new();
    only.set(cpu);
    // An offline CPU disturbs nothing.
    let pinned = sched_setaffinity(None, &only).is_ok();
    let (mut longest, mut sum, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    while pinned && !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        thread::sleep(SLEEP);
        let delay = begin.elapsed().saturating_sub(SLEEP);
        longest = longest.max(delay);
        sum += delay;
        count += 1;
    }
    Delays {
        cpu,
        longest,
        mean: sum / count.max(1),
        steal: 0.0,
    }
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
