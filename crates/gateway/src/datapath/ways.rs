//! State of the resolver: hosts, their next hops and MAC addresses.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringside_gateway_core::Neighbors;
use ringside_gateway_core::table::{HostId, HostReader};
use ringside_nic::NeighbourWatch;

use super::icmp::IcmpListener;
use super::limits::Limits;
use super::ports::Ports;
use super::resolver::{ASK_AGAIN, LOOK};
use super::unreachable::Tracker;
use super::unresolved::{Cause, ENTRY_TIMEOUT};

/// Time without an answer after which a host counts as unanswered.
pub(super) const NO_ANSWER: Duration = Duration::from_secs(2);
/// Time after the loss of a MAC address from which a host is not sent to any more, half a second
/// above [`NO_ANSWER`]: the kernel's third request leaves after two seconds.
const MAC_LOST_TIMEOUT: Duration = NO_ANSWER.saturating_add(Duration::from_millis(500));
/// A MAC address is checked after so long.
const CHECK: Duration = Duration::from_secs(3);
/// MAC addresses that are checked with each look.
const CHECKS: usize = 256;
/// All are checked within so many looks, however many they are.
const CHECK_ROUND: usize = 30;
/// Parts of the neighbours that each look reads to find hosts in use: all parts in about a minute.
const PARTS: usize = 4;

/// Next hop: interface number and IP address.
pub(super) type NextHop = (u8, IpAddr);

/// Next hop of a host, and the MTU of its route if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostRoute {
    /// The hop that gets its packets.
    pub(super) place: NextHop,
    /// The MTU of the route, if it has one.
    pub(super) mtu: Option<NonZeroU16>,
    /// The interface of the route, if it is not one of the gateway's.
    pub(super) routed_by: Option<String>,
}

/// A host, or the router to some.
#[derive(Default)]
pub(super) struct Hop {
    pub(super) hosts: HashSet<HostId>,
    pub(super) mac: Option<[u8; 6]>,
    pub(super) asked: Option<Instant>,
    /// When the kernel was last made to check the MAC address.
    pub(super) checked: Option<Instant>,
    /// When the kernel lost the MAC address.
    pub(super) mac_lost_at: Option<Instant>,
    /// When the last packet came for it that has to wait.
    last_packet: Option<Instant>,
    /// When packets began to come for it that nobody answers for.
    pub(super) unanswered: Option<Instant>,
}

/// Returns whether `last` is None or at least `after` ago.
fn is_due(last: Option<Instant>, after: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= after)
}

impl Hop {
    pub(super) fn is_to_be_asked(&self, after: Duration) -> bool {
        is_due(self.asked, after)
    }

    /// Returns whether requests or packets began so long ago without an answer. Requests may be
    /// repeated meanwhile.
    pub(super) fn is_unanswered_for(&self, time: Duration) -> bool {
        is_due(self.asked, time) || self.unanswered.is_some_and(|begun| begun.elapsed() >= time)
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.mac.is_none() && !self.is_to_be_asked(ASK_AGAIN)
    }

    /// Notes that a packet waits for it. The first one after a pause begins to wait.
    fn note_packet(&mut self) {
        let is_paused = is_due(self.last_packet, Duration::from_nanos(ENTRY_TIMEOUT));
        self.last_packet = Some(Instant::now());
        if self.mac.is_none() && (is_paused || self.unanswered.is_none()) {
            self.unanswered = self.last_packet;
        }
    }

    /// Returns since when packets have come without an answer, if that is long enough.
    fn unanswered(&self) -> Option<Instant> {
        let begun = self.unanswered.filter(|_| self.mac.is_none());
        begun.filter(|begun| begun.elapsed() >= NO_ANSWER)
    }

    /// Returns whether its MAC address is to be checked. A lost one is asked for already.
    fn is_to_be_checked(&self) -> bool {
        let loss_ends = NO_ANSWER + 3 * LOOK;
        self.mac.is_some() && is_due(self.checked, CHECK) && is_due(self.mac_lost_at, loss_ends)
    }

    /// Notes that the kernel lost the MAC address. Clears it and returns true if that was
    /// [`MAC_LOST_TIMEOUT`] ago.
    pub(super) fn note_lost_mac(&mut self) -> bool {
        let begun = *self.mac_lost_at.get_or_insert_with(Instant::now);
        if begun.elapsed() < MAC_LOST_TIMEOUT {
            return false;
        }
        let now = Some(Instant::now());
        (self.mac, self.mac_lost_at) = (None, None);
        (self.asked, self.last_packet, self.unanswered) = (now, now, Some(begun));
        true
    }

    /// Clears the times, so that the hop is asked for and checked again.
    pub(super) fn renew(&mut self) {
        (self.asked, self.checked, self.mac_lost_at) = (None, None, None);
    }
}

/// Where a host is.
pub(super) struct Known {
    pub(super) id: HostId,
    /// What the kernel's routes said when they were asked last, and when that was.
    pub(super) way: Result<HostRoute, Cause>,
    pub(super) routed: Instant,
    /// When the last packet came for it that has to wait.
    last_packet: Option<Instant>,
    /// In which round it has come.
    round: u64,
}

impl Known {
    pub(super) fn place(&self) -> Option<NextHop> {
        self.way.as_ref().ok().map(|way| way.place)
    }
}

