//! The lab file: what stands in it, as it is written. What it means is checked in `plan`, whole, before anything is done.

mod fault;
mod read;
mod values;

use ringside_netlab::guest::{self, Accelerator};
use serde::Deserialize;
use toml::Spanned;

pub(super) use fault::{Fault, Faults, Text};
pub(super) use read::Pair;
pub(crate) use values::Lane;
pub(super) use values::{Address, Attachment, Bitrate, Name, Pci, Time, Whole};

use crate::steer::{CpusArg, EgressArg, RuleArg};

/// A name that stands for something else of the file.
pub(super) type Named = Spanned<Name>;
/// A key that may be in the wrong place.
pub(super) type Maybe<T> = Option<Spanned<T>>;

/// All of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) title: Option<String>,
    pub(super) rounds: Option<Whole<1, 10_000>>,
    /// How long a cell is measured in a round.
    pub(super) turn: Option<Time>,
    /// How long packets flow before that.
    pub(super) settle: Option<Time>,
    /// Whether paths get their stages, unless they say themselves.
    pub(super) trace: Option<bool>,
    /// Whether what waits for guests in TAP devices is counted.
    pub(super) rings: Option<bool>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) host: Vec<Host>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) guest: Vec<Guest>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) link: Vec<Link>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) load: Vec<Load>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) probe: Vec<Probe>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) steering: Vec<Steering>,
    #[serde(default, deserialize_with = "read::tables")]
    pub(super) schedule: Vec<Schedule>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that cannot be read.
    pub(super) fn read(text: &Text) -> Result<Self, Faults> {
        let mut file: Self = text.read()?;
        for (number, load) in (0..).zip(&mut file.load) {
            load.number = number;
        }
        Ok(file)
    }
}

/// A network namespace, this machine itself, or another one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Host {
    pub(super) name: Named,
    pub(super) place: Option<Place>,
    /// Where a `ringside serve` runs on it.
    pub(super) serve: Maybe<String>,
    pub(super) token_file: Maybe<String>,
    pub(super) pin: Maybe<String>,
    pub(super) tls: Maybe<bool>,
    /// The CPU that its end of a probe runs on.
    pub(super) cpu: Option<Spanned<Whole<0, 8191>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    Namespace,
    Here,
}

/// A virtual machine with a NIC, or one more NIC of a machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Guest {
    pub(super) name: Named,
    pub(super) host: Named,
    pub(super) attachment: Spanned<Attachment>,
    /// The link of the host by which others reach it.
    pub(super) uplink: Option<Named>,
    /// On another machine: the interface of that machine.
    pub(super) interface: Maybe<String>,
    /// The guest whose machine this NIC is in.
    pub(super) machine: Option<Named>,
    /// Its kernel: `host`, or a package.
    pub(super) kernel: Maybe<String>,
    pub(super) cpus: Maybe<Whole<1, 64>>,
    pub(super) memory_mib: Maybe<Whole<256, 65_536>>,
    pub(super) acceleration: Maybe<Acceleration>,
    /// Modules of its kernel besides those that it needs for its NICs.
    pub(super) modules: Maybe<Vec<Name>>,
    pub(super) queues: Maybe<Whole<1, 16>>,
    /// Packets that may wait for the guest in each queue.
    pub(super) queue_len: Maybe<Whole<1, 1_000_000>>,
    pub(super) xdp_mode: Maybe<XdpMode>,
    /// Which packets take the express lane.
    pub(super) express: Maybe<Lane>,
    /// Socket of a program that shares the guest's memory, and runs already.
    pub(super) socket: Maybe<String>,
    /// Such a program, which the lab starts, and its arguments.
    pub(super) program: Maybe<Vec<String>>,
    /// Address of the device that it gets whole.
    pub(super) pci: Maybe<Pci>,
    /// Its own address then, and on another machine.
    pub(super) address: Maybe<Address>,
}

