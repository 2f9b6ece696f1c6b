use super::*;

#[test]
fn nothing_reconciles_with_nothing() {
    let ledger = Ledger::default();
    assert!(ledger.reconciles());
    assert_eq!((ledger.lost(), ledger.not_sent()), (0, 0));
}

#[test]
fn more_received_than_sent_shows() {
    let ledger = Ledger {
        sent: 5,
        received: 8,
        ..Ledger::default()
    };
    assert_eq!(ledger.difference(), -3);
    assert!(!ledger.reconciles());
}

#[test]
fn one_name_is_one_line() {
    let mut ledger = Ledger::default();
    ledger.lose("a", 1);
    ledger.lose(String::from("b"), 2);
    ledger.lose("a", 3);
    assert_eq!(ledger.losses.len(), 2);
    assert_eq!(ledger.losses[0].count, 4);
    assert_eq!(ledger.lost(), 6);
}

#[test]
fn the_largest_counts() {
    let ledger = Ledger {
        sent: 0,
        received: u64::MAX,
        losses: vec![Loss {
            name: "x".into(),
            count: u64::MAX,
        }],
        ..Ledger::default()
    };
    assert_eq!(ledger.difference(), -2 * i128::from(u64::MAX));
}

#[test]
fn what_was_not_sent_is_known() {
    let ledger = |generated, sent| Ledger {
        generated,
        sent,
        ..Ledger::default()
    };
    assert_eq!(ledger(5, 3).not_sent(), 2);
    assert_eq!(ledger(3, 5).not_sent(), 0);
}
