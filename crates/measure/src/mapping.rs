//! From another machine's clock to this one's, by what must have been before what.
//!
//! A packet that left here at 10 by this clock and came there at 250 by the other says that the other clock is ahead by 240 at the most: it
//! cannot have come before it was sent. One on the way back says by how much it is ahead at the least. Many packets both ways leave little room
//! for the truth, and no packet has to be believed to be as fast there as back:
//!
//! ```text
//!  ahead                ╷   ╷ at the most, of packets there
//!    │       ╷  ╷      ─┼───┼──────────── ◀ how far the true line may be up
//!    │  ─────┼──┼───────────────────────    the line that is taken
//!    │     ╵   ╵   ────────────────────── ◀ and down
//!    │     ╵   at the least, of packets back
//!    └──────────────────────────────▶ this clock
//! ```
//!
//! Both clocks run evenly, each at its own rate; so the offset is a line, whose slope is found, too. What is told as uncertainty is what
//! the bounds leave, at either end and in the middle of the time in which they were found. It is no standard deviation: the truth is inside,
//! unless a clock does not run evenly. Bounds that contradict every line say so ([`Mapping::contradiction_ns`]).
//!
//! ```
//! use ringside_measure::mapping::Bounds;
//!
//! let mut bounds = Bounds::new();
//! for at in (0..1_000_000).step_by(1_000) {
//!     bounds.there(at, at + 5_000 + 30); // 30 ns there at the least, and it is 5 us ahead
//!     bounds.back(at + 5_000 + 100, at + 150); // 50 ns back
//! }
//! let mapping = bounds.fit().expect("bounds of both kinds");
//! assert!(mapping.offset_ns(500_000).abs_diff(5_000) <= mapping.uncertainty_ns());
//! assert_eq!(mapping.here(505_000).abs_diff(500_000) <= 40, true);
//! ```

/// Steepest slope that is looked for: a clock that was told its rate wrongly by an emulated timer.
const STEEPEST: f64 = 0.05;
/// Halvings, and steps of the search for the best slope: beyond the precision of a double.
const STEPS: u32 = 120;

/// What is known of the offset between two clocks.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// When, and by how much the other clock is ahead at the most.
    most: Vec<(u64, i64)>,
    /// The same at the least.
    least: Vec<(u64, i64)>,
}

impl Bounds {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Something was here at a time of this clock, and came there at a time of the other one.
    pub fn there(&mut self, here_ns: u64, there_ns: u64) {
        self.most
            .extend(difference(there_ns, here_ns).map(|most| (here_ns, most)));
    }

    /// Something was there at a time of the other clock, and came here at a time of this one.
    pub fn back(&mut self, there_ns: u64, here_ns: u64) {
        self.least
            .extend(difference(there_ns, here_ns).map(|least| (here_ns, least)));
    }

    /// How many of both kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.most.len() + self.least.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds what others have found.
    pub fn extend(&mut self, other: &Self) {
        self.most.extend(&other.most);
        self.least.extend(&other.least);
    }

    /// The line with the most room on both sides; `None` without bounds of both kinds.
    #[must_use]
    pub fn fit(&self) -> Option<Mapping> {
        let all = || self.most.iter().chain(&self.least);
        let (first, last) = (all().map(|of| of.0).min()?, all().map(|of| of.0).max()?);
        let (_, origin_value) = *self.most.first()?;
        self.least.first()?;
        let origin = first + (last - first) / 2;
        let relative = |bounds: &[(u64, i64)]| -> Vec<(f64, f64)> {
            let of = |(at, value): &(u64, i64)| (signed(*at, origin), float(*value - origin_value));
            bounds.iter().map(of).collect()
        };
        let room = Room {
            most: relative(&self.most),
            least: relative(&self.least),
        };
        let slope = highest([-STEEPEST, STEEPEST], |slope| room.width(slope));
        let width = room.width(slope);
        let middle = (room.high(slope) + room.low(slope)) / 2.0;
        // Where no line fits there is nothing beside this one.
        let slopes = if width > 0.0 { room.slopes(slope) } else { [slope; 2] };
        let unknown = [first, origin, last].map(|at| {
            let at = signed(at, origin);
            let line = middle + slope * at;
            let up = room.at_most(slopes, at) - line;
            let down = line - room.at_least(slopes, at);
            up.max(down)
        });
        let uncertainty = unknown.into_iter().fold(width.abs() / 2.0, f64::max);
        Some(Mapping {
            origin_ns: origin,
            ahead_ns: origin_value.saturating_add(whole(middle)),
            slope,
            uncertainty_ns: unsigned(uncertainty) + 1,
            contradiction_ns: unsigned((-width).max(0.0)),
            bounds: self.len(),
        })
    }
}

