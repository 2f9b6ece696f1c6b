//! The messages. Fields that are not known are ignored, so that a version can gain some.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{Errand, GuestUp, GuestsAllowed};
use crate::schema::{FarEnd, Mode};

/// Versions of the control protocol that are spoken here, the best first.
pub const VERSIONS: [u32; 1] = [2];

/// Numbers of sessions are multiples of this; the numbers up to the next one are the session's own, for trials one after
/// the other.
pub const SESSION_STEP: u32 = 1 << 12;

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The client's first.
    Hello(Hello),
    /// The server's first.
    Welcome(Welcome),
    /// I have the token.
    Proof(Proof),
    /// No, and why. Ends the connection before it is open, and what was asked for after.
    Refused(Refused),
    /// Open your end.
    Start(Start),
    /// It is open.
    #[serde(with = "json_value")]
    Ready(Box<Ready>),
    /// Packets will come now.
    Go,
    /// No more packets come.
    Stop(Stop),
    /// What came of it there.
    #[serde(with = "json_value")]
    Outcome(Box<FarEnd>),
    /// How much of a session has come?
    Count {
        /// The session, or a trial of it.
        session: u32,
    },
    /// So much; also unasked for, where feedback was asked for.
    Tally(Tally),
    /// I am there.
    Alive,
    /// What time is it there?
    Ask {
        /// To know the answer by.
        number: u64,
    },
    /// It was so late when the question came, and when this was sent.
    Time {
        /// That of the question.
        number: u64,
        /// `CLOCK_MONOTONIC` when the question was read.
        monotonic_came_ns: u64,
        /// The same when this was written.
        monotonic_ns: u64,
        /// `CLOCK_REALTIME` when this was written.
        realtime_ns: u64,
    },
    /// That is all.
    Bye,
}

/// Reads and writes a part of a tagged message through [`serde_json::Value`], as result files are.
/// Otherwise the code for all types of the schema would be compiled twice.
mod json_value {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(super) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: DeserializeOwned,
    {
        serde_json::from_value(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    pub(super) fn serialize<S, T>(part: &T, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        T: Serialize,
    {
        let value = serde_json::to_value(part).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

impl Message {
    /// For errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a greeting",
            Self::Welcome(_) => "a welcome",
            Self::Proof(_) => "a proof",
            Self::Refused(_) => "a refusal",
            Self::Start(_) => "a start",
            Self::Ready(_) => "that it is ready",
            Self::Go => "a go",
            Self::Stop(_) => "a stop",
            Self::Outcome(_) => "a result",
            Self::Count { .. } => "a question about counts",
            Self::Tally(_) => "counts",
            Self::Alive => "a sign of life",
            Self::Ask { .. } => "a question about the time",
            Self::Time { .. } => "the time",
            Self::Bye => "a farewell",
        }
    }
}

/// [`Message::Hello`]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions that the client speaks, the best first.
    pub versions: Vec<u32>,
    /// Version of the tool, for people.
    pub tool_version: String,
    /// Drawn for this connection, in hexadecimal.
    pub nonce: String,
}

/// [`Message::Welcome`]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that is spoken from here on.
    pub version: u32,
    /// Version of the tool, for people.
    pub tool_version: String,
    /// Drawn for this connection, in hexadecimal.
    pub nonce: String,
    /// Both have to prove that they have the token.
    pub wants_token: bool,
}

/// [`Message::Proof`]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// HMAC-SHA256 of all that was said so far by the token, in hexadecimal; empty where there is none.
    pub proof: String,
}

/// [`Message::Refused`]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Refused {
    /// Words for people.
    pub why: String,
    /// What was done for the client and could not be undone: as [`FarEnd::left`], where there is no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// What the far end does with the packets of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Send probes back.
    Echo,
    /// Count them.
    Count,
    /// Be the far end of a turn of a comparison.
    Contest,
    /// Do something for a lab.
    Errand,
}

/// What the far end receives with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FarVia {
    /// XDP sockets.
    AfXdp,
    /// A UDP socket of the kernel's.
    Udp,
}

