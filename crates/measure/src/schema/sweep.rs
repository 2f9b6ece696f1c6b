//! What settings are worth.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Operation, UntilCi};
use crate::compare::{Figure, Ratio, Round};
use crate::sweep::{Method, Verdict};

/// A sweep over settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SweepResult {
    /// What was to be best, as on the command line: `rx-rate`.
    pub objective: String,
    /// The field that figures are of, such as `packets_pps`, `rtt_p50_ns`, `cpu_ns`.
    pub figure_of: String,
    /// A rate; otherwise a time or a cost, of which less is better.
    pub more_is_better: bool,
    /// What was done.
    pub operation: Operation,
    /// Frames in bytes, from the Ethernet header on, without check sequence.
    pub frame_bytes: u64,
    /// How the configurations were raced.
    pub method: Method,
    /// Rounds of the race that were begun.
    pub rounds: u32,
    /// How long each turn, in nanoseconds.
    pub round_duration_ns: u64,
    /// CPU steal in percent above which a round was left out.
    pub steal_limit_percent: f64,
    /// Time that the thread which waited most was ready to run and another process had its CPU, in
    /// percent of a turn: the median of the turns that count.
    #[serde(default)]
    pub cpu_wait_percent: Option<f64>,
    /// Differences up to this many percent do not matter.
    pub margin_percent: f64,
    /// Confidence of the interval of each level, such that all together hold with 95 %.
    pub confidence_percent: f64,
    /// The knobs, with what they do.
    pub knobs: Vec<KnobResult>,
    /// Levels that cannot be had here, and why.
    pub unavailable: Vec<UnavailableLevel>,
    /// All configurations, the base first.
    pub configurations: Vec<ConfigurationResult>,
    /// What to take.
    pub best: BestResult,
    /// A signal or the time ended it before it was through.
    pub interrupted: bool,
    /// What became of `--until-ci`; left out where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<UntilCi>,
}

/// What a knob does, over all settings of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KnobResult {
    /// Its name: the option of the command line.
    pub name: String,
    /// Whether it matters here.
    pub verdict: Verdict,
    /// Its levels, the base first.
    pub levels: Vec<LevelResult>,
}

/// What a level does in proportion to the base level of its knob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LevelResult {
    /// The level.
    pub level: String,
    /// Its figure in proportion to that of the base level; the interval has the confidence that the result tells. `None` for the
    /// base, and where nothing is known.
    pub ratio_to_base: Option<Ratio>,
    /// What that means; `None` for the base.
    pub verdict: Option<Verdict>,
}

/// A level that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnavailableLevel {
    /// The knob.
    pub knob: String,
    /// The level.
    pub level: String,
    /// Why it cannot be had.
    pub reason: String,
}

/// A configuration in the race.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigurationResult {
    /// The level of each knob.
    pub settings: BTreeMap<String, String>,
    /// The median of its rounds.
    pub figure: Option<Figure>,
    /// In proportion to the base, paired by rounds; one of many, and not corrected for that. `None` for the base.
    pub ratio_to_base: Option<Ratio>,
    /// Why it has no figure, if it has none.
    pub failure: Option<String>,
    /// Turns that failed.
    pub failed_turns: u32,
    /// The rounds themselves.
    pub rounds: Vec<Round>,
}

/// What to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BestResult {
    /// The level of each knob.
    pub settings: BTreeMap<String, String>,
    /// Nothing is clearly better than the base.
    pub is_base: bool,
    /// Its figure in the race.
    pub figure: Option<Figure>,
    /// What looked best in the race in proportion to the base, in fresh rounds that took no part in the choice; `None` if that was
    /// the base itself.
    pub confirmation: Option<Ratio>,
    /// What looked best in the race, if the confirming rounds did not bear it out.
    pub not_confirmed: Option<BTreeMap<String, String>>,
    /// As a file that `--config` takes.
    pub config: String,
}
