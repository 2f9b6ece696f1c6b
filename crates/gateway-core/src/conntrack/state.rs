//! What a connection can be, for how long without packets, and how many there may be.

use std::fmt;
use std::time::Duration;

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $seconds:literal, $rank:ident;)*) => {
        /// What a connection is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum State {
            $($(#[$doc])* $name,)*
        }

        impl State {
            /// All there are, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As labels of metrics and in lists: lower case, with dashes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// What it is worth when there is no room.
            #[must_use]
            pub const fn rank(self) -> Rank {
                match self {
                    $(Self::$name => Rank::$rank,)*
                }
            }
        }

        const DEFAULTS: [Duration; State::ALL.len()] = [$(Duration::from_secs($seconds),)*];
    };
}

/// What a connection is worth when there is no room: the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rank {
    /// Not answered, or, of TCP, not opened by both sides: anybody can make any number of these.
    Unreplied,
    /// At its end.
    Closing,
    /// All others.
    Established,
}

// The time-outs are those of Linux (net/netfilter/nf_conntrack_proto_*.c), where it has the state.
states! {
    /// TCP: one side has sent a SYN.
    SynSent = "syn-sent", 120, Unreplied;
    /// TCP: both sides have, and not both are acknowledged.
    SynReceived = "syn-received", 60, Unreplied;
    /// TCP: seen from its middle on, and one side only until now.
    PickedUp = "picked-up", 300, Unreplied;
    /// TCP: open.
    Established = "established", 432_000, Established;
    /// TCP: open, and a reset passed of which it cannot be told whether its receiver believes it. The next packet shows
    /// that it did not.
    ResetSeen = "reset-seen", 300, Closing;
    /// TCP: one side has sent its FIN.
    FinWait = "fin-wait", 120, Closing;
    /// TCP: which the other side has acknowledged, so the connection is half closed.
    CloseWait = "close-wait", 60, Closing;
    /// TCP: both sides have sent a FIN.
    LastAck = "last-ack", 30, Closing;
    /// TCP: both are acknowledged.
    TimeWait = "time-wait", 120, Closing;
    /// TCP: reset.
    Closed = "closed", 10, Closing;
    /// UDP: not answered.
    UdpUnreplied = "udp-unreplied", 30, Unreplied;
    /// UDP: both sides have sent.
    UdpReplied = "udp-replied", 120, Established;
    /// ICMP query: not answered.
    IcmpUnreplied = "icmp-unreplied", 30, Unreplied;
    /// ICMP query: answered.
    IcmpReplied = "icmp-replied", 30, Closing;
    /// Another protocol: one side has sent.
    OtherUnreplied = "other-unreplied", 600, Unreplied;
    /// Another protocol: both sides have sent.
    OtherReplied = "other-replied", 600, Established;
}

impl State {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// True if packets of both sides are expected to come for some time: such a connection may be in the fast path.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(
            self,
            Self::Established | Self::ResetSeen | Self::UdpReplied | Self::OtherReplied
        )
    }

    /// True if a connection in this state may be in the fast path, but only so many may
    /// ([`super::Conntrack::limit_brief`]): anybody can make any number of them.
    #[must_use]
    pub const fn is_brief(self) -> bool {
        matches!(self, Self::UdpUnreplied | Self::IcmpUnreplied | Self::IcmpReplied)
    }

    /// True if only the side that began it has sent.
    #[must_use]
    pub const fn is_one_way(self) -> bool {
        matches!(self, Self::UdpUnreplied | Self::IcmpUnreplied)
    }

    /// From its number.
    pub(super) fn from_byte(number: u8) -> Self {
        // Nothing else is ever written.
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Closed)
    }

    /// Where it stands in [`State::ALL`].
    pub(super) const fn at(self) -> usize {
        self as usize
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long a connection lives without packets, by its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts([Duration; State::COUNT]);

impl Default for Timeouts {
    fn default() -> Self {
        Self(DEFAULTS)
    }
}

impl Timeouts {
    /// The longest: times in a connection are kept in 32 bits.
    pub const MOST: Duration = Duration::from_secs(24 * 24 * 3600);

    /// How long a connection lives in this state.
    #[must_use]
    pub const fn of(&self, state: State) -> Duration {
        self.0[state.at()]
    }

    /// Sets how long; [`Timeouts::MOST`] at the most.
    pub fn set(&mut self, state: State, time: Duration) {
        self.0[state.at()] = time.min(Self::MOST);
    }
}

/// How many connections there may be, and what becomes of packets that are not the first of theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// In total. Memory for as many is taken at once: [`super::Conntrack::BYTES`] each, and a tenth more.
    pub connections: u32,
    /// In one network, unless [`super::Conntrack::limit_tenant`] says something else. One that has as many gives up one of
    /// its own that is not established for a new one, if it is among the oldest where the new one is kept; if none is,
    /// the new one is refused.
    pub per_tenant: u32,
    /// An established connection has to make room for a new one only after it has had no packet for so long. If there is
    /// none, the new one is refused: who fills the table with connections does not end those of others.
    pub idle: Duration,
    /// A TCP connection that is first seen in its middle becomes one, if rules allow its packet as the first. So it goes
    /// on after the gateway was started anew, or groups were bound to its address: what an operator expects who changes
    /// something. What is lost is that a sender without a handshake makes the table grow, but only by entries that are the
    /// first to be evicted, and that a receiver gets stray segments of ports that it opened to everybody anyway. Linux
    /// does so too.
    pub pick_up: bool,
    /// How long a connection lives without packets.
    pub timeouts: Timeouts,
}

impl Default for Limits {
    /// A million, half of them of one tenant, one that is idle for two minutes evicted, picked up in their middle.
    fn default() -> Self {
        Self {
            connections: 1_000_000,
            per_tenant: 500_000,
            idle: Duration::from_secs(120),
            pick_up: true,
            timeouts: Timeouts::default(),
        }
    }
}
