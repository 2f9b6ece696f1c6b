//! Rates: what happened between two looks. In JSON it is the schema `ringside.top/1`.

use std::collections::BTreeMap;

use ringside_measure::latency::{Latency, Summary};
use ringside_measure::live::{Frames, LiveQueue, LiveTimes, Rings, Snapshot};
use ringside_measure::schema::{Mode, XdpStatistics};
use ringside_nic::host::Interruptions;
use ringside_nic::{LinkStats, QueueKind};
use serde::Serialize;

use super::observation::{InterfaceNow, Observation, QueueNow};
use crate::caps::{Attached, Holder};
use crate::session::nanos;
use crate::system::cpu_share;

/// What was seen. A rate is `null` where there is only one look.
#[derive(Debug, Serialize)]
pub(super) struct View {
    schema: &'static str,
    tool_version: &'static str,
    /// What rates are of.
    pub(super) interval_ns: u64,
    /// Running commands of this network namespace.
    pub(super) processes: Vec<Process>,
    /// How many more run in other network namespaces.
    pub(super) processes_elsewhere: usize,
    pub(super) interfaces: Vec<Interface>,
    /// Processes of this network namespace with AF_XDP sockets, whatever program they are.
    pub(super) af_xdp_processes: Vec<SocketUser>,
    pub(super) cpus: Vec<Cpu>,
    /// What could not be seen, and why.
    pub(super) notes: Vec<String>,
}

/// A running command.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) command_line: Vec<String>,
    pub(super) uptime_ns: u64,
    pub(super) queues: Vec<Queue>,
    /// Round trips, where it measures them.
    pub(super) latency: Option<Times>,
}

/// A queue of a running command.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    pub(super) interface: String,
    pub(super) queue: u32,
    pub(super) mode: Mode,
    /// All since the command began, as the next.
    pub(super) received_packets: u64,
    pub(super) sent_packets: u64,
    pub(super) received_pps: Option<f64>,
    pub(super) received_bytes_per_s: Option<f64>,
    pub(super) sent_pps: Option<f64>,
    pub(super) sent_bytes_per_s: Option<f64>,
    /// Times that a sleeping thread was woken by a packet.
    pub(super) wakeups_per_s: Option<f64>,
    /// System calls to send.
    pub(super) kicks_per_s: Option<f64>,
    /// System calls to wait for packets, or to poll for them.
    pub(super) waits_per_s: Option<f64>,
    /// Where its frames are; the six add up to all.
    pub(super) frames: Option<Frames>,
    pub(super) rings: Rings,
    pub(super) drops: Vec<Drops>,
    /// Times that the kernel had a packet and found no frame; on copy paths each is in `rx_dropped` too.
    pub(super) fill_ring_empty_per_s: Option<f64>,
    /// How old all of this is: a thread that sleeps tells late.
    pub(super) age_ns: u64,
}

/// Losses for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Drops {
    pub(super) reason: String,
    pub(super) packets_per_s: Option<f64>,
    /// Since this began to look, or since it was told to begin anew.
    pub(super) packets: u64,
}

/// Round trips: those of the interval, and all.
#[derive(Debug, Serialize)]
pub(super) struct Times {
    pub(super) interval: Option<Summary>,
    pub(super) whole: Option<Summary>,
}

/// An interface.
#[derive(Debug, Serialize)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) driver: Option<String>,
    pub(super) state: &'static str,
    pub(super) mtu_bytes: u32,
    pub(super) xdp_program: Option<Attached>,
    pub(super) received_pps: Option<f64>,
    pub(super) received_bytes_per_s: Option<f64>,
    pub(super) sent_pps: Option<f64>,
    pub(super) sent_bytes_per_s: Option<f64>,
    pub(super) queues: Vec<DeviceQueue>,
    /// Of the link, and at the kernel's tracepoints for XDP.
    pub(super) drops: Vec<Drops>,
    pub(super) interrupts: Vec<Interrupt>,
}

/// A queue as kernel and driver tell.
#[derive(Debug, Serialize)]
pub(super) struct DeviceQueue {
    pub(super) kind: QueueKind,
    pub(super) queue: u32,
    pub(super) napi: Option<u32>,
    pub(super) af_xdp_socket: Option<bool>,
    pub(super) holder: Option<Holder>,
    /// By the driver's names.
    pub(super) counters: BTreeMap<String, Counter>,
}

