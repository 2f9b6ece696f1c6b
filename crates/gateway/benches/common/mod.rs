//! What benchmarks of the gateway share.
#![allow(dead_code, reason = "each uses a part of it")]

pub(crate) mod handshakes;
pub(crate) mod neighbors;
pub(crate) mod wire;

use std::process::Child;

use ringside_nic::HugePages;

/// As the daemon has it.
#[global_allocator]
static MEMORY: HugePages = HugePages;

/// Bytes of memory that a process has just now, what it shares with others included.
pub(crate) fn memory_of(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Bytes of memory that the kernel has for a process's BPF maps, as of Linux 6.4.
pub(crate) fn maps_of(child: &Child) -> u64 {
    let mut maps = std::collections::BTreeMap::new();
    let files = std::fs::read_dir(format!("/proc/{}/fdinfo", child.id()));
    for file in files.into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let number = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        // A program has no map's number, but its own memory.
        if let (Some(map), Some(bytes)) = (number("map_id:"), number("memlock:")) {
            maps.insert(map, bytes);
        }
    }
    maps.values().sum()
}

/// The numbers among the words of the command line; Cargo adds words of its own. With `normal-pages` there are no huge ones.
pub(crate) fn numbers() -> impl Iterator<Item = u32> {
    if std::env::args().any(|word| word == "normal-pages") {
        HugePages::none().expect("Linux 3.15");
    }
    std::env::args().skip(1).filter_map(|word| word.parse().ok())
}
