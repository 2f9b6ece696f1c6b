use std::collections::BTreeMap;

use ringside_measure::counters::LossCause;
use ringside_measure::latency::{Latency, RttRecorder};
use ringside_measure::pace::Lateness;
use ringside_measure::probe::Clock;
use ringside_measure::schedule::{Listener, Received, Schedule};
use ringside_measure::schema::{ClockBasis, ClockOffset, ClockState, ImpairResult};
use ringside_measure::schema::{ImpairedDirection, LatencyKind, LoadCondition, LoadKind};
use ringside_measure::schema::{Mode, QueueMode, ScheduleResult, UnderLoadResult};
use ringside_measure::schema::{XdpFault, XdpStatistics, XdpVerdicts};

use super::*;
use crate::output::{DETAILS, ended};
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
    let expected = "asked for      1,100 packets/s, and 990 were sent: 90.0 %\n";
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

#[test]
fn names_packets_that_were_due_and_not_sent_also_above_99_percent() {
    let with = |target, not_sent: u64| {
        let mut result = sent(Operation::Tx);
        result.target_pps = Some(target);
        result.packets.generated = result.packets.sent + not_sent;
        render(&[Mode::Copy], result)
    };
    let line = "not sent       10 packets that were due\n";
    for target in [1000.0, 1100.0] {
        let shown = with(target, 10);
        assert_eq!(shown.matches(line).count(), 1, "{shown}");
        assert_eq!(shown.matches("due").count(), 1, "{shown}");
        assert!(!with(target, 0).contains("not sent"));
    }
    // All packets at one time have no rate.
    let mut result = sent(Operation::Tx);
    (result.target_pps, result.transmitted) = (Some(1000.0), None);
    let shown = render(&[Mode::Copy], result);
    assert!(shown.contains(line), "{shown}");
}

/// A run of one queue with these counters of the XDP program.
fn passed(operation: Operation, verdicts: XdpVerdicts) -> String {
    let mut result = RunResult::new(operation);
    result.packets.received = Some(250);
    let mut queue = queue();
    queue.xdp_verdicts = Some(verdicts);
    result.queues = vec![queue];
    render(&[Mode::NativeCopy], result)
}

fn queue() -> QueueCounters {
    QueueCounters {
        interface: "eth0".to_owned(),
        queue: 0,
        received_packets: 0,
        sent_packets: 0,
        kicks: 0,
        waits: 0,
        rx_starved: 0,
        xdp_statistics: Some(XdpStatistics::default()),
        xdp_verdicts: None,
    }
}

#[test]
fn names_packets_that_went_up_the_stack_and_may_be_missed() {
    let unbound = XdpVerdicts {
        passed_unbound_packets: 3,
        passed_malformed_packets: 2,
        passed_filter_packets: 250,
        passed_neighbour_packets: 900,
        ..XdpVerdicts::default()
    };
    for operation in [Operation::Rx, Operation::Ping] {
        let shown = passed(operation, unbound);
        let line = "up the stack   3 queue without a socket, 2 malformed\n";
        assert!(shown.contains(line), "{shown}");
    }
    let mut filter = XdpVerdicts {
        passed_filter_packets: 251,
        passed_neighbour_packets: 900,
        ..XdpVerdicts::default()
    };
    let shown = passed(Operation::Fwd, filter);
    assert!(shown.contains("up the stack   251 by the filter\n"), "{shown}");
    // Their filter is not the user's.
    for operation in [Operation::Ping, Operation::Echo] {
        assert!(!passed(operation, filter).contains("up the stack"));
    }
    filter.passed_filter_packets = 250;
    assert!(!passed(Operation::Rx, filter).contains("up the stack"));
}

#[test]
fn shows_what_went_wrong_with_the_link_the_nic_and_xdp() {
    let mut result = sent(Operation::Rx);
    (result.link_flaps, result.link_down_ns) = (Some(2), Some(310_000_000));
    result.xdp_faults = Some(vec![XdpFault {
        interface: "eth0".to_owned(),
        what: "exception: XDP_ABORTED".to_owned(),
        packets: 7,
    }]);
    let mut queue = queue();
    (queue.rx_starved, queue.received_packets) = (5, 1);
    let statistics = queue.xdp_statistics.as_mut().unwrap();
    (statistics.rx_fill_ring_empty_descs, statistics.rx_ring_full) = (1, 1);
    result.queues = vec![queue];
    let shown = render(&[Mode::ZeroCopy], result.clone());
    for line in [
        "\nlink           went down or lost its carrier 2 time(s), was not up for 0.31 s in all\n",
        "\nXDP            7 exception: XDP_ABORTED on eth0\n",
        "\nhost           the NIC had no frame to receive into, 5 times: ",
        "\nadvice         rx_fill_ring_empty: ",
        "\nadvice         rx_ring_full: ",
    ] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    let shown = render(&[Mode::ZeroCopy], sent(Operation::Rx));
    for label in ["link ", "XDP ", "host ", "advice "] {
        assert!(!shown.lines().any(|line| line.starts_with(label)), "{label} in {shown}");
    }
}

