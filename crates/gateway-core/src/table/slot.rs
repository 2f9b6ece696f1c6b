//! Slots: written once, read by anybody at any time.
//!
//! ```text
//!            head                      mac and spare   host, policy   version    (wide: IPv6 address)
//!  ┌────────────────────────────────┬───────────────┬──────────────┬─────────┐ ┌────────┬────────┐
//!  │ state 2 · 0 6 · VNI 24 · low 32│ 16 · MAC 48   │ 32 · 32      │ 64      │ │ 64     │ 64     │
//!  └────────────────────────────────┴───────────────┴──────────────┴─────────┘ └────────┴────────┘
//! ```
//! The head is written last when a slot comes to life (release) and read first (acquire): who sees a live head sees all
//! of what belongs to it. Only the head changes again, when the slot dies, and no slot is ever used a second time: so
//! what was read under a head that matched belongs to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use ringside_wire::MacAddr;

use super::hosts::HostId;
use super::neighbors::Neighbor;
use crate::{TenantAddress, Vni};

pub(super) const EMPTY: u64 = 0;
const LIVE: u64 = 1 << 62;
const STATE: u64 = 3 << 62;

const HEAD: usize = 0;
const MAC: usize = 1;
const PLACE: usize = 2;
const VERSION: usize = 3;
const HIGH: usize = 4;
const LOW: usize = 5;

/// What a slot is found by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) head: u64,
    /// The whole address, where the head holds only a part of it.
    pub(super) address: [u64; 2],
    pub(super) hash: u64,
}

/// A slot for addresses of one family.
pub(super) trait Slot: Default + Send + Sync + 'static {
    /// Its words.
    fn words(&self) -> &[AtomicU64];
    /// True if the slot, whose head is the key's, is the key's.
    fn is_of(&self, key: &Key) -> bool;
    /// Fills in what the head does not hold of the address.
    fn write_address(&self, key: &Key);
    /// The address, of a slot that is or was live.
    fn address(&self, head: u64) -> TenantAddress;

    fn head(&self) -> u64 {
        self.words()[HEAD].load(Ordering::Acquire)
    }

    fn neighbor(&self) -> Neighbor {
        let word = |at: usize| self.words()[at].load(Ordering::Relaxed);
        let [_, _, mac @ ..] = word(MAC).to_be_bytes();
        let [host, policy] = halves(word(PLACE));
        Neighbor {
            mac: MacAddr(mac),
            host: HostId(host),
            policy,
            version: word(VERSION),
        }
    }

    /// Brings an empty slot to life.
    fn fill(&self, key: &Key, neighbor: &Neighbor) {
        let set = |at: usize, value| self.words()[at].store(value, Ordering::Relaxed);
        let [a, b, c, d, e, f] = neighbor.mac.0;
        set(MAC, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        set(PLACE, u64::from(neighbor.host.0) << 32 | u64::from(neighbor.policy));
        set(VERSION, neighbor.version);
        self.write_address(key);
        self.words()[HEAD].store(key.head, Ordering::Release);
    }

    /// Ends a live slot. Readers that are reading it still read what it was.
    fn bury(&self) {
        let head = self.words()[HEAD].load(Ordering::Relaxed);
        self.words()[HEAD].store(head | STATE, Ordering::Release);
    }
}

/// The two halves of a word, the upper first.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// True for a slot that holds a neighbour.
pub(super) fn is_live(head: u64) -> bool {
    head & STATE == LIVE
}

/// The head of an address, of which `low` is a part.
pub(super) fn head(vni: Vni, low: u32) -> u64 {
    LIVE | u64::from(vni.number()) << 32 | u64::from(low)
}

fn vni(head: u64) -> Vni {
    let [_, a, b, c, ..] = head.to_be_bytes();
    Vni::from_bytes([a, b, c])
}

/// For IPv4: two in a cache line.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct Narrow([AtomicU64; 4]);

impl Slot for Narrow {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn is_of(&self, _: &Key) -> bool {
        true
    }

    fn write_address(&self, _: &Key) {}

    fn address(&self, head: u64) -> TenantAddress {
        let [_, low] = halves(head);
        TenantAddress::new(vni(head), IpAddr::V4(Ipv4Addr::from(low)))
    }
}

/// For IPv6: one in a cache line.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Wide([AtomicU64; 8]);

impl Slot for Wide {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn is_of(&self, key: &Key) -> bool {
        [HIGH, LOW].map(|at| self.0[at].load(Ordering::Relaxed)) == key.address
    }

    fn write_address(&self, key: &Key) {
        for (at, part) in [HIGH, LOW].into_iter().zip(key.address) {
            self.0[at].store(part, Ordering::Relaxed);
        }
    }

    fn address(&self, head: u64) -> TenantAddress {
        let [high, low] = [HIGH, LOW].map(|at| u128::from(self.0[at].load(Ordering::Relaxed)));
        TenantAddress::new(vni(head), IpAddr::V6(Ipv6Addr::from(high << 64 | low)))
    }
}
