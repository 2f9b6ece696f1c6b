//! The checks: one after the other, all faults told.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::steer::probes;
use super::{Guest, Host, Link, Load, Place, Plan, Probe, Schedule, Serve, Steering, Way, Wire};
use crate::lab::file::{self, Fault, Faults, File, Named, Text};
use crate::serve::Pin;

/// From the Ethernet header on.
const ETHERNET: u32 = 14;
/// The usual turns.
const TURN: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 5;

pub(super) struct Checker<'t> {
    text: &'t Text,
    faults: Vec<Fault>,
    pub(super) hosts: Vec<Host>,
    pub(super) guests: Vec<Guest>,
    pub(super) links: Vec<Link>,
    /// Names of guests, also of those with a fault.
    guest_names: Vec<String>,
    /// A link or a guest has a fault: what is missing because of it is not told as another one.
    pub(super) is_whole: bool,
}

/// A machine of the lab.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Host(usize),
    Guest(usize),
}

pub(super) fn check(text: &Text, file: File) -> Result<Plan, Faults> {
    let mut checker = Checker {
        text,
        faults: Vec::new(),
        hosts: Vec::new(),
        guests: Vec::new(),
        links: Vec::new(),
        guest_names: file.guest.iter().map(|guest| guest.name.get_ref().0.clone()).collect(),
        is_whole: true,
    };
    let machines = file
        .host
        .iter()
        .map(|host| &host.name)
        .chain(file.guest.iter().map(|guest| &guest.name));
    checker.unique("host or guest", machines);
    checker.unique("link", file.link.iter().filter_map(|link| link.name.as_ref()));
    checker.unique("load", file.load.iter().map(|load| &load.name));
    let cells = (file.probe.iter().map(|probe| &probe.name)).chain(file.schedule.iter().map(|schedule| &schedule.name));
    checker.unique("probe or schedule", cells);
    checker.unique("steering", file.steering.iter().map(|steering| &steering.name));
    for host in &file.host {
        let host = checker.host(host);
        checker.hosts.push(host);
    }
    for link in &file.link {
        let link = checker.link(link);
        checker.links.extend(link);
    }
    for guest in &file.guest {
        checker.guest(guest);
    }
    let there = checker.hosts.iter().filter(|host| host.lodger().is_some()).count();
    checker.is_whole = checker.links.len() == file.link.len() && checker.guests.len() + there == file.guest.len();
    let trace = file.trace.unwrap_or(false);
    let steerings: Vec<Steering> = file
        .steering
        .iter()
        .filter_map(|steering| checker.steering(steering))
        .collect();
    let mut all: Vec<Probe> = Vec::new();
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for probe in &file.probe {
        let steering = checker.steered(probe.steering.as_ref(), &steerings, &file.steering);
        let beside = checker.beside(probe, &file.load);
        used.extend(&beside.1);
        all.extend(checker.probe(probe, trace, steering, beside));
    }
    let loads: Vec<usize> = (0..file.load.len()).collect();
    let mut schedules: Vec<Schedule> = Vec::new();
    for schedule in &file.schedule {
        let steering = checker.steered(schedule.steering.as_ref(), &steerings, &file.steering);
        if let Some(checked) = checker.schedule(schedule, steering) {
            let ends = [&schedule.from, &schedule.to].map(|name| name.get_ref().0.as_str());
            all.extend(probes(schedules.len(), &checked, &loads, ends));
            schedules.push(checked);
        }
    }
    let probes = all;
    let mut loads: Vec<Load> = Vec::new();
    for (number, load) in file.load.iter().enumerate() {
        let has_it = |probe: &&Probe| probe.loads.contains(&number);
        let ways: Vec<Way> = probes.iter().filter(has_it).map(|probe| probe.way).collect();
        if !used.contains(&number) && !file.probe.is_empty() && file.schedule.is_empty() {
            checker.at(&load.name, "no probe has it among its loads: it would never be on");
        }
        loads.extend(checker.load(load, &ways));
    }
    if file.probe.is_empty() && file.schedule.is_empty() {
        checker.fault(
            None,
            "there is no [[probe]] and no [[schedule]]: nothing would be measured",
        );
    }
    if !checker.faults.is_empty() {
        return Err(text.faults(checker.faults));
    }
    Ok(Plan {
        title: file.title.unwrap_or_else(|| text.name.clone()),
        rounds: file.rounds.map_or(ROUNDS, file::Whole::small),
        turn: file.turn.map_or(TURN, |time| time.0),
        settle: file.settle.map_or(SETTLE, |time| time.0),
        rings: file.rings.unwrap_or(false),
        hosts: checker.hosts,
        guests: checker.guests,
        links: checker.links,
        loads,
        probes,
        steerings,
        schedules,
    })
}

