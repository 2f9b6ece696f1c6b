//! Keys and values of the maps, as gateway.h lays them out.
//!
//! Made of plain data field by field, in the machine's byte order where the C has no `__be`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{NonZeroU16, NonZeroU32};

/// Counted up with each change of what is here: `GATEWAY_LAYOUT`.
pub(super) const LAYOUT: u32 = 13;

/// What there can be of each in the settings.
pub(super) const MOST_PORTS: usize = 16;
pub(super) const MOST_ADDRESSES: usize = 16;
pub(super) const MOST_OPTIONS: usize = 16;
pub(super) const CONFIG_SLOTS: u32 = 8;
pub(super) const POLICY_SLOTS: u32 = 65536;
pub(super) const SAMPLE_LEN: usize = 288;

/// A tenant's address: its network's number, of 24 bits, and its IP address there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NeighborKey {
    /// The network.
    pub vni: u32,
    /// The address in it.
    pub ip: IpAddr,
}

/// How packets travel to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

/// Where a tenant's address lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedNeighbor {
    /// Its host.
    pub host: IpAddr,
    /// The MAC address of its host, or of the router on the way.
    pub host_mac: [u8; 6],
    /// Its own.
    pub mac: [u8; 6],
    /// The port on the way, by its place in [`GatewayConfig::ports`](super::GatewayConfig::ports).
    pub port: u8,
    /// What its host speaks. None: whatever the packet came in.
    pub tunnel: Option<Tunnel>,
    /// Rules are bound to it: only packets of known connections are sent on.
    pub policed: bool,
    /// Its network is another gateway's: packets to it are sent on, and counted
    /// ([`GatewayProgram::foreign`](super::GatewayProgram::foreign)).
    pub foreign: bool,
    /// Rules are bound to some address of its network: packets to it do not take the straight lane, which does not look at the
    /// sender. See [`GatewayConfig::marking`](super::GatewayConfig::marking).
    pub guarded: bool,
    /// The longest IP packet, in bytes, that gets to its host, if the way there takes less than the port may. What is longer goes to a
    /// worker, and the rest not by the straight lane.
    pub mtu: Option<NonZeroU16>,
    /// Until when that is believed, in seconds of CLOCK_MONOTONIC, if it ends by itself; the program does not look at it.
    pub mtu_until: Option<NonZeroU32>,
    /// The program has used it since it was put. Entries that stay unused are those to be removed first.
    pub used: bool,
}

/// The two ends of a tenant's connection. Packets of both directions have the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    vni: u32,
    /// Address and port, the lower one first; of one family.
    ends: [(IpAddr, u16); 2],
    protocol: u8,
}

impl ConnectionKey {
    /// Returns the key of packets between two ends, and whether they come from its higher end. For
    /// ICMP echoes the requester's port is the identifier, and the responder's is
    /// [`ECHO_PORT`](Self::ECHO_PORT).
    #[must_use]
    pub fn new(vni: u32, protocol: u8, source: (IpAddr, u16), destination: (IpAddr, u16)) -> (Self, bool) {
        let from_higher = source > destination;
        let ends = if from_higher {
            [destination, source]
        } else {
            [source, destination]
        };
        (Self { vni, ends, protocol }, from_higher)
    }

    /// The port of who answers echo requests.
    pub const ECHO_PORT: u16 = 8;

    /// The network.
    #[must_use]
    pub const fn vni(&self) -> u32 {
        self.vni
    }

    /// Returns the two ends, the lower one first.
    #[must_use]
    pub const fn ends(&self) -> [(IpAddr, u16); 2] {
        self.ends
    }

    /// The IP protocol: TCP, UDP, ICMP or ICMPv6. Nothing else is found.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }
}

/// A connection that was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedConnection {
    /// In which it was allowed. It is known as long as that is not less than [`GatewayConfig::generation`](super::GatewayConfig::generation)
    /// and its network's [`PolicySince`].
    pub generation: u64,
    /// When its last packet came, or it was put: CLOCK_MONOTONIC in nanoseconds, as exact as the kernel's tick.
    pub seen: u64,
    /// It is over so many milliseconds after its last packet.
    pub idle_ms: u32,
    /// Its first packet came from the higher end of its key.
    pub from_higher: bool,
    /// The other end has not answered: its packets go to a worker.
    pub one_way: bool,
    /// What the owner calls it; the program does not look at it.
    pub name: u64,
    /// TCP sequence state of both ends, which the program updates. It drops segments outside the
    /// window. None: the program checks nothing.
    pub numbers: Option<TcpNumbers>,
}

