//! Room for new connections: limits, and who has to go when they are met.

use std::sync::atomic::Ordering;

use super::entry::Entry;
use super::state::{Rank, State};
use super::stripe::Part;
use super::{Conntrack, End, Refused};
use crate::Vni;

/// Connections of a network that are looked at to find one that can go: others' stand between them.
const LOOKED_AT: usize = 32;

/// Established connections that are looked at to find one that is idle.
const LOOKED_AT_IDLE: usize = 16;

/// What to do when there is no room in a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Say so, so that it can be made in another stripe.
    Elsewhere,
    /// Take that of an idle connection, or refuse.
    Here,
}

impl Conntrack {
    /// Does something in a stripe that may need room, which is made in another stripe if it gives None. Never are two locks
    /// held at once.
    pub(super) fn with_room<T>(
        &self,
        stripe: usize,
        now: u64,
        work: impl Fn(&mut Part<'_>, Room) -> Option<Result<T, Refused>>,
    ) -> Result<T, Refused> {
        if let Some(done) = work(&mut self.lock(stripe), Room::Elsewhere) {
            return done;
        }
        let made = self.evict_elsewhere(stripe, now);
        // Somebody else may have taken it meanwhile; once more is enough.
        let first = if made {
            work(&mut self.lock(stripe), Room::Elsewhere)
        } else {
            None
        };
        let done = first.or_else(|| work(&mut self.lock(stripe), Room::Here));
        done.unwrap_or(Err(Refused::TableFull))
    }

    /// Puts in a connection. None: there may be room to be made elsewhere.
    pub(super) fn insert(
        &self,
        part: &mut Part<'_>,
        entry: &Entry,
        hash: u64,
        now: u64,
        room: Room,
    ) -> Option<Result<u32, Refused>> {
        let vni = entry.key.vni();
        if !self.tenants.enter(vni) {
            self.evict_of_tenant(part, vni, now);
            if !self.tenants.enter(vni) {
                return Some(Err(Refused::TenantFull));
            }
        }
        let leave = || self.tenants.leave(vni);
        // The limit of a stripe is met seldom, and only there room can be made then.
        if !part.has_room() && !self.evict_weak(part, now) && !self.evict_idle(part, now) {
            leave();
            return Some(Err(Refused::TableFull));
        }
        if self.total.fetch_add(1, Ordering::Relaxed) >= self.limits.connections && !self.evict_weak(part, now) {
            let elsewhere = room == Room::Elsewhere && self.weak.load(Ordering::Relaxed) > 0;
            if elsewhere || !self.evict_idle(part, now) {
                self.total.fetch_sub(1, Ordering::Relaxed);
                leave();
                return if elsewhere { None } else { Some(Err(Refused::TableFull)) };
            }
        }
        if entry.state.rank() < Rank::Established {
            self.weak.fetch_add(1, Ordering::Relaxed);
        }
        part.counts().begun += 1;
        Some(Ok(part.insert(entry, hash, now)))
    }

    /// Ends a connection that is not established, in any stripe but one. False if there is none.
    fn evict_elsewhere(&self, but: usize, now: u64) -> bool {
        let begin = self.cursor.fetch_add(1, Ordering::Relaxed);
        let stripes = (0..self.parts.len()).map(|at| begin.wrapping_add(at) % self.parts.len());
        stripes.filter(|at| *at != but).any(|at| {
            let mut part = self.lock(at);
            self.weak.load(Ordering::Relaxed) > 0 && self.evict_ranks(&mut part, now)
        })
    }

    /// Ends one that had no packet for too long, or else one that is not established. False if there is none.
    fn evict_weak(&self, part: &mut Part<'_>, now: u64) -> bool {
        self.sweep_some(part, now, 1) > 0 || self.evict_ranks(part, now)
    }

    fn evict_ranks(&self, part: &mut Part<'_>, now: u64) -> bool {
        let found = [Rank::Unreplied, Rank::Closing]
            .into_iter()
            .find_map(|rank| Some((part.oldest(rank, now)?, rank)));
        found.is_some_and(|(slot, rank)| {
            let entry = part.entry(slot);
            self.end(part, slot, &entry, End::Evicted(rank));
            true
        })
    }

    /// Ends an established connection that has been idle for long enough. Those that are not go to the ends of their lists.
    fn evict_idle(&self, part: &mut Part<'_>, now: u64) -> bool {
        let idle = u64::try_from(self.limits.idle.as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..LOOKED_AT_IDLE {
            let Some(slot) = part.oldest(Rank::Established, now) else {
                return false;
            };
            let entry = part.entry(slot);
            if now.saturating_sub(entry.seen) >= idle {
                self.end(part, slot, &entry, End::Evicted(Rank::Established));
                return true;
            }
            part.move_to(slot, entry.state, entry.state, now);
        }
        false
    }

    /// Ends a connection of a network that is not established, if one of the oldest in this stripe is its.
    fn evict_of_tenant(&self, part: &mut Part<'_>, vni: Vni, now: u64) {
        for rank in [Rank::Unreplied, Rank::Closing] {
            let states = State::ALL.iter().filter(|state| state.rank() == rank);
            let mut found = None;
            for state in states {
                let mut next = part.first(*state);
                for _ in 0..LOOKED_AT {
                    let Some(slot) = next else { break };
                    let entry = part.entry(slot);
                    if entry.key.vni() == vni {
                        let age = now.saturating_sub(entry.seen);
                        found = found.max(Some((age, slot)));
                        break;
                    }
                    next = part.behind(slot);
                }
            }
            if let Some((_, slot)) = found {
                let entry = part.entry(slot);
                self.end(part, slot, &entry, End::Evicted(rank));
                return;
            }
        }
    }
}
