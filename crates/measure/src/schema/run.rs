//! One operation, measured once.

use serde::{Deserialize, Serialize};

use crate::counters::Ledger;
use crate::cycle::{Cycle, Waiting};
#[cfg(doc)]
use crate::latency::Latency;
use crate::latency::{Jitter, RttRecorder, Summary};
use crate::probe::Clock;
use crate::rate::Rates;
use crate::schema::{
    ChecksumBy, CpuStages, HintsResult, ImpairResult, LaunchResult, ScheduleResult, TxStampsResult, UnderLoadResult,
    UntilCi, Via,
};
use crate::sequence::Counts;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Receive and drop.
    Rx,
    /// Transmit.
    Tx,
    /// Forward.
    Fwd,
    /// Send back what asks for it.
    Echo,
    /// Ask, and time the answers.
    Ping,
    /// Hand on what came, worse than it was.
    Impair,
    /// Send streams by a schedule.
    Talker,
    /// Receive them.
    Listener,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunResult {
    /// What was done.
    pub operation: Operation,
    /// Time that the run took, in nanoseconds: from the common start of all threads until it was
    /// stopped. Rates are not over this time but over their own `span_ns`.
    pub duration_ns: u64,
    /// Frames in bytes, from the Ethernet header on, without check sequence; `None` if mixed.
    pub frame_bytes: Option<u64>,
    /// Payload of a frame in bytes; `None` if mixed.
    pub payload_bytes: Option<u64>,
    /// Rate that was asked for; `None` for as fast as possible. `transmitted.packets_pps` is the
    /// rate achieved.
    pub target_pps: Option<f64>,
    /// Packets under way at once, where a depth was asked for.
    pub depth_packets: Option<u64>,
    /// Packets and where they went.
    pub packets: Ledger,
    /// Packets that no counter knows of: sent − (received + losses). Zero when the run adds up.
    pub unaccounted_packets: i64,
    /// Rates received, from the first to the last packet; `None` without two packets apart in time.
    pub received: Option<Rates>,
    /// Rates transmitted, from the first to the last packet; `None` without two packets apart in
    /// time.
    pub transmitted: Option<Rates>,
    /// Lost, doubled and reordered packets, where they are numbered.
    pub sequence: Option<Counts>,
    /// Times, where they were measured; with `under_load` those without load.
    pub latency: Option<LatencyResult>,
    /// How late the sender was; left out where packets had no schedule, and where `cycle` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_lateness: Option<SenderLateness>,
    /// Deadlines, where packets were sent by cycle.
    pub cycle: Option<CycleResult>,
    /// Counters of each queue, also of those without a socket for which packets came.
    pub queues: Vec<QueueCounters>,
    /// What the CPUs did.
    pub cpus: Vec<CpuUse>,
    /// The run in pieces, in order.
    pub intervals: Vec<Interval>,
    /// What happened to the links meanwhile, in order; `None` where nobody looked.
    pub link_events: Option<Vec<LinkChange>>,
    /// How often a link that was up went down or lost its carrier.
    pub link_flaps: Option<u64>,
    /// For how long a link was not up, in nanoseconds, all links together.
    pub link_down_ns: Option<u64>,
    /// When packets left; left out where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_stamps: Option<TxStampsResult>,
    /// Who filled in checksums; left out where packets had them already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_offload: Option<ChecksumBy>,
    /// Packets that XDP could not handle, by the kernel's tracepoints: most of them are also among the losses, by the counter of a
    /// socket. Left out where they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_faults: Option<Vec<XdpFault>>,
    /// CPU time by stage; left out where it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_stages: Option<CpuStages>,
    /// What the XDP program told about the packets; left out where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<HintsResult>,
    /// Round trips with load and without; left out where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_load: Option<UnderLoadResult>,
    /// What was done to the packets of a path; left out where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impair: Option<ImpairResult>,
    /// Streams by a schedule; left out where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleResult>,
    /// What became of `--until-ci`; left out where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<UntilCi>,
}

impl RunResult {
    /// Nothing measured yet.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            duration_ns: 0,
            frame_bytes: None,
            payload_bytes: None,
            target_pps: None,
            depth_packets: None,
            packets: Ledger::default(),
            unaccounted_packets: 0,
            received: None,
            transmitted: None,
            sequence: None,
            latency: None,
            sender_lateness: None,
            cycle: None,
            queues: Vec::new(),
            cpus: Vec::new(),
            intervals: Vec::new(),
            link_events: None,
            link_flaps: None,
            link_down_ns: None,
            tx_stamps: None,
            checksum_offload: None,
            xdp_faults: None,
            cpu_stages: None,
            hints: None,
            under_load: None,
            impair: None,
            schedule: None,
            until_ci: None,
        }
    }
}

