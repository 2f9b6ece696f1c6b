//! `ringside report --fail-if`: what holds, what does not, and what cannot be judged, by exit
//! status.

use std::fs;
use std::process::Output;

use super::{Folder, fixture, labs, stem};
use crate::common::unwrapped;

/// Exit statuses of docs/tool.md.
const HOLDS: i32 = 3;
const UNDECIDED: i32 = 4;

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs a report with conditions and returns its exit status with what it said.
fn judge(folder: &Folder, files: &[&str], conditions: &[&str]) -> (i32, String) {
    let conditions = conditions.iter().flat_map(|condition| ["--fail-if", condition]);
    let arguments: Vec<&str> = files.iter().copied().chain(conditions).collect();
    let output = folder.report(&arguments);
    (output.status.code().unwrap(), said(&output))
}

/// The ping of the fixtures with its round trips `percent` longer.
fn slower(folder: &Folder, name: &str, percent: u64) -> String {
    let mut result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(fixture("ping.json")).unwrap()).unwrap();
    let run = &mut result["result"]["run"];
    for of in ["raw", "corrected"] {
        run["latency"][format!("{of}_hdr")].take();
        for (_, figure) in run["latency"][of].as_object_mut().unwrap().iter_mut() {
            *figure = match figure.as_u64() {
                Some(whole) => (whole * (100 + percent) / 100).into(),
                None => figure.as_f64().map(|mean| mean * (100 + percent) as f64 / 100.0).into(),
            };
        }
        let samples = &serde_json::from_str::<serde_json::Value>(&fs::read_to_string(fixture("ping.json")).unwrap())
            .unwrap()["result"]["run"]["latency"][of]["samples"];
        run["latency"][of]["samples"] = samples.clone();
    }
    let path = folder.0.join(name);
    fs::write(&path, result.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn slower_results_than_the_baseline_fail() {
    let folder = Folder::new("fail-if-slower");
    let before = fixture("ping.json");
    let after = slower(&folder, "after.json", 12);
    let (status, said) = judge(&folder, &[&before, &after], &["rtt.p99>+10%"]);
    assert_eq!(status, HOLDS, "{said}");
    assert!(
        said.contains("--fail-if rtt.p99>+10%: after: holds: rtt.p99 is "),
        "{said}"
    );
    assert!(said.contains("(+12.0 % of "), "{said}");
    // The report is there all the same.
    assert!(folder.0.join("ringside-report.html").exists());

    let (status, said) = judge(
        &folder,
        &[&before, &after],
        &["rtt.p99>+15%", "RTT p50>+15%", "lost>1%"],
    );
    assert_eq!(status, 0, "{said}");
    assert_eq!(said.matches("does not hold").count(), 3, "{said}");
    // One of several is enough, and a baseline is not judged itself.
    let (status, _) = judge(&folder, &[&before, &after], &["rtt.p99>+15%", "rtt.p50>+5%"]);
    assert_eq!(status, HOLDS);
    let (status, said) = judge(&folder, &[&after, &before], &["rtt.p99>+10%"]);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("(−10.7 % of "), "{said}");
    let (status, _) = judge(&folder, &[&after, &before], &["rtt.p99<-10%"]);
    assert_eq!(status, HOLDS);
    // To standard output only the report goes.
    let output = folder.report(&[
        &before,
        &after,
        "--fail-if",
        "rtt.p99>+10%",
        "-o",
        "-",
        "--format",
        "csv",
    ]);
    assert_eq!(output.status.code(), Some(HOLDS));
    let csv = String::from_utf8(output.stdout).unwrap();
    assert!(csv.lines().all(|line| !line.contains("fail-if")), "{csv}");
}

#[test]
fn absolute_bounds_are_for_each_result() {
    let folder = Folder::new("fail-if-absolute");
    let ping = fixture("ping.json");
    let slow = slower(&folder, "slow.json", 100);
    let read: serde_json::Value = serde_json::from_str(&fs::read_to_string(&ping).unwrap()).unwrap();
    let p99 = read["result"]["run"]["latency"]["raw"]["p99_ns"].as_u64().unwrap();
    let above = format!("rtt.p99>{}ns", p99 - 1);
    let at = format!("rtt.p99>{p99}ns");
    assert_eq!(judge(&folder, &[&ping], &[&above]).0, HOLDS);
    let (status, said) = judge(&folder, &[&ping], &[&at]);
    assert_eq!(status, 0, "{said}");
    let (status, said) = judge(&folder, &[&ping, &slow], &[&at]);
    assert_eq!(status, HOLDS, "{said}");
    assert!(
        said.contains(": ping: does not hold: ") && said.contains(": slow: holds: "),
        "{said}"
    );
    let (status, said) = judge(
        &folder,
        &[&fixture("sockperf.log"), &fixture("iperf3.json")],
        &["lost>=100%"],
    );
    assert_eq!(status, 0, "{said}");
}

