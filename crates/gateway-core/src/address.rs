//! What names a tenant's port: the number of its network, and its address there.

use std::fmt;
use std::net::IpAddr;

/// The number of a tenant's network, 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "VXLAN network identifier")]
#[doc(alias = "virtual network identifier")]
pub struct Vni(u32);

impl Vni {
    /// The largest number there is.
    pub const MAX: Self = Self(0x00ff_ffff);

    /// None for numbers above 16,777,215.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// From its three bytes on the wire.
    #[must_use]
    pub const fn from_bytes([a, b, c]: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, a, b, c]))
    }

    /// As it stands on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }

    /// As a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An address in a tenant's network. The same address may live in many networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantAddress {
    /// The network.
    pub vni: Vni,
    /// The address in it.
    pub ip: IpAddr,
}

impl TenantAddress {
    /// An address in a network.
    #[must_use]
    pub const fn new(vni: Vni, ip: IpAddr) -> Self {
        Self { vni, ip }
    }
}

impl fmt::Display for TenantAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in network {}", self.ip, self.vni)
    }
}
