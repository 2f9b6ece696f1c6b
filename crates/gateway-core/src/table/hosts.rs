//! The hosts that neighbours live on: each once, named by a number.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache};
use foldhash::quality::RandomState;
use ringside_wire::MacAddr;

/// Hosts of a chunk. Chunks are added, never moved.
const CHUNK: usize = 1024;

/// A host's number. It names the same host for as long as the table lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub u32);

/// How packets travel between gateway and host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encapsulation {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

impl Encapsulation {
    /// Returns the name, as in configurations and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
        }
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vxlan => "VXLAN",
            Self::Geneve => "Geneve",
        })
    }
}

/// A compute node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Host {
    /// Its address in the network that carries the tenants' (the underlay).
    pub ip: IpAddr,
    /// Its MAC address, or that of the router on the way to it. None while that is not known.
    pub mac: Option<MacAddr>,
    /// The number of the gateway's port on the way to it, at most 254. None while that is not known.
    pub port: Option<u8>,
    /// What it speaks. None: what the packet came in, so that VXLAN leaves as VXLAN.
    pub encapsulation: Option<Encapsulation>,
}

impl Host {
    /// One of which only the address is known.
    #[must_use]
    pub const fn at(ip: IpAddr) -> Self {
        Self {
            ip,
            mac: None,
            port: None,
            encapsulation: None,
        }
    }
}

/// What is known of the way to a host. Nothing by default: then it takes what the gateway's port does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limit {
    /// The longest IP packet, in bytes, that gets there.
    pub mtu: Option<NonZeroU16>,
    /// The longest that what is told of the host elsewhere, as a cache, lets pass, in bytes: to tell that takes longer, and it may be less.
    pub told: Option<NonZeroU16>,
    /// Until when [`Self::told`] is believed, in seconds of CLOCK_MONOTONIC, if it ends by itself.
    pub until: Option<NonZeroU32>,
}

impl Limit {
    /// It takes that, or as much as the port does, and everybody knows.
    #[must_use]
    pub const fn of(mtu: Option<NonZeroU16>) -> Self {
        Self {
            mtu,
            told: mtu,
            until: None,
        }
    }

    /// Until 32 bits, told 16, bytes 16; 0 for None.
    fn word(self) -> u64 {
        let bytes = |mtu: Option<NonZeroU16>| u64::from(mtu.map_or(0, NonZeroU16::get));
        let until = u64::from(self.until.map_or(0, NonZeroU32::get));
        until << 32 | bytes(self.told) << 16 | bytes(self.mtu)
    }

    fn read(word: u64) -> Self {
        let [a, b, c, d, told_high, told_low, mtu_high, mtu_low] = word.to_be_bytes();
        Self {
            mtu: NonZeroU16::new(u16::from_be_bytes([mtu_high, mtu_low])),
            told: NonZeroU16::new(u16::from_be_bytes([told_high, told_low])),
            until: NonZeroU32::new(u32::from_be_bytes([a, b, c, d])),
        }
    }
}

/// A host of IPv4 that can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainHost {
    pub(crate) ip: [u8; 4],
    pub(crate) mac: MacAddr,
    pub(crate) port: Option<u8>,
    /// It takes nothing but Geneve.
    pub(crate) geneve: bool,
    /// The longest IP packet that gets there; [`u16::MAX`] if that is not known.
    pub(crate) mtu: u16,
}

/// Address, then one word with all that may change, so that no reader sees half a change, and what that was at first.
/// A line of the CPU's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    ip: [AtomicU64; 2],
    /// Port 8 bits, flags 8, MAC address 48.
    rest: AtomicU64,
    given: AtomicU64,
    /// [`Limit`] of the way there. Whoever reads it a moment too early is told by ICMP, as the one before.
    limit: AtomicU64,
}

const HAS_MAC: u64 = 1 << 48;
const VXLAN: u64 = 1 << 49;
const GENEVE: u64 = 1 << 50;
const NO_PORT: u8 = u8::MAX;

type Chunks = Vec<Arc<[Slot]>>;

/// All hosts. Their numbers are never used a second time, so that a worker that has just looked one up never sends to
/// another: a host that comes and goes costs 64 bytes for good, 40 to 80 more by which it is found again, and what the table's owner keeps of it
/// by its number.
#[derive(Debug)]
pub struct Hosts {
    chunks: Arc<ArcSwap<Chunks>>,
    known: Mutex<HashMap<Host, HostId, RandomState>>,
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            chunks: Arc::new(ArcSwap::from_pointee(Vec::new())),
            known: Mutex::default(),
        }
    }
}

impl Hosts {
    /// A table without hosts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of a host, a new one if it is not known yet.
    ///
    /// Two that differ in anything are two. What was found out later by [`Hosts::resolve`] does not count as a difference.
    ///
    /// # Panics
    /// After 4,294,967,295 hosts.
    pub fn intern(&self, host: Host) -> HostId {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let count = known.len();
        *known.entry(host).or_insert_with(|| {
            let chunks = self.chunks.load_full();
            let chunk = chunks.get(count / CHUNK).cloned().unwrap_or_else(|| {
                let new: Arc<[Slot]> = std::iter::repeat_with(Slot::default).take(CHUNK).collect();
                let mut more = Chunks::clone(&chunks);
                more.push(Arc::clone(&new));
                self.chunks.store(Arc::new(more));
                new
            });
            chunk[count % CHUNK].write(&host);
            HostId(u32::try_from(count).expect("fewer hosts than IPv4 has addresses"))
        })
    }

