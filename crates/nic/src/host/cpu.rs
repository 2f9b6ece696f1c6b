//! What one CPU is, and how it sleeps.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::system::line;
use crate::cpus;

/// How often, and for how long, a CPU was in one of its idle states since boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IdleUse {
    /// The state's name ("POLL", "C1", "C6", …).
    pub name: String,
    /// How often the CPU went into it.
    pub entries: u64,
    /// For how long in all, in microseconds.
    pub time_us: u64,
}

/// How a CPU has slept since boot, from the shallow states to the deep ones; empty without cpuidle.
/// <https://docs.kernel.org/admin-guide/pm/cpuidle.html>
#[must_use]
#[doc(alias = "cpuidle")]
pub fn idle_use(cpu: u32) -> Vec<IdleUse> {
    idle_use_below(Path::new("/"), cpu)
}

/// The CPUs that are threads of the same core as this one, itself included; alone where the kernel does not tell.
#[must_use]
#[doc(alias = "thread_siblings_list")]
pub fn siblings(cpu: u32) -> Vec<u32> {
    siblings_below(Path::new("/"), cpu)
}

fn directory(root: &Path, cpu: u32) -> PathBuf {
    root.join(format!("sys/devices/system/cpu/cpu{cpu}"))
}

fn idle_use_below(root: &Path, cpu: u32) -> Vec<IdleUse> {
    let states = directory(root, cpu).join("cpuidle");
    let number = |path: PathBuf| line(&path)?.parse().ok();
    // Numbered from zero without gaps.
    (0..)
        .map(|state| states.join(format!("state{state}")))
        .map_while(|state| {
            Some(IdleUse {
                name: line(&state.join("name"))?,
                entries: number(state.join("usage"))?,
                time_us: number(state.join("time"))?,
            })
        })
        .collect()
}

fn siblings_below(root: &Path, cpu: u32) -> Vec<u32> {
    let list = line(&directory(root, cpu).join("topology/thread_siblings_list"));
    let siblings = list.map(|list| cpus::parse(&list)).unwrap_or_default();
    if siblings.contains(&cpu) { siblings } else { vec![cpu] }
}

#[cfg(test)]
#[path = "cpu_tests.rs"]
mod tests;
