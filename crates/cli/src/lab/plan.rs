//! What a lab file means: every name looked up, every key where it may stand. Nothing of it depends on the machine.

mod check;
mod guest;
mod steer;
mod traffic;

use std::time::Duration;

use ringside_measure::latency;
use ringside_measure::schema::LatencyKind;
use ringside_netlab::attach::{PciAddress, Way as Join};
use ringside_nic::host::CpuTimes;

use super::file::{Acceleration, Address, Faults, File, Lane, Qdisc, ScheduleVia, Text, Wait, With};
use super::overrides::Overrides;
use super::tcp::Stream;
use crate::args::BadValue;
use crate::compare;
use crate::run::streams::PtpArgs;
use crate::steer::Settings;

/// The smallest frame with a probe over IPv4.
pub(super) const SMALLEST: u64 = 82;
/// The same with room for the far end's times.
pub(super) const SMALLEST_STAMPED: u64 = SMALLEST + 16;

/// How far another clock may be wrong, unless it is said.
pub(super) const UNCERTAINTY: Duration = Duration::from_micros(100);

/// The most bytes of a request, or of its answer.
pub(super) const MOST_REQUEST: usize = 1 << 20;

/// A lab, ready to be built.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) title: String,
    pub(super) rounds: u32,
    pub(super) turn: Duration,
    pub(super) settle: Duration,
    /// What waits for guests in TAP devices is counted.
    pub(super) rings: bool,
    pub(super) hosts: Vec<Host>,
    pub(super) guests: Vec<Guest>,
    pub(super) links: Vec<Link>,
    pub(super) loads: Vec<Load>,
    /// Those of the file, and behind them one for each class of the schedules.
    pub(super) probes: Vec<Probe>,
    pub(super) steerings: Vec<Steering>,
    pub(super) schedules: Vec<Schedule>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) cpu: Option<u32>,
}

impl Host {
    /// `the host far (192.0.2.7)`, `the guest vm (192.0.2.9)`
    pub(super) fn named(&self) -> String {
        match &self.place {
            Place::Serve(serve) => format!("the host {} ({})", self.name, serve.at),
            Place::Guest(there) => format!("the guest {} ({})", self.name, there.address.0),
            Place::Namespace | Place::Here => format!("the host {}", self.name),
        }
    }

    /// The guest that it is, of another machine.
    pub(super) fn lodger(&self) -> Option<&FarGuest> {
        match &self.place {
            Place::Guest(there) => Some(there),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Place {
    /// A network namespace of this machine, made for the lab.
    Namespace,
    /// The network namespace that the lab is started in.
    Here,
    /// Another machine, where `ringside serve` runs.
    Serve(Serve),
    /// A guest of another machine, where `ringside serve` runs as well once it is up.
    Guest(Box<FarGuest>),
}

/// A NIC of a guest that another machine's server starts.
#[derive(Debug)]
pub(super) struct FarGuest {
    /// Its machine is that of a host, by its number: itself, or one before.
    pub(super) guest: Guest,
    /// The interface there that it is joined to; `None`: which the server has for that.
    pub(super) interface: Option<String>,
    pub(super) address: Address,
}

/// How a `ringside serve` is reached.
#[derive(Debug, Default)]
pub(super) struct Serve {
    pub(super) at: String,
    pub(super) token_file: Option<String>,
    pub(super) pin: Option<String>,
    pub(super) tls: bool,
}

/// A NIC of a guest.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) name: String,
    /// Number of its host.
    pub(super) host: usize,
    pub(super) attachment: Join,
    /// Number of the link by which others reach it.
    pub(super) uplink: Option<usize>,
    /// Number of the guest whose machine this is: its own, or that of one before.
    pub(super) machine: usize,
    pub(super) queues: u32,
    pub(super) queue_len: Option<u32>,
    pub(super) is_generic: bool,
    /// Which packets take its express lane, if it has one.
    pub(super) express: Lane,
    pub(super) socket: Option<String>,
    /// What serves its queues, if that is not the usual program.
    pub(super) program: Vec<String>,
    /// The NIC that it gets whole, and its address there.
    pub(super) nic: Option<(PciAddress, Address)>,
    /// What the machine is made like.
    pub(super) kernel: Option<String>,
    pub(super) cpus: u32,
    /// The file says how many.
    pub(super) has_own_cpus: bool,
    pub(super) memory_mib: u32,
    pub(super) acceleration: Acceleration,
    /// Modules of its kernel that are loaded besides.
    pub(super) modules: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: Option<String>,
    /// Numbers of the hosts.
    pub(super) ends: [usize; 2],
    pub(super) wire: Wire,
    pub(super) mtu: u32,
}

/// What a link is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Veth {
        queues: u32,
        gro: bool,
        tso: bool,
    },
    /// Two interfaces of this machine, by their names.
    Nics([String; 2]),
}

