//! From readings to the result's tables.

use ringside_measure::compare::{Ratio, Round, STEAL_LIMIT, figure, noise_floor, ratio};
use ringside_measure::latency::Summary;
use ringside_measure::rate::wire_bits;
use ringside_measure::schema::{AaRatio, CompareResult, LoadedVariant, Table, UntilCi, Variant};
use ringside_nic::host::CpuTime;

use super::options::Args;
use super::series::{Contest, Series};
use super::slot::Reading;
use super::variant::Operation;
use crate::report::units::plural;
use crate::session::nanos;

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 42;

/// The result of a run of `rounds`.
pub(super) fn result(args: &Args, rounds: u32, reached: bool, contests: Vec<Contest>) -> CompareResult {
    let until_ci = args.until_ci.as_ref().map(|until| {
        let widest = widest(&contests);
        let (of, width) = widest.unwrap_or_else(|| ("no ratio".into(), None));
        UntilCi::of(until.width(), reached, of, width)
    });
    CompareResult {
        until_ci,
        rounds,
        round_duration_ns: nanos(args.bench.slot),
        steal_limit_percent: STEAL_LIMIT * 100.0,
        cpu_wait_percent: cpu_wait_percent(readings(&contests)),
        turns_repeated: contests
            .iter()
            .flat_map(|contest| &contest.series)
            .map(|series| series.repeats)
            .sum(),
        tables: contests.iter().map(table).collect(),
    }
}

/// The ratio that is known least: of what it is, and how wide its interval is in proportion to it. Where one has no interval, it is
/// that. `None` where there is nothing to compare.
pub(super) fn widest(contests: &[Contest]) -> Option<(String, Option<f64>)> {
    let ratios = contests.iter().flat_map(|contest| {
        let base = base(contest);
        contest
            .series
            .iter()
            .filter(|series| !series.is_given_up())
            .filter_map(move |series| {
                let with = if series.again { first_of(contest, series) } else { base };
                let with = with.filter(|with| !std::ptr::eq(*with, series))?;
                let width = paired(contest.operation, with, series).and_then(|ratio| ratio.width());
                let what = format!("{} {} {}", contest.operation, contest.frame_bytes, series.kind);
                Some((what, width))
            })
    });
    // None is the widest of all.
    let reach = |width: Option<f64>| width.unwrap_or(f64::INFINITY);
    ratios.max_by(|a, b| reach(a.1).total_cmp(&reach(b.1)))
}

/// The one that the second of its kind is compared with.
fn first_of<'c>(contest: &'c Contest, again: &Series) -> Option<&'c Series> {
    contest.variants().find(|series| series.kind == again.kind)
}

/// Each variant in proportion to itself.
fn aa(contest: &Contest) -> Vec<AaRatio> {
    let seconds = contest.series.iter().filter(|series| series.again);
    seconds
        .map(|again| AaRatio {
            name: again.kind.to_string(),
            ratio: first_of(contest, again).and_then(|first| paired(contest.operation, first, again)),
            rounds: rounds(again, |reading| figure_of(contest.operation, reading)),
        })
        .collect()
}

fn readings(contests: &[Contest]) -> impl Iterator<Item = &Reading> {
    let series = contests.iter().flat_map(|contest| &contest.series);
    let readings = series.flat_map(|series| &series.readings);
    readings.map(|(_, reading)| reading)
}

/// Returns for how long the thread that waited most had no CPU, in percent of a turn: the median of
/// the turns that count.
pub(crate) fn cpu_wait_percent<'r>(turns: impl IntoIterator<Item = &'r Reading>) -> Option<f64> {
    median_percent(turns.into_iter().map(|turn| round(turn, turn.waiting)))
}

/// As [`cpu_wait_percent`], of a server's threads.
pub(super) fn far_cpu_wait_percent(contests: &[Contest]) -> Option<f64> {
    median_percent(readings(contests).filter_map(|turn| Some(round(turn, turn.far_waiting?))))
}

fn median_percent(shares: impl Iterator<Item = Round>) -> Option<f64> {
    Some(figure(&shares.collect::<Vec<_>>()).ok()?.median * 100.0)
}

