//! What the program has its memory from.

use ringside_netlab::testing::skip_unsupported;

use crate::common::daemon::Daemon;

/// Whether it gets some is the kernel's to say.
#[test]
fn large_tables_are_on_huge_pages() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
        return skip_unsupported("huge pages");
    }
    let daemon = Daemon::start("");
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", daemon.child.id())).unwrap();
    let mut flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    assert!(
        flags.any(|flags| flags.split_whitespace().any(|flag| flag == "hg")),
        "{maps}"
    );
    daemon.stop();
}
