//! Time-triggered streams: classes of packets, each with its window in a cycle, checked as a whole.
//!
//! ```text
//!   cycle, 1 ms                                             next cycle
//!   ├──────────────────────────────────────────────────────┼───
//!   │ class 5          │ class 3              │             │ class 5
//!   ├──┬──┬────────────┼──────┬───────────────┼─────────────┼──
//!   offset: packet, packet    window: no later than here
//! ```
//!
//! A class is a priority code point (PCP) of 802.1Q. Its packets are due evenly over its window, the first one at its begin; each has
//! to arrive before the window is over. Cycles begin at multiples of the cycle's time on CLOCK_TAI, so that all hosts whose clocks
//! agree have the same.
//!
//! ```
//! use ringside_measure::schedule::Schedule;
//!
//! let classes = ["5:0us:100us:200:2", "3:200us:300us:1000"].map(|text| text.parse().unwrap());
//! let schedule = Schedule::new(1_000_000, classes.to_vec())?;
//! let due: Vec<_> = schedule.slots().iter().map(|slot| (slot.offset_ns, schedule.classes()[slot.class].pcp)).collect();
//! assert_eq!(due, [(0, 5), (50_000, 5), (200_000, 3)]);
//! schedule.check_rate(1_000_000_000)?; // two packets of 200 bytes take 4 us of the window's 100
//! assert!(schedule.check_rate(10_000_000).is_err()); // and at 10 Mbit/s 359 us
//! # Ok::<(), ringside_measure::Error>(())
//! ```

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cycle::Deadline;
use crate::{Error, units};

mod listener;
mod part;

pub use listener::{Listener, Received, Stream, Verdict, WindowMisses, fastest_ns};
pub use part::{STREAM_LEN, StreamPart};

/// Bytes of the smallest frame of a class: Ethernet and VLAN header, IPv4, UDP, a probe and its stream's part.
pub const SMALLEST: u32 = 94;
const _: () = assert!(SMALLEST as usize == 14 + 4 + 20 + 8 + STREAM_LEN);
/// Bytes of the largest one: a jumbo frame.
pub const LARGEST: u32 = 9_018;
/// Packets of a class in a cycle at the most.
pub const MOST_PACKETS: u32 = 1_000;

/// What a frame takes of the wire beside its bytes: check sequence, preamble, start of frame, gap.
const OVERHEAD: u64 = 24;

/// A class of packets and its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Class {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Begin of its window in the cycle.
    pub offset_ns: u64,
    /// Length of its window.
    pub window_ns: u64,
    /// Bytes of a frame, from the Ethernet header on, VLAN tag included, without check sequence.
    pub frame_bytes: u32,
    /// Packets a cycle.
    pub packets_per_cycle: u32,
}

/// A packet of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Whose: index of its class.
    pub class: usize,
    /// Its number among the class's packets of the cycle.
    pub number: u32,
    /// When it is due, from the begin of the cycle.
    pub offset_ns: u64,
    /// When its class's window is over.
    pub over_ns: u64,
}

/// A cycle and its classes, which have been checked: no two windows overlap, none leaves the cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    cycle_ns: u64,
    /// In the order of their windows.
    classes: Vec<Class>,
}

impl FromStr for Class {
    type Err = String;

    /// `PCP:OFFSET:WINDOW[:SIZE[:COUNT]]`, times with a unit: `5:0us:100us:200:2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(':').collect();
        let (&[pcp, offset, window], more) = fields
            .split_first_chunk::<3>()
            .filter(|(_, more)| more.len() <= 2)
            .ok_or_else(|| {
                format!(
                    "{text:?} is no class; write PCP:OFFSET:WINDOW[:SIZE[:COUNT]], such as 5:0us:100us:200:2 for two packets of 200 bytes"
                )
            })?;
        let number = |field: usize, what: &str, usual: u32| match more.get(field) {
            None => Ok(usual),
            Some(text) => units::number(text)
                .and_then(|number| u32::try_from(number).ok())
                .ok_or_else(|| format!("{text:?} is no number of {what}; write 64, or 1.5k")),
        };
        let class = Self {
            pcp: pcp
                .parse()
                .ok()
                .filter(|pcp| *pcp <= 7)
                .ok_or_else(|| format!("{pcp:?} is no priority code point; there are 0 to 7"))?,
            offset_ns: nanos(offset)?,
            window_ns: nanos(window)?,
            frame_bytes: number(0, "bytes", 128)?,
            packets_per_cycle: number(1, "packets", 1)?,
        };
        Ok(class)
    }
}

