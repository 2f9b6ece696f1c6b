//! What single threads cost, those of the kernel included.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::process;

/// CPU time of one thread since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadTime {
    /// Its own code, in ticks of `USER_HZ`: [`CpuTimes::ticks_per_second`](super::CpuTimes::ticks_per_second). The kernel shares
    /// the time on the CPU out by what it sampled at its timer tick.
    pub user: u64,
    /// The kernel on its behalf, in the same ticks.
    pub system: u64,
    /// All of it in nanoseconds, soft interrupts that came meanwhile included: of the calling thread exactly, of another one as
    /// it was at its last timer tick, or when it last left the CPU. `None` where the kernel does not tell of others
    /// (it needs `CONFIG_SCHED_INFO`): <https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat>.
    pub run_ns: Option<u64>,
    /// For how long it was ready to run and had no CPU, in nanoseconds. `None` as above.
    pub wait_ns: Option<u64>,
}

impl ThreadTime {
    /// That of the calling thread; `None` without a mounted procfs.
    #[must_use]
    #[doc(alias = "CLOCK_THREAD_CPUTIME_ID")]
    pub fn current() -> Option<Self> {
        let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").ok();
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        Some(Self {
            run_ns: Duration::try_from(ran)
                .ok()
                .and_then(|ran| u64::try_from(ran.as_nanos()).ok()),
            ..Self::parse(&stat, schedstat.as_deref())?
        })
    }

    /// That of a process with one thread, such as a kernel thread; `None` if there is none of that number.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
        Self::parse(&stat, schedstat.as_deref())
    }

    /// What passed since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let passed = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            run_ns: passed(self.run_ns, earlier.run_ns),
            wait_ns: passed(self.wait_ns, earlier.wait_ns),
        }
    }

    /// Fields 14 and 15 of `stat`, proc_pid_stat(5); the first two of `schedstat`.
    fn parse(stat: &str, schedstat: Option<&str>) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let user = fields.nth(11)?.parse().ok()?;
        let system = fields.next()?.parse().ok()?;
        // A kernel that does not count says zero of all.
        let schedstat = schedstat.filter(|text| text.trim() != "0 0 0");
        let nth = |n| schedstat.and_then(|text| text.split_ascii_whitespace().nth(n)?.parse().ok());
        Some(Self {
            user,
            system,
            run_ns: nth(0),
            wait_ns: nth(1),
        })
    }
}

/// For how long each thread of a process has been ready to run and had no CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadWaits {
    /// Nanoseconds, by the number of the thread.
    by_thread: BTreeMap<u32, u64>,
}

impl ThreadWaits {
    /// Reads the waits of the threads that a process has now. They are empty if there is no such
    /// process, or the kernel does not count them (`CONFIG_SCHED_INFO`).
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let wait = |thread: fs::DirEntry| {
            let number = thread.file_name().to_str()?.parse().ok()?;
            let schedstat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((number, schedstat.split_ascii_whitespace().nth(1)?.parse().ok()?))
        };
        Self {
            by_thread: threads.filter_map(wait).collect(),
        }
    }

    /// Returns how long the thread that waited most since an earlier reading did, in nanoseconds. A
    /// thread that has begun since counts from its beginning, one that has ended not at all.
    #[must_use]
    pub fn longest_since(&self, earlier: &Self) -> u64 {
        let then = |thread| earlier.by_thread.get(thread).copied().unwrap_or(0);
        let waits = self.by_thread.iter();
        waits
            .map(|(thread, now)| now.saturating_sub(then(thread)))
            .max()
            .unwrap_or(0)
    }
}

/// The kernel's threads that handle packets: `ksoftirqd/CPU`, which runs soft interrupts that are too many, and
/// `napi/DEVICE-ID` of interfaces with threaded NAPI. Their numbers and names.
#[must_use]
pub fn packet_threads() -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let threads = entries.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = process::command(pid)?;
        (name.starts_with("ksoftirqd/") || name.starts_with("napi/")).then_some((pid, name))
    });
    threads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_command() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 10 0 0 0 1234 567 0 0 20 0 1 0 99 0 0";
        let time = ThreadTime::parse(stat, Some("89000000 12 3\n")).unwrap();
        assert_eq!((time.user, time.system, time.run_ns), (1234, 567, Some(89_000_000)));
        assert_eq!(ThreadTime::parse(stat, None).unwrap().run_ns, None);
        assert_eq!(ThreadTime::parse("42 (a) S 1", None), None);
    }

    #[test]
    fn waits_are_compared_thread_by_thread() {
        let waits = |waits: &[(u32, u64)]| ThreadWaits {
            by_thread: waits.iter().copied().collect(),
        };
        let before = waits(&[(1, 100), (2, 5_000), (3, 40)]);
        // The second has ended, and its wait is not missing from that of the others.
        let after = waits(&[(1, 130), (3, 60), (4, 25)]);
        assert_eq!(after.longest_since(&before), 30);
        assert_eq!(waits(&[(1, 100), (4, 35)]).longest_since(&before), 35, "begun since");
        assert_eq!(before.longest_since(&before), 0);
        assert_eq!(ThreadWaits::of(0), ThreadWaits::default(), "no process has number 0");
    }

    #[test]
    fn a_thread_that_works_is_seen_working() {
        let before = ThreadTime::current().unwrap();
        let mut sum = 0_u64;
        while ThreadTime::current().unwrap().since(before).run_ns.unwrap() < 30_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let passed = ThreadTime::current().unwrap().since(before);
        assert!(passed.run_ns.unwrap() >= 30_000_000, "{passed:?}");
        assert_eq!(ThreadTime::of(0), None, "no process has number 0");
    }
}
