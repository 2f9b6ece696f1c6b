//! Times at which packets left: which packets get one, and those that came.

use std::collections::VecDeque;
use std::fmt;

use ringside_nic::clock::{Phc, PhcClock, Tai, Timestamp};
use serde::Serialize;

use super::StampSampling;
use crate::pair::Held;

/// When a packet left, which asked for it ([`TxMeta::timestamp`](super::TxMeta::timestamp)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxStamp {
    /// The packet's token.
    pub token: u64,
    /// When, by whose clock.
    pub time: StampTime,
}

/// A time of completion, with its clock and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StampTime {
    /// The kernel's, on copy paths: CLOCK_TAI when the driver let go of the packet, which is when it took it over (veth, tun)
    /// or when the NIC was done with it. <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_destruct_skb>
    Software(Timestamp<Tai>),
    /// The NIC's, with zero-copy.
    Hardware(HardwareTime),
}

impl StampTime {
    /// The time, if it is the kernel's.
    pub fn software(self) -> Option<Timestamp<Tai>> {
        match self {
            Self::Software(time) => Some(time),
            Self::Hardware(_) => None,
        }
    }

    /// The time, if it is the NIC's.
    pub fn hardware(self) -> Option<HardwareTime> {
        match self {
            Self::Software(_) => None,
            Self::Hardware(time) => Some(time),
        }
    }

    /// Nanoseconds of whichever clock it is.
    pub fn as_nanos(self) -> u64 {
        match self {
            Self::Software(time) => time.as_nanos(),
            Self::Hardware(time) => time.0,
        }
    }
}

/// `1234 ns of CLOCK_TAI, in software`
impl fmt::Display for StampTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Software(time) => write!(f, "{time:?}, in software"),
            Self::Hardware(time) => write!(f, "{} ns of the NIC's clock, in hardware", time.0),
        }
    }
}

/// A time of a NIC's clock, in nanoseconds. Which NIC's, whoever has the queue knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HardwareTime(u64);

impl HardwareTime {
    /// As a time of this clock, which has to be that of the queue's interface.
    pub fn of<'id>(self, clock: &Phc<'id, '_>) -> Timestamp<PhcClock<'id>> {
        clock.stamp(self.0)
    }
}

/// What became of the stamps that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StampCounters {
    /// Packets sent that asked for a stamp.
    pub wanted: u64,
    /// Those that the sampling chose: the kernel was asked.
    pub asked: u64,
    /// Those that came back with a stamp.
    pub stamped: u64,
    /// Those that came back without.
    pub unstamped: u64,
    /// Stamps that came and were thrown away, because too many had not been taken by
    /// [`tx_stamps`](crate::Queue::tx_stamps) so far.
    pub unread: u64,
}

impl StampCounters {
    /// Asked for, and the packet is not back yet.
    pub fn outstanding(&self) -> u64 {
        self.asked - self.stamped - self.unstamped
    }

    /// Of the packets that wanted a stamp the part that has one, 0 to 1; `None` when none wanted it.
    #[allow(clippy::cast_precision_loss, reason = "a part of a whole, for people")]
    pub fn coverage(&self) -> Option<f64> {
        (self.wanted != 0).then(|| self.stamped as f64 / self.wanted as f64)
    }
}

impl std::ops::AddAssign for StampCounters {
    fn add_assign(&mut self, other: Self) {
        self.wanted += other.wanted;
        self.asked += other.asked;
        self.stamped += other.stamped;
        self.unstamped += other.unstamped;
        self.unread += other.unread;
    }
}

/// The stamps of one pair of rings. Allocates nothing after [`Stamps::new`].
pub(crate) struct Stamps {
    sampling: StampSampling,
    /// Packets that want a stamp until one is asked for again.
    until_next: u32,
    hardware: bool,
    counters: StampCounters,
    /// As many as there are frames at the most.
    arrived: VecDeque<(u64, u64)>,
}

impl Stamps {
    pub(crate) fn new(sampling: StampSampling, frames: u32, hardware: bool) -> Self {
        Self {
            sampling,
            until_next: 0,
            hardware,
            counters: StampCounters::default(),
            arrived: VecDeque::with_capacity(frames as usize),
        }
    }

    pub(crate) fn counters(&self) -> StampCounters {
        self.counters
    }

    /// A packet is sent that wants a stamp: whether it is to have one.
    pub(crate) fn wanted(&mut self) -> bool {
        self.counters.wanted += 1;
        if self.until_next != 0 {
            self.until_next -= 1;
            return false;
        }
        let most = self.sampling.outstanding.map_or(u64::MAX, u64::from);
        if self.counters.outstanding() >= most {
            return false;
        }
        self.until_next = self.sampling.one_in.saturating_sub(1);
        self.counters.asked += 1;
        true
    }

    /// A packet is back that was to have one; `None` where the kernel wrote nothing.
    pub(crate) fn arrived(&mut self, token: u64, stamp: Option<u64>) {
        let Some(stamp) = stamp else {
            self.counters.unstamped += 1;
            return;
        };
        self.counters.stamped += 1;
        if self.arrived.len() == self.arrived.capacity() {
            self.counters.unread += 1;
        } else {
            self.arrived.push_back((token, stamp));
        }
    }

    fn take(&mut self) -> Option<TxStamp> {
        let (token, ns) = self.arrived.pop_front()?;
        let time = match self.hardware {
            true => StampTime::Hardware(HardwareTime(ns)),
            false => StampTime::Software(Timestamp::from_nanos(ns)),
        };
        Some(TxStamp { token, time })
    }
}

/// Iterator over stamps that arrived, in the order of completion. What is not taken stays for the next time.
pub struct TxStamps<'q> {
    pair: Held<'q>,
}

impl<'q> TxStamps<'q> {
    pub(crate) fn new(pair: Held<'q>) -> Self {
        Self { pair }
    }
}

impl Iterator for TxStamps<'_> {
    type Item = TxStamp;

    fn next(&mut self) -> Option<TxStamp> {
        self.pair.pool.stamps_mut()?.take()
    }
}

impl fmt::Debug for TxStamps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxStamps").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "stamps_tests.rs"]
mod tests;
