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
            row(8, 1, 1_000, 5, [900, 950]),
            row(10, 1, 1_100, 5, [77, 0]),
            row(13, 0, 1_300, 0, [77, 0]),
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
    let written = row(8, 1, 1_000, 5, [900, 950]);
    assert_eq!(Seen::of_row(&written).map(|seen| seen.row()), Some(written));
}
