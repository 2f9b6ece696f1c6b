//! The flight recorder stops at the packet that takes too long and at no other; and what a receiver measures by itself is what its stages add up to.

use super::*;

#[test]
fn the_flight_recorder_stops_and_shows_what_went_on() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let running = tool("trace --lab veth --stop-above 1us -t 20 --no-cost --json");
    let done = running.end().good();
    assert!(done.took < Duration::from_secs(10), "{done:#?}");
    let result = result(&done);
    let path = only(&result).unwrap();
    assert_eq!(path.traced_packets, 1, "{path:#?}");
    let record = path.recorded.as_ref().expect("a record");
    let whole = path.whole.expect("a packet");
    assert_eq!((record.bound_ns, record.whole_ns), (1_000, whole.max_ns));
    assert_eq!(record.points.first().map(|point| point.at_ns), Some(0));
    assert_eq!(
        record.points.last().map(|point| (point.at_ns, point.point)),
        Some((whole.max_ns, Point::Application))
    );
    // The soft interrupt that received it, at least.
    let received = |event: &&ringside_measure::schema::RecordedEvent| event.name == "NET_RX";
    assert!(record.events.iter().any(|event| received(&event)), "{record:#?}");
    assert!(done.err.contains("Stopped: packet"), "{done:#?}");
}

/// Sends probes from one socket to another in one thread, which sleeps between a probe's send and
/// its receive.
struct Lockstep {
    session: u32,
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Lockstep {
    fn new(lab: &Lab, session: u32) -> Self {
        let Lab { a, b, .. } = lab;
        let (sender, receiver) = (socket(a, 0), socket(b, 7000));
        sender.connect((b.ipv4, 7000)).expect("connected");
        // Until it is taken, on a machine that does other things.
        receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        Self {
            session,
            sender,
            receiver,
        }
    }

    /// Returns when a probe was to be sent, and when it was received.
    fn one(&self, sequence: u64, wait: Duration) -> (u64, u64) {
        let bytes = probe(self.session, sequence);
        self.sender.send(&bytes).expect("sent");
        thread::sleep(wait);
        let mut taken = [0; 128];
        let length = self.receiver.recv(&mut taken).expect("it comes");
        let taken_ns = now_ns();
        let taken = Probe::decode(&taken[..length]).expect("a probe");
        assert_eq!(taken.sequence, sequence);
        (taken.intended_ns, taken_ns)
    }
}

#[test]
fn the_flight_recorder_waits_for_the_packet_that_takes_too_long() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("traceflight", 1);
    let flow = Lockstep::new(&lab, 71);
    const SLOW: u64 = 40;
    let (bound, wait) = (Duration::from_millis(40), Duration::from_millis(80));
    let (mut running, begun) = measured(|| {
        let running = tool("trace --session 71 --stop-above 40ms -t 60 --json");
        running.wait_for("tracing for");
        let begun = Instant::now();
        for sequence in 0..SLOW {
            let (from, to) = flow.one(sequence, Duration::ZERO);
            expect(
                to - from < nanos(bound),
                format_args!("packet {sequence} took {} ns", to - from),
            )?;
            thread::sleep(Duration::from_millis(3));
        }
        Ok((running, begun))
    });
    // Nothing was worth recording so far.
    thread::sleep(Duration::from_millis(500));
    assert!(!running.is_over(), "{}", running.told());
    let (from, to) = flow.one(SLOW, wait);
    for sequence in SLOW + 1..SLOW + 20 {
        flow.one(sequence, Duration::ZERO);
    }
    let done = running.end().good();
    assert!(begun.elapsed() < Duration::from_secs(20), "{done:#?}");
    let result = result(&done);
    let path = only(&result).unwrap();
    let record = path.recorded.as_ref().expect("a record");
    assert_eq!((record.session, record.sequence), (71, SLOW), "{record:#?}");
    assert_eq!(record.bound_ns, nanos(bound));
    assert!((nanos(wait)..=to - from).contains(&record.whole_ns), "{record:#?}");
    // Those before it, and it; those that came after it are in nothing.
    assert_eq!(path.traced_packets + path.incomplete_packets, SLOW + 1, "{path:#?}");
    let whole = path.whole.expect("packets");
    assert_eq!(whole.max_ns, record.whole_ns);
    assert!(whole.p50_ns.is_some_and(|ns| ns < nanos(bound)), "{whole:?}");
}

fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).expect("less than centuries")
}

/// The tracing process knows nothing of the times that the receiver takes here: it has stamps of the kernel's, and when the probe says it was to be sent. The same
/// packets, all of them, have waited between 0 and 8 ms each.
#[test]
fn stages_add_up_to_what_a_receiver_of_others_measures() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("tracewhole", 1);
    let flow = Lockstep::new(&lab, 72);
    measured(|| {
        let running = tool("trace --session 72 -n 90 -t 20 --json");
        running.wait_for("tracing for");
        let times: Vec<u64> = (0..90)
            .map(|sequence| flow.one(sequence, Duration::from_millis(sequence % 9)))
            .map(|(from, to)| to - from)
            .collect();
        let done = running.end().good();
        let result = result(&done);
        let path = only(&result)?;
        let longest = *times.iter().max().expect("times");
        // The recorder takes one that stands still for longer for two.
        expect(longest < 1_000_000_000, format_args!("{longest} ns: {path:#?}"))?;
        assert_eq!((path.traced_packets, path.measured), (90, None), "{path:#?}");
        let whole = path.whole.expect("packets");
        assert!(whole.max_ns <= longest + path.clock_error_ns, "{longest}: {path:#?}");
        let own = times.iter().sum::<u64>() as f64 / 90.0;
        assert!(own > 3.0 * MS, "they did wait: {own}");
        // Behind the last stamp there is the way from the kernel's copy to the receiver's look at
        // the clock.
        let behind = own - path.sum_mean_ns;
        let error = path.clock_error_ns as f64;
        assert!(behind >= -error, "{own} {}: {path:#?}", whole.mean_ns);
        expect(
            behind < MS / 2.0 + error,
            format_args!("{own} {}: {path:#?}", whole.mean_ns),
        )
    });
}

/// The receiver takes a packet later than the recorder usually waits for its next point.
#[test]
fn a_packet_that_waits_for_long_is_one_packet() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("tracelong", 1);
    let flow = Lockstep::new(&lab, 73);
    const WAIT: Duration = Duration::from_millis(1500);
    let running = tool("trace --session 73 --stop-above 1200ms -t 20 --json");
    running.wait_for("tracing for");
    let _before = flow.one(0, Duration::ZERO);
    let (from, to) = flow.one(1, WAIT);
    let result = result(&running.end().good());
    let path = only(&result).unwrap();
    let record = path.recorded.as_ref().expect("a record");
    assert_eq!((record.session, record.sequence), (73, 1), "{record:#?}");
    assert!((nanos(WAIT)..=to - from).contains(&record.whole_ns), "{record:#?}");
    assert_eq!((path.traced_packets, path.incomplete_packets), (2, 0), "{path:#?}");
}
