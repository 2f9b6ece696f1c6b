//! The checks of steering and schedules. A schedule's classes become probes, each a cell of its own that has its turn with the others.

use std::time::Duration;

use ringside_measure::schedule::{self, Class};
use ringside_measure::schema::LatencyKind;

use super::check::Checker;
use super::{Place, Probe, Schedule, Scheduled, Steering, UNCERTAINTY, Way};
use crate::compare::Kind;
use crate::lab::file::{self, Named, Qdisc, ScheduleVia, Wait};
use crate::run::streams::PtpArgs;
use crate::steer::{CpusArg, Settings};

/// A cycle's usual time.
const CYCLE_NS: u64 = 1_000_000;

impl Checker<'_> {
    pub(super) fn steering(&mut self, steering: &file::Steering) -> Option<Steering> {
        let mut plan = Steering {
            name: steering.name.get_ref().0.clone(),
            host: 0,
            at: super::At::Interface(String::new()),
            settings: Settings::default(),
            queue: steering.queue.as_ref().map(|queue| queue.get_ref().small()),
            cpu: steering.cpu.as_ref().map(|cpu| cpu.get_ref().small()),
            vcpus: Vec::new(),
            vhost: Vec::new(),
        };
        match (&steering.host, &steering.guest) {
            (Some(host), None) => {
                for (key, pins) in [("vcpus", &steering.vcpus), ("vhost", &steering.vhost)] {
                    self.superfluous(pins.as_ref(), || {
                        format!("{key} is a guest's: name it with guest instead of host")
                    });
                }
                self.of_host(steering, host, &mut plan)?;
            }
            (None, Some(guest)) => self.of_guest(steering, guest, &mut plan)?,
            (Some(host), Some(_)) => {
                self.at(
                    host,
                    "a steering has either host, or guest for the threads of its machine",
                );
                return None;
            }
            (None, None) => {
                self.at(
                    &steering.name,
                    "a steering is a host's or a guest's: give host or guest",
                );
                return None;
            }
        }
        if plan.settings.is_empty()
            && plan.vcpus.is_empty()
            && plan.vhost.is_empty()
            && plan.queue.or(plan.cpu).is_none()
        {
            self.at(
                &steering.name,
                "nothing is set and nothing asked for: give rps, xps, queue, cpu, … or, of a guest, vcpus or vhost",
            );
        }
        Some(plan)
    }

    fn of_host(&mut self, steering: &file::Steering, host: &Named, plan: &mut Steering) -> Option<()> {
        plan.host = self.host_number(host)?;
        let of = |all: &Option<toml::Spanned<Vec<CpusArg>>>| {
            all.as_ref().map(|all| all.get_ref().clone()).unwrap_or_default()
        };
        plan.settings = Settings {
            rules: steering
                .rules
                .as_ref()
                .map(|rules| rules.get_ref().clone())
                .unwrap_or_default(),
            rss: steering
                .rss
                .as_ref()
                .map(|queues| queues.get_ref().iter().map(|queue| queue.small()).collect())
                .unwrap_or_default(),
            irqs: of(&steering.irq),
            rps: of(&steering.rps),
            xps: of(&steering.xps),
            egress: steering
                .egress
                .as_ref()
                .map(|all| all.get_ref().clone())
                .unwrap_or_default(),
            ..Settings::default()
        };
        match self.hosts[plan.host].place {
            Place::Serve(_) | Place::Guest(_) => {
                let why = || "on another machine it is the interface of the `ringside serve` there".to_owned();
                self.superfluous(steering.link.as_ref(), why);
                self.superfluous(steering.interface.as_ref(), why);
                plan.at = super::At::There;
                Some(())
            }
            Place::Here => {
                self.superfluous(steering.link.as_ref(), || {
                    "a host that is here has no links: name its interface".to_owned()
                });
                match &steering.interface {
                    Some(interface) => plan.at = super::At::Interface(interface.get_ref().clone()),
                    None => {
                        self.at(host, "this machine's interface is to be named: interface = \"eth1\"");
                        return None;
                    }
                }
                Some(())
            }
            Place::Namespace => {
                self.superfluous(steering.interface.as_ref(), || {
                    "interfaces of a namespace are ends of links: name the link, if there are several".to_owned()
                });
                let link = self.link_of(steering, host, plan.host)?;
                plan.at = super::At::Link(link);
                self.superfluous(steering.egress.as_ref(), || {
                    "an end of a link has no egress-qos-map: take a VLAN interface of a host with place = \"here\""
                        .to_owned()
                });
                let Some(queues) = self.links[link].queues() else {
                    return Some(());
                };
                let why = |key: &str| {
                    format!(
                        "this link is a veth pair, which has no {key}: take one with interfaces, or an interface of a host with place = \"here\""
                    )
                };
                self.superfluous(steering.rules.as_ref(), || why("rules"));
                self.superfluous(steering.rss.as_ref(), || why("rss"));
                self.superfluous(steering.irq.as_ref(), || why("irq"));
                for (all, what) in [(&steering.rps, "receive"), (&steering.xps, "transmit")] {
                    let Some(all) = all else { continue };
                    if let Some(CpusArg(queue, _)) = all.get_ref().iter().find(|CpusArg(queue, _)| *queue >= queues) {
                        self.at(
                            all,
                            format!("there is no {what} queue {queue}: the link has {queues}, counted from 0"),
                        );
                    }
                    if what == "transmit" && queues == 1 {
                        self.at(all, "an end with one queue has no XPS: give the link queues = 2");
                    }
                }
                if let Some(queue) = &steering.queue
                    && queue.get_ref().small() >= queues
                {
                    self.at(
                        queue,
                        format!("there is no queue {}: the link has {queues}", queue.get_ref().small()),
                    );
                }
                Some(())
            }
        }
    }

    /// The one that is named, or the host's only one.
    fn link_of(&mut self, steering: &file::Steering, host: &Named, number: usize) -> Option<usize> {
        let ends: Vec<usize> = (0..self.links.len())
            .filter(|at| self.links[*at].ends.contains(&number))
            .collect();
        let Some(name) = &steering.link else {
            if ends.len() != 1 && self.is_whole {
                self.at(
                    host,
                    format!("{} links end there: name the one that is meant with link", ends.len()),
                );
            }
            return ends.first().copied().filter(|_| ends.len() == 1);
        };
        let wanted = &name.get_ref().0;
        let found = ends
            .into_iter()
            .find(|at| self.links[*at].name.as_ref() == Some(wanted));
        if found.is_none() && self.is_whole {
            self.at(name, format!("no link {wanted} ends at {}", host.get_ref()));
        }
        found
    }

    fn of_guest(&mut self, steering: &file::Steering, guest: &Named, plan: &mut Steering) -> Option<()> {
        let number = self.guest_number(guest)?;
        let why = || "it is a host's: name that instead of the guest".to_owned();
        self.superfluous(steering.link.as_ref(), why);
        self.superfluous(steering.interface.as_ref(), why);
        self.superfluous(steering.rules.as_ref(), why);
        self.superfluous(steering.rss.as_ref(), why);
        self.superfluous(steering.irq.as_ref(), why);
        self.superfluous(steering.rps.as_ref(), why);
        self.superfluous(steering.xps.as_ref(), why);
        self.superfluous(steering.egress.as_ref(), why);
        self.superfluous(steering.queue.as_ref(), why);
        self.superfluous(steering.cpu.as_ref(), why);
        let (host, uplink) = (self.guests[number].host, self.guests[number].uplink);
        let Some(uplink) = uplink else {
            self.at(guest, "only threads of a guest with an uplink can be pinned");
            return None;
        };
        let machine = self.guests[number].machine;
        let mut nics = self.guests.iter().filter(|nic| nic.machine == machine);
        let has_vhost = nics.any(|nic| nic.attachment == ringside_netlab::attach::Way::VhostNet);
        let named = self.guests[number].attachment.name();
        self.superfluous(steering.vhost.as_ref().filter(|_| !has_vhost), || {
            format!("only vhost-net has threads of its own for packets; the guest's attachment is {named}, whose packets QEMU carries or another program")
        });
        let cpus = |all: &Option<toml::Spanned<Vec<file::Whole<0, 8191>>>>| -> Vec<u32> {
            all.iter()
                .flat_map(|all| all.get_ref().iter().map(|cpu| cpu.small()))
                .collect()
        };
        (plan.host, plan.at) = (host, super::At::Guest { guest: number, uplink });
        (plan.vcpus, plan.vhost) = (cpus(&steering.vcpus), cpus(&steering.vhost));
        Some(())
    }

    /// Numbers of what a probe or schedule names.
    pub(super) fn steered(
        &mut self,
        names: Option<&Vec<Named>>,
        all: &[Steering],
        known: &[file::Steering],
    ) -> Vec<usize> {
        let mut found = Vec::new();
        for name in names.into_iter().flatten() {
            let wanted = &name.get_ref().0;
            match all.iter().position(|steering| steering.name == *wanted) {
                Some(number) => found.push(number),
                // One with a fault is told already.
                None if known.iter().any(|steering| steering.name.get_ref().0 == *wanted) => {}
                None => {
                    let names: Vec<&str> = all.iter().map(|steering| steering.name.as_str()).collect();
                    self.at(
                        name,
                        format!("there is no [[steering]] {wanted}; there are: {}", names.join(", ")),
                    );
                }
            }
        }
        found
    }

    /// How right clocks have to be, and who is asked on this machine.
    fn clock(&mut self, schedule: &file::Schedule, way: Way) -> (Option<u64>, PtpArgs) {
        let most = schedule.max_clock_offset.as_ref().and_then(|most| {
            let ns = schedule::nanos(most.get_ref()).map_err(|why| self.at(most, why));
            ns.ok()
        });
        if let Way::Guest(_) = way {
            self.superfluous(schedule.max_clock_offset.as_ref(), || {
                "nobody keeps a guest's clock, so nobody could say how far it is off: the lab measures it, and uncertainty says how well it has \
                 to be known"
                    .to_owned()
            });
        }
        if !matches!(way, Way::Serve(_)) {
            let only = || "only another machine has a clock that ptp4l keeps beside this one's".to_owned();
            self.superfluous(schedule.ptp4l.as_ref(), only);
            self.superfluous(schedule.ptp_domain.as_ref(), only);
        } else if schedule.ptp4l.is_none() {
            self.superfluous(schedule.ptp_domain.as_ref(), || {
                "of which ptp4l? Name its socket with ptp4l".to_owned()
            });
        }
        let ptp = PtpArgs {
            ptp4l: schedule.ptp4l.as_ref().map(|socket| socket.get_ref().into()),
            ptp_domain: (schedule.ptp_domain.as_ref())
                .and_then(|domain| u8::try_from(domain.get_ref().get()).ok())
                .unwrap_or(0),
        };
        (most, ptp)
    }

    pub(super) fn schedule(&mut self, schedule: &file::Schedule, steering: Vec<usize>) -> Option<Schedule> {
        let is_back = self.is_elsewhere(&schedule.from);
        if is_back && self.is_elsewhere(&schedule.to) {
            self.at(
                &schedule.to,
                "one end of a schedule is a host of this machine: what goes between guests or other machines is not measured",
            );
            return None;
        }
        let (from, way) = match is_back {
            true => self.way(&schedule.to, &schedule.from)?,
            false => self.way(&schedule.from, &schedule.to)?,
        };
        let link = match way {
            Way::Link { link, .. } => Some(link),
            Way::Guest(guest) => self.guests[guest].uplink,
            Way::Serve(_) => None,
        };
        if let (Way::Guest(_), None) = (way, link) {
            self.at(
                &schedule.to,
                "a schedule goes over a link between namespaces, to or from a guest with an uplink, or to or from another machine",
            );
            return None;
        }
        if let Way::Link { .. } = way {
            self.superfluous(schedule.uncertainty.as_ref(), || {
                "only a guest or another machine has another clock: both ends of a link have one".to_owned()
            });
        }
        let (most_clock_offset_ns, ptp) = self.clock(schedule, way);
        let mut classes: Vec<Class> = Vec::new();
        let all = &schedule.class;
        for text in all.get_ref() {
            match text.parse() {
                Ok(class) => classes.push(class),
                Err(why) => {
                    self.at(all, why);
                    return None;
                }
            }
        }
        let cycle_ns = match schedule.cycle.as_ref().map(|cycle| schedule::nanos(cycle.get_ref())) {
            None => CYCLE_NS,
            Some(Ok(ns)) => ns,
            Some(Err(why)) => {
                self.at(all, why);
                return None;
            }
        };
        let checked = match schedule::Schedule::new(cycle_ns, classes) {
            Ok(checked) => checked,
            Err(error) => {
                self.at(all, error.to_string());
                return None;
            }
        };
        // The tag is not of the MTU.
        let room = link.map_or(u32::MAX, |link| self.links[link].mtu + 18);
        if let Some(class) = checked.classes().iter().find(|class| class.frame_bytes > room) {
            self.at(
                all,
                format!(
                    "class {}: frames of {} bytes do not fit the link, whose MTU allows {room}",
                    class.pcp, class.frame_bytes
                ),
            );
        }
        let (via, qdisc) = (
            schedule.via.unwrap_or_default(),
            schedule
                .qdisc
                .as_ref()
                .map(|qdisc| *qdisc.get_ref())
                .unwrap_or_default(),
        );
        if let Some(key) = schedule
            .qdisc
            .as_ref()
            .filter(|qdisc| *qdisc.get_ref() != Qdisc::AsItIs)
        {
            if via == ScheduleVia::AfXdp {
                self.at(
                    key,
                    "XDP sockets pass queueing disciplines by: take via = \"af-packet\"",
                );
            }
            let (queues, whose) = match way {
                Way::Guest(guest) if is_back => (Some(self.guests[guest].queues), "guest"),
                Way::Serve(host) if is_back => (self.hosts[host].lodger().map(|there| there.guest.queues), "guest"),
                _ => (link.and_then(|link| self.links[link].queues()), "link"),
            };
            if queues.is_some_and(|queues| queues < 2) {
                self.at(
                    key,
                    format!("it takes two queues, one for the schedule and one for everything else: give the {whose} queues = 2"),
                );
            }
        }
        Some(Schedule {
            name: schedule.name.get_ref().0.clone(),
            from,
            way,
            is_back,
            uncertainty: schedule
                .uncertainty
                .as_ref()
                .map_or(UNCERTAINTY, |time| time.get_ref().0),
            most_clock_offset_ns,
            ptp,
            classes: all.get_ref().clone(),
            schedule: checked,
            via,
            qdisc,
            spins: schedule.wait == Some(Wait::Spin),
            steering,
        })
    }
}

