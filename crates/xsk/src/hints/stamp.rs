//! When a packet was received, by whichever clock: the ladder from hardware over XDP to the application.

use std::fmt;

use ringside_nic::clock::{Clock, Monotonic, Timestamp};
use serde::Serialize;

use super::{HardwareStamp, RingsideNic};

/// When a packet was received, and who says so. The better the earlier in this list.
///
/// Each variant has a type of its own inside, so that no stamp is taken for another clock's:
///
/// ```compile_fail,E0308
/// use ringside_xsk::hints::RxStamp;
///
/// fn took(a: RxStamp, b: RxStamp) -> Option<i64> {
///     match (a, b) {
///         (RxStamp::Hardware(a), RxStamp::Xdp(b)) => Some(b - a), // the NIC's clock, and CLOCK_MONOTONIC
///         _ => None,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxStamp {
    /// By the NIC, on its own clock.
    Hardware(HardwareStamp),
    /// By the XDP program, in the driver's NAPI.
    Xdp(Timestamp<Monotonic>),
    /// By the application, when it took the packet out of the RX ring: what waiting for it has cost is in it.
    Application(Timestamp<Monotonic>),
}

/// Who stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StampSource {
    /// The NIC.
    Hardware,
    /// The XDP program.
    Xdp,
    /// The application.
    Application,
}

impl RxStamp {
    /// The best stamp of a packet with these hints; without hints the time now.
    pub fn of(hints: Option<&RingsideNic>) -> Self {
        Self::or(hints, Timestamp::now)
    }

    /// As [`of`](Self::of), with a time that the application has read already or reads by another way, as
    /// [`FastClock`](ringside_nic::clock::FastClock): for all packets of a burst once, for example.
    pub fn or(hints: Option<&RingsideNic>, now: impl FnOnce() -> Timestamp<Monotonic>) -> Self {
        hints.map_or_else(|| Self::Application(now()), RingsideNic::stamp)
    }

    /// Who stamped.
    pub fn source(&self) -> StampSource {
        match self {
            Self::Hardware(_) => StampSource::Hardware,
            Self::Xdp(_) => StampSource::Xdp,
            Self::Application(_) => StampSource::Application,
        }
    }

    /// The time, if it is of CLOCK_MONOTONIC. A NIC's takes the offset of its clock:
    /// [`Phc::offset`](ringside_nic::clock::Phc::offset).
    pub fn monotonic(&self) -> Option<Timestamp<Monotonic>> {
        match *self {
            Self::Hardware(_) => None,
            Self::Xdp(at) | Self::Application(at) => Some(at),
        }
    }
}

impl StampSource {
    /// `hardware`, `XDP` or `application`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Xdp => "XDP",
            Self::Application => "application",
        }
    }

    /// The clock that its stamps are of: `PHC` or `CLOCK_MONOTONIC`.
    pub fn clock(self) -> &'static str {
        match self {
            Self::Hardware => "PHC",
            Self::Xdp | Self::Application => Monotonic::NAME,
        }
    }
}

/// `1234 ns of CLOCK_MONOTONIC (XDP)`
impl fmt::Display for RxStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = match self {
            Self::Hardware(at) => at.as_nanos(),
            Self::Xdp(at) | Self::Application(at) => at.as_nanos(),
        };
        let source = self.source();
        write!(f, "{ns} ns of {} ({})", source.clock(), source.name())
    }
}

/// How many packets were stamped by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StampCounters {
    /// By the NIC.
    pub hardware: u64,
    /// By the XDP program.
    pub xdp: u64,
    /// By the application.
    pub application: u64,
    /// Stamps of the NIC that were 0 although the driver said that it had one; those packets are counted for the next
    /// source too.
    pub zero_hardware: u64,
}

impl StampCounters {
    /// Counts one packet.
    #[inline]
    pub fn note(&mut self, hints: Option<&RingsideNic>) {
        self.zero_hardware += u64::from(hints.is_some_and(RingsideNic::zero_hardware_time));
        match hints.map(RingsideNic::stamp) {
            Some(RxStamp::Hardware(_)) => self.hardware += 1,
            Some(_) => self.xdp += 1,
            None => self.application += 1,
        }
    }

    /// All packets.
    pub fn packets(&self) -> u64 {
        self.hardware + self.xdp + self.application
    }
}
