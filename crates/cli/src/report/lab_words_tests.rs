use ringside_measure::schema::LabWaiting;

use super::*;

#[test]
fn what_waits_in_front_of_a_packet_is_told_as_work_of_the_guest() {
    let of = LabTap {
        time_ns: 2_000_000_000,
        packets: 90_000,
        bytes: 135_000_000,
        dropped_packets: 7,
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