#[test]
fn advises_frames_for_queues_that_receive_only() {
    let queue = |interface: &str, rx_fill_ring_empty_descs, xdp_verdicts| QueueCounters {
        interface: interface.to_owned(),
        xdp_statistics: Some(XdpStatistics {
            rx_fill_ring_empty_descs,
            ..XdpStatistics::default()
        }),
        xdp_verdicts,
        ..queue()
    };
    let advises = |operation, queues| {
        let mut result = sent(operation);
        result.queues = queues;
        render(&[Mode::ZeroCopy], result).contains("\nadvice         rx_fill_ring_empty: ")
    };
    let verdicts = Some(XdpVerdicts::default());
    // The second interface of `fwd --out` has no XDP program.
    assert!(!advises(
        Operation::Fwd,
        vec![queue("in", 0, verdicts), queue("out", 7, None)]
    ));
    assert!(advises(
        Operation::Fwd,
        vec![queue("in", 7, verdicts), queue("out", 0, None)]
    ));
    assert!(!advises(Operation::Tx, vec![queue("eth0", 7, None)]));
    assert!(advises(Operation::Rx, vec![queue("eth0", 7, verdicts)]));
}

/// A far end to which 98 of 100 packets came.
fn far() -> FarEnd {
    let mut there = RunResult::new(Operation::Echo);
    (there.packets.sent, there.packets.received) = (100, Some(98));
    FarEnd {
        via: "udp".to_owned(),
        result: Some(Box::new(there)),
        ..FarEnd::default()
    }
}

