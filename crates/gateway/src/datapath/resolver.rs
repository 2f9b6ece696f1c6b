//! Who finds out by which port a host is reached, which MAC address its packets get and how long they may be: by the kernel's routes,
//! by its neighbour table, which is kept true by ARP and neighbour discovery, and by what routers say.
//!
//! What the kernel finds out it tells at once, and a look through its table is for what it knew before, and for what was missed: so a
//! host that never answers costs no looks, however long tenants send to it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use ringside_gateway_core::Neighbors;
use ringside_gateway_core::table::{Host, HostId, HostReader, Limit};
use ringside_nic::{NeighbourEvent, NeighbourWatch, Route};
use ringside_wire::MacAddr;

use super::icmp::IcmpListener;
use super::kernel_table;
use super::limits::{LimitCounters, Limits};
use super::notices::About;
use super::ports::Ports;
use super::unreachable::Tracker;
use super::unresolved::{Cause, ENTRY_TIMEOUT};
use super::worker::{Shared, now};
use crate::model::Tables;

/// What the kernel tells is listened to so often while somebody waits for an answer; and its table is looked through no more often.
const WHILE_WAITING: Duration = Duration::from_millis(2);
/// Its table is looked through so often whatever happens.
const LOOK: Duration = Duration::from_secs(1);
/// A host that does not answer is asked again with the next packet, but not sooner.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// One that did is asked whether it is still there.
const CONFIRM: Duration = Duration::from_secs(30);
/// Time without an answer after which a host counts as unanswered.
const NO_ANSWER: Duration = Duration::from_secs(2);
/// Hosts whose routes are asked for with each look: another way is found soon, and the kernel is not kept busy.
const ROUTES: usize = 1000;
/// Hosts that nobody has sent to yet are asked for with each turn: thousands in a second, and others have their turn.
const AT_ONCE: usize = 16;
/// Parts of all neighbours that are looked through with each look for who lives where: all of them in a minute or so.
const PARTS: usize = 4;

pub(super) struct Resolver {
    pub(super) tables: Arc<Tables>,
    pub(super) shared: Arc<Shared>,
    /// Hosts to which the way is known from the process before.
    pub(super) resolved: Vec<HostId>,
    /// Hosts to which the way is wanted.
    pub(super) wanted: Receiver<HostId>,
    /// Hosts to which it is another than it was.
    pub(super) found: Sender<HostId>,
    pub(super) limits: Arc<LimitCounters>,
}

/// Somebody on a link, by the port's number.
type Place = (u8, IpAddr);

/// Who that is for a host, and the longest packet that gets there, if the route says so.
type Way = (Place, Option<NonZeroU16>);

/// A host, or the router to some.
#[derive(Default)]
struct Hop {
    hosts: HashSet<HostId>,
    mac: Option<[u8; 6]>,
    asked: Option<Instant>,
    /// When packets began to come for it that nobody answers for.
    unanswered: Option<Instant>,
}

impl Hop {
    fn is_to_be_asked(&self, after: Duration) -> bool {
        self.asked.is_none_or(|asked| asked.elapsed() >= after)
    }

    fn is_waited_for(&self) -> bool {
        self.mac.is_none() && !self.is_to_be_asked(ASK_AGAIN)
    }

    /// Notes that it is asked. The first packet after a pause begins to wait.
    fn ask(&mut self) {
        let is_paused = self.is_to_be_asked(Duration::from_nanos(ENTRY_TIMEOUT));
        let begun = self.unanswered.filter(|_| !is_paused);
        self.asked = Some(Instant::now());
        self.unanswered = begun.or(self.asked).filter(|_| self.mac.is_none());
    }

    /// Returns whether packets have been coming for long enough, and still do, without an answer.
    fn is_unanswered(&self) -> bool {
        let asked = self.asked.zip(self.unanswered);
        asked.is_some_and(|(asked, begun)| asked.duration_since(begun) >= NO_ANSWER)
            && !self.is_to_be_asked(2 * LOOK + ASK_AGAIN)
    }
}

/// Where a host is.
struct Known {
    id: HostId,
    place: Place,
    /// In which round it has come.
    round: u64,
}

/// What is known of hosts on which somebody lives. Who has none any more is forgotten, after one to two rounds.
struct Ways<'a> {
    hosts: HostReader,
    hops: HashMap<Place, Hop>,
    /// In the order in which their routes are looked at.
    places: Vec<Known>,
    /// The round of looks through all neighbours, how far it is, and on which hosts, by number, it has found some.
    round: u64,
    part: usize,
    used: Vec<bool>,
    numbers: HashMap<HostId, usize>,
    next: usize,
    /// Hosts up to this number were asked for before anybody sent to them.
    prepared: usize,
    limits: Limits,
    unreachable: Tracker<'a>,
    icmp: IcmpListener,
    /// What the kernel finds out; None if it does not tell.
    watch: Option<NeighbourWatch>,
    /// As the interfaces were found last.
    ports: Arc<Ports>,
    looked: Instant,
    looked_at_routes: Instant,
    /// The kernel's table may have what it does not tell.
    is_to_be_looked_through: bool,
}

