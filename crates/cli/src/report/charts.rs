//! The plots of one result, or of several in one frame.

use maud::{Markup, html};
use ringside_measure::latency::Latency;

use super::entry::Entry;
use super::figure::{self, Axis, Line, Scale};

/// Points of a curve at the most: more than a screen shows.
const POINTS: usize = 400;

/// All plots that the entries have data for.
pub(super) fn of(entries: &[&Entry]) -> Markup {
    let times: Vec<(String, Latency)> = entries.iter().flat_map(|entry| entry.times()).collect();
    let rates = over_time(entries.iter().flat_map(|entry| entry.rates()));
    let medians = over_time(entries.iter().flat_map(|entry| entry.medians()));
    html! {
        div.plots {
            @if !times.is_empty() { (nines("Time over nines", &times)) (cumulative(&times)) }
            @if !rates.is_empty() {
                (figure::lines("Packets over time", &seconds(&rates), &Axis { label: "packets per second".to_owned(), scale: from_zero(&rates), write: figure::number }, &rates))
            }
            @if !medians.is_empty() {
                (figure::lines("Median time over time", &seconds(&medians), &Axis { label: "median".to_owned(), scale: from_zero(&medians), write: figure::time }, &medians))
            }
        }
    }
}

/// Lines of two points or more: of one there is nothing to see.
fn over_time(all: impl Iterator<Item = (String, Vec<(f64, f64)>)>) -> Vec<Line> {
    all.filter(|(_, points)| points.len() > 1)
        .map(|(name, points)| Line { name, points })
        .collect()
}

fn seconds(lines: &[Line]) -> Axis {
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    Axis {
        label: "seconds since the start".to_owned(),
        scale: Scale::from_zero(most),
        write: figure::number,
    }
}

fn from_zero(lines: &[Line]) -> Scale {
    Scale::from_zero(lines.iter().flat_map(|line| &line.points).map(|point| point.1))
}

/// Time by share of samples, with each nine as far from the next.
pub(super) fn nines(title: &str, times: &[(String, Latency)]) -> Markup {
    let lines: Vec<Line> = times
        .iter()
        .map(|(name, times)| Line {
            name: name.clone(),
            points: thinned(quantiles(times, true)),
        })
        .collect();
    let most = times
        .iter()
        .map(|(_, times)| figure::nines(1.0 - 1.0 / times.samples().max(10) as f64))
        .fold(1.0, f64::max);
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let y = Axis {
        label: "time".to_owned(),
        scale: Scale::log(values),
        write: figure::time,
    };
    let x = Axis {
        label: "share of the samples that took at most so long".to_owned(),
        scale: Scale::Nines { most },
        write: figure::percent,
    };
    figure::lines(title, &x, &y, &lines)
}

/// Share of samples by time.
fn cumulative(times: &[(String, Latency)]) -> Markup {
    let swapped = |points: Vec<(f64, f64)>| points.into_iter().map(|(share, ns)| (ns, share * 100.0)).collect();
    let lines: Vec<Line> = times
        .iter()
        .map(|(name, times)| Line {
            name: name.clone(),
            points: thinned(swapped(quantiles(times, false))),
        })
        .collect();
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let x = Axis {
        label: "time".to_owned(),
        scale: Scale::log(values),
        write: figure::time,
    };
    let y = Axis {
        label: "% of the samples".to_owned(),
        scale: Scale::Linear { low: 0.0, high: 100.0 },
        write: figure::number,
    };
    figure::lines("Share of samples by time", &x, &y, &lines)
}

/// (share of samples, time) at each bucket; `tail`: the last sample stands for its own share, not for all of them.
fn quantiles(times: &Latency, tail: bool) -> Vec<(f64, f64)> {
    let samples = times.samples() as f64;
    let last = if tail { 1.0 - 1.0 / samples } else { 1.0 };
    let mut until = 0;
    let mut points = Vec::new();
    for bucket in times.buckets() {
        let before = until as f64 / samples;
        until += bucket.samples;
        let ns = bucket.to_ns.max(1) as f64;
        points.push((before.min(last), ns));
        points.push(((until as f64 / samples).min(last), ns));
    }
    points
}

/// Each so many-th point, and the last ones, where each is far from the next.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (len, every) = (points.len(), points.len().div_ceil(POINTS).max(1));
    points
        .into_iter()
        .enumerate()
        .filter(|(index, _)| index % every == 0 || index + POINTS / 4 > len)
        .map(|(_, point)| point)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_through_the_samples() {
        let mut times = Latency::new();
        (1..=1_000).for_each(|ns| times.record(ns));
        let points = quantiles(&times, true);
        assert_eq!(points[0], (0.0, 1.0));
        let last = points.last().unwrap();
        assert!((last.0 - 0.999).abs() < 1e-9 && last.1 >= 1_000.0);
        assert!(
            points
                .windows(2)
                .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1)
        );
        let few = thinned(points.clone());
        assert!(few.len() < 600 && few.last() == points.last());
    }
}
