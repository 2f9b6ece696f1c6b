//! Names of namespaces, which tell whether their owner is still alive.
//!
//! `rs-<pid>-<start>-<n>-<tag>`: the process, when it started (clock ticks since boot, base 36), a counter, and what
//! the caller calls it. The start time tells a process from a later one with the same number, so a name is stale exactly if
//! no process of that number and start time lives.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use ringside_nic::process::start_time;

const PREFIX: &str = "rs-";

/// Longest name. `ip netns` accepts any file name; long ones only make its output hard to read.
pub(crate) const MAX_LEN: usize = 60;

/// A name that no other namespace of this machine has.
pub(crate) fn unique(tag: &str) -> io::Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let start = start_time(pid).ok_or_else(|| io::Error::other("cannot read /proc/self/stat; is /proc mounted?"))?;
    Ok(compose(pid, start, NEXT.fetch_add(1, Ordering::Relaxed), tag))
}

fn compose(pid: u32, start: u64, n: u32, tag: &str) -> String {
    let mut name = format!("{PREFIX}{pid}-{}-{n}-", base36(start));
    // A path separator would leave the directory, and anything unusual is a nuisance in a shell.
    name.extend(
        tag.chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }),
    );
    name.truncate(MAX_LEN);
    name
}

/// Whether a name is one of ours whose owner is gone. Names of others are never stale.
pub(crate) fn is_stale(name: &str) -> bool {
    owner(name).is_some_and(|(pid, start)| start_time(pid).map(base36).as_deref() != Some(start))
}

fn owner(name: &str) -> Option<(u32, &str)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '-');
    let (pid, start, n, _tag) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    n.parse::<u32>().ok()?;
    let valid = !start.is_empty()
        && start
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    valid.then_some((pid.parse().ok()?, start))
}

fn base36(mut value: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(u32::try_from(value % 36).unwrap_or(0), 36));
        value /= 36;
        if value == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
