//! What a connection is found by: the same from both of its directions.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr};

use foldhash::quality::RandomState;
use ringside_wire::Protocol;

use crate::Vni;
use crate::flow::{Ends, Query, QueryKind};
use crate::words::{long_halves, long_joined};

/// Network, protocol, and the two ends, the lower one first.
///
/// ```text
///  ┌──────────────┬───────────────┬──────────────────────────────────────────────────────┐
///  │ lower address│ higher address│ VNI 24 · protocol 8 · lower's port 16 · higher's 16  │
///  └──────────────┴───────────────┴──────────────────────────────────────────────────────┘
/// ```
/// IPv4 addresses stand as `::ffff:a.b.c.d`, which `Flow::parse` does not let in from the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key([u64; 5]);

/// One end of a connection.
type End = (u128, u16);

/// Which of the two ends something comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Lower,
    Higher,
}

impl Key {
    /// None if both ends are the same: from itself to itself, nothing comes to a gateway.
    pub(super) fn new(
        vni: Vni,
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        ends: Ends,
    ) -> Option<(Self, From)> {
        let [source_port, destination_port] = ports(ends);
        let source: End = (number(source), source_port);
        let destination: End = (number(destination), destination_port);
        let (lower, higher, from) = match source.cmp(&destination) {
            std::cmp::Ordering::Less => (source, destination, From::Lower),
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Greater => (destination, source, From::Higher),
        };
        let rest = u64::from(vni.number()) << 40
            | u64::from(protocol.0) << 32
            | u64::from(lower.1) << 16
            | u64::from(higher.1);
        let [a, b] = long_halves(lower.0);
        let [c, d] = long_halves(higher.0);
        Some((Self([a, b, c, d, rest]), from))
    }

    pub(super) const fn words(&self) -> &[u64; 5] {
        &self.0
    }

    pub(super) const fn from_words(words: [u64; 5]) -> Self {
        Self(words)
    }

    /// By the better of the two kinds: the faster one spreads keys that differ in a port only unevenly, in one process of
    /// a few hundred.
    pub(super) fn hash(&self, random: &RandomState) -> u64 {
        let mut hasher = random.build_hasher();
        for word in self.0 {
            hasher.write_u64(word);
        }
        hasher.finish()
    }

    pub(super) fn vni(&self) -> Vni {
        let [a, b, c, ..] = self.0[4].to_be_bytes();
        Vni::from_bytes([a, b, c])
    }

    pub(super) fn protocol(&self) -> Protocol {
        let [_, _, _, protocol, ..] = self.0[4].to_be_bytes();
        Protocol(protocol)
    }

    /// Address and port of one end.
    pub(super) fn end(&self, from: From) -> (IpAddr, u16) {
        let [_, _, _, _, a, b, c, d] = self.0[4].to_be_bytes();
        let (ip, port) = match from {
            From::Lower => ([self.0[0], self.0[1]], [a, b]),
            From::Higher => ([self.0[2], self.0[3]], [c, d]),
        };
        let ip = Ipv6Addr::from(long_joined(ip));
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        (ip, u16::from_be_bytes(port))
    }
}

impl From {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Lower => Self::Higher,
            Self::Higher => Self::Lower,
        }
    }
}

/// Who asks has the question's number for a port, who answers the kind: so two who ask each other under one number have
/// two conversations. They could only be one if that number is the kind's, 8 or 13; then who asks first is the asker.
fn ports(ends: Ends) -> [u16; 2] {
    match ends {
        Ends::Ports(ports) => ports,
        Ends::Query(Query { kind, identifier, asks }) => {
            let kind = match kind {
                QueryKind::Echo => 8,
                QueryKind::Time => 13,
            };
            if asks { [identifier, kind] } else { [kind, identifier] }
        }
        Ends::None => [0, 0],
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
        IpAddr::V6(ip) => ip.into(),
    }
}
