use super::super::{Id, Place, Point, Stamp};
use super::*;

fn packet(sequence: u64, from_ns: u64, to_ns: u64) -> Packet {
    let stamp = |point, ns, cpu| Stamp {
        ns,
        point,
        place: Place {
            cpu,
            ..Place::default()
        },
    };
    Packet {
        id: Id { session: 1, sequence },
        stamps: vec![stamp(Point::Call, from_ns, 0), stamp(Point::Application, to_ns, 1)],
        disorder_ns: 0,
        measured_ns: None,
    }
}

fn disturber(name: &str, cpu: u32, from_ns: u64, to_ns: u64) -> Disturber {
    Disturber {
        kind: DisturberKind::Task,
        name: name.into(),
        id: 70 + cpu,
        cpu,
        from_ns,
        to_ns,
    }
}

#[test]
fn what_went_on_in_a_time_is_found_by_cpu() {
    let mut timeline = Timeline::new();
    timeline.add(disturber("before", 0, 0, 100));
    timeline.add(disturber("inner", 0, 120, 130));
    timeline.add(disturber("around", 0, 90, 300));
    timeline.add(disturber("elsewhere", 2, 90, 300));
    timeline.add(disturber("after", 1, 210, 220));
    let names = |cpus: &[u32]| -> Vec<String> {
        let found = timeline.during(cpus, 100, 210);
        found.into_iter().map(|disturber| disturber.name.clone()).collect()
    };
    assert_eq!(names(&[0, 1]), ["around", "inner"]);
    assert_eq!(names(&[2]), ["elsewhere"]);
    assert_eq!(names(&[3]), [""; 0]);
    timeline.forget(250);
    let left = timeline.during(&[0, 1, 2], 0, 1_000);
    assert_eq!(left.len(), 2);
}

/// Of 4000 packets four are slow; a task had a CPU during these, and another one during all.
#[test]
fn what_slow_packets_have_and_others_have_not_is_named() {
    let (mut timeline, mut slowest) = (Timeline::new(), Slowest::new());
    for sequence in 0..4_000 {
        let from = sequence * 1_000_000;
        let is_slow = sequence % 1_000 == 500;
        let to = from + if is_slow { 500_000 } else { 10_000 };
        timeline.add(disturber("own", 0, from, from + 1_000));
        if is_slow {
            timeline.add(Disturber {
                id: 4242,
                ..disturber("hog", 1, from + 5_000, to - 3_000)
            });
        }
        timeline.add(Disturber {
            id: 9,
            ..disturber("usual", 1, to - 2_000, to + 500)
        });
        slowest.record(&packet(sequence, from, to), &timeline, &[70]);
        timeline.forget(from);
    }
    let slow: Vec<u64> = slowest.packets().iter().map(|slow| slow.packet.id.sequence).collect();
    assert_eq!(slow.len(), 4);
    assert!(slow.iter().all(|sequence| sequence % 1_000 == 500), "{slow:?}");
    assert_eq!(slowest.usual_packets(), 250);
    let culprits = slowest.culprits();
    // The task that had its CPU during all of them is none, and neither is the sender itself.
    let [hog] = &culprits[..] else { panic!("{culprits:?}") };
    assert_eq!((hog.name.as_str(), hog.kind), ("hog", DisturberKind::Task));
    assert_eq!((hog.slow_percent, hog.slow_mean_ns), (100.0, 492_000.0));
    assert!(hog.usual_percent < 1.0 && hog.more_ns() > 480_000.0, "{hog:?}");
}

#[test]
fn the_slowest_come_first_and_there_is_one_at_least() {
    let (timeline, mut slowest) = (Timeline::new(), Slowest::new());
    assert!(slowest.packets().is_empty() && slowest.culprits().is_empty());
    slowest.record(&packet(1, 0, 10), &timeline, &[]);
    assert_eq!(slowest.packets().len(), 1);
    for sequence in 2..=2_000 {
        slowest.record(&packet(sequence, 0, 10 + sequence * 7 % 1_999), &timeline, &[]);
    }
    let slow = slowest.packets();
    assert_eq!(slow.len(), 2);
    assert_eq!(slow[0].packet.whole_ns(), 10 + 1_998);
    assert_eq!(slow[1].packet.whole_ns(), 10 + 1_997);
    // What turns out to be in no figure is none of them.
    slowest.only(1_000, |packet| packet.whole_ns() < 10 + 1_990);
    let slow = slowest.packets();
    assert_eq!((slow.len(), slow[0].packet.whole_ns()), (1, 10 + 1_989));
}