/// Returns the length of a unit of time in nanoseconds: `ns`, `us`, `ms` or `s`. Microseconds may
/// also be `µs`, with the micro sign (U+00B5) or the Greek letter (U+03BC).
#[must_use]
pub fn unit_ns(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1.0),
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

/// A time with its unit, in nanoseconds: `0us`, `1.5ms`, `250ns`.
///
/// # Errors
/// Says what is wrong with it.
pub fn nanos(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time with a unit; write 0us, 250ns, 1.5ms or 1s");
    let at = text.find(char::is_alphabetic).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let ns = number.parse::<f64>().map_err(|_| wrong())? * unit_ns(unit).ok_or_else(wrong)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between zero and an hour"
    )]
    match ns.is_finite() && (0.0..=3.6e12).contains(&ns) {
        true => Ok(ns.round() as u64),
        false => Err(wrong()),
    }
}

impl Schedule {
    /// Checks the classes one by one and against each other.
    ///
    /// # Errors
    /// [`Error::Schedule`] that names the class and what is wrong: no class or one twice, a window that is empty, leaves the cycle
    /// (from 10 µs to a minute) or overlaps another, too many packets, frames of a size that cannot be.
    pub fn new(cycle_ns: u64, mut classes: Vec<Class>) -> Result<Self, Error> {
        let wrong = |text: String| Err(Error::Schedule(text));
        if !(10_000..=60_000_000_000).contains(&cycle_ns) {
            return wrong(format!("a cycle of {}: it takes 10 µs to 60 s", Time(cycle_ns)));
        }
        if classes.is_empty() {
            return wrong("it has no class: give one at least, PCP:OFFSET:WINDOW[:SIZE[:COUNT]]".into());
        }
        for class in &classes {
            let Class {
                pcp,
                offset_ns,
                window_ns,
                frame_bytes,
                packets_per_cycle,
            } = *class;
            if pcp > 7 {
                return wrong(format!("class {pcp}: a priority code point is 0 to 7"));
            }
            if window_ns == 0 || offset_ns.saturating_add(window_ns) > cycle_ns {
                return wrong(format!(
                    "class {pcp}: its window of {} from {} on does not lie in the cycle of {}",
                    Time(window_ns),
                    Time(offset_ns),
                    Time(cycle_ns)
                ));
            }
            if !(1..=MOST_PACKETS).contains(&packets_per_cycle) {
                return wrong(format!(
                    "class {pcp}: {packets_per_cycle} packets a cycle; 1 to {MOST_PACKETS} can be"
                ));
            }
            if !(SMALLEST..=LARGEST).contains(&frame_bytes) {
                return wrong(format!(
                    "class {pcp}: frames of {frame_bytes} bytes; {SMALLEST} to {LARGEST} can be, from the Ethernet header on, VLAN tag included, without FCS"
                ));
            }
            if u64::from(packets_per_cycle) > window_ns {
                return wrong(format!(
                    "class {pcp}: {packets_per_cycle} packets in a window of {}",
                    Time(window_ns)
                ));
            }
        }
        classes.sort_by_key(|class| class.offset_ns);
        for pair in classes.windows(2) {
            let [first, second] = pair else { continue };
            let over = first.offset_ns + first.window_ns;
            if second.offset_ns < over {
                return wrong(format!(
                    "the windows of class {} (until {}) and class {} (from {}) overlap by {}",
                    first.pcp,
                    Time(over),
                    second.pcp,
                    Time(second.offset_ns),
                    Time(over - second.offset_ns)
                ));
            }
        }
        for pcp in 0..=7 {
            if classes.iter().filter(|class| class.pcp == pcp).count() > 1 {
                return wrong(format!(
                    "class {pcp} is there twice: a priority has one window in a cycle"
                ));
            }
        }
        Ok(Self { cycle_ns, classes })
    }