/// State of hosts that have neighbours. A host without any is removed after one to two rounds.
pub(super) struct Ways<'a> {
    pub(super) hosts: HostReader,
    pub(super) hops: HashMap<NextHop, Hop>,
    /// In the order in which their routes are looked at.
    pub(super) places: Vec<Known>,
    /// Round of looks through all neighbours, its next part, and, by number, the hosts in use.
    pub(super) round: u64,
    pub(super) part: usize,
    pub(super) used: Vec<bool>,
    pub(super) numbers: HashMap<HostId, usize>,
    pub(super) next: usize,
    /// Hosts up to this number were asked for before anybody sent to them.
    pub(super) prepared: usize,
    pub(super) limits: Limits,
    pub(super) unreachable: Tracker<'a>,
    pub(super) icmp: IcmpListener,
    /// What the kernel finds out; None if it does not tell.
    pub(super) watch: Option<NeighbourWatch>,
    /// As the interfaces were found last.
    pub(super) ports: Arc<Ports>,
    pub(super) looked: Instant,
    pub(super) looked_at_routes: Instant,
    /// The kernel's table may have what it does not tell.
    pub(super) is_to_be_looked_through: bool,
}

impl Ways<'_> {
    /// Notes what the kernel's routes say of a host: it is at this hop, or at none, and no longer
    /// where it was.
    pub(super) fn note_way(&mut self, id: HostId, way: Result<HostRoute, Cause>) {
        let (routed, round) = (Instant::now(), self.round);
        let place = way.as_ref().ok().map(|way| way.place);
        match self.numbers.get(&id) {
            Some(&number) => {
                let known = &mut self.places[number];
                let before = known.place();
                (known.way, known.routed) = (way, routed);
                if let Some(before) = before.filter(|before| Some(*before) != place) {
                    self.leave_hop(id, before);
                }
            }
            None => {
                self.numbers.insert(id, self.places.len());
                self.places.push(Known {
                    id,
                    way,
                    routed,
                    last_packet: None,
                    round,
                });
            }
        }
        if let Some(place) = place {
            self.hops.entry(place).or_default().hosts.insert(id);
        }
    }

    /// Returns what the kernel's routes said of a host, if that was a moment ago.
    pub(super) fn latest_way(&self, id: HostId) -> Option<Result<HostRoute, Cause>> {
        let known = &self.places[*self.numbers.get(&id)?];
        (known.routed.elapsed() < ASK_AGAIN).then(|| known.way.clone())
    }

    /// Notes that a packet waits for a host.
    pub(super) fn note_packet(&mut self, id: HostId) {
        let Some(&number) = self.numbers.get(&id) else { return };
        let known = &mut self.places[number];
        if let Some(hop) = known.place().and_then(|place| self.hops.get_mut(&place)) {
            hop.note_packet();
        }
        known.last_packet = Some(Instant::now());
    }

    /// Returns hosts that packets came for lately and that nobody answers for, how they would be
    /// reached, and how long ago the last packet came.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (HostId, &HostRoute, Duration)> {
        self.places.iter().filter_map(|known| {
            let (way, last) = (known.way.as_ref().ok()?, known.last_packet?);
            let begun = self.hops.get(&way.place)?.unanswered()?;
            let ago = last.elapsed();
            let is_lately = last >= begun && ago < Duration::from_nanos(ENTRY_TIMEOUT);
            is_lately.then_some((known.id, way, ago))
        })
    }

    fn leave_hop(&mut self, id: HostId, place: NextHop) {
        let left = self.hops.get_mut(&place);
        let is_empty = left.is_some_and(|hop| {
            hop.hosts.remove(&id);
            hop.hosts.is_empty()
        });
        if is_empty {
            self.hops.remove(&place);
        }
    }

    /// A host is at no hop any more.
    pub(super) fn leave(&mut self, id: HostId) {
        let Some(number) = self.numbers.remove(&id) else { return };
        let left = self.places.swap_remove(number);
        if let Some(moved) = self.places.get(number) {
            self.numbers.insert(moved.id, number);
        }
        if let Some(place) = left.place() {
            self.leave_hop(id, place);
        }
    }

    /// Reads the next parts of the neighbours. After a round, returns hosts that were known during
    /// all of it and have no neighbour.
    pub(super) fn look_for_users(&mut self, neighbors: &Neighbors) -> Vec<HostId> {
        for part in self.part..(self.part + PARTS).min(Neighbors::PARTS) {
            neighbors.for_each_of(part, |_, neighbor| {
                if let Some(used) = self.used.get_mut(neighbor.host.0 as usize) {
                    *used = true;
                }
            });
        }
        self.part += PARTS;
        if self.part < Neighbors::PARTS {
            return Vec::new();
        }
        let is_unused = |known: &&Known| known.round < self.round && !self.used[known.id.0 as usize];
        let unused = self.places.iter().filter(is_unused).map(|known| known.id).collect();
        self.part = 0;
        self.round += 1;
        // Those that come later are of this round.
        let most = self.places.iter().map(|known| known.id.0 as usize + 1).max();
        self.used.clear();
        self.used.resize(most.unwrap_or(0), false);
        unused
    }

    /// Returns the places whose MAC addresses are to be checked now, and notes that they are: those
    /// that were not for longest first.
    pub(super) fn take_for_check(&mut self) -> Vec<NextHop> {
        let due = self.hops.iter().filter(|(_, hop)| hop.is_to_be_checked());
        let mut due: Vec<_> = due.map(|(place, hop)| (hop.checked, *place)).collect();
        due.sort_unstable();
        due.truncate(CHECKS.max(self.hops.len() / CHECK_ROUND));
        let due: Vec<NextHop> = due.into_iter().map(|(_, place)| place).collect();
        for place in &due {
            if let Some(hop) = self.hops.get_mut(place) {
                (hop.checked, hop.mac_lost_at) = (Some(Instant::now()), None);
            }
        }
        due
    }
}
