//! The settings that the program works by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::{MOST_ADDRESSES, MOST_OPTIONS, MOST_PORTS, address};

/// Of an IPv4 header without options.
const IPV4_HEADER: u32 = 20;
/// `NO_WITNESS`.
pub(super) const NO_WITNESS: u32 = u32::MAX;
/// Ethernet headers are not counted in an MTU, and offsets of 16 bits end here.
const MOST_MTU: u16 = u16::MAX - 14;

/// What the program goes by. Without addresses, as it is loaded, every packet is the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatewayConfig {
    /// Connections that were put with a lower number are judged anew by a worker, whatever their network's is.
    pub generation: u64,
    /// Not all neighbours are [`guarded`](super::CachedNeighbor::guarded) yet that have to be: no packet takes the straight lane
    /// meanwhile, which goes by that alone.
    pub marking: bool,
    /// Only send on what comes from the host where its sender lives, with the sender's MAC address.
    pub source_check: bool,
    /// Follow the numbers of TCP connections that have
    /// [some](super::CachedConnection::numbers), and drop segments out of the window.
    pub check_windows: bool,
    /// What is known of tenants is too old to go by: all packets of theirs are dropped.
    pub stale: bool,
    /// Choose the outer UDP source port by the tenant's flow, instead of keeping what the sender chose.
    pub derive_source_port: bool,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// UDP port of Geneve.
    pub geneve_port: u16,
    /// The gateway's own: what hosts send to. 16 of each family at the most.
    pub addresses: Vec<IpAddr>,
    /// Geneve options (class, type) that may be critical. 16 at the most.
    pub known_options: Vec<(u16, u8)>,
    /// Time to live of answers.
    pub ttl: u8,
    /// Where packets come from and leave by; 16 at the most. None keeps a place free.
    pub ports: Vec<Option<GatewayPort>>,
    /// Of so many packets to receivers without rules, by chance, one is told to [`Flows`](super::Flows). 0: none. A power of
    /// two, or it is made one.
    pub one_in: u32,
    /// Which packets are shown to [`Samples`](super::Samples). None, usually: that costs one branch.
    pub sampling: Option<Sampling>,
}

/// One of the gateway's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayPort {
    /// The interface's index, in the network namespace of whoever configures.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its address for hosts of IPv4.
    pub v4: Option<Ipv4Addr>,
    /// Its address for hosts of IPv6.
    pub v6: Option<Ipv6Addr>,
    /// Longest IP packet that it sends, in bytes.
    pub mtu: u16,
}

/// Which packets are shown. All, unless something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampling {
    /// Only those of this network.
    pub vni: Option<u32>,
    /// Only those from or to this address, and questions by or for it.
    pub ip: Option<IpAddr>,
    /// Only those that are dropped.
    pub drops: Option<Drops>,
}

/// Which packets that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drops {
    /// All of them.
    Any,
    /// For the reason of this number, from 1 to 63: see `DropReason` of `ringside-gateway-core`.
    For(u8),
}

/// `ANY_DROP` of gateway.h.
pub(super) const ANY_DROP: u8 = 255;