impl Link {
    /// Of both ends; those of NICs are their own.
    pub(super) fn queues(&self) -> Option<u32> {
        match self.wire {
            Wire::Veth { queues, .. } => Some(queues),
            Wire::Nics(_) => None,
        }
    }

    /// The interfaces that it takes.
    pub(super) fn nics(&self) -> Option<&[String; 2]> {
        match &self.wire {
            Wire::Nics(names) => Some(names),
            Wire::Veth { .. } => None,
        }
    }
}

/// How one machine of the lab reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A link by its number, from its first end to its second, or back.
    Link { link: usize, back: bool },
    /// The host with a server, by its number: another machine, or a guest there.
    Serve(usize),
    /// The guest, by its number.
    Guest(usize),
}

#[derive(Debug)]
pub(super) struct Load {
    /// Its number in the file.
    pub(super) number: u16,
    pub(super) name: String,
    pub(super) what: Work,
    /// Where it may run; anywhere if empty.
    pub(super) cpus: Vec<u32>,
}

impl Load {
    /// Number of the guest whose CPUs do it.
    pub(super) fn guest(&self) -> Option<usize> {
        match self.what {
            Work::Program { guest, .. } => guest,
            Work::Udp { .. } | Work::Tcp { .. } | Work::Iperf3 { .. } => None,
        }
    }
}

/// What a load does.
#[derive(Debug)]
pub(super) enum Work {
    /// Our own stream of UDP packets, through sockets of the kernel.
    Udp {
        /// `None`: that of the path that is measured.
        way: Option<Way>,
        rate: u64,
        size: u16,
    },
    /// A stream of iperf3's.
    Iperf3 {
        way: Option<Way>,
        udp: bool,
        bitrate: Option<String>,
        streams: u32,
        /// Bytes of a frame, for UDP.
        size: Option<u16>,
    },
    /// Our own TCP streams.
    Tcp {
        way: Option<Way>,
        streams: u32,
        stream: Stream,
    },
    /// stress-ng, or any other program.
    Program {
        command: Vec<String>,
        /// Number of the guest in which it runs.
        guest: Option<usize>,
        /// What it says when it begins, if that is known.
        begins: Option<&'static str>,
    },
}

/// A path, and how it is measured.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) name: String,
    /// Numbers of the host that asks, and of the other end.
    pub(super) from: usize,
    pub(super) way: Way,
    pub(super) kind: compare::Kind,
    /// What the other end is, if that is another one.
    pub(super) far_kind: Option<compare::Kind>,
    /// The receivers sleep.
    pub(super) sleeps: bool,
    pub(super) rate: u64,
    pub(super) frame_bytes: u16,
    /// VLAN priority, in a tag besides.
    pub(super) pcp: Option<u8>,
    /// Of the socket that asks.
    pub(super) priority: Option<u8>,
    pub(super) count: Option<u64>,
    pub(super) measures: Vec<LatencyKind>,
    /// It gets its stages.
    pub(super) is_traced: bool,
    /// Whether it is looked what else the CPUs do meanwhile; by what a guest is made of, if it is not said.
    pub(super) disturbers: Option<bool>,
    /// At what packet tracing stops.
    pub(super) stop_above: Option<Duration>,
    /// How far another clock may be wrong for one way.
    pub(super) uncertainty: Duration,
    /// In words.
    pub(super) description: String,
    /// Numbers of what is set for the time of its turns.
    pub(super) steering: Vec<usize>,
    /// Numbers of the loads of its loaded turns; it has none without.
    pub(super) loads: Vec<usize>,
    /// It has idle turns.
    pub(super) is_idle: bool,
    /// It is a class of a schedule.
    pub(super) scheduled: Option<Scheduled>,
}

impl Probe {
    /// Whether it has loaded turns, of those under which it is measured.
    pub(super) fn conditions(&self) -> impl Iterator<Item = bool> + use<> {
        let (is_idle, is_loaded) = (self.is_idle, !self.loads.is_empty());
        let all = [(is_idle, false), (is_loaded, true)].into_iter();
        all.filter_map(|(is_wanted, is_loaded)| is_wanted.then_some(is_loaded))
    }
}