/// What XDP could not do with packets of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct XdpFault {
    /// Name of the interface.
    pub interface: String,
    /// A redirect that failed, with its error, or a verdict that could not be carried out.
    pub what: String,
    /// How many packets.
    pub packets: u64,
}

/// A change of a link during a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkChange {
    /// When it was noticed, since the start of the run: at most 50 ms late, on the way up 10 ms.
    pub at_ns: u64,
    /// Name of the interface.
    pub interface: String,
    /// What happened.
    pub event: LinkEvent,
}

/// What can happen to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkEvent {
    /// Switched off by an administrator.
    Down,
    /// Switched on, but without a carrier.
    NoCarrier,
    /// Packets pass.
    Up,
    /// The interface was removed, which ends a run.
    Removed,
    /// The interface went to another network namespace, which ends a run.
    Moved,
    /// The interface has another name.
    Renamed,
    /// The interface has other numbers of queues.
    QueuesChanged,
    /// The interface has another MTU.
    MtuChanged,
}

/// Which time was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LatencyKind {
    /// There and back.
    RoundTrip,
    /// There, by two clocks that were synchronised.
    OneWay,
}

impl LatencyKind {
    /// Returns the name for people: `round trip` or `one way`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round trip",
            Self::OneWay => "one way",
        }
    }
}

/// Times, of what, and by which clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyResult {
    /// Which time.
    pub kind: LatencyKind,
    /// Which clock.
    pub clock: Clock,
    /// From the real sending.
    pub raw: Option<Summary>,
    /// From the intended sending: corrected for coordinated omission. `None` without a schedule,
    /// which intends no times.
    pub corrected: Option<Summary>,
    /// All of the raw times as a histogram (HdrHistogram V2, compressed, base64; [`Latency::from_hdr`] reads it): what other tools
    /// plot, and what adds up with other runs'.
    #[serde(default)]
    pub raw_hdr: Option<String>,
    /// The same of the corrected ones, from the intended sending.
    #[serde(default)]
    pub corrected_hdr: Option<String>,
    /// Jitter of the raw times.
    pub jitter: Option<Jitter>,
    /// Packets whose stamps cannot be right, left out.
    pub impossible_packets: u64,
}

impl LatencyResult {
    /// The round trips of a recorder that was fed from this clock.
    #[must_use]
    pub fn round_trip(recorder: &RttRecorder, clock: Clock) -> Self {
        Self {
            kind: LatencyKind::RoundTrip,
            clock,
            raw: recorder.raw().summary(),
            corrected: recorder.corrected().summary(),
            raw_hdr: recorder.raw().to_hdr(),
            corrected_hdr: recorder.corrected().to_hdr(),
            jitter: recorder.jitter(),
            impossible_packets: recorder.impossible(),
        }
    }

    /// Returns it without the times from the intended sending, of packets that had no schedule.
    #[must_use]
    pub fn without_schedule(self) -> Self {
        Self {
            corrected: None,
            corrected_hdr: None,
            ..self
        }
    }

    /// Returns the times from the intended sending, and without a schedule those from the real one.
    #[must_use]
    pub fn best(&self) -> Option<Summary> {
        self.corrected.or(self.raw)
    }

    /// Returns the histogram of these times.
    #[must_use]
    pub fn best_hdr(&self) -> Option<&String> {
        match self.corrected {
            Some(_) => self.corrected_hdr.as_ref(),
            None => self.raw_hdr.as_ref(),
        }
    }
}

/// By how much the packets of a schedule were sent after their time. The time in which the path
/// took no packet is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SenderLateness {
    /// From the time of the schedule to the sending. Packets that left in one burst have the time
    /// of the first of them.
    pub times: Summary,
    /// Packets sent more than an interval of the schedule, and more than 100 µs, after their time.
    pub late_packets: u64,
}

