//! What tests of networks need beside the test bed.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Lab, Namespace, VethConfig};

/// Environment variable that turns the skipping of a test for lack of privileges into a failure.
pub const STRICT: &str = "RINGSIDE_STRICT";

/// Waits until a condition holds, looking every millisecond, and returns whether it came to hold in time.
///
/// The condition is looked at once more at the end, so a slow machine gets the benefit of the doubt.
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + timeout;
    loop {
        let last = Instant::now() >= end;
        if condition() {
            return true;
        }
        if last {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a test that builds a test bed can run here: the process is root with `CAP_SYS_ADMIN`.
///
/// Otherwise the test is [skipped](skip).
///
/// # Panics
///
/// As [`skip`] does.
#[must_use]
pub fn is_root() -> bool {
    use ringside_nic::host::{Cap, Capabilities};
    let able = Capabilities::effective().is_ok_and(|caps| caps.has(Cap::SysAdmin) && caps.has(Cap::NetAdmin));
    if !able {
        skip("root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
    }
    able
}

/// A host, and one that a guest could be attached to: `a` reaches it, `b` is its uplink.
///
/// # Panics
///
/// When it cannot be built.
#[must_use]
pub fn uplinked(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        hosts: [1, 0],
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
    .expect("test bed")
}

/// Names of the interfaces of a namespace, in order.
///
/// # Panics
///
/// Without sysfs.
#[must_use]
pub fn interfaces(namespace: &Namespace) -> Vec<String> {
    let entries = namespace.run(|| fs::read_dir("/sys/class/net").expect("sysfs").flatten());
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.retain(|name| name != "bonding_masters");
    names.sort();
    names
}

/// Says on standard error that a test is skipped, and what it needs.
///
/// # Panics
///
/// Instead of that, where [`STRICT`] is set (to anything but "0" or nothing).
pub fn skip(needs: &str) {
    let strict = std::env::var_os(STRICT).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!strict, "this test needs {needs}, and {STRICT} forbids to skip it");
    eprintln!("skipped: needs {needs}");
}