/// A class of a schedule, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduled {
    pub(super) schedule: usize,
    pub(super) class: usize,
}

/// What is set for the time of some turns, and where packets are to land by it.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) name: String,
    /// Number of the host.
    pub(super) host: usize,
    pub(super) at: At,
    pub(super) settings: Settings,
    pub(super) queue: Option<u32>,
    pub(super) cpu: Option<u32>,
    /// CPUs for virtual CPUs, one for each in turn, and for those who carry packets.
    pub(super) vcpus: Vec<u32>,
    pub(super) vhost: Vec<u32>,
}

/// Where a steering is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum At {
    /// The host's end of a link, by its number.
    Link(usize),
    /// An interface of this machine.
    Interface(String),
    /// The interface of the `ringside serve` on another one.
    There,
    /// The threads of a guest's machine.
    Guest { guest: usize, uplink: usize },
}

/// Time-triggered streams.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) name: String,
    /// Number of the host at one end.
    pub(super) from: usize,
    /// From there.
    pub(super) way: Way,
    /// The talker is the guest or machine at the way's other end.
    pub(super) is_back: bool,
    /// As the command line has them.
    pub(super) classes: Vec<String>,
    pub(super) schedule: ringside_measure::schedule::Schedule,
    pub(super) via: ScheduleVia,
    pub(super) qdisc: Qdisc,
    pub(super) spins: bool,
    /// How far another clock may be wrong for latencies.
    pub(super) uncertainty: Duration,
    /// How far CLOCK_TAI of either end may be off, by who keeps it.
    pub(super) most_clock_offset_ns: Option<u64>,
    /// Who is asked for it here.
    pub(super) ptp: PtpArgs,
    pub(super) steering: Vec<usize>,
}

impl Plan {
    /// Checks a whole file.
    ///
    /// # Errors
    /// All that is wrong with it, or the first thing that cannot be read.
    pub(super) fn read(text: &Text) -> Result<Self, Faults> {
        check::check(text, File::read(text)?)
    }

    /// Checks a whole file, and plans it as the command line wants it.
    ///
    /// # Errors
    /// As [`Plan::read`], and for a name that the file does not have.
    pub(super) fn read_with(text: &Text, overrides: &Overrides) -> anyhow::Result<Self> {
        let mut plan = Self::read(text).map_err(BadValue::from)?;
        if !overrides.only.is_empty() {
            let mut file = File::read(text).map_err(BadValue::from)?;
            overrides.select(&text.name, &mut file)?;
            plan = check::check(text, file).map_err(BadValue::from)?;
        }
        plan.rounds = overrides.rounds.unwrap_or(plan.rounds);
        plan.turn = overrides.turn.unwrap_or(plan.turn);
        Ok(plan)
    }

    /// Whose medians a probe's are compared with: the first one's that has turns under the same condition, and the same loads in them.
    pub(super) fn base(&self, probe: usize, is_loaded: bool) -> usize {
        let loads = &self.probes[probe].loads;
        let is_like = |other: &Probe| match is_loaded {
            true => other.loads == *loads,
            false => other.is_idle,
        };
        self.probes.iter().position(is_like).unwrap_or(probe)
    }

    /// The CPU that a host's end of a probe runs on: by the file, or in turn.
    pub(super) fn cpu(&self, host: usize) -> u32 {
        if let Some(cpu) = self.hosts.get(host).and_then(|host| host.cpu) {
            return cpu;
        }
        let online = online();
        online.get(host % online.len().max(1)).copied().unwrap_or(0)
    }

