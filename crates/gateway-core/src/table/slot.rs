//! Slots: written once, read by anybody at any time.
//!
//! ```text
//!        address                     place              mac and spare    version
//!  ┌──────────────────────┬──────────────────────┬──────────────────┬───────────┐
//!  │ dead 1 · VNI · IPv4  │ host 32 · policy 32  │ 16 · MAC 48      │ 64        │   narrow: two in a cache line
//!  └──────────────────────┴──────────────────────┴──────────────────┴───────────┘
//!  the same with an IPv6 address of two words more                                 wide: in one cache line, or two
//! ```
//! A slot is written before its tag is published (release) and read after that was seen (acquire). Of a slot whose tag is
//! there only one bit changes, once: that it is dead. No slot is used a second time, so what a reader finds is whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use ringside_wire::MacAddr;

use super::hosts::HostId;
use super::neighbors::Neighbor;
use crate::prefetch::prefetch;
use crate::words::{halves, joined, long_halves, long_joined};
use crate::{TenantAddress, Vni};

const HEAD: usize = 0;
const PLACE: usize = 1;
const MAC: usize = 2;
const VERSION: usize = 3;
const HIGH: usize = 4;
const LOW: usize = 5;

const DEAD: u64 = 1 << 63;

/// A slot for addresses of one family.
pub(super) trait Slot: Default + Send + Sync + 'static {
    /// By how many 1024ths a shard gets more room when it is built anew, from the first shard to the last. Less takes less memory, and look-ups
    /// of a fuller table meet more slots of others.
    const SPARE: [usize; 2];
    /// Its words.
    fn words(&self) -> &[AtomicU64];
    /// Has it come into the cache.
    #[inline]
    fn fetch(&self) {
        prefetch(self);
    }
    /// None: it is of another address. Else whether it is live.
    fn is_of(&self, address: &TenantAddress) -> Option<bool>;
    /// It is that of this key of IPv4, and live.
    fn is_of_key(&self, key: u64) -> bool {
        // Pairs with `bury`, as in `is_of`.
        self.words()[HEAD].load(Ordering::Acquire) == key
    }
    /// Its address.
    fn address(&self) -> TenantAddress;
    /// Writes its address.
    fn write_address(&self, address: &TenantAddress);

    fn word(&self, at: usize) -> u64 {
        self.words()[at].load(Ordering::Relaxed)
    }

    fn is_live(&self) -> bool {
        self.word(HEAD) & DEAD == 0
    }

    fn neighbor(&self) -> Neighbor {
        let [_, _, mac @ ..] = self.word(MAC).to_be_bytes();
        let [host, policy] = halves(self.word(PLACE));
        Neighbor {
            mac: MacAddr(mac),
            host: HostId(host),
            policy,
            version: self.word(VERSION),
        }
    }

    /// Writes all of it; nobody looks at it yet.
    fn fill(&self, address: &TenantAddress, neighbor: &Neighbor) {
        let set = |at: usize, value| self.words()[at].store(value, Ordering::Relaxed);
        let [a, b, c, d, e, f] = neighbor.mac.0;
        set(PLACE, joined([neighbor.host.0, neighbor.policy]));
        set(MAC, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        set(VERSION, neighbor.version);
        self.write_address(address);
    }

    /// Ends it. Who is reading it still reads what it was; who sees this sees all that was written before.
    fn bury(&self) {
        let head = self.word(HEAD);
        self.words()[HEAD].store(head | DEAD, Ordering::Release);
    }
}

fn vni(head: u64) -> Vni {
    let [_, a, b, c, ..] = head.to_be_bytes();
    Vni::from_bytes([a, b, c])
}

/// Of a key of IPv4.
#[inline]
pub(crate) fn address_of(key: u64) -> TenantAddress {
    TenantAddress::new(vni(key), IpAddr::V4(Ipv4Addr::from(halves(key)[1])))
}

fn head_of(vni: Vni, low: u32) -> u64 {
    joined([vni.number(), low])
}

/// For IPv4.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct Narrow([AtomicU64; 4]);

impl Slot for Narrow {
    const SPARE: [usize; 2] = [480, 480];

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn is_of(&self, address: &TenantAddress) -> Option<bool> {
        let IpAddr::V4(ip) = address.ip else { return None };
        // Pairs with `bury`: who finds the old one dead finds the new one, which was there before.
        let head = self.0[HEAD].load(Ordering::Acquire);
        (head & !DEAD == head_of(address.vni, u32::from(ip))).then_some(head & DEAD == 0)
    }

    fn address(&self) -> TenantAddress {
        address_of(self.word(HEAD))
    }

    fn write_address(&self, address: &TenantAddress) {
        if let IpAddr::V4(ip) = address.ip {
            self.0[HEAD].store(head_of(address.vni, u32::from(ip)), Ordering::Relaxed);
        }
    }
}

/// For IPv6.
#[derive(Default)]
#[repr(align(16))]
pub(super) struct Wide([AtomicU64; 6]);

impl Wide {
    fn ip(&self) -> Ipv6Addr {
        long_joined([self.word(HIGH), self.word(LOW)]).into()
    }
}

impl Slot for Wide {
    /// Half as large again as narrow ones. All shards have about as many neighbours: with as much room they would be at their largest at the same
    /// time.
    const SPARE: [usize; 2] = [256, 461];

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    #[inline]
    fn fetch(&self) {
        prefetch(&self.0[HEAD]);
        prefetch(&self.0[LOW]);
    }

    fn is_of(&self, address: &TenantAddress) -> Option<bool> {
        let IpAddr::V6(ip) = address.ip else { return None };
        // As in `Narrow`.
        let head = self.0[HEAD].load(Ordering::Acquire);
        (head & !DEAD == head_of(address.vni, 0) && self.ip() == ip).then_some(head & DEAD == 0)
    }

    fn address(&self) -> TenantAddress {
        TenantAddress::new(vni(self.word(HEAD)), self.ip().into())
    }

    fn write_address(&self, address: &TenantAddress) {
        if let IpAddr::V6(ip) = address.ip {
            let [high, low] = long_halves(ip.into());
            self.0[HIGH].store(high, Ordering::Relaxed);
            self.0[LOW].store(low, Ordering::Relaxed);
            self.0[HEAD].store(head_of(address.vni, 0), Ordering::Relaxed);
        }
    }
}
