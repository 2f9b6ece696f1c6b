//! What was written, and what was seen of it; and whether that can be.
//!
//! All versions are taken from one counter, so that a version says which write it was.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An object, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Neighbor(u32),
    Port(u32),
    Group(u32),
}

/// What is said of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) version: u64,
    /// False: it was deleted in this version.
    pub(crate) is_there: bool,
}

impl State {
    pub(crate) const fn there(version: u64) -> Self {
        Self {
            version,
            is_there: true,
        }
    }

    pub(crate) const fn gone(version: u64) -> Self {
        Self {
            version,
            is_there: false,
        }
    }
}

/// What became of a write, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was made: created, replaced, deleted.
    Made,
    /// It was in a batch of a bulk load that was answered: it was made, or something newer was there.
    Loaded,
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
    /// What was to be, and what was answered.
    pub(crate) writes: Vec<(Key, State, Answer)>,
    /// What each gateway's watch told, in order.
    pub(crate) watched: HashMap<String, Vec<(Key, State)>>,
    /// What each gateway holds in the end, and etcd; with what is remembered of what is gone.
    pub(crate) held: HashMap<&'static str, BTreeMap<Key, State>>,
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
    /// A version that nobody wrote, or that was refused; or that is there and was to be deleted, or the other way round.
    Invented { at: String, key: Key, state: State },
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
        let mut possible: BTreeSet<(Key, State)> = BTreeSet::new();
        for (key, state, answer) in &self.writes {
            if matches!(answer, Answer::Made | Answer::Loaded) {
                let newest = made.entry(*key).or_default();
                *newest = (*newest).max(state.version);
            }
            if *answer != Answer::Refused {
                possible.insert((*key, *state));
            }
        }
        let invented = |at: &str, key: Key, state: State| {
            let at = at.to_owned();
            (!possible.contains(&(key, state))).then_some(Violation::Invented { at, key, state })
        };
        for (at, held) in &self.held {
            for (key, answered) in &made {
                let held = held.get(key).map(|state| state.version);
                if held.is_none_or(|held| held < *answered) {
                    found.push(Violation::Lost {
                        at,
                        key: *key,
                        answered: *answered,
                        held,
                    });
                }
            }
            found.extend(held.iter().filter_map(|(key, state)| invented(at, *key, *state)));
        }
        for (at, watched) in &self.watched {
            let mut last: HashMap<Key, u64> = HashMap::new();
            for (key, state) in watched {
                if let Some(before) = last.insert(*key, state.version)
                    && before > state.version
                {
                    found.push(Violation::Backwards {
                        at: at.clone(),
                        key: *key,
                        from: before,
                        to: state.version,
                    });
                }
                found.extend(invented(at, *key, *state));
            }
        }
        let mut all = self.held.iter();
        if let Some((one, first)) = all.next() {
            for (other, held) in all {
                if held != first {
                    found.push(Violation::Differs { one, other });
                }
            }
            for (key, state, answer) in &self.writes {
                let held = first.get(key).map(|state| state.version);
                if *answer == Answer::Older && held.is_none_or(|held| held < state.version) {
                    found.push(Violation::Denied {
                        key: *key,
                        version: state.version,
                        held,
                    });
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEIGHBOR: Key = Key::Neighbor(1);
    const PORT: Key = Key::Port(1);
    const GROUP: Key = Key::Group(1);

    /// A history in which all is as it should be.
    fn good() -> History {
        let held = BTreeMap::from([
            (NEIGHBOR, State::there(4)),
            (PORT, State::gone(7)),
            (GROUP, State::there(9)),
        ]);
        let told = vec![
            (NEIGHBOR, State::there(1)),
            (PORT, State::gone(7)),
            (NEIGHBOR, State::gone(2)),
            (NEIGHBOR, State::there(4)),
        ];
        History {
            writes: vec![
                (NEIGHBOR, State::there(1), Answer::Made),
                (NEIGHBOR, State::gone(2), Answer::Made),
                (NEIGHBOR, State::there(4), Answer::Loaded),
                (NEIGHBOR, State::gone(3), Answer::Older),
                (PORT, State::there(6), Answer::Unknown),
                (PORT, State::gone(7), Answer::Made),
                (PORT, State::there(8), Answer::Refused),
                (GROUP, State::there(9), Answer::Unknown),
            ],
            watched: HashMap::from([("a".to_owned(), told), ("b".to_owned(), vec![(GROUP, State::there(9))])]),
            held: HashMap::from([("a", held.clone()), ("b", held.clone()), ("etcd", held)]),
        }
    }

    fn with(change: impl Fn(&mut History)) -> Vec<Violation> {
        let mut history = good();
        change(&mut history);
        history.violations()
    }

    /// Everybody holds this of an object in the end; None: nothing.
    fn all_hold(key: Key, state: Option<State>) -> Vec<Violation> {
        with(|history| {
            for held in history.held.values_mut() {
                match state {
                    Some(state) => held.insert(key, state),
                    None => held.remove(&key),
                };
            }
        })
    }

    fn count(found: &[Violation], is_so: impl Fn(&Violation) -> bool) -> usize {
        found.iter().filter(|violation| is_so(violation)).count()
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        assert_eq!(good().violations(), []);
        // What nobody knows of may have been made or not.
        assert_eq!(all_hold(GROUP, None), []);
    }

    /// What was put, deleted or loaded.
    #[test]
    fn what_was_answered_and_is_lost_is_found() {
        for (key, newest, instead) in [
            (NEIGHBOR, 4, None),
            (PORT, 7, None),
            (PORT, 7, Some(State::there(6))),
            (NEIGHBOR, 4, Some(State::gone(2))),
        ] {
            let found = all_hold(key, instead);
            let expected = |at| Violation::Lost {
                at,
                key,
                answered: newest,
                held: instead.map(|state| state.version),
            };
            for at in ["a", "b", "etcd"] {
                assert!(found.contains(&expected(at)), "{at}: {found:?}");
            }
        }
    }

    /// Refused; never written; there, where it was deleted; deleted, where it was put.
    #[test]
    fn what_nobody_wrote_is_found() {
        for (key, state) in [
            (PORT, State::there(8)),
            (NEIGHBOR, State::there(9)),
            (PORT, State::there(7)),
            (GROUP, State::gone(9)),
        ] {
            let is_so = |violation: &Violation| matches!(violation, Violation::Invented { key: of, state: what, .. } if (*of, *what) == (key, state));
            assert_eq!(count(&all_hold(key, Some(state)), is_so), 3, "{key:?} {state:?}");
            let told = with(|history| history.watched.get_mut("b").unwrap().push((key, state)));
            assert_eq!(count(&told, is_so), 1, "{told:?}");
        }
    }

    #[test]
    fn what_goes_back_is_found() {
        for (key, newer, older) in [
            (NEIGHBOR, State::there(4), State::gone(2)),
            (PORT, State::gone(7), State::there(6)),
        ] {
            let back = with(|history| {
                let watched = history.watched.get_mut("b").unwrap();
                watched.extend([(key, newer), (key, older)]);
            });
            let expected = Violation::Backwards {
                at: "b".to_owned(),
                key,
                from: newer.version,
                to: older.version,
            };
            assert_eq!(back, [expected]);
        }
    }

    #[test]
    fn what_differs_and_what_was_denied_is_found() {
        for (name, key) in [("b", PORT), ("etcd", GROUP)] {
            let differs = with(|history| _ = history.held.get_mut(name).unwrap().remove(&key));
            let is_so = |violation: &Violation| matches!(violation, Violation::Differs { .. });
            assert!(count(&differs, is_so) > 0, "{differs:?}");
        }
        let denied = with(|history| history.writes.push((PORT, State::gone(12), Answer::Older)));
        let expected = Violation::Denied {
            key: PORT,
            version: 12,
            held: Some(7),
        };
        assert_eq!(denied, [expected]);
    }
}
