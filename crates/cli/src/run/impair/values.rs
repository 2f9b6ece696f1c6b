//! Values of the options of `ringside impair`.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use ringside_measure::impair::{Pick, Spread, Unit};

use crate::args::{count, count_in, time_in};

/// A direction, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Side {
    /// From the first interface to the second
    There,
    /// From the second interface to the first
    Back,
    /// Both
    Both,
}

impl Side {
    pub(super) fn has(self, way: Self) -> bool {
        self == Self::Both || self == way
    }
}

/// A value, for one direction or both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sided<T> {
    pub(super) side: Side,
    pub(super) value: T,
}

impl<T: FromStr<Err = String>> FromStr for Sided<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (side, value) = match text.split_once('=') {
            None => (Side::Both, text),
            Some(("there", value)) => (Side::There, value),
            Some(("back", value)) => (Side::Back, value),
            Some((other, _)) => return Err(format!("{other:?} is no direction; write there=… or back=…")),
        };
        Ok(Self {
            side,
            value: value.parse()?,
        })
    }
}

/// `--loss`, `--duplicate`, `--corrupt`
#[derive(Clone, Copy, Debug)]
pub(super) struct Packets(pub(super) Pick);

impl FromStr for Packets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_prefix("every:") {
            return count(number).map(|number| Self(Pick::Every(number)));
        }
        let Some(model) = text.strip_prefix("burst:") else {
            return share(text).map(|share| Self(Pick::Share(share)));
        };
        let shares = model.split(',').map(share).collect::<Result<Vec<f64>, String>>()?;
        let (enter, leave, bad, good) = match shares[..] {
            [enter, leave] => (enter, leave, 1.0, 0.0),
            [enter, leave, bad] => (enter, leave, bad, 0.0),
            [enter, leave, bad, good] => (enter, leave, bad, good),
            _ => {
                return Err(format!(
                    "{text:?}: bursts take two to four percentages, such as burst:0.1%,20%"
                ));
            }
        };
        Ok(Self(Pick::Bursts {
            enter,
            leave,
            bad,
            good,
        }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
        Some(percent) => Ok(percent / 100.0),
        None => Err(format!("{text:?} is no percentage; write 0.5%, from 0% to 100%")),
    }
}

/// `--reorder`
#[derive(Clone, Copy, Debug)]
pub(super) struct Reorder {
    pub(super) packets: Pick,
    pub(super) by: u64,
}

impl FromStr for Reorder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .rsplit_once(':')
            .filter(|(packets, _)| *packets != "every" && *packets != "burst");
        let Some((packets, by)) = parts else {
            return Err(format!(
                "{text:?}: how many later packets leave first? Write 1%:3 or every:100:3"
            ));
        };
        let Packets(packets) = packets.parse()?;
        let by = count_in(1..=1_000_000)(by)?;
        Ok(Self { packets, by })
    }
}

/// `--delay`
#[derive(Clone, Copy, Debug)]
pub(super) struct Time(pub(super) Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        time(text).map(Self)
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    let range = Duration::ZERO..=Duration::from_secs(60);
    time_in(&range, text)?.ok_or_else(|| format!("{text:?}: it takes 0us to 60s"))
}

/// `--jitter`
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter {
    pub(super) spread: Spread,
    pub(super) time: Duration,
}

impl FromStr for Jitter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (spread, text) = match text.strip_prefix("normal:") {
            Some(rest) => (Spread::Normal, rest),
            None => (Spread::Uniform, text),
        };
        Ok(Self {
            spread,
            time: time(text)?,
        })
    }
}

/// `--rate`
#[derive(Clone, Copy, Debug)]
pub(super) struct PerSecond {
    pub(super) per_second: u64,
    pub(super) unit: Unit,
}

impl FromStr for PerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.strip_suffix("pps") {
            Some(number) => (number, "pps"),
            None => {
                let at = text.find(|c: char| c.is_ascii_alphabetic());
                text.split_at(at.unwrap_or(text.len()))
            }
        };
        let (unit, scale) = match unit {
            "pps" => (Unit::Packets, 1),
            "bit" => (Unit::Bits, 1),
            "kbit" => (Unit::Bits, 1_000),
            "mbit" => (Unit::Bits, 1_000_000),
            "gbit" => (Unit::Bits, 1_000_000_000),
            _ => {
                return Err(format!(
                    "{text:?} is no rate with a unit; write 100kpps, 64kbit, 100mbit or 1gbit"
                ));
            }
        };
        let number = match unit {
            Unit::Packets => count(number).ok(),
            Unit::Bits => number.parse::<u64>().ok(),
        };
        match number.and_then(|number| number.checked_mul(scale)) {
            Some(per_second @ 1..=1_000_000_000_000) => Ok(Self { per_second, unit }),
            _ => Err(format!(
                "{text:?}: a rate is a whole number from 1, up to 10^12 of packets or bits a second"
            )),
        }
    }
}
