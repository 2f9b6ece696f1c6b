//! Which settings matter, and which are best? A sweep over knobs, without any I/O.
//!
//! A [`Design`] has knobs with levels, the first of each being the base; a configuration takes a level of each knob. A
//! [`Sweep`] says which configuration is to be measured next, is told what came out, and evaluates it.
//!
//! ```text
//!   race     round 1: C A D B     every configuration that is still in, once a round, in another order each time
//!            round 2: B D A C     (halving: after some rounds the better half stays, for twice as many rounds, and so on)
//!               …
//!   choice   the simplest of those that cannot be told from the best
//!   confirm  base, chosen, chosen, base, …    fresh rounds, which took no part in the choice
//! ```
//!
//! # What keeps it honest
//!
//! - **Pairs.** Only what ran in the same round is divided by one another; what the machine did to all of them falls out.
//! - **The best of many is lucky.** Its figure in the race is too good, because it was chosen for it. What is told of it against
//!   the base comes from the confirming rounds alone; if the difference does not come again, the base stays.
//! - **Many questions.** One of twenty intervals of 95 % misses. Those of the knobs are made so that all of them together hold
//!   with 95 % (Bonferroni: each with 1 − 0.05 / number of levels compared).
//! - **Few rounds.** The interval of a knob goes from one round's value to another's and makes no assumption about their
//!   distribution: it is the sign test turned around. With too few rounds for its confidence there is none, and the
//!   verdict is [`Verdict::CannotTell`].
//! - **Ties.** A knob is only moved off its base for a difference that shows.
//!
//! ```
//! use ringside_measure::compare::Round;
//! use ringside_measure::sweep::{Better, Design, Knob, Method, Plan, Sweep, Verdict};
//!
//! let design = Design::new(vec![
//!     Knob::new("batch", ["64", "256"]),
//!     Knob::new("wait", ["spin", "poll"]),
//! ])?;
//! let plan = Plan { method: Method::Grid, rounds: 10, confirm: 10, until: None };
//! let mut sweep = Sweep::new(design, plan, Better::More);
//! while let Some(configuration) = sweep.wanted() {
//!     // … the configuration is set up and measured …
//!     let batch = sweep.design().levels(configuration)[0];
//!     let value = 1_000_000.0 * if batch == 1 { 1.2 } else { 1.0 };
//!     sweep.record(Some(Round { value, steal: 0.0 }));
//! }
//! let found = sweep.found(0.05);
//! assert_eq!(found.effects[0].verdict, Verdict::Matters);
//! assert_eq!(found.effects[1].verdict, Verdict::DoesNotMatter);
//! assert_eq!(sweep.design().levels(found.best), [1, 0]);
//! assert!((found.confirmed.unwrap().median - 1.2).abs() < 1e-9);
//! # Ok::<(), ringside_measure::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::compare::{Figure, Ratio, Round, figure, ratio};
use crate::precision::UntilWidth;
use crate::random::SplitMix64;

mod effect;

pub use effect::{Effect, LevelEffect, Verdict};

/// Configurations that a design may have: beyond it nobody waits for the end.
pub const MOST_CONFIGURATIONS: usize = 4096;

/// Any number will do; a fixed one makes the order of turns repeatable.
const SEED: u64 = 0x7377_6565_7021;

/// Failures after which a configuration that never worked has no further turn.
const GIVE_UP: u32 = 2;

/// A setting and the levels that are tried. The first is the base, which the others are compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<String>,
}

impl Knob {
    /// A knob with these levels, the base first.
    pub fn new<L: Into<String>>(name: impl Into<String>, levels: impl IntoIterator<Item = L>) -> Self {
        Self {
            name: name.into(),
            levels: levels.into_iter().map(Into::into).collect(),
        }
    }
}

/// All configurations of some knobs. The configuration 0 is the base: the first level of each.
#[derive(Debug, Clone)]
pub struct Design {
    knobs: Vec<Knob>,
    configurations: Vec<Vec<usize>>,
}