    /// Makes known which MAC address a host has and by which port it is reached, or that nobody knows any more. What was
    /// given with it stays. False for a host that is not there.
    pub fn resolve(&self, id: HostId, found: Option<(MacAddr, u8)>) -> bool {
        let chunks = self.chunks.load();
        let Some(slot) = slot(&chunks, id) else { return false };
        let Some(given) = slot.read(&slot.given) else {
            return false;
        };
        slot.rest.store(
            word(&Host {
                mac: given.mac.or(found.map(|(mac, _)| mac)),
                port: given.port.or(found.map(|(_, port)| port)),
                ..given
            }),
            Ordering::Release,
        );
        true
    }

    /// Makes known how long packets may be that get to a host. False for a host that is not there.
    pub fn limit(&self, id: HostId, limit: Limit) -> bool {
        let chunks = self.chunks.load();
        let Some(slot) = slot(&chunks, id).filter(|slot| slot.read(&slot.given).is_some()) else {
            return false;
        };
        slot.limit.store(limit.word(), Ordering::Release);
        true
    }

    /// How many hosts there have been.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if there has been none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A reader, for one thread.
    #[must_use]
    pub fn reader(&self) -> HostReader {
        HostReader(Cache::new(Arc::clone(&self.chunks)))
    }
}

/// A reader of the hosts, for one thread. It never waits.
#[derive(Debug, Clone)]
pub struct HostReader(Cache<Arc<ArcSwap<Chunks>>, Arc<Chunks>>);

impl HostReader {
    /// The host of a number; None if nobody gave that number.
    pub fn find(&mut self, id: HostId) -> Option<Host> {
        slot(self.0.load(), id).and_then(|slot| slot.read(&slot.rest))
    }

    /// The longest IP packet, in bytes, that gets to it, if something on the way takes less than the port may: see [`Hosts::limit`].
    pub fn mtu(&mut self, id: HostId) -> Option<NonZeroU16> {
        self.limit(id).mtu
    }

    /// All that is known of the way to it.
    pub fn limit(&mut self, id: HostId) -> Limit {
        slot(self.0.load(), id).map_or(Limit::default(), |slot| Limit::read(slot.limit.load(Ordering::Acquire)))
    }

    /// The same as [`Self::find`] in short. None also for one of IPv6, and for one whose MAC address is not known.
    #[inline]
    pub(crate) fn find_plain(&mut self, id: HostId) -> Option<PlainHost> {
        slot(self.0.load(), id).and_then(Slot::plain)
    }

    /// As [`Self::find`], without what was found out since.
    pub fn given(&mut self, id: HostId) -> Option<Host> {
        slot(self.0.load(), id).and_then(|slot| slot.read(&slot.given))
    }
}

fn slot(chunks: &Chunks, HostId(id): HostId) -> Option<&Slot> {
    let id = id as usize;
    chunks.get(id / CHUNK).map(|chunk| &chunk[id % CHUNK])
}

fn mac_bits(mac: Option<MacAddr>) -> u64 {
    mac.map_or(0, |MacAddr([a, b, c, d, e, f])| {
        HAS_MAC | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    })
}

/// All but the address.
fn word(host: &Host) -> u64 {
    let speaks = match host.encapsulation {
        None => 0,
        Some(Encapsulation::Vxlan) => VXLAN,
        Some(Encapsulation::Geneve) => GENEVE,
    };
    u64::from(host.port.unwrap_or(NO_PORT)) << 56 | speaks | mac_bits(host.mac)
}

impl Slot {
    #[inline]
    fn plain(&self) -> Option<PlainHost> {
        let rest = self.rest.load(Ordering::Acquire);
        let [high, low] = [0, 1].map(|at| self.ip[at].load(Ordering::Relaxed));
        let is_v4 = high == 0 && low >> 32 == 0xffff;
        let [.., a, b, c, d] = low.to_be_bytes();
        let [port, _, mac @ ..] = rest.to_be_bytes();
        (is_v4 && rest & HAS_MAC != 0).then_some(PlainHost {
            ip: [a, b, c, d],
            mac: MacAddr(mac),
            port: (port != NO_PORT).then_some(port),
            geneve: rest & GENEVE != 0,
            mtu: Limit::read(self.limit.load(Ordering::Relaxed))
                .mtu
                .map_or(u16::MAX, NonZeroU16::get),
        })
    }

    fn write(&self, host: &Host) {
        let ip = match host.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let [a, b, c, d, e, f, g, h, low @ ..] = ip.octets();
        self.ip[0].store(u64::from_be_bytes([a, b, c, d, e, f, g, h]), Ordering::Relaxed);
        self.ip[1].store(u64::from_be_bytes(low), Ordering::Relaxed);
        self.given.store(word(host), Ordering::Relaxed);
        // Whoever learns the number from another thread learns it after this.
        self.rest.store(word(host), Ordering::Release);
    }

    fn read(&self, rest: &AtomicU64) -> Option<Host> {
        let rest = rest.load(Ordering::Acquire);
        let [high, low] = [0, 1].map(|at| u128::from(self.ip[at].load(Ordering::Relaxed)));
        let ip = Ipv6Addr::from(high << 64 | low);
        let [port, _, mac @ ..] = rest.to_be_bytes();
        (!ip.is_unspecified()).then(|| Host {
            ip: ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
            mac: (rest & HAS_MAC != 0).then_some(MacAddr(mac)),
            port: (port != NO_PORT).then_some(port),
            encapsulation: match (rest & VXLAN, rest & GENEVE) {
                (0, 0) => None,
                (_, 0) => Some(Encapsulation::Vxlan),
                _ => Some(Encapsulation::Geneve),
            },
        })
    }
}