    /// Returns how many CPUs a guest's machine has where they are emulated.
    ///
    /// Tracing changes the code of a kernel that runs. A CPU that QEMU emulates may go on to
    /// execute what was there for a moment, and the guest ends (`Oops: int3`). So a machine with
    /// traced paths has one CPU, unless the file needs more.
    pub(super) fn emulated_cpus(&self, machine: usize) -> u32 {
        let of = &self.guests[machine];
        let is_its = |number: usize| self.guests[number].machine == machine;
        let is_to_it = |probe: &Probe| matches!(probe.way, Way::Guest(number) if is_its(number));
        let is_traced = |probe: &Probe| probe.is_traced && is_to_it(probe);
        let has_queues = |nic: &Guest| nic.machine == machine && nic.queues > 1;
        let is_in_it = |load: &Load| load.guest().is_some_and(is_its);
        let has_its_cpus = |load: &Load| is_in_it(load) && load.cpus.iter().any(|cpu| *cpu > 0);
        let pins = |steering: &Steering| {
            let is_here = matches!(steering.at, At::Guest { guest, .. } if is_its(guest));
            is_here && !steering.vcpus.is_empty()
        };
        let needs_more = of.has_own_cpus
            || self.guests.iter().any(has_queues)
            || self.loads.iter().any(has_its_cpus)
            || self.steerings.iter().any(pins);
        match self.probes.iter().any(is_traced) && !needs_more {
            true => 1,
            false => of.cpus,
        }
    }

    /// All CPUs that it names.
    pub(super) fn cpus(&self) -> impl Iterator<Item = (String, u32)> + '_ {
        let hosts = self
            .hosts
            .iter()
            .filter_map(|host| Some((format!("the host {}", host.name), host.cpu?)));
        let loads = self.loads.iter().filter(|load| load.guest().is_none());
        let loads = loads.flat_map(|load| {
            let name = format!("the load {}", load.name);
            load.cpus.iter().map(move |cpu| (name.clone(), *cpu))
        });
        // On another machine they are its own.
        let here = self.steerings.iter().filter(|steering| steering.at != At::There);
        let steerings = here.flat_map(|steering| {
            let settings = &steering.settings;
            let lists = settings.irqs.iter().chain(&settings.rps).chain(&settings.xps);
            let named = lists.flat_map(|list| &list.1).chain(&steering.cpu);
            let all = named.chain(&steering.vcpus).chain(&steering.vhost);
            all.map(|cpu| (format!("the steering {}", steering.name), *cpu))
        });
        hosts.chain(loads).chain(steerings)
    }

    /// How many probes a cell has in all rounds.
    pub(super) fn samples(&self, probe: &Probe) -> u64 {
        let in_turn = u64::try_from(self.turn.as_micros())
            .unwrap_or(u64::MAX)
            .saturating_mul(probe.rate)
            / 1_000_000;
        probe.count.unwrap_or(u64::MAX).min(in_turn) * u64::from(self.rounds)
    }

    /// What is worth to be known before it is run.
    pub(super) fn notes(&self) -> Vec<String> {
        let few = |probe: &&Probe| self.samples(probe) < 1_000 * latency::SAMPLES_BEYOND;
        let few = self.probes.iter().filter(few).map(|probe| probe.name.as_str());
        let has_one_clock = |of: &&Schedule| of.most_clock_offset_ns.is_some() && matches!(of.way, Way::Link { .. });
        let one = self.schedules.iter().filter(has_one_clock).map(|of| of.name.as_str());
        let [few, one] =
            [few.collect::<Vec<_>>(), one.collect()].map(|names| (!names.is_empty()).then(|| names.join(", ")));
        let few = few.map(|names| {
            format!("p99.9 takes 10000 probes of a cell, rate x turn x rounds: too few for it in {names}")
        });
        let one = one.map(|names| {
            format!(
                "both ends of {names} have one clock, which is not off itself: max-clock-offset refuses nothing there"
            )
        });
        few.into_iter().chain(one).collect()
    }
}

/// CPUs of this machine that are there.
pub(super) fn online() -> Vec<u32> {
    CpuTimes::read().map_or_else(|_| Vec::new(), |times| times.cpus.iter().map(|(cpu, _)| *cpu).collect())
}

/// `UDP sockets, both sides sleep`
fn how(by: With, wait: Wait, [near, far]: [compare::Kind; 2]) -> String {
    let mode = |kind| match kind {
        compare::Kind::AfXdpGeneric => "generic",
        compare::Kind::AfXdpZeroCopy => "zero-copy",
        _ => "native",
    };
    let what = match by {
        With::Udp => "UDP sockets".to_owned(),
        With::Packet => "AF_PACKET".to_owned(),
        With::Xsk if near != far => format!("AF_XDP, {} here and {} at the other end", mode(near), mode(far)),
        With::Xsk => format!("AF_XDP, {}", mode(near)),
    };
    let waits = match wait {
        Wait::WakeUp => "receivers sleep until they are woken",
        Wait::Spin => "receivers spin",
    };
    format!("{what}, {waits}")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
