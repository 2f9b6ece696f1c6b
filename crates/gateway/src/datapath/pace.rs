//! When what is to be done now and then is due.

use std::time::{Duration, Instant};

use ringside_gateway_core::conntrack::{Conntrack, State};

/// Connections are told what the fast path sends on so often at the least.
const SELDOM: Duration = Duration::from_secs(10);
/// And not more often.
const OFTEN: Duration = Duration::from_secs(1);
/// They hear of it so many times within the shortest time-out.
const TIMES: u32 = 4;
/// States of connections that the fast path may have.
pub(crate) const CARRIED: [State; 3] = [State::Established, State::ResetSeen, State::UdpReplied];
/// No time-out of those may be shorter.
pub(crate) const SHORTEST: Duration = OFTEN.saturating_mul(TIMES);
/// States of connections that the fast path may have if their time-outs are not shorter than that.
const BRIEF: [State; 3] = [State::UdpUnreplied, State::IcmpUnreplied, State::IcmpReplied];

/// Something that is due again and again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    every: Duration,
    due: Instant,
}

impl Pace {
    /// Every so often, whatever it costs.
    pub(super) fn steady(every: Duration, now: Instant) -> Self {
        let due = now + every;
        Self { every, due }
    }

    /// From now on every so often, and the next time no later.
    pub(super) fn hasten(&mut self, every: Duration, now: Instant) {
        self.every = every;
        self.due = self.due.min(now + every);
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// It was done from then until then.
    pub(super) fn done(&mut self, began: Instant, ended: Instant) {
        self.due = (began + self.every).max(ended);
    }
}

/// Lets so many through at once, and one in so many nanoseconds for long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    every: u64,
    at_once: u32,
    /// Until then it lets fewer through, CLOCK_MONOTONIC in nanoseconds.
    full_at: u64,
}

impl Gate {
    pub(super) const fn new(every: u64, at_once: u32) -> Self {
        Self {
            every,
            at_once,
            full_at: 0,
        }
    }

    pub(super) fn lets_through(&mut self, now: u64) -> bool {
        let after = self.full_at.max(now) + self.every;
        let may = after - now <= self.every * u64::from(self.at_once);
        if may {
            self.full_at = after;
        }
        may
    }
}

/// True if a connection in this state hears what the fast path has sent on before it times out.
pub(super) fn may_carry(conntrack: &Conntrack, state: State) -> bool {
    Duration::from_nanos(conntrack.timeout(state)) >= SHORTEST
}

/// How often connections are told what the fast path has sent on, lest one ends that it carries.
pub(super) fn of_connections(conntrack: &Conntrack) -> Duration {
    let brief = BRIEF.into_iter().filter(|state| may_carry(conntrack, *state));
    let states = CARRIED.into_iter().chain(brief);
    let timeouts = states.map(|state| Duration::from_nanos(conntrack.timeout(state)));
    let shortest = timeouts.min().unwrap_or(SELDOM).min(conntrack.idle());
    (shortest / TIMES).clamp(OFTEN, SELDOM)
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
