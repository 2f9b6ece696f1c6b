//! What was written, and what was seen of it; and whether that can be.
//!
//! Each key's versions are taken from one counter, so that a version says which write it was.

use std::collections::{BTreeMap, HashMap};

/// Number of a neighbour.
pub(crate) type Key = u32;

/// What became of a write, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was made: created, replaced.
    Made,
    /// Something newer was there, or the same.
    Older,
    /// It was refused, and nothing has changed.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// What happened, in the order in which one observer saw it.
#[derive(Debug, Default, Clone)]
pub(crate) struct History {
    /// Key, version, answer.
    pub(crate) writes: Vec<(Key, u64, Answer)>,
    /// What each gateway's watch told, in order.
    pub(crate) watched: HashMap<String, Vec<(Key, u64)>>,
    /// What each gateway holds in the end, and etcd.
    pub(crate) held: HashMap<&'static str, BTreeMap<Key, u64>>,
}

/// What must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// What was answered to be made is in no newer version there.
    Lost {
        at: &'static str,
        key: Key,
        answered: u64,
        held: Option<u64>,
    },
    /// A version that nobody wrote, or that was refused.
    Invented { at: String, key: Key, version: u64 },
    /// A watch told of an older version after a newer one.
    Backwards { at: String, key: Key, from: u64, to: u64 },
    /// Two do not hold the same.
    Differs { one: &'static str, other: &'static str },
    /// A write was called older than what is there, and nothing as new is.
    Denied { key: Key, version: u64, held: Option<u64> },
}

impl History {
    /// Everything that must not be.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut made: BTreeMap<Key, u64> = BTreeMap::new();
        for (key, version, answer) in &self.writes {
            if *answer == Answer::Made {
                let newest = made.entry(*key).or_default();
                *newest = (*newest).max(*version);
            }
        }
        let possible = |key: Key, version: u64| {
            let mut writes = self.writes.iter();
            writes.any(|(of, number, answer)| {
                *of == key && *number == version && matches!(answer, Answer::Made | Answer::Unknown | Answer::Older)
            })
        };
        for (at, held) in &self.held {
            for (key, answered) in &made {
                let held = held.get(key).copied();
                if held.is_none_or(|held| held < *answered) {
                    found.push(Violation::Lost {
                        at,
                        key: *key,
                        answered: *answered,
                        held,
                    });
                }
            }
            for (key, version) in held {
                if !possible(*key, *version) {
                    found.push(Violation::Invented {
                        at: at.to_string(),
                        key: *key,
                        version: *version,
                    });
                }
            }
        }
        for (at, watched) in &self.watched {
            let mut last: HashMap<Key, u64> = HashMap::new();
            for (key, version) in watched {
                if let Some(before) = last.insert(*key, *version)
                    && before > *version
                {
                    found.push(Violation::Backwards {
                        at: at.clone(),
                        key: *key,
                        from: before,
                        to: *version,
                    });
                }
                if !possible(*key, *version) {
                    found.push(Violation::Invented {
                        at: at.to_string(),
                        key: *key,
                        version: *version,
                    });
                }
            }
        }
        let mut all = self.held.iter();
        if let Some((one, first)) = all.next() {
            for (other, held) in all {
                if held != first {
                    found.push(Violation::Differs { one, other });
                }
            }
            for (key, version, answer) in &self.writes {
                let held = first.get(key).copied();
                if *answer == Answer::Older && held.is_none_or(|held| held < *version) {
                    found.push(Violation::Denied {
                        key: *key,
                        version: *version,
                        held,
                    });
                }
            }
        }
        found
    }
}

/// A history in which all is as it should be.
fn good() -> History {
    let held = BTreeMap::from([(1, 4), (2, 2)]);
    History {
        writes: vec![
            (1, 1, Answer::Made),
            (2, 2, Answer::Unknown),
            (1, 4, Answer::Made),
            (1, 3, Answer::Older),
            (2, 5, Answer::Refused),
        ],
        watched: HashMap::from([
            ("a".to_owned(), vec![(1, 1), (2, 2), (1, 4)]),
            ("b".to_owned(), vec![(1, 4)]),
        ]),
        held: HashMap::from([("a", held.clone()), ("b", held.clone()), ("etcd", held)]),
    }
}

#[test]
fn the_checker_finds_nothing_where_nothing_is() {
    assert_eq!(good().violations(), []);
}

#[test]
fn the_checker_finds_each_fault() {
    let with = |change: fn(&mut History)| {
        let mut history = good();
        change(&mut history);
        history.violations()
    };
    let lost = with(|history| history.held.values_mut().for_each(|held| _ = held.insert(1, 1)));
    assert!(
        lost.iter().any(|violation| matches!(
            violation,
            Violation::Lost {
                key: 1,
                answered: 4,
                held: Some(1),
                ..
            }
        )),
        "{lost:?}"
    );
    let gone = with(|history| history.held.values_mut().for_each(|held| _ = held.remove(&1)));
    assert!(
        gone.iter()
            .any(|violation| matches!(violation, Violation::Lost { held: None, .. })),
        "{gone:?}"
    );
    let invented = with(|history| history.held.values_mut().for_each(|held| _ = held.insert(2, 5)));
    assert!(
        invented.contains(&Violation::Invented {
            at: "a".to_owned(),
            key: 2,
            version: 5
        }),
        "{invented:?}"
    );
    let back = with(|history| history.watched.get_mut("a").unwrap().push((1, 1)));
    assert_eq!(
        back,
        [Violation::Backwards {
            at: "a".to_owned(),
            key: 1,
            from: 4,
            to: 1
        }]
    );
    let differs = with(|history| _ = history.held.get_mut("b").unwrap().remove(&2));
    assert!(
        !differs.is_empty()
            && differs
                .iter()
                .all(|violation| matches!(violation, Violation::Differs { .. })),
        "{differs:?}"
    );
    let denied = with(|history| history.writes.push((2, 3, Answer::Older)));
    assert_eq!(
        denied,
        [Violation::Denied {
            key: 2,
            version: 3,
            held: Some(2)
        }]
    );
}
