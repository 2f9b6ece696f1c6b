//! Values of options: lists, counts, rates, times.

use std::time::Duration;

use ringside_measure::precision::UntilWidth;
use ringside_measure::units::number;
pub(crate) use ringside_measure::units::{budget, bytes_in, count, count_in, seconds};
pub(crate) use ringside_measure::units::{time_in, time_or};

/// Numbers such as `0,2-3`.
#[derive(Clone, Debug)]
pub(crate) struct List(pub(crate) Vec<u32>);

pub(crate) fn list(text: &str) -> Result<List, String> {
    let number = |part: &str| {
        part.trim()
            .parse::<u32>()
            .ok()
            .filter(|&number| number < 65536)
            .ok_or_else(|| format!("{part:?} is no number; write a list such as 0,2-3"))
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("{part:?} runs backwards"));
                }
                numbers.extend(first..=last);
            }
            None => numbers.push(number(part)?),
        }
    }
    Ok(List(numbers))
}

/// The same, or `none`, which is an empty one.
pub(crate) fn list_or_none(text: &str) -> Result<List, String> {
    match text {
        "none" => Ok(List(Vec::new())),
        _ => list(text),
    }
}

/// Packets per second. The limit is far above any link, and what the schedule can count.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    match number(text) {
        Some(0) => Err("0 sends nothing: give packets per second, or leave it out".into()),
        Some(rate) if rate <= 1_000_000_000_000 => Ok(rate),
        _ => Err(format!(
            "{text:?} is no rate; write whole packets per second, such as 100000, 100k or 2.5M, up to 1000G"
        )),
    }
}

/// The width of an interval, in percent of its median.
pub(crate) fn width(text: &str) -> Result<UntilWidth, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    let percent = number.map_err(|_| format!("{text:?} is no percentage; write one such as 1%"))?;
    UntilWidth::new(percent / 100.0).map_err(|error| error.to_string())
}

/// A time with its unit, from a microsecond to a minute.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(1)..=Duration::from_secs(60);
    time_in(&range, text)?.ok_or_else(|| format!("{text:?} is no cycle; it takes 1us to 60s"))
}

/// Whole microseconds, up to what the kernel's signed numbers hold, or a time with its unit.
pub(crate) fn micros(text: &str) -> Result<u32, String> {
    let range = Duration::ZERO..=Duration::from_secs(2000);
    time_or(Duration::from_micros(1), &range, text)
        .filter(|time| time.subsec_nanos() % 1000 == 0)
        .and_then(|time| u32::try_from(time.as_micros()).ok())
        .ok_or_else(|| {
            format!(
                "{text:?} is no time of whole microseconds; write some from 0 to 2000000000, \
                 such as 10, or 10us or 1ms"
            )
        })
}

/// As [`seconds`]. Each interval stays in memory until the result is written.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|interval| match interval < Duration::from_millis(10) {
        true => Err("an interval has at least 0.01 seconds".into()),
        false => Ok(interval),
    })
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