/// What the ends of a TCP connection have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpNumbers {
    /// Until then segments and acknowledgments may be up to 16 MiB ahead of these numbers, because
    /// workers may have sent some on: CLOCK_MONOTONIC in nanoseconds.
    pub exact_from: u64,
    /// Of the lower and of the higher end of the key.
    pub sides: [TcpSide; 2],
}

/// What one end of a TCP connection has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSide {
    /// One behind the last number that it has sent.
    pub end: u32,
    /// The last number that the other end has offered to take, and one more.
    pub limit: u32,
    /// The largest window that it has offered, not shifted.
    pub window: u16,
    /// The shift of its windows.
    pub scale: u8,
}

/// Where the program has it of a network since when its rules are as they are. Networks whose numbers differ by a multiple of
/// [`COUNT`](Self::COUNT) have the same: a change in one then costs the other's connections a look by a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicySlot(u32);

impl PolicySlot {
    /// How many there are.
    pub const COUNT: u32 = POLICY_SLOTS;

    /// Of a network.
    #[must_use]
    pub const fn of(vni: u32) -> Self {
        Self(vni % POLICY_SLOTS)
    }

    /// Which one, from 0 on.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Since which generation the rules of networks, and what they are bound to, are as they are. 0: nothing is bound to any of their
/// addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicySince(pub u64);

/// How long the data path goes on without its owner. Times are CLOCK_MONOTONIC in nanoseconds. It stays as it is in every
/// layout: a process of another version tells the program that it is about to replace to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lease {
    /// Until when packets are sent on and answered although their queue has no worker; then tenants' packets are dropped.
    pub until: u64,
    /// Nobody but an owner may make that later than this: the program does not look at it.
    pub longest: u64,
}

