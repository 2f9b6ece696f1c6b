use super::*;

/// Point, kind, time, and what else a row has.
fn row(point: u64, kind: u64, ns: u64, sequence: u64, extra: [u64; 2]) -> [u64; 10] {
    [ns, sequence, extra[0], extra[1], 9, 4_026_531_840, 2, 1, point, kind]
}

#[test]
fn a_request_and_its_answer_are_two_packets() {
    let inside = Inside {
        events: vec![
            // Into the stack, out of the socket, and the answer to the driver.
            row(9, 1, 1_000, 5, [900, 950]),
            row(11, 1, 1_100, 5, [77, 0]),
            row(14, 0, 1_300, 0, [77, 0]),
            row(2, 2, 1_500, 5, [0, 0]),
            row(3, 2, 1_600, 5, [0, 0]),
            // No row that anybody wrote.
            [u64::MAX; 10],
        ],
        ..Inside::default()
    };
    let seen = packets(&inside);
    assert_eq!(seen.len(), 2);
    let id = Id {
        session: 9,
        sequence: 5,
    };
    let times = |packet: &Packet| packet.stamps.iter().map(|stamp| stamp.ns).collect::<Vec<_>>();
    assert_eq!(times(&seen[&id]), [900, 950, 1_000, 1_100, 1_300]);
    assert_eq!(times(&seen[&answer_of(id)]), [1_500, 1_600]);
    assert_eq!(answer_of(answer_of(id)), id);
}

#[test]
fn rows_are_read_as_they_were_written() {
    let written = row(9, 1, 1_000, 5, [900, 950]);
    assert_eq!(Seen::of_row(&written).map(|seen| seen.row()), Some(written));
}

/// Of 4000 packets four are slow: a task had the guest's CPU 1 during these. What had the host's CPU of that number was elsewhere.
#[test]
fn what_had_the_guests_cpus_during_slow_packets_is_named() {
    use ringside_measure::trace::{Place, Point, Stamp};
    const AHEAD: u64 = 7_000_000_000;
    let (mut bounds, mut joined, mut inside) = (Bounds::new(), Vec::new(), Inside::default());
    for sequence in 0..4_000_u64 {
        let from = sequence * 1_000_000;
        let is_slow = sequence % 1_000 == 500;
        let to = from + if is_slow { 500_000 } else { 20_000 };
        bounds.there(from, from + AHEAD + 5);
        bounds.back(from + AHEAD + 5, from + 10);
        let stamp = |ns, point, is_guest| Stamp {
            ns,
            point,
            place: Place {
                cpu: 1,
                is_guest,
                ..Place::default()
            },
        };
        joined.push(Packet {
            id: Id { session: 9, sequence },
            stamps: vec![
                stamp(from, Point::Intended, false),
                stamp(from + 5_000, Point::Stack, true),
                stamp(to, Point::Application, false),
            ],
            disorder_ns: 0,
            measured_ns: None,
        });
        let mut had = |name: &str, id, cpu, from: u64, to: u64| {
            let task = DisturberKind::Task;
            inside
                .disturbers
                .push((task, name.to_owned(), id, cpu, from + AHEAD, to + AHEAD));
        };
        if is_slow {
            had("hog", 5, 1, from + 10_000, to - 10_000);
            had("elsewhere", 6, 0, from, to);
            had("reader", 77, 1, from, to);
        }
    }
    // The reader was woken for a packet.
    inside.events.push(row(12, 0, AHEAD, 0, [77, 0]));
    let mapping = bounds.fit().expect("bounds of both kinds");
    let found = culprits(&joined, &inside, &mapping, Far::Guest);
    let [hog] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((hog.name.as_str(), hog.kind), ("hog in the guest", DisturberKind::Task));
    assert!((hog.slow_mean_ns - 480_000.0).abs() < 1_000.0, "{hog:?}");
}
