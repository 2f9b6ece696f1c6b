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
        received: Some(8),
        ..Ledger::default()
    };
    assert_eq!(ledger.difference(), -3);
    assert!(!ledger.reconciles());
}

#[test]
fn one_cause_is_one_line() {
    let mut ledger = Ledger::default();
    ledger.lose(LossCause::RxRingFull, 1);
    ledger.lose(LossCause::RxDropped, 2);
    ledger.lose(LossCause::RxRingFull, 3);
    assert_eq!(ledger.losses.len(), 2);
    assert_eq!(ledger.losses[0].count, 4);
    assert_eq!(ledger.lost(), 6);
}

#[test]
fn the_largest_counts() {
    let ledger = Ledger {
        sent: 0,
        received: Some(u64::MAX),
        losses: vec![Loss {
            id: "x".into(),
            text: "x".into(),
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

#[test]
fn identifiers_of_causes_are_unique_words() {
    let mut ids: Vec<_> = LossCause::ALL.iter().map(|cause| cause.id()).collect();
    let is_word = |id: &&str| id.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    assert!(ids.iter().all(is_word));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), LossCause::ALL.len());
}

#[test]
fn paths_add_up_to_one() {
    let mut both = Ledger::default();
    for (received, lost) in [(7, 3), (5, 1)] {
        let mut one = Ledger {
            generated: 12,
            sent: received + lost,
            received: Some(received),
            ..Ledger::default()
        };
        one.lose(LossCause::RxRingFull, lost);
        both.merge(one);
    }
    assert_eq!((both.generated, both.sent, both.delivered()), (24, 16, 12));
    assert_eq!((both.transmitted, both.losses.len()), (None, 1));
    assert_eq!(both.lost_by(LossCause::RxRingFull), 4);
    assert!(both.reconciles());
}

#[test]
fn docs_list_each_cause() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tool.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for cause in LossCause::ALL {
        let row = format!("| `{}` | ", cause.id());
        assert!(docs.contains(&row), "{row}");
    }
}
