//! Which fragments belong to packets that were allowed.
//!
//! Rules look at ports, and only a packet's first fragment has them. So what was decided about it is kept for a while, and
//! its later fragments pass by that. A later fragment that comes before the first does not pass: to keep it until then
//! would be memory that anybody can fill, and senders send the first one first. Nothing is put together here, so
//! fragments pass as they are, and overlapping ones are their receiver's to refuse (RFC 5722, RFC 8200 §4.5).

use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError};

use foldhash::quality::RandomState;

use crate::flow::{Flow, Piece};
use crate::policy::{ProfileId, Snapshot};
use crate::{TenantAddress, Vni};

/// Packets of which it is remembered, at the most: `SETS * WAYS`.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// Nanoseconds; as long as Linux waits for fragments (`ipfrag_time`).
const KEPT: u64 = 30 * 1_000_000_000;

/// What ties fragments together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    source: TenantAddress,
    destination: TenantAddress,
    protocol: u8,
    identification: u32,
}

#[derive(Debug, Clone, Copy)]
struct Allowed {
    key: Key,
    until: u64,
    generation: u64,
    profiles: [Option<ProfileId>; 2],
}

/// Packets of which the first fragment was allowed.
#[derive(Debug)]
pub(super) struct Fragments {
    sets: Box<[Mutex<[Option<Allowed>; WAYS]>]>,
    random: RandomState,
}

impl Fragments {
    pub(super) fn new() -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            random: RandomState::default(),
        }
    }

    /// Remembers that a first fragment was allowed. Of four packets that meet in a set, the oldest goes.
    pub(super) fn allow(&self, now: u64, vni: Vni, flow: &Flow, generation: u64, profiles: [Option<ProfileId>; 2]) {
        let Some((key, set)) = self.place(vni, flow) else {
            return;
        };
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        let same = set.iter().position(|way| way.is_some_and(|allowed| allowed.key == key));
        let oldest = || (0..WAYS).min_by_key(|way| set[*way].map_or(0, |allowed| allowed.until));
        let way = same.or_else(oldest).unwrap_or(0);
        set[way] = Some(Allowed {
            key,
            until: now.saturating_add(KEPT),
            generation,
            profiles,
        });
    }

    /// True if the first fragment of the same packet was allowed, and would still be.
    pub(super) fn allows(
        &self,
        now: u64,
        vni: Vni,
        flow: &Flow,
        policy: &Snapshot,
        profiles: [Option<ProfileId>; 2],
    ) -> bool {
        let Some((key, set)) = self.place(vni, flow) else {
            return false;
        };
        let set = *set.lock().unwrap_or_else(PoisonError::into_inner);
        let [source, destination] = profiles;
        set.iter().flatten().any(|allowed| {
            allowed.key == key
                && now <= allowed.until
                && allowed.profiles == profiles
                && policy.holds(allowed.generation, source, destination)
        })
    }

    fn place(&self, vni: Vni, flow: &Flow) -> Option<(Key, &Mutex<[Option<Allowed>; WAYS]>)> {
        let Piece { identification, .. } = flow.fragment?;
        let key = Key {
            source: TenantAddress::new(vni, flow.source),
            destination: TenantAddress::new(vni, flow.destination),
            protocol: flow.protocol.0,
            identification,
        };
        let mut hasher = self.random.build_hasher();
        std::hash::Hash::hash(&key.source, &mut hasher);
        std::hash::Hash::hash(&key.destination, &mut hasher);
        hasher.write_u32(identification);
        let set = usize::try_from(hasher.finish() % SETS as u64).unwrap_or(0);
        Some((key, &self.sets[set]))
    }
}
