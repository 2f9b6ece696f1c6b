//! The checks of loads and probes.

use ringside_measure::schema::LatencyKind;

use super::check::Checker;
use super::{Load, Probe, SMALLEST, SMALLEST_STAMPED, UNCERTAINTY, Way, Work, how};
use crate::compare::Kind;
use crate::lab::file::{self, Measure, Wait, With, XskMode};
use crate::lab::tcp::Stream;

/// The usual rates and frames.
const PROBES_PER_SECOND: u64 = 1_000;
const LOAD_PER_SECOND: u64 = 10_000;
const LOAD_BYTES: u64 = 1_024;

impl Checker<'_> {
    /// A load. Without ends it is on the path that is measured, one of these ways.
    pub(super) fn load(&mut self, load: &file::Load, ways: &[Way]) -> Option<Load> {
        use file::LoadKind::{Iperf3Tcp, Iperf3Udp, Program, StressNg, Tcp, Udp};
        let kind = *load.kind.get_ref();
        let not_of = |key: &str| format!("{key} is nothing that a load of the kind {} has", kind.name());
        if !matches!(kind, Udp | Tcp) {
            self.superfluous(load.rate.as_ref(), || not_of("rate"));
        }
        if !matches!(kind, Udp | Iperf3Udp) {
            self.superfluous(load.size.as_ref(), || not_of("size"));
        }
        if !matches!(kind, Tcp | Iperf3Tcp | Iperf3Udp) {
            self.superfluous(load.bitrate.as_ref(), || not_of("bitrate"));
            self.superfluous(load.streams.as_ref(), || not_of("streams"));
        }
        if kind != Tcp {
            self.superfluous(load.request.as_ref(), || not_of("request"));
            self.superfluous(load.answer.as_ref(), || not_of("answer"));
            self.superfluous(load.window.as_ref(), || not_of("window"));
        }
        if kind != StressNg {
            self.superfluous(load.stressor.as_ref(), || not_of("stressor"));
            self.superfluous(load.workers.as_ref(), || not_of("workers"));
        }
        if kind != Program {
            self.superfluous(load.command.as_ref(), || not_of("command"));
        }
        if !matches!(kind, StressNg | Program) {
            self.superfluous(load.guest.as_ref(), || not_of("guest"));
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
        let what = if matches!(kind, StressNg | Program) {
            self.superfluous(load.from.as_ref(), || not_of("from"));
            self.superfluous(load.to.as_ref(), || not_of("to"));
            Work::Program {
                command: match kind {
                    StressNg => stress_ng(load, cpus.len()),
                    _ => self.command(load),
                },
                guest: self.inside(load, &cpus),
                begins: (kind == StressNg).then_some("dispatching hogs"),
            }
        } else {
            let way = match (&load.from, &load.to) {
                (Some(from), Some(to)) => {
                    let (_, way) = self.way(from, to)?;
                    self.fits(way, load.size.as_ref());
                    Some(way)
                }
                // On the path that is measured.
                (None, None) => {
                    for way in ways {
                        self.fits(*way, load.size.as_ref());
                    }
                    None
                }
                _ => {
                    self.at(
                        &load.kind,
                        format!(
                            "a load of the kind {} has a from and a to, or neither: the path that is measured",
                            kind.name()
                        ),
                    );
                    return None;
                }
            };
            let shortest = way.iter().chain(ways).filter_map(|way| self.longest(*way)).min();
            let size = load.size.as_ref().map(|size| size.get_ref().get());
            let small = |size: u64| u16::try_from(size).unwrap_or(u16::MAX);
            match kind {
                Udp => Work::Udp {
                    way,
                    rate: load.rate.as_ref().map_or(LOAD_PER_SECOND, |rate| rate.get_ref().get()),
                    size: small(size.unwrap_or(LOAD_BYTES.min(shortest.unwrap_or(u32::MAX).into()))),
                },
                Tcp => Work::Tcp {
                    way,
                    streams: load.streams.as_ref().map_or(1, |streams| streams.get_ref().small()),
                    stream: self.stream(load),
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
            number: load.number,
            name: load.name.get_ref().0.clone(),
            what,
            cpus,
        })
    }

    /// A program of its own, and its arguments.
    fn command(&mut self, load: &file::Load) -> Vec<String> {
        let words = load.command.as_ref().map(|words| words.get_ref().clone());
        let words = words.filter(|words| words.first().is_some_and(|name| !name.is_empty()));
        words.unwrap_or_else(|| {
            self.at(
                &load.kind,
                "which program, and with which arguments: command = [\"NAME\", \"ARGUMENT\"]",
            );
            Vec::new()
        })
    }

    /// Number of the guest in which a program runs, which has to have these CPUs; `None`: on this machine.
    fn inside(&mut self, load: &file::Load, cpus: &[u32]) -> Option<usize> {
        let name = load.guest.as_ref()?;
        let wanted = &name.get_ref().0;
        let found = self.guests.iter().position(|guest| guest.name == *wanted);
        match found {
            Some(guest) => {
                let most = self.guests[guest].cpus;
                if let Some(named) = load.cpus.as_ref().filter(|_| cpus.iter().any(|cpu| *cpu >= most)) {
                    self.at(named, format!("the CPUs of the guest {wanted} are 0 to {}", most - 1));
                }
            }
            None if self
                .hosts
                .iter()
                .any(|host| host.name == *wanted && host.lodger().is_some()) =>
            {
                self.at(
                    name,
                    format!("{wanted} is a guest on another machine: no program of a lab's choice is started there"),
                )
            }
            // What is missing because of another fault is not told as one of its own.
            None if self.is_whole => self.at(
                name,
                format!("there is no guest {wanted}; what is in no guest runs on this machine"),
            ),
            None => {}
        }
        found
    }

    /// What a stream of the kind tcp does: bulk, or requests if their size is given.
    fn stream(&mut self, load: &file::Load) -> Stream {
        let Some(request) = &load.request else {
            let only = |key: &str| format!("only streams of requests have {key}: give the bytes of a request");
            self.superfluous(load.answer.as_ref(), || only("an answer"));
            self.superfluous(load.rate.as_ref(), || {
                only("a rate") + ", or a bitrate for a stream of bulk"
            });
            return Stream::Bulk {
                window: load.window.as_ref().map(|window| window.get_ref().small()),
                bits_per_s: load.bitrate.as_ref().and_then(|bitrate| bitrate.get_ref().bits_per_s()),
            };
        };
        self.superfluous(load.bitrate.as_ref(), || {
            "a stream of requests has a rate: so many requests a second".to_owned()
        });
        self.superfluous(load.window.as_ref(), || {
            "of requests one is under way at a time: only bulk has a window".to_owned()
        });
        let request = request.get_ref().small();
        Stream::Requests {
            request,
            answer: load.answer.as_ref().map_or(request, |answer| answer.get_ref().small()),
            per_s: load.rate.as_ref().map(|rate| rate.get_ref().get()),
        }
    }

    /// Whether a probe has idle turns, and the numbers of the loads of its loaded ones: all, unless it says which.
    pub(super) fn beside(&mut self, probe: &file::Probe, known: &[file::Load]) -> (bool, Vec<usize>) {
        let is_idle = probe.idle.as_ref().is_none_or(|idle| *idle.get_ref());
        let Some(asked) = &probe.loads else {
            if let Some(idle) = probe.idle.as_ref().filter(|_| !is_idle && known.is_empty()) {
                self.at(idle, "there is no [[load]]: it would have no turns");
            }
            return (is_idle, (0..known.len()).collect());
        };
        let mut found = Vec::new();
        for name in asked.get_ref() {
            match known.iter().position(|load| load.name.get_ref() == name.get_ref()) {
                Some(number) => found.push(number),
                None => {
                    let names: Vec<&str> = known.iter().map(|load| load.name.get_ref().0.as_str()).collect();
                    let wanted = &name.get_ref().0;
                    self.at(
                        name,
                        format!("there is no [[load]] {wanted}; there are: {}", names.join(", ")),
                    );
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        if asked.get_ref().is_empty() && !is_idle {
            self.at(asked, "neither idle nor beside a load: it would have no turns");
        }
        (is_idle, found)
    }

    /// `trace` is whether paths get their stages that do not say it themselves.
    pub(super) fn probe(
        &mut self,
        probe: &file::Probe,
        trace: bool,
        steering: Vec<usize>,
        (is_idle, loads): (bool, Vec<usize>),
    ) -> Option<Probe> {
        let wait = probe.wait.unwrap_or_default();
        if probe.by != With::Xsk {
            self.superfluous(probe.mode.as_ref(), || "only with = \"xsk\" has modes".to_owned());
        }
        let (from, way) = self.way(&probe.from, &probe.to)?;
        self.fits(way, probe.size.as_ref());
        let xsk = |mode: XskMode| match mode {
            XskMode::Native => Kind::AfXdpNative,
            XskMode::Generic => Kind::AfXdpGeneric,
            XskMode::ZeroCopy => Kind::AfXdpZeroCopy,
        };
        let kind = match (probe.by, wait) {
            (With::Udp, Wait::WakeUp) => Kind::UdpBlocking,
            (With::Udp, Wait::Spin) => Kind::UdpSpin,
            (With::Packet, _) => Kind::AfPacket,
            (With::Xsk, _) => xsk(probe.mode.as_ref().map(|mode| *mode.get_ref()).unwrap_or_default()),
        };
        let one_clock = matches!(way, Way::Link { .. });
        let far_kind = probe.far_mode.as_ref().map(|mode| xsk(*mode.get_ref()));
        if one_clock || probe.by != With::Xsk {
            self.superfluous(probe.far_mode.as_ref(), || {
                "only with = \"xsk\" has modes, and only a guest or another machine has one of its own".to_owned()
            });
        }
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
        let is_stamped = !one_clock && measures.contains(&LatencyKind::OneWay);
        let smallest = if is_stamped { SMALLEST_STAMPED } else { SMALLEST };
        let (rate, size) = (
            probe.rate.map_or(PROBES_PER_SECOND, file::Whole::get),
            probe.size.as_ref().map_or(smallest, |size| size.get_ref().get()),
        );
        if let Some(short) = probe.size.as_ref().filter(|_| size < smallest) {
            self.at(
                short,
                format!("one way by another machine's clock takes its times in the answer: frames of {smallest} bytes at least"),
            );
        }
        if !is_stamped {
            self.superfluous(probe.uncertainty.as_ref(), || {
                "only one way to a guest or another machine is by another clock".to_owned()
            });
        }
        let pcp = probe
            .pcp
            .as_ref()
            .and_then(|pcp| u8::try_from(pcp.get_ref().get()).ok());
        let priority = probe
            .priority
            .as_ref()
            .and_then(|priority| u8::try_from(priority.get_ref().get()).ok());
        if probe.by != With::Udp {
            self.superfluous(probe.priority.as_ref(), || {
                "packets of AF_PACKET and AF_XDP pass by whatever goes by a socket's priority: only with = \"udp\" has one".to_owned()
            });
        } else if probe.pcp.is_some() {
            self.superfluous(probe.priority.as_ref(), || {
                "with pcp packets have that for a priority, too".to_owned()
            });
        }
        let is_traced = probe.trace.as_ref().map_or(trace, |wanted| *wanted.get_ref());
        if let (Some(none), Some(_)) = (
            probe.disturbers.as_ref().filter(|wanted| !*wanted.get_ref()),
            &probe.stop_above,
        ) {
            self.at(none, "stop-above shows what the CPUs did: take one of the two");
        }
        if !is_traced {
            self.superfluous(probe.disturbers.as_ref(), || {
                "only of what is traced there are disturbers: trace = true".to_owned()
            });
            self.superfluous(probe.stop_above.as_ref(), || {
                "only what is traced can be stopped at a packet: trace = true".to_owned()
            });
        }
        Some(Probe {
            name: probe.name.get_ref().0.clone(),
            from,
            way,
            kind,
            far_kind,
            sleeps: wait == Wait::WakeUp,
            rate,
            frame_bytes: u16::try_from(size).unwrap_or(u16::MAX),
            pcp,
            priority,
            count: probe.count.map(file::Whole::get),
            measures,
            is_traced,
            disturbers: probe.disturbers.as_ref().map(|wanted| *wanted.get_ref()),
            stop_above: probe.stop_above.as_ref().map(|time| time.get_ref().0),
            uncertainty: probe.uncertainty.as_ref().map_or(UNCERTAINTY, |time| time.get_ref().0),
            description: format!(
                "{} to {}: {}; {rate} probes/s, frames of {size} bytes{}",
                probe.from.get_ref(),
                probe.to.get_ref(),
                how(probe.by, wait, [kind, far_kind.unwrap_or(kind)]),
                match (pcp, priority) {
                    (Some(pcp), _) => format!(" and a tag of PCP {pcp}"),
                    (None, Some(priority)) => format!(", socket priority {priority}"),
                    (None, None) => String::new(),
                }
            ),
            steering,
            loads,
            is_idle,
            scheduled: None,
        })
    }
}

/// `stress-ng --cpu 2`, with a worker for each CPU named unless it is said.
fn stress_ng(load: &file::Load, cpus: usize) -> Vec<String> {
    let stressor = load.stressor.as_ref().map_or("cpu", |name| &name.get_ref().0);
    let workers = load.workers.as_ref().map(|workers| workers.get_ref().small());
    let workers = workers.unwrap_or_else(|| u32::try_from(cpus.max(1)).unwrap_or(1));
    ["stress-ng".to_owned(), format!("--{stressor}"), workers.to_string()].to_vec()
}
