//! The keys of the fleet's state, below a prefix: schema 1.
//!
//! ```text
//! PREFIX v1/fleet                          what this is, and a number that names it
//!        v1/migration                      only while something is brought there from a file
//!        v1/clock                          the fleet's time, in seconds; digits
//!        v1/groups/ID                      a security group
//!        v1/ports/VNI/BLOCK                ports of 16 addresses
//!        v1/neighbors/VNI/BLOCK            neighbours at 16 addresses
//!        v1/gateways/ID                    a gateway that takes part, under its lease
//!        v1/shards/map                     which of them owns which shard
//! ```
//! Numbers are hexadecimal with all their digits, so that keys have the order of what they name. BLOCK is an address without
//! its last four bits: 7 digits of IPv4, 31 of IPv6.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::{TenantAddress, Vni};

/// Bits of an address that its block leaves open.
const OPEN: u32 = 4;
/// Addresses of a block.
pub const ADDRESSES: u8 = 1 << OPEN;

/// Addresses of a network that lie beside each other, and share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    vni: Vni,
    /// Its open bits are 0.
    first: IpAddr,
}

impl Hash for Block {
    /// In one step where it can be: a list hashes each of its keys.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let vni = u64::from(self.vni.number());
        match self.first {
            IpAddr::V4(ip) => state.write_u64(vni << 32 | u64::from(ip.to_bits())),
            IpAddr::V6(ip) => {
                state.write_u64(vni);
                state.write_u128(ip.to_bits());
            }
        }
    }
}

impl Block {
    /// The one of an address, and which one of its addresses that is.
    #[must_use]
    pub fn of(address: TenantAddress) -> (Self, u8) {
        let (first, low) = match address.ip {
            IpAddr::V4(ip) => {
                let [.., low] = ip.octets();
                (IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() >> OPEN << OPEN)), low)
            }
            IpAddr::V6(ip) => {
                let [.., low] = ip.octets();
                (IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> OPEN << OPEN)), low)
            }
        };
        let block = Self {
            vni: address.vni,
            first,
        };
        (block, low % ADDRESSES)
    }

    /// One of its addresses.
    #[must_use]
    pub fn address(self, low: u8) -> TenantAddress {
        let ip = match self.first {
            IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() | u32::from(low % ADDRESSES)).into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() | u128::from(low % ADDRESSES)).into(),
        };
        TenantAddress::new(self.vni, ip)
    }

    /// All of them, in their order.
    pub(crate) fn addresses(self) -> [TenantAddress; ADDRESSES as usize] {
        std::array::from_fn(|low| self.address(u8::try_from(low).unwrap_or(0)))
    }

    fn parse(text: &str) -> Option<Self> {
        let (vni, block) = text.split_once('/')?;
        let vni = Vni::new(hex(vni, 6)?.try_into().ok()?)?;
        let first = match block.len() {
            7 => Ipv4Addr::from_bits(u32::try_from(hex(block, 7)?).ok()? << OPEN).into(),
            _ => Ipv6Addr::from_bits(hex(block, 31)? << OPEN).into(),
        };
        Some(Self { vni, first })
    }
}

/// A number of so many lower case digits, and no other way to write it.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut all = text.bytes();
    (text.len() == digits)
        .then(|| all.try_fold(0, |number, byte| Some(number << 4 | u128::from(digit(byte)?))))
        .flatten()
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}/", self.vni.number())?;
        match self.first {
            IpAddr::V4(ip) => write!(f, "{:07x}", ip.to_bits() >> OPEN),
            IpAddr::V6(ip) => write!(f, "{:031x}", ip.to_bits() >> OPEN),
        }
    }
}

/// What a key names. In this order things come into the tables: no neighbour is there without what is bound to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A security group.
    Group(GroupId),
    /// Ports.
    Ports(Block),
    /// Neighbours.
    Neighbors(Block),
}

/// What keys of a kind begin with, in the order of [`Key`].
pub(crate) const KINDS: [&str; 3] = ["v1/groups/", "v1/ports/", "v1/neighbors/"];
/// What all keys begin with.
pub(crate) const SCHEMA: &str = "v1/";
/// The one that says what this is.
pub(crate) const FLEET: &str = "v1/fleet";
/// There while what is here is not all yet that is to be brought here from a file.
pub(crate) const MIGRATION: &str = "v1/migration";
/// What time it is.
pub(crate) const CLOCK: &str = "v1/clock";
/// What keys of gateways begin with; a number of 16 digits follows.
pub(crate) const GATEWAYS: &str = "v1/gateways/";
/// Who owns which shard.
pub(crate) const SHARD_MAP: &str = "v1/shards/map";

impl Key {
    /// From what stands behind the prefix; None if that is none of these.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let [groups, ports, neighbors] = KINDS;
        if let Some(id) = text.strip_prefix(groups) {
            return Some(Self::Group(GroupId(hex(id, 8)?.try_into().ok()?)));
        }
        if let Some(block) = text.strip_prefix(ports) {
            return Block::parse(block).map(Self::Ports);
        }
        Block::parse(text.strip_prefix(neighbors)?).map(Self::Neighbors)
    }
}

impl Key {
    /// What it begins with behind the prefix.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        let [groups, ports, neighbors] = KINDS;
        match self {
            Self::Group(_) => groups,
            Self::Ports(_) => ports,
            Self::Neighbors(_) => neighbors,
        }
    }

    /// What its value is about, for people.
    #[must_use]
    pub fn objects(self) -> String {
        let (what, block) = match self {
            Self::Group(id) => return format!("security group {}", id.0),
            Self::Ports(block) => ("ports", block),
            Self::Neighbors(block) => ("neighbours", block),
        };
        let last = block.address(ADDRESSES - 1).ip;
        format!("{what} of network {}, {} to {last}", block.vni.number(), block.first)
    }

    /// The number of the network that it is of. None: of no one.
    #[must_use]
    pub const fn network(self) -> Option<u32> {
        match self {
            Self::Group(_) => None,
            Self::Ports(block) | Self::Neighbors(block) => Some(block.vni.number()),
        }
    }
}

impl fmt::Display for Key {
    /// As it stands behind the prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [groups, ports, neighbors] = KINDS;
        match self {
            Self::Group(id) => write!(f, "{groups}{:08x}", id.0),
            Self::Ports(block) => write!(f, "{ports}{block}"),
            Self::Neighbors(block) => write!(f, "{neighbors}{block}"),
        }
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
