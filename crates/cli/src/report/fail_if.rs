//! `ringside report --fail-if`: conditions on figures of results, for scripts and CI.

use std::str::FromStr;

use anyhow::Result;
use ringside_measure::schedule::unit_ns;

use super::entry::{Content, Entry};
use super::figures;
use super::metrics::{self, Kind, Metric};
use crate::args::bad_value;
use crate::validity;

/// Exit status if a condition holds.
const HOLDS: u8 = 3;
/// Exit status if no condition holds and one cannot be judged.
const UNDECIDED: u8 = 4;

/// A condition such as `rtt.p99>+10%`.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    /// As it was written.
    text: String,
    /// Name of the figures as [`name_of`] makes it; `*` stands for any text.
    name: String,
    operator: Operator,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Absolute(f64, Unit),
    /// Difference to the baseline's figure, in percent of that.
    Relative(f64),
}

/// Unit of an absolute bound, as it was written. Times are converted to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Nanoseconds,
    Percent,
    PacketsPerSecond,
    BitsPerSecond,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write a figure, <, <=, > or >=, and a bound, \
                       such as rtt.p99>+10%, rtt.p99>50us or lost>0.1%";
        let at = text
            .find(['<', '>'])
            .ok_or_else(|| format!("{text:?} compares nothing: {example}"))?;
        let (name, rest) = text.split_at(at);
        let (operator, bound) = match rest.strip_prefix(">=").or_else(|| rest.strip_prefix("<=")) {
            Some(bound) if rest.starts_with('>') => (Operator::AtLeast, bound),
            Some(bound) => (Operator::AtMost, bound),
            None if rest.starts_with('>') => (Operator::Above, &rest[1..]),
            None => (Operator::Below, &rest[1..]),
        };
        let name = name_of(name);
        if name.is_empty() {
            return Err(format!("{text:?} names no figure: {example}"));
        }
        let none = || format!("{bound:?} is no bound: {example}");
        let bound = Bound::read(bound.trim()).ok_or_else(none)?;
        Ok(Self {
            text: text.to_owned(),
            name,
            operator,
            bound,
        })
    }
}

impl Bound {
    /// Reads a bound: `50us`, `0.1%`, `1.5M/s`; with a sign and a percent sign a difference.
    fn read(text: &str) -> Option<Self> {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let (sign, unsigned) = match text.strip_prefix('+') {
            Some(rest) => (Some(1.0), rest),
            None => text.strip_prefix('-').map_or((None, text), |rest| (Some(-1.0), rest)),
        };
        let end = unsigned.find(|letter| !is_number(letter)).unwrap_or(unsigned.len());
        let (number, unit) = unsigned.split_at(end);
        let (number, unit) = (number.parse::<f64>().ok()?, unit.trim());
        if let Some(sign) = sign {
            return (unit == "%").then_some(Self::Relative(sign * number));
        }
        let (scale, unit) = match (unit, unit_ns(unit)) {
            ("%", _) => (1.0, Unit::Percent),
            (_, Some(ns)) => (ns, Unit::Nanoseconds),
            (rate, None) => {
                let (scale, rate) = match rate.chars().next() {
                    Some('k') => (1e3, &rate[1..]),
                    Some('M') => (1e6, &rate[1..]),
                    Some('G') => (1e9, &rate[1..]),
                    _ => (1.0, rate),
                };
                match rate {
                    "" => (scale, Unit::None),
                    "/s" | "pps" => (scale, Unit::PacketsPerSecond),
                    "bit/s" => (scale, Unit::BitsPerSecond),
                    _ => return None,
                }
            }
        };
        Some(Self::Absolute(number * scale, unit))
    }
}

/// Returns the name of a figure for conditions: that of the CSV in small letters, with a dot for
/// each run of other characters than letters, digits, `-` and `_`.
fn name_of(figure: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_*.".contains(letter);
    let parts = figure.split(|letter| !is_part(letter)).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect::<Vec<_>>().join(".")
}

