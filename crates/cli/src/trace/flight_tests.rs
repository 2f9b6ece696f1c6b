use ringside_measure::trace::{DisturberKind, Id, Place, Point, Stamp};

use super::*;

const MS: u64 = 1_000_000;

/// A packet every 10 ms, on CPU 1.
fn packet(sequence: u64, takes_ns: u64) -> Packet {
    let from = 100 * MS + sequence * 10 * MS;
    let stamp = |ns, point| Stamp {
        ns,
        point,
        place: Place {
            cpu: 1,
            ..Place::default()
        },
    };
    Packet {
        id: Id { session: 9, sequence },
        stamps: vec![
            stamp(from, Point::Call),
            stamp(from + 10, Point::Stack),
            stamp(from + takes_ns, Point::Application),
        ],
        disorder_ns: 0,
        measured_ns: None,
    }
}

fn had(name: &str, cpu: u32, from_ns: u64, to_ns: u64) -> Disturber {
    Disturber {
        kind: DisturberKind::Task,
        name: name.to_owned(),
        id: 3,
        cpu,
        from_ns,
        to_ns,
    }
}

#[test]
fn the_first_packet_beyond_the_bound_is_recorded_and_no_other() {
    let at = 100 * MS + 40 * 10 * MS;
    let mut timeline = Timeline::new();
    for disturber in [
        had("long before", 1, at - 3 * MS, at - 2 * MS),
        had("elsewhere", 0, at, at + 8 * MS),
        had("before", 1, at - MS / 2, at - 1000),
        had("hog", 1, at + 1000, at + 8 * MS),
        had("behind", 1, at + 9 * MS, at + 10 * MS),
    ] {
        timeline.add(disturber);
    }
    let mut flight = Flight::at(Some(Duration::from_millis(5)));
    for sequence in 0..40 {
        // The last of them takes as long as the bound: that is not more.
        flight.look_at(
            &packet(sequence, if sequence == 39 { 5 * MS } else { 20_000 }),
            &timeline,
        );
        assert_eq!(flight.recorded, None, "{sequence}");
    }
    flight.look_at(&packet(40, 8 * MS + 5000), &timeline);
    flight.look_at(&packet(41, 20 * MS), &timeline);
    let record = flight.recorded.expect("a record");
    assert_eq!((record.session, record.sequence), (9, 40));
    assert_eq!((record.bound_ns, record.whole_ns), (5 * MS, 8 * MS + 5000));
    let points: Vec<(u64, Point)> = record.points.iter().map(|point| (point.at_ns, point.point)).collect();
    assert_eq!(
        points,
        [
            (0, Point::Call),
            (10, Point::Stack),
            (8 * MS + 5000, Point::Application)
        ]
    );
    let events: Vec<(&str, i64)> = record
        .events
        .iter()
        .map(|event| (event.name.as_str(), event.from_ns))
        .collect();
    assert_eq!(events, [("before", -500_000), ("hog", 1000)]);
}

#[test]
fn without_a_bound_nothing_is_recorded() {
    let mut flight = Flight::at(None);
    flight.look_at(&packet(0, 60_000 * MS), &Timeline::new());
    assert_eq!(flight.recorded, None);
}
