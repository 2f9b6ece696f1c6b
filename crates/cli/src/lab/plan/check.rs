//! The checks: one after the other, all faults told.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use ringside_measure::schema::LatencyKind;
use toml::Spanned;

use super::{Guest, Host, Link, Load, Place, Plan, Probe, SMALLEST, Serve, Way, Work, how};
use crate::compare::Kind;
use crate::lab::file::{self, Fault, Faults, File, Measure, Named, Text, Wait, With, XskMode};

/// From the Ethernet header on.
const ETHERNET: u32 = 14;
/// The usual rates, turns and frames.
const PROBES_PER_SECOND: u64 = 1_000;
const LOAD_PER_SECOND: u64 = 10_000;
const LOAD_BYTES: u64 = 1_024;
const TURN: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 5;

struct Checker<'t> {
    text: &'t Text,
    faults: Vec<Fault>,
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    links: Vec<Link>,
    /// Names of guests, also of those with a fault.
    guest_names: Vec<String>,
    /// A link or a guest has a fault: what is missing because of it is not told as another one.
    is_whole: bool,
}

/// A machine of the lab.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
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
    checker.unique("probe", file.probe.iter().map(|probe| &probe.name));
    for host in &file.host {
        let host = checker.host(host);
        checker.hosts.push(host);
    }
    for link in &file.link {
        let link = checker.link(link);
        checker.links.extend(link);
    }
    for guest in &file.guest {
        let guest = checker.guest(guest);
        checker.guests.extend(guest);
    }
    checker.is_whole = checker.links.len() == file.link.len() && checker.guests.len() == file.guest.len();
    let loads: Vec<Load> = file.load.iter().filter_map(|load| checker.load(load)).collect();
    let probes: Vec<Probe> = file.probe.iter().filter_map(|probe| checker.probe(probe)).collect();
    if file.probe.is_empty() {
        checker.fault(None, "there is no [[probe]]: nothing would be measured");
    }
    if !checker.faults.is_empty() {
        return Err(text.faults(checker.faults));
    }
    Ok(Plan {
        title: file.title.unwrap_or_else(|| text.name.clone()),
        rounds: file.rounds.map_or(ROUNDS, file::Whole::small),
        turn: file.turn.map_or(TURN, |time| time.0),
        settle: file.settle.map_or(SETTLE, |time| time.0),
        hosts: checker.hosts,
        guests: checker.guests,
        links: checker.links,
        loads,
        probes,
    })
}