impl GatewayConfig {
    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), String> {
        let of_v4 = self.addresses.iter().filter(|address| address.is_ipv4()).count();
        let of_v6 = self.addresses.len() - of_v4;
        for (what, count, most) in [
            ("own IPv4 addresses", of_v4, MOST_ADDRESSES),
            ("own IPv6 addresses", of_v6, MOST_ADDRESSES),
            ("known Geneve options", self.known_options.len(), MOST_OPTIONS),
            ("ports", self.ports.len(), MOST_PORTS),
        ] {
            if count > most {
                return Err(format!("{count} {what}: {most} are the most"));
            }
        }
        if self.ports.iter().flatten().any(|port| port.ifindex == 0) {
            return Err("a port of interface 0: indices begin with 1".to_owned());
        }
        Ok(())
    }

    /// The place of the first port's first worker, whose socket says that the owner lives; [`NO_WITNESS`] if packets may not
    /// take the straight lane, which knows no other flags than `check_windows`, no samples, and
    /// nothing but IPv4.
    fn witness(&self, queues: u32) -> u32 {
        let is_plain =
            !self.marking && !self.source_check && !self.stale && !self.derive_source_port && self.sampling.is_none();
        let place = self.ports.iter().position(Option::is_some);
        match place.and_then(|place| u32::try_from(place).ok()) {
            Some(place) if is_plain && self.addresses.iter().any(IpAddr::is_ipv4) => place * queues,
            _ => NO_WITNESS,
        }
    }

    /// `struct config` of gateway.h, for ports of so many queues, in the network namespace of this inode.
    pub(super) fn bytes(&self, queues: u32, namespace: u32) -> Vec<u8> {
        let flags = u32::from(self.source_check) << 1
            | u32::from(self.derive_source_port) << 2
            | u32::from(self.stale) << 3
            | u32::from(self.check_windows) << 4;
        let addresses = |v6| self.addresses.iter().filter(move |address| address.is_ipv6() == v6);
        let count = |count: usize| u32::try_from(count).unwrap_or(0).to_ne_bytes();
        let mut bytes = Vec::with_capacity(Self::LEN);
        bytes.extend(self.generation.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(self.vxlan_port.to_be_bytes());
        bytes.extend(self.geneve_port.to_be_bytes());
        bytes.extend(count(addresses(false).count()));
        bytes.extend(count(addresses(true).count()));
        bytes.extend(count(self.known_options.len()));
        bytes.extend(u32::from(self.ttl).to_ne_bytes());
        let one_in = self.one_in.checked_next_power_of_two().unwrap_or(1 << 31);
        bytes.extend(if self.one_in == 0 { 0 } else { one_in }.to_ne_bytes());
        bytes.extend(self.witness(queues).to_ne_bytes());
        let vxlan_plain = (u32::from(self.vxlan_port) << 16).wrapping_sub(IPV4_HEADER);
        bytes.extend(vxlan_plain.to_ne_bytes());
        bytes.extend(namespace.to_ne_bytes());
        fill(&mut bytes, 4 * MOST_ADDRESSES, |bytes| {
            bytes.extend(addresses(false).flat_map(|&ip| address(ip)[..4].to_vec()));
        });
        fill(&mut bytes, 16 * MOST_ADDRESSES, |bytes| {
            bytes.extend(addresses(true).flat_map(|&ip| address(ip)));
        });
        fill(&mut bytes, 4 * MOST_OPTIONS, |bytes| {
            for (class, kind) in &self.known_options {
                let [high, low] = class.to_be_bytes();
                bytes.extend([high, low, *kind, 0]);
            }
        });
        self.write_sampling(&mut bytes);
        fill(&mut bytes, GatewayPort::LEN * MOST_PORTS, |bytes| {
            for port in &self.ports {
                bytes.extend(port.map_or([0; GatewayPort::LEN], |port| port.bytes()));
            }
        });
        // The struct is as aligned as its first field.
        bytes.resize(Self::LEN, 0);
        bytes
    }

    pub(super) const LEN: usize = 48 + 20 * MOST_ADDRESSES + 4 * MOST_OPTIONS + 24 + GatewayPort::LEN * MOST_PORTS;

    fn write_sampling(&self, bytes: &mut Vec<u8>) {
        let Sampling { vni, ip, drops } = self.sampling.unwrap_or_default();
        let drops = match drops {
            None => 0,
            Some(Drops::Any) => ANY_DROP,
            Some(Drops::For(reason)) => reason,
        };
        let family = ip.map_or(0, |ip| if ip.is_ipv4() { 4 } else { 6 });
        bytes.extend([self.sampling.is_some().into(), vni.is_some().into(), family, drops]);
        bytes.extend(vni.unwrap_or(0).to_ne_bytes());
        bytes.extend(ip.map_or([0; 16], address));
    }
}

impl GatewayPort {
    const LEN: usize = 32;

    /// `struct port`.
    fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&self.mtu.min(MOST_MTU).to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.ifindex.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.v4.map_or([0; 4], |ip| ip.octets()));
        bytes[16..].copy_from_slice(&self.v6.map_or([0; 16], |ip| ip.octets()));
        bytes
    }
}

/// Adds `len` bytes: what `write` writes, and zeros.
fn fill(bytes: &mut Vec<u8>, len: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let end = bytes.len() + len;
    write(bytes);
    bytes.resize(end, 0);
}
