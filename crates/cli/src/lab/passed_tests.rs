//! Turns together.

use super::*;

fn turn(packets: u64, waiting: Option<f64>) -> LabTap {
    LabTap {
        time_ns: 1_000,
        packets,
        bytes: packets * 100,
        dropped_packets: 1,
        dropped_at_least: false,
        waiting: waiting.map(|mean_packets| LabWaiting {
            packets,
            mean_packets,
            full_packets: 2,
            places: 1_000,
        }),
    }
}

#[test]
fn turns_add_up_and_the_mean_is_that_of_all_packets() {
    assert_eq!(together(std::iter::empty()), None);
    let all = together([turn(30, Some(8.0)), turn(10, Some(0.0))].into_iter()).expect("two turns");
    assert_eq!(
        (all.time_ns, all.packets, all.bytes, all.dropped_packets),
        (2_000, 40, 4_000, 2)
    );
    let waiting = all.waiting.expect("seen");
    assert!((waiting.mean_packets - 6.0).abs() < 1e-9, "{waiting:?}");
    assert_eq!((waiting.packets, waiting.full_packets, waiting.places), (40, 4, 1_000));
    assert!(!all.dropped_at_least);
    let unseen = LabTap {
        dropped_at_least: true,
        ..turn(1, None)
    };
    assert!(
        together([turn(1, None), unseen].into_iter())
            .expect("two turns")
            .dropped_at_least
    );
    // To which no packet came: nothing was seen there.
    let half = together([turn(0, None), turn(10, Some(3.0))].into_iter()).expect("two turns");
    assert_eq!(half.waiting.expect("seen").packets, 10);
}
