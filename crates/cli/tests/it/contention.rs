//! Threads that have no CPU while they measure: said before a run where it is to be expected, and
//! of a result.

use std::process::{Child, Command};

use crate::common::{lab, run, unwrapped};
use ringside_measure::validity::Reason;
use ringside_netlab::testing::is_root;

const SEND: &str = "tx {} --to-mac 02:00:00:00:00:01 --rate 1000";

/// A process that keeps a CPU busy, ended with the value.
struct Hog(Child);

impl Hog {
    fn start(cpus: &str) -> Self {
        let busy = ["-c", cpus, "sh", "-c", "while :; do :; done"];
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
    let _hogs = [(); 2].map(|()| Hog::start("0"));
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

/// Results of rounds are judged by the CPU time that their threads waited for.
#[test]
fn results_of_rounds_on_busy_cpus_are_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-rounds", 1);
    let _hogs = ["0", "1", "0", "1"].map(Hog::start);
    for line in [
        "compare --variants udp-blocking,af-packet --operations tx --rounds 2 --slot-ms 50",
        "sweep --for tx-rate --rounds 1 --confirm 1 --slot-ms 50 --knob batch=8,64",
        "delay --waits spin --samples 60 --rounds 1 --interval 400us",
    ] {
        let done = run(&lab.a, &format!("{line} --lab veth --json --require-valid"));
        assert!(
            done.bad().contains("--require-valid: the result is invalid"),
            "{done:#?}"
        );
        let validity = done.document().validity.expect("judged");
        let mut reasons = validity.reasons.iter().map(|invalid| invalid.reason);
        assert!(
            reasons.any(|reason| reason == Reason::CpuContention),
            "{line}: {validity:?}"
        );
        assert!(validity.cpu_wait_percent > Some(4.0), "{line}: {validity:?}");
    }
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
