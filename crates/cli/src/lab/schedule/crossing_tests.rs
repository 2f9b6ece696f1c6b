//! Clocks that differ by a known amount, and packets whose times on them are known.

use ringside_measure::probe::{Clock, Kind as Question, Probe as Stamps};
use ringside_measure::schedule::StreamPart;

use super::*;
use crate::lab::file::Text;

const LAB: &str = "\
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[link]]
name = \"up\"
ends = [\"a\", \"b\"]
[[guest]]
name = \"vm\"
host = \"b\"
attachment = \"tap-bridge\"
uplink = \"up\"
[[schedule]]
name = \"tt\"
from = \"FROM\"
to = \"TO\"
class = [\"5:0us:100us\"]
";

const CYCLE: u64 = 1_000_000;
/// CLOCK_TAI less CLOCK_MONOTONIC, at the host and in the guest.
const HOST: i64 = 1_700_000_000_000_000_000;
const GUEST: i64 = HOST - 3_000_000_000;
/// A guest's CLOCK_MONOTONIC is so much behind, and gains 50 ppm.
const BEHIND: u64 = 400_000_000;

/// Of the same moment.
fn guest(host: u64) -> u64 {
    host - BEHIND + host / 20_000
}

fn host_tai(host: u64) -> u64 {
    host.saturating_add_signed(HOST)
}

fn guest_tai(host: u64) -> u64 {
    guest(host).saturating_add_signed(GUEST)
}

fn schedule(is_back: bool) -> Schedule {
    let (from, to) = if is_back { ("vm", "a") } else { ("a", "vm") };
    let text = Text {
        name: "t".into(),
        text: LAB.replace("FROM", from).replace("TO", to),
    };
    let mut plan = Plan::read(&text).unwrap_or_else(|faults| panic!("{faults}"));
    plan.schedules.pop().expect("a schedule")
}

/// A hundred packets, sent 5 µs after they are due by the talker's clock, that take 40 µs and more; the fiftieth takes 90 µs more.
fn packets(is_back: bool) -> Vec<Received> {
    let begin = 600_000_000;
    let of = |number: u64| {
        // Close to the talker's next cycle, so that all is within it.
        let sent_host = begin + number * CYCLE;
        let [sent, came]: [fn(u64) -> u64; 2] = match is_back {
            false => [host_tai, guest_tai],
            true => [guest_tai, host_tai],
        };
        let sent_ns = sent(sent_host);
        // The window's begin is where the talker's clock says.
        let intended_ns = sent_ns / CYCLE * CYCLE;
        let sent_ns = intended_ns + 5_000;
        let late = sent(sent_host) - intended_ns;
        // Back to the host's time of that.
        let sent_host = sent_host - late + 5_000;
        let took = 40_000 + number % 7 * 1_000 + if number == 50 { 90_000 } else { 0 };
        Received {
            probe: Stamps {
                kind: Question::Request,
                clock: Clock::Tai,
                session: 7,
                sequence: number,
                intended_ns,
                sent_ns,
            },
            part: StreamPart {
                pcp: 5,
                number: 0,
                skipped: 0,
            },
            pcp: Some(5),
            at_ns: came(sent_host + took),
        }
    };
    (0..100).map(of).collect()
}

/// Round trips before and behind them, 20 µs there and back.
fn trips() -> Bounds {
    let mut bounds = Bounds::new();
    for at in (500_000_000..520_000_000_u64)
        .chain(800_000_000..820_000_000)
        .step_by(1_000_000)
    {
        bounds.there(at, guest(at + 20_000));
        bounds.back(guest(at + 21_000), at + 41_000);
    }
    bounds
}

fn clocks(is_back: bool) -> Clocks {
    let (talker_ns, listener_ns) = if is_back { (GUEST, HOST) } else { (HOST, GUEST) };
    Clocks {
        talker_ns,
        listener_ns,
        uncertainty_ns: 100,
    }
}

fn judged(is_back: bool, windows: LabWindows) -> (ringside_measure::schema::ClassReceived, u64) {
    let (schedule, packets, clocks) = (schedule(is_back), packets(is_back), clocks(is_back));
    assert_eq!(schedule.is_back, is_back);
    let mut bounds = trips();
    let before = bounds.len();
    clocks.bound(&packets, is_back, &mut bounds);
    assert_eq!(bounds.len(), before + packets.len());
    let mapping = bounds.fit().unwrap();
    assert_eq!(mapping.contradiction_ns(), 0);
    assert!((mapping.rate_ppm() - 50.0).abs() < 1.0, "{mapping:?}");
    let packets = clocks.by_the_talkers(&packets, is_back, &mapping);
    let told = listened(&schedule, 7, &packets, windows);
    let received = told.classes[0].received.clone().expect("received");
    (received, mapping.uncertainty_ns() + clocks.uncertainty_ns)
}

#[test]
fn latencies_are_by_the_talkers_clock_to_what_is_known_of_it() {
    for is_back in [false, true] {
        let (received, uncertainty) = judged(is_back, LabWindows::Clock);
        assert!(uncertainty < 25_000, "{uncertainty}");
        assert_eq!((received.received_packets, received.impossible_packets), (100, 0));
        // From the hand-over: 40 us at the least, 136 us at the most, plus what the rate makes of a cycle's rest.
        let path = received.path.unwrap();
        let is_near = |told: u64, true_ns: u64| told.abs_diff(true_ns) <= uncertainty + 1_000;
        assert!(is_near(path.min_ns, 40_000), "{path:?}");
        assert!(is_near(path.max_ns, 131_000), "{path:?}");
        let latency = received.latency.unwrap();
        assert!(is_near(latency.min_ns, 45_000), "{latency:?}");
        // One is behind its window of 100 us, and by how much is known as well as the clock.
        assert_eq!((received.early_packets, received.late_packets), (0, 1));
        assert!(is_near(received.late_most_ns.unwrap(), 36_000), "{received:?}");
    }
}

#[test]
fn windows_from_the_fastest_packet_on_take_no_other_clock() {
    for is_back in [false, true] {
        let (received, _) = judged(is_back, LabWindows::Fastest);
        assert_eq!(
            (received.early_packets, received.late_packets),
            (0, 0),
            "91 µs behind the fastest"
        );
        let latency = received.latency.unwrap();
        assert!((90_000..93_000).contains(&latency.max_ns), "{latency:?}");
        let gap = received.gap.unwrap();
        assert!((900_000..1_100_000).contains(&gap.min_ns), "{gap:?}");
    }
}

#[test]
fn a_clock_that_was_set_is_told() {
    let known = ClockState {
        tai_less_monotonic_ns: Some(HOST),
        tai_less_monotonic_uncertainty_ns: Some(30),
        ..ClockState::default()
    };
    let both = Clocks::of(&known, &known).unwrap();
    assert_eq!((both.talker_ns, both.uncertainty_ns), (HOST, 60));
    let error = Clocks::of(&known, &ClockState::default()).unwrap_err().to_string();
    assert_eq!(error, "somebody has set the listener's clock meanwhile");
}
