//! A connection: its name, what is told of it, and what is known of it.

use std::net::IpAddr;

use ringside_wire::Protocol;
use ringside_wire::icmp::v6;

use super::key::{From, Key};
use super::state::State;
use super::tcp::Tcp;
use crate::policy::{ProfileId, Subject};
use crate::{TenantAddress, Vni};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Names a connection for as long as it lives, also in the maps of the fast path. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(u64);

const SLOT_BITS: u32 = 22;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

impl ConnectionId {
    /// Entries that a stripe can have.
    pub(super) const MOST_SLOTS: usize = 1 << SLOT_BITS;
    /// Stripes that there can be.
    pub(super) const MOST_STRIPES: usize = 1 << (32 - SLOT_BITS);

    pub(super) fn new(stripe: usize, slot: u32, serial: u32) -> Self {
        Self((stripe as u64) << (32 + SLOT_BITS) | u64::from(slot) << 32 | u64::from(serial))
    }

    /// Stripe, slot, serial number.
    #[allow(clippy::cast_possible_truncation, reason = "as many bits as it was put together of")]
    pub(super) fn parts(self) -> (usize, u32, u32) {
        let slot = (self.0 >> 32 & SLOT_MASK) as u32;
        ((self.0 >> (32 + SLOT_BITS)) as usize, slot, self.0 as u32)
    }

    /// As a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From [`ConnectionId::to_bits`]; any other number names a connection that is gone, or another.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A connection, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Its network.
    pub vni: Vni,
    /// Who began it.
    pub source: IpAddr,
    /// With whom.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: Protocol,
    /// The source's and the destination's port. A query has its identifier, and 8 if it is an echo, 13 if it asks for the
    /// time; other protocols have two zeros.
    pub ports: [u16; 2],
    /// What it is.
    pub state: State,
    /// When it had a packet last, in nanoseconds.
    pub seen: u64,
    /// The profiles of source and destination when it was allowed last.
    pub profiles: [Option<ProfileId>; 2],
    /// In which generation of the policy that was.
    pub generation: u64,
    /// It is in the fast path.
    pub handed_over: bool,
    /// Its name.
    pub id: ConnectionId,
}

impl Connection {
    /// The addresses of who began it, and of the other side.
    #[must_use]
    pub const fn ends(&self) -> [TenantAddress; 2] {
        [
            TenantAddress::new(self.vni, self.source),
            TenantAddress::new(self.vni, self.destination),
        ]
    }
}

/// A connection, taken out of its place to be worked on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) state: State,
    pub(super) marks: u8,
    pub(super) seen: u64,
    pub(super) generation: u64,
    pub(super) profiles: [Option<ProfileId>; 2],
    pub(super) tcp: Tcp,
}

/// Its source is the higher end of the key.
pub(super) const FROM_HIGHER: u8 = 1;
/// It is in the fast path.
pub(super) const HANDED_OVER: u8 = 2;
/// Of other protocols than TCP: begun by an answer, and who asked has said nothing here yet.
pub(super) const ONLY_ANSWERS: u8 = 4;

impl Entry {
    /// True if it is in the fast path, and one of those of which only so many may be there.
    pub(super) fn is_carried_brief(&self) -> bool {
        self.marks & HANDED_OVER != 0 && self.state.is_brief()
    }

    /// True if the fast path has it, and may know numbers of TCP of it.
    pub(super) fn is_followed(&self) -> bool {
        self.marks & HANDED_OVER != 0 && self.key.protocol() == Protocol::TCP
    }

    /// The end that began it.
    pub(super) fn origin(&self) -> From {
        if self.marks & FROM_HIGHER != 0 {
            From::Higher
        } else {
            From::Lower
        }
    }

    /// What the rules were asked about when it began.
    pub(super) fn subject(&self) -> Subject {
        let (source, _) = self.key.end(self.origin());
        let (destination, service) = self.key.end(self.origin().other());
        let protocol = self.key.protocol();
        let service = match protocol {
            // The kind of a query is its type in ICMP.
            Protocol::ICMP => service << 8,
            Protocol::ICMPV6 => u16::from_be_bytes([v6::ECHO_REQUEST, 0]),
            _ => service,
        };
        Subject {
            source,
            destination,
            protocol,
            service,
        }
    }

    pub(super) fn tell(&self, id: ConnectionId) -> Connection {
        let (source, port) = self.key.end(self.origin());
        let (destination, other) = self.key.end(self.origin().other());
        Connection {
            vni: self.key.vni(),
            source,
            destination,
            protocol: self.key.protocol(),
            ports: [port, other],
            state: self.state,
            seen: self.seen,
            profiles: self.profiles,
            generation: self.generation,
            handed_over: self.marks & HANDED_OVER != 0,
            id,
        }
    }
}