/// A counter of a driver.
#[derive(Debug, Serialize)]
pub(super) struct Counter {
    pub(super) per_s: Option<f64>,
    pub(super) value: u64,
}

/// An interrupt of an interface.
#[derive(Debug, Serialize)]
pub(super) struct Interrupt {
    pub(super) number: u32,
    pub(super) name: String,
    /// CPU, and how often there.
    pub(super) per_s_by_cpu: Vec<(u32, f64)>,
}

/// A process with AF_XDP sockets.
#[derive(Debug, Serialize)]
pub(super) struct SocketUser {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) sockets: usize,
}

/// A CPU, in percent of its time.
#[derive(Debug, Serialize)]
pub(super) struct Cpu {
    pub(super) cpu: u32,
    pub(super) user_percent: f64,
    pub(super) system_percent: f64,
    /// Interrupts, soft and hard.
    pub(super) softirq_percent: f64,
    pub(super) steal_percent: f64,
    pub(super) net_rx_per_s: Option<f64>,
    pub(super) net_tx_per_s: Option<f64>,
    /// All interrupts of devices.
    pub(super) interrupts_per_s: Option<f64>,
}

impl View {
    /// What happened between `earlier` and `later`, and what was lost since `base`.
    pub(super) fn of(base: &Observation, earlier: &Observation, later: &Observation) -> Self {
        let interval_ns = nanos(later.at.saturating_sub(earlier.at));
        let span = Span(interval_ns);
        Self {
            schema: "ringside.top/1",
            tool_version: env!("CARGO_PKG_VERSION"),
            interval_ns,
            processes: later.processes.iter().map(|now| process(base, earlier, now)).collect(),
            processes_elsewhere: later.elsewhere,
            interfaces: (later.interfaces.iter())
                .map(|now| interface(base, earlier, later, now, span))
                .collect(),
            af_xdp_processes: (later.sockets.iter())
                .map(|(holder, sockets)| SocketUser {
                    pid: holder.pid,
                    command: holder.command.clone(),
                    sockets: *sockets,
                })
                .collect(),
            cpus: cpus(earlier, later, span),
            notes: later.notes.clone(),
        }
    }
}

/// Time between two looks, in nanoseconds.
#[derive(Clone, Copy)]
struct Span(u64);

impl Span {
    /// How many a second; `None` without a time, or an earlier count. A counter that began anew has counted nothing.
    #[allow(clippy::cast_precision_loss, reason = "rates to 16 digits")]
    fn rate(self, now: u64, then: Option<u64>) -> Option<f64> {
        (self.0 != 0).then_some(())?;
        Some(now.saturating_sub(then?) as f64 * 1e9 / self.0 as f64)
    }
}

fn process(base: &Observation, earlier: &Observation, now: &Snapshot) -> Process {
    // A process of the same number that began at another time is another one.
    let same = |observation: &Observation| {
        let mut all = observation.processes.iter();
        let found = all.find(|then| (then.pid, then.started_unix_s) == (now.pid, now.started_unix_s));
        found.cloned()
    };
    let (then, first) = (same(earlier), same(base));
    let span = Span(
        then.as_ref()
            .map_or(0, |then| now.uptime_ns.saturating_sub(then.uptime_ns)),
    );
    let of = |snapshot: &Option<Snapshot>, queue: &LiveQueue| {
        let mut all = snapshot.iter().flat_map(|snapshot| &snapshot.queues);
        let found = all.find(|other| {
            (&other.counters.interface, other.counters.queue) == (&queue.counters.interface, queue.counters.queue)
        });
        found.cloned()
    };
    Process {
        pid: now.pid,
        command: now.command.clone(),
        command_line: now.command_line.clone(),
        uptime_ns: now.uptime_ns,
        queues: (now.queues.iter())
            .map(|queue| live_queue(queue, of(&then, queue).as_ref(), of(&first, queue).as_ref(), span))
            .collect(),
        latency: now.latency.as_ref().map(|times| Times {
            interval: fresh(times, then.as_ref().and_then(|then| then.latency.as_ref())),
            whole: times.raw,
        }),
    }
}

