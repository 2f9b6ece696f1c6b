//! What a table of `compare` shows: one rule for the terminal and for reports.

use std::fmt;

use clap::ValueEnum as _;
use ringside_measure::schema::Table;

use super::variant::Kind;

/// Result of the comparison of the best option of a table with plain UDP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// This option is clearly better than the base.
    Best(String),
    /// The interval of the ratio holds 1.
    Unclear,
    /// The ratio, or its interval, is missing.
    TooFewRounds,
    /// No plain UDP socket gave a figure.
    NoPlainUdp,
}

impl Verdict {
    /// Returns the verdict of a table; `None` if no option gave a figure.
    pub(crate) fn of(table: &Table) -> Option<Self> {
        let (best, _) = table.best()?;
        Some(match &best.ratio_to_base {
            Some(ratio) if ratio.low.is_some() && ratio.is_clear(0.0) => Self::Best(best.name.clone()),
            _ if !has_plain_udp(table) => Self::NoPlainUdp,
            Some(ratio) if ratio.low.is_some() => Self::Unclear,
            None if best.name == table.base => Self::Unclear,
            _ => Self::TooFewRounds,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Best(name) => name,
            Self::Unclear => "nothing is clearly better than plain UDP",
            Self::TooFewRounds => "too few rounds for an interval, no conclusion",
            Self::NoPlainUdp => "plain UDP was not measured, no conclusion",
        })
    }
}

/// Returns whether the base of the ratios is a plain UDP socket. Without a figure of one, it is the
/// first option that works.
pub(crate) fn has_plain_udp(table: &Table) -> bool {
    Kind::from_str(&table.base, false).is_ok_and(Kind::is_plain_udp)
}
