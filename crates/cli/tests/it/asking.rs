//! `tx` asking the driver: stamps with their coverage, checksums that the receiver's kernel takes, launch times, AF_PACKET.

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{MODES, PATIENCE, assert_clean, assert_reconciles, lab, lab_with, run, start_receiver};
use ringside_measure::probe::Clock;
use ringside_measure::schema::{ChecksumBy, LaunchBy, RunResult, TxStampsResult, Via};
use ringside_netlab::testing::{bound, is_root};
use ringside_netlab::{End, VethConfig};

/// What has to add up whatever the machine does.
fn check(result: &RunResult, one_in: u32) -> TxStampsResult {
    let stamps = result.tx_stamps.clone().expect("asked for");
    assert_eq!((stamps.clock, stamps.source.as_str()), (Clock::Tai, "software"));
    assert_eq!(stamps.sampled_one_in_packets, one_in);
    assert_eq!(
        stamps.wanted_packets, result.packets.sent,
        "each packet asks: {stamps:#?}"
    );
    assert_eq!(
        stamps.asked_packets,
        stamps.stamped_packets + stamps.unstamped_packets + stamps.outstanding_packets
    );
    assert_eq!(
        (stamps.unstamped_packets, stamps.impossible_packets),
        (0, 0),
        "{stamps:#?}"
    );
    let told = stamps.hand_over.expect("stamped");
    assert_eq!(
        told.samples + stamps.unread_packets,
        stamps.stamped_packets,
        "{stamps:#?}"
    );
    assert!(told.min_ns > 0 && told.max_ns < 20_000_000_000, "{told:?}");
    assert_eq!(stamps.uncertainty_ns, None, "both are by one clock");
    assert_reconciles(result);
    stamps
}

#[test]
fn stamps_and_their_coverage_are_told() {
    if !is_root() {
        return;
    }
    let lab = lab("askstamp", 2);
    for mode in MODES {
        let receiver = start_receiver(&lab.b, &format!("rx {{}} --mode {mode} --frames 4096 --json"));
        for (option, one_in, coverage) in [
            ("--tx-stamps", 1, 100.0..=100.0),
            ("--tx-stamps=8", 8, 12.5..=12.6),
            ("--tx-stamps=2 --tx-stamps-outstanding 1", 2, 0.5..=50.0),
        ] {
            let line = format!("tx {{}} --to {} --rate 20000 --count 8000 {option} --json", lab.b.ipv4);
            let result = run(&lab.a, &line).good().result();
            assert_eq!(result.packets.sent, 8000);
            let stamps = check(&result, one_in);
            assert_eq!(stamps.outstanding_packets, 0, "a veth gives all back: {stamps:#?}");
            let percent = stamps.coverage_percent.expect("some wanted one");
            assert!(coverage.contains(&percent), "{option}: {stamps:#?}");
        }
        receiver.interrupt().good();
    }
    // Two queues as fast as they can, and by cycle, on its own clock.
    let line = format!("tx {{}} --to {} -t 0.5 --tx-stamps=16 --json", lab.b.ipv4);
    check(&run(&lab.a, &line).good().result(), 16);
    for clock in ["monotonic", "tai"] {
        let line = format!(
            "tx {{}} --to {} --cycle 2ms --clock {clock} --count 100 --tx-stamps",
            lab.b.ipv4
        );
        let stamps = check(&run(&lab.a, &format!("{line} --json")).good().result(), 1);
        assert_eq!(stamps.stamped_packets, 100);
    }
    let text = run(&lab.a, &format!("tx {{}} --to {} --count 100 --tx-stamps", lab.b.ipv4)).good();
    for words in [
        "100.00 % of the packets have a stamp, of CLOCK_TAI taken in software",
        "left, µs",
        "from the hand-over of the packet, or of its burst",
    ] {
        assert!(text.out.contains(words), "{words:?} is not in {}", text.out);
    }
    assert!(
        text.err.contains("TX metadata: stamps of CLOCK_TAI in software"),
        "{}",
        text.err
    );
    assert_clean(&lab.a);
}

/// Counts the datagrams that a kernel socket receives. Waits for `expected`, then for surplus ones.
fn taken(end: &End, expected: u64, send: impl FnOnce()) -> u64 {
    let socket = end.run(|| bound(|| UdpSocket::bind((end.ipv4, 5000))));
    send();
    let mut count = 0;
    let mut wait_for = |wait: Duration, most: u64| {
        socket.set_read_timeout(Some(wait)).expect("set");
        while count < most && socket.recv(&mut [0; 2048]).is_ok() {
            count += 1;
        }
    };
    wait_for(PATIENCE, expected);
    // None too many.
    wait_for(Duration::from_millis(300), u64::MAX);
    count
}

#[test]
fn checksums_are_filled_in_for_the_receivers_kernel() {
    if !is_root() {
        return;
    }
    for (offload, option, by) in [
        (false, "--checksum-offload", ChecksumBy::DeviceOrKernel),
        (true, "--checksum-offload", ChecksumBy::DeviceOrKernel),
        (true, "--checksum-offload=kernel", ChecksumBy::Kernel),
    ] {
        let lab = lab_with(VethConfig {
            tx_checksum: offload,
            ..VethConfig::tagged("askcsum")
        });
        let targets = [lab.b.ipv4.to_string()];
        for to in targets {
            let line = format!("tx {{}} --to {to} --to-port 5000 --size 201 --count 50 {option}");
            let taken = taken(&lab.b, 50, || {
                let result = run(&lab.a, &format!("{line} --json")).good().result();
                assert_eq!(result.checksum_offload, Some(by));
                assert_eq!(result.tx_stamps, None);
                assert_reconciles(&result);
            });
            assert_eq!(taken, 50, "{offload} {option}");
        }
        let text = run(&lab.a, &format!("tx {{}} --to {} --count 3 {option}", lab.b.ipv4))
            .good()
            .out;
        assert!(text.contains("checksums      filled in by the"), "{text}");
    }
}

