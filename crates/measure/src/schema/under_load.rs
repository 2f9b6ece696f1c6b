//! Round trips without load and with it, side by side.

use serde::{Deserialize, Serialize};

use super::LatencyResult;
use crate::compare::{Ratio, Round};
use crate::latency::Latency;
use crate::sequence::Counts;

/// Round trips of one flow of probes under several conditions, in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnderLoadResult {
    /// How often each condition had its turn.
    pub rounds: u32,
    /// How long each time, in nanoseconds.
    pub turn_ns: u64,
    /// The conditions, the one without load first.
    pub conditions: Vec<LoadCondition>,
}

/// What loads the path while probes are on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// Nothing but the probes.
    Idle,
    /// The flow of the probes itself: the same addresses, ports, socket and queue.
    SelfInduced,
    /// Another flow, by another socket or program.
    Foreign,
}

/// What probes met under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadCondition {
    /// What loaded the path.
    pub kind: LoadKind,
    /// The load in words; `None` without one.
    pub load: Option<String>,
    /// Packets of the load; `None` without one, or where another program made it.
    pub load_sent_packets: Option<u64>,
    /// Those that came back; `None` where nobody sends them back.
    pub load_received_packets: Option<u64>,
    /// Packets per second that the interface sent meanwhile, by its own counters, probes included.
    pub link_tx_pps: Option<f64>,
    /// Bits per second of frames that it sent.
    pub link_tx_bps: Option<f64>,
    /// Packets per second that it received.
    pub link_rx_pps: Option<f64>,
    /// Bits per second of frames that it received.
    pub link_rx_bps: Option<f64>,
    /// The probes.
    pub probes: Counts,
    /// Their round trips.
    pub latency: LatencyResult,
    /// How fast the path answers; `None` where no probe was answered.
    pub responsiveness: Option<Responsiveness>,
    /// The median round trip of each turn, from the intended sending, in nanoseconds. A turn with too few samples has none.
    pub rounds: Vec<Round>,
    /// That in proportion to the turn without load of the same round; `None` for that itself.
    pub ratio_to_idle: Option<Ratio>,
}

/// Round trips per minute: the reciprocal of the mean round trip without the longest 5 %.
///
/// The draft of the IETF's working group for IP performance measurement trims the same way
/// (<https://datatracker.ietf.org/doc/draft-ietf-ippm-responsiveness/>); its probes are of TCP, TLS and HTTP, these are of
/// UDP, so only figures of this kind compare with each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Responsiveness {
    /// Round trips per minute, one after the other.
    pub round_trips_per_minute: f64,
    /// The mean round trip that it stands for, in milliseconds.
    pub round_trip_ms: f64,
}

impl Responsiveness {
    /// The share of round trips that counts.
    pub const KEPT: f64 = 0.95;

    /// That of round trips, by their time from the intended sending; `None` where there are none.
    #[must_use]
    pub fn of(round_trips: &Latency) -> Option<Self> {
        let mean_ns = round_trips.mean_of_shortest(Self::KEPT)?;
        (mean_ns > 0.0).then(|| Self {
            round_trips_per_minute: 60e9 / mean_ns,
            round_trip_ms: mean_ns / 1e6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_millisecond_is_sixty_thousand_a_minute() {
        let mut round_trips = Latency::new();
        for _ in 0..95 {
            round_trips.record(1_000_000);
        }
        for _ in 0..5 {
            round_trips.record(9_000_000_000);
        }
        let answers = Responsiveness::of(&round_trips).unwrap();
        assert!(
            (answers.round_trip_ms - 1.0).abs() < 1e-3,
            "the longest 5 % do not count: {answers:?}"
        );
        assert!((answers.round_trips_per_minute - 60_000.0).abs() < 60.0, "{answers:?}");
        assert_eq!(Responsiveness::of(&Latency::new()), None);
    }
}
