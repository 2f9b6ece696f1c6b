//! Where and how urgently a thread runs.

use anyhow::{Context, Result};
use ringside_nic::Knob;
use ringside_nic::host::CpuTimes;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::args::{BadValue, PortArgs, bad_value};

/// Pins the calling thread as the command line says for worker `number`, and gives it its priority.
pub(crate) fn thread(args: &PortArgs, number: usize) -> Result<()> {
    if let Some(cpus) = &args.cpus {
        to_cpu(cpus.0[number % cpus.0.len()])?;
    }
    if let Some(priority) = args.priority {
        real_time(priority)?;
    }
    Ok(())
}

/// Refuses CPUs that are not online. `option` is where they were named.
pub(crate) fn check_online(option: &str, cpus: &[u32]) -> Result<()> {
    let online: Vec<u32> = CpuTimes::read()?.cpus.iter().map(|(cpu, _)| *cpu).collect();
    if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        bad_value!(
            "{option}: CPU {cpu} is not online (online: {})",
            Knob::cpu_list(&online)
        );
    }
    Ok(())
}

/// Tries all of it on a thread that then ends: what the kernel refuses is told before anything was opened.
pub(crate) fn check(args: &PortArgs) -> Result<()> {
    if let Some(cpus) = &args.napi.threaded_napi {
        check_online("--threaded-napi", &cpus.0)?;
    }
    let workers = args.cpus.as_ref().map_or(1, |cpus| cpus.0.len());
    let attempt = || (0..workers).try_for_each(|number| thread(args, number));
    let tried = std::thread::scope(|scope| match scope.spawn(attempt).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    // The kernel refuses a CPU that does not exist. Isolated CPUs are not in the inherited mask, and
    // are allowed.
    tried.map_err(|error| match error.downcast_ref::<Errno>() {
        Some(&Errno::INVAL) => BadValue(format!("{error:#}")).into(),
        _ => error,
    })
}

/// Pins the calling thread to one CPU.
pub(crate) fn to_cpu(cpu: u32) -> Result<()> {
    to_cpus(&[cpu])
}

/// Keeps the calling thread on some CPUs; where none are named it stays as free as it is.
pub(crate) fn to_cpus(cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            bad_value!("CPU {cpu} does not exist");
        }
        set.set(cpu as usize);
    }
    if cpus.is_empty() {
        return Ok(());
    }
    sched_setaffinity(None, &set).with_context(|| {
        let cpus = Knob::cpu_list(cpus);
        format!("pinning a thread to CPU {cpus}: is it online? See /sys/devices/system/cpu/online")
    })
}

/// The CPUs that this process may run on.
pub(crate) fn allowed() -> Result<Vec<u32>> {
    let set = sched_getaffinity(None).context("asking on which CPUs this process may run")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// For how long, in nanoseconds, a thread of this process was ready to run and did not. `None` where the kernel does not
/// tell: <https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat>
pub(crate) fn waited_ns(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Puts the calling thread under SCHED_FIFO.
#[allow(
    unsafe_code,
    reason = "neither rustix nor the standard library sets a scheduling policy"
)]
pub(crate) fn real_time(priority: i32) -> Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, and `param` is alive for the call, which only reads it.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if answer == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
        .with_context(|| format!("SCHED_FIFO priority {priority}: it needs CAP_SYS_NICE (root), or a limit: ulimit -r"))
}
