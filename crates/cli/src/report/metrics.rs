//! The figures that several results can be put side by side by.

use ringside_measure::latency::Summary;
use ringside_measure::schema::RunResult;

use super::{loaded, units};

/// A figure of a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) kind: Kind,
    /// More is better; `None`: neither.
    pub(super) more_is_better: Option<bool>,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    Packets,
    Ratio,
    PacketsPerSecond,
    BitsPerSecond,
    Nanoseconds,
    Percent,
}

impl Metric {
    pub(super) fn new(name: impl Into<String>, value: f64, kind: Kind) -> Self {
        let more_is_better = match kind {
            Kind::Count | Kind::Packets | Kind::Ratio => None,
            Kind::PacketsPerSecond | Kind::BitsPerSecond => Some(true),
            Kind::Nanoseconds | Kind::Percent => Some(false),
        };
        Self {
            name: name.into(),
            value,
            kind,
            more_is_better,
        }
    }

    /// With its unit.
    pub(super) fn written(&self) -> String {
        match self.kind {
            Kind::Count | Kind::Packets => crate::output::count(self.value),
            Kind::Ratio => units::digits(self.value),
            Kind::PacketsPerSecond => format!("{}/s", units::short(self.value)),
            Kind::BitsPerSecond => {
                let text = units::short(self.value);
                if text.contains(' ') {
                    format!("{text}bit/s")
                } else {
                    format!("{text} bit/s")
                }
            }
            Kind::Nanoseconds => units::time(self.value),
            Kind::Percent if self.value > 0.0 && self.value < 0.01 => "<0.01 %".to_owned(),
            Kind::Percent => format!("{} %", units::digits(self.value)),
        }
    }
}

/// Returns a number of packets in percent of those of `all`.
#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn percent(packets: u64, all: u64) -> f64 {
    packets as f64 * 100.0 / all.max(1) as f64
}

/// Those of a run, in the order in which people ask for them.
#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn of_run(run: &RunResult) -> Vec<Metric> {
    let mut all = Vec::new();
    for (rates, names) in [
        (
            &run.received,
            ["received", "received, on the wire", "received, payload"],
        ),
        (&run.transmitted, ["sent", "sent, on the wire", "sent, payload"]),
    ] {
        if let Some(rates) = rates.filter(|rates| rates.packets_pps > 0.0) {
            all.push(Metric::new(names[0], rates.packets_pps, Kind::PacketsPerSecond));
            all.push(Metric::new(names[1], rates.wire_bps, Kind::BitsPerSecond));
            all.push(Metric::new(names[2], rates.payload_bps, Kind::BitsPerSecond));
        }
    }
    let packets = &run.packets;
    if packets.sent > 0 {
        let lost = packets.sent.saturating_sub(packets.delivered());
        all.push(Metric::new("lost", percent(lost, packets.sent), Kind::Percent));
    }
    if packets.generated > 0 && run.target_pps.is_some() {
        let not_sent = percent(packets.not_sent(), packets.generated);
        all.push(Metric::new("not sent", not_sent, Kind::Percent));
    }
    if let Some(under_load) = &run.under_load {
        all.extend(loaded::metrics(under_load));
    } else if let Some(latency) = &run.latency {
        all.extend(latency.raw.iter().flat_map(|times| of_times("RTT", times)));
        if let Some(ns) = latency.corrected.and_then(|times| times.p99_ns) {
            all.push(Metric::new(
                "RTT p99, from the intended sending",
                ns as f64,
                Kind::Nanoseconds,
            ));
        }
        if let Some(jitter) = latency.jitter {
            all.push(Metric::new(
                "jitter (RFC 3550)",
                jitter.rfc3550_smoothed_ns,
                Kind::Nanoseconds,
            ));
        }
    }
    if let Some(cycle) = &run.cycle {
        let missed = cycle.late_cycles + cycle.skipped_cycles;
        if cycle.due_cycles > 0 {
            all.push(Metric::new(
                "deadlines missed",
                missed as f64 * 100.0 / cycle.due_cycles as f64,
                Kind::Percent,
            ));
        }
        all.extend(cycle.transmit.iter().flat_map(|times| of_times("late", times)));
    }
    if !run.cpus.is_empty() {
        let busy = run
            .cpus
            .iter()
            .map(|cpu| cpu.user_percent + cpu.system_percent + cpu.softirq_percent)
            .sum();
        all.push(Metric::new("CPU, of one", busy, Kind::Percent));
    }
    all
}