fn table(contest: &Contest) -> Table {
    let frame_bytes = u64::from(contest.frame_bytes);
    let payload_bytes = frame_bytes - HEADERS;
    let base = base(contest);
    let aa = aa(contest);
    let variants = contest.variants().map(|series| {
        let mut variant = variant(contest.operation, series, frame_bytes, payload_bytes);
        let is_base = base.is_some_and(|base| base.kind == series.kind);
        variant.ratio_to_base = base
            .filter(|_| !is_base)
            .and_then(|base| paired(contest.operation, base, series));
        variant
    });
    Table {
        operation: contest.operation.schema(),
        frame_bytes,
        payload_bytes,
        load: load(contest),
        base: base.map(|base| base.kind.to_string()).unwrap_or_default(),
        ratio_of: match contest.operation {
            Operation::Ping => "rtt_p50_ns".into(),
            _ => "packets_pps".into(),
        },
        noise_floor_percent: noise_floor(&aa.iter().filter_map(|aa| aa.ratio).collect::<Vec<_>>())
            .map(|floor| floor * 100.0),
        variants: variants.collect(),
        under_load: contest.loaded().map(|series| loaded(contest, series)).collect(),
        aa,
    }
}

/// A variant under load, beside the same without.
fn loaded(contest: &Contest, series: &Series) -> LoadedVariant {
    let idle = contest.variants().find(|idle| idle.kind == series.kind);
    let of = |value: &dyn Fn(&Reading) -> Option<f64>| figure(&rounds(series, value)).ok();
    let rtt =
        |value: fn(&Summary) -> Option<u64>| of(&|reading| reading.rtt.as_ref().and_then(value).map(|ns| ns as f64));
    let p50 = rtt(|rtt| rtt.p50_ns);
    LoadedVariant {
        name: series.kind.to_string(),
        kind: series.under.kind,
        load_pps: series.under.rate as f64,
        failure: p50
            .is_none()
            .then(|| series.failure.clone().unwrap_or_else(|| "it gave no figure".into())),
        loss_percent: of(&|reading| reading.loss.map(|loss| loss * 100.0)),
        rtt_p50_ns: p50,
        rtt_p99_ns: rtt(|rtt| rtt.p99_ns),
        rtt_max_ns: rtt(|rtt| Some(rtt.max_ns)),
        round_trips_per_minute: of(&|reading| Some(reading.responsiveness?.round_trips_per_minute)),
        ratio_to_idle: idle.and_then(|idle| paired(contest.operation, idle, series)),
        rounds: rounds(series, |reading| figure_of(contest.operation, reading)),
    }
}

/// What the others are measured against: the best that plain UDP does here. Where there is none, the first that works.
fn base(contest: &Contest) -> Option<&Series> {
    let figure_of = |series: &Series| {
        let rounds = rounds(series, |reading| figure_of(contest.operation, reading));
        figure(&rounds).ok().map(|figure| figure.median)
    };
    let working = contest
        .variants()
        .filter_map(|series| Some((series, figure_of(series)?)));
    let udp = working.clone().filter(|(series, _)| series.kind.is_plain_udp());
    let best = match contest.operation {
        Operation::Ping => udp.min_by(|(_, a), (_, b)| a.total_cmp(b)),
        Operation::Rx | Operation::Tx | Operation::Fwd => udp.max_by(|(_, a), (_, b)| a.total_cmp(b)),
    };
    best.or_else(|| working.clone().next()).map(|(series, _)| series)
}

fn load(contest: &Contest) -> String {
    match contest.operation {
        Operation::Ping => "one packet under way at a time".into(),
        Operation::Tx => "each variant sends as fast as it can".into(),
        Operation::Rx | Operation::Fwd => {
            let readings = contest.series.iter().flat_map(|series| &series.readings);
            let rounds: Vec<Round> = readings
                .filter_map(|(_, reading)| Some(round(reading, reading.offered_pps?)))
                .collect();
            match figure(&rounds) {
                // On a veth its CPU also does the receiver's softirq, so that each variant leaves it another rate.
                Ok(offered) => format!(
                    "in-kernel generator (live frames), {:.2} to {:.2} M packets/s offered",
                    offered.min / 1e6,
                    offered.max / 1e6
                ),
                Err(_) => "in-kernel generator (live frames)".into(),
            }
        }
    }
}

