//! The backlog of a CPU: who goes over it waits there, and others do not.

use super::*;
use ringside_measure::schema::FlightRecord;
use ringside_netlab::{Namespace, VethConfig};

/// Puts what comes to the only queue of an end on the backlog of CPU 1.
pub(super) fn steer_to_cpu_1(end: &End) {
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", end.interface.name());
    end.run(|| std::fs::write(&path, "2")).expect("RPS");
}

fn has(path: &TracedPath, point: Point) -> bool {
    stages(path).contains(&Stage::From(point))
}

/// A packet from its sending on: of those that were on their way when tracing began some points are missing.
fn one_packet(session: u32) -> FlightRecord {
    let one = || {
        let line = format!("trace --session {session} --stop-above 1us -t 20 --json");
        let stopped = result(&tool(&line).end().good());
        stopped.paths.into_iter().next()?.recorded
    };
    let is_whole = |record: &FlightRecord| record.points.iter().any(|of| of.point == Point::Transmit);
    (0..10).find_map(|_| one().filter(is_whole)).expect("a record")
}

/// A veth without NAPI gives everything to `netif_rx()`; one that has NAPI nothing, until RPS takes what its poll hands over.
#[test]
fn a_wait_on_a_backlog_is_a_stage_where_there_is_one() {
    if !is_root() || cpus() < 2 {
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
        let (traced, record) = while_probes_flow(session, &sender, every, take, || {
            (listen(session, 0.4), one_packet(session))
        });
        let path = only(&traced);
        assert!(path.traced_packets >= 20, "{path:#?}");
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
        let cpu = |point: Point| record.points.iter().find(|other| other.point == point).map(|of| of.cpu);
        let cpus = [cpu(Point::Transmit), cpu(Point::Backlog), cpu(Point::Stack)];
        let backlog = (session != 52).then_some(0);
        assert_eq!(cpus, [Some(0), backlog, Some(u32::from(is_steered))], "{record:#?}");
    }
}

/// Packets for the same port of other hosts come with those that a socket gets, and are sent on: it does not tell of them.
#[test]
fn what_is_sent_on_is_not_taken_for_what_a_socket_tells_of() {
    if !is_root() || cpus() < 2 {
        return;
    }
    let _alone = alone();
    let [near, middle, far] =
        ["n", "m", "f"].map(|end| Namespace::create(&format!("tracefwd-{end}")).expect("namespace"));
    let config = |subnet, names: [&str; 2]| VethConfig {
        subnet,
        ipv6: false,
        ..VethConfig::named(names[0], names[1])
    };
    // Polled every two milliseconds: what came meanwhile is handed over together.
    let left = VethConfig {
        tx_checksum: false,
        gro: true,
        napi_defer_hard_irqs: 100,
        gro_flush_timeout: Duration::from_millis(2),
        ..config(1, ["left", "in"])
    };
    let left = Lab::join(&near, &middle, left).expect("link");
    let right = Lab::join(&middle, &far, config(2, ["out", "right"])).expect("link");
    left.b
        .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
        .expect("forwarding");
    let route = left
        .a
        .ns
        .command("ip")
        .args(["route", "add", "10.77.2.0/24", "via", "10.77.1.2"])
        .status();
    assert!(route.expect("ip").success());
    let (sender, receiver) = (socket(&left.a, 0), socket(&left.b, 7000));
    sender.connect((left.b.ipv4, 7000)).expect("connected");
    let (others, _beyond) = (socket(&left.a, 0), socket(&right.b, 7000));
    others.connect((right.b.ipv4, 7000)).expect("connected");
    let end = AtomicBool::new(false);
    let traced = thread::scope(|scope| {
        let _flow = Flow(&end);
        scope.spawn(|| {
            pin(0);
            for sequence in 0.. {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                (0..6).for_each(|_| drop(others.send(&[0; 64])));
                _ = sender.send(&probe(54, sequence));
                thread::sleep(Duration::from_millis(4));
            }
        });
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                _ = receiver.recv(&mut [0; 128]);
            }
        });
        listen(54, 0.8)
    });
    let path = only(&traced);
    let told = path
        .stages
        .iter()
        .find(|stage| stage.stage == Stage::From(Point::Ready));
    let told = told.and_then(|stage| stage.times).map_or(0, |times| times.samples);
    assert!(
        path.traced_packets >= 50 && told * 10 >= path.traced_packets * 9,
        "{path:#?}"
    );
    assert_eq!(path.end, Some(Point::Copy), "{path:#?}");
}