/// Returns whether a name is one of those that a pattern with `*` stands for.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(start) else {
        return false;
    };
    (0..=name.len())
        .filter(|at| name.is_char_boundary(*at))
        .any(|at| matches(rest, &name[at..]))
}

/// A result with all its figures.
struct Judged<'e> {
    name: &'e str,
    figures: Vec<(String, Metric)>,
    /// Why its figures cannot be trusted.
    trouble: Option<String>,
}

impl<'e> Judged<'e> {
    fn of(entry: &'e Entry) -> Self {
        let figures = figures::of(entry).into_iter();
        Self {
            name: &entry.name,
            figures: figures.map(|figure| (name_of(&figure.name), figure)).collect(),
            trouble: match &entry.content {
                Content::Ours(document) => validity::trouble(document),
                Content::Foreign(_) => None,
            },
        }
    }

    fn figure(&self, name: &str) -> Option<&Metric> {
        self.figures
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, figure)| figure)
    }
}

/// What came of all conditions.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// A sentence for each figure beyond its bound, for what cannot be judged, and for each
    /// condition that does not hold.
    pub(super) sentences: Vec<String>,
    holds: bool,
    is_undecided: bool,
}

impl Verdict {
    /// Returns the exit status.
    pub(super) fn exit_status(&self) -> u8 {
        match (self.holds, self.is_undecided) {
            (true, _) => HOLDS,
            (false, true) => UNDECIDED,
            (false, false) => 0,
        }
    }
}

/// Judges results by conditions. With a relative bound among them the first result is the baseline,
/// and only the others are judged. Figures of results that are marked invalid are not judged,
/// unless `allow_invalid` is set.
///
/// # Errors
/// For a figure that no result has, a bound with a unit that is not the figure's, and a relative
/// one without a baseline.
pub(super) fn judge(conditions: &[Condition], entries: &[Entry], allow_invalid: bool) -> Result<Verdict> {
    let all: Vec<Judged> = entries.iter().map(Judged::of).collect();
    let relative = conditions.iter().find(|one| matches!(one.bound, Bound::Relative(_)));
    let (baseline, judged) = match (relative, all.as_slice()) {
        (None, all) => (None, all),
        (Some(_), [baseline, judged @ ..]) if !judged.is_empty() => (Some(baseline), judged),
        (Some(condition), _) => bad_value!(
            "--fail-if {}: a bound with a sign compares with a baseline: give two results, \
             the baseline first",
            condition.text
        ),
    };
    let mut verdict = Verdict::default();
    for condition in conditions {
        let names = condition.names(&all)?;
        for one in judged {
            condition.judge(&names, one, baseline, allow_invalid, &mut verdict);
        }
    }
    Ok(verdict)
}