impl Design {
    /// Each level of each knob with each of all others.
    ///
    /// # Errors
    /// [`Error::Sweep`] without knobs, for a knob with fewer than two levels or with one twice, for a knob that is there twice,
    /// and for more than [`MOST_CONFIGURATIONS`].
    pub fn new(knobs: Vec<Knob>) -> Result<Self, Error> {
        let wrong = |text: String| Err(Error::Sweep(text));
        if knobs.is_empty() {
            return wrong("there is no knob to turn: give at least one with two levels".into());
        }
        for (index, knob) in knobs.iter().enumerate() {
            let name = &knob.name;
            if knobs[..index].iter().any(|other| other.name == *name) {
                return wrong(format!("the knob {name} is there twice: give all its levels at once"));
            }
            if knob.levels.len() < 2 {
                return wrong(format!(
                    "the knob {name} has fewer than two levels: there is nothing to compare"
                ));
            }
            for (at, level) in knob.levels.iter().enumerate() {
                if knob.levels[..at].contains(level) {
                    return wrong(format!("the knob {name} has the level {level} twice"));
                }
            }
        }
        let count = knobs
            .iter()
            .try_fold(1_usize, |count, knob| count.checked_mul(knob.levels.len()));
        match count {
            Some(count) if count <= MOST_CONFIGURATIONS => {}
            _ => {
                return wrong(format!(
                    "the knobs have more than {MOST_CONFIGURATIONS} configurations: leave out knobs or levels"
                ));
            }
        }
        let mut configurations = vec![Vec::new()];
        for knob in &knobs {
            configurations = configurations
                .iter()
                .flat_map(|begin| (0..knob.levels.len()).map(move |level| [begin.as_slice(), &[level]].concat()))
                .collect();
        }
        Ok(Self { knobs, configurations })
    }

    /// The knobs.
    #[must_use]
    pub fn knobs(&self) -> &[Knob] {
        &self.knobs
    }

    /// Number of configurations.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there are at least two")]
    pub fn len(&self) -> usize {
        self.configurations.len()
    }

    /// The level that a configuration has of each knob.
    ///
    /// # Panics
    /// For a configuration that the design does not have.
    #[must_use]
    pub fn levels(&self, configuration: usize) -> &[usize] {
        &self.configurations[configuration]
    }

    /// Knobs that a configuration has off their base.
    #[must_use]
    pub fn moved(&self, configuration: usize) -> usize {
        self.levels(configuration).iter().filter(|level| **level != 0).count()
    }

    /// The same configuration with the base level of a knob.
    fn at_base(&self, configuration: usize, knob: usize) -> usize {
        // Mixed radix: the last knob changes fastest.
        let stride: usize = self.knobs[knob + 1..].iter().map(|knob| knob.levels.len()).product();
        configuration - self.levels(configuration)[knob] * stride
    }
}

/// How the race is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// All configurations, to the end.
    Grid,
    /// Successive halving: the better half goes on, twice as long as before, until two are left beside the base. Little time is
    /// spent on bad ones, and little is known about them in the end.
    Halving,
}

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How the race is run.
    pub method: Method,
    /// Rounds of the race; with halving of its first stage.
    pub rounds: u32,
    /// Rounds that confirm the choice; at the most, where there is an `until`.
    pub confirm: u32,
    /// End confirming when the interval is narrow enough.
    pub until: Option<UntilWidth>,
}

impl Plan {
    /// Turns that it takes for so many configurations, confirmation included.
    #[must_use]
    pub fn turns(&self, configurations: usize) -> u64 {
        let mut turns = 0;
        let (mut left, mut rounds) = (configurations as u64, u64::from(self.rounds));
        loop {
            turns += left * rounds;
            if self.method == Method::Grid || left <= FINALISTS {
                return turns + 2 * u64::from(self.confirm);
            }
            // Those without the base, which stays.
            left = (left - 1).div_ceil(2) + 1;
            rounds *= 2;
        }
    }
}

/// Two, and the base.
const FINALISTS: u64 = 3;

/// Which of two values is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A rate.
    More,
    /// A time, or a cost.
    Less,
}

impl Better {
    /// Above 1 for what is better than the base, below for what is worse.
    fn gain(self, ratio: f64) -> f64 {
        match self {
            Self::More => ratio,
            Self::Less => 1.0 / ratio,
        }
    }

    /// The interval of a ratio to the base lies on the better side of 1.
    fn is_clear(self, ratio: &Ratio) -> bool {
        match self {
            Self::More => ratio.low.is_some_and(|low| low > 1.0),
            Self::Less => ratio.high.is_some_and(|high| high < 1.0),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Race,
    Confirm { chosen: usize, from: u32 },
    Over,
}

/// What was read of a configuration.
#[derive(Debug, Clone, Default)]
struct Readings {
    /// With the numbers of their rounds.
    race: Vec<(u32, Round)>,
    confirm: Vec<(u32, Round)>,
    failures: u32,
}

/// How a configuration did in the race.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The median of its rounds; `None` if there is no quiet one.
    pub figure: Option<Figure>,
    /// In proportion to the base, paired; `None` for the base itself and without a pair. It is not corrected for being one of
    /// many.
    pub ratio: Option<Ratio>,
    /// Its rounds.
    pub rounds: Vec<Round>,
    /// Turns that failed.
    pub failures: u32,
}

/// What a sweep has found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What each knob does, in the order of the design.
    pub effects: Vec<Effect>,
    /// Confidence of each of their intervals, 0 to 1: all of them together hold with 0.95.
    pub confidence: f64,
    /// How each configuration did.
    pub standings: Vec<Standing>,
    /// What to take: the chosen configuration if it was confirmed, the base otherwise.
    pub best: usize,
    /// What looked best in the race, the simpler one of equals.
    pub chosen: usize,
    /// The chosen one in proportion to the base, in the confirming rounds; `None` if it is the base, or none was run.
    pub confirmed: Option<Ratio>,
}

