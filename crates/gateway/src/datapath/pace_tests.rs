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

#[test]
fn what_takes_longer_than_its_turn_is_due_at_once() {
    let begin = Instant::now();
    let mut steady = Pace::steady(SECOND, begin);
    assert!(!steady.is_due(begin) && steady.is_due(begin + SECOND));
    steady.done(begin + SECOND, begin + 4 * SECOND);
    assert!(steady.is_due(begin + 4 * SECOND));
}
