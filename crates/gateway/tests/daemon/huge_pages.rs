//! What the program has its memory from.

use ringside_netlab::testing::skip;

use crate::common::Folder;
use crate::common::daemon::{Daemon, binary, configure};

/// As the same process, and without being told to.
#[test]
fn large_tables_are_on_huge_pages() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.is_empty() || enabled.contains("[never]") {
        return skip("huge pages");
    }
    let start = |tunables: Option<&str>| {
        let folder = Folder::new();
        configure(&folder, "store.db", "");
        let mut command = binary();
        command
            .env_remove("GLIBC_TUNABLES")
            .arg("--config")
            .arg(folder.join("gateway.toml"));
        command.envs(tunables.map(|tunables| ("GLIBC_TUNABLES", tunables)));
        Daemon::spawn(folder, command)
    };
    let kib = |daemon: &Daemon| {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", daemon.child.id())).unwrap();
        let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
        line.unwrap().trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let daemon = start(None);
    assert!(kib(&daemon) > 0);
    daemon.stop();
    if enabled.contains("[madvise]") {
        let daemon = start(Some("glibc.malloc.hugetlb=0"));
        assert_eq!(kib(&daemon), 0, "as it was told");
        daemon.stop();
    }
}