    /// Whether a link of so many bits a second can carry what is to be sent in each window.
    ///
    /// # Errors
    /// [`Error::Schedule`] that names the class and the time that its packets take.
    pub fn check_rate(&self, bits_per_second: u64) -> Result<(), Error> {
        for class in &self.classes {
            let takes = class.wire_ns(bits_per_second);
            if takes > class.window_ns {
                return Err(Error::Schedule(format!(
                    "class {}: {} packet(s) of {} bytes take {} of a link of {} Mbit/s, and its window has {}",
                    class.pcp,
                    class.packets_per_cycle,
                    class.frame_bytes,
                    Time(takes),
                    bits_per_second / 1_000_000,
                    Time(class.window_ns)
                )));
            }
        }
        Ok(())
    }

    /// Time of a cycle.
    #[must_use]
    pub fn cycle_ns(&self) -> u64 {
        self.cycle_ns
    }

    /// The classes, in the order of their windows.
    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Index of the class of a priority.
    #[must_use]
    pub fn class_of(&self, pcp: u8) -> Option<usize> {
        self.classes.iter().position(|class| class.pcp == pcp)
    }

    /// The packets of a cycle, in order of time.
    #[must_use]
    pub fn slots(&self) -> Vec<Slot> {
        let each = self.classes.iter().enumerate().flat_map(|(index, class)| {
            (0..class.packets_per_cycle).map(move |number| Slot {
                class: index,
                number,
                offset_ns: class.offset_ns
                    + class.window_ns * u64::from(number) / u64::from(class.packets_per_cycle.max(1)),
                over_ns: class.offset_ns + class.window_ns,
            })
        });
        each.collect()
    }

    /// Packets a cycle, of all classes.
    #[must_use]
    pub fn packets_per_cycle(&self) -> u64 {
        self.classes
            .iter()
            .map(|class| u64::from(class.packets_per_cycle))
            .sum()
    }

    /// The slots in the order in which they are sent, with their deadlines, if classes are sent later than they are due by so much:
    /// on purpose, to see whether somebody notices.
    ///
    /// # Errors
    /// [`Error::Schedule`] if a packet would be sent in the next cycle.
    pub fn departures(&self, later_ns: impl Fn(&Class) -> u64) -> Result<Vec<(Slot, Deadline)>, Error> {
        let mut all = Vec::new();
        for slot in self.slots() {
            let class = &self.classes[slot.class];
            let deadline = Deadline {
                offset_ns: slot.offset_ns.saturating_add(later_ns(class)),
                span_ns: slot.over_ns - slot.offset_ns,
            };
            if deadline.offset_ns >= self.cycle_ns {
                return Err(Error::Schedule(format!(
                    "class {} sent {} later would be sent in the next cycle: the cycle has {}",
                    class.pcp,
                    Time(later_ns(class)),
                    Time(self.cycle_ns)
                )));
            }
            all.push((slot, deadline));
        }
        all.sort_by_key(|(_, deadline)| deadline.offset_ns);
        Ok(all)
    }
}

impl Class {
    /// For how long the class's packets of a cycle take a link of so many bits a second, gaps and check sequences included.
    #[must_use]
    pub fn wire_ns(&self, bits_per_second: u64) -> u64 {
        let frame = u128::from(self.frame_bytes.max(60)) + u128::from(OVERHEAD);
        let bits = frame * 8 * u128::from(self.packets_per_cycle);
        u64::try_from((bits * 1_000_000_000).div_ceil(u128::from(bits_per_second.max(1)))).unwrap_or(u64::MAX)
    }
}

/// A time for people.
struct Time(u64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} µs", self.0 as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests;