#[test]
fn shows_that_the_far_end_was_lost_and_how_many_packets_came_there() {
    let mut far = far();
    far.lost = Some("it closed the connection".to_owned());
    let shown = far_end(&far, true);
    for line in [
        "far end        a UDP socket\n",
        "               98 of 100 packets came there\n",
        "               lost: it closed the connection\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    assert!(!far_end(&far, false).contains("came there"));
    far.result.as_mut().unwrap().packets.received = Some(100);
    assert!(!far_end(&far, true).contains("came there"));
}

#[test]
fn one_way_times_have_the_error_of_the_clocks() {
    let times = |ns: u64| {
        let mut rtt = RttRecorder::new();
        rtt.record(0, 0, ns);
        Some(LatencyResult {
            kind: LatencyKind::OneWay,
            ..LatencyResult::round_trip(&rtt, Clock::Monotonic)
        })
    };
    let mut far = FarEnd {
        there: times(12_000),
        back: times(13_000),
        clock: Some(ClockOffset {
            basis: ClockBasis::Synchronised,
            offset_ns: 5,
            uncertainty_ns: 1_500_000,
            seen_offset_ns: 7,
            seen_uncertainty_ns: 9,
        }),
        ..far()
    };
    let shown = far_end(&far, true);
    let within = "each within 1500.00 µs by the two clocks";
    for line in [
        format!("one way there  min 12.00  mean 12.00  max 12.00 µs, {within}\n"),
        format!("one way back   min 13.00  mean 13.00  max 13.00 µs, {within}\n"),
    ] {
        assert!(shown.contains(&line), "{line:?} is not in {shown}");
    }
    far.clock.as_mut().unwrap().uncertainty_ns = 0;
    assert!(!far_end(&far, true).contains("clocks"));
}

#[test]
fn latencies_of_streams_have_the_error_of_the_clock() {
    let with = |offset_ns: Option<u64>, packets: u64| {
        let schedule = Schedule::new(1_000_000, vec!["5:0us:1ms".parse().unwrap()]).unwrap();
        let mut listener = Listener::new(schedule, 0, None);
        for sequence in 0..packets {
            let due_ns = (1_000 + sequence) * 1_000_000;
            let row = [7, sequence, due_ns, due_ns, 5, 5, due_ns + 900];
            listener.record(&Received::of_row(&row).unwrap());
        }
        let by = offset_ns.map(|_| "ptp4l".to_owned());
        let state = ClockState {
            offset_ns,
            by,
            ..ClockState::default()
        };
        let mut result = RunResult::new(Operation::Listener);
        result.schedule = Some(ScheduleResult::listener(&listener, state));
        render(&[Mode::NativeCopy], result)
    };
    let shown = with(Some(50_000_000), 3);
    assert!(
        shown.contains("clock          at most 50000 µs off, by ptp4l\n"),
        "{shown}"
    );
    assert!(!with(Some(50_000_000), 0).contains("clock "));
    assert!(with(None, 0).contains("clock          nobody knows how far it is off\n"));
}

/// Counts of 5 packets of a direction that left this much later than asked for.
fn late(samples: &[u64]) -> String {
    let mut late = Latency::new();
    samples.iter().for_each(|&ns| late.record(ns));
    let mut result = RunResult::new(Operation::Impair);
    result.impair = Some(ImpairResult {
        seed: 1,
        matching: "all".to_owned(),
        directions: vec![ImpairedDirection {
            from: "in".to_owned(),
            to: "out".to_owned(),
            settings: "delay 1ms".to_owned(),
            counts: Default::default(),
            unimpaired_packets: 0,
            too_long_packets: 0,
            link_down_packets: 0,
            left_packets: 0,
            asked: None,
            held: None,
            late: late.summary(),
        }],
    });
    render(&[Mode::NativeCopy], result)
}

#[test]
fn says_that_impaired_packets_left_later_than_asked_for() {
    let shown = late(&[1_000, 15_000_000]);
    assert!(shown.contains("in -> out      0 came, "), "{shown}");
    let line = "left late by   min 1.00  mean 7500.50  max 15000.00 µs\n";
    assert!(shown.contains(line), "{shown}");
    assert!(!late(&[1_000, 99_000]).contains("late"));
    // One in a thousand is no fault of the path.
    let mut most = vec![1_000; 2_000];
    most[7] = 5_000_000;
    assert!(!late(&most).contains("late"));
    most[..30].fill(5_000_000);
    assert!(late(&most).contains("left late by   p50 1.00  p99 "), "{}", late(&most));
}

/// Round trips idle and under a load that did this much.
fn loaded(link: Option<[f64; 2]>, load: [Option<u64>; 2]) -> String {
    let condition = |kind, link: Option<[f64; 2]>, load: [Option<u64>; 2]| LoadCondition {
        kind,
        load: Some("UDP".to_owned()),
        load_sent_packets: load[0],
        load_received_packets: load[1],
        link_tx_pps: link.map(|[sent, _]| sent),
        link_tx_bps: None,
        link_rx_pps: link.map(|[_, received]| received),
        link_rx_bps: None,
        probes: Default::default(),
        latency: LatencyResult::round_trip(&RttRecorder::new(), Clock::Monotonic),
        responsiveness: None,
        rounds: Vec::new(),
        ratio_to_idle: None,
    };
    let mut result = RunResult::new(Operation::Ping);
    result.under_load = Some(UnderLoadResult {
        rounds: 5,
        turn_ns: 1_000_000_000,
        conditions: vec![
            condition(LoadKind::Idle, Some([2000.0, 2000.0]), [None; 2]),
            condition(LoadKind::Foreign, link, load),
        ],
    });
    render(&[Mode::NativeCopy], result)
}

#[test]
fn shows_what_the_link_carried_under_load() {
    let shown = loaded(Some([2010.0, 2000.0]), [Some(50), Some(40)]);
    let line = "  foreign load: link sent 2,010 packets/s, received 2,000; \
                load: 50 packets sent, 40 came back
";
    assert!(shown.contains(line), "{shown}");
    assert!(!shown.contains("idle: link"), "{shown}");
    let shown = loaded(Some([2010.0, 2000.0]), [None; 2]);
    let line = "  foreign load: link sent 2,010 packets/s, received 2,000\n";
    assert!(shown.contains(line), "{shown}");
    let line = "  RTT from the sending, without a schedule; 5 rounds of 1.0 s each, in turn; ";
    assert!(shown.contains(line), "{shown}");
    let shown = loaded(None, [None; 2]);
    assert!(!shown.contains("foreign load:"), "{shown}");
}

#[test]
fn details_are_the_last_line_also_of_an_invalid_result() {
    let text = render(&[Mode::Copy], sent(Operation::Tx));
    assert!(!text.contains("Details"), "{text}");
    let shown = ended(&text, Some("the hypervisor took 9 % of CPU 1"), DETAILS);
    let end = "\nINVALID: the hypervisor took 9 % of CPU 1\nDetails: -v; all figures: --json\n";
    assert!(shown.starts_with(&text) && shown.ends_with(end), "{shown}");
    assert_eq!(ended("a\n", None, DETAILS), format!("a\n{DETAILS}"));
    let long = ended("", Some(&"reason ".repeat(60)), "");
    assert!(long.lines().all(|line| line.chars().count() <= 80), "{long}");
}
