//! Who finds out by which port a host is reached, which MAC address its packets get and how long they may be: by the kernel's routes,
//! by its neighbour table, which is kept true by ARP and neighbour discovery, and by what routers say.
//!
//! What the kernel finds out it tells at once, and a look through its table is for what it knew before, and for what was missed: so a
//! host that never answers costs no looks, however long tenants send to it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use ringside_gateway_core::table::{Host, HostId, Limit};
use ringside_nic::{Interface, NeighbourEvent, NeighbourWatch, Route};
use ringside_wire::MacAddr;

use super::icmp::IcmpListener;
use super::kernel_table;
use super::limits::{LimitCounters, Limits};
use super::nanoseconds;
use super::notices::About;
use super::ports::Ports;
use super::unreachable::Tracker;
use super::unresolved::Cause;
use super::ways::{Hop, HostRoute, NextHop, Ways};
use super::worker::{Shared, now};
use crate::model::Tables;

/// What the kernel tells is listened to so often while somebody waits for an answer; and its table is looked through no more often.
const WHILE_WAITING: Duration = Duration::from_millis(2);
/// Its table is looked through so often whatever happens.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// A host that does not answer is asked again with the next packet, but not sooner.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Hosts whose routes are asked for with each look: another way is found soon, and the kernel is not kept busy.
const ROUTES: usize = 1000;
/// Hosts that nobody has sent to yet are asked for with each turn: thousands in a second, and others have their turn.
const AT_ONCE: usize = 16;

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
            let way = match way_to(&self.shared.ports.load(), &given) {
                Ok(way) => {
                    ways.limits.route(&self.tables.hosts, *id, way.mtu, now());
                    way
                }
                // As it was, until routes are looked at.
                Err(_) => HostRoute {
                    place: (host.port.unwrap_or(0), host.ip),
                    mtu: None,
                    routed_by: None,
                },
            };
            let place = way.place;
            ways.note_way(*id, Ok(way));
            if let Some(hop) = ways.hops.get_mut(&place).filter(|_| host.port == Some(place.0)) {
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
            ways.hops.values_mut().for_each(Hop::renew);
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
            self.check(ways);
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
        let asked = self.ask(id, ways);
        ways.note_packet(id);
        if let (Err(cause), Some(host)) = (asked, ways.hosts.find(id)) {
            self.shared.unresolved.record(host.ip, cause, now());
        }
    }

    fn ask(&self, id: HostId, ways: &mut Ways<'_>) -> Result<(), Cause> {
        let (Some(host), Some(given)) = (ways.hosts.find(id), ways.hosts.given(id)) else {
            return Ok(());
        };
        let (ports, settings) = (self.shared.ports.load(), self.shared.settings.load());
        let check = |number| Cause::of_port(&ports, &settings.ports, number, host.ip);
        let only = (ports.len() == 1).then_some(0);
        given.port.or(only).map_or(Ok(()), check)?;
        let port = host.port.filter(|port| usize::from(*port) < ports.len());
        if let (Some(_), Some(port)) = (host.mac, port) {
            return check(port);
        }
        let way = match ways.latest_way(id) {
            Some(way) => way,
            None => {
                let way = way_to(&ports, &given);
                ways.note_way(id, way.clone());
                way
            }
        }?;
        check(way.place.0)?;
        // Before it can be sent to.
        ways.limits.route(&self.tables.hosts, id, way.mtu, now());
        self.go(id, &given, way.place, ways);
        Ok(())
    }

    /// A gateway of a fleet may be sent any network's packets from one moment to the next, more of them than wait for a MAC address.
    fn prepare(&self, ways: &mut Ways<'_>) {
        let end = self.tables.hosts.len().min(ways.prepared + AT_ONCE);
        // The first packet for one without a way notes it.
        hosts(ways.prepared..end).for_each(|id| _ = self.ask(id, ways));
        ways.prepared = end;
    }

    /// From now on a host is reached there, where it is at a hop.
    fn go(&self, id: HostId, given: &Host, place: NextHop, ways: &mut Ways<'_>) {
        let hop = ways.hops.entry(place).or_default();
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

    fn ask_kernel(&self, hop: &mut Hop, (port, ip): NextHop) {
        hop.asked = Some(Instant::now());
        self.ask_for((port, ip));
    }

    fn ask_for(&self, (port, ip): NextHop) {
        if let Some(interface) = self.shared.ports.load().get(port) {
            interface.ask_for(ip);
        }
    }

    /// Has the kernel check MAC addresses that are known: the fast path sends without the kernel,
    /// which would not notice that nobody answers any more.
    fn check(&self, ways: &mut Ways<'_>) {
        let ports = self.shared.ports.load();
        for place in ways.take_for_check() {
            let Some(interface) = ports.get(place.0) else { continue };
            let is_known = interface.probe_neighbour(place.1).unwrap_or_else(|error| {
                tracing::debug!(%error, "the kernel cannot be made to check a MAC address");
                false
            });
            if !is_known {
                interface.ask_for(place.1);
            }
        }
    }

    /// Some hosts may be reached by another way than before, or by none.
    fn look_at_routes(&self, ways: &mut Ways<'_>) {
        let ports = self.shared.ports.load();
        let (mut others, mut lost) = (0, 0);
        for _ in 0..ways.places.len().min(ROUTES) {
            let known = &ways.places[ways.next % ways.places.len()];
            let (id, before) = (known.id, known.place());
            ways.next = (ways.next + 1) % ways.places.len();
            let Some(given) = ways.hosts.given(id) else { continue };
            let way = way_to(&ports, &given);
            let place = way.as_ref().ok().map(|way| way.place);
            let is_unknown = way.as_ref().is_err_and(Cause::is_transient);
            match (place, before) {
                (Some(place), _) => {
                    let mtu = way.as_ref().ok().and_then(|way| way.mtu);
                    ways.limits.route(&self.tables.hosts, id, mtu, now());
                    ways.note_way(id, way);
                    if before == Some(place) {
                        self.leave_last_hop(id, &given, place, ways);
                    } else {
                        self.go(id, &given, place, ways);
                        others += 1;
                    }
                }
                // Skip links that are down: their routes return when the link is up.
                (None, Some((port, _))) if !is_unknown && ports.get(port).is_some_and(is_up) => {
                    ways.note_way(id, way);
                    self.unresolve(id);
                    lost += 1;
                }
                (None, _) => {}
            }
        }
        if others != 0 {
            tracing::info!(hosts = others, "the kernel routes to hosts by another way than before");
        }
        if lost != 0 {
            tracing::info!(
                hosts = lost,
                "the kernel has no route to hosts any more by an interface of the gateway"
            );
        }
    }

    /// Unresolves a host whose new next hop has not answered. Until then packets use the old one.
    fn leave_last_hop(&self, id: HostId, given: &Host, place: NextHop, ways: &mut Ways<'_>) {
        let is_sent_to = ways.hosts.find(id).is_some_and(|host| host.mac.is_some());
        let hop = ways.hops.entry(place).or_default();
        if !is_sent_to || hop.mac.is_some() || given.mac.is_some() {
            return;
        }
        if hop.asked.is_none() {
            self.ask_kernel(hop, place);
        } else if hop.is_unanswered_for(LOOK / 2) {
            self.unresolve(id);
        }
    }

    /// Nobody lives on a host any more. If somebody comes, it is asked for anew.
    fn forget(&self, id: HostId, ways: &mut Ways<'_>) {
        ways.leave(id);
        ways.limits.route(&self.tables.hosts, id, None, now());
        // Also for who has come meanwhile.
        self.unresolve(id);
    }

    /// Marks a host as unresolved; its packets wait.
    fn unresolve(&self, id: HostId) {
        self.tables.hosts.resolve(id, None);
        // The channel is closed only when the data path ends.
        _ = self.found.send(id);
    }

    /// Handles what the kernel has reported since the last call.
    fn listen(&self, ways: &mut Ways<'_>) {
        let Some(watch) = &mut ways.watch else { return };
        let mut states = HashMap::new();
        loop {
            let event = match watch.next() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "the kernel cannot be listened to");
                    return;
                }
            };
            let (index, address, mac) = match event {
                NeighbourEvent::Known { index, address, mac } => (index, address, Some(mac)),
                NeighbourEvent::Failed { index, address } => (index, address, None),
                _ => {
                    ways.is_to_be_looked_through = true;
                    continue;
                }
            };
            let Some(port) = ways.ports.number(index) else { continue };
            let place = (port, address);
            let Some(hop) = ways.hops.get_mut(&place) else { continue };
            let is_up = || ways.ports.get(port).is_some_and(is_up);
            match mac {
                Some(mac) => self.learn(hop, place, mac),
                None if hop.mac.is_some() && *states.entry(index).or_insert_with(is_up) => {
                    self.handle_lost_mac(hop, place);
                }
                None => {}
            }
        }
    }

    fn learn(&self, hop: &mut Hop, (port, _): NextHop, mac: [u8; 6]) {
        hop.mac_lost_at = None;
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
            let is_up = is_up(interface);
            if !is_up {
                // Nobody can answer. The time begins again when the link is up.
                let on_link = ways.hops.iter_mut().filter(|((of, _), _)| *of == port);
                on_link.for_each(|(_, hop)| hop.mac_lost_at = None);
            }
            for family in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
                let is_there = |(of, ip): &NextHop| *of == port && ip.is_ipv4() == family.is_ipv4();
                if !ways.hops.keys().any(is_there) {
                    continue;
                }
                let entries = match interface.neighbour_entries(family) {
                    Ok(entries) => entries,
                    Err(error) => {
                        failed = Some(format!("MAC addresses of hosts cannot be found out: {error}"));
                        continue;
                    }
                };
                for (ip, mac) in entries {
                    let place = (port, ip);
                    let Some(hop) = ways.hops.get_mut(&place) else { continue };
                    match mac {
                        Some(mac) => self.learn(hop, place, mac),
                        None if hop.mac.is_some() && is_up => self.handle_lost_mac(hop, place),
                        None => {}
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
    }

    /// Handles a MAC address that the kernel lost: asks again, and unresolves the hosts after
    /// [`NO_ANSWER`](super::ways::NO_ANSWER).
    fn handle_lost_mac(&self, hop: &mut Hop, place: NextHop) {
        let is_new = hop.mac_lost_at.is_none();
        if !hop.note_lost_mac() {
            if is_new || hop.is_to_be_asked(ASK_AGAIN) {
                self.ask_kernel(hop, place);
            }
            return;
        }
        let mut reader = self.tables.hosts.reader();
        for id in &hop.hosts {
            if reader.given(*id).is_some_and(|given| given.mac.is_none()) {
                self.unresolve(*id);
            }
        }
    }

    /// Notes hosts that packets came for and that nobody answers for.
    fn note_unanswered(&self, ways: &Ways<'_>) {
        let (ports, mut hosts) = (self.shared.ports.load(), self.tables.hosts.reader());
        for (id, way, ago) in ways.unanswered() {
            if let Some(host) = hosts.find(id).filter(|host| host.mac.is_none()) {
                let came = now().saturating_sub(nanoseconds(ago));
                self.shared
                    .unresolved
                    .record(host.ip, Cause::no_answer(&ports, way), came);
            }
        }
        let settings = self.shared.settings.load();
        (self.shared.unresolved).expire(now(), |cause| cause.is_over(&ports, &settings.ports));
    }

    fn tell(&self, id: HostId, mac: [u8; 6], port: u8) {
        self.tables.hosts.resolve(id, Some((MacAddr(mac), port)));
        if let Some(host) = self.tables.hosts.reader().find(id) {
            self.shared.unresolved.remove(host.ip);
        }
        // The channel is closed only when the data path ends.
        _ = self.found.send(id);
    }
}

fn is_up(interface: &Interface) -> bool {
    interface.state().is_ok_and(|state| state.admin_up && state.carrier)
}

/// Those of these numbers.
fn hosts(numbers: Range<usize>) -> impl Iterator<Item = HostId> {
    numbers.filter_map(|number| u32::try_from(number).ok().map(HostId))
}

/// By which port a host is reached, whose MAC address packets to it get, and how long they may be.
fn way_to(ports: &Ports, given: &Host) -> Result<HostRoute, Cause> {
    let route = Route::to(given.ip).map_err(|error| Cause::of_route(&error))?;
    if route.is_local {
        return Err(Cause::OwnAddress);
    }
    let routed = ports.number(route.interface.index());
    let by = routed.is_none().then(|| route.interface.name().to_owned());
    let Some(port) = given.port.or(routed) else {
        return Err(Cause::OtherInterface {
            by: by.unwrap_or_default(),
            own: ports.names(),
        });
    };
    let is_its = routed == Some(port);
    let router = route.gateway.filter(|_| is_its);
    let mtu = route.mtu.filter(|_| is_its).and_then(|mtu| u16::try_from(mtu).ok());
    Ok(HostRoute {
        place: (port, router.unwrap_or(given.ip)),
        mtu: mtu.and_then(NonZeroU16::new),
        routed_by: by,
    })
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
        let Ok(way) = way_to(ports, &given) else { continue };
        if let Some(mac) = known.get(&way.place) {
            tables.hosts.limit(id, Limit::of(way.mtu));
            tables.hosts.resolve(id, Some((MacAddr(*mac), way.place.0)));
            resolved.push(id);
        }
    }
    resolved
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
