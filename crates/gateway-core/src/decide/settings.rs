//! What decisions go by, besides the tables.

use std::net::IpAddr;

use ringside_wire::MacAddr;

use crate::Underlay;
use crate::table::Host;

/// What holds for all packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which packets are the gateway's.
    pub underlay: Underlay,
    /// The ports that packets leave by, by their numbers ([`Host::port`]).
    pub ports: Vec<PortSettings>,
    /// Drop packets that do not come from the host where their sender lives, with the MAC address that it has there.
    pub source_check: bool,
    /// Choose the outer UDP source port by the tenant's flow, instead of keeping what the sender chose.
    pub derive_source_port: bool,
    /// Time to live of packets with new outer headers.
    pub ttl: u8,
    /// ICMP errors a second to the tenants of one network, of one worker, at the most. All networks have ten times as many together;
    /// where others have taken those, each still has a tenth of its own. Networks whose numbers differ by a multiple of 1024 share.
    pub errors_per_second: u32,
}

/// One of the gateway's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSettings {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its address for hosts of IPv4.
    pub v4: Option<std::net::Ipv4Addr>,
    /// Its address for hosts of IPv6.
    pub v6: Option<std::net::Ipv6Addr>,
    /// Longest IP packet that it sends, in bytes.
    pub mtu: u16,
}

impl Settings {
    /// The number of the port on the way to a host: there may be but one.
    #[must_use]
    pub fn port_to(&self, host: &Host) -> Option<u8> {
        host.port.or((self.ports.len() == 1).then_some(0))
    }
}

impl PortSettings {
    pub(super) fn address_for(&self, host: IpAddr) -> Option<IpAddr> {
        match host {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}