#[test]
fn every_type_of_result_has_figures_to_judge() {
    let folder = Folder::new("fail-if-types");
    let lab = labs().into_iter().find(|path| stem(path) == "host-to-host").unwrap();
    let lab = lab.to_str().unwrap().to_owned();
    for (file, holds, not) in [
        (fixture("ping.json"), "rtt.p50>1ns", "rtt.p50>1s"),
        (
            fixture("ping-under-load.json"),
            "self-induced.load.rtt.p99>1us",
            "foreign.load.rtt.p99>10s",
        ),
        (fixture("rx.json"), "received<1G/s", "received<1/s"),
        (fixture("tx.json"), "sent<1Gpps", "sent<1"),
        (fixture("echo.json"), "received.on.the.wire>1kbit/s", "lost>50%"),
        (fixture("listener.json"), "pcp.5.lost>0", "pcp.5.p50>10s"),
        (
            fixture("search.json"),
            "82.bytes.*.throughput<1G",
            "82.bytes.*.throughput<1",
        ),
        (fixture("compare.json"), "*.ratio>0.1", "ping.*.rtt.p50>10s"),
        (
            fixture("sweep.json"),
            "batch.4.tx-rate.ratio<0.9",
            "batch.4.tx-rate.ratio<0.1",
        ),
        (fixture("delay.json"), "poll.*.p50>1ns", "poll.*.p50>10s"),
        (
            fixture("trace.json"),
            "udp-blocking.in.the.socket.p50>1ns",
            "udp-blocking.*.p50>10s",
        ),
        (fixture("steer.json"), "pcp.5.queue.*>1", "pcp.5.queue.*>1M"),
        (fixture("iperf3.json"), "sent.payload>1k", "lost>50%"),
        (fixture("sockperf.log"), "rtt.p90>1us", "rtt.p90>10s"),
        (lab.clone(), "udp-spin.round.trip.idle.p50>1us", "*.lost>99%"),
        (lab, "udp-wakeup.idle.wake-up.p50>1ns", "*.p99>10s"),
    ] {
        let judge = |condition: &str| {
            let output = folder.report(&[&file, "--allow-invalid", "--fail-if", condition]);
            (output.status.code(), said(&output))
        };
        for (condition, status) in [(holds, HOLDS), (not, 0)] {
            let (code, said) = judge(condition);
            assert_eq!(code, Some(status), "{file}: {said}");
        }
        // The figures are those of the CSV.
        let csv = folder.page(&[&file, "-o", "all.csv"]);
        let (code, said) = judge("nothing>1");
        assert_eq!(code, Some(2), "{file}: {said}");
        let known = unwrapped(&said);
        let (_, known) = known
            .split_once("those of these results are ")
            .unwrap_or_else(|| panic!("{said}"));
        assert_eq!(known.split(", ").count(), csv.lines().count() - 1, "{csv}\n{said}");
    }
}

#[test]
fn invalid_results_are_not_judged() {
    let folder = Folder::new("fail-if-invalid");
    let (rx, ping) = (fixture("rx.json"), fixture("ping.json"));
    for condition in ["received<1G/s", "received<1/s"] {
        let (status, said) = judge(&folder, &[&rx], &[condition]);
        assert_eq!(status, UNDECIDED, "{said}");
        assert!(
            said.contains(": not judged: rx is INVALID: other processes had the CPU for 77 %"),
            "{said}"
        );
    }
    // As a baseline it is no better; and what is seen of another result counts.
    let (status, said) = judge(&folder, &[&rx, &ping], &["received>+1%"]);
    assert_eq!(status, UNDECIDED, "{said}");
    let (status, said) = judge(&folder, &[&rx, &ping], &["received>0"]);
    assert_eq!(status, HOLDS, "{said}");
    assert!(
        said.contains("rx: not judged") && said.contains("ping: holds"),
        "{said}"
    );
    let output = folder.report(&[&rx, "--allow-invalid", "--fail-if", "received<1G/s"]);
    assert_eq!(output.status.code(), Some(HOLDS));
}

#[test]
fn a_figure_that_a_result_has_not_is_not_judged() {
    let folder = Folder::new("fail-if-missing");
    let (ping, iperf3) = (fixture("ping.json"), fixture("iperf3.json"));
    let (status, said) = judge(&folder, &[&ping, &iperf3], &["rtt.p99>+10%"]);
    assert_eq!(status, UNDECIDED, "{said}");
    assert!(said.contains("iperf3: not judged: iperf3 has no rtt.p99"), "{said}");
}

#[test]
fn nonsense_is_refused() {
    let folder = Folder::new("fail-if-nonsense");
    let ping = fixture("ping.json");
    for (condition, part) in [
        ("rtt.p99", "compares nothing"),
        ("rtt.p99>fast", "is no bound"),
        ("rtt.p99>+10%", "give two results, the baseline first"),
        ("rtt.p99>5", "a bound of rtt.p99 takes a time with its unit"),
        ("lost>5us", "a bound of lost takes a percentage"),
        (
            "rtt.p98>5us",
            "no figure is called rtt.p98; those of these results are received, ",
        ),
    ] {
        let output = folder.report(&[&ping, "--fail-if", condition]);
        assert_eq!(output.status.code(), Some(2), "{condition}: {output:?}");
        assert!(said(&output).contains(part), "{condition}: {output:?}");
    }
    assert!(!folder.0.join("ringside-report.html").exists(), "nothing is written");
    let steer = fixture("steer.json");
    assert_eq!(folder.report(&[&steer, "--allow-invalid"]).status.code(), Some(2));
}