/// The times that have come since; all where there is no earlier look.
fn fresh(now: &LiveTimes, then: Option<&LiveTimes>) -> Option<Summary> {
    let now = now.histogram().ok()?;
    let then = then.map_or(Ok(Latency::new()), LiveTimes::histogram).ok()?;
    now.since(&then).summary()
}

fn live_queue(now: &LiveQueue, then: Option<&LiveQueue>, first: Option<&LiveQueue>, span: Span) -> Queue {
    let rate = |value: fn(&LiveQueue) -> u64| span.rate(value(now), then.map(value));
    let reasons: [Reason<XdpStatistics>; 3] = [
        ("rx_dropped", |kernel| kernel.rx_dropped),
        ("rx_ring_full", |kernel| kernel.rx_ring_full),
        ("tx_invalid_descs", |kernel| kernel.tx_invalid_descs),
    ];
    let drops = reasons.map(|(reason, value)| {
        let of = |queue: &LiveQueue| queue.counters.xdp_statistics.as_ref().map_or(0, value);
        drops(reason, of(now), then.map(of), first.map(of), span)
    });
    Queue {
        interface: now.counters.interface.clone(),
        queue: now.counters.queue,
        mode: now.mode,
        received_packets: now.counters.received_packets,
        sent_packets: now.counters.sent_packets,
        received_pps: rate(|queue| queue.counters.received_packets),
        received_bytes_per_s: rate(|queue| queue.received_bytes),
        sent_pps: rate(|queue| queue.counters.sent_packets),
        sent_bytes_per_s: rate(|queue| queue.sent_bytes),
        wakeups_per_s: rate(|queue| queue.wakeups),
        kicks_per_s: rate(|queue| queue.counters.kicks),
        waits_per_s: rate(|queue| queue.counters.waits),
        frames: now.frames,
        rings: now.rings,
        drops: drops.into(),
        fill_ring_empty_per_s: rate(|queue| {
            let kernel = queue.counters.xdp_statistics.as_ref();
            kernel.map_or(0, |kernel| kernel.rx_fill_ring_empty_descs)
        }),
        age_ns: now.age_ns,
    }
}

/// Why packets are lost, and how many in these counters.
type Reason<Counters> = (&'static str, fn(&Counters) -> u64);

fn drops(reason: &str, now: u64, then: Option<u64>, first: Option<u64>, span: Span) -> Drops {
    Drops {
        reason: reason.to_owned(),
        packets_per_s: span.rate(now, then),
        packets: now.saturating_sub(first.unwrap_or(0)),
    }
}

fn interface(
    base: &Observation,
    earlier: &Observation,
    later: &Observation,
    now: &InterfaceNow,
    span: Span,
) -> Interface {
    fn same<'a>(observation: &'a Observation, now: &InterfaceNow) -> Option<&'a InterfaceNow> {
        observation.interfaces.iter().find(|then| then.index == now.index)
    }
    let (then, first) = (same(earlier, now), same(base, now));
    let rate = |value: fn(&LinkStats) -> u64| span.rate(value(&now.stats), then.map(|then| value(&then.stats)));
    Interface {
        name: now.name.clone(),
        driver: now.driver.clone(),
        state: match (now.up, now.carrier) {
            (false, _) => "down",
            (true, false) => "no carrier",
            (true, true) => "up",
        },
        mtu_bytes: now.mtu_bytes,
        xdp_program: now.xdp.clone(),
        received_pps: rate(|stats| stats.rx_packets),
        received_bytes_per_s: rate(|stats| stats.rx_bytes),
        sent_pps: rate(|stats| stats.tx_packets),
        sent_bytes_per_s: rate(|stats| stats.tx_bytes),
        queues: now.queues.iter().map(|queue| device_queue(queue, then, span)).collect(),
        drops: link_drops(now, then, first, span),
        interrupts: interrupts(now, earlier.hard.as_ref(), later.hard.as_ref(), span),
    }
}

fn device_queue(now: &QueueNow, then: Option<&InterfaceNow>, span: Span) -> DeviceQueue {
    let mut queues = then.iter().flat_map(|then| &then.queues);
    let then = queues.find(|then| (then.kind, then.id) == (now.kind, now.id));
    let counters = now.counters.iter().map(|(name, value)| {
        let mut all = then.iter().flat_map(|then| &then.counters);
        let before = all.find(|(known, _)| known == name).map(|(_, value)| *value);
        let per_s = span.rate(*value, before);
        (name.clone(), Counter { per_s, value: *value })
    });
    DeviceQueue {
        kind: now.kind,
        queue: now.id,
        napi: now.napi,
        af_xdp_socket: now.xsk,
        holder: now.holder.clone(),
        counters: counters.collect(),
    }
}

