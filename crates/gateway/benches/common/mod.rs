//! What benchmarks of the gateway share.
#![allow(dead_code, reason = "each uses a part of it")]

pub(crate) mod neighbors;
pub(crate) mod wire;

use std::process::Child;

/// Bytes of memory that a process has just now, what it shares with others included.
pub(crate) fn memory_of(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The numbers among the words of the command line; Cargo adds words of its own.
pub(crate) fn numbers() -> impl Iterator<Item = u32> {
    std::env::args().skip(1).filter_map(|word| word.parse().ok())
}
