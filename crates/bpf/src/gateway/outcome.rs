//! What became of packets, as the program counts and samples it.

/// What became of a packet in the XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Dropped, for the reason of this number: see `DropReason` of `ringside-gateway-core`.
    Dropped(u8),
    /// The kernel's.
    Passed,
    /// Sent on by the port that it came from.
    Forwarded,
    /// Sent on by another port.
    Redirected,
    /// It was a question, and was answered in place.
    Answered,
    /// A worker's to decide about.
    Slow(SlowCause),
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a worker has to decide about a packet.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum SlowCause {
            $($(#[$doc])* $name = $number,)*
        }

        impl SlowCause {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As labels of metrics: lower case, with dashes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

causes! {
    /// Its receiver is not in the cache.
    Miss = 72, "miss";
    /// Its sender is not in the cache, where rules are bound to any address or senders are checked; or it is checked, and does not
    /// live where the packet comes from.
    Sender = 73, "sender";
    /// Rules are bound to one of its ends, and it is not plain data of a connection that is known here.
    Policed = 74, "policed";
    /// ARP or neighbour discovery that is not answered in place.
    Question = 75, "question";
    /// The port to its host is not there, or has no address of the family.
    Route = 76, "route";
    /// Its host speaks another encapsulation, or another version of IP.
    Encapsulation = 77, "encapsulation";
    /// Longer than the port's MTU.
    TooLong = 78, "too-long";
    /// One of its times to live ends here.
    Ttl = 79, "ttl";
    /// It may have a checksum that its sender's kernel left to a NIC.
    Checksum = 80, "checksum";
    /// IPv6 extension headers, a transport header cut short, or headers outside of the packet's first buffer.
    Headers = 81, "headers";
}

/// Places of counters: `enum outcome` in gateway.h.
const PASSED: u32 = 64;
const FORWARDED: u32 = 65;
const REDIRECTED: u32 = 66;
const ANSWERED: u32 = 67;
/// Among the reasons.
pub(super) const TRANSMIT_LOST: u8 = 43;
pub(super) const SAMPLES_LOST: u32 = 90;
pub(super) const FOREIGN_PACKETS: u32 = 91;
/// Reasons have numbers below.
const MOST_REASONS: u8 = 64;

impl Outcome {
    /// All that there can be: 63 reasons, of which not all are used, and the others.
    pub fn all() -> impl Iterator<Item = Self> {
        let causes = SlowCause::ALL.iter().map(|&cause| Self::Slow(cause));
        (1..MOST_REASONS)
            .map(Self::Dropped)
            .chain([Self::Passed, Self::Forwarded, Self::Redirected, Self::Answered])
            .chain(causes)
    }

    pub(super) fn number(self) -> u32 {
        match self {
            Self::Dropped(reason) => reason.into(),
            Self::Passed => PASSED,
            Self::Forwarded => FORWARDED,
            Self::Redirected => REDIRECTED,
            Self::Answered => ANSWERED,
            Self::Slow(cause) => cause as u32,
        }
    }

    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|outcome| outcome.number() == number)
    }
}
