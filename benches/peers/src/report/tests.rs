use ringside_measure::compare::Round;

use super::*;

fn series(name: &str, role: Role, values: [f64; 6]) -> Series {
    Series {
        name: name.to_owned(),
        role,
        rounds: values.map(|value| Round { value, steal: 0.0 }).to_vec(),
        tails: Vec::new(),
    }
}

#[test]
fn ours_is_compared_with_the_best_of_each_kind() {
    let all = vec![
        series("base", Role::Base, [1.0; 6]),
        series("base again", Role::Again, [9.0; 6]),
        series("peer", Role::Peer, [2.0; 6]),
        series("tuned", Role::Tuned, [2.5; 6]),
        series("ringside", Role::Ours, [3.0; 6]),
    ];
    let best_of = |operation| {
        let outcome = Outcome::new(operation, all.clone(), Vec::new()).unwrap();
        let best = outcome.ours_to_best.iter();
        best.map(|best| (best.peer.clone(), best.ratio.median))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        best_of(Operation::Rx),
        [("peer".to_owned(), 1.5), ("tuned".to_owned(), 1.2)]
    );
    // Of times the smallest is the best.
    assert_eq!(
        best_of(Operation::Ping),
        [("base".to_owned(), 3.0), ("tuned".to_owned(), 1.2)]
    );
}

#[test]
fn a_disturbed_round_is_left_out_and_counted() {
    let mut again = series("again", Role::Again, [1.0; 6]);
    again.rounds[2] = Round { value: 0.1, steal: 0.2 };
    let all = vec![series("base", Role::Base, [1.0; 6]), again];
    let mut report = Report::new(
        std::time::Duration::from_millis(300),
        std::time::Duration::from_millis(60),
    );
    report.add(Outcome::new(Operation::Tx, all, Vec::new()).unwrap());
    let table = report.table();
    assert!(table.contains("1.00 [1.00–1.00]"), "{table}");
    assert!(table.contains("5 (−1)"), "{table}");
}