/// The figures of a distribution, such as `RTT p99`.
pub(super) fn of_times<'t>(prefix: &'t str, times: &Summary) -> impl Iterator<Item = Metric> + use<'t> {
    let named =
        move |(name, ns): (&str, Option<f64>)| Some(Metric::new(format!("{prefix} {name}"), ns?, Kind::Nanoseconds));
    let [min, mean, p50, p90, p99, p99_9, max] = times.figures();
    let [p99_99, p99_999] = times.tail();
    [min, mean, p50, p90, p99, p99_9, p99_99, p99_999, max]
        .into_iter()
        .filter_map(named)
}

/// How much more or less, in percent of the first: `+12 %`, `−3.1 %`, and whether that is better. `None` where there is no such thing.
pub(super) fn difference(first: &Metric, other: &Metric) -> Option<(String, Option<bool>)> {
    if first.value == 0.0 || other.value == first.value {
        return None;
    }
    let percent = (other.value / first.value - 1.0) * 100.0;
    let sign = if percent < 0.0 { "−" } else { "+" };
    let better = first.more_is_better.map(|more| more == (percent > 0.0));
    Some((format!("{sign}{} %", units::digits(percent.abs())), better))
}

#[cfg(test)]
mod tests {
    use ringside_measure::schema::Operation;

    use super::*;

    #[test]
    fn figures_have_their_units() {
        let written = |value, kind| Metric::new("", value, kind).written();
        assert_eq!(written(5_240_000.0, Kind::PacketsPerSecond), "5.24 M/s");
        assert_eq!(written(3.44e9, Kind::BitsPerSecond), "3.44 Gbit/s");
        assert_eq!(written(12.0, Kind::BitsPerSecond), "12.0 bit/s");
        assert_eq!(written(4_230.0, Kind::Nanoseconds), "4.23 µs");
        assert_eq!(written(0.0004, Kind::Percent), "<0.01 %");
        assert_eq!(written(0.0, Kind::Percent), "0 %");
        assert_eq!(written(1_234_567.0, Kind::Count), "1,234,567");
    }

    #[test]
    fn packets_that_were_not_sent_are_not_lost() {
        let of = |name: &str, target_pps| {
            let mut run = RunResult::new(Operation::Tx);
            (run.packets.generated, run.packets.sent) = (1_000, 900);
            run.packets.transmitted = Some(891);
            run.target_pps = target_pps;
            let metrics = of_run(&run);
            let found = metrics.iter().find(|metric| metric.name == name);
            found.map(|metric| metric.value)
        };
        assert_eq!(of("lost", Some(1e3)), Some(1.0));
        assert_eq!(of("not sent", Some(1e3)), Some(10.0));
        assert_eq!(of("not sent", None), None);
    }

    #[test]
    fn differences_say_what_is_better() {
        let rate = |value| Metric::new("", value, Kind::PacketsPerSecond);
        let time = |value| Metric::new("", value, Kind::Nanoseconds);
        assert_eq!(
            difference(&rate(100.0), &rate(112.0)),
            Some(("+12.0 %".to_owned(), Some(true)))
        );
        assert_eq!(
            difference(&time(100.0), &time(112.0)),
            Some(("+12.0 %".to_owned(), Some(false)))
        );
        assert_eq!(
            difference(&time(100.0), &time(50.0)),
            Some(("−50.0 %".to_owned(), Some(true)))
        );
        assert_eq!(difference(&rate(0.0), &rate(1.0)), None);
        assert_eq!(difference(&rate(1.0), &rate(1.0)), None);
    }
}
