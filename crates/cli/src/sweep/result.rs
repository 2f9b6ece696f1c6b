//! From what was found to the result.

use std::collections::BTreeMap;

use anyhow::Result;
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::schema::{BestResult, ConfigurationResult, KnobResult, LevelResult, SweepResult, UntilCi};
use ringside_measure::sweep::{Better, Design, Found, Method, Sweep};

use super::have::Knobs;
use super::table::interval;
use super::{Args, knob};
use crate::session::nanos;

/// The level that a configuration has of each knob, by their names.
pub(super) fn levels(design: &Design, configuration: usize) -> Vec<(&str, &str)> {
    let levels = design.knobs().iter().zip(design.levels(configuration));
    levels
        .map(|(knob, level)| (knob.name.as_str(), knob.levels[*level].as_str()))
        .collect()
}

/// Everything that is told of a sweep.
pub(super) fn of(
    args: &Args,
    frame_bytes: u16,
    sweep: &Sweep,
    found: &Found,
    failures: &[Option<String>],
    knobs: Knobs,
    interrupted: bool,
) -> Result<SweepResult> {
    let design = sweep.design();
    let settings = |configuration| -> BTreeMap<String, String> {
        let all = knobs.all(&levels(design, configuration));
        all.into_iter()
            .map(|(name, level)| (name.to_owned(), level.to_owned()))
            .collect()
    };
    let effects = design
        .knobs()
        .iter()
        .zip(&found.effects)
        .map(|(knob, effect)| KnobResult {
            name: knob.name.clone(),
            verdict: effect.verdict,
            levels: knob
                .levels
                .iter()
                .zip(&effect.levels)
                .map(|(level, effect)| LevelResult {
                    level: level.clone(),
                    ratio_to_base: effect.ratio,
                    verdict: effect.verdict,
                })
                .collect(),
        });
    let configurations = found
        .standings
        .iter()
        .enumerate()
        .map(|(number, standing)| ConfigurationResult {
            settings: settings(number),
            figure: standing.figure,
            ratio_to_base: standing.ratio,
            failure: match standing.figure {
                Some(_) => None,
                None => failures[number].clone().or_else(|| Some("it had no turn".into())),
            },
            failed_turns: standing.failures,
            rounds: standing.rounds.clone(),
        });
    let rounds = found
        .standings
        .iter()
        .map(|standing| standing.rounds.len())
        .max()
        .unwrap_or(0);
    let best = BestResult {
        settings: settings(found.best),
        is_base: found.best == 0,
        figure: found.standings[found.best].figure,
        confirmation: found.confirmed,
        not_confirmed: (found.best != found.chosen).then(|| settings(found.chosen)),
        config: knob::file(
            &remarks(args, design.len(), found),
            knobs.all(&levels(design, found.best)),
        )?,
    };
    Ok(SweepResult {
        objective: args.objective.name().into(),
        figure_of: args.objective.field().into(),
        more_is_better: args.objective.better() == Better::More,
        operation: args.schema_operation(),
        frame_bytes: frame_bytes.into(),
        method: if args.halving { Method::Halving } else { Method::Grid },
        rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
        round_duration_ns: nanos(args.bench.slot),
        steal_limit_percent: STEAL_LIMIT * 100.0,
        cpu_wait_percent: None,
        margin_percent: args.margin,
        confidence_percent: found.confidence * 100.0,
        knobs: effects.collect(),
        configurations: configurations.collect(),
        best,
        interrupted,
        until_ci: args.until_ci.as_ref().map(|until| {
            let width = found.confirmed.and_then(|ratio| ratio.width());
            // The choice was the base: there is no ratio to know.
            let reached = width.is_some_and(|width| width < until.width());
            UntilCi::of(until.width(), reached, "the best against the base", width)
        }),
        unavailable: knobs.unavailable,
    })
}

/// What stands on top of the file.
fn remarks(args: &Args, configurations: usize, found: &Found) -> Vec<String> {
    let worth = match (found.best, found.confirmed) {
        (0, _) => "nothing is clearly better than what it began with".to_owned(),
        (_, Some(ratio)) => format!("{} x what it began with", interval(&ratio)),
        (_, None) => "not confirmed".to_owned(),
    };
    vec![
        format!(
            "ringside sweep --for {}, {configurations} configurations: {worth}",
            args.objective.name()
        ),
        "Options for --config of ringside rx, tx, fwd, echo and ping.".to_owned(),
    ]
}