/// Whatever had the CPUs: it is named by its kind and name, and times of one kind are no other's.
#[test]
fn each_kind_of_culprit_is_named() {
    use DisturberKind::{Interrupt, SoftInterrupt, Steal, Task, Vector};
    let all = [
        (Interrupt, "25 virtio0-input.0"),
        (Vector, "local timer"),
        (SoftInterrupt, "NET_RX"),
        (Steal, "by the hypervisor"),
    ];
    for (kind, name) in all {
        let (mut timeline, mut slowest) = (Timeline::new(), Slowest::new());
        for sequence in 0..2_000 {
            let from = sequence * 1_000_000;
            let is_slow = sequence % 1_000 == 700;
            let to = from + if is_slow { 400_000 } else { 20_000 };
            // Of all packets a little, of slow ones much.
            timeline.add(Disturber {
                kind,
                ..disturber(name, 1, to - if is_slow { 300_000 } else { 1_000 }, to)
            });
            // A task of the same name that has its CPU always is another thing, and none.
            timeline.add(disturber(name, 0, from, from + 5_000));
            slowest.record(&packet(sequence, from, to), &timeline, &[]);
            timeline.forget(from);
        }
        let culprits = slowest.culprits();
        let [found] = &culprits[..] else {
            panic!("{kind:?}: {culprits:?}")
        };
        assert_eq!((found.kind, found.name.as_str()), (kind, name));
        assert_ne!(found.kind, Task);
        let times = (found.slow_mean_ns, found.usual_mean_ns);
        assert!(times.0 == 300_000.0 && times.1 < 20_000.0, "{found:?}");
    }
}

/// A CPU that sleeps while a packet is on its way elsewhere is in nobody's way: it is when the packet's reader is to run there.
#[test]
fn of_an_idle_state_only_the_way_out_of_it_counts() {
    let run = |exit_ns: fn(bool) -> u64, is_other: bool| {
        let (mut timeline, mut slowest) = (Timeline::new(), Slowest::new());
        for sequence in 0..2_000 {
            let from = sequence * 1_000_000;
            let is_slow = sequence % 1_000 == 700;
            // On its way for long, and then its reader is woken up.
            let woken = from + if is_slow { 400_000 } else { 20_000 };
            let runs = woken + exit_ns(is_slow) + 1_000;
            timeline.add(Disturber {
                kind: DisturberKind::Idle,
                ..disturber("C6", if is_other { 0 } else { 1 }, from, runs - 1_000)
            });
            let mut packet = packet(sequence, from, runs + 5_000);
            let reader = [(Point::Waking, woken, 0), (Point::Running, runs, 1)];
            for (at, (point, ns, cpu)) in (1..).zip(reader) {
                let place = Place {
                    cpu,
                    ..Place::default()
                };
                packet.stamps.insert(at, Stamp { ns, point, place });
            }
            slowest.record(&packet, &timeline, &[]);
            timeline.forget(from);
        }
        slowest.culprits()
    };
    assert_eq!(
        run(|_| 3_000, false),
        [],
        "as long as ever, although the packet took longer"
    );
    let culprits = run(|is_slow| if is_slow { 130_000 } else { 2_000 }, false);
    let [found] = &culprits[..] else { panic!("{culprits:?}") };
    assert_eq!((found.kind_name(), found.name.as_str()), ("exit from idle state", "C6"));
    assert_eq!((found.slow_mean_ns, found.usual_mean_ns < 3_500.0), (130_000.0, true));
    assert_eq!(
        run(|is_slow| if is_slow { 130_000 } else { 2_000 }, true),
        [],
        "another CPU"
    );
}

/// Two CPUs of a virtual machine: readings as /proc/stat had them every 5 ms on one whose host had other things to do.
#[test]
fn what_a_hypervisor_took_is_told_by_its_ticks() {
    const MS: u64 = 1_000_000;
    let mut stolen = Stolen::new(10 * MS);
    let mut timeline = Timeline::new();
    let readings: [(u64, [u64; 2]); 6] = [
        (0, [209_448, 116_801]),
        (5, [209_448, 116_801]),
        (10, [209_449, 116_801]),
        (42, [209_449, 116_804]),
        (47, [209_449, 116_804]),
        // Offline and back.
        (52, [209_449, 2]),
    ];
    for (ms, cpus) in readings {
        for taken in stolen.read(ms * MS, (0..).zip(cpus)) {
            timeline.add(taken);
        }
        // What ended before is told before, too.
        timeline.add(disturber("work", 0, ms * MS, ms * MS + MS));
    }
    let all = timeline.during(&[0, 1], 0, 100 * MS);
    let steal = all.iter().filter(|one| one.kind == DisturberKind::Steal);
    let steal: Vec<(u32, u64, u64)> = steal.map(|one| (one.cpu, one.from_ns / MS, one.to_ns / MS)).collect();
    assert_eq!(steal, [(0, 0, 10), (1, 12, 42)]);
    // A packet that was on its way in the middle has its part of it.
    let mut slowest = Slowest::new();
    for sequence in 0..32 {
        let from = if sequence == 20 { 12 * MS } else { 43 * MS };
        let to = if sequence == 20 { 40 * MS } else { 44 * MS };
        slowest.record(&packet(sequence, from, to), &timeline, &[]);
    }
    let culprits = slowest.culprits();
    let [hypervisor] = &culprits[..] else {
        panic!("{culprits:?}")
    };
    assert_eq!(hypervisor.kind.name(), "steal");
    assert_eq!((hypervisor.slow_mean_ns, hypervisor.slow_percent), (28e6, 100.0));
    timeline.forget(50 * MS);
    assert!(timeline.during(&[1], 0, 100 * MS).is_empty());
}
