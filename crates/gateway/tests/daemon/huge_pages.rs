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
    // Whether it gets some is the kernel's to say.
    let asks = |daemon: &Daemon| {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", daemon.child.id())).unwrap();
        let mut flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
        flags.any(|flags| flags.split_whitespace().any(|flag| flag == "hg"))
    };
    let daemon = start(None);
    assert_eq!(asks(&daemon), enabled.contains("[madvise]"));
    daemon.stop();
    if enabled.contains("[madvise]") {
        let daemon = start(Some("glibc.malloc.hugetlb=0"));
        assert!(!asks(&daemon), "as it was told");
        daemon.stop();
    }
}