fn variant(operation: Operation, series: &Series, frame_bytes: u64, payload_bytes: u64) -> Variant {
    let of = |value: &dyn Fn(&Reading) -> Option<f64>| figure(&rounds(series, value)).ok();
    let rtt =
        |value: fn(&Summary) -> Option<u64>| of(&|reading| reading.rtt.as_ref().and_then(value).map(|ns| ns as f64));
    let packets = of(&|reading| Some(reading.pps));
    let bits = |per_packet: u64| of(&|reading| Some(reading.pps * per_packet as f64));
    let cpu = |ticks: fn(&CpuTime) -> u64| of(&|reading| cpu(reading, ticks));
    let failed = series.failures();
    let turns = series.readings.len();
    let mut set_up = series.kind.set_up(operation).to_owned();
    if turns != 0 && failed != 0 {
        set_up.push_str(&format!(
            " ({failed} of {} failed: {})",
            plural(turns as u64 + u64::from(failed), "turn"),
            series.failure.as_deref().unwrap_or_default()
        ));
    }
    Variant {
        name: series.kind.to_string(),
        set_up,
        mode: series.kind.mode(),
        failure: match turns {
            0 => Some(series.failure.clone().unwrap_or_else(|| "it had no turn".into())),
            _ => None,
        },
        packets_pps: packets,
        wire_bps: bits(wire_bits(frame_bytes)),
        payload_bps: bits(payload_bytes * 8),
        loss_percent: of(&|reading| reading.loss.map(|loss| loss * 100.0)),
        cpu_user_percent: cpu(|time| time.user + time.nice),
        cpu_system_percent: cpu(|time| time.system),
        cpu_softirq_percent: cpu(|time| time.softirq + time.irq),
        cpu_busy_percent: cpu(CpuTime::busy),
        rtt_min_ns: rtt(|rtt| Some(rtt.min_ns)),
        rtt_mean_ns: of(&|reading| reading.rtt.map(|rtt| rtt.mean_ns)),
        rtt_p50_ns: rtt(|rtt| rtt.p50_ns),
        rtt_p90_ns: rtt(|rtt| rtt.p90_ns),
        rtt_p99_ns: rtt(|rtt| rtt.p99_ns),
        rtt_p99_9_ns: rtt(|rtt| rtt.p99_9_ns),
        rtt_max_ns: rtt(|rtt| Some(rtt.max_ns)),
        round_trips_per_minute: of(&|reading| Some(reading.responsiveness?.round_trips_per_minute)),
        ratio_to_base: None,
        rounds: rounds(series, |reading| figure_of(operation, reading)),
    }
}

/// What ratios are about.
fn figure_of(operation: Operation, reading: &Reading) -> Option<f64> {
    match operation {
        Operation::Ping => reading.rtt?.p50_ns.map(|ns| ns as f64),
        _ => Some(reading.pps),
    }
}

/// A variant in proportion to the base, over the rounds that both have.
fn paired(operation: Operation, base: &Series, series: &Series) -> Option<Ratio> {
    let pairs = series.readings.iter().filter_map(|(number, reading)| {
        let (_, other) = base.readings.iter().find(|(round, _)| round == number)?;
        Some((
            round(other, figure_of(operation, other)?),
            round(reading, figure_of(operation, reading)?),
        ))
    });
    let (base, variant): (Vec<_>, Vec<_>) = pairs.unzip();
    ratio(&base, &variant).ok()
}

/// What part of a turn the sender's and the receiver's CPU did one thing, together, in percent of one CPU. The kernel tells
/// it in ticks, of which a turn has few: the legend says in which steps.
fn cpu(reading: &Reading, ticks: fn(&CpuTime) -> u64) -> Option<f64> {
    let [sender, receiver] = reading.cpus;
    Some((sender.fraction(ticks(&sender))? + receiver.fraction(ticks(&receiver))?) * 100.0)
}

/// Time that the sender's and the receiver's CPU were busy, together, in nanoseconds of each second.
pub(crate) fn cpu_busy(reading: &Reading) -> Option<f64> {
    Some(cpu(reading, CpuTime::busy)? * 1e7)
}

/// A value of each reading that has it.
fn rounds(series: &Series, value: impl Fn(&Reading) -> Option<f64>) -> Vec<Round> {
    let readings = series.readings.iter();
    readings
        .filter_map(|(_, reading)| Some(round(reading, value(reading)?)))
        .collect()
}

fn round(reading: &Reading, value: f64) -> Round {
    Round {
        value,
        steal: reading.steal,
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
