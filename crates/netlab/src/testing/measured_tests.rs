use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use super::*;

const DISTURBANCE: Delays = Delays {
    cpu: 3,
    longest: LONG_DELAY,
    mean: Duration::from_micros(100),
    steal: 0.0,
};

/// Runs a measurement whose first `off` runs are outside of their limits. Returns the number of
/// runs, the recorded lines and the result.
fn runs(off: u32, is_disturbed: bool) -> (u32, Vec<String>, Result<u32, String>) {
    let (mut runs, recorded) = (0, RefCell::new(Vec::new()));
    let mut run = || {
        runs += 1;
        expect(runs > off, format_args!("run {runs} is off\nin detail")).map(|()| runs)
    };
    let watch = || Box::new(move || is_disturbed.then_some(DISTURBANCE)) as Disturbance;
    let outcome = measured_by(&mut run, watch, |reason| recorded.borrow_mut().push(reason.to_owned()));
    (runs, recorded.into_inner(), outcome)
}

#[test]
fn repeats_disturbed_run_twice_at_most() {
    assert_eq!(runs(0, true), (1, vec![], Ok(1)));
    let delays = "CPU 3 was unavailable for 30 ms (0.1 ms per wake-up, 0 % stolen)";
    let reasons = [1, 2].map(|run| format!("run {run} is off in detail; {delays}"));
    assert_eq!(runs(2, true), (3, reasons.to_vec(), Ok(3)));
    let (count, recorded, outcome) = runs(3, true);
    assert_eq!((count, recorded.len()), (3, 2));
    let message = outcome.unwrap_err();
    assert!(
        message.contains("run 3 is off\nin detail; each of 3 runs was disturbed: CPU 3"),
        "{message}"
    );
}

#[test]
fn fails_without_disturbance() {
    let (count, recorded, outcome) = runs(1, false);
    assert_eq!((count, recorded.len()), (1, 0));
    assert!(outcome.unwrap_err().contains("nothing disturbed"));
}

#[test]
fn never_repeats_after_panic() {
    let mut runs = 0;
    let mut run = || -> Result<(), Off> {
        runs += 1;
        panic!("2 packets of 3");
    };
    let watch = || Box::new(|| Some(DISTURBANCE)) as Disturbance;
    let outcome = catch_unwind(AssertUnwindSafe(|| measured_by(&mut run, watch, |_| {})));
    assert!(outcome.is_err());
    assert_eq!(runs, 1);
}

#[test]
fn takes_one_long_many_short_delays_or_steal_for_a_disturbance() {
    let delays = |longest_ms, mean_us| Delays {
        longest: Duration::from_millis(longest_ms),
        mean: Duration::from_micros(mean_us),
        ..DISTURBANCE
    };
    assert!(delays(30, 100).are_disturbance());
    assert!(delays(8, 1000).are_disturbance());
    assert!(!delays(29, 999).are_disturbance());
    let stolen = |steal| Delays {
        steal,
        ..delays(29, 999)
    };
    assert!(stolen(0.05).are_disturbance());
    assert!(!stolen(0.04).are_disturbance());
}

/// The delays on a CPU on which `script` runs with real-time priority.
fn delays_beside(script: &str) -> Delays {
    let own = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| own.is_set(cpu)).unwrap();
    let watch = Watch::start();
    let busy = Command::new("taskset")
        .args([
            "--cpu-list",
            &cpu.to_string(),
            "chrt",
            "--fifo",
            "1",
            "sh",
            "-c",
            script,
        ])
        .status()
        .unwrap();
    assert!(busy.success(), "{busy}");
    watch.disturbance().expect("a disturbance")
}

// The scripts' loops are finite: a process of the same priority on this CPU could not stop them.

#[test]
fn detects_real_time_process() {
    if !crate::testing::is_root() {
        return;
    }
    let delays = delays_beside("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done");
    assert!(delays.longest >= LONG_DELAY, "{delays}");
}

#[test]
fn detects_real_time_process_that_sleeps_in_between() {
    if !crate::testing::is_root() {
        return;
    }
    let burst = "i=0; while [ $i -lt 10000 ]; do i=$((i + 1)); done";
    let delays = delays_beside(&format!(
        "n=0; while [ $n -lt 30 ]; do n=$((n + 1)); {burst}; sleep 0.002; done"
    ));
    assert!(delays.mean >= LONG_MEAN_DELAY, "{delays}");
}
