//! What a running `ringside` tells of itself to who asks: the schema `ringside.live/1`.
//!
//! It is written as one line of JSON. Fields are only ever added; a reader takes what it knows.
//!
//! All counters are since the run began and only grow; rates are differences of two snapshots over the difference of their
//! `uptime_ns`.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::latency::{Latency, Summary};
use crate::schema::{LatencyKind, Mode, QueueCounters};

/// Name and version of the schema.
pub const SCHEMA: &str = "ringside.live/1";

/// JSON Schema (draft 2020-12) of a [`Snapshot`].
pub const JSON_SCHEMA: &str = include_str!("../schemas/ringside.live-1.json");

/// A running command at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that runs.
    pub tool_version: String,
    /// Its process number.
    pub pid: u32,
    /// What it does: "rx", "tx", "fwd", "echo", "ping".
    pub command: String,
    /// Its command line.
    pub command_line: Vec<String>,
    /// The inode of its network namespace, which tells interfaces of the same name apart.
    pub network_namespace: u64,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// For how long it has run, by CLOCK_MONOTONIC.
    pub uptime_ns: u64,
    /// Its queues, of all its interfaces.
    pub queues: Vec<LiveQueue>,
    /// Times, where they are measured.
    pub latency: Option<LiveTimes>,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveQueue {
    /// What a result has of it in the end, as it is now.
    #[serde(flatten)]
    pub counters: QueueCounters,
    /// The mode obtained.
    pub mode: Mode,
    /// Bytes received, from the Ethernet header on, without frame check sequence.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames that the kernel is done sending.
    pub completed_frames: u64,
    /// Times that a `poll()` was woken by a packet.
    pub wakeups: u64,
    /// Looks at an empty RX ring.
    pub empty_looks: u64,
    /// Turns of busy-polling.
    pub busy_polls: u64,
    /// Where its UMEM's frames are; `None` while its thread has told nothing yet. Of a UMEM that several queues share the
    /// frames of the others count as the user's.
    pub frames: Option<Frames>,
    /// Slots of its rings.
    pub rings: Rings,
    /// How old its counters are: a thread that sleeps, or is busy with something else, tells late.
    pub age_ns: u64,
}

/// Where the frames of a UMEM are. The six add up to all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Frames {
    /// Nobody has them.
    pub free: u32,
    /// With the kernel, for packets to come.
    pub fill: u32,
    /// Received, and waiting on the RX ring.
    pub rx: u32,
    /// With the application.
    pub user: u32,
    /// With the kernel, to be sent.
    pub tx: u32,
    /// Sent, and waiting on the completion ring.
    pub completion: u32,
}

impl Frames {
    /// All frames.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.free + self.fill + self.rx + self.user + self.tx + self.completion
    }
}

/// Slots of the rings of a queue; 0 where it has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rings {
    /// Fill ring.
    pub fill_slots: u32,
    /// RX ring.
    pub rx_slots: u32,
    /// TX ring.
    pub tx_slots: u32,
    /// Completion ring.
    pub completion_slots: u32,
}

/// Times of all packets until now, to three significant digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveTimes {
    /// Which time.
    pub kind: LatencyKind,
    /// The figures, from the real sending; `None` when there is none yet.
    pub raw: Option<Summary>,
    /// The histogram that they are from (HdrHistogram V2, compressed, base64), of which differences can be made.
    pub raw_hdr: Option<String>,
}

impl LiveTimes {
    /// What is known of these times.
    #[must_use]
    pub fn of(kind: LatencyKind, times: &Latency) -> Self {
        Self {
            kind,
            raw: times.summary(),
            raw_hdr: times.to_hdr(),
        }
    }

    /// The times as a histogram; an empty one when there are none yet.
    ///
    /// # Errors
    ///
    /// [`Error::Histogram`] if the text is none.
    pub fn histogram(&self) -> Result<Latency, Error> {
        self.raw_hdr.as_deref().map_or(Ok(Latency::new()), Latency::from_hdr)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::schema::Outcome;
    use crate::schema::example::example;

    pub(crate) fn snapshot() -> Snapshot {
        let Outcome::Run(run) = example().result else {
            panic!("the example is a run");
        };
        let mut times = Latency::new();
        (1..=30).for_each(|us| times.record(us * 1000));
        Snapshot {
            schema: SCHEMA.into(),
            tool_version: "0.1.0".into(),
            pid: 7,
            command: "ping".into(),
            command_line: vec!["ringside".into()],
            network_namespace: 4_026_531_840,
            started_unix_s: 1,
            uptime_ns: 2,
            queues: vec![LiveQueue {
                counters: run.queues[0].clone(),
                mode: Mode::NativeCopy,
                received_bytes: 1,
                sent_bytes: 2,
                completed_frames: 3,
                wakeups: 4,
                empty_looks: 5,
                busy_polls: 6,
                frames: Some(Frames {
                    free: 1,
                    fill: 2,
                    rx: 3,
                    user: 4,
                    tx: 5,
                    completion: 6,
                }),
                rings: Rings::default(),
                age_ns: 8,
            }],
            latency: Some(LiveTimes::of(LatencyKind::RoundTrip, &times)),
        }
    }

    #[test]
    fn what_a_later_version_wrote_is_read() {
        let snapshot = snapshot();
        let mut json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(snapshot.queues[0].frames.unwrap().total(), 21);
        json["queues"][0]["of_a_later_version"] = 1.into();
        json["of_a_later_version"] = 1.into();
        let back: Snapshot = serde_json::from_value(json).unwrap();
        assert_eq!(back, snapshot);
        assert_eq!(back.latency.unwrap().histogram().unwrap().samples(), 30);
    }
}
