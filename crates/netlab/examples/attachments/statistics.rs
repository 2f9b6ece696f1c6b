//! What came of it.

use crate::Line;
use crate::options::Options;
use crate::probe::Round;

/// The value below which this share of sorted ones lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, reason = "a share of a length")]
    let place = (last as f64 * share).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

pub(crate) fn print(paths: &[Line], options: &Options, accelerator: &str) {
    println!(
        "round trips in µs (guest on {accelerator}), {} rounds of {} probes every {} µs, {} TCP streams",
        options.rounds, options.probes, options.interval_us, options.load
    );
    println!(
        "{:<22} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7} {:>9} {:>7} {:>7}  median / that of the first way: median of rounds (quartiles)",
        "way", "min", "mean", "p50", "p99", "p99.9", "max", "stddev", "lost", "packets", "bytes/p", "Mbit/s"
    );
    for path in paths {
        let mut all: Vec<f64> = path
            .rounds
            .iter()
            .flat_map(|round| round.times.iter().copied())
            .collect();
        all.sort_by(f64::total_cmp);
        let count = all.len().max(1) as f64;
        let mean = all.iter().sum::<f64>() / count;
        let deviation = (all.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count).sqrt();
        let sum = |of: fn(&Round) -> u64| path.rounds.iter().map(of).sum::<u64>();
        let sent: u32 = path.rounds.iter().map(|round| round.sent).sum();
        let lost = f64::from(sent) - all.len() as f64;
        let (packets, bytes) = (sum(|round| round.packets), sum(|round| round.bytes));
        let rate = path.rounds.iter().map(|round| round.load_mbit).sum::<f64>() / path.rounds.len().max(1) as f64;
        let mut ratios: Vec<f64> = path
            .rounds
            .iter()
            .zip(&paths[0].rounds)
            .map(|(own, first)| quantile(&own.times, 0.5) / quantile(&first.times, 0.5))
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{:<22} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>6.0} {:>6.2}% {:>9} {:>7.0} {:>7.1}  {:.2} ({:.2} to {:.2})  (no room: {})",
            path.candidate.name,
            quantile(&all, 0.0),
            mean,
            quantile(&all, 0.5),
            quantile(&all, 0.99),
            quantile(&all, 0.999),
            quantile(&all, 1.0),
            deviation,
            100.0 * lost / f64::from(sent.max(1)),
            packets,
            bytes as f64 / packets.max(1) as f64,
            rate,
            quantile(&ratios, 0.5),
            quantile(&ratios, 0.25),
            quantile(&ratios, 0.75),
            sum(|round| round.dropped),
        );
        let mut seen = path.rounds.iter().filter_map(|round| round.ring.as_ref());
        let seconds: f64 = path.rounds.iter().map(|round| round.seconds).sum();
        if let Some(last) = seen.next_back() {
            let medians = path
                .rounds
                .iter()
                .filter_map(|round| Some(round.ring.as_ref()?.quantile(0.5) as f64));
            let mut medians: Vec<f64> = medians.collect();
            medians.sort_by(f64::total_cmp);
            let found: u64 = path
                .rounds
                .iter()
                .filter_map(|round| Some(round.ring.as_ref()?.full))
                .sum();
            let means: Vec<f64> = path
                .rounds
                .iter()
                .filter_map(|round| Some(round.ring.as_ref()?.mean()))
                .collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            let rate = packets as f64 / seconds;
            println!(
                "{:<22} a packet found {mean:.0} waiting (median {:.0}) of the {} that the ring has room for, {found} found it full; \
                 the guest took {rate:.0} a second, so these are {:.0} µs",
                "",
                quantile(&medians, 0.5),
                last.size,
                mean / rate * 1e6,
            );
        }
    }
}
