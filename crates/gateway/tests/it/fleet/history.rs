//! What was written, and what was seen of it; and whether that can be.
//!
//! All versions are taken from one counter, so that a version says which write it was, and the counter is a clock: what was known when it
//! stood at a number was known before a write of that version, or a higher one, was begun.

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
    /// What each gateway's watch told, in order; of a gateway that was begun anew under another name.
    pub(crate) watched: HashMap<String, Vec<(Key, State)>>,
    /// Whose watch that is, and where the counter stood when it was asked for.
    pub(crate) begun: HashMap<String, (&'static str, u64)>,
    /// All that was answered or told.
    pub(crate) known: Vec<Known>,
    /// What each gateway holds in the end, and etcd; with what is remembered of what is gone.
    pub(crate) held: HashMap<&'static str, BTreeMap<Key, State>>,
}

/// That an object was as new as this, or newer, in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) key: Key,
    pub(crate) version: u64,
    /// Where the counter stood when it was heard of.
    pub(crate) at: u64,
    /// Who had it, if it was answered.
    pub(crate) by: Option<&'static str>,
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
    /// A watch told of an older version than it can have been: after a newer one; after that gateway had answered a newer one, also before it
    /// was begun anew; or after a write that was begun when somebody had heard of a newer one.
    Backwards { at: String, key: Key, from: u64, to: u64 },
    /// Two do not hold the same.
    Differs { one: &'static str, other: &'static str },
    /// A write was called older than what is there, and nothing as new is.
    Denied { key: Key, version: u64, held: Option<u64> },
}

/// What was known of each object, in the order of the counter: the newest version that was heard of up to there.
struct Newest(HashMap<Key, Vec<(u64, u64)>>);

impl Newest {
    fn of<'a>(known: impl Iterator<Item = &'a Known>) -> Self {
        let mut all: HashMap<Key, Vec<(u64, u64)>> = HashMap::new();
        for known in known {
            all.entry(known.key).or_default().push((known.at, known.version));
        }
        for heard in all.values_mut() {
            heard.sort_unstable();
            let mut newest = 0;
            for (_, version) in heard {
                newest = newest.max(*version);
                *version = newest;
            }
        }
        Self(all)
    }

    /// Before a write of this version was begun. 0: nothing.
    fn before(&self, key: Key, write: u64) -> u64 {
        let heard = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        let count = heard.partition_point(|(at, _)| *at <= write);
        count.checked_sub(1).map_or(0, |last| heard[last].1)
    }
}

impl History {
    /// Takes notice of a write and what a gateway answered, now that the counter stands there.
    pub(crate) fn wrote(&mut self, by: Option<&'static str>, (key, state, answer): (Key, State, Answer), at: u64) {
        self.writes.push((key, state, answer));
        if matches!(answer, Answer::Made | Answer::Loaded) {
            let version = state.version;
            self.known.push(Known { key, version, at, by });
        }
    }

    /// Takes notice of what a watch has told, now that the counter stands there.
    pub(crate) fn told(&mut self, watch: &str, told: Vec<(Key, State)>, at: u64) {
        let known = told.iter().map(|(key, state)| Known {
            key: *key,
            version: state.version,
            at,
            by: None,
        });
        self.known.extend(known);
        self.watched.entry(watch.to_owned()).or_default().extend(told);
    }

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
        let heard = Newest::of(self.known.iter());
        for (at, watched) in &self.watched {
            let (gateway, begun) = self.begun.get(at).copied().unwrap_or_default();
            let its = |known: &&Known| known.by == Some(gateway) && known.at < begun;
            let answered = Newest::of(self.known.iter().filter(its));
            let mut last: HashMap<Key, u64> = HashMap::new();
            // It tells each kind in the order in which etcd took it: behind a write that was begun when something was known, that or
            // something newer.
            let mut latest = HashMap::new();
            for (key, state) in watched {
                let before = last.insert(*key, state.version).unwrap_or(0);
                let latest: &mut u64 = latest.entry(std::mem::discriminant(key)).or_default();
                let before = before
                    .max(answered.before(*key, begun))
                    .max(heard.before(*key, *latest));
                *latest = state.version.max(*latest);
                if before > state.version {
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
            begun: HashMap::from([("a".to_owned(), ("a", 1)), ("b".to_owned(), ("b", 1))]),
            known: Vec::new(),
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

    /// A gateway is begun anew, and its watch with it, which has told nothing of an object so far.
    #[test]
    fn what_goes_back_after_a_restart_is_found() {
        const NEXT: &str = "b 1";
        const OTHER: Key = Key::Port(2);
        let after = |told: &[(Key, State)], known: Known| {
            with(|history| {
                for key in [OTHER, NEIGHBOR] {
                    history.writes.push((key, State::there(12), Answer::Unknown));
                }
                history.begun.insert(NEXT.to_owned(), ("b", 11));
                history.known.push(known);
                history.told(NEXT, told.to_vec(), 13);
            })
        };
        let back = [Violation::Backwards {
            at: NEXT.to_owned(),
            key: PORT,
            from: 7,
            to: 6,
        }];
        let known = |at, by| Known {
            key: PORT,
            version: 7,
            at,
            by,
        };
        let [newer, of_another_kind] = [OTHER, NEIGHBOR].map(|key| (key, State::there(12)));
        let older = (PORT, State::there(6));
        // What the same gateway had answered before.
        assert_eq!(after(&[older], known(9, Some("b"))), back);
        assert_eq!(after(&[older], known(11, Some("b"))), [], "perhaps meanwhile");
        assert_eq!(after(&[older], known(9, Some("a"))), [], "another one");
        // What anybody has heard of: by the watch, it has only reached etcd when it tells of a write that was begun later.
        for by in [None, Some("a")] {
            assert_eq!(after(&[newer, older], known(12, by)), back);
            assert_eq!(after(&[newer, older], known(13, by)), [], "perhaps later");
            assert_eq!(after(&[of_another_kind, older], known(12, by)), [], "by another way");
            assert_eq!(after(&[older, newer], known(9, by)), [], "it catches up");
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
