//! What a run costs: CPU time by stage, the threads that took part, cycles and instructions where they are counted.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use ringside_measure::schema::{self, CpuStages, PerfCounts, ThreadUse};
use ringside_nic::host::{CpuTimes, ThreadTime, packet_threads};

use super::nanos;
use crate::system;

/// Readings at the begin of a run, and what its threads tell at their ends.
pub(super) struct Meter {
    cpus: Option<CpuTimes>,
    kernel: Vec<(u32, String, ThreadTime, Instant)>,
    workers: Mutex<Workers>,
}

#[derive(Default)]
struct Workers {
    threads: Vec<ThreadUse>,
    counters: Option<PerfCounts>,
    no_counters: Option<String>,
}

impl Meter {
    pub(super) fn start() -> Self {
        let kernel = packet_threads()
            .into_iter()
            .filter_map(|(pid, name)| {
                let start = Instant::now();
                Some((pid, name, ThreadTime::of(pid)?, start))
            })
            .collect();
        Self {
            cpus: CpuTimes::read().ok(),
            kernel,
            workers: Mutex::default(),
        }
    }

    /// To be called on a thread of the run when it begins; what it gives, when it ends.
    pub(super) fn worker(&self, number: usize) -> Worker<'_> {
        Worker {
            meter: self,
            number,
            // Before the reading, so that no wait is outside of the time.
            start: Instant::now(),
            begun: ThreadTime::current(),
            counters: Counters::start(),
        }
    }

    /// CPU by CPU, and by stage.
    pub(super) fn end(self) -> (Vec<schema::CpuUse>, Option<CpuStages>) {
        let Some((before, after)) = self.cpus.zip(CpuTimes::read().ok()) else {
            return (Vec::new(), None);
        };
        let tick_ns = tick_ns();
        let passed = after.since(&before).sum();
        let mut workers = self.workers.into_inner().unwrap_or_else(PoisonError::into_inner);
        workers.threads.sort_by(|a, b| a.name.cmp(&b.name));
        let kernel = self.kernel.into_iter().filter_map(|(pid, name, begun, start)| {
            let time = ThreadTime::of(pid)?.since(begun);
            let used = used(name, true, time, start.elapsed());
            (used.run_ns.unwrap_or(used.system_ns) != 0).then_some(used)
        });
        workers.threads.extend(kernel);
        let stages = CpuStages {
            packets: 0,
            user_ns: (passed.user + passed.nice) * tick_ns,
            system_ns: passed.system * tick_ns,
            softirq_ns: (passed.softirq + passed.irq) * tick_ns,
            steal_ns: passed.steal * tick_ns,
            tick_ns,
            per_packet: None,
            threads: workers.threads,
            counters: workers.counters.filter(|_| workers.no_counters.is_none()),
            no_counters: workers.no_counters,
        };
        (system::cpu_use(&before, &after), Some(stages))
    }
}

/// Returns the kernel's step of CPU times.
fn tick_ns() -> u64 {
    1_000_000_000 / CpuTimes::ticks_per_second().max(1)
}

fn used(name: String, is_kernel: bool, time: ThreadTime, elapsed: Duration) -> ThreadUse {
    let tick_ns = tick_ns();
    ThreadUse {
        name,
        is_kernel,
        run_ns: time.run_ns,
        wait_ns: time.wait_ns,
        elapsed_ns: Some(nanos(elapsed)),
        user_ns: time.user * tick_ns,
        system_ns: time.system * tick_ns,
    }
}

/// A thread of a run; what it used is told when this is dropped, on the same thread.
pub(super) struct Worker<'a> {
    meter: &'a Meter,
    number: usize,
    start: Instant,
    begun: Option<ThreadTime>,
    counters: io::Result<Counters>,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let counted = match &mut self.counters {
            Ok(counters) => counters.read().map_err(|error| error.to_string()),
            Err(error) => Err(why(error)),
        };
        let time = self
            .begun
            .zip(ThreadTime::current())
            .map(|(begun, now)| now.since(begun));
        let elapsed = self.start.elapsed();
        let mut workers = self.meter.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(time) = time {
            let name = format!("worker {}", self.number);
            workers.threads.push(used(name, false, time, elapsed));
        }
        match counted {
            Ok(counts) => workers.counters = Some(workers.counters.unwrap_or_default().plus(counts)),
            Err(why) => workers.no_counters = Some(why),
        }
    }
}

