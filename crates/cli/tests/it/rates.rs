//! Rates are over the time in which packets passed: set-up, waiting and time-outs do not count.

use ringside_measure::rate::Rates;
use ringside_netlab::testing::{expect, is_root, measured};

use crate::common::{lab, run, start_receiver};

/// Packets after the first one, and the time that they took: what a rate is made of.
fn after_the_first(rates: &Rates) -> f64 {
    let span_ns = rates.span_ns.expect("packets apart in time");
    #[allow(clippy::cast_precision_loss, reason = "less than a minute")]
    let seconds = span_ns as f64 / 1e9;
    rates.packets_pps * seconds
}

#[test]
fn a_time_out_does_not_lower_the_rate_achieved() {
    if !is_root() {
        return;
    }
    let lab = lab("rate-timeout", 1);
    let to = lab.b.ipv4;
    // Nobody answers: the run waits for the time-out after the last probe.
    let ping = format!("ping {{}} --to {to} --rate 10000 --count 1000 --timeout 1");
    measured(|| {
        let result = run(&lab.a, &format!("{ping} --json")).result();
        let rates = result.transmitted.expect("probes were sent");
        assert!(result.duration_ns >= 1_000_000_000, "{}", result.duration_ns);
        assert!((after_the_first(&rates) - 999.0).abs() < 0.01, "{rates:?}");
        // The last of 1000 is due 99.9 ms after the first.
        expect((9_000.0..11_000.0).contains(&rates.packets_pps), format!("{rates:?}"))
    });
    measured(|| {
        let text = run(&lab.a, &format!("{ping} -v")).out;
        let (_, achieved) = text.split_once("10,000 packets/s, achieved ").expect(&text);
        let percent: f64 = achieved.split_once(" %").expect(&text).0.parse().expect(&text);
        expect((90.0..110.0).contains(&percent), &text)
    });
}

#[test]
fn a_receiver_shows_the_rate_while_packets_came() {
    if !is_root() {
        return;
    }
    let lab = lab("rate-rx", 1);
    let send = format!("tx {{}} --to {} --rate 10000 --count 1000", lab.b.ipv4);
    measured(|| {
        let receiver = start_receiver(&lab.b, "rx {} -t 3 --json");
        run(&lab.a, &send).good();
        let result = receiver.end().good().result();
        let rates = result.received.expect("packets came");
        assert!(result.duration_ns >= 3_000_000_000, "{}", result.duration_ns);
        expect((9_000.0..11_000.0).contains(&rates.packets_pps), format!("{rates:?}"))
    });
    let receiver = start_receiver(&lab.b, "rx {} -t 3 -v");
    run(&lab.a, &send).good();
    let text = receiver.end().good().out;
    assert!(text.contains("received       1,000 packets in 3.0"), "{text}");
    assert!(text.contains(" s, the first to the last within "), "{text}");
}

#[test]
fn one_packet_has_no_rate() {
    if !is_root() {
        return;
    }
    let lab = lab("rate-one", 1);
    let send = format!("tx {{}} --to {} --count 1", lab.b.ipv4);
    let result = run(&lab.a, &format!("{send} --json")).good().result();
    assert_eq!((result.packets.sent, result.transmitted), (1, None));
    let text = run(&lab.a, &format!("{send} -v")).good().out;
    assert!(
        text.contains("sent           1 packets in ") && text.contains("within less than 1 ms: no rate"),
        "{text}"
    );
}

/// The time of a run and its schedules begin together, when all threads are set up. The packet of
/// the end belongs to the next second.
#[test]
fn a_run_sends_its_rate_times_its_time() {
    if !is_root() {
        return;
    }
    let lab = lab("rate-due", 2);
    let _echo = start_receiver(&lab.b, "echo {} -q 0,1");
    let to = lab.b.ipv4;
    for (command, more, rate, time, packets) in [
        ("tx", "-q 0", 20_000, "0.5", 10_000),
        ("tx", "-q 0,1", 20_000, "0.5", 10_000),
        ("tx", "-q 0 --wait poll", 20_000, "0.5", 10_000),
        // The last packet is due 50 ms before the end: longer than a delay that is no disturbance.
        ("tx", "", 20, "2", 40),
        ("ping", "", 20, "2", 40),
        ("ping", "--wait poll", 7, "1", 7),
    ] {
        let send = format!("{command} {{}} --to {to} --rate {rate} -t {time} {more} --json");
        measured(|| {
            let result = run(&lab.a, &send).good().result();
            let counts = (result.packets.generated, result.packets.sent);
            assert_eq!(counts.0, packets, "{command} {more}: {:?}", result.packets);
            expect(
                rate > 100 || counts.1 == packets,
                format!("{command} {more}: {counts:?}"),
            )
        });
    }
}