/// Losses of the link, and what went wrong with XDP, which is counted since this began to look.
fn link_drops(now: &InterfaceNow, then: Option<&InterfaceNow>, first: Option<&InterfaceNow>, span: Span) -> Vec<Drops> {
    let reasons: [Reason<LinkStats>; 6] = [
        ("link rx_dropped", |stats| stats.rx_dropped),
        ("link rx_missed", |stats| stats.rx_missed_errors),
        ("link rx_errors", |stats| stats.rx_errors),
        ("link rx_nohandler", |stats| stats.rx_nohandler),
        ("link tx_dropped", |stats| stats.tx_dropped),
        ("link tx_errors", |stats| stats.tx_errors),
    ];
    let of_link = reasons.map(|(reason, value)| {
        let of = |interface: &InterfaceNow| value(&interface.stats);
        drops(reason, of(now), then.map(of), first.map(of), span)
    });
    let at = |interface: &InterfaceNow, reason: &str| {
        let found = interface.events.iter().find(|(known, _)| known == reason);
        found.map_or(0, |(_, count)| *count)
    };
    let of_xdp = now.events.iter().map(|(reason, count)| {
        let (then, first) = (then.map(|then| at(then, reason)), first.map(|first| at(first, reason)));
        drops(reason, *count, then, first, span)
    });
    of_link.into_iter().chain(of_xdp).collect()
}

fn interrupts(
    now: &InterfaceNow,
    earlier: Option<&Interruptions>,
    later: Option<&Interruptions>,
    span: Span,
) -> Vec<Interrupt> {
    let each = now.irqs.iter().map(|(number, name)| {
        let kind = number.to_string();
        let passed = earlier.zip(later).map(|(earlier, later)| later.since(earlier, &kind));
        let rates = passed.unwrap_or_default().into_iter();
        Interrupt {
            number: *number,
            name: name.clone(),
            per_s_by_cpu: rates
                .filter_map(|(cpu, count)| Some((cpu, span.rate(count.into(), Some(0))?)))
                .collect(),
        }
    });
    each.collect()
}

fn cpus(earlier: &Observation, later: &Observation, span: Span) -> Vec<Cpu> {
    let Some((then, now)) = earlier.cpus.as_ref().zip(later.cpus.as_ref()) else {
        return Vec::new();
    };
    let soft = earlier.soft.as_ref().zip(later.soft.as_ref());
    let (net_rx, net_tx) = (
        counts(soft, |kind| kind == "NET_RX"),
        counts(soft, |kind| kind == "NET_TX"),
    );
    // Those with a number are devices'.
    let hard = earlier.hard.as_ref().zip(later.hard.as_ref());
    let devices = counts(hard, |kind| kind.parse::<u32>().is_ok());
    let rate = |counts: &BTreeMap<u32, u64>, cpu| span.rate(*counts.get(&cpu)?, Some(0));
    let times = now.since(then).cpus;
    let each = times.iter().map(|(cpu, time)| {
        let share = cpu_share(*cpu, time);
        Cpu {
            cpu: *cpu,
            user_percent: share.user_percent,
            system_percent: share.system_percent,
            softirq_percent: share.softirq_percent,
            steal_percent: share.steal_percent,
            net_rx_per_s: rate(&net_rx, *cpu),
            net_tx_per_s: rate(&net_tx, *cpu),
            interrupts_per_s: rate(&devices, *cpu),
        }
    });
    each.collect()
}

/// How often those of some kinds came between two readings, by CPU.
fn counts(readings: Option<(&Interruptions, &Interruptions)>, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    if let Some((then, now)) = readings {
        let wanted = now.kinds.iter().filter(|(kind, _)| is_wanted(kind));
        for (cpu, count) in wanted.flat_map(|(kind, _)| now.since(then, kind)) {
            *sums.entry(cpu).or_insert(0) += u64::from(count);
        }
    }
    sums
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
