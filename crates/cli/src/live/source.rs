//! Snapshots, put together from what the threads of the queues, the XDP programs and the probes have counted.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use ringside_bpf::XskCounters;
use ringside_measure::latency::Tally;
use ringside_measure::live::{LiveQueue, LiveTimes, Rings, SCHEMA, Snapshot};
use ringside_measure::schema::{LatencyKind, Mode};
use ringside_xsk::Port;

use super::board::{Board, Told};
use crate::session::{nanos, queue_counters};
use crate::system;

/// All that a snapshot is made of.
#[derive(Debug)]
pub(super) struct Source {
    board: Arc<Board>,
    queues: Vec<Of>,
    /// Of each port its XDP program, if it is ours.
    programs: Vec<Option<XskCounters>>,
    tally: Tally,
    command: &'static str,
    command_line: Vec<String>,
    network_namespace: u64,
    started: Instant,
    started_unix_s: u64,
}

/// What is known of a queue, and what was told of it last.
#[derive(Debug)]
struct Of {
    port: usize,
    interface: String,
    queue: u32,
    mode: Mode,
    rings: Rings,
    told: Told,
    at: Instant,
}

impl Source {
    pub(super) fn new(command: &'static str, ports: &[&Port]) -> Result<Self> {
        let started = Instant::now();
        let mut queues = Vec::new();
        for (port, of) in ports.iter().enumerate() {
            for report in &of.report().queues {
                queues.push(Of {
                    port,
                    interface: report.interface.clone(),
                    queue: report.queue,
                    mode: system::mode(report.path),
                    rings: Rings {
                        fill_slots: report.fill_ring,
                        rx_slots: report.rx_ring,
                        tx_slots: report.tx_ring,
                        completion_slots: report.completion_ring,
                    },
                    told: Told::default(),
                    at: started,
                });
            }
        }
        let programs = ports.iter().map(|port| port.program_counter_reader());
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net");
        Ok(Self {
            board: Arc::new(Board::new(queues.iter().map(|of| (of.interface.clone(), of.queue)))),
            programs: programs.collect::<Result<_, _>>()?,
            queues,
            tally: Tally::new(),
            command,
            command_line: std::env::args().collect(),
            network_namespace: namespace.map_or(0, |stat| stat.st_ino),
            started,
            started_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        })
    }

    pub(super) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// What has to be looked at now and then, also when nobody asks: its counters wrap.
    pub(super) fn keep_up(&mut self) {
        if let Some(times) = self.board.times.get() {
            self.tally.look(times);
        }
    }

    /// Everything as it is now. Takes as long as a thread sleeps, a tenth of a second at the most.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let told = self.board.ask();
        let now = Instant::now();
        for (of, told) in self.queues.iter_mut().zip(told) {
            if let Some(told) = told {
                (of.told, of.at) = (told, now);
            }
        }
        let latency = self.board.times.get();
        let latency = latency.map(|times| LiveTimes::of(LatencyKind::RoundTrip, self.tally.look(times)));
        // Behind the counters of the sockets: whatever has come out of them, the programs have counted by now.
        let queues = self
            .queues
            .iter()
            .map(|of| live_queue(of, &self.programs, now))
            .collect();
        Snapshot {
            schema: SCHEMA.into(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            command: self.command.into(),
            command_line: self.command_line.clone(),
            network_namespace: self.network_namespace,
            started_unix_s: self.started_unix_s,
            uptime_ns: nanos(now - self.started),
            queues,
            latency,
        }
    }
}

fn live_queue(of: &Of, programs: &[Option<XskCounters>], now: Instant) -> LiveQueue {
    let program = programs.get(of.port).and_then(Option::as_ref);
    let verdicts = program.and_then(|program| program.of(of.queue).ok());
    let own = &of.told.stats.own;
    LiveQueue {
        counters: queue_counters(&of.interface, of.queue, &of.told.stats, verdicts.as_ref()),
        mode: of.mode,
        received_bytes: own.rx_bytes,
        sent_bytes: own.tx_bytes,
        completed_frames: own.tx_completed,
        wakeups: own.wakeups,
        empty_looks: own.empty_looks,
        busy_polls: own.busy_polls,
        frames: of.told.frames,
        rings: of.rings,
        age_ns: nanos(now - of.at),
    }
}