/// Where XDP programs of an attachment run.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum XdpMode {
    /// In the driver.
    #[default]
    Native,
    /// In the stack.
    Generic,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Acceleration {
    #[default]
    Any,
    Kvm,
    Tcg,
}

impl Acceleration {
    /// By its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Any, Self::Kvm, Self::Tcg]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    pub(crate) fn wanted(self) -> guest::Acceleration {
        match self {
            Self::Any => guest::Acceleration::Any,
            Self::Kvm => guest::Acceleration::Require(Accelerator::Kvm),
            Self::Tcg => guest::Acceleration::Require(Accelerator::Tcg),
        }
    }
}

/// A veth pair between two namespaces, or two NICs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Link {
    pub(super) name: Option<Named>,
    pub(super) ends: Spanned<Pair<Named>>,
    /// Interfaces of this machine with a cable between them, one for each end.
    pub(super) interfaces: Maybe<Pair<String>>,
    pub(super) queues: Maybe<Whole<1, 64>>,
    pub(super) mtu: Option<Whole<576, 9000>>,
    pub(super) gro: Maybe<bool>,
    /// Whether TCP crosses it in pieces that are longer than packets.
    pub(super) tso: Maybe<bool>,
}

/// What runs beside the probes in every other turn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Load {
    /// Its number in the file, which says by which ports it goes.
    #[serde(skip)]
    pub(super) number: u16,
    pub(super) name: Named,
    pub(super) kind: Spanned<LoadKind>,
    pub(super) from: Option<Named>,
    pub(super) to: Option<Named>,
    /// Packets a second of our own stream, or requests.
    pub(super) rate: Maybe<Whole<1, 100_000_000>>,
    /// Bytes of its frames.
    pub(super) size: Maybe<Whole<60, 9014>>,
    /// Bits a second of a stream of iperf3's, or of our own of TCP.
    pub(super) bitrate: Maybe<Bitrate>,
    pub(super) streams: Maybe<Whole<1, 128>>,
    /// Bytes of a request, and of its answer.
    pub(super) request: Maybe<Whole<1, 1_048_576>>,
    pub(super) answer: Maybe<Whole<1, 1_048_576>>,
    /// Bytes of a stream that may be under way.
    pub(super) window: Maybe<Whole<2048, 67_108_864>>,
    /// The CPUs of the sender, or of a program.
    pub(super) cpus: Maybe<Vec<Whole<0, 8191>>>,
    pub(super) stressor: Maybe<Name>,
    pub(super) workers: Maybe<Whole<1, 1024>>,
    /// A program and its arguments.
    pub(super) command: Maybe<Vec<String>>,
    /// The guest in which it runs.
    pub(super) guest: Option<Named>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LoadKind {
    Udp,
    Tcp,
    Iperf3Tcp,
    Iperf3Udp,
    StressNg,
    Program,
}

impl LoadKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Iperf3Tcp => "iperf3-tcp",
            Self::Iperf3Udp => "iperf3-udp",
            Self::StressNg => "stress-ng",
            Self::Program => "program",
        }
    }
}

/// A path, and how it is measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Probe {
    pub(super) name: Named,
    pub(super) from: Named,
    pub(super) to: Named,
    #[serde(rename = "with")]
    pub(super) by: With,
    pub(super) wait: Option<Wait>,
    pub(super) mode: Maybe<XskMode>,
    /// Of a guest's socket, or another machine's, if that is to be another one.
    pub(super) far_mode: Maybe<XskMode>,
    /// Probes a second.
    pub(super) rate: Option<Whole<1, 1_000_000>>,
    /// Bytes of a frame.
    pub(super) size: Maybe<Whole<82, 9014>>,
    /// Priority in a VLAN tag.
    pub(super) pcp: Maybe<Whole<0, 7>>,
    /// Of the socket that asks.
    pub(super) priority: Maybe<Whole<0, 15>>,
    /// Probes of a turn at the most.
    pub(super) count: Option<Whole<1, 100_000_000>>,
    pub(super) measure: Maybe<Vec<Measure>>,
    /// What is set for the time of its turns.
    pub(super) steering: Option<Vec<Named>>,
    /// The loads of its loaded turns, if they are not all.
    pub(super) loads: Maybe<Vec<Named>>,
    /// Whether it has idle turns.
    pub(super) idle: Maybe<bool>,
    /// Whether it gets its stages.
    pub(super) trace: Maybe<bool>,
    /// Whether it is looked what else the CPUs do meanwhile.
    pub(super) disturbers: Maybe<bool>,
    /// Its traced turns end with a packet that takes longer, and what the CPUs did meanwhile is kept.
    pub(super) stop_above: Maybe<Time>,
    /// How far a guest's clock may be wrong for one way.
    pub(super) uncertainty: Maybe<Time>,
}

