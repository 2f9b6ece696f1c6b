//! What a knob does, over all settings of the others.

use serde::{Deserialize, Serialize};

use super::{Design, Readings};
use crate::compare::{Ratio, exact_median_interval, median, steal_limit, steal_of};

/// Whether a knob, or a level of it, makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval does not hold 1, and reaches beyond the margin.
    Matters,
    /// The interval lies within the margin: what difference there may be is too small.
    DoesNotMatter,
    /// The interval holds 1 and more than the margin, or there is none: more rounds, or longer ones, would tell.
    CannotTell,
}

/// What a knob does.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// It matters if one of its levels does, and does not if none of them does.
    pub verdict: Verdict,
    /// What each level does, in the order of the design; the first is the base.
    pub levels: Vec<LevelEffect>,
}

/// What a level does in proportion to the base level of its knob.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelEffect {
    /// Each round gives one value: the geometric mean of the ratios of all pairs of configurations that differ in this knob alone.
    /// The median of these values with its interval. `None` for the base, and where no pair has run in one round.
    pub ratio: Option<Ratio>,
    /// What that means; `None` for the base.
    pub verdict: Option<Verdict>,
}

/// All knobs, and the confidence of each interval.
pub(super) fn all(design: &Design, readings: &[Readings], margin: f64) -> (Vec<Effect>, f64) {
    let compared: usize = design.knobs().iter().map(|knob| knob.levels.len() - 1).sum();
    #[allow(clippy::cast_precision_loss, reason = "a handful of levels")]
    let confidence = 1.0 - 0.05 / compared.max(1) as f64;
    let effects = design.knobs().iter().enumerate().map(|(number, knob)| {
        let levels: Vec<LevelEffect> = (0..knob.levels.len())
            .map(|level| match level {
                0 => LevelEffect {
                    ratio: None,
                    verdict: None,
                },
                level => {
                    let ratio = of_level(design, readings, number, level, confidence);
                    LevelEffect {
                        verdict: Some(judge(ratio.as_ref(), margin)),
                        ratio,
                    }
                }
            })
            .collect();
        Effect {
            verdict: together(levels.iter().filter_map(|level| level.verdict)),
            levels,
        }
    });
    (effects.collect(), confidence)
}

/// One value a round: what the level is worth on average over the others' settings. Rounds are what is independent; the pairs of
/// one round are not.
fn of_level(design: &Design, readings: &[Readings], knob: usize, level: usize, confidence: f64) -> Option<Ratio> {
    let rounds = readings
        .iter()
        .flat_map(|one| &one.race)
        .map(|(number, _)| number + 1)
        .max()?;
    let mut sums = vec![(0.0_f64, 0_u32); rounds as usize];
    let mut pairs = Vec::new();
    for configuration in (0..design.len()).filter(|one| design.levels(*one)[knob] == level) {
        let base = &readings[design.at_base(configuration, knob)].race;
        for (number, round) in &readings[configuration].race {
            let Some((_, base)) = base.iter().find(|(of, _)| of == number) else {
                continue;
            };
            pairs.push((*number, base, round));
        }
    }
    let all = pairs.len();
    pairs.retain(|(_, base, round)| base.value > 0.0 && round.value > 0.0);
    let limit = steal_limit(pairs.iter().map(|(_, base, round)| steal_of((base, round))));
    pairs.retain(|(_, base, round)| steal_of((base, round)) <= limit);
    if pairs.is_empty() {
        return None;
    }
    for (number, base, round) in &pairs {
        let sum = &mut sums[*number as usize];
        *sum = (sum.0 + (round.value / base.value).ln(), sum.1 + 1);
    }
    let mut values: Vec<f64> = sums
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(sum, count)| (sum / f64::from(count)).exp())
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    let interval = exact_median_interval(&values, confidence);
    Some(Ratio {
        median: median(&values),
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        rounds_used: values.len(),
        rounds_left_out: all - pairs.len(),
    })
}

fn judge(ratio: Option<&Ratio>, margin: f64) -> Verdict {
    let Some((low, high)) = ratio.and_then(|ratio| Some((ratio.low?, ratio.high?))) else {
        return Verdict::CannotTell;
    };
    if low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin {
        Verdict::DoesNotMatter
    } else if low > 1.0 || high < 1.0 {
        Verdict::Matters
    } else {
        Verdict::CannotTell
    }
}

fn together(levels: impl Iterator<Item = Verdict> + Clone) -> Verdict {
    let mut all = levels.clone();
    if levels.clone().any(|verdict| verdict == Verdict::Matters) {
        Verdict::Matters
    } else if all.all(|verdict| verdict == Verdict::DoesNotMatter) {
        Verdict::DoesNotMatter
    } else {
        Verdict::CannotTell
    }
}
