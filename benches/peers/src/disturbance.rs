//! How much of a turn went to somebody else.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result};

/// A mark at the beginning of a turn.
#[derive(Debug)]
pub(crate) struct Mark {
    begin: Instant,
    cpu: CpuTime,
    process: u32,
    waited: u64,
}

/// What share of a turn was lost, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disturbance {
    /// Of all CPU time: taken by the hypervisor for other guests.
    pub(crate) stolen: f64,
    /// Of the turn: the measured process was ready to run and another one had its CPU.
    pub(crate) waiting: f64,
}

impl Disturbance {
    /// The worse of the two.
    pub(crate) fn worst(self) -> f64 {
        self.stolen.max(self.waiting)
    }
}

#[derive(Clone, Copy, Debug)]
struct CpuTime {
    all: u64,
    stolen: u64,
}

impl Mark {
    /// Begins observing a process and the machine.
    pub(crate) fn new(process: u32) -> Result<Self> {
        Ok(Self {
            begin: Instant::now(),
            cpu: cpu_time()?,
            process,
            waited: waited(process),
        })
    }

    /// What happened since.
    pub(crate) fn elapsed(&self) -> Result<Disturbance> {
        let now = cpu_time()?;
        let all = now.all.saturating_sub(self.cpu.all).max(1);
        let waited = waited(self.process).saturating_sub(self.waited);
        Ok(Disturbance {
            stolen: now.stolen.saturating_sub(self.cpu.stolen) as f64 / all as f64,
            waiting: waited as f64 / self.begin.elapsed().as_nanos() as f64,
        })
    }
}

fn cpu_time() -> Result<CpuTime> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    parse_cpu_time(&text).context("/proc/stat has no line for all CPUs")
}

/// The first line: user, nice, system, idle, iowait, irq, softirq, steal, and guest time, which is
/// in user time already.
fn parse_cpu_time(stat: &str) -> Option<CpuTime> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    Some(CpuTime {
        all: ticks.iter().sum(),
        stolen: *ticks.get(7)?,
    })
}

/// Nanoseconds that the process's threads spent ready but not running: the second field of
/// schedstat. Kernels without it give zero, and then only steal is seen.
fn waited(process: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return 0;
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_field() {
        let stat = "cpu  10 20 30 40 50 60 70 80 5 5\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        let time = parse_cpu_time(stat).unwrap();
        assert_eq!((time.all, time.stolen), (360, 80));
        assert!(parse_cpu_time("cpu  1 2 3\n").is_none());
    }

    #[test]
    fn a_busy_machine_is_measured() {
        let mark = Mark::new(std::process::id()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let disturbance = mark.elapsed().unwrap();
        assert!((0.0..=1.0).contains(&disturbance.stolen));
        assert!(disturbance.waiting >= 0.0);
    }
}