/// A probe for each class, beside these loads.
pub(super) fn probes(number: usize, schedule: &Schedule, loads: &[usize], [from, to]: [&str; 2]) -> Vec<Probe> {
    let cycle_ns = schedule.schedule.cycle_ns();
    let of = |(at, class): (usize, &Class)| {
        let rate = u64::from(class.packets_per_cycle) * 1_000_000_000 / cycle_ns.max(1);
        Probe {
            name: format!("{} PCP {}", schedule.name, class.pcp),
            from: schedule.from,
            way: schedule.way,
            kind: match schedule.via {
                ScheduleVia::AfPacket => Kind::AfPacket,
                ScheduleVia::AfXdp => Kind::AfXdpNative,
            },
            far_kind: None,
            sleeps: !schedule.spins,
            rate: rate.max(1),
            frame_bytes: u16::try_from(class.frame_bytes).unwrap_or(u16::MAX),
            // Its talker makes its tags.
            pcp: None,
            priority: None,
            count: None,
            measures: vec![LatencyKind::OneWay],
            // Its talker and listener are programs of their own.
            is_traced: false,
            disturbers: None,
            stop_above: None,
            uncertainty: Duration::ZERO,
            description: format!(
                "{from} to {to}, by schedule: PCP {}, {} packet(s) of {} bytes in a window of {} µs from {} µs on, cycle {} µs; {}{}",
                class.pcp,
                class.packets_per_cycle,
                class.frame_bytes,
                class.window_ns / 1_000,
                class.offset_ns / 1_000,
                cycle_ns / 1_000,
                schedule.via.name(),
                match schedule.qdisc {
                    Qdisc::AsItIs => String::new(),
                    qdisc => format!(", {}", qdisc.name()),
                }
            ),
            steering: schedule.steering.clone(),
            loads: loads.to_vec(),
            is_idle: true,
            scheduled: Some(Scheduled {
                schedule: number,
                class: at,
            }),
        }
    };
    schedule.schedule.classes().iter().enumerate().map(of).collect()
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