/// What was done in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Listened,
    LookedThrough,
    /// Nobody wants anything any more.
    Ended,
}

impl Resolver {
    pub(super) fn run(self) {
        let mut ways = self.begin();
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.turn(&mut ways) == Turn::Ended {
                return;
            }
        }
    }

    fn begin(&self) -> Ways<'_> {
        let silent = |error: &_| tracing::warn!(%error, "MAC addresses are found out once a second, not at once");
        let begun = Instant::now();
        let mut ways = Ways {
            hosts: self.tables.hosts.reader(),
            hops: HashMap::new(),
            places: Vec::new(),
            round: 0,
            part: 0,
            used: Vec::new(),
            numbers: HashMap::new(),
            next: 0,
            prepared: 0,
            limits: Limits::new(&self.tables.hosts, Arc::clone(&self.limits)),
            unreachable: Tracker::new(&self.shared.unreachable, &self.tables),
            icmp: IcmpListener::open(),
            watch: NeighbourWatch::open().inspect_err(silent).ok(),
            ports: self.shared.ports.load_full(),
            looked: begun,
            looked_at_routes: begun,
            is_to_be_looked_through: false,
        };
        for id in &self.resolved {
            let Some(host) = ways.hosts.find(*id) else { continue };
            let given = ways.hosts.given(*id).unwrap_or(host);
            let place = match way_to(&self.shared.ports.load(), &given) {
                Ok((place, mtu)) => {
                    ways.limits.route(&self.tables.hosts, *id, mtu, now());
                    place
                }
                // As it was, until there is a way again.
                Err(_) => (host.port.unwrap_or(0), host.ip),
            };
            let hop = ways.enrol(*id, place);
            if host.port == Some(place.0) {
                hop.mac = host.mac.map(|mac| mac.0);
            }
        }
        ways
    }

    fn turn(&self, ways: &mut Ways<'_>) -> Turn {
        let waits = ways.is_to_be_looked_through || ways.hops.values().any(Hop::is_waited_for);
        let pause = if waits { WHILE_WAITING } else { LOOK / 10 };
        match self.wanted.recv_timeout(pause) {
            Ok(id) => {
                self.ask_or_note(id, ways);
                self.wanted.try_iter().for_each(|id| self.ask_or_note(id, ways));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Turn::Ended,
        }
        let latest = self.shared.ports.load_full();
        if !Arc::ptr_eq(&latest, &ways.ports) {
            // Whoever is on the links, nobody there has been asked.
            ways.hops.values_mut().for_each(|hop| hop.asked = None);
            ways.ports = latest;
        }
        self.listen(ways);
        if ways.looked_at_routes.elapsed() >= LOOK {
            ways.looked_at_routes = Instant::now();
            ways.is_to_be_looked_through = true;
            self.look_at_routes(ways);
            for id in ways.look_for_users(&self.tables.neighbors) {
                self.forget(id, ways);
            }
            ways.limits.forget(&self.tables.hosts, now());
            ways.unreachable.expire(now());
            self.note_unanswered(ways);
        }
        if self.shared.foreign.is_possible() {
            self.prepare(ways);
        }
        let at = now();
        let takers = (&mut ways.limits, &mut ways.unreachable);
        (ways.icmp).read(&self.tables.hosts, takers, &self.shared.settings.load(), at);
        for id in ways.limits.changed(&self.tables.hosts, at) {
            _ = self.found.send(id);
        }
        if !ways.is_to_be_looked_through || ways.looked.elapsed() < WHILE_WAITING {
            return Turn::Listened;
        }
        ways.is_to_be_looked_through = false;
        self.look(ways);
        ways.looked = Instant::now();
        Turn::LookedThrough
    }

    /// Asks for a host that packets wait for, and notes why nobody can be asked.
    fn ask_or_note(&self, id: HostId, ways: &mut Ways<'_>) {
        if let (Err(cause), Some(host)) = (self.ask(id, ways), ways.hosts.find(id)) {
            self.shared.unresolved.record(host.ip, cause, now());
        }
    }

    fn ask(&self, id: HostId, ways: &mut Ways<'_>) -> Result<(), Cause> {
        let (Some(host), Some(given)) = (ways.hosts.find(id), ways.hosts.given(id)) else {
            return Ok(());
        };
        let ports = self.shared.ports.load();
        if let Some(cause) = Cause::of_port(&ports, &self.shared.settings.load().ports, &given) {
            return Err(cause);
        }
        if host.mac.is_some() && host.port.is_some() {
            return Ok(());
        }
        let (place, mtu) = way_to(&ports, &given)?;
        // Before it can be sent to.
        ways.limits.route(&self.tables.hosts, id, mtu, now());
        self.go(id, &given, place, ways);
        Ok(())
    }

    /// A gateway of a fleet may be sent any network's packets from one moment to the next, more of them than wait for a MAC address.
    fn prepare(&self, ways: &mut Ways<'_>) {
        let end = self.tables.hosts.len().min(ways.prepared + AT_ONCE);
        // The first packet for one without a way notes it.
        hosts(ways.prepared..end).for_each(|id| _ = self.ask(id, ways));
        ways.prepared = end;
    }

    /// From now on a host is reached there.
    fn go(&self, id: HostId, given: &Host, place: Place, ways: &mut Ways<'_>) {
        let hop = ways.enrol(id, place);
        match given.mac.map(|mac| mac.0).or(hop.mac) {
            Some(mac) => self.tell(id, mac, place.0),
            None if hop.is_to_be_asked(ASK_AGAIN) => {
                // Who was never asked for may be known already, which nobody tells.
                let is_new = hop.asked.is_none();
                self.ask_kernel(hop, place);
                ways.is_to_be_looked_through |= is_new;
            }
            None => {}
        }
    }

    fn ask_kernel(&self, hop: &mut Hop, (port, ip): Place) {
        hop.ask();
        if let Some(interface) = self.shared.ports.load().get(port) {
            interface.ask_for(ip);
        }
    }

    /// Some hosts may be reached by another way than before.
    fn look_at_routes(&self, ways: &mut Ways<'_>) {
        let mut others = 0;
        for _ in 0..ways.places.len().min(ROUTES) {
            let Known { id, place: before, .. } = ways.places[ways.next % ways.places.len()];
            ways.next = (ways.next + 1) % ways.places.len();
            let Some(given) = ways.hosts.given(id) else { continue };
            let Ok((place, mtu)) = way_to(&self.shared.ports.load(), &given) else {
                continue;
            };
            ways.limits.route(&self.tables.hosts, id, mtu, now());
            if place != before {
                self.go(id, &given, place, ways);
                others += 1;
            }
        }
        if others != 0 {
            tracing::info!(hosts = others, "the kernel routes to hosts by another way than before");
        }
    }

    /// Nobody lives on a host any more. If somebody comes, it is asked for anew.
    fn forget(&self, id: HostId, ways: &mut Ways<'_>) {
        ways.leave(id);
        ways.limits.route(&self.tables.hosts, id, None, now());
        self.tables.hosts.resolve(id, None);
        // For who has come meanwhile.
        _ = self.found.send(id);
    }

    /// What the kernel tells.
    fn listen(&self, ways: &mut Ways<'_>) {
        let Some(watch) = &mut ways.watch else { return };
        loop {
            match watch.next() {
                Ok(Some(NeighbourEvent::Known { index, address, mac })) => {
                    let place = ways.ports.number(index).map(|port| (port, address));
                    if let Some((place, hop)) = place.and_then(|place| Some((place, ways.hops.get_mut(&place)?))) {
                        self.learn(hop, place, mac);
                    }
                }
                Ok(Some(_)) => ways.is_to_be_looked_through = true,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "the kernel cannot be listened to");
                    return;
                }
            }
        }
    }

    fn learn(&self, hop: &mut Hop, (port, _): Place, mac: [u8; 6]) {
        if hop.mac != Some(mac) {
            hop.mac = Some(mac);
            hop.unanswered = None;
            hop.hosts.iter().for_each(|id| self.tell(*id, mac, port));
        }
    }

    /// What the kernel has in its table.
    fn look(&self, ways: &mut Ways<'_>) {
        let ports = self.shared.ports.load();
        let mut failed = None;
        for (port, interface) in ports.iter() {
            for family in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
                let is_there = |(of, ip): &Place| *of == port && ip.is_ipv4() == family.is_ipv4();
                if !ways.hops.keys().any(is_there) {
                    continue;
                }
                let known = match interface.neighbours(family) {
                    Ok(known) => known,
                    Err(error) => {
                        failed = Some(format!("MAC addresses of hosts cannot be found out: {error}"));
                        continue;
                    }
                };
                for (ip, mac) in known {
                    let place = (port, ip);
                    if let Some(hop) = ways.hops.get_mut(&place) {
                        self.learn(hop, place, mac);
                    }
                }
            }
        }
        self.shared.notices.tell(About::Hosts, failed);
        let there = kernel_table::count(ways.hops.keys().map(|(_, ip)| ip));
        for ((family, there), takes) in kernel_table::FAMILIES
            .into_iter()
            .zip(there)
            .zip(kernel_table::limits())
        {
            let problem = kernel_table::problem(family, there, takes);
            self.shared.notices.tell(About::KernelTable(family), problem);
        }
        for (place, hop) in &mut ways.hops {
            if hop.mac.is_some() && hop.is_to_be_asked(CONFIRM) {
                self.ask_kernel(hop, *place);
            }
        }
    }

    /// Notes hosts that packets come for and that nobody answers for.
    fn note_unanswered(&self, ways: &mut Ways<'_>) {
        let ports = self.shared.ports.load();
        for (place, hop) in ways.hops.iter().filter(|(_, hop)| hop.is_unanswered()) {
            for id in &hop.hosts {
                if let Some(host) = ways.hosts.find(*id).filter(|host| host.mac.is_none()) {
                    let cause = Cause::no_answer(&ports, host.ip, *place);
                    self.shared.unresolved.record(host.ip, cause, now());
                }
            }
        }
        self.shared.unresolved.expire(now());
    }

    fn tell(&self, id: HostId, mac: [u8; 6], port: u8) {
        self.tables.hosts.resolve(id, Some((MacAddr(mac), port)));
        if let Some(host) = self.tables.hosts.reader().find(id) {
            self.shared.unresolved.remove(host.ip);
        }
        // Nobody is there any more: then the data path ends.
        _ = self.found.send(id);
    }
}

