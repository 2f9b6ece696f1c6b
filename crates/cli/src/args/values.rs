//! Values of options: lists, counts, rates, times.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use ringside_measure::precision::UntilWidth;
use ringside_measure::schedule::unit_ns;

/// Times that an option takes.
type Range = RangeInclusive<Duration>;

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

/// A whole number, or one with `k`, `M` or `G` behind it: thousands, millions, billions. None if it
/// is none.
fn number(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let tens = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    // A part of one, as in 1.0005k, is no number of packets.
    let part = (fraction.is_empty())
        .then_some(0)
        .or_else(|| fraction.parse::<u64>().ok())?;
    if part.checked_mul(scale)? % tens != 0 {
        return None;
    }
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(scale)?
        .checked_add(part * scale / tens)
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

/// A number of packets or samples, at least one.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    number(text)
        .filter(|&count| count != 0)
        .ok_or_else(|| format!("{text:?} is no number from 1 on; write one such as 1000, 10k or 2M"))
}

/// Returns a parser of counts of a range, both ends included.
pub(crate) fn count_in<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: TryFrom<u64> + PartialOrd + Display + Clone,
{
    move |text| {
        number(text)
            .and_then(|number| N::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                format!(
                    "{text:?} is no number from {least} to {most}; write one such as 1000, 10k \
                     or 2M"
                )
            })
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

/// A time with its unit, such as `1ms`; `None` if it is none of the range.
pub(crate) fn time_in(range: &Range, text: &str) -> Result<Option<Duration>, String> {
    let at = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let wrong = || format!("{text:?} is no time with a unit; write 250us, 1ms, 0.5s, 10min or 1h");
    let ns = match unit {
        "m" | "min" => 60e9,
        "h" => 3600e9,
        unit => unit_ns(unit).ok_or_else(wrong)?,
    };
    let time = number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * ns / 1e9).ok());
    Ok(time.filter(|time| range.contains(time)))
}

/// A time of a range: a plain number of this unit, or a time with its own; `None` if it is neither.
pub(crate) fn time_or(unit: Duration, range: &Range, text: &str) -> Option<Duration> {
    let time = match text.parse::<f64>() {
        Ok(number) => Duration::try_from_secs_f64(number * unit.as_secs_f64()).ok(),
        Err(_) => time_in(range, text).ok().flatten(),
    };
    time.filter(|time| range.contains(time))
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

/// Seconds, with a fraction, or a time with a unit, above zero.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match budget(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(format!(
            "{text:?} is no time; write seconds above 0, such as 10 or 0.5, or 500ms, 10s, 2min"
        )),
    }
}

/// As [`seconds`], or 0: the shortest measurement that there is.
pub(crate) fn budget(text: &str) -> Result<Duration, String> {
    let range = Duration::ZERO..=Duration::from_secs(366 * 86_400);
    time_or(Duration::from_secs(1), &range, text)
        .ok_or_else(|| format!("{text:?} is no time; write seconds, such as 0.5, or 500ms, 2min"))
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