impl Condition {
    /// Returns the names of the figures that it is about.
    fn names<'a>(&self, all: &'a [Judged<'_>]) -> Result<Vec<&'a str>> {
        let mut known: Vec<(&str, Kind)> = Vec::new();
        for (name, figure) in all.iter().flat_map(|one| &one.figures) {
            if known.iter().all(|(other, _)| other != name) {
                known.push((name, figure.kind));
            }
        }
        let wanted: Vec<(&str, Kind)> = known
            .iter()
            .copied()
            .filter(|(name, _)| matches(&self.name, name))
            .collect();
        if wanted.is_empty() {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let names = match names.as_slice() {
                [] => "these results have none".to_owned(),
                names => format!("those of these results are {}", names.join(", ")),
            };
            bad_value!("--fail-if {}: no figure is called {}; {names}", self.text, self.name);
        }
        if let Bound::Absolute(_, unit) = self.bound
            && let Some((name, takes)) = wanted
                .iter()
                .find_map(|(name, kind)| Some((name, takes(*kind, unit).err()?)))
        {
            bad_value!("--fail-if {}: a bound of {name} takes {takes}", self.text);
        }
        Ok(wanted.into_iter().map(|(name, _)| name).collect())
    }

    /// Judges a result by it.
    fn judge(
        &self,
        names: &[&str],
        result: &Judged<'_>,
        baseline: Option<&Judged<'_>>,
        allow_invalid: bool,
        verdict: &mut Verdict,
    ) {
        let baseline = baseline.filter(|_| matches!(self.bound, Bound::Relative(_)));
        let start = format!("--fail-if {}: {}", self.text, result.name);
        let parties = || std::iter::once(result).chain(baseline);
        let invalid = parties().find_map(|one| Some((one.name, one.trouble.as_ref()?)));
        if let Some((name, trouble)) = invalid.filter(|_| !allow_invalid) {
            verdict.is_undecided = true;
            verdict
                .sentences
                .push(format!("{start}: not judged: {name} is INVALID: {trouble}"));
            return;
        }
        let mut within = Vec::new();
        for name in names {
            if let Some(without) = parties().find(|one| one.figure(name).is_none()) {
                verdict.is_undecided = true;
                verdict
                    .sentences
                    .push(format!("{start}: not judged: {} has no {name}", without.name));
                continue;
            }
            let Some(figure) = result.figure(name) else { continue };
            let base = baseline.and_then(|baseline| baseline.figure(name));
            let written = written(figure, base);
            match self.holds(figure.value, base.map(|base| base.value)) {
                true => {
                    verdict.holds = true;
                    verdict.sentences.push(format!("{start}: holds: {name} is {written}"));
                }
                false => within.push(format!("{name} is {written}")),
            }
        }
        match within.as_slice() {
            [] => {}
            [one] => verdict.sentences.push(format!("{start}: does not hold: {one}")),
            many => verdict
                .sentences
                .push(format!("{start}: does not hold for {} figures", many.len())),
        }
    }

    fn holds(&self, value: f64, base: Option<f64>) -> bool {
        let (value, bound) = match (self.bound, base) {
            (Bound::Absolute(bound, _), _) => (value, bound),
            (Bound::Relative(bound), Some(base)) => (change(base, value), bound),
            (Bound::Relative(_), None) => return false,
        };
        match self.operator {
            Operator::Above => value > bound,
            Operator::AtLeast => value >= bound,
            Operator::Below => value < bound,
            Operator::AtMost => value <= bound,
        }
    }
}

/// Returns the change in percent; infinite from zero to something.
fn change(base: f64, value: f64) -> f64 {
    match base {
        0.0 if value == 0.0 => 0.0,
        base => (value - base) / base.abs() * 100.0,
    }
}

/// Checks that a figure of this kind takes a bound with this unit. The error says what it takes.
fn takes(kind: Kind, unit: Unit) -> Result<(), &'static str> {
    let (fits, what) = match kind {
        Kind::Nanoseconds => (unit == Unit::Nanoseconds, "a time with its unit: ns, us, ms or s"),
        Kind::Percent => (matches!(unit, Unit::None | Unit::Percent), "a percentage such as 0.1%"),
        Kind::PacketsPerSecond => (
            matches!(unit, Unit::None | Unit::PacketsPerSecond),
            "packets per second such as 100000, 100k or 2.5M/s",
        ),
        Kind::BitsPerSecond => (
            matches!(unit, Unit::None | Unit::BitsPerSecond),
            "bits per second such as 500M or 2.5Gbit/s",
        ),
        Kind::Count | Kind::Packets | Kind::Ratio => (unit == Unit::None, "a number without a unit"),
    };
    if fits { Ok(()) } else { Err(what) }
}

/// `23.0 µs (+12.3 % of 20.5 µs)`
fn written(figure: &Metric, base: Option<&Metric>) -> String {
    let value = figure.written();
    match base.map(|base| (base, metrics::difference(base, figure))) {
        None => value,
        Some((base, Some((difference, _)))) => {
            format!("{value} ({difference} of {})", base.written())
        }
        Some((base, None)) if base.value == figure.value => format!("{value} (unchanged)"),
        Some((base, None)) => format!("{value} (from {})", base.written()),
    }
}

#[cfg(test)]
#[path = "fail_if_tests.rs"]
mod tests;
