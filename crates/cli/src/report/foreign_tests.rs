use super::*;

fn written(foreign: &Foreign, name: &str) -> Option<String> {
    foreign
        .metrics
        .iter()
        .find(|metric| metric.name == name)
        .map(Metric::written)
}

/// As iperf3 3.12 writes it, less what is not looked at.
fn udp() -> Value {
    serde_json::json!({
        "start": {
            "version": "iperf 3.12", "system_info": "Linux",
            "connecting_to": {"host": "192.0.2.1"},
            "test_start": {"protocol": "UDP", "num_streams": 1, "blksize": 1000, "target_bitrate": 100_000_000},
        },
        "intervals": [
            {"sum": {"start": 0.0, "end": 1.0, "seconds": 1.0, "bits_per_second": 1e8, "packets": 12_500}},
            {"sum": {"start": 1.0, "end": 2.0, "seconds": 1.0, "bits_per_second": 1e8, "packets": 12_490}},
        ],
        "end": {
            "sum_sent": {"seconds": 2.0, "bits_per_second": 99_960_000.0, "packets": 24_990, "lost_packets": 0},
            "sum_received": {"seconds": 2.0, "bits_per_second": 99_000_000.0, "packets": 24_990, "lost_packets": 240, "jitter_ms": 0.0055},
            "cpu_utilization_percent": {"host_total": 11.58},
        },
    })
}

#[test]
fn what_iperf3_says_of_udp_is_read() {
    let foreign = iperf3(&udp()).unwrap().unwrap();
    assert_eq!(foreign.title, "iperf 3.12, UDP");
    assert_eq!(written(&foreign, "sent").unwrap(), "12.5 k/s");
    assert_eq!(written(&foreign, "received, payload").unwrap(), "99.0 Mbit/s");
    assert_eq!(written(&foreign, "lost").unwrap(), "0.96 %");
    assert_eq!(written(&foreign, "jitter (RFC 3550)").unwrap(), "5.50 µs");
    assert_eq!(foreign.packet_rates, [(0.5, 12_500.0), (1.5, 12_490.0)]);
}

#[test]
fn what_iperf3_says_of_tcp_is_read() {
    let value = serde_json::json!({
        "start": {"version": "iperf 3.12", "test_start": {"protocol": "TCP", "blksize": 131_072}},
        "intervals": [],
        "end": {
            "streams": [{"sender": {"min_rtt": 244, "mean_rtt": 269, "max_rtt": 294}}],
            "sum_sent": {"seconds": 2.0, "bits_per_second": 15.2e9, "retransmits": 33},
            "sum_received": {"seconds": 2.0, "bits_per_second": 15.1e9},
        },
    });
    let foreign = iperf3(&value).unwrap().unwrap();
    assert_eq!(written(&foreign, "received, payload").unwrap(), "15.1 Gbit/s");
    assert_eq!(written(&foreign, "RTT mean").unwrap(), "269 µs");
    assert_eq!(written(&foreign, "TCP segments sent again").unwrap(), "33");
    assert_eq!(written(&foreign, "received"), None);
}

#[test]
fn what_is_not_of_iperf3_is_told_from_what_it_failed_at() {
    assert!(iperf3(&serde_json::json!({"schema": "ringside.result/1", "error": "x"})).is_none());
    assert!(iperf3(&serde_json::json!({"start": {"version": "other 1"}})).is_none());
    let failed = iperf3(&serde_json::json!({"start": {}, "error": "unable to connect"}))
        .unwrap()
        .unwrap_err();
    assert!(failed.to_string().contains("unable to connect"));
    let mut interrupted = udp();
    interrupted["end"] = serde_json::json!({});
    assert!(
        iperf3(&interrupted)
            .unwrap()
            .unwrap_err()
            .to_string()
            .contains("interrupted")
    );
}

const LOG: &str = "\
------------------------------
test was performed using the following parameters: --mps=1000 --burst=1 --reply-every=1 --msg-size=14 --time=2
------------------------------
sockperf: # dropped messages = 1; # duplicated messages = 0; # out-of-order messages = 0
------------------------------
packet, txTime(sec), rxTime(sec), latency(usec)
0, 2.404029680, 2.404157925, 64.122
1, 2.405029595, 2.405122273, 46.339
2, 2.406029641, 2.406160076, 65.217
------------------------------
";

#[test]
fn the_round_trips_of_sockperf_are_whole_ones() {
    let foreign = sockperf(LOG).unwrap().unwrap();
    let times = foreign.times.as_ref().unwrap().summary().unwrap();
    // Its own column says 46.3 µs, which is half of it.
    assert_eq!((times.samples, times.min_ns, times.max_ns), (3, 92_678, 130_435));
    assert_eq!(written(&foreign, "lost").unwrap(), "25.0 %");
    assert_eq!(
        foreign.set_up[0].1,
        "--mps=1000 --burst=1 --reply-every=1 --msg-size=14 --time=2"
    );
    assert_eq!(nanoseconds("1.5"), Some(1_500_000_000));
    assert_eq!(nanoseconds("1.5000000019"), Some(1_500_000_001));
}

#[test]
fn a_log_that_is_broken_is_an_error() {
    assert!(sockperf("something else").is_none());
    for (rows, part) in [
        ("", "no rows"),
        ("\n0, 2.5\n", "no two stamps"),
        ("\n0, 2.5, 2.4, 1\n", "before its question"),
    ] {
        let log = format!("packet, txTime(sec), rxTime(sec), latency(usec){rows}");
        let error = sockperf(&log).unwrap().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