/// Those of these numbers.
fn hosts(numbers: Range<usize>) -> impl Iterator<Item = HostId> {
    numbers.filter_map(|number| u32::try_from(number).ok().map(HostId))
}

/// By which port a host is reached, whose MAC address packets to it get, and how long they may be.
fn way_to(ports: &Ports, given: &Host) -> Result<Way, Cause> {
    let route = Route::to(given.ip).map_err(|error| Cause::NoRoute(error.to_string()))?;
    let routed = ports.number(route.interface.index());
    let only = (ports.len() == 1).then_some(0);
    let Some(port) = given.port.or(only).or(routed) else {
        return Err(Cause::OtherInterface {
            by: route.interface.name().to_owned(),
            own: ports.names(),
        });
    };
    let is_its = routed.is_none_or(|routed| routed == port);
    let router = route.gateway.filter(|_| is_its);
    let mtu = route.mtu.filter(|_| is_its).and_then(|mtu| u16::try_from(mtu).ok());
    Ok(((port, router.unwrap_or(given.ip)), mtu.and_then(NonZeroU16::new)))
}

/// Resolves hosts that the kernel knows, before anybody asks: a start on maps of its own is no storm of misses either.
pub(super) fn resolve_known(tables: &Tables, ports: &Ports) -> Vec<HostId> {
    let mut known = HashMap::new();
    for (port, interface) in ports.iter() {
        for family in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            let there = interface.neighbours(family).unwrap_or_default().into_iter();
            known.extend(there.map(|(ip, mac)| ((port, ip), mac)));
        }
    }
    let mut reader = tables.hosts.reader();
    let mut resolved = Vec::new();
    for id in hosts(0..tables.hosts.len()) {
        let Some(given) = reader.given(id).filter(|given| given.mac.is_none()) else {
            continue;
        };
        let Ok((place, mtu)) = way_to(ports, &given) else {
            continue;
        };
        if let Some(mac) = known.get(&place) {
            tables.hosts.limit(id, Limit::of(mtu));
            tables.hosts.resolve(id, Some((MacAddr(*mac), place.0)));
            resolved.push(id);
        }
    }
    resolved
}

impl Ways<'_> {
    /// A host is at this hop, and no longer where it was.
    fn enrol(&mut self, id: HostId, place: Place) -> &mut Hop {
        match self.numbers.get(&id) {
            Some(&number) => {
                let before = std::mem::replace(&mut self.places[number].place, place);
                if before != place {
                    self.leave_hop(id, before);
                }
            }
            None => {
                let round = self.round;
                self.numbers.insert(id, self.places.len());
                self.places.push(Known { id, place, round });
            }
        }
        let hop = self.hops.entry(place).or_default();
        hop.hosts.insert(id);
        hop
    }

    fn leave_hop(&mut self, id: HostId, place: Place) {
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
    fn leave(&mut self, id: HostId) {
        let Some(number) = self.numbers.remove(&id) else { return };
        let Known { place, .. } = self.places.swap_remove(number);
        if let Some(moved) = self.places.get(number) {
            self.numbers.insert(moved.id, number);
        }
        self.leave_hop(id, place);
    }

    /// Looks on for who lives on which host. After a round: hosts that were known all the while, on which it has found nobody.
    fn look_for_users(&mut self, neighbors: &Neighbors) -> Vec<HostId> {
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
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
