//! What is bound to addresses, whether or not anybody knows where they live; and in which networks anything is bound.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringside_wire::MacAddr;

use super::hosts::HostId;
use super::neighbors::{Neighbor, NeighborReader, Neighbors, Removed};
use crate::policy::ProfileId;
use crate::{TenantAddress, Vni};

/// A bit for each network there can be: 2 MiB.
const WORDS: usize = (Vni::MAX.number() as usize + 1) / 64;
/// All have the same: who binds says what holds.
const VERSION: u64 = 1;

/// Profiles by address. A neighbour carries the profile of its address along ([`Neighbor::policy`]), so that a packet costs no
/// look-up more; this is asked about senders that are no neighbours.
///
/// ```
/// use ringside_gateway_core::policy::Policy;
/// use ringside_gateway_core::table::Bindings;
/// use ringside_gateway_core::{TenantAddress, Vni};
///
/// let profile = Policy::new().write().profile(&[]);
/// let address = TenantAddress::new(Vni::new(42).unwrap(), "10.0.0.7".parse()?);
/// let bindings = Bindings::new();
/// let mut reader = bindings.reader();
/// bindings.set(address, Some(profile));
/// assert_eq!(reader.profile(address), Some(profile));
/// assert!(reader.is_policed(address.vni));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bindings {
    /// Only what is bound to them counts.
    profiles: Neighbors,
    policed: Arc<[AtomicU64]>,
    /// Addresses of each network that has some, and how often it is held; changed with the two others.
    counts: Mutex<HashMap<Vni, usize>>,
}

impl Default for Bindings {
    fn default() -> Self {
        Self {
            profiles: Neighbors::new(),
            policed: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            counts: Mutex::default(),
        }
    }
}

impl Bindings {
    /// Nothing is bound.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader, for one thread.
    #[must_use]
    pub fn reader(&self) -> BindingReader {
        BindingReader {
            profiles: self.profiles.reader(),
            policed: Arc::clone(&self.policed),
        }
    }

    /// Binds a profile to an address from now on, or nothing. The profile is to be published before.
    pub fn set(&self, address: TenantAddress, profile: Option<ProfileId>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.profiles.write();
        match profile {
            Some(profile) if writer.set_policy(address, profile.number()) => {}
            Some(profile) => {
                let bound = Neighbor {
                    mac: MacAddr([0; 6]),
                    host: HostId(0),
                    policy: profile.number(),
                    version: VERSION,
                };
                writer.put(address, bound);
                self.add(&mut counts, address.vni);
            }
            None => {
                if matches!(writer.remove(address, VERSION), Removed::Gone(_)) {
                    self.take(&mut counts, address.vni);
                }
            }
        }
    }

    /// From now on this network counts as one in which something is bound, whether anything is or not, until [`Self::release`] is
    /// called as often.
    pub fn hold(&self, vni: Vni) {
        self.add(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner), vni);
    }

    /// The end of [`Self::hold`].
    pub fn release(&self, vni: Vni) {
        self.take(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner), vni);
    }

    fn add(&self, counts: &mut HashMap<Vni, usize>, vni: Vni) {
        *counts.entry(vni).or_default() += 1;
        let (word, bit) = place_of(vni);
        self.policed[word].fetch_or(bit, Ordering::Release);
    }

    fn take(&self, counts: &mut HashMap<Vni, usize>, vni: Vni) {
        let Some(count) = counts.get_mut(&vni) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&vni);
            let (word, bit) = place_of(vni);
            self.policed[word].fetch_and(!bit, Ordering::Release);
        }
    }

    /// True if something is bound to some address of this network.
    #[must_use]
    pub fn is_policed(&self, vni: Vni) -> bool {
        is_policed(&self.policed, vni)
    }

    /// The networks in which something is bound to some address, in no order.
    #[must_use]
    pub fn networks(&self) -> Vec<Vni> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.keys().copied().collect()
    }

    /// How many addresses something is bound to.
    #[must_use]
    pub fn len(&self) -> usize {
        self.profiles.len()
    }

    /// True if nothing is bound to any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.profiles.memory() + size_of_val(&*self.policed)
    }
}

impl fmt::Debug for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A reader of what is bound, for one thread. It never waits.
#[derive(Clone)]
pub struct BindingReader {
    profiles: NeighborReader,
    policed: Arc<[AtomicU64]>,
}

impl BindingReader {
    /// What is bound to an address.
    pub fn profile(&mut self, address: TenantAddress) -> Option<ProfileId> {
        let bound = self.profiles.find(address)?;
        ProfileId::new(bound.policy)
    }

    /// True if something is bound to some address of this network.
    #[must_use]
    pub fn is_policed(&self, vni: Vni) -> bool {
        is_policed(&self.policed, vni)
    }
}

impl fmt::Debug for BindingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingReader").finish_non_exhaustive()
    }
}

/// Of a network: its word, and its bit there.
fn place_of(vni: Vni) -> (usize, u64) {
    (vni.number() as usize / 64, 1 << (vni.number() % 64))
}

fn is_policed(words: &[AtomicU64], vni: Vni) -> bool {
    let (word, bit) = place_of(vni);
    words[word].load(Ordering::Acquire) & bit != 0
}

#[cfg(test)]
#[path = "bindings_tests.rs"]
mod tests;