impl Checker<'_> {
    pub(super) fn fault(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.faults.push(self.text.at(span.as_ref(), message));
    }

    pub(super) fn at<T>(&mut self, value: &Spanned<T>, message: impl Into<String>) {
        self.fault(Some(value.span()), message);
    }

    /// A key that this kind of thing has not.
    pub(super) fn superfluous<T>(&mut self, value: Option<&Spanned<T>>, why: impl FnOnce() -> String) {
        if let Some(value) = value {
            self.at(value, why());
        }
    }

    fn unique<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n Named>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(&name.get_ref().0) {
                self.at(name, format!("there is a {what} {} already", name.get_ref()));
            }
        }
    }

    pub(super) fn node(&mut self, name: &Named) -> Option<Node> {
        let wanted = &name.get_ref().0;
        let host = self.hosts.iter().position(|host| host.name == *wanted).map(Node::Host);
        let found = host.or_else(|| {
            self.guests
                .iter()
                .position(|guest| guest.name == *wanted)
                .map(Node::Guest)
        });
        if found.is_none() && !self.guest_names.contains(wanted) {
            let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
            let guests = self.guests.iter().map(|guest| guest.name.as_str());
            let all: Vec<&str> = names.into_iter().chain(guests).collect();
            self.at(
                name,
                format!("there is no host or guest {wanted}; there are: {}", all.join(", ")),
            );
        }
        found
    }

    /// A guest, or another machine.
    pub(super) fn is_elsewhere(&self, name: &Named) -> bool {
        let name = &name.get_ref().0;
        let mut hosts = self.hosts.iter();
        self.guest_names.contains(name) || hosts.any(|host| host.name == *name && matches!(host.place, Place::Serve(_)))
    }

    /// A host, whatever it is.
    pub(super) fn host_number(&mut self, name: &Named) -> Option<usize> {
        match self.node(name)? {
            Node::Host(at) if self.hosts[at].lodger().is_none() => Some(at),
            Node::Host(_) => {
                self.at(
                    name,
                    format!(
                        "{} is a guest on another machine: what is in it, and its threads, stay as they are",
                        name.get_ref()
                    ),
                );
                None
            }
            Node::Guest(_) => {
                self.at(name, format!("{} is a guest: name it with guest", name.get_ref()));
                None
            }
        }
    }

    pub(super) fn guest_number(&mut self, name: &Named) -> Option<usize> {
        match self.node(name)? {
            Node::Guest(at) => Some(at),
            Node::Host(at) => {
                let why = match self.hosts[at].lodger() {
                    Some(_) => "is a guest on another machine: its threads are not pinned from here",
                    None => "is a host: name it with host",
                };
                self.at(name, format!("{} {why}", name.get_ref()));
                None
            }
        }
    }

    /// A host that is a namespace.
    pub(super) fn namespace(&mut self, name: &Named, what: &str) -> Option<usize> {
        match self.node(name)? {
            Node::Host(at) if matches!(self.hosts[at].place, Place::Namespace) => Some(at),
            _ => {
                self.at(
                    name,
                    format!("{} is no network namespace of this machine: {what}", name.get_ref()),
                );
                None
            }
        }
    }

    fn host(&mut self, host: &file::Host) -> Host {
        let name = host.name.get_ref().0.clone();
        let place = match &host.serve {
            Some(at) => {
                if host.place.is_some() {
                    self.at(at, "a host has either place or serve: this one is another machine");
                }
                if at.get_ref().trim().is_empty() {
                    self.at(
                        at,
                        "give the host where `ringside serve` runs, such as 192.0.2.7 or 192.0.2.7:29620",
                    );
                }
                self.superfluous(host.cpu.as_ref(), || {
                    "the other machine's server says where it runs".to_owned()
                });
                if let Some(pin) = &host.pin
                    && let Err(why) = pin.get_ref().parse::<Pin>()
                {
                    self.at(pin, why);
                }
                Place::Serve(Serve {
                    at: at.get_ref().clone(),
                    token_file: host.token_file.as_ref().map(|file| file.get_ref().clone()),
                    pin: host.pin.as_ref().map(|pin| pin.get_ref().clone()),
                    tls: host.tls.as_ref().is_some_and(|tls| *tls.get_ref()),
                })
            }
            None => {
                let only = || "only a host with serve has it".to_owned();
                self.superfluous(host.token_file.as_ref(), only);
                self.superfluous(host.pin.as_ref(), only);
                self.superfluous(host.tls.as_ref(), only);
                match host.place.unwrap_or(file::Place::Namespace) {
                    file::Place::Namespace => Place::Namespace,
                    file::Place::Here => Place::Here,
                }
            }
        };
        Host {
            name,
            place,
            cpu: host.cpu.as_ref().map(|cpu| cpu.get_ref().small()),
        }
    }

    fn link(&mut self, link: &file::Link) -> Option<Link> {
        let [a, b] = &link.ends.get_ref().0;
        let why = "a link is between two of them";
        let ends = [self.namespace(a, why), self.namespace(b, why)];
        let [Some(first), Some(second)] = ends else { return None };
        if first == second {
            self.at(&link.ends, "both ends are the same host");
            return None;
        }
        let wire = match &link.interfaces {
            None => Wire::Veth {
                queues: link.queues.as_ref().map_or(1, |queues| queues.get_ref().small()),
                gro: link.gro.as_ref().is_none_or(|gro| *gro.get_ref()),
                tso: link.tso.as_ref().is_none_or(|tso| *tso.get_ref()),
            },
            Some(interfaces) => {
                let own = || "NICs keep theirs: set it before with ethtool or `ringside tune`".to_owned();
                self.superfluous(link.queues.as_ref(), own);
                self.superfluous(link.gro.as_ref(), own);
                self.superfluous(link.tso.as_ref(), own);
                self.interfaces(interfaces)?
            }
        };
        Some(Link {
            name: link.name.as_ref().map(|name| name.get_ref().0.clone()),
            ends: [first, second],
            wire,
            mtu: link.mtu.map_or(1500, file::Whole::small),
        })
    }

    /// Two NICs: each is somebody's once.
    fn interfaces(&mut self, interfaces: &Spanned<file::Pair<String>>) -> Option<Wire> {
        let names = &interfaces.get_ref().0;
        let taken = self.links.iter().filter_map(Link::nics).flatten();
        let twice = names.iter().find(|name| taken.clone().any(|taken| taken == *name));
        let twice = twice.or_else(|| (names[0] == names[1]).then_some(&names[0])).cloned();
        if let Some(name) = twice {
            self.at(
                interfaces,
                format!("the interface {name} would be the end of two links, or both ends of one"),
            );
            return None;
        }
        Some(Wire::Nics(names.clone()))
    }

    /// The way from a host to another machine of the lab.
    pub(super) fn way(&mut self, from: &Named, to: &Named) -> Option<(usize, Way)> {
        let (first, second) = (self.node(from)?, self.node(to)?);
        let Node::Host(start) = first else {
            self.at(from, "what a guest asks is not measured: packets start at a host");
            return None;
        };
        if first == second {
            self.at(to, "both ends are the same host");
            return None;
        }
        let is_namespace = match self.hosts[start].place {
            Place::Namespace => true,
            Place::Here => false,
            Place::Guest(_) => {
                self.at(from, "what a guest asks is not measured: packets start at a host");
                return None;
            }
            Place::Serve(_) => {
                self.at(from, "packets start at this machine: turn from and to around");
                return None;
            }
        };
        match second {
            Node::Host(end) => match self.hosts[end].place {
                Place::Serve(_) | Place::Guest(_) if !is_namespace => Some((start, Way::Serve(end))),
                Place::Serve(_) | Place::Guest(_) => {
                    self.at(
                        from,
                        "no other machine is reached from a namespace: take a host with place = \"here\"",
                    );
                    None
                }
                _ => self.linked([start, end], to).map(|way| (start, way)),
            },
            Node::Guest(at) => {
                let guest = &self.guests[at];
                let across = guest.uplink.map(|link| {
                    let [a, b] = self.links[link].ends;
                    if a == guest.host { b } else { a }
                });
                match across {
                    Some(across) if across == start => Some((start, Way::Guest(at))),
                    // Over whatever its NIC is joined to.
                    None if !is_namespace => Some((start, Way::Guest(at))),
                    Some(across) => {
                        let across = self.hosts[across].name.clone();
                        self.at(from, format!("packets to the guest {} start at {across}", to.get_ref()));
                        None
                    }
                    None => {
                        self.at(
                            from,
                            "a guest with a NIC of its own is reached from a host with place = \"here\"",
                        );
                        None
                    }
                }
            }
        }
    }

    fn linked(&mut self, [start, end]: [usize; 2], to: &Named) -> Option<Way> {
        let joins = |link: &Link| link.ends == [start, end] || link.ends == [end, start];
        let Some(link) = self.links.iter().position(joins) else {
            if !self.is_whole {
                return None;
            }
            let names = [start, end].map(|host| self.hosts[host].name.clone());
            self.at(to, format!("no [[link]] joins {} and {}", names[0], names[1]));
            return None;
        };
        if self.guests.iter().any(|guest| guest.uplink == Some(link)) {
            self.at(
                to,
                "the link that joins them is a guest's uplink: give the hosts another one",
            );
            return None;
        }
        Some(Way::Link {
            link,
            back: self.links[link].ends != [start, end],
        })
    }

    /// Largest frame of a way, where it is known.
    pub(super) fn longest(&self, way: Way) -> Option<u32> {
        let link = match way {
            Way::Link { link, .. } => Some(link),
            Way::Guest(guest) => self.guests[guest].uplink,
            Way::Serve(_) => None,
        };
        link.map(|link| self.links[link].mtu + ETHERNET)
    }

    /// Whether frames of a size fit.
    pub(super) fn fits<const L: u64, const M: u64>(&mut self, way: Way, size: Option<&Spanned<file::Whole<L, M>>>) {
        if let (Some(size), Some(longest)) = (size, self.longest(way))
            && size.get_ref().get() > u64::from(longest)
        {
            self.at(
                size,
                format!(
                    "frames of {} bytes do not fit the link, whose MTU allows {longest}",
                    size.get_ref().get()
                ),
            );
        }
    }
}
