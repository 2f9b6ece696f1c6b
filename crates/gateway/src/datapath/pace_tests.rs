use ringside_gateway_core::conntrack::Limits;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn every(change: impl FnOnce(&mut Limits)) -> Duration {
    let mut limits = Limits {
        connections: 100,
        ..Limits::default()
    };
    change(&mut limits);
    of_connections(&Conntrack::new(limits))
}

#[test]
fn connections_hear_of_their_packets_well_within_their_time() {
    assert_eq!(every(|_| ()), SELDOM);
    for state in CARRIED {
        assert_eq!(every(|limits| limits.timeouts.set(state, 8 * SECOND)), 2 * SECOND);
    }
    assert_eq!(every(|limits| limits.idle = 20 * SECOND), 5 * SECOND);
    assert_eq!(every(|limits| limits.timeouts.set(State::UdpReplied, SHORTEST)), OFTEN);
    // What the fast path never has.
    assert_eq!(every(|limits| limits.timeouts.set(State::FinWait, SECOND)), SELDOM);
}

/// As the keeper goes round: what one thing costs is no pause of the other.
#[test]
fn what_is_sparing_delays_nothing_that_is_steady() {
    let begin = Instant::now();
    let mut connections = Pace::steady(10 * SECOND, begin);
    let mut count = Pace::sparing(10 * SECOND, 100, begin);
    let (mut now, mut told, mut counted) = (begin, Vec::new(), Vec::new());
    while now < begin + 300 * SECOND {
        if connections.is_due(now) {
            told.push(now);
            connections.done(now, now);
        }
        if count.is_due(now) {
            counted.push(now);
            // Seven million neighbours.
            let began = now;
            now += SECOND * 6 / 5;
            count.done(began, now);
        }
        now += SECOND / 10;
    }
    let longest = told.windows(2).map(|two| two[1] - two[0]).max();
    assert!(longest.is_some_and(|longest| longest <= 12 * SECOND), "{longest:?}");
    assert!(told.len() >= 28, "{}", told.len());
    assert_eq!(counted.len(), 3, "a hundredth of the time");
}

#[test]
fn what_takes_longer_than_its_turn_is_due_at_once() {
    let begin = Instant::now();
    let mut steady = Pace::steady(SECOND, begin);
    assert!(!steady.is_due(begin) && steady.is_due(begin + SECOND));
    steady.done(begin + SECOND, begin + 4 * SECOND);
    assert!(steady.is_due(begin + 4 * SECOND));
}
