//! Why packets are dropped: one reason each, the same numbers in the XDP program.

use std::fmt;

use crate::conntrack::Refused;
use crate::policy::Denied;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a packet was dropped. A packet has one reason, whoever drops it: workers or the XDP program, which
        /// count by these numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $name = $number,)*
        }

        impl DropReason {
            /// All there are, by number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As labels of metrics and in `trace`: lower case, with dashes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// A fragment of the outer packet: fragments are not put together here (RFC 7348 §4.3 lets a receiver discard them).
    OuterFragment = 1, "outer-fragment";
    /// Lengths of the outer headers contradict each other.
    OuterMalformed = 2, "outer-malformed";
    /// The outer packet has been on its way for too long: a loop, mostly.
    OuterTtl = 3, "outer-ttl";
    /// VXLAN without a valid network number.
    VxlanFlags = 4, "vxlan-flags";
    /// A version of Geneve that nobody knows.
    GeneveVersion = 5, "geneve-version";
    /// A message between Geneve endpoints, which is not to be handed on.
    GeneveControl = 6, "geneve-control";
    /// Geneve options that do not fill their length.
    GeneveMalformed = 7, "geneve-malformed";
    /// A critical Geneve option that is not known here.
    GeneveCritical = 8, "geneve-critical";
    /// Geneve that carries something other than Ethernet frames.
    GeneveProtocol = 9, "geneve-protocol";
    /// The tenant's frame is cut short, or its lengths contradict each other.
    InnerMalformed = 10, "inner-malformed";
    /// The tenant's frame is neither ARP nor IP.
    InnerProtocol = 11, "inner-protocol";
    /// The tenant's packet is for many: broadcast or multicast, which is not carried.
    InnerMulticast = 12, "inner-multicast";
    /// ARP that is no question about another address.
    ArpNotAsked = 13, "arp-not-asked";
    /// Neighbour discovery that is damaged or comes from a router away.
    DiscoveryMalformed = 14, "discovery-malformed";
    /// Neighbour discovery that is no question about another address.
    DiscoveryNotAsked = 15, "discovery-not-asked";
    /// The tenant's packet has been on its way for too long.
    InnerTtl = 16, "inner-ttl";
    /// Nobody is known by the tenant's destination.
    NoNeighbor = 17, "no-neighbor";
    /// The packet does not come from where its sender lives.
    WrongSource = 18, "wrong-source";
    /// The MAC address of the destination's host could not be found out.
    HostUnresolved = 19, "host-unresolved";
    /// Too many packets wait for the MAC address of a host.
    HostQueueFull = 20, "host-queue-full";
    /// Too big for the way to the host; its sender is told.
    TooBig = 21, "too-big";
    /// A frame with no room for other headers.
    NoRoom = 22, "no-room";
    /// A rule of the sender's address does not allow it.
    EgressDenied = 23, "egress-denied";
    /// No rule of the receiver's address allows it.
    IngressDenied = 24, "ingress-denied";
    /// Its connection was allowed once, and is no longer.
    NoLongerAllowed = 25, "no-longer-allowed";
    /// It belongs to no connection, and can begin none.
    NoConnection = 26, "no-connection";
    /// TCP flags that exclude each other.
    BadFlags = 27, "bad-flags";
    /// TCP numbers outside of what the sender may send.
    OutOfWindow = 28, "out-of-window";
    /// A TCP segment that cannot come at this point of its connection.
    OutOfState = 29, "out-of-state";
    /// An ICMP error about no connection.
    Unrelated = 30, "unrelated";
    /// A later fragment, of which the first was not seen.
    UnknownFragment = 31, "unknown-fragment";
    /// Source and destination are the same.
    SameEnds = 32, "same-ends";
    /// The tenant has as many connections as it may have.
    TenantConnections = 33, "tenant-connections";
    /// All room for connections is taken by established ones.
    TotalConnections = 34, "total-connections";
    /// It could not be made ready to be sent, or the link could not take it.
    TransmitFailed = 35, "transmit-failed";
    /// The gateway is being drained.
    Draining = 36, "draining";
    /// Rules that nobody knows are bound to one of the two addresses: none of them allow it.
    UnknownProfile = 37, "unknown-profile";
    /// A worker would have to decide about it, and none serves the queue that it came on, or does so any more.
    NoWorker = 38, "no-worker";
    /// A worker would have to decide about it, and as many wait for that worker as there is room for.
    WorkerBusy = 39, "worker-busy";
    /// Nothing is known of its sender's address, in a network where rules are bound to some.
    UnknownSender = 40, "unknown-sender";
    /// A worker has it, and it is not the gateway's: what that is has changed since the XDP program looked.
    NotOurs = 41, "not-ours";
    /// The gateway has known nothing for sure of the tenants' state for longer than its operator allows.
    Stale = 42, "stale";
    /// The XDP program had sent it on or answered it, and the kernel could not: it is counted as that, too.
    TransmitLost = 43, "transmit-lost";
    /// It would leave with new headers, and an outer checksum is wrong: of the IPv4 header, or UDP's.
    OuterDamaged = 44, "outer-damaged";
    /// It would begin a connection or change one's state, and one of the tenant's checksums is wrong:
    /// that of IPv4's header, TCP, UDP or ICMP.
    InnerDamaged = 45, "inner-damaged";
}

impl DropReason {
    /// The number in counters of the XDP program.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// It was found out after the packet had been counted as something else.
    #[must_use]
    pub const fn is_afterwards(self) -> bool {
        matches!(self, Self::TransmitLost)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is counted for what the firewall says.
impl From<Refused> for DropReason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Denied(Denied::Egress) => Self::EgressDenied,
            Refused::Denied(Denied::Ingress) => Self::IngressDenied,
            Refused::Denied(Denied::UnknownProfile) => Self::UnknownProfile,
            Refused::NoLongerAllowed(_) => Self::NoLongerAllowed,
            Refused::Damaged => Self::InnerDamaged,
            Refused::NoConnection => Self::NoConnection,
            Refused::BadFlags => Self::BadFlags,
            Refused::OutOfWindow => Self::OutOfWindow,
            Refused::OutOfState => Self::OutOfState,
            Refused::Unrelated => Self::Unrelated,
            Refused::UnknownFragment => Self::UnknownFragment,
            Refused::SameEnds => Self::SameEnds,
            Refused::TenantFull => Self::TenantConnections,
            Refused::TableFull => Self::TotalConnections,
            Refused::Draining => Self::Draining,
        }
    }
}