/// By how much `there` is ahead; nothing for what is centuries away.
fn difference(there: u64, here: u64) -> Option<i64> {
    i64::try_from(i128::from(there) - i128::from(here)).ok()
}

/// Bounds around a place and a value, so that doubles have the digits for them.
struct Room {
    most: Vec<(f64, f64)>,
    least: Vec<(f64, f64)>,
}

impl Room {
    /// How high a line of a slope may lie.
    fn high(&self, slope: f64) -> f64 {
        let of = |(at, value): &(f64, f64)| value - slope * at;
        self.most.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    fn low(&self, slope: f64) -> f64 {
        let of = |(at, value): &(f64, f64)| value - slope * at;
        self.least.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Concave: there is one best slope, or a row of them.
    fn width(&self, slope: f64) -> f64 {
        self.high(slope) - self.low(slope)
    }

    /// The least and the greatest slope with which a line fits, around one that does.
    fn slopes(&self, good: f64) -> [f64; 2] {
        [-STEEPEST, STEEPEST].map(|end| {
            if self.width(end) >= 0.0 {
                return end;
            }
            let (mut inside, mut outside) = (good, end);
            for _ in 0..STEPS {
                let middle = f64::midpoint(inside, outside);
                match self.width(middle) >= 0.0 {
                    true => inside = middle,
                    false => outside = middle,
                }
            }
            inside
        })
    }

    /// The highest value at a time of all lines that fit.
    fn at_most(&self, slopes: [f64; 2], at: f64) -> f64 {
        let value = |slope: f64| self.high(slope) + slope * at;
        value(highest(slopes, value))
    }

    fn at_least(&self, slopes: [f64; 2], at: f64) -> f64 {
        let value = |slope: f64| self.low(slope) + slope * at;
        value(highest(slopes, |slope| -value(slope)))
    }
}

/// Where a concave function is highest.
fn highest([mut from, mut to]: [f64; 2], of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..STEPS {
        let third = (to - from) / 3.0;
        match of(from + third) < of(to - third) {
            true => from += third,
            false => to -= third,
        }
    }
    f64::midpoint(from, to)
}

/// A line: what another clock shows when this one shows something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mapping {
    origin_ns: u64,
    ahead_ns: i64,
    slope: f64,
    uncertainty_ns: u64,
    contradiction_ns: u64,
    bounds: usize,
}

impl Mapping {
    /// By how much the other clock is ahead of this one when this one shows `here_ns`.
    #[must_use]
    pub fn offset_ns(&self, here_ns: u64) -> i64 {
        let since = signed(here_ns, self.origin_ns);
        self.ahead_ns.saturating_add(whole(self.slope * since))
    }

    /// What this clock shows when the other one shows `there_ns`; 0 for what was before it began.
    #[must_use]
    pub fn here(&self, there_ns: u64) -> u64 {
        // From the origin on, where the other clock showed this.
        let there_origin = i128::from(self.origin_ns) + i128::from(self.ahead_ns);
        let since = i128::from(there_ns) - there_origin;
        #[allow(clippy::cast_precision_loss, reason = "the correction of a difference")]
        let correction = whole(since as f64 * (self.slope / (1.0 + self.slope)));
        let here = i128::from(self.origin_ns) + since - i128::from(correction);
        u64::try_from(here.max(0)).unwrap_or(u64::MAX)
    }

    /// How far the true offset may be from this one, in either direction, in nanoseconds, in the time in which the bounds were found.
    #[must_use]
    pub fn uncertainty_ns(&self) -> u64 {
        self.uncertainty_ns
    }

    /// By how much the other clock runs faster, in millionths.
    #[must_use]
    pub fn rate_ppm(&self) -> f64 {
        self.slope * 1e6
    }

    /// By how much bounds contradict the line: 0 unless one of the clocks does not run evenly. The uncertainty has half of it then, and
    /// says nothing about what is beyond.
    #[must_use]
    pub fn contradiction_ns(&self) -> u64 {
        self.contradiction_ns
    }

    /// How many bounds it is made of.
    #[must_use]
    pub fn bounds(&self) -> usize {
        self.bounds
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "differences of less than 2^53 ns, three months"
)]
fn float(value: i64) -> f64 {
    value as f64
}

fn signed(at: u64, origin: u64) -> f64 {
    float(at.cast_signed().wrapping_sub(origin.cast_signed()))
}

#[allow(clippy::cast_possible_truncation, reason = "what is too large is cut")]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is too large is cut, and nothing is below zero"
)]
fn unsigned(value: f64) -> u64 {
    value.ceil() as u64
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
