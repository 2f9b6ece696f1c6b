use ringside_measure::latency::Latency;
use ringside_measure::schema::{LabClocks, LabWaiting, LabWindows, LaunchBy};

use super::*;

#[test]
fn what_waits_in_front_of_a_packet_is_told_as_work_of_the_guest() {
    let of = LabTap {
        time_ns: 2_000_000_000,
        packets: 90_000,
        bytes: 135_000_000,
        dropped_packets: 7,
        dropped_at_least: false,
        waiting: Some(LabWaiting {
            packets: 90_007,
            mean_packets: 450.0,
            full_packets: 7,
            places: 1_000,
        }),
    };
    assert_eq!(
        tap(&of),
        "the guest took 45.0 k packets/s of 1500 bytes on average, 7 were dropped; one that came found 450 of 1000 places of the ring taken on \
         average, 10.0 ms of work for the guest, and 7 found it full"
    );
    let idle = LabTap {
        packets: 60,
        bytes: 5_400,
        dropped_packets: 0,
        waiting: Some(LabWaiting {
            packets: 60,
            mean_packets: 0.01,
            full_packets: 0,
            places: 1_000,
        }),
        ..of
    };
    assert_eq!(
        tap(&idle),
        "the guest took 30.0 packets/s of 90 bytes on average; one that came found 0.01 of 1000 places of the ring taken on average, and 0 found it full"
    );
    let unseen = LabTap {
        dropped_packets: 0,
        waiting: None,
        ..of
    };
    assert_eq!(tap(&unseen), "the guest took 45.0 k packets/s of 1500 bytes on average");
    let unknown = LabTap {
        dropped_at_least: true,
        waiting: None,
        ..of
    };
    assert!(
        tap(&unknown).ends_with(", at least 7 were dropped"),
        "{}",
        tap(&unknown)
    );
    let none = LabTap {
        time_ns: 1_000_000_000,
        ..LabTap::default()
    };
    assert_eq!(taken(&none), (0.0, None, None));
}

#[test]
fn a_load_says_what_it_did() {
    let load = LabLoad {
        name: "web".into(),
        description: String::new(),
        sent_pps: None,
        received_pps: None,
        asked_bits_per_s: None,
        sent_bits_per_s: Some(2e6),
        received_bits_per_s: Some(1.5e6),
        requests_per_s: Some(120.0),
    };
    assert_eq!(
        rate(&load).as_deref(),
        Some("sent 2.00 Mbit/s, of which 1.50 Mbit/s arrived, 120 requests/s were answered")
    );
    let silent = LabLoad {
        sent_bits_per_s: None,
        ..load
    };
    assert_eq!(rate(&silent), None);
}

#[test]
fn clocks_of_a_schedule_are_told_with_who_says_so() {
    let of = |most, is_one, offset: Option<u64>, apart| LabSchedule {
        class: "5:0us:100us".parse().unwrap(),
        kept_by: LaunchBy::Thread,
        skipped_packets: 0,
        early_packets: 0,
        late_packets: 0,
        late_most_ns: None,
        missed_packets: None,
        windows: LabWindows::Clock,
        gap: None,
        gap_hdr: None,
        clocks: Some(Box::new(LabClocks {
            most_offset_ns: most,
            is_one,
            talker: ClockState {
                offset_ns: offset,
                by: offset.map(|_| "ptp4l".into()),
                ..ClockState::default()
            },
            listener: ClockState::default(),
            apart_ns: apart,
            apart_uncertainty_ns: apart.map(|_| 3_000),
        })),
    };
    let told = |schedule: &LabSchedule| clocks(schedule).unwrap_or_default();
    assert_eq!(
        told(&of(Some(1_000), false, Some(400), Some(-2_000))),
        "the talker's CLOCK_TAI is at most 400 ns off, by ptp4l, nobody knows how far the listener's CLOCK_TAI is off; by the packets they \
         are 2.00 µs apart, ± 3.00 µs; 1.00 µs was asked for"
    );
    assert!(told(&of(Some(1_000), true, None, None)).starts_with("both ends have one clock"));
    // Nobody knows, and nobody has asked.
    assert_eq!(clocks(&of(None, false, None, Some(7))), None);
    assert_eq!(clocks(&of(None, true, Some(400), None)), None);
}

#[test]
fn percentiles_of_too_few_probes_are_named() {
    let of = |samples: u64| {
        let mut times = Latency::new();
        (0..samples).for_each(|_| times.record(1_000));
        times.summary().expect("samples")
    };
    let told = |all: &[u64]| too_few(all.iter().map(|samples| of(*samples)));
    assert_eq!(told(&[10_000, 12_000]), None);
    assert_eq!(
        told(&[10_000, 9_999, 5_000]).as_deref(),
        Some(
            "Percentiles of too few probes are not shown: p99.9 takes 10000 probes, and 2 of 3 \
             cells have fewer (5000 at the least)"
        )
    );
    assert_eq!(
        told(&[19]).as_deref(),
        Some(
            "Percentiles of too few probes are not shown: p50 takes 20 probes, and 1 of 1 \
             cell has fewer (19 at the least); p99 takes 1000 probes, and 1 of 1 cell has fewer \
             (19 at the least); p99.9 takes 10000 probes, and 1 of 1 cell has fewer (19 at the least)"
        )
    );
}
