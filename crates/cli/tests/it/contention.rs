//! Threads that have no CPU while they measure: said before a run where it is to be expected, and
//! of a result.

use std::process::{Child, Command};

use crate::common::{lab, run, unwrapped};
use ringside_measure::validity::Reason;
use ringside_netlab::testing::is_root;

const SEND: &str = "tx {} --to-mac 02:00:00:00:00:01 --rate 1000";

/// A process that keeps CPU 0 busy, ended with the value.
struct Hog(Child);

impl Hog {
    fn start() -> Self {
        let busy = ["-c", "0", "sh", "-c", "while :; do :; done"];
        Self(Command::new("taskset").args(busy).spawn().expect("taskset runs"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_result_of_a_busy_cpu_is_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-busy", 1);
    let _hogs = [(); 2].map(|()| Hog::start());
    let done = run(&lab.a, &format!("{SEND} -c 0 -t 500ms --wait spin")).good();
    let text = unwrapped(&done.out);
    // The hypervisor may have taken some of it, too.
    for part in [
        "INVALID: ",
        "other processes had the CPU for ",
        "while one of ours was ready",
    ] {
        assert!(text.contains(part), "{done:#?}");
    }
    let done = run(&lab.a, &format!("{SEND} -c 0 -t 500ms --wait spin --json")).good();
    let validity = done.document().validity.expect("judged");
    let contention = |invalid: &ringside_measure::validity::Invalid| invalid.reason == Reason::CpuContention;
    assert!(validity.reasons.iter().any(contention), "{validity:?}");
    assert!(
        validity.cpu_wait_percent.is_some_and(|percent| percent > 4.0),
        "{validity:?}"
    );
    let threads = done.result().cpu_stages.expect("read").threads;
    assert!(threads.iter().any(|thread| thread.wait_ns > Some(0)), "{threads:?}");
}

#[test]
fn more_spinning_threads_than_cpus_are_warned_of() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-spin", 2);
    let warning = "2 threads spin on 1 CPU(s)";
    for (options, warns) in [
        ("--wait spin", true),
        ("--wait poll", false),
        ("--wait spin -q 0", false),
    ] {
        let done = run(&lab.a, &format!("{SEND} -t 200ms -c 0 {options}")).good();
        assert_eq!(done.err.contains(warning), warns, "{options}: {done:#?}");
    }
}
