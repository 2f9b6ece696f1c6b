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
}
