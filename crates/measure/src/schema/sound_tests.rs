use serde_json::{Value, json};

use super::super::example::{delays, example, sweep};
use super::*;

fn whole() -> Value {
    let mut value = serde_json::to_value(example()).unwrap();
    value["result"]["sweep"] = serde_json::to_value(sweep()).unwrap();
    value["result"]["delay"] = serde_json::to_value(delays()).unwrap();
    value
}

/// The example with one figure changed, and what is said of that.
fn changed(pointer: &str, to: Value) -> String {
    let mut value = whole();
    *value.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = to;
    check(&value).unwrap_err().to_string()
}

#[test]
fn what_the_tool_makes_is_sound() {
    check(&whole()).unwrap();
    check(&json!({})).unwrap();
}

#[test]
fn each_figure_that_cannot_be_is_found_and_named() {
    // 24 round trips of 6000 ns.
    let raw = "/result/run/latency/raw";
    for (pointer, to, words) in [
        (
            format!("{raw}/mean_ns"),
            json!(5_999.0),
            "result.run.latency.raw: mean_ns is 5999, and min_ns is 6000",
        ),
        (
            format!("{raw}/mean_ns"),
            json!(6_001.0),
            "max_ns is 6000, and mean_ns is 6001",
        ),
        (
            format!("{raw}/p50_ns"),
            json!(5_000),
            "p50_ns is 5000, and min_ns is 6000",
        ),
        (
            format!("{raw}/p50_ns"),
            json!(6_001),
            "max_ns is 6000, and p50_ns is 6001",
        ),
        (
            format!("{raw}/p90_ns"),
            json!(6_000),
            "p90_ns is told of 24 samples: too few",
        ),
        (
            format!("{raw}/p99_999_ns"),
            json!(6_000),
            "p99_999_ns is told of 24 samples",
        ),
        (format!("{raw}/stddev_ns"), json!(-1.0), "stddev_ns is -1"),
        (
            "/result/run/cycle/transmit/samples".into(),
            json!(0),
            "figures and no samples",
        ),
        (
            format!("{raw}/samples"),
            json!(25),
            "result.run.latency: raw_hdr has 24 samples, and raw 25",
        ),
        (
            "/result/run/latency/raw_hdr".into(),
            json!("HISTF"),
            "raw_hdr: reading a histogram",
        ),
        (
            "/result/run/cycle/transmit/max_ns".into(),
            json!(0),
            "result.run.cycle.transmit",
        ),
        (
            "/result/delay/cells/0/delay/max_ns".into(),
            json!(0),
            "result.delay.cells[0].delay",
        ),
        (
            "/result/sweep/best/figure/median".into(),
            json!(1.0),
            "result.sweep.best.figure: median is 1, and min is 1200",
        ),
        ("/result/sweep/best/figure/spread".into(), json!(-1.0), "spread is -1"),
        (
            "/result/sweep/best/confirmation/low".into(),
            json!(9.0),
            "result.sweep.best.confirmation: median",
        ),
    ] {
        let said = changed(&pointer, to);
        assert!(said.contains(words), "{pointer}: {said}");
        assert!(said.contains("must not be published"), "{said}");
    }
}

#[test]
fn medians_over_the_same_rounds_keep_their_order() {
    let figure =
        |median: f64, rounds: u64| json!({"median": median, "min": median, "max": median, "rounds_used": rounds});
    let variant = |p99_9: f64, rounds: u64| {
        json!({"rtt_min_ns": figure(1.0, 9), "rtt_mean_ns": figure(3.0, 9), "rtt_p50_ns": figure(2.0, 9), "rtt_p99_ns": figure(5.0, 9),
               "rtt_p99_9_ns": figure(p99_9, rounds), "rtt_max_ns": figure(9.0, 9)})
    };
    check(&variant(6.0, 9)).unwrap();
    // Only the fast rounds have as many samples: their median may be below that of all for less.
    check(&variant(4.0, 3)).unwrap();
    let error = check(&variant(4.0, 9)).unwrap_err().to_string();
    assert!(error.contains("rtt_p99_9_ns is 4, and rtt_p99_ns is 5"), "{error}");
}

#[test]
fn a_ledger_adds_up_or_says_by_how_much_not() {
    let run = |sent: u64, unaccounted: i64, lost: u64| {
        json!({
            "packets": {"generated": 12, "sent": sent, "received": 7, "losses": [{"name": "a", "count": 1}, {"name": "b", "count": 2}]},
            "unaccounted_packets": unaccounted,
            "sequence": {"sent": 10, "received": 7, "lost": lost},
        })
    };
    assert!(check(&run(10, 0, 3)).is_ok() && check(&run(15, 5, 3)).is_ok());
    let error = check(&json!({ "run": run(15, 0, 3) })).unwrap_err().to_string();
    assert!(
        error.contains("run: unaccounted_packets is 0, and 15 sent - 7 delivered - 3 lost are 5"),
        "{error}"
    );
    let error = check(&run(10, 0, 4)).unwrap_err().to_string();
    assert!(
        error.contains("sequence.lost is 4, and 10 sent - 7 received are 3"),
        "{error}"
    );
}
