//! Lists of CPUs in the kernel's notation: "0-3,8".

use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// More CPUs than any kernel is built for, so that a senseless range cannot eat the memory.
const MOST: u32 = 1 << 16;

pub(crate) fn parse(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?.min(MOST))
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// The opposite of [`parse`]; each CPU is listed once, whatever the order.
pub(crate) fn text(cpus: &[u32]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let ranges = cpus.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        _ => range.iter().map(u32::to_string).collect(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// CPUs in the notation of bit masks, 32 bits a group: "3", "1,00000000". `None` for what is no such mask.
pub(crate) fn from_mask(mask: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for (group, text) in (0_u32..).zip(mask.trim().rsplit(',')) {
        let bits = u32::from_str_radix(text, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits & (1 << bit) != 0).map(|bit| group * 32 + bit));
    }
    Some(cpus)
}

/// The opposite of [`from_mask`].
pub(crate) fn mask(cpus: &[u32]) -> String {
    let groups = cpus.iter().map(|cpu| cpu / 32).max().unwrap_or(0);
    let bits = |group: u32| {
        let of_group = cpus.iter().filter(|cpu| **cpu / 32 == group);
        of_group.fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
    };
    let groups = (0..=groups).rev().map(|group| format!("{:08x}", bits(group)));
    groups.collect::<Vec<_>>().join(",")
}

/// The CPUs that a thread may run on.
pub(crate) fn of_thread(thread: u32) -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(Some(pid(thread)?))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Makes a thread run on these CPUs only.
pub(crate) fn pin_thread(thread: u32, cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        match usize::try_from(*cpu) {
            Ok(cpu) if cpu < CpuSet::MAX_CPU => set.set(cpu),
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
    Ok(sched_setaffinity(Some(pid(thread)?), &set)?)
}

/// Zero would be the calling thread, which is never meant here.
fn pid(thread: u32) -> io::Result<Pid> {
    i32::try_from(thread)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

#[cfg(test)]
#[path = "cpus_tests.rs"]
mod tests;
