//! Devices whose loss is known, for tests.

use super::{Outcome, Search, Trial};
use crate::random::SplitMix64;

/// Runs a search on a device to its end, with a bound on the number of trials: it has to come to one.
pub(super) fn run(search: &mut impl Search, mut device: impl FnMut(Trial) -> Outcome) -> Vec<(Trial, Outcome)> {
    let mut trials = Vec::new();
    while let Some(trial) = search.wanted() {
        let outcome = device(trial);
        search.record(outcome);
        trials.push((trial, outcome));
        assert!(trials.len() < 20_000, "no end: {trial:?}");
    }
    trials
}

/// Forwards up to so many packets a second, and loses what is over.
pub(super) fn capacity(capacity_pps: u64) -> impl FnMut(Trial) -> Outcome + Clone {
    move |trial| {
        let through = Trial {
            load_pps: trial.load_pps.min(capacity_pps),
            ..trial
        };
        all_sent(trial.packets(), through.packets())
    }
}

/// Loses `floor` of the packets at any rate, and over its capacity what is over as well.
pub(super) fn leaky(capacity_pps: u64, floor: f64) -> impl FnMut(Trial) -> Outcome + Clone {
    let mut whole = capacity(capacity_pps);
    move |trial| {
        let outcome = whole(trial);
        all_sent(outcome.intended, outcome.received - share(outcome.received, floor))
    }
}

/// A trial has, with this probability, a disturbance that loses a hundredth of its packets.
pub(super) fn disturbed(capacity_pps: u64, probability: f64, seed: u64) -> impl FnMut(Trial) -> Outcome {
    let mut random = SplitMix64(seed);
    let mut whole = capacity(capacity_pps);
    move |trial| {
        let outcome = whole(trial);
        let lost = if uniform(&mut random) < probability {
            share(outcome.received, 0.01).max(1)
        } else {
            0
        };
        all_sent(outcome.intended, outcome.received.saturating_sub(lost))
    }
}

pub(super) fn uniform(random: &mut SplitMix64) -> f64 {
    const ONE: usize = 1 << 53;
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    let uniform = random.below(ONE) as f64 / ONE as f64;
    uniform
}

pub(super) fn all_sent(intended: u64, received: u64) -> Outcome {
    Outcome {
        intended,
        sent: intended,
        received,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of packets"
)]
fn share(packets: u64, of: f64) -> u64 {
    (packets as f64 * of).ceil() as u64
}