/// [`Message::Start`]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Number of the session, a multiple of [`SESSION_STEP`].
    pub session: u32,
    /// What to do.
    pub work: Work,
    /// With what; `None`: what the server prefers.
    pub via: Option<FarVia>,
    /// In which mode of AF_XDP; `None`: the best that there is.
    pub mode: Option<Mode>,
    /// Packets per second at the most; `None`: as many as go.
    pub rate_pps: Option<u64>,
    /// For so long; `None`: until [`Message::Stop`], or as long as the server allows.
    pub duration_ns: Option<u64>,
    /// Bytes of the longest packet, from the Ethernet header on, without check sequence.
    pub frame_bytes: u32,
    /// Where packets come from; `None`: from anywhere (by MAC address alone).
    pub from: Option<SocketAddr>,
    /// The far end's address that they go to; `None`: the one of this connection.
    pub to: Option<IpAddr>,
    /// How often to tell what has come; `None`: when asked.
    pub feedback_ns: Option<u64>,
    /// What has its turn, for [`Work::Contest`].
    #[serde(default)]
    pub contest: Option<ContestStart>,
    /// What is to be done, for [`Work::Errand`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errand: Option<Box<Errand>>,
    /// After so long without a word during the run each side takes the other for gone, up to [`MOST_SILENCE_NS`](super::MOST_SILENCE_NS); `None`:
    /// [`SILENCE_NS`](super::SILENCE_NS). A server that does not know of it keeps to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_ns: Option<u64>,
}

impl Start {
    /// As the server prefers it, for as long and as much as it allows, and from anywhere; packets of 0 bytes, which is yet
    /// to be set.
    #[must_use]
    pub fn new(session: u32, work: Work) -> Self {
        Self {
            session,
            work,
            via: None,
            mode: None,
            rate_pps: None,
            duration_ns: None,
            frame_bytes: 0,
            from: None,
            to: None,
            feedback_ns: None,
            contest: None,
            errand: None,
            silence_ns: None,
        }
    }

    /// Whether it takes long until the end is open, and both sides have to say meanwhile that they are there.
    pub(super) fn is_long(&self) -> bool {
        matches!(self.errand.as_deref(), Some(Errand::Guest(_)))
    }
}

/// A turn of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContestStart {
    /// `rx`, `tx`, `fwd` or `ping`, as the near end calls it.
    pub operation: String,
    /// Name of the variant.
    pub variant: String,
    /// The CPU that it runs on there.
    pub cpu: u32,
    /// How long to wait from the first packet on before anything is counted, in nanoseconds.
    pub settle_ns: u64,
    /// For how long to count. The far end does that by itself: a path that is full has no room for questions.
    pub slot_ns: u64,
    /// Whether AF_PACKET and AF_XDP wait for packets asleep; a far end that does not know of it spins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sleeps: bool,
    /// The session of probes of which the far end is to write down what its kernel sees; told in [`FarEnd::recorded`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<u32>,
}

/// [`Message::Ready`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// What receives there.
    pub via: FarVia,
    /// UDP port to send to.
    pub port: u16,
    /// Hardware address of the interface, where it is known.
    pub mac: Option<String>,
    /// For so long at the most.
    pub most_ns: u64,
    /// So many packets per second at the most are taken.
    pub most_pps: Option<u64>,
    /// Its clocks.
    pub clock: ClockFacts,
    /// Threads that spin there during the session.
    #[serde(default)]
    pub spinning_threads: u32,
    /// What it is there, and the modes obtained.
    pub far: FarEnd,
    /// What guests of a lab it may start, told with every [`Work::Errand`]; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestsAllowed>,
    /// The guest that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestUp>,
}

/// What is known of a host's clocks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockFacts {
    /// The same on two sides only if both read one `CLOCK_MONOTONIC`: the kernel's boot and the time namespace.
    pub identity: String,
    /// The kernel counts `CLOCK_REALTIME` as synchronised.
    pub is_synchronised: bool,
    /// How far it may be from true time then, by the kernel (`adjtimex()`, `maxerror`), in nanoseconds.
    pub most_error_ns: u64,
}

/// [`Message::Stop`]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stop {
    /// Packets that were sent.
    pub sent_packets: u64,
}

/// What has come of a session, or of a trial of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Which.
    pub session: u32,
    /// When, by the far end's `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Packets, each once.
    pub received_packets: u64,
    /// Bytes of all packets from the IP header on.
    pub ip_bytes: u64,
    /// Sent back.
    pub answered_packets: u64,
    /// Came once more.
    pub duplicated_packets: u64,
    /// Came after a later one.
    pub reordered_packets: u64,
    /// The highest sequence number, plus one.
    pub expected_packets: u64,
    /// Not taken, because there were more of them than the server allows.
    pub above_rate_packets: u64,
    /// The greatest delay since the last tally over the least of the session, in nanoseconds: what waits in queues. The clocks
    /// need not agree for that.
    pub delay_variation_ns: u64,
}