/// How well the deadlines of a cyclic transmission were kept, and by which clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CycleResult {
    /// The clock of the deadlines.
    pub clock: Clock,
    /// Time between two deadlines, or of a cycle where it has several.
    pub period_ns: u64,
    /// How the thread waited for them.
    pub waiting: Waiting,
    /// How much before a deadline it asked to be woken in the end, as it had learned; `None` where it did not learn.
    pub early_ns: Option<u64>,
    /// Deadlines that have come.
    pub due_cycles: u64,
    /// Those whose packet was on its way only after the next one was due.
    pub late_cycles: u64,
    /// Those without a packet, because the next one was over too by then, or nothing could be sent.
    pub skipped_cycles: u64,
    /// What waking up took, from the time that was asked for; `None` where it did not sleep.
    pub wake_up: Option<Summary>,
    /// From the deadline to the thread being ready to send.
    pub ready: Option<Summary>,
    /// From the deadline to the packet being on its way: the kernel has taken it.
    pub transmit: Option<Summary>,
    /// Jitter of that.
    pub jitter: Option<Jitter>,
    /// Through what it sent.
    #[serde(default)]
    pub via: Via,
    /// Launch times; left out where packets had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchResult>,
}

impl CycleResult {
    /// That of a cycle that was told times of this clock.
    #[must_use]
    pub fn of(cycle: &Cycle, clock: Clock) -> Self {
        let counts = cycle.counts();
        Self {
            clock,
            period_ns: cycle.period_ns(),
            waiting: cycle.waiting(),
            early_ns: (cycle.waiting() == Waiting::Adaptive).then(|| cycle.early_ns()),
            due_cycles: counts.due(),
            late_cycles: counts.late,
            skipped_cycles: counts.skipped,
            wake_up: cycle.wake_up().summary(),
            ready: cycle.readiness().summary(),
            transmit: cycle.transmit().summary(),
            jitter: cycle.jitter(),
            via: Via::default(),
            launch: None,
        }
    }
}

/// Counters of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueCounters {
    /// Name of the interface.
    pub interface: String,
    /// The queue.
    pub queue: u32,
    /// Packets received from it.
    pub received_packets: u64,
    /// Packets sent by it.
    pub sent_packets: u64,
    /// System calls that told the kernel to send.
    pub kicks: u64,
    /// System calls that waited for packets.
    pub waits: u64,
    /// Times that the NIC had no frame left to receive into, with zero-copy. It dropped packets
    /// then, those for the host included.
    #[serde(default)]
    pub rx_starved: u64,
    /// The kernel's counters of the socket; `None` where there is no AF_XDP socket.
    pub xdp_statistics: Option<XdpStatistics>,
    /// What the XDP program did with the queue's packets; `None` where it is not ours.
    pub xdp_verdicts: Option<XdpVerdicts>,
}

/// What Ringside's XDP program did with the packets of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct XdpVerdicts {
    /// Handed to the queue's socket.
    pub redirected_packets: u64,
    /// Passed up the stack: the filter does not want them.
    pub passed_filter_packets: u64,
    /// Passed up the stack: ARP and IPv6 neighbour discovery.
    pub passed_neighbour_packets: u64,
    /// Passed up the stack: wanted, but the queue has no socket.
    pub passed_unbound_packets: u64,
    /// Passed up the stack: too short, or contradicting themselves.
    pub passed_malformed_packets: u64,
}

/// The six counters of `XDP_STATISTICS`, by the kernel's names
/// (<https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h>), in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[doc(alias = "xdp_statistics")]
pub struct XdpStatistics {
    /// Dropped for other reasons than an invalid descriptor.
    pub rx_dropped: u64,
    /// Dropped for an invalid descriptor in the fill ring.
    pub rx_invalid_descs: u64,
    /// Dropped for an invalid descriptor in the TX ring.
    pub tx_invalid_descs: u64,
    /// Dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// The fill ring was found empty.
    pub rx_fill_ring_empty_descs: u64,
    /// The TX ring was found empty.
    pub tx_ring_empty_descs: u64,
}

/// What one CPU did during the run, in percent of its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuUse {
    /// The CPU.
    pub cpu: u32,
    /// User code.
    pub user_percent: f64,
    /// System calls and kernel threads.
    pub system_percent: f64,
    /// Soft interrupts, where the kernel receives packets.
    pub softirq_percent: f64,
    /// Taken by the hypervisor.
    pub steal_percent: f64,
}

/// A piece of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interval {
    /// Its begin, since the start of the run.
    pub start_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// Packets received in it.
    pub received_packets: u64,
    /// Packets sent in it.
    pub sent_packets: u64,
    /// Median of the times of the packets that came in it, from the real sending, to three significant digits; `None`
    /// where nothing is timed, and for fewer than 20 of them.
    pub p50_ns: Option<u64>,
}
