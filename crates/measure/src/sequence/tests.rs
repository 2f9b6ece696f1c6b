use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

#[test]
fn nothing_sent_is_no_ratio() {
    let tracker = Tracker::new(1);
    assert_eq!(tracker.window(), 64);
    assert_eq!(tracker.counts().loss_ratio(), None);
    assert_eq!(tracker.counts().reordered_ratio(), None);
}

#[test]
fn late_is_neither_received_nor_duplicate() {
    let mut tracker = Tracker::new(64);
    for sequence in 0..=64 {
        tracker.on_sent(sequence);
    }
    assert_eq!(tracker.on_received(0), Arrival::Late);
    assert_eq!(tracker.on_received(1), Arrival::InOrder);
    let counts = tracker.counts();
    assert_eq!((counts.late, counts.received, counts.lost), (1, 1, 64));
}

#[test]
fn numbers_have_to_rise() {
    let mut tracker = Tracker::new(64);
    assert!(tracker.on_sent(5));
    assert!(!tracker.on_sent(5));
    assert!(!tracker.on_sent(4));
    assert_eq!(tracker.counts().sent, 1);
    // 4 is in the window and was not sent.
    assert_eq!(tracker.on_received(4), Arrival::Unexpected);
}

#[test]
fn the_last_numbers_there_are() {
    let mut tracker = Tracker::new(64);
    assert!(tracker.on_sent(0));
    assert!(tracker.on_sent(u64::MAX - 1));
    assert!(tracker.on_sent(u64::MAX));
    assert_eq!(tracker.on_received(u64::MAX), Arrival::InOrder);
    assert_eq!(tracker.on_received(u64::MAX - 1), Arrival::Reordered { distance: 1 });
    assert_eq!(tracker.on_received(0), Arrival::Late);
    assert_eq!(tracker.counts().longest_reordering, 1);
}

#[test]
fn those_that_come_late_are_reordered_not_those_that_come_early() {
    // By RFC 4737's NextExp rule 4, 5 and 6 are out of order here; 7 to 10 only leave a gap.
    let mut tracker = Tracker::new(64);
    for sequence in 1..=11 {
        tracker.on_sent(sequence);
    }
    for sequence in [1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11] {
        tracker.on_received(sequence);
    }
    let counts = tracker.counts();
    assert_eq!((counts.reordered, counts.longest_reordering), (3, 6));
    assert_eq!((counts.received, counts.lost), (11, 0));
}

/// The definitions with sets that forget nothing.
#[derive(Default)]
struct Model {
    sent: HashSet<u64>,
    received: HashSet<u64>,
    counts: Counts,
}

impl Model {
    fn receive(&mut self, sequence: u64, window: u64) {
        let highest_sent = self.sent.iter().max().copied();
        if highest_sent.is_some_and(|highest| highest >= sequence && highest - sequence >= window) {
            self.counts.late += 1;
        } else if !self.sent.contains(&sequence) {
            self.counts.unexpected += 1;
        } else if self.received.contains(&sequence) {
            self.counts.duplicated += 1;
        } else {
            let highest = self.received.iter().max().copied();
            if let Some(highest) = highest.filter(|highest| sequence < *highest) {
                self.counts.reordered += 1;
                let longest = &mut self.counts.longest_reordering;
                *longest = (*longest).max(highest - sequence);
            }
            self.received.insert(sequence);
        }
    }

    fn counts(&self) -> Counts {
        let (sent, received) = (self.sent.len() as u64, self.received.len() as u64);
        Counts {
            sent,
            received,
            lost: sent - received,
            ..self.counts
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send {
        gap: u64,
    },
    /// A number relative to the highest sent: below for packets under way, above for strangers.
    Receive {
        behind: i64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => Just(Step::Send { gap: 0 }),
        1 => (0u64..200).prop_map(|gap| Step::Send { gap }),
        10 => (-2i64..20).prop_map(|behind| Step::Receive { behind }),
        2 => (0i64..150).prop_map(|behind| Step::Receive { behind }),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn counts_are_those_of_the_model(steps in steps(), start in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from)]) {
        let (mut tracker, mut model) = (Tracker::new(64), Model::default());
        let mut next = start;
        for step in steps {
            match step {
                Step::Send { gap } => {
                    next += gap;
                    prop_assert!(tracker.on_sent(next));
                    model.sent.insert(next);
                    next += 1;
                }
                Step::Receive { behind } => {
                    let sequence = next.saturating_add_signed(-behind);
                    tracker.on_received(sequence);
                    model.receive(sequence, 64);
                }
            }
            prop_assert_eq!(tracker.counts(), model.counts());
        }
    }

    #[test]
    fn any_order_with_loss_and_duplicates(
        order in Just((0u64..500).collect::<Vec<_>>()).prop_shuffle(),
        lost in proptest::collection::hash_set(0u64..500, 0..50),
        twice in proptest::collection::hash_set(0u64..500, 0..50),
    ) {
        let (mut tracker, mut model) = (Tracker::new(512), Model::default());
        for sequence in 0..500 {
            tracker.on_sent(sequence);
            model.sent.insert(sequence);
        }
        for sequence in order.into_iter().filter(|sequence| !lost.contains(sequence)) {
            for _ in 0..=u8::from(twice.contains(&sequence)) {
                tracker.on_received(sequence);
                model.receive(sequence, 512);
            }
        }
        let counts = tracker.counts();
        prop_assert_eq!(counts, model.counts());
        prop_assert_eq!(counts.lost, lost.len() as u64);
        prop_assert_eq!(counts.duplicated, twice.difference(&lost).count() as u64);
    }
}

#[test]
fn ratios_are_of_what_was_sent_and_received() {
    let counts = Counts {
        sent: 10,
        received: 8,
        lost: 2,
        reordered: 2,
        ..Counts::default()
    };
    assert_eq!(counts.loss_ratio(), Some(0.2));
    assert_eq!(counts.reordered_ratio(), Some(0.25));
}

#[test]
fn counts_of_several_sessions_add_up() {
    let counts = |by: u64| Counts {
        sent: 10 * by,
        received: 8 * by,
        lost: 2 * by,
        duplicated: 3 * by,
        reordered: 4 * by,
        longest_reordering: 5 * by,
        late: 6 * by,
        unexpected: 7 * by,
    };
    let all = Counts {
        longest_reordering: 10,
        ..counts(3)
    };
    assert_eq!([counts(2), counts(1)].into_iter().sum::<Counts>(), all);
}

#[test]
fn packets_of_another_session_are_unexpected() {
    let mut tracker = Tracker::new(64);
    tracker.on_foreign();
    tracker.on_foreign();
    let counts = Counts {
        unexpected: 2,
        ..Counts::default()
    };
    assert_eq!(tracker.counts(), counts);
}
