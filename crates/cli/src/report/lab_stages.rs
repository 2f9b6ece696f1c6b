//! Where packets' time goes on the paths of a lab.

use maud::{Markup, html};
use ringside_measure::schema::{LabClock, LabResult, LabStages, LoadKind, StageResult, TraceCost, TracedPath};
use ringside_measure::trace::{Point, Stage};

use super::stacked::{self, Part, Stack};
use super::words::{Sentence, said, warned};
use super::{stages, units};
use crate::trace::{slow_words, stage_name};

/// Stages told in a line of text.
const MOST_TOLD: usize = 4;
/// If more of the packets are left out, the stages may be those of other packets than one thinks.
const MANY_PERCENT: f64 = 10.0;
/// Tracing that makes so much of the median is told beside the stages.
const SLOWED: f64 = 1.5;

/// What the colours stand for.
const GROUPS: [(&str, &str); 9] = [
    ("c0", "sender"),
    ("c1", "qdisc, driver and wire"),
    ("c2", "interrupt, NAPI, XDP"),
    ("c3", "backlog, stack, to the socket"),
    ("c4", "in the socket, TAP ring"),
    ("c5", "wake-up"),
    ("c6", "application, forwarder"),
    ("c7", "QEMU and vCPU, out of the guest"),
    ("base", "remainder"),
];

fn class(stage: Stage) -> &'static str {
    match stage {
        Stage::From(point) => match point {
            Point::Intended | Point::Call => "c0",
            Point::Queue | Point::Transmit => "c1",
            Point::Raised | Point::SoftIrq | Point::Xdp | Point::Driver => "c2",
            Point::Backlog | Point::Stack | Point::Socket => "c3",
            Point::Ready | Point::Ring => "c4",
            Point::Waking | Point::Running => "c5",
            Point::Copy | Point::Application => "c6",
            Point::Awake | Point::Kick | Point::Entered => "c7",
        },
        Stage::Relay => "c6",
        Stage::IntoGuest | Stage::OutOfGuest => "c7",
        Stage::Remainder => "base",
    }
}

/// `udp, idle`
fn name(of: &LabStages) -> String {
    let condition = if of.condition == LoadKind::Idle {
        "idle"
    } else {
        "loaded"
    };
    format!("{}, {condition}", of.path)
}

fn direction(of: &LabStages) -> &'static str {
    if of.is_round_trip { "there and back" } else { "one way" }
}

/// What tracing makes of a path's median, in words.
fn slowed_words(cost: &TraceCost) -> String {
    let ratio = &cost.ratio;
    let interval = match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("95 % interval {low:.2} to {high:.2}"),
        None => "too few pairs for an interval".to_owned(),
    };
    let always = cost.always_on.as_ref().map_or_else(String::new, |place| {
        format!("; {place} it is traced in all of them, so what that costs is in both")
    });
    format!(
        "median {} with tracing, {} without, in {} pairs of turns: {:.2} times as long ({interval}){always}",
        units::time(cost.on_ns.median),
        units::time(cost.off_ns.median),
        ratio.rounds_used,
        ratio.median
    )
}

/// At the very least it makes much of it.
fn is_much(cost: &TraceCost) -> bool {
    cost.ratio.low.unwrap_or(cost.ratio.median) > SLOWED
}

/// How many packets are in no stage, if they are many.
#[allow(clippy::cast_precision_loss, reason = "counts of less than 2^53")]
pub(crate) fn left_out(of: &LabStages) -> Option<String> {
    let traced = of.traced.as_ref()?;
    let all = traced.traced_packets + traced.incomplete_packets;
    let percent = traced.incomplete_packets as f64 * 100.0 / all.max(1) as f64;
    (percent > MANY_PERCENT).then(|| {
        format!(
            "{}: {} of {all} traced packets are left out, since not all of their way was seen: the stages are those of the others",
            name(of),
            traced.incomplete_packets
        )
    })
}

/// Returns the stages that took longest, with their part of the whole.
pub(crate) fn longest(traced: &TracedPath) -> String {
    let mut stages: Vec<&StageResult> = traced.stages.iter().filter(|stage| stage.part_ns > 0.0).collect();
    stages.sort_by(|a, b| b.part_ns.total_cmp(&a.part_ns));
    let stages = stages.iter().take(MOST_TOLD).map(|stage| {
        let uncertain = stage.uncertainty_ns.map(|ns| format!(" ± {}", units::time(ns as f64)));
        format!(
            "{} {}{} ({:.0} %)",
            stage_name(stage),
            units::time(stage.part_ns),
            uncertain.unwrap_or_default(),
            stage.part_percent
        )
    });
    stages.collect::<Vec<_>>().join(", ")
}

/// One line about a path: what took most.
pub(crate) fn line(of: &LabStages) -> String {
    let Some(traced) = &of.traced else {
        let why = of.unavailable.as_deref().unwrap_or("nothing was traced");
        return format!("{}: no stages: {why}", name(of));
    };
    let left_out = match traced.incomplete_packets {
        0 => String::new(),
        incomplete => format!(", {incomplete} left out"),
    };
    let cost = traced.cost.as_ref();
    let cost = cost.map_or_else(String::new, |cost| format!("; with tracing × {:.2}", cost.ratio.median));
    format!(
        "{}, {}: {} on average of {} packets{left_out}; most in {}{cost}",
        name(of),
        direction(of),
        units::time(traced.whole.map_or(0.0, |whole| whole.mean_ns)),
        traced.traced_packets,
        longest(traced)
    )
}

