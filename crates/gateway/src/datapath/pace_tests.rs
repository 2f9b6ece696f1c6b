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
fn what_is_due_more_often_is_due_sooner() {
    let now = Instant::now();
    let mut pace = Pace::steady(10 * SECOND, now);
    pace.hasten(SECOND, now + SECOND);
    assert!(!pace.is_due(now + SECOND) && pace.is_due(now + 2 * SECOND));
    pace.hasten(10 * SECOND, now + SECOND);
    assert!(pace.is_due(now + 2 * SECOND), "what was said stays");
    pace.done(now + 2 * SECOND, now + 2 * SECOND);
    assert!(!pace.is_due(now + 11 * SECOND));
}

#[test]
fn connections_hear_of_their_packets_well_within_their_time() {
    // A fourth of the 30 s that an unreplied datagram or an echo has.
    const USUAL: Duration = Duration::from_millis(7500);
    assert_eq!(every(|_| ()), USUAL);
    for state in CARRIED.into_iter().chain(BRIEF) {
        assert_eq!(every(|limits| limits.timeouts.set(state, 8 * SECOND)), 2 * SECOND);
    }
    assert_eq!(every(|limits| limits.idle = 20 * SECOND), 5 * SECOND);
    assert_eq!(every(|limits| limits.timeouts.set(State::UdpReplied, SHORTEST)), OFTEN);
    // What the fast path never has.
    assert_eq!(every(|limits| limits.timeouts.set(State::FinWait, SECOND)), USUAL);
    // Nor those that would end too soon.
    let all_brief = |time| move |limits: &mut Limits| BRIEF.iter().for_each(|state| limits.timeouts.set(*state, time));
    assert_eq!(every(all_brief(SHORTEST)), OFTEN);
    assert_eq!(every(all_brief(SHORTEST - SECOND)), SELDOM);
}

#[test]
fn what_takes_longer_than_its_turn_is_due_at_once() {
    let begin = Instant::now();
    let mut steady = Pace::steady(SECOND, begin);
    assert!(!steady.is_due(begin) && steady.is_due(begin + SECOND));
    steady.done(begin + SECOND, begin + 4 * SECOND);
    assert!(steady.is_due(begin + 4 * SECOND));
}
