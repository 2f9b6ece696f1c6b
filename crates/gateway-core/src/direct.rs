//! Which hosts are to be told where a receiver lives, because they send much to it.
//!
//! Of the packets that are sent on a sample is seen ([`Directs::sampled`]). A host from which within a second more came for one
//! receiver than the bound is told, and again if it goes on like that for a while; so much is told a second at the most, all in
//! all. What changes about a receiver goes at once to all who were told ([`Directs::changed`]).
//!
//! ```text
//!   sampled ── more than the bound within a second ──▶ told ── lifetime is over ──▶ forgotten
//!                                                       │
//!                                    changed ───────────┘ told again, or that it is over
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

use crate::TenantAddress;
use crate::allowance::{Allowance, SECOND};

/// When hosts are told. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectLimits {
    /// Packets a second from a host to a receiver.
    pub packets: u32,
    /// Notices a second, all in all.
    pub notices: u32,
    /// For how long a host may go by what it was told.
    pub lifetime: u64,
    /// Pairs of host and receiver that are remembered at the most, both of those that are counted and of those that were told.
    pub pairs: usize,
}

/// A host, and the receiver that it sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectPair {
    /// The host.
    pub host: IpAddr,
    /// The receiver.
    pub receiver: TenantAddress,
}

/// Packets of a second that begins with the first of them.
#[derive(Debug, Clone, Copy)]
struct Counted {
    since: u64,
    packets: u64,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    /// So long it holds.
    until: u64,
    /// If it still sends by the gateway then, it is told again.
    again: u64,
}

/// Who sends much, and who was told. Times are of one clock, in nanoseconds, and never go back.
#[derive(Debug)]
pub struct Directs {
    limits: DirectLimits,
    counted: HashMap<DirectPair, Counted>,
    told: HashMap<DirectPair, Told>,
    /// Who was told of a receiver.
    hosts: HashMap<TenantAddress, Vec<IpAddr>>,
    /// Of notices.
    notices: Allowance,
    /// Notices that the bound has held back.
    held_back: u64,
}

impl Directs {
    /// Nobody was told of anything.
    #[must_use]
    pub fn new(limits: DirectLimits) -> Self {
        Self {
            limits,
            counted: HashMap::new(),
            told: HashMap::new(),
            hosts: HashMap::new(),
            notices: Allowance::FULL,
            held_back: 0,
        }
    }

    /// A packet was seen, which stands for so many. True: the host is to be told now.
    pub fn sampled(&mut self, now: u64, pair: DirectPair, stands_for: u32) -> bool {
        // It takes a moment until it sends directly; a notice may get lost.
        if self.told.get(&pair).is_some_and(|told| told.again > now) {
            return false;
        }
        let has_room = |counted: &HashMap<_, _>| counted.len() < self.limits.pairs || counted.contains_key(&pair);
        if !has_room(&self.counted) {
            self.forget(now);
            if self.counted.len() >= self.limits.pairs {
                return false;
            }
        }
        let fresh = Counted { since: now, packets: 0 };
        let counted = self.counted.entry(pair).or_insert(fresh);
        if now.saturating_sub(counted.since) >= SECOND {
            *counted = fresh;
        }
        counted.packets += u64::from(stands_for);
        if counted.packets < u64::from(self.limits.packets) {
            return false;
        }
        self.counted.remove(&pair);
        self.tell(now, pair)
    }

    fn tell(&mut self, now: u64, pair: DirectPair) -> bool {
        if !self.told.contains_key(&pair) && self.told.len() >= self.limits.pairs {
            self.forget(now);
            if self.told.len() >= self.limits.pairs {
                return false;
            }
        }
        if !self.may_tell(now) {
            return false;
        }
        let told = Told {
            until: now.saturating_add(self.limits.lifetime),
            again: now.saturating_add(self.limits.lifetime / 4),
        };
        if self.told.insert(pair, told).is_none() {
            self.hosts.entry(pair.receiver).or_default().push(pair.host);
        }
        true
    }

    fn may_tell(&mut self, now: u64) -> bool {
        let may = self.notices.take(now, self.limits.notices);
        self.held_back += u64::from(!may);
        may
    }

    /// How much longer a host may go by what it was told, in nanoseconds; None if it may not.
    #[must_use]
    pub fn holds_for(&self, now: u64, pair: &DirectPair) -> Option<u64> {
        let told = self.told.get(pair)?;
        told.until.checked_sub(now).filter(|left| *left > 0)
    }

    /// Something about a receiver has changed: these hosts are to be told, whatever the bound. `is_over`: that it no longer
    /// holds at all; then they are forgotten.
    pub fn changed(&mut self, now: u64, receiver: TenantAddress, is_over: bool) -> Vec<IpAddr> {
        let Some(hosts) = self.hosts.get(&receiver) else {
            return Vec::new();
        };
        let pair = |host| DirectPair { host, receiver };
        let holds = |host: &IpAddr| self.told.get(&pair(*host)).is_some_and(|told| told.until > now);
        let hosts: Vec<IpAddr> = hosts.iter().copied().filter(holds).collect();
        if is_over {
            for host in self.hosts.remove(&receiver).unwrap_or_default() {
                self.told.remove(&pair(host));
            }
        }
        hosts
    }

    /// All receivers that somebody was told of.
    pub fn receivers(&self) -> impl Iterator<Item = TenantAddress> + '_ {
        self.hosts.keys().copied()
    }

    /// Forgets what is over. To be called now and then.
    pub fn forget(&mut self, now: u64) {
        self.counted
            .retain(|_, counted| now.saturating_sub(counted.since) < SECOND);
        let (told, hosts) = (&mut self.told, &mut self.hosts);
        told.retain(|pair, told| {
            let holds = told.until > now;
            if !holds && let Some(others) = hosts.get_mut(&pair.receiver) {
                others.retain(|host| *host != pair.host);
                if others.is_empty() {
                    hosts.remove(&pair.receiver);
                }
            }
            holds
        });
    }

    /// Pairs for which what was told holds, and notices that the bound has held back.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        (self.told.len(), self.held_back)
    }
}

#[cfg(test)]
mod tests;