/// What CPUs of this machine did during the slowest packets more than usual, and around the one that it stopped at; `None` where there is nothing
/// to tell.
pub(crate) fn slow(of: &LabStages) -> Option<String> {
    let traced = of.traced.as_ref()?;
    let is_told = traced.recorded.is_some() || traced.slow.as_ref().is_some_and(|slow| !slow.culprits.is_empty());
    is_told.then(|| slow_words(traced))
}

/// In words, path by path.
pub(super) fn words(lab: &LabResult) -> Vec<Sentence> {
    let of = |of: &LabStages| {
        let line = format!("{}.", line(of));
        let first = match of.traced {
            Some(_) => said(line),
            None => warned(line),
        };
        let cost = of.traced.as_ref().and_then(|traced| traced.cost.as_ref());
        let slowed = cost.filter(|cost| is_much(cost));
        let slowed = slowed.map(|cost| format!("{}: tracing slows this path down: {}", name(of), slowed_words(cost)));
        let more = left_out(of).into_iter().chain(slowed);
        let more: Vec<Sentence> = more.map(|text| warned(format!("{text}."))).collect();
        [first].into_iter().chain(more)
    };
    lab.stages.iter().flat_map(of).collect()
}

pub(super) fn part(lab: &LabResult) -> Markup {
    let stacks = |is_round_trip: bool| -> Vec<Stack> {
        let of = |of: &LabStages| Some(stack(of, of.traced.as_ref()?));
        let wanted = lab.stages.iter().filter(|of| of.is_round_trip == is_round_trip);
        wanted.filter_map(of).collect()
    };
    html! { @if !lab.stages.is_empty() {
        h3 { "Where the time goes" }
        p { "Each path has turns of its own that are traced, after those that are measured: tracing takes time itself, which is in these figures and in no others, and which turns without it between them tell. A stage is from its point to the next one that a packet passed; parts are of the mean over all packets, and add up to it." }
        @for (is_round_trip, title) in [(false, "Stages, one way"), (true, "Stages, there and back")] {
            @let stacks = stacks(is_round_trip);
            @if !stacks.is_empty() { (stacked::bars(title, "mean, by stages: shorter is better", &stacks, &legend(&stacks))) }
        }
        @for of in &lab.stages { (one(of)) }
    } }
}

fn legend(stacks: &[Stack]) -> Vec<(&'static str, &'static str)> {
    let is_there = |class: &str| {
        let mut parts = stacks.iter().flat_map(|stack| &stack.parts);
        parts.any(|part| part.class == class && part.ns > 0.0)
    };
    GROUPS.into_iter().filter(|(class, _)| is_there(class)).collect()
}

fn stack(of: &LabStages, traced: &TracedPath) -> Stack {
    let part = |stage: &StageResult| Part {
        name: stage_name(stage),
        ns: stage.part_ns,
        class: class(stage.stage),
    };
    Stack {
        name: name(of),
        parts: traced.stages.iter().map(part).collect(),
    }
}

fn one(of: &LabStages) -> Markup {
    html! {
        details {
            summary { (name(of)) ", " (direction(of)) }
            @match &of.traced {
                None => { p { (of.unavailable.as_deref().unwrap_or("nothing was traced")) } }
                Some(traced) => {
                    (stages::table(traced))
                    @if let Some(left_out) = left_out(of) { p { strong { "Left out: " } (left_out) "." } }
                    p { (compared(traced)) }
                    @if let Some(slow) = slow(of) { pre { (slow) } }
                    @if let Some(clock) = &of.clock { p { (clock_words(clock)) } }
                    @for hook in &of.missing { p { small { "Missing: " (hook.hook) " (" (hook.tells) "): " (hook.reason) "." } } }
                }
            }
        }
    }
}

/// What tracing makes of the median.
fn compared(traced: &TracedPath) -> String {
    match &traced.cost {
        Some(cost) => format!("What tracing costs: {}.", slowed_words(cost)),
        None => "What tracing costs was not measured.".to_owned(),
    }
}

/// How well the clock of a guest or another machine is known.
pub(super) fn clock_words(clock: &LabClock) -> String {
    let asked = clock.asked_uncertainty_ns.map_or_else(String::new, |ns| {
        format!(
            "; by questions over the control channel to ± {}",
            units::time(ns as f64)
        )
    });
    let jumps = match clock.contradiction_ns {
        0 => String::new(),
        ns => format!(
            "; it does not run evenly: bounds contradict each other by {}",
            units::time(ns as f64)
        ),
    };
    format!(
        "The other end's clock, by {} bounds of packets there and back: known to ± {}, {:+.1} ppm{asked}{jumps}. What one direction has too much of it,          the other has too little.",
        clock.bounds,
        units::time(clock.uncertainty_ns as f64),
        clock.rate_ppm
    )
}

pub(super) fn markdown(out: &mut String, lab: &LabResult) {
    for of in &lab.stages {
        if let Some(traced) = &of.traced {
            stages::markdown_of(out, traced, &format!("{}, {}", name(of), direction(of)));
        }
    }
}

/// Path and stage, figure, nanoseconds.
pub(super) fn figures(lab: &LabResult) -> Vec<(String, &'static str, f64)> {
    let of = |of: &LabStages| Some(stages::figures_of(of.traced.as_ref()?, &name(of)));
    lab.stages.iter().filter_map(of).flatten().collect()
}

#[cfg(test)]
#[path = "lab_stages_tests.rs"]
mod tests;