/// Why there are no counters.
fn why(error: &io::Error) -> String {
    let reason = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "; the CPU shows none: a virtual machine without a virtual PMU mostly has none"
        }
        Some(libc::EACCES | libc::EPERM) => "; it takes CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1",
        Some(libc::EMFILE) => "; too many open files: raise ulimit -n",
        _ => "",
    };
    format!("perf_event_open() answered {error}{reason}")
}

/// Cycles and instructions of the calling thread, user's and kernel's.
struct Counters([Counter; 4]);

impl Counters {
    fn start() -> io::Result<Self> {
        let open = |event: Hardware, in_kernel: bool| -> io::Result<Counter> {
            let mut builder = Builder::new(event);
            builder.exclude_kernel(!in_kernel).exclude_user(in_kernel);
            let mut counter = builder.build()?;
            counter.enable()?;
            Ok(counter)
        };
        Ok(Self([
            open(Hardware::CPU_CYCLES, false)?,
            open(Hardware::CPU_CYCLES, true)?,
            open(Hardware::INSTRUCTIONS, false)?,
            open(Hardware::INSTRUCTIONS, true)?,
        ]))
    }

    fn read(&mut self) -> io::Result<PerfCounts> {
        let [user_cycles, kernel_cycles, user_instructions, kernel_instructions] = &mut self.0;
        Ok(PerfCounts {
            user_cycles: whole(user_cycles)?,
            kernel_cycles: whole(kernel_cycles)?,
            user_instructions: whole(user_instructions)?,
            kernel_instructions: whole(kernel_instructions)?,
        })
    }
}

/// A count, projected from the time in which it was counted where counters took turns.
fn whole(counter: &mut Counter) -> io::Result<u64> {
    let read = counter.read_count_and_time()?;
    if read.time_running == 0 {
        return Err(io::Error::other("the counter never had its turn"));
    }
    let whole = u128::from(read.count) * u128::from(read.time_enabled) / u128::from(read.time_running);
    Ok(u64::try_from(whole).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    #[test]
    fn a_counter_counts_what_the_thread_does() {
        // Of the kernel's own, which are there without a PMU, too: how long the thread was on a CPU.
        let mut counter = Builder::new(Software::TASK_CLOCK).build().unwrap();
        let wall = Instant::now();
        counter.enable().unwrap();
        let begun = ThreadTime::current().unwrap();
        let ran = || ThreadTime::current().unwrap().since(begun).run_ns.unwrap();
        let mut sum = 0_u64;
        while ran() < 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let asleep = Instant::now();
        std::thread::sleep(Duration::from_millis(100));
        let asleep = asleep.elapsed();
        let least = ran();
        let counted = whole(&mut counter).unwrap();
        let most = u64::try_from((wall.elapsed() - asleep).as_nanos()).unwrap();
        // No less than the kernel says that it ran, and no more than it was awake. A hundredth, for these are three clocks.
        let (least, most) = (least - least / 100, most + most / 100);
        assert!(
            (least..=most).contains(&counted),
            "{counted} is not in {least}..={most}"
        );
    }

    #[test]
    fn a_thread_waits_within_its_own_time() {
        let meter = Meter::start();
        let worker = meter.worker(0);
        std::thread::sleep(Duration::from_millis(20));
        drop(worker);
        let (_, stages) = meter.end();
        let stages = stages.unwrap();
        let own = stages.threads.iter().find(|thread| !thread.is_kernel).unwrap();
        assert!(own.elapsed_ns >= Some(20_000_000), "{own:?}");
        let waited = stages.longest_wait(0).expect("the kernel counts waits");
        assert!((0.0..=1.0).contains(&waited), "{own:?}");
        // Those of the kernel may have waited before the first reading.
        assert!(own.elapsed_ns >= own.wait_ns, "{own:?}");
    }

    #[test]
    fn counts_or_a_reason() {
        let meter = Meter::start();
        drop(meter.worker(0));
        let (_, stages) = meter.end();
        let stages = stages.unwrap();
        assert_eq!(stages.threads.iter().filter(|thread| !thread.is_kernel).count(), 1);
        let has_pmu = std::path::Path::new("/sys/bus/event_source/devices/cpu").exists();
        match (stages.counters, &stages.no_counters) {
            (Some(counts), None) => assert!(counts.user_instructions > 0, "{counts:?}"),
            (None, Some(why)) => assert!(!has_pmu && why.contains("perf_event_open()"), "{why}"),
            both => panic!("{both:?}"),
        }
    }
}