/// Says what to measure next, and evaluates what was measured.
#[derive(Debug, Clone)]
pub struct Sweep {
    design: Design,
    plan: Plan,
    better: Better,
    readings: Vec<Readings>,
    /// Still in the race.
    alive: Vec<usize>,
    /// Turns left in this round; the last one is next.
    queue: Vec<usize>,
    stage: Stage,
    /// The round that runs, from 0.
    round: u32,
    /// The round before which the stage of the race ends.
    until: u32,
    /// Rounds of this stage of the race.
    stage_rounds: u32,
    random: SplitMix64,
}

impl Sweep {
    /// A sweep over a design.
    #[must_use]
    pub fn new(design: Design, plan: Plan, better: Better) -> Self {
        let count = design.len();
        let mut sweep = Self {
            design,
            better,
            readings: vec![Readings::default(); count],
            alive: (0..count).collect(),
            queue: Vec::new(),
            stage: Stage::Race,
            round: 0,
            until: plan.rounds.max(1),
            stage_rounds: plan.rounds.max(1),
            plan,
            random: SplitMix64(SEED),
        };
        sweep.fill();
        sweep
    }

    /// What it is about.
    #[must_use]
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The configuration to measure next; `None` when it is over.
    #[must_use]
    pub fn wanted(&self) -> Option<usize> {
        self.queue.last().copied()
    }

    /// The number of the round that runs, from 1, and whether it is one that confirms.
    #[must_use]
    pub fn progress(&self) -> (u32, bool) {
        (self.round + 1, matches!(self.stage, Stage::Confirm { .. }))
    }

    /// Configurations that are still in the race.
    #[must_use]
    pub fn left(&self) -> usize {
        self.alive.len()
    }

    /// What the wanted configuration gave; `None` if it failed.
    pub fn record(&mut self, reading: Option<Round>) {
        let Some(configuration) = self.queue.pop() else { return };
        let readings = &mut self.readings[configuration];
        match (reading, self.stage) {
            (Some(round), Stage::Race) => readings.race.push((self.round, round)),
            (Some(round), _) => readings.confirm.push((self.round, round)),
            (None, _) => readings.failures += 1,
        }
        if self.queue.is_empty() {
            self.round += 1;
            self.advance();
            self.fill();
        }
    }

    /// Whether a configuration failed again and again and never worked.
    #[must_use]
    pub fn is_given_up(&self, configuration: usize) -> bool {
        let readings = &self.readings[configuration];
        readings.race.is_empty() && readings.failures >= GIVE_UP
    }

    /// Ends the race at once, as if all its rounds were over: the time is needed to confirm.
    pub fn end_race(&mut self) {
        if self.stage == Stage::Race {
            self.queue.clear();
            self.round += 1;
            self.begin_confirming();
            self.fill();
        }
    }

    /// What is known by now. A knob whose interval lies within `margin` on either side of 1 does not matter: 0.05 is 5 %.
    #[must_use]
    pub fn found(&self, margin: f64) -> Found {
        let chosen = match self.stage {
            Stage::Confirm { chosen, .. } => chosen,
            Stage::Race | Stage::Over => self.choose(),
        };
        let confirmed = self.confirmation(chosen);
        let is_confirmed = confirmed.is_some_and(|ratio| self.better.is_clear(&ratio));
        let (effects, confidence) = effect::all(&self.design, &self.readings, margin);
        let standing = |configuration: usize| {
            let readings = &self.readings[configuration];
            let rounds: Vec<Round> = readings.race.iter().map(|(_, round)| *round).collect();
            Standing {
                figure: figure(&rounds).ok(),
                ratio: (configuration != 0).then(|| self.pair(0, configuration)).flatten(),
                rounds,
                failures: readings.failures,
            }
        };
        Found {
            effects,
            confidence,
            standings: (0..self.design.len()).map(standing).collect(),
            best: if is_confirmed { chosen } else { 0 },
            chosen,
            confirmed,
        }
    }

