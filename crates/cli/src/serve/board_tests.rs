use ringside_measure::probe::{Clock, Kind};

use super::*;

const NUMBER: u32 = SESSION_STEP * 7;

fn from() -> SocketAddr {
    "192.0.2.1:29621".parse().unwrap()
}

fn probe(session: u32, sequence: u64) -> Probe {
    Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session,
        sequence,
        intended_ns: 1_000,
        sent_ns: 1_000,
    }
}

fn entered(work: Work, most_pps: Option<u64>) -> (Entry, View) {
    let board = Arc::new(Board::default());
    let entry = board
        .enter(Session::new(NUMBER, work, Some(from()), most_pps, 2), 8)
        .unwrap();
    let mut view = View::new(&board, 1);
    assert!(view.refresh());
    (entry, view)
}

#[test]
fn only_what_was_agreed_is_answered() {
    let (entry, mut view) = entered(Work::Echo, None);
    let take =
        |view: &mut View, session, from: &str, now| view.take(&probe(session, 0), from.parse().unwrap(), 68, now);
    let right = "192.0.2.1:29621";
    assert!(!take(&mut view, NUMBER, right, 10), "it has not begun");
    entry.session.go(100);
    assert!(take(&mut view, NUMBER, right, 10));
    assert!(!take(&mut view, NUMBER, "192.0.2.1:29622", 10), "another port");
    assert!(!take(&mut view, NUMBER, "192.0.2.2:29621", 10), "another host");
    assert!(!take(&mut view, SESSION_STEP, right, 10), "another session");
    assert!(!take(&mut view, NUMBER, right, 100), "its time is over");
    // Taken off the board it is unknown.
    drop(entry);
    assert!(!view.refresh());
    assert!(!take(&mut view, NUMBER, right, 10));
}

#[test]
fn what_came_is_counted_over_all_threads() {
    let (entry, mut one) = entered(Work::Echo, None);
    let mut other = View::new(&one.board, 0);
    other.refresh();
    entry.session.go(u64::MAX);
    for sequence in [0, 2, 1, 1] {
        assert!(one.take(&probe(NUMBER, sequence), from(), 68, 2_000 + sequence));
    }
    assert!(other.take(&probe(NUMBER, 9), from(), 100, 2_000));
    assert_eq!(
        entry.session.tally(NUMBER, 5).received_packets,
        0,
        "not written down yet"
    );
    one.publish();
    other.publish();
    let tally = entry.session.tally(NUMBER, 5);
    assert_eq!((tally.session, tally.at_ns), (NUMBER, 5));
    assert_eq!((tally.received_packets, tally.ip_bytes), (4, 4 * 68 + 100));
    assert_eq!((tally.duplicated_packets, tally.reordered_packets), (1, 1));
    assert_eq!((tally.answered_packets, tally.expected_packets), (5, 10));
    // By how much the difference of the clocks grew: read once.
    assert_eq!(tally.delay_variation_ns, 2);
    assert_eq!(entry.session.tally(NUMBER, 5).delay_variation_ns, 0);
}

#[test]
fn a_counting_session_answers_nothing() {
    let (entry, mut view) = entered(Work::Count, None);
    entry.session.go(u64::MAX);
    assert!(!view.take(&probe(NUMBER, 0), from(), 68, 1));
    view.publish();
    let tally = entry.session.tally(NUMBER, 1);
    assert_eq!((tally.received_packets, tally.answered_packets), (1, 0));
}

#[test]
fn each_trial_is_counted_by_itself() {
    let (entry, mut view) = entered(Work::Echo, None);
    entry.session.go(u64::MAX);
    assert!(view.take(&probe(NUMBER + 1, 5), from(), 68, 1));
    assert!(view.take(&probe(NUMBER + 2, 0), from(), 68, 1));
    assert!(
        view.take(&probe(NUMBER + 1, 6), from(), 68, 1),
        "late, and answered all the same"
    );
    view.publish();
    assert_eq!(entry.session.tally(NUMBER + 2, 1).received_packets, 1);
    assert_eq!(entry.session.tally(NUMBER + 1, 1).received_packets, 0);
    // The session as a whole has had them all; what came twice came once.
    assert!(view.take(&probe(NUMBER + 2, 0), from(), 68, 1));
    view.publish();
    let totals = entry.session.totals();
    assert_eq!((totals.received, totals.answered, totals.ip_bytes), (3, 4, 3 * 68));
    // Behind the last number comes the first again.
    assert!(view.take(&probe(NUMBER + SESSION_STEP / 2, 0), from(), 68, 1));
    assert!(view.take(&probe(NUMBER + SESSION_STEP - 1, 0), from(), 68, 1));
    assert!(view.take(&probe(NUMBER, 3), from(), 68, 1));
    view.publish();
    assert_eq!(entry.session.tally(NUMBER, 1).received_packets, 1);
}

#[test]
fn above_the_rate_nothing_is_taken() {
    let (entry, mut view) = entered(Work::Echo, Some(1_000));
    entry.session.go(u64::MAX);
    // A second of ten times as many, after a burst.
    let taken = (0..10_000_u64).filter(|&n| view.take(&probe(NUMBER, n), from(), 68, 1_000_000_000 + n * 100_000));
    let taken = taken.count();
    assert!((1_200..=1_300).contains(&taken), "{taken}");
    view.publish();
    let tally = entry.session.tally(NUMBER, 1);
    assert_eq!(tally.received_packets + tally.above_rate_packets, 10_000);
    let totals = entry.session.totals();
    assert_eq!(totals.received + totals.above_rate, 10_000);
}

#[test]
fn numbers_and_places_are_taken_once() {
    let board = Arc::new(Board::default());
    let session = |number| Session::new(number, Work::Echo, None, None, 1);
    let one = board.enter(session(NUMBER), 2).unwrap();
    assert!(
        board
            .enter(session(NUMBER), 2)
            .unwrap_err()
            .to_string()
            .contains("of that number")
    );
    let _two = board.enter(session(SESSION_STEP), 2).unwrap();
    assert!(
        board
            .enter(session(SESSION_STEP * 2), 2)
            .unwrap_err()
            .to_string()
            .contains("--max-sessions")
    );
    drop(one);
    board.enter(session(NUMBER), 2).unwrap();
}
