//! Keys and values of the maps, as gateway.h lays them out.
//!
//! Made of plain data field by field, in the machine's byte order where the C has no `__be`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{NonZeroU16, NonZeroU32};

/// Counted up with each change of what is here: `GATEWAY_LAYOUT`.
pub(super) const LAYOUT: u32 = 16;

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
    /// Since which generation they follow each segment. The program checks nothing by numbers that
    /// are older than [`PolicySince::followed_since`].
    pub since: u64,
    /// False while workers may still have segments that are not in these numbers: segments that are
    /// ahead pass, and move no bounds. See [`Amendment`].
    pub settled: bool,
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

/// Since which generations the fast path takes connections of networks as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicySince {
    /// The rules, and what they are bound to, are as they are. 0: nothing is bound to any address.
    pub since: u64,
    /// The program follows the numbers of TCP without a gap.
    pub followed_since: u64,
}

impl PolicySince {
    /// Nothing is bound to any address.
    pub const NONE: Self = Self::first(0);

    /// Returns that rules are bound from a generation on, and were not before.
    #[must_use]
    pub const fn first(generation: u64) -> Self {
        Self {
            since: generation,
            followed_since: generation,
        }
    }

    /// Returns what follows when rules change in a generation: numbers are followed on.
    #[must_use]
    pub const fn then(self, generation: u64) -> Self {
        match self.since {
            0 => Self::first(generation),
            _ => Self {
                since: generation,
                ..self
            },
        }
    }
}

/// A change of a connection in the cache that keeps what packets change at the same time.
///
/// Numbers of a connection that workers had are settled in two steps. [`Merge`](Self::Merge) adds
/// what workers have followed since it was put. Then each segment that fits is within the numbers.
/// [`Settle`](Self::Settle) follows when no packet is under way that came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amendment {
    /// It was allowed again.
    Renew {
        /// [`CachedConnection::name`] from now on.
        name: u64,
        /// [`CachedConnection::generation`].
        generation: u64,
        /// [`CachedConnection::seen`], if it is later than what is there.
        seen: u64,
        /// [`CachedConnection::idle_ms`].
        idle_ms: u32,
    },
    /// Both ends have said this, too, since the connection was put.
    Merge {
        /// [`TcpNumbers::sides`] as they were put.
        from: [TcpSide; 2],
        /// As they are for workers.
        to: [TcpSide; 2],
    },
    /// From now on segments that are ahead are dropped. If some were, and what they said is not
    /// within the numbers by now, these are forgotten.
    Settle,
    /// The numbers are not known any more: the program checks nothing.
    Forget,
}

impl Amendment {
    const LEN: usize = 128;

    /// Returns what the program is run on.
    pub(super) fn bytes(self, key: &ConnectionKey, name: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        key.write(&mut bytes);
        let flags: u32 = match self {
            Self::Renew { .. } => 1,
            Self::Merge { .. } => 2,
            Self::Settle => 4,
            Self::Forget => 8,
        };
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(name.to_ne_bytes());
        match self {
            Self::Renew {
                name,
                generation,
                seen,
                idle_ms,
            } => {
                bytes.extend(generation.to_ne_bytes());
                bytes.extend(seen.to_ne_bytes());
                bytes.extend(name.to_ne_bytes());
                bytes.extend(idle_ms.to_ne_bytes());
            }
            Self::Merge { from, to } => {
                bytes.extend([0; 28]);
                for (from, to) in from.iter().zip(to) {
                    for number in [from.end, from.limit, to.end, to.limit] {
                        bytes.extend(number.to_ne_bytes());
                    }
                    bytes.extend(to.window.to_ne_bytes());
                    bytes.extend([0; 2]);
                }
            }
            Self::Settle | Self::Forget => {}
        }
        bytes.resize(Self::LEN, 0);
        bytes
    }
}

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

const FROM_HIGH: u32 = 1;
const ONE_WAY: u32 = 2;
const NUMBERED: u32 = 4;
const UNSETTLED: u32 = 8;

impl Entry for CachedConnection {
    const LEN: usize = 80;

    fn write(&self, bytes: &mut Vec<u8>) {
        let from_higher = if self.from_higher { FROM_HIGH } else { 0 };
        let one_way = if self.one_way { ONE_WAY } else { 0 };
        let numbered = match self.numbers {
            None => 0,
            Some(TcpNumbers { settled: true, .. }) => NUMBERED,
            Some(TcpNumbers { settled: false, .. }) => NUMBERED | UNSETTLED,
        };
        bytes.extend(self.generation.to_ne_bytes());
        bytes.extend(self.seen.to_ne_bytes());
        bytes.extend(self.name.to_ne_bytes());
        bytes.extend(self.idle_ms.to_ne_bytes());
        bytes.extend((from_higher | one_way | numbered).to_ne_bytes());
        bytes.extend(self.numbers.map_or(0, |numbers| numbers.since).to_ne_bytes());
        for number in 0..2 {
            let side = self.numbers.map(|numbers| numbers.sides[number]);
            let fitted = self.numbers.is_some_and(|numbers| numbers.settled).then_some(self.seen);
            bytes.extend(side.map_or([0; TcpSide::LEN], |side| side.bytes(fitted)));
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let flags = word(bytes, 28)?;
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
                    since: long(bytes, 32)?,
                    settled: flags & UNSETTLED == 0,
                    sides: [TcpSide::read(bytes, 40)?, TcpSide::read(bytes, 60)?],
                }),
            },
        })
    }
}

impl TcpSide {
    const LEN: usize = 20;

    /// Returns the side as the program has it: before its numbers settle, when nothing was ahead
    /// yet, or with the time of its last segment in nanoseconds.
    fn bytes(self, fitted: Option<u64>) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let [.., a, b, c, d] = fitted.map_or(self.limit.into(), |fitted| fitted >> 30).to_be_bytes();
        let numbers = [self.end, self.limit, self.end, u32::from_be_bytes([a, b, c, d])];
        for (at, number) in (0..).step_by(4).zip(numbers) {
            bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        bytes[16..18].copy_from_slice(&self.window.to_ne_bytes());
        bytes[18] = self.scale;
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
    const LEN: usize = 16;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.since.to_ne_bytes());
        bytes.extend(self.followed_since.to_ne_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            since: long(bytes, 0)?,
            followed_since: long(bytes, 8)?,
        })
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