impl Checker<'_> {
    fn fault(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        self.faults.push(self.text.at(span.as_ref(), message));
    }

    fn at<T>(&mut self, value: &Spanned<T>, message: impl Into<String>) {
        self.fault(Some(value.span()), message);
    }

    /// A key that this kind of thing has not.
    fn superfluous<T>(&mut self, value: Option<&Spanned<T>>, why: impl FnOnce() -> String) {
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

    fn node(&mut self, name: &Named) -> Option<Node> {
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

    /// A host that is a namespace.
    fn namespace(&mut self, name: &Named, what: &str) -> Option<usize> {
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
        let [a, b] = link.ends.get_ref();
        let why = "a link is a veth pair between two of them";
        let ends = [self.namespace(a, why), self.namespace(b, why)];
        let [Some(first), Some(second)] = ends else { return None };
        if first == second {
            self.at(&link.ends, "both ends are the same host");
            return None;
        }
        Some(Link {
            name: link.name.as_ref().map(|name| name.get_ref().0.clone()),
            ends: [first, second],
            queues: link.queues.map_or(1, file::Whole::small),
            mtu: link.mtu.map_or(1500, file::Whole::small),
            gro: link.gro.unwrap_or(true),
        })
    }

    fn guest(&mut self, guest: &file::Guest) -> Option<Guest> {
        use file::Attachment::{Forward, Vfio, VhostUser, Xdp};
        let host = self.namespace(&guest.host, "a guest's NIC is joined to one")?;
        let attachment = *guest.attachment.get_ref();
        let not_of = |key: &str| format!("{key} is nothing that the attachment {} has", attachment.name());
        if matches!(attachment, Vfio | VhostUser) {
            self.superfluous(guest.vhost.as_ref(), || not_of("vhost"));
        }
        match (&guest.pci, attachment) {
            (None, Vfio) => self.at(
                &guest.attachment,
                "vfio takes the device's address: pci = \"0000:01:10.0\"",
            ),
            (Some(pci), Vfio) if !is_pci(pci.get_ref()) => {
                self.at(
                    pci,
                    format!("{:?} is no PCI address such as 0000:01:10.0", pci.get_ref()),
                );
            }
            (_, Vfio) => {}
            (pci, _) => self.superfluous(pci.as_ref(), || not_of("pci")),
        }
        let uplink = match &guest.uplink {
            None => None,
            Some(name) => {
                let wanted = &name.get_ref().0;
                let found = self.links.iter().position(|link| link.name.as_ref() == Some(wanted));
                match found {
                    None => {
                        self.at(name, format!("there is no link {wanted}: give the link a name"));
                        return None;
                    }
                    Some(link) if !self.links[link].ends.contains(&host) => {
                        self.at(
                            name,
                            format!(
                                "the link {wanted} does not end at the guest's host, {}",
                                guest.host.get_ref()
                            ),
                        );
                        return None;
                    }
                    Some(link) => Some(link),
                }
            }
        };
        if uplink.is_none() && matches!(attachment, Xdp | Forward) {
            self.at(
                &guest.attachment,
                format!(
                    "{} leads from a link to the guest: name it with uplink",
                    attachment.name()
                ),
            );
        }
        Some(Guest {
            name: guest.name.get_ref().0.clone(),
            host,
            attachment,
            uplink,
            kernel: guest.kernel.clone(),
            cpus: guest.cpus.map_or(2, file::Whole::small),
            memory_mib: guest.memory_mib.map_or(768, file::Whole::small),
            queues: guest.queues.as_ref().map_or(1, |queues| queues.get_ref().small()),
            vhost: guest.vhost.as_ref().map(|vhost| *vhost.get_ref()),
            acceleration: guest.acceleration.unwrap_or_default(),
            pci: guest.pci.as_ref().map(|pci| pci.get_ref().clone()),
        })
    }

    /// The way from a host to another machine of the lab.
    fn way(&mut self, from: &Named, to: &Named) -> Option<(usize, Way)> {
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
            Place::Serve(_) => {
                self.at(from, "packets start at this machine: turn from and to around");
                return None;
            }
        };
        match second {
            Node::Host(end) => match self.hosts[end].place {
                Place::Serve(_) if !is_namespace => Some((start, Way::Serve(end))),
                Place::Serve(_) => {
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
                if across.unwrap_or(guest.host) == start {
                    return Some((start, Way::Guest(at)));
                }
                let where_from = self.hosts[across.unwrap_or(guest.host)].name.clone();
                self.at(
                    from,
                    format!("packets to the guest {} start at {where_from}", to.get_ref()),
                );
                None
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
    fn longest(&self, way: Way) -> Option<u32> {
        let link = match way {
            Way::Link { link, .. } => Some(link),
            Way::Guest(guest) => self.guests[guest].uplink,
            Way::Serve(_) => None,
        };
        link.map(|link| self.links[link].mtu + ETHERNET)
    }

    /// Whether frames of a size fit.
    fn fits<const L: u64, const M: u64>(&mut self, way: Way, size: Option<&Spanned<file::Whole<L, M>>>) {
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

    fn load(&mut self, load: &file::Load) -> Option<Load> {
        use file::LoadKind::{Iperf3Tcp, Iperf3Udp, StressNg, Udp};
        let kind = *load.kind.get_ref();
        let not_of = |key: &str| format!("{key} is nothing that a load of the kind {} has", kind.name());
        if kind != Udp {
            self.superfluous(load.rate.as_ref(), || not_of("rate"));
        }
        if !matches!(kind, Udp | Iperf3Udp) {
            self.superfluous(load.size.as_ref(), || not_of("size"));
        }
        if !matches!(kind, Iperf3Tcp | Iperf3Udp) {
            self.superfluous(load.bitrate.as_ref(), || not_of("bitrate"));
            self.superfluous(load.streams.as_ref(), || not_of("streams"));
        }
        if kind != StressNg {
            self.superfluous(load.stressor.as_ref(), || not_of("stressor"));
            self.superfluous(load.workers.as_ref(), || not_of("workers"));
        }
        if kind == Iperf3Udp && load.bitrate.is_none() {
            self.at(
                &load.kind,
                "iperf3 sends 1 Mbit/s of UDP unless it is told: give a bitrate",
            );
        }
        let cpus: Vec<u32> = load
            .cpus
            .iter()
            .flat_map(|cpus| cpus.get_ref().iter().map(|cpu| cpu.small()))
            .collect();
        let what = if kind == StressNg {
            self.superfluous(load.from.as_ref(), || not_of("from"));
            self.superfluous(load.to.as_ref(), || not_of("to"));
            let workers = load.workers.as_ref().map(|workers| workers.get_ref().small());
            Work::StressNg {
                stressor: load
                    .stressor
                    .as_ref()
                    .map_or_else(|| "cpu".to_owned(), |name| name.get_ref().0.clone()),
                workers: workers.unwrap_or_else(|| u32::try_from(cpus.len().max(1)).unwrap_or(1)),
            }
        } else {
            let (Some(from), Some(to)) = (&load.from, &load.to) else {
                self.at(
                    &load.kind,
                    format!("a load of the kind {} has a from and a to", kind.name()),
                );
                return None;
            };
            let (_, way) = self.way(from, to)?;
            if !matches!(way, Way::Link { .. }) {
                self.at(to, "packets of a load go from namespace to namespace over a link");
                return None;
            }
            self.fits(way, load.size.as_ref());
            let size = load.size.as_ref().map(|size| size.get_ref().get());
            let small = |size: u64| u16::try_from(size).unwrap_or(u16::MAX);
            match kind {
                Udp => Work::Udp {
                    way,
                    rate: load.rate.as_ref().map_or(LOAD_PER_SECOND, |rate| rate.get_ref().get()),
                    size: small(size.unwrap_or(LOAD_BYTES.min(self.longest(way).unwrap_or(u32::MAX).into()))),
                },
                _ => Work::Iperf3 {
                    way,
                    udp: kind == Iperf3Udp,
                    bitrate: load.bitrate.as_ref().map(|bitrate| bitrate.get_ref().0.clone()),
                    streams: load.streams.as_ref().map_or(1, |streams| streams.get_ref().small()),
                    size: size.map(small),
                },
            }
        };
        Some(Load {
            name: load.name.get_ref().0.clone(),
            what,
            cpus,
        })
    }

    fn probe(&mut self, probe: &file::Probe) -> Option<Probe> {
        let wait = probe.wait.unwrap_or_default();
        if probe.by != With::Xsk {
            self.superfluous(probe.mode.as_ref(), || "only with = \"xsk\" has modes".to_owned());
        }
        let (from, way) = self.way(&probe.from, &probe.to)?;
        self.fits(way, probe.size.as_ref());
        let kind = match (
            probe.by,
            wait,
            probe.mode.as_ref().map(|mode| *mode.get_ref()).unwrap_or_default(),
        ) {
            (With::Udp, Wait::WakeUp, _) => Kind::UdpBlocking,
            (With::Udp, Wait::Spin, _) => Kind::UdpSpin,
            (With::Packet, ..) => Kind::AfPacket,
            (With::Xsk, _, XskMode::Native) => Kind::AfXdpNative,
            (With::Xsk, _, XskMode::Generic) => Kind::AfXdpGeneric,
            (With::Xsk, _, XskMode::ZeroCopy) => Kind::AfXdpZeroCopy,
        };
        let one_clock = matches!(way, Way::Link { .. });
        let measures = match &probe.measure {
            None if one_clock => vec![LatencyKind::RoundTrip, LatencyKind::OneWay],
            None => vec![LatencyKind::RoundTrip],
            Some(asked) => {
                let mut all = Vec::new();
                for measure in asked.get_ref() {
                    let kind = match measure {
                        Measure::Rtt => LatencyKind::RoundTrip,
                        Measure::OneWay => LatencyKind::OneWay,
                    };
                    if kind == LatencyKind::OneWay && !one_clock {
                        self.at(
                            asked,
                            "one way takes one clock at both ends: only between namespaces of this machine",
                        );
                    }
                    if !all.contains(&kind) {
                        all.push(kind);
                    }
                }
                if all.is_empty() {
                    self.at(asked, "nothing would be measured: name rtt, one-way, or both");
                }
                all
            }
        };
        let (rate, size) = (
            probe.rate.map_or(PROBES_PER_SECOND, file::Whole::get),
            probe.size.as_ref().map_or(SMALLEST, |size| size.get_ref().get()),
        );
        Some(Probe {
            name: probe.name.get_ref().0.clone(),
            from,
            way,
            kind,
            sleeps: wait == Wait::WakeUp,
            rate,
            frame_bytes: u16::try_from(size).unwrap_or(u16::MAX),
            count: probe.count.map(file::Whole::get),
            measures,
            description: format!(
                "{} to {}: {}; {rate} probes/s, frames of {size} bytes",
                probe.from.get_ref(),
                probe.to.get_ref(),
                how(probe.by, wait, kind)
            ),
        })
    }
}

/// `0000:01:10.0`
fn is_pci(text: &str) -> bool {
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = text.split([':', '.']);
    let whole = [4, 2, 2, 1].map(|digits| parts.next().is_some_and(|part| hex(part, digits)));
    whole == [true; 4] && parts.next().is_none()
}
