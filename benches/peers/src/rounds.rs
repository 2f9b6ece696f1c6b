//! Rounds of interleaved turns.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use ringside_measure::compare::{Round, STEAL_LIMIT};

use crate::Settings;
use crate::operation::Operation;
use crate::peers::{Missing, Role, Variant};
use crate::turn::{Contender, Reading};

/// How often a turn that was disturbed or gave nothing is repeated.
const AGAIN: usize = 2;

/// A variant's readings, one a round.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// As it is printed.
    pub(crate) name: String,
    /// What it is there for.
    pub(crate) role: Role,
    /// Packets per second, or median round trips in nanoseconds.
    pub(crate) rounds: Vec<Round>,
    /// Ping-pong only: the 99th percentile of the same turns.
    pub(crate) tails: Vec<Round>,
}

/// Runs an operation's rounds. The base must work; another variant that does not is reported as
/// missing, with the reason.
pub(crate) fn run(
    operation: Operation,
    variants: Vec<Variant>,
    settings: &Settings,
    stop: &AtomicBool,
) -> Result<(Vec<Series>, Vec<Missing>)> {
    let mut contenders = Vec::new();
    let mut missing = Vec::new();
    for variant in variants {
        anyhow::ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        let (name, role) = (variant.name.clone(), variant.role);
        match Contender::start(variant, operation, settings) {
            Ok(contender) => contenders.push((contender, Series::new(name, role))),
            Err(error) if role == Role::Base => {
                return Err(error).with_context(|| format!("the base, {name}, does not work"));
            }
            Err(error) => missing.push(Missing {
                name,
                why: format!("{error:#}"),
            }),
        }
    }
    for round in 0..settings.rounds {
        for index in order(contenders.len(), round) {
            anyhow::ensure!(!stop.load(Ordering::Relaxed), "interrupted");
            let (contender, series) = &mut contenders[index];
            let reading =
                quiet_turn(contender, settings).with_context(|| format!("{}, round {}", series.name, round + 1))?;
            let steal = reading.disturbance.worst().min(1.0);
            series.rounds.push(Round {
                value: reading.value,
                steal,
            });
            series.tails.extend(reading.round_trips.map(|times| Round {
                value: times.p99,
                steal,
            }));
        }
    }
    Ok((contenders.into_iter().map(|(_, series)| series).collect(), missing))
}

/// A turn; once more at once if it was disturbed or gave nothing. That is still the same round, and so
/// still the same pair.
fn quiet_turn(contender: &mut Contender, settings: &Settings) -> Result<Reading> {
    let mut reading = contender.turn(settings);
    for _ in 0..AGAIN {
        match &reading {
            Ok(reading) if reading.disturbance.worst() <= STEAL_LIMIT => break,
            Ok(_) => {}
            Err(error) => eprintln!("{}: {error:#}; once more", contender.variant.name),
        }
        reading = contender.turn(settings);
    }
    reading
}

impl Series {
    fn new(name: String, role: Role) -> Self {
        Self {
            name,
            role,
            rounds: Vec::new(),
            tails: Vec::new(),
        }
    }
}

/// The base first, then the others, every second time backwards: nobody always comes last.
fn order(count: usize, round: u16) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round % 2 == 1 && count > 1 {
        order[1..].reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_first_in_every_round() {
        assert_eq!(order(4, 0), [0, 1, 2, 3]);
        assert_eq!(order(4, 1), [0, 3, 2, 1]);
        assert_eq!(order(1, 1), [0]);
        assert!(order(0, 1).is_empty());
    }
}
