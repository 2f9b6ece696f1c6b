//! Until when what the fast path has of connections holds, by network.
//!
//! An epoch begins with each change of rules, or of what is bound to an address; it is a number, and one for all. Each network knows
//! in which one its last change came: what a worker began to decide in an earlier one may be otherwise now, what it decided about
//! other networks is not.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use ringside_bpf::gateway::PolicySlot;
use ringside_gateway_core::Vni;

/// The epoch that there is, and since which one each network is as it is.
#[derive(Debug)]
pub(super) struct Epochs {
    latest: AtomicU64,
    /// By slot. Networks that share one are outdated together.
    since: Box<[AtomicU64]>,
}

impl Epochs {
    /// Nothing holds that was decided before the first one.
    pub(super) fn new(first: u64) -> Self {
        Self {
            latest: first.into(),
            since: (0..PolicySlot::COUNT).map(|_| first.into()).collect(),
        }
    }

    /// To be read before what a decision goes by is looked up.
    pub(super) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// True if what was decided about this network in an epoch still holds.
    pub(super) fn holds(&self, slot: PolicySlot, epoch: u64) -> bool {
        epoch >= self.since[slot.number() as usize].load(Ordering::Acquire)
    }

    /// Begins another one, in which these networks are otherwise than before; what has changed is in the tables already. By one
    /// thread at a time.
    pub(super) fn begin(&self, slots: impl IntoIterator<Item = PolicySlot>) -> u64 {
        let next = self.latest.load(Ordering::Relaxed) + 1;
        for slot in slots {
            self.since[slot.number() as usize].store(next, Ordering::Release);
        }
        self.latest.store(next, Ordering::Release);
        next
    }
}

/// In which networks rules are bound to some address, as the fast path was told last.
#[derive(Debug, Default)]
pub(super) struct Policed {
    networks: HashSet<Vni>,
    /// How many of them share a slot.
    slots: HashMap<PolicySlot, usize>,
    changes: u64,
}

impl Policed {
    /// These.
    pub(super) fn of(networks: impl IntoIterator<Item = Vni>) -> Self {
        let mut policed = Self::default();
        for vni in networks {
            policed.set(vni, true);
        }
        policed
    }

    /// From now on rules are bound there, or not. True if that is another than it was.
    pub(super) fn set(&mut self, vni: Vni, is_policed: bool) -> bool {
        let changed = match is_policed {
            true => self.networks.insert(vni),
            false => self.networks.remove(&vni),
        };
        if changed {
            let slot = slot_of(vni);
            let there = self.slots.entry(slot).or_default();
            if is_policed {
                *there += 1;
            } else {
                *there -= 1;
            }
            if *there == 0 {
                self.slots.remove(&slot);
            }
            self.changes += 1;
        }
        changed
    }

    pub(super) fn has(&self, vni: Vni) -> bool {
        self.networks.contains(&vni)
    }

    /// True if rules are bound in one of the networks of a slot.
    pub(super) fn has_slot(&self, slot: PolicySlot) -> bool {
        self.slots.contains_key(&slot)
    }

    /// How often a network has become one of these, or ceased to be.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

pub(super) fn slot_of(vni: Vni) -> PolicySlot {
    PolicySlot::of(vni.number())
}

#[cfg(test)]
#[path = "epochs_tests.rs"]
mod tests;