#[test]
fn launch_times_are_kept_or_told_not_to_be() {
    if !is_root() {
        return;
    }
    let lab = lab("asklaunch", 2);
    let cycle = format!(
        "tx {{}} --to {} --cycle 2ms --clock tai --launch-time 300us --count 50",
        lab.b.ipv4
    );
    let done = run(&lab.a, &format!("{cycle} --tx-stamps --json")).good();
    assert!(done.err.contains("packets leave at once"), "{}", done.err);
    let result = done.result();
    let told = result.cycle.clone().expect("cyclic");
    assert_eq!(told.via, Via::AfXdp);
    let launch = told.launch.expect("asked for");
    assert_eq!(launch.lead_ns, 300_000);
    assert!(
        matches!(launch.kept_by, LaunchBy::Unknown | LaunchBy::Nobody),
        "{launch:?}"
    );
    check(&result, 1);
    let text = run(&lab.a, &cycle).good().out;
    assert!(
        text.contains("launch times   300.0 µs after the deadline, kept by nobody"),
        "{text}"
    );

    let message = run(&lab.a, &format!("{cycle} --launch-time-required")).bad();
    assert!(message.contains("tx-launch-time-fifo"), "{message}");
}

#[test]
fn the_same_deadlines_through_af_packet() {
    if !is_root() {
        return;
    }
    let lab = lab("askpacket", 2);
    let line = format!(
        "tx {{}} --to {} --to-port 5000 --cycle 2ms --clock tai --count 60 --via af-packet --launch-time 300us",
        lab.b.ipv4
    );
    let taken = taken(&lab.b, 60, || {
        let done = run(&lab.a, &format!("{line} --json")).good();
        assert!(
            done.err.contains("there is no queueing discipline etf here"),
            "{}",
            done.err
        );
        let result = done.result();
        let cycle = result.cycle.clone().expect("cyclic");
        assert_eq!((cycle.via, cycle.clock), (Via::AfPacket, Clock::Tai));
        let launch = cycle.launch.expect("asked for");
        assert_eq!((launch.kept_by, launch.missed_packets), (LaunchBy::Nobody, None));
        assert_eq!(result.packets.sent, 60);
        assert_eq!(cycle.due_cycles - cycle.skipped_cycles, 60);
        assert_eq!(cycle.transmit.expect("sent").samples, 60);
        assert_reconciles(&result);
    });
    assert_eq!(taken, 60);
    let plain = line.replace("--clock tai", "").replace("--launch-time 300us", "--json");
    let result = run(&lab.a, &plain).good().result();
    assert_eq!(result.cycle.clone().expect("cyclic").launch, None);
    assert_reconciles(&result);
    let text = run(&lab.a, &line).good().out;
    assert!(
        text.contains("of CLOCK_TAI through AF_PACKET") && text.contains("kept by nobody: packets leave at once"),
        "{text}"
    );
    assert_clean(&lab.a);
}

#[test]
fn caps_tell_what_can_be_asked_for() {
    if !is_root() {
        return;
    }
    let lab = lab("askcaps", 1);
    let text = run(&lab.a, "caps {} -v").good().out;
    for words in [
        "TX metadata: launch time",
        "qdiscs",
        "without etf nothing keeps the launch times of packet sockets",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let json = run(&lab.a, "caps {} --json").good().json();
    assert_eq!(json["kernel"]["tx_launch_time"]["since"], "6.15");
    let qdiscs = json["state"]["qdiscs"].as_array().expect("a list");
    assert!(
        qdiscs
            .iter()
            .all(|qdisc| qdisc["kind"] != "etf" && qdisc["parent"].is_string()),
        "{qdiscs:?}"
    );
}

#[test]
fn nonsense_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("askbad", 1);
    let to = format!("--to {}", lab.b.ipv4);
    for (options, words) in [
        ("--tx-stamps=0", "--tx-stamps"),
        ("--tx-stamps=x", "--tx-stamps"),
        ("--tx-stamps-outstanding 1", "--tx-stamps"),
        ("--tx-stamps --tx-stamps-outstanding 0", "outstanding"),
        ("--checksum-offload=nic", "device, kernel"),
        ("--launch-time 1ms", "--cycle"),
        ("--cycle 1ms --launch-time 0us", "1us to 60s"),
        ("--launch-time-required --cycle 1ms", "--launch-time"),
        ("--via af-packet", "--cycle"),
        ("--cycle 1ms --via udp", "af-xdp, af-packet"),
    ] {
        let message = run(&lab.a, &format!("tx {{}} {to} {options}")).refused();
        assert!(message.contains(words), "{options}: {message}");
    }
    for (options, words) in [
        ("--cycle 1ms --launch-time 1ms", "--clock tai"),
        ("--cycle 1ms --via af-packet --launch-time 1ms", "--clock tai"),
        ("--cycle 1ms --clock tai --via af-packet --tx-stamps", "--tx-stamps"),
        ("--cycle 1ms --clock tai --via af-packet -q 0", "--queues"),
        (
            "--cycle 1ms --clock tai --via af-packet --checksum-offload",
            "--checksum-offload",
        ),
        ("--cycle 1ms --clock tai --via af-packet --size 9000", "MTU"),
        ("--checksum-offload=kernel --mode zero-copy", "copy paths only"),
        ("--tx-stamps --mode zero-copy", "tx-timestamp"),
    ] {
        let message = run(&lab.a, &format!("tx {{}} {to} {options} -t 0.1")).bad();
        assert!(message.contains(words), "{options}: {message}");
    }
}
