//! What the program takes of the memory before there is anything to do.

use std::collections::BTreeMap;
use std::fs;

use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};
use serde_json::Value;

use crate::common::Folder;
use crate::common::daemon::{Daemon, binary, configure};

const MIB: u64 = 1 << 20;

/// Bytes that a process has to itself, and those of its BPF maps.
struct Memory {
    private: u64,
    maps: u64,
}

impl Memory {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words = line.expect(name).trim().split(' ').next();
            words.expect("a number").parse().expect("a number")
        };
        // Each once, however many descriptors of it there are.
        let mut maps = BTreeMap::new();
        for file in fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("descriptors") {
            // It may be closed meanwhile.
            let text = file
                .and_then(|file| fs::read_to_string(file.path()))
                .unwrap_or_default();
            let number = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            if let (Some(id), Some(bytes)) = (number("map_id:"), number("memlock:")) {
                maps.insert(id, bytes);
            }
        }
        Self {
            private: (kib("RssAnon:") + kib("RssShmem:")) * 1024,
            maps: maps.values().sum(),
        }
    }
}

fn host_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .expect("all of it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// Beside the table of connections, whose size the default limit gives, it takes a 512th of the
/// host's memory and 100 MiB.
#[test]
fn a_default_start_takes_little_memory() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("memory")).expect("veth");
    let folder = Folder::new();
    let path = format!("[path]\ninterface = \"{}\"\n[connections]\n", lab.a.interface.name());
    let config = configure(&folder, "store.db", &path);
    let mut command = lab.a.ns.command(binary().get_program());
    command.arg("--config").arg(config);
    let daemon = Daemon::spawn(folder, command);
    let statistics: Value = serde_json::from_str(&daemon.ok(&["stats", "--json"])).expect("JSON");
    let connections = statistics["connections"]["memory-bytes"].as_u64().expect("a number");
    let bound = connections + host_memory() / 512 + 100 * MIB;
    let Memory { private, maps } = Memory::of(daemon.child.id());
    let log = daemon.log();
    eprintln!(
        "private {} MiB, maps {} MiB, bound {} MiB",
        private / MIB,
        maps / MIB,
        bound / MIB
    );
    assert!(
        private + maps <= bound,
        "{} MiB private and {} MiB of maps, at most {} MiB: {log}",
        private / MIB,
        maps / MIB,
        bound / MIB
    );
    let line = log
        .lines()
        .find(|line| line.contains("cached_neighbors_mib="))
        .expect("a line of the log");
    for part in ["cached_connections_mib=", "connections_mib=", "frames_mib="] {
        assert!(line.contains(part), "{line}");
    }
    daemon.stop();
}
