//! The backlog of a CPU: who goes over it waits there, and others do not.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use ringside_netlab::{Namespace, VethConfig};

/// Puts what comes to the only queue of an end on the backlog of CPU 1.
pub(super) fn steer_to_cpu_1(end: &End) {
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", end.interface.name());
    end.run(|| std::fs::write(&path, "2")).expect("RPS");
}

fn has(path: &TracedPath, point: Point) -> bool {
    stages(path).contains(&Stage::From(point))
}

/// The CPUs on which packets passed some points, of those that passed all of them but the optional one: as a guest's recorder writes it down.
fn cpus_of(session: u32) -> BTreeSet<[Option<u64>; 3]> {
    let file = std::env::temp_dir().join(format!("ringside-trace-{}-{session}.json", std::process::id()));
    let line = format!("trace --session {session} --events {} -t 0.4", file.display());
    tool(&line).end().good();
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    std::fs::remove_file(&file).expect("removed");
    let mut packets: BTreeMap<u64, [Option<u64>; 3]> = BTreeMap::new();
    for row in written["events"].as_array().expect("events") {
        let column = |at: usize| row[at].as_u64().expect("a number");
        let (sequence, cpu, point, kind) = (column(1), column(7), column(8), column(9));
        let points = [Point::Transmit, Point::Backlog, Point::Stack];
        if let Some(at) = points.iter().position(|other| *other as u64 == point)
            && kind == 1
        {
            packets.entry(sequence).or_default()[at] = Some(cpu);
        }
    }
    // Of those that were on their way when it began or ended only some points are seen.
    packets.retain(|_, [sent, _, taken]| sent.is_some() && taken.is_some());
    packets.into_values().collect()
}

/// A veth without NAPI gives everything to `netif_rx()`; one that has NAPI nothing, until RPS takes what its poll hands over.
#[test]
fn a_wait_on_a_backlog_is_a_stage_where_there_is_one() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    let every = Duration::from_millis(2);
    // What GRO could not merge does without NAPI, and that is what a sender with segmentation offload has; it needs checksum offload.
    let plain = lab("traceplain", 1);
    let polled = common::lab_with(VethConfig {
        tx_checksum: false,
        ipv6: false,
        ..VethConfig::tagged("tracepolled")
    });
    for (Lab { a, b, .. }, session, is_steered) in [(&plain, 51, false), (&polled, 52, false), (&polled, 53, true)] {
        let (sender, receiver) = (socket(a, 0), socket(b, 7000));
        sender.connect((b.ipv4, 7000)).expect("connected");
        if is_steered {
            steer_to_cpu_1(b);
        }
        let take = || drop(receiver.recv(&mut [0; 128]));
        measured(|| {
            let (traced, cpus) = while_probes_flow(session, &sender, every, take, || {
                (listen(session, 0.4), cpus_of(session))
            });
            let path = only(&traced)?;
            expect(path.traced_packets >= 20, format_args!("{path:#?}"))?;
            expect(!cpus.is_empty(), "nothing was recorded")?;
            assert_eq!(path.end, Some(Point::Copy), "{path:#?}");
            let has = |point| has(path, point);
            // The soft interrupt that takes it from a backlog is a part of the wait there.
            let found = [has(Point::SoftIrq), has(Point::Driver), has(Point::Backlog)];
            let expected = match session {
                51 => [false, false, true],
                52 => [true, true, false],
                _ => [true, false, true],
            };
            assert_eq!(found, expected, "interrupt, driver and backlog of {session}: {path:#?}");
            let backlog = (session != 52).then_some(0);
            let expected = [Some(0), backlog, Some(u64::from(is_steered))];
            assert_eq!(
                Vec::from_iter(cpus),
                [expected],
                "sent, put on a backlog and taken by the stack"
            );
            Ok(())
        });
    }
}

/// Packets for the same port of other hosts come with those that a socket gets, and are sent on: it does not tell of them.
#[test]
fn what_is_sent_on_is_not_taken_for_what_a_socket_tells_of() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    forwarded(54);
}

/// A link whose second end is polled every two milliseconds: what came meanwhile is handed over together.
pub(super) fn bursts(subnet: u8, names: [&str; 2]) -> VethConfig {
    VethConfig {
        subnet,
        ipv6: false,
        tx_checksum: false,
        gro: true,
        napi_defer_hard_irqs: 100,
        gro_flush_timeout: Duration::from_millis(2),
        ..VethConfig::named(names[0], names[1])
    }
}

pub(super) fn forwarded(session: u32) {
    let [near, middle, far] =
        ["n", "m", "f"].map(|end| Namespace::create(&format!("tracefwd-{end}")).expect("namespace"));
    let left = Lab::join(&near, &middle, bursts(1, ["left", "in"])).expect("link");
    let right = VethConfig {
        subnet: 2,
        ipv6: false,
        ..VethConfig::named("out", "right")
    };
    let right = Lab::join(&middle, &far, right).expect("link");
    left.b
        .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
        .expect("forwarding");
    let mut route = left.a.ns.command("ip");
    let route = route
        .args(["route", "add", "10.77.2.0/24", "via", "10.77.1.2"])
        .status();
    assert!(route.expect("ip").success());
    let (sender, receiver) = (socket(&left.a, 0), socket(&left.b, 7000));
    sender.connect((left.b.ipv4, 7000)).expect("connected");
    let (others, _beyond) = (socket(&left.a, 0), socket(&right.b, 7000));
    others.connect((right.b.ipv4, 7000)).expect("connected");
    all_are_told(&with_others(session, &sender, &others, &receiver));
}

/// Probes, each behind packets of others.
pub(super) fn with_others(session: u32, sender: &UdpSocket, others: &UdpSocket, receiver: &UdpSocket) -> TraceResult {
    let send = |sequence| {
        (0..6).for_each(|_| drop(others.send(&[0; 64])));
        _ = sender.send(&probe(session, sequence));
    };
    let take = || drop(receiver.recv(&mut [0; 128]));
    while_packets_flow(send, Duration::from_millis(4), take, || listen(session, 0.8))
}

/// The socket tells of nearly every probe.
pub(super) fn all_are_told(traced: &TraceResult) {
    let path = only(traced).unwrap();
    let told = path
        .stages
        .iter()
        .find(|stage| stage.stage == Stage::From(Point::Ready));
    let told = told.and_then(|stage| stage.times).map_or(0, |times| times.samples);
    assert!(
        path.traced_packets >= 20 && told * 10 >= path.traced_packets * 9,
        "{told}: {path:#?}"
    );
    assert_eq!(path.end, Some(Point::Copy), "{path:#?}");
}