/// Which queues and CPUs packets come to, while a probe that names it has its turn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Steering {
    pub(super) name: Named,
    pub(super) host: Option<Named>,
    /// Of a namespace: the link, if it has several.
    pub(super) link: Option<Named>,
    /// Of this machine.
    pub(super) interface: Maybe<String>,
    pub(super) guest: Option<Named>,
    pub(super) rules: Maybe<Vec<RuleArg>>,
    pub(super) rss: Maybe<Vec<Whole<0, 63>>>,
    pub(super) irq: Maybe<Vec<CpusArg>>,
    pub(super) rps: Maybe<Vec<CpusArg>>,
    pub(super) xps: Maybe<Vec<CpusArg>>,
    /// Of a VLAN device: priorities in tags for priorities of sockets.
    pub(super) egress: Maybe<Vec<EgressArg>>,
    /// Where the packets of the probe are to land at that end.
    pub(super) queue: Maybe<Whole<0, 63>>,
    pub(super) cpu: Maybe<Whole<0, 8191>>,
    /// CPUs for the threads of a guest's machine.
    pub(super) vcpus: Maybe<Vec<Whole<0, 8191>>>,
    pub(super) vhost: Maybe<Vec<Whole<0, 8191>>>,
}

/// Time-triggered streams, each class a cell of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Schedule {
    pub(super) name: Named,
    pub(super) from: Named,
    pub(super) to: Named,
    /// A time with its unit.
    pub(super) cycle: Maybe<String>,
    /// As on the command line of `ringside talker`.
    pub(super) class: Spanned<Vec<String>>,
    pub(super) via: Option<ScheduleVia>,
    pub(super) qdisc: Maybe<Qdisc>,
    pub(super) wait: Option<Wait>,
    pub(super) steering: Option<Vec<Named>>,
    /// How far a guest's clock may be wrong for latencies.
    pub(super) uncertainty: Maybe<Time>,
    /// How far CLOCK_TAI of either end may be off, by who keeps it.
    pub(super) max_clock_offset: Maybe<String>,
    /// The ptp4l of this machine that is asked.
    pub(super) ptp4l: Maybe<String>,
    pub(super) ptp_domain: Maybe<Whole<0, 127>>,
}

/// What a schedule's packets are sent and received through.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ScheduleVia {
    #[default]
    AfPacket,
    AfXdp,
}

impl ScheduleVia {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af-packet",
            Self::AfXdp => "af-xdp",
        }
    }
}

/// Queueing disciplines at the sender.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Qdisc {
    #[default]
    AsItIs,
    Mqprio,
    Etf,
    Taprio,
}

impl Qdisc {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AsItIs => "as-it-is",
            Self::Mqprio => "mqprio",
            Self::Etf => "etf",
            Self::Taprio => "taprio",
        }
    }
}

/// What sends and receives.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum With {
    Udp,
    Packet,
    Xsk,
}

/// How a receiver waits.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wait {
    /// Asleep, until the kernel wakes it.
    #[default]
    WakeUp,
    /// Looking again and again.
    Spin,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum XskMode {
    #[default]
    Native,
    Generic,
    ZeroCopy,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    Rtt,
    OneWay,
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
