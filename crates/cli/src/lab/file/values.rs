//! Values that check themselves where they are read.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use ringside_bpf::Redirected;
use ringside_measure::probe::DEFAULT_PORT;
use ringside_netlab::attach::{PciAddress, Way};
use ringside_nic::NtupleFlow;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::read;
use crate::args::time_in;

/// Longest name: it becomes part of a file's name.
const LONGEST: usize = 40;

/// Letters, digits, `-`, `_` and `.`: part of file names and of a table's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Name(pub(in crate::lab) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = read::text(from, "a name in quotes")?;
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match begins && text.len() <= LONGEST && text.chars().all(is_fine) {
            true => Ok(Self(text)),
            false => Err(D::Error::custom(format_args!(
                "{text:?} is no name; a name has 1 to {LONGEST} letters, digits, and behind the first also - _ ."
            ))),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A time with its unit, from a microsecond to an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Time(pub(in crate::lab) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = read::text(from, "a time with its unit in quotes, such as \"250ms\"")?;
        let range = Duration::from_micros(1)..=Duration::from_secs(3600);
        let time = time_in(&range, &text).map_err(D::Error::custom)?;
        time.map(Self)
            .ok_or_else(|| D::Error::custom(format_args!("{text:?} is out of range: 1us to 60min")))
    }
}

/// A whole number of a range, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Whole<const LEAST: u64, const MOST: u64>(u64);

impl<const LEAST: u64, const MOST: u64> Whole<LEAST, MOST> {
    pub(in crate::lab) fn get(self) -> u64 {
        self.0
    }

    /// That of a range that fits.
    pub(in crate::lab) fn small(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Whole<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = read::number(from)?;
        u64::try_from(number)
            .ok()
            .filter(|number| (LEAST..=MOST).contains(number))
            .map(Self)
            .ok_or_else(|| D::Error::custom(format_args!("{number} is out of range: {LEAST} to {MOST}")))
    }
}

/// Bits a second, as iperf3 takes them: `100M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Bitrate(pub(in crate::lab) String);

impl Bitrate {
    /// The number.
    pub(in crate::lab) fn bits_per_s(&self) -> Option<f64> {
        let digits = self.0.trim_end_matches(['K', 'M', 'G']);
        let unit = match self.0.strip_prefix(digits)? {
            "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => 1.0,
        };
        Some(digits.parse::<f64>().ok()? * unit)
    }
}

impl<'de> Deserialize<'de> for Bitrate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = read::text(from, "bits a second in quotes, such as \"100M\"")?;
        let digits = text.trim_end_matches(['K', 'M', 'G']);
        let is_number = !digits.is_empty() && digits.len() <= 12 && digits.bytes().all(|byte| byte.is_ascii_digit());
        match is_number && text.len() <= digits.len() + 1 && digits.bytes().any(|byte| byte != b'0') {
            true => Ok(Self(text)),
            false => Err(D::Error::custom(format_args!(
                "{text:?} is no bit rate; write bits a second, such as 800K, 100M or 2G"
            ))),
        }
    }
}

/// How a guest's NIC is joined to its host, by the names that netlab has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Attachment(pub(in crate::lab) Way);

impl<'de> Deserialize<'de> for Attachment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read::text(from, "the name of an attachment in quotes")?
            .parse()
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// Packets of an express lane: `udp:PORT`, or `pcp:N` for a VLAN priority of N or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(pub(in crate::lab) Redirected);

impl Default for Lane {
    /// The probes'.
    fn default() -> Self {
        Self(Redirected::Udp(DEFAULT_PORT))
    }
}

impl FromStr for Lane {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(NtupleFlow::UdpPort(port)) => Ok(Self(Redirected::Udp(port))),
            Ok(NtupleFlow::VlanPriority(least @ 1..)) => Ok(Self(Redirected::Priority(least))),
            _ => Err(format!(
                "{text:?} is no express lane; write udp:PORT, or pcp:N for VLAN priorities of N and more (1 to 7)"
            )),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Redirected::Udp(port) => write!(f, "udp:{port}"),
            Redirected::Priority(least) => write!(f, "pcp:{least}"),
            Redirected::All => f.write_str("all"),
        }
    }
}

impl<'de> Deserialize<'de> for Lane {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = read::text(from, "an express lane in quotes: \"udp:PORT\" or \"pcp:N\"")?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A NIC of the machine that a guest gets whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Pci(pub(in crate::lab) PciAddress);

impl<'de> Deserialize<'de> for Pci {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read::text(from, "a PCI address in quotes, such as \"0000:01:10.0\"")?
            .parse()
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// An IPv4 address and the length of its network's prefix: `192.0.2.7/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Address(pub(in crate::lab) Ipv4Addr, pub(in crate::lab) u8);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = read::text(from, "an address with its prefix in quotes, such as \"192.0.2.7/24\"")?;
        let parse = || {
            let (ip, prefix) = text.split_once('/')?;
            Some(Self(
                ip.parse().ok()?,
                prefix.parse().ok().filter(|prefix| *prefix <= 32)?,
            ))
        };
        parse().ok_or_else(|| {
            D::Error::custom(format_args!(
                "{text:?} is no address with a prefix such as 192.0.2.7/24"
            ))
        })
    }
}
