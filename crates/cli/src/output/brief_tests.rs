use std::collections::BTreeMap;

use ringside_measure::counters::LossCause;
use ringside_measure::latency::Latency;
use ringside_measure::pace::Lateness;
use ringside_measure::schema::Mode;

use super::*;
use crate::system;

fn interface(modes: &[Mode]) -> Interface {
    let queues = modes.iter().zip(0..).map(|(&mode, queue)| QueueMode {
        queue,
        mode,
        reason: Some("zero-copy refused".to_owned()),
        umem: None,
        frames: None,
        frame_size_bytes: None,
        multi_buffer: None,
    });
    Interface {
        name: "eth0".to_owned(),
        driver: None,
        firmware_version: None,
        mtu_bytes: 1500,
        link_speed_bps: None,
        rx_queues: 2,
        tx_queues: 2,
        offloads: BTreeMap::new(),
        queues: queues.collect(),
    }
}

fn render(modes: &[Mode], result: RunResult) -> String {
    let outcome = ringside_measure::schema::Outcome::Run(Box::new(result.clone()));
    let document = system::document(vec![interface(modes)], outcome);
    text(&document, &result)
}

/// A run that sent 990 of 1000 packets in a second.
fn sent(operation: Operation) -> RunResult {
    let mut result = RunResult::new(operation);
    result.duration_ns = 1_000_000_000;
    (result.packets.generated, result.packets.sent) = (1000, 990);
    result.transmitted = Rates::new(990, 64, 22, 1_000_000_000);
    result
}

#[test]
fn names_the_modes_of_queues_that_differ() {
    let shown = render(&[Mode::ZeroCopy, Mode::Generic], RunResult::new(Operation::Rx));
    assert!(shown.starts_with("eth0: queues 0 zero-copy, 1 generic\n"), "{shown}");
    let shown = render(&[Mode::Generic; 2], RunResult::new(Operation::Rx));
    assert!(shown.starts_with("eth0: generic, 2 queues\n"), "{shown}");
    assert!(!shown.contains("refused"), "{shown}");
}

#[test]
fn says_that_a_rate_was_not_reached_below_99_percent() {
    let with = |target: f64| {
        let mut result = sent(Operation::Tx);
        result.target_pps = Some(target);
        render(&[Mode::Copy], result)
    };
    assert!(!with(1000.0).contains("asked for"));
    let shown = with(1100.0);
    let expected = "asked for      1,100 packets/s, and 990 were sent: 90.0 %, 10 packets were due and \
         not sent\n";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn names_each_cause_of_a_loss_with_its_count() {
    let mut result = sent(Operation::Rx);
    result.packets.lose(LossCause::NoAnswer, 9);
    let one = render(&[Mode::Copy], result.clone());
    assert!(
        one.contains("lost           9 of 990 packets (0.9091 %): no answer\n"),
        "{one}"
    );
    result.packets.lose(LossCause::RxRingFull, 8);
    result.unaccounted_packets = 2;
    let two = render(&[Mode::Copy], result);
    for line in [
        "lost           17 of 990 packets (1.7172 %)\n",
        "               9: no answer\n",
        "               8: rx_ring_full\n",
        "unaccounted    2 packets, ",
    ] {
        assert!(two.contains(line), "{line:?} is not in {two}");
    }
}

#[test]
fn names_late_packets_only_if_there_are_some() {
    let with = |late_ns: u64| {
        let mut lateness = Lateness::new(1_000_000);
        lateness.record(0, late_ns, 3);
        let mut result = sent(Operation::Tx);
        result.sender_lateness = lateness.result();
        render(&[Mode::Copy], result)
    };
    assert!(!with(1_000).contains("sent late"));
    assert!(with(5_000_000).contains("sent late      3 packets by more than "));
}

#[test]
fn leaves_out_percentiles_that_few_samples_do_not_have() {
    let of = |samples: u64| {
        let mut latency = Latency::new();
        (1..=samples).for_each(|at| latency.record(at * 1_000));
        tail(&latency.summary().expect("samples"))
    };
    assert_eq!(of(5), "min 1.00  mean 3.00  max 5.00 µs");
    let some = of(100);
    assert!(some.starts_with("p50 ") && !some.contains("p99"), "{some}");
    assert!(!some.contains('-'), "{some}");
}

#[test]
fn gives_bits_in_the_unit_that_fits() {
    assert_eq!(bits(672_000.0), "672.0 kbit/s");
    assert_eq!(bits(67_200_000.0), "67.2 Mbit/s");
    assert_eq!(bits(1_488_000_000.0), "1.488 Gbit/s");
}
