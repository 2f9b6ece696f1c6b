//! Numbers, counts and times as people write them: with units.
//!
//! Each function parses the value of an option and returns what is wrong with it for people.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::schedule::unit_ns;

/// Times that an option takes.
type Range = RangeInclusive<Duration>;

/// Returns a whole number, or one with `k`, `M` or `G` behind it: thousands, millions, billions.
/// None if it is none.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
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

/// Returns a number from 1 on.
///
/// # Errors
/// Returns a message for the user.
pub fn count(text: &str) -> Result<u64, String> {
    number(text)
        .filter(|&count| count != 0)
        .ok_or_else(|| format!("{text:?} is no number from 1 on; write one such as 1000, 10k or 2M"))
}

/// Returns a parser of counts of a range, both ends included. It says what is wrong with a text.
pub fn count_in<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: TryFrom<u64> + PartialOrd + Display + Clone,
{
    number_in(range, "number from", "1000, 10k or 2M")
}

/// Returns a parser of bytes of a range, both ends included: `64`, or `1.5k`, which is 1500.
pub fn bytes_in<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: TryFrom<u64> + PartialOrd + Display + Clone,
{
    number_in(range, "number of bytes from", "64, 1k or 1.5k (k is 1000)")
}

fn number_in<N>(
    range: RangeInclusive<N>,
    what: &'static str,
    examples: &'static str,
) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: TryFrom<u64> + PartialOrd + Display + Clone,
{
    move |text| {
        number(text)
            .and_then(|number| N::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                format!("{text:?} is no {what} {least} to {most}; write one such as {examples}")
            })
    }
}

/// Returns a time with its unit, such as `1ms`; `None` if it is none of the range.
///
/// # Errors
/// Returns a message for the user.
pub fn time_in(range: &Range, text: &str) -> Result<Option<Duration>, String> {
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

/// Returns a time of a range: a plain number of this unit, or a time with its own; `None` if it is
/// neither.
#[must_use]
pub fn time_or(unit: Duration, range: &Range, text: &str) -> Option<Duration> {
    let time = match text.parse::<f64>() {
        Ok(number) => Duration::try_from_secs_f64(number * unit.as_secs_f64()).ok(),
        Err(_) => time_in(range, text).ok().flatten(),
    };
    time.filter(|time| range.contains(time))
}

/// Parses seconds, with a fraction, or a time with a unit, above zero.
///
/// # Errors
/// Returns a message for the user.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match budget(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(format!(
            "{text:?} is no time; write seconds above 0, such as 10 or 0.5, or 500ms, 10s, 2min"
        )),
    }
}

/// Parses a time as [`seconds`] does, and also takes 0.
///
/// # Errors
/// Returns a message for the user.
pub fn budget(text: &str) -> Result<Duration, String> {
    let range = Duration::ZERO..=Duration::from_secs(366 * 86_400);
    time_or(Duration::from_secs(1), &range, text)
        .ok_or_else(|| format!("{text:?} is no time; write seconds, such as 0.5, or 500ms, 2min"))
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
