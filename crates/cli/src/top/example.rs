//! Two looks, a second apart, of a machine with a receiver and a prober.

use std::time::Duration;

use ringside_measure::latency::Latency;
use ringside_measure::live::{Frames, LiveQueue, LiveTimes, Rings, SCHEMA, Snapshot};
use ringside_measure::schema::{LatencyKind, Mode, QueueCounters, XdpStatistics};
use ringside_nic::host::{CpuTime, CpuTimes, Interruptions};
use ringside_nic::{LinkStats, QueueKind};

use super::observation::{InterfaceNow, Observation, QueueNow};
use crate::caps::Holder;

/// The first look, and the one after it.
pub(super) fn looks() -> [Observation; 2] {
    [0, 1].map(look)
}

fn look(nth: u64) -> Observation {
    Observation {
        at: Duration::from_millis(5_000 + nth * 1_000),
        processes: vec![receiver(nth), prober(nth)],
        elsewhere: 1,
        interfaces: vec![interface(nth)],
        sockets: vec![(
            Holder {
                pid: 300,
                command: "xdpsock".into(),
            },
            2,
        )],
        cpus: Some(cpus(nth)),
        hard: Some(counts(&[("41", [10 + nth * 500, 7]), ("LOC", [9 + nth * 250, 9])])),
        soft: Some(counts(&[
            ("NET_RX", [nth * 20_000, 3]),
            ("NET_TX", [u64::from(u32::MAX), 4]),
        ])),
        notes: vec!["something could not be seen".into()],
    }
}

fn snapshot(pid: u32, command: &str, nth: u64) -> Snapshot {
    Snapshot {
        schema: SCHEMA.into(),
        tool_version: "0.1.0".into(),
        pid,
        command: command.into(),
        command_line: vec!["ringside".into(), command.into(), "eth0".into()],
        network_namespace: 1,
        started_unix_s: 1_700_000_000,
        uptime_ns: 60_000_000_000 + nth * 2_000_000_000,
        queues: Vec::new(),
        latency: None,
    }
}

/// Twice as many a second as the clocks say, for its own clock counts two.
pub(super) fn receiver(nth: u64) -> Snapshot {
    let queue = |queue: u32, packets: u64| LiveQueue {
        counters: QueueCounters {
            interface: "eth0".into(),
            queue,
            received_packets: 1_000 + nth * packets,
            sent_packets: 0,
            kicks: 0,
            waits: 40 + nth * 10,
            rx_starved: 0,
            xdp_statistics: Some(XdpStatistics {
                rx_dropped: 5 + nth * 20,
                rx_fill_ring_empty_descs: 5 + nth * 20,
                ..XdpStatistics::default()
            }),
            xdp_verdicts: None,
        },
        mode: Mode::NativeCopy,
        received_bytes: nth * packets * 64,
        sent_bytes: 0,
        completed_frames: 0,
        wakeups: nth * 9,
        empty_looks: 0,
        busy_polls: 0,
        frames: Some(Frames {
            free: 100,
            fill: 256,
            rx: 50,
            user: 6,
            tx: 90,
            completion: 10,
        }),
        rings: Rings::default(),
        age_ns: 0,
    };
    let mut snapshot = snapshot(4711, "rx", nth);
    snapshot.queues = vec![queue(0, 2_000_000), queue(1, 0)];
    snapshot.queues[1].frames = None;
    snapshot.queues[1].counters.xdp_statistics = Some(XdpStatistics::default());
    snapshot
}

fn prober(nth: u64) -> Snapshot {
    let mut times = Latency::new();
    (0..1_000).for_each(|_| times.record(50_000));
    (0..nth * 100).for_each(|i| times.record(10_000 + i));
    let mut snapshot = snapshot(4712, "ping", nth);
    snapshot.latency = Some(LiveTimes::of(LatencyKind::RoundTrip, &times));
    snapshot
}

fn interface(nth: u64) -> InterfaceNow {
    let mut stats = LinkStats::default();
    stats.rx_packets = 7 + nth * 1_000_000;
    stats.rx_bytes = nth * 64_000_000;
    stats.rx_missed_errors = 100 + nth * 50;
    InterfaceNow {
        name: "eth0".into(),
        index: 2,
        driver: Some("igc".into()),
        up: true,
        carrier: true,
        mtu_bytes: 1500,
        xdp: None,
        stats,
        queues: vec![
            QueueNow {
                kind: QueueKind::Rx,
                id: 0,
                napi: Some(257),
                xsk: Some(true),
                holder: None,
                counters: vec![("drops".into(), 3), ("packets".into(), nth * 1_000)],
            },
            QueueNow {
                kind: QueueKind::Tx,
                ..QueueNow::default()
            },
        ],
        irqs: vec![(41, "eth0-rx-0".into())],
        events: vec![("exception: XDP_ABORTED".into(), nth * 4)],
    }
}

fn cpus(nth: u64) -> CpuTimes {
    let mut time = CpuTime::default();
    time.user = nth * 60;
    time.softirq = nth * 25;
    time.idle = nth * 15;
    let mut times = CpuTimes::default();
    times.cpus = vec![(0, time), (1, CpuTime::default())];
    times
}

fn counts(kinds: &[(&str, [u64; 2])]) -> Interruptions {
    let mut counts = Interruptions::default();
    counts.cpus = vec![0, 1];
    let narrow = |count: u64| u32::try_from(count).expect("small");
    let kinds = kinds
        .iter()
        .map(|(kind, each)| ((*kind).to_owned(), each.map(narrow).into()));
    counts.kinds = kinds.collect();
    counts
}
