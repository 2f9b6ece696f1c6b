//! What the queues, the XDP program and the link have counted, and the result that is made of it.

use std::time::{Duration, Instant};

use crate::napi;
use anyhow::{Context, Result};
use ringside_measure::schema::{Operation, QueueCounters, RunResult, XdpStatistics, XdpVerdicts};
use ringside_nic::LinkState;
use ringside_xsk::{Port, Queue, Stats, Wait};

use super::{Ran, nanos};

/// How long packets may take from the XDP program's counter to the socket: a turn of NAPI, and the machine may be busy.
const SETTLE: Duration = Duration::from_millis(500);

/// The parts of a result that every command fills in the same way.
pub(crate) fn result(operation: Operation, ran: &Ran, queues: Vec<QueueCounters>) -> RunResult {
    RunResult {
        duration_ns: nanos(ran.duration),
        queues,
        cpus: ran.cpus.clone(),
        intervals: ran.intervals.clone(),
        link_events: Some(ran.links.events.clone()),
        link_flaps: Some(ran.links.flaps),
        link_down_ns: Some(nanos(ran.links.down)),
        cpu_stages: ran.stages.clone(),
        xdp_faults: ran.faults.clone(),
        until_ci: ran.until_ci.clone(),
        ..RunResult::new(operation)
    }
}

/// Takes what the sockets still hold after a run, and tells how many packets the XDP program had given them before.
///
/// Packets may still flow: the program cannot be told to stop, so this waits until as many as were counted have come out
/// or are counted as lost, for at most [`SETTLE`].
pub(crate) fn settle(port: &mut Port) -> Result<u64> {
    napi::warn(port);
    let redirected = port.program_counters()?.iter().map(|queue| queue.redirected).sum();
    let end = Instant::now() + SETTLE;
    loop {
        let is_late = Instant::now() >= end;
        let mut came = false;
        for queue in port.queues_mut() {
            // A link that went down or a queue that failed has been told by the run.
            came |= queue.recv(Wait::Spin).is_ok_and(|burst| !burst.is_empty());
        }
        let stats = port.stats()?;
        let out = stats.own.rx_packets + stats.kernel.rx_dropped + stats.kernel.rx_ring_full;
        let is_out = out >= redirected;
        // Time alone ends it only after a look that found nothing.
        if is_late && (is_out || !came) || is_out && !came {
            return Ok(redirected);
        }
        std::thread::sleep(Duration::from_micros(1));
    }
}

/// All counters of a port's queues, with what the XDP program did, also on queues without a socket
/// for which packets came.
pub(crate) fn counters(port: &Port) -> Result<Vec<QueueCounters>> {
    let stats: Vec<Stats> = port.queues().iter().map(Queue::stats).collect::<Result<_, _>>()?;
    // Read after the sockets' counters: whatever came out of them has been counted here.
    let verdicts = port.program_counters()?;
    let interface = port.interface().name();
    let mut all: Vec<QueueCounters> = (port.queues().iter().zip(stats))
        .map(|(queue, stats)| {
            let id = queue.id();
            queue_counters(interface, id, &stats, verdicts.get(id as usize))
        })
        .collect();
    let is_bound = |id: u32| port.queues().iter().any(|queue| queue.id() == id);
    let others = (0..)
        .zip(&verdicts)
        .filter(|(id, of)| of.passed_unbound != 0 && !is_bound(*id));
    all.extend(others.map(|(queue, of)| QueueCounters {
        interface: interface.to_owned(),
        queue,
        received_packets: 0,
        sent_packets: 0,
        kicks: 0,
        waits: 0,
        rx_starved: 0,
        xdp_statistics: None,
        xdp_verdicts: Some(xdp_verdicts(of)),
    }));
    Ok(all)
}

/// The counters of one queue in the words of the schema; `verdicts` are those of our XDP program, if it is ours.
pub(crate) fn queue_counters(
    interface: &str,
    queue: u32,
    stats: &Stats,
    verdicts: Option<&ringside_xsk::QueueCounters>,
) -> QueueCounters {
    let (kernel, own) = (stats.kernel, stats.own);
    QueueCounters {
        interface: interface.to_owned(),
        queue,
        received_packets: own.rx_packets,
        sent_packets: own.tx_packets,
        kicks: own.tx_kicks,
        waits: own.polls + own.rx_kicks,
        rx_starved: own.rx_starved,
        xdp_statistics: Some(XdpStatistics {
            rx_dropped: kernel.rx_dropped,
            rx_invalid_descs: kernel.rx_invalid_descs,
            tx_invalid_descs: kernel.tx_invalid_descs,
            rx_ring_full: kernel.rx_ring_full,
            rx_fill_ring_empty_descs: kernel.rx_fill_ring_empty,
            tx_ring_empty_descs: kernel.tx_ring_empty,
        }),
        xdp_verdicts: verdicts.map(xdp_verdicts),
    }
}

fn xdp_verdicts(program: &ringside_xsk::QueueCounters) -> XdpVerdicts {
    XdpVerdicts {
        redirected_packets: program.redirected,
        passed_filter_packets: program.passed_filter,
        passed_neighbour_packets: program.passed_neighbour,
        passed_unbound_packets: program.passed_unbound,
        passed_malformed_packets: program.passed_malformed,
    }
}

/// Takes back the frames that the kernel is done sending. A worker whose run ended early has not.
pub(crate) fn take_back(port: &mut Port) {
    for queue in port.queues_mut() {
        // On a link that is gone that is an error, and they are counted all the same.
        _ = queue.drain(Duration::ZERO);
    }
}

/// Frames that were given to the kernel to send and did not come back, over all queues.
pub(crate) fn in_flight(port: &Port) -> u64 {
    port.queues().iter().map(|queue| u64::from(queue.in_flight())).sum()
}

/// The link's counters, to check ours against.
pub(crate) fn link(port: &Port) -> Result<LinkState> {
    port.interface()
        .state()
        .with_context(|| format!("reading the counters of {}", port.interface()))
}

/// As [`link`] after the run; the last that is known if the interface is gone.
pub(crate) fn link_after(port: &Port, before: &LinkState) -> LinkState {
    port.interface().state().unwrap_or_else(|_| before.clone())
}