    /// The turns of a round.
    fn fill(&mut self) {
        match self.stage {
            Stage::Over => {}
            Stage::Confirm { chosen, .. } => {
                self.queue = if self.round.is_multiple_of(2) {
                    vec![0, chosen]
                } else {
                    vec![chosen, 0]
                };
            }
            Stage::Race => {
                self.alive = self
                    .alive
                    .iter()
                    .copied()
                    .filter(|one| !self.is_given_up(*one))
                    .collect();
                self.queue.clone_from(&self.alive);
                // Fisher and Yates: nobody always comes after the same neighbour.
                for last in (1..self.queue.len()).rev() {
                    let other = self.random.index(last + 1);
                    self.queue.swap(last, other);
                }
                if !self.alive.contains(&0) || self.alive.len() < 2 {
                    // Without the base, or with nothing beside it, there is nothing to compare.
                    self.queue.clear();
                    self.stage = Stage::Over;
                }
            }
        }
    }

    /// A round is over.
    fn advance(&mut self) {
        match self.stage {
            Stage::Over => {}
            Stage::Race if self.round < self.until => {}
            Stage::Race if self.plan.method == Method::Halving && self.alive.len() as u64 > FINALISTS => {
                self.halve();
                self.stage_rounds = self.stage_rounds.saturating_mul(2);
                self.until = self.round.saturating_add(self.stage_rounds);
            }
            Stage::Race => self.begin_confirming(),
            Stage::Confirm { chosen, from } => {
                let enough = self.round - from >= self.plan.confirm;
                let ratio = self.confirmation(chosen);
                let rounds = ratio.map_or(0, |ratio| ratio.rounds_used);
                let until = self.plan.until.as_mut();
                if enough || until.is_some_and(|until| until.is_reached(rounds, || ratio?.width())) {
                    self.stage = Stage::Over;
                }
            }
        }
    }

    fn begin_confirming(&mut self) {
        let chosen = self.choose();
        self.stage = match chosen {
            0 => Stage::Over,
            _ if self.plan.confirm == 0 => Stage::Over,
            chosen => Stage::Confirm {
                chosen,
                from: self.round,
            },
        };
    }

    /// The better half stays, and the base.
    fn halve(&mut self) {
        let mut ranked: Vec<(usize, f64)> = self
            .alive
            .iter()
            .filter_map(|&one| Some((one, self.gain(one)?)))
            .collect();
        ranked.retain(|(one, _)| *one != 0);
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked.truncate((self.alive.len() - 1).div_ceil(2));
        self.alive = std::iter::once(0)
            .chain(ranked.into_iter().map(|(one, _)| one))
            .collect();
        self.alive.sort_unstable();
    }

    /// How much better than the base, above 1 for better; `None` if there is no quiet pair.
    fn gain(&self, configuration: usize) -> Option<f64> {
        match configuration {
            0 => Some(1.0),
            _ => Some(self.better.gain(self.pair(0, configuration)?.median)),
        }
    }

    /// The simplest of those that cannot be told from what looks best.
    fn choose(&self) -> usize {
        let standing = |one: usize| Some((one, self.gain(one)?));
        let candidates: Vec<(usize, f64)> = self.alive.iter().filter_map(|&one| standing(one)).collect();
        let Some(&(top, _)) = candidates.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return 0;
        };
        let tied = candidates.iter().filter(|(one, _)| {
            // Without an interval nothing can be told apart.
            *one == top || !self.pair(*one, top).is_some_and(|ratio| self.better.is_clear(&ratio))
        });
        let simplest = tied.min_by(|a, b| {
            let moved = |one: usize| self.design.moved(one);
            moved(a.0).cmp(&moved(b.0)).then(b.1.total_cmp(&a.1))
        });
        simplest.map_or(0, |(one, _)| *one)
    }

    /// A configuration in proportion to another, over the rounds of the race in which both ran.
    fn pair(&self, base: usize, other: usize) -> Option<Ratio> {
        paired(&self.readings[base].race, &self.readings[other].race)
    }

    fn confirmation(&self, chosen: usize) -> Option<Ratio> {
        if chosen == 0 {
            return None;
        }
        paired(&self.readings[0].confirm, &self.readings[chosen].confirm)
    }
}

fn paired(base: &[(u32, Round)], other: &[(u32, Round)]) -> Option<Ratio> {
    let pairs = other.iter().filter_map(|(number, round)| {
        let (_, base) = base.iter().find(|(of, _)| of == number)?;
        Some((*base, *round))
    });
    let (base, other): (Vec<_>, Vec<_>) = pairs.unzip();
    ratio(&base, &other).ok()
}

#[cfg(test)]
mod tests;
