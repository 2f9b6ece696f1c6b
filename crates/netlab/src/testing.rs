//! What tests of networks need beside the test bed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Lab, Namespace, VethConfig};

mod measured;
mod memory_group;

pub use measured::{LONG_DELAY, Off, REPEATS, expect, measured};
pub use memory_group::{MemoryGroup, join_group};

/// Environment variable that turns the skipping of a test for lack of privileges into a failure.
pub const STRICT: &str = "RINGSIDE_STRICT";

/// Environment variable with the file that skipped tests are recorded in.
pub const SKIPPED: &str = "RINGSIDE_SKIPPED";

/// Sleeps for about 50 µs in a polling loop.
///
/// Use this instead of [`thread::yield_now`], which keeps a CPU busy. On Linux 6.18, threads that
/// keep every CPU busy starve other sessions and kernel threads for seconds.
pub fn pause() {
    thread::sleep(Duration::from_micros(1));
}

/// Waits until a condition holds and returns whether it did in time.
///
/// Pauses after each look for as long as the look took, 1 to 100 ms, so that a look that starts a
/// process leaves the CPU to others. Looks once more at the end, in favour of slow machines.
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + timeout;
    loop {
        let look = Instant::now();
        if condition() {
            return true;
        }
        if look >= end {
            return false;
        }
        thread::sleep(
            look.elapsed()
                .clamp(Duration::from_millis(1), Duration::from_millis(100)),
        );
    }
}

/// Calls `act` until its result is good, with the pauses of [`wait_until`]. Returns the last result.
pub fn retry<T>(timeout: Duration, mut act: impl FnMut() -> T, is_good: impl Fn(&T) -> bool) -> T {
    let mut last = None;
    wait_until(timeout, || is_good(last.insert(act())));
    last.expect("wait_until looks at least once")
}

/// Binds a socket, and tries again while its address is in use, for 10 s at most.
///
/// A child that another thread has forked has a copy of every socket until it executes its own
/// program. Until then the address of a socket that was closed is still in use.
///
/// # Panics
///
/// When `bind` fails for another reason, or the address stays in use.
pub fn bound<T>(bind: impl FnMut() -> io::Result<T>) -> T {
    let is_over = |result: &io::Result<T>| !matches!(result, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    retry(Duration::from_secs(10), bind, is_over).expect("an address that is free")
}

/// Copies a program so that it can be started at once.
///
/// The program `install` writes the copy, with mode 755. A copy that this process wrote would be
/// open for writing in every child that another thread has forked and that has not yet executed its
/// own program. Until it has, starting the copy fails with "Text file busy".
///
/// # Panics
///
/// When `install` cannot copy the file.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "-T"]).arg(from.as_ref()).arg(to.as_ref());
    let output = install.output().expect("install (coreutils) runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
}

/// Whether a test that builds a test bed can run here: the process is root with `CAP_SYS_ADMIN`.
///
/// Otherwise the test is [skipped](skip).
///
/// # Panics
///
/// As [`skip`] does.
#[must_use]
#[track_caller]
pub fn is_root() -> bool {
    let able = has_root();
    if !able {
        skip("root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
    }
    able
}

/// Returns what [`is_root`] does, and skips nothing: for a test of which only a part needs root.
#[must_use]
pub fn has_root() -> bool {
    use ringside_nic::host::{Cap, Capabilities};
    Capabilities::effective().is_ok_and(|caps| caps.has(Cap::SysAdmin) && caps.has(Cap::NetAdmin))
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

/// Reports whether this machine runs Ubuntu, whose packages differ from Debian's.
#[must_use]
pub fn is_ubuntu() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release.lines().any(|line| line == "ID=ubuntu")
}

/// Skips the calling test because the user has not provided what it needs: root, or a package.
///
/// The skip is printed and recorded in the file that [`SKIPPED`] names.
///
/// # Panics
///
/// Where [`STRICT`] is set (to anything but "0" or nothing), or the record cannot be written.
#[track_caller]
pub fn skip(needs: &str) {
    let strict = std::env::var_os(STRICT).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!strict, "this test needs {needs}, and {STRICT} forbids to skip it");
    record(SKIPPED, "skipped", &format!("needs {needs}"), Location::caller());
}

/// Skips the calling test because this machine cannot run it, whoever runs it: its kernel or its hardware lacks something.
///
/// The skip is printed and recorded as that of [`skip`], but is no failure where [`STRICT`] is set.
///
/// # Panics
///
/// Where the record cannot be written.
#[track_caller]
pub fn skip_unsupported(lacks: &str) {
    record(
        SKIPPED,
        "skipped",
        &format!("this machine lacks {lacks}"),
        Location::caller(),
    );
}

/// Whether this process may use at least `wanted` CPUs. Otherwise the calling test is [skipped](skip_unsupported).
///
/// # Panics
///
/// As [`skip_unsupported`] does.
#[must_use]
#[track_caller]
pub fn has_cpus(wanted: usize) -> bool {
    let enough = thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= wanted);
    if !enough {
        skip_unsupported(&format!("{wanted} CPUs"));
    }
    enough
}

/// Appends a repeat that is not a measurement's to the file that [`REPEATS`] names, if it is set.
#[track_caller]
pub(crate) fn record_repeat(reason: &str) {
    if std::env::var_os(REPEATS).is_some() {
        record(REPEATS, "repeated", reason, Location::caller());
    }
}

/// Prints what became of the calling test and why, and appends it to the file that an environment
/// variable names: the test, a tab, the reason.
fn record(variable: &str, what: &str, reason: &str, caller: &Location<'_>) {
    eprintln!("{what}: {reason}");
    let Some(file) = std::env::var_os(variable) else {
        return;
    };
    // A test's thread has its name, unless the test runs on the main thread.
    let thread = thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => caller.to_string(),
    };
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Without the hash that cargo appends, and after the folder of the package.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    let folder = folder.file_name().unwrap_or_default().to_string_lossy();
    let line = format!("{folder}-{program} {test}\t{reason}\n");
    let written = File::options()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("recording a {what} test in {}: {error}", file.display()));
}

#[cfg(test)]
#[path = "testing_tests.rs"]
mod tests;