/// A key or value of a map. Nobody outside can name it: only the types in this file are.
pub trait Entry: Sized {
    /// Bytes.
    const LEN: usize;
    /// Adds them.
    fn write(&self, bytes: &mut Vec<u8>);
    /// None for bytes that nobody writes.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// Family in the upper 8 bits, VNI in the lower 24.
fn network(vni: u32, ip: IpAddr) -> [u8; 4] {
    let family = if ip.is_ipv4() { 4 } else { 6 };
    (family << 24 | vni & 0x00ff_ffff).to_ne_bytes()
}

/// Sixteen bytes: an address of IPv4 is in the first four.
pub(super) fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

pub(super) fn read_address(v6: bool, bytes: &[u8]) -> Option<IpAddr> {
    Some(if v6 {
        Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()
    } else {
        Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()
    })
}

pub(super) fn read_network(bytes: &[u8]) -> Option<(u32, bool)> {
    let network = word(bytes, 0)?;
    match network >> 24 {
        4 => Some((network & 0x00ff_ffff, false)),
        6 => Some((network & 0x00ff_ffff, true)),
        _ => None,
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

impl Entry for NeighborKey {
    const LEN: usize = 20;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(network(self.vni, self.ip));
        bytes.extend(address(self.ip));
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (vni, v6) = read_network(bytes)?;
        let ip = read_address(v6, bytes.get(4..)?)?;
        Some(Self { vni, ip })
    }
}

const POLICED: u8 = 1;
const HOST_IS_V6: u8 = 2;
const FOREIGN: u8 = 4;
const GUARDED: u8 = 8;
const LIMITED: u8 = 16;

impl Entry for CachedNeighbor {
    const LEN: usize = 40;

    fn write(&self, bytes: &mut Vec<u8>) {
        let policed = if self.policed { POLICED } else { 0 };
        let family = if self.host.is_ipv6() { HOST_IS_V6 } else { 0 };
        let foreign = if self.foreign { FOREIGN } else { 0 };
        let guarded = if self.guarded { GUARDED } else { 0 };
        let limited = if self.mtu.is_some() { LIMITED } else { 0 };
        let tunnel = match self.tunnel {
            None => 0,
            Some(Tunnel::Vxlan) => 1,
            Some(Tunnel::Geneve) => 2,
        };
        bytes.extend(address(self.host));
        bytes.extend(self.mac);
        bytes.extend([self.port, policed | family | foreign | guarded | limited]);
        bytes.extend(self.host_mac);
        bytes.extend([tunnel, self.used.into()]);
        bytes.extend(self.mtu.map_or(0, NonZeroU16::get).to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.mtu_until.map_or(0, NonZeroU32::get).to_ne_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (host, rest) = bytes.split_first_chunk::<16>()?;
        let (mac, rest) = rest.split_first_chunk::<6>()?;
        let (&[port, flags], rest) = rest.split_first_chunk::<2>()?;
        let (host_mac, rest) = rest.split_first_chunk::<6>()?;
        let (&[tunnel, used], rest) = rest.split_first_chunk::<2>()?;
        let mtu = NonZeroU16::new(u16::from_ne_bytes(*rest.first_chunk()?));
        let mtu_until = word(rest, 4).and_then(NonZeroU32::new);
        Some(Self {
            host: read_address(flags & HOST_IS_V6 != 0, host)?,
            host_mac: *host_mac,
            mac: *mac,
            port,
            tunnel: match tunnel {
                0 => None,
                1 => Some(Tunnel::Vxlan),
                2 => Some(Tunnel::Geneve),
                _ => return None,
            },
            policed: flags & POLICED != 0,
            foreign: flags & FOREIGN != 0,
            guarded: flags & GUARDED != 0,
            mtu: mtu.filter(|_| flags & LIMITED != 0),
            mtu_until,
            used: used != 0,
        })
    }
}

impl Entry for ConnectionKey {
    const LEN: usize = 44;

    fn write(&self, bytes: &mut Vec<u8>) {
        let [(lower, _), _] = self.ends;
        bytes.extend(network(self.vni, lower));
        for (ip, _) in self.ends {
            bytes.extend(address(ip));
        }
        for (_, port) in self.ends {
            bytes.extend(port.to_be_bytes());
        }
        bytes.extend([self.protocol, 0, 0, 0]);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (vni, v6) = read_network(bytes)?;
        let end = |ip: usize, port: usize| {
            let port = bytes.get(port..)?.first_chunk()?;
            Some((read_address(v6, bytes.get(ip..)?)?, u16::from_be_bytes(*port)))
        };
        Some(Self {
            vni,
            ends: [end(4, 36)?, end(20, 38)?],
            protocol: *bytes.get(40)?,
        })
    }
}

const FROM_HIGH: u8 = 1;
const ONE_WAY: u8 = 2;
const NUMBERED: u8 = 4;

impl Entry for CachedConnection {
    const LEN: usize = 64;

    fn write(&self, bytes: &mut Vec<u8>) {
        let from_higher = if self.from_higher { FROM_HIGH } else { 0 };
        let one_way = if self.one_way { ONE_WAY } else { 0 };
        bytes.extend(self.generation.to_ne_bytes());
        bytes.extend(self.seen.to_ne_bytes());
        bytes.extend(self.name.to_ne_bytes());
        bytes.extend(self.idle_ms.to_ne_bytes());
        let numbered = if self.numbers.is_some() { NUMBERED } else { 0 };
        bytes.extend([from_higher | one_way | numbered, 0, 0, 0]);
        let exact_from = self.numbers.map_or(0, |numbers| numbers.exact_from);
        bytes.extend(exact_from.to_ne_bytes());
        for number in 0..2 {
            let side = self.numbers.map(|numbers| numbers.sides[number]);
            bytes.extend(side.map_or([0; TcpSide::LEN], TcpSide::bytes));
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let flags = *bytes.get(28)?;
        Some(Self {
            generation: long(bytes, 0)?,
            seen: long(bytes, 8)?,
            name: long(bytes, 16)?,
            idle_ms: word(bytes, 24)?,
            from_higher: flags & FROM_HIGH != 0,
            one_way: flags & ONE_WAY != 0,
            numbers: match flags & NUMBERED {
                0 => None,
                _ => Some(TcpNumbers {
                    exact_from: long(bytes, 32)?,
                    sides: [TcpSide::read(bytes, 40)?, TcpSide::read(bytes, 52)?],
                }),
            },
        })
    }
}

impl TcpSide {
    const LEN: usize = 12;

    fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.end.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.limit.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.window.to_ne_bytes());
        bytes[10] = self.scale;
        bytes
    }

    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.get(at..)?.first_chunk()?;
        let [.., a, b, scale, _] = *bytes;
        Some(Self {
            end: word(bytes, 0)?,
            limit: word(bytes, 4)?,
            window: u16::from_ne_bytes([a, b]),
            scale,
        })
    }
}

impl Entry for PolicySlot {
    const LEN: usize = 4;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_ne_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        word(bytes, 0).map(Self)
    }
}

impl Entry for Lease {
    const LEN: usize = 16;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.until.to_ne_bytes());
        bytes.extend(self.longest.to_ne_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            until: long(bytes, 0)?,
            longest: long(bytes, 8)?,
        })
    }
}

impl Entry for PolicySince {
    const LEN: usize = 8;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_ne_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        long(bytes, 0).map(Self)
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
