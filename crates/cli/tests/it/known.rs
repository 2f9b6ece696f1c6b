//! `--until-ci` of a single run: it ends when its figure is known well enough, and says how well.

use crate::common::{lab, run, start_receiver};
use ringside_measure::precision::LEAST_ROUNDS;
use ringside_netlab::testing::is_root;

#[test]
fn a_ping_ends_when_its_median_is_known() {
    if !is_root() {
        return;
    }
    let lab = lab("known-ping", 1);
    let echo = start_receiver(&lab.b, "echo {}");
    // So wide that also a busy machine gets there; the time is for when it does not.
    let ping = format!("ping {{}} --to {} --until-ci 95% --interval 0.1 -t 15", lab.b.ipv4);
    let done = run(&lab.a, &format!("{ping} --json")).good();
    let result = done.result();
    let until = result.until_ci.clone().expect("asked for");
    assert_eq!((until.goal_percent, until.of.as_str()), (95.0, "p50_ns"));
    let estimate = until.estimate.expect("pieces enough");
    assert!(
        estimate.pieces > LEAST_ROUNDS && estimate.pieces <= result.intervals.len(),
        "{until:?}"
    );
    assert!(
        estimate.low <= estimate.median && estimate.median <= estimate.high,
        "{until:?}"
    );
    assert!((0.0..1.0).contains(&estimate.correlation), "{until:?}");
    let width = (estimate.high - estimate.low) / estimate.median * 100.0;
    assert!(
        (until.width_percent.expect("an interval") - width).abs() < 1e-9,
        "{until:?}"
    );
    assert_eq!(until.reached, result.duration_ns < 14_500_000_000, "{until:?}");
    assert!(!until.reached || width < 95.0, "{until:?}");
    let text = run(&lab.a, &ping).good().out;
    assert!(
        text.contains("known") && text.contains("median round trip") && text.contains("95 % was asked for"),
        "{text}"
    );
    echo.interrupt().good();
}

#[test]
fn a_run_that_is_over_before_says_so() {
    if !is_root() {
        return;
    }
    let lab = lab("known-tx", 1);
    let line = "tx {} --to-mac 02:00:00:00:00:01 --rate 5000 --until-ci 0.0001% -t 3 --interval 0.05";
    let done = run(&lab.a, &format!("{line} --json")).good();
    let until = done.result().until_ci.expect("asked for");
    assert_eq!((until.reached, until.of.as_str()), (false, "sent_pps"));
    assert!(until.estimate.is_some(), "{until:?}");
    // Too few pieces for an interval, and that is no failure either.
    let short = run(&lab.a, &line.replace("-t 3", "-t 0.4")).good();
    assert!(
        short.out.contains("NOT reached") && short.out.contains("too few pieces"),
        "{}",
        short.out
    );
    // Not asked for, not told.
    let plain = run(&lab.a, "tx {} --to-mac 02:00:00:00:00:01 --count 10 --json").good();
    assert_eq!(plain.result().until_ci, None);
    assert!(!plain.out.contains("until_ci"));
}

#[test]
fn nonsense_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("known-bad", 1);
    for (line, words) in [
        ("ping {} --to 10.0.0.1 --until-ci 0", "between 0 and 100 %"),
        ("rx {} --until-ci soon", "no percentage"),
        (
            "ping {} --to 10.0.0.1 --until-ci 1% --under-load",
            "cannot be used with",
        ),
    ] {
        let message = run(&lab.a, line).refused();
        assert!(message.contains(words), "{line}: {message}");
    }
}
