//! Which gateway said that it owns which shard, and when; and whether that can be.
//!
//! A gateway is believed to think what it said last for as long as it answers: one that stands still thinks nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Owners of all shards, by the numbers of their names; 0: nobody.
pub(crate) type Owners = Arc<[u64]>;

/// Who gives a shard away hears of it by the answer to its transaction, who gets it by its watch: one of them may be earlier, by what a
/// machine with other things to do takes. It is far less than a lease.
const SLACK: Duration = Duration::from_millis(500);
/// Who says nothing for so long stands still.
const STILL: Duration = Duration::from_millis(500);

/// What a gateway's watch told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// The map, and whether it says to know the newest one: whether its lease lives.
    Map {
        generation: u64,
        is_current: bool,
        owners: Owners,
    },
    /// It is gone, and begins anew.
    Gone,
}

/// What one gateway said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// The number of its name.
    pub(crate) id: u64,
    /// In order, with the time.
    pub(crate) words: Vec<(Duration, Word)>,
    /// When it answered.
    pub(crate) answered: Vec<Duration>,
}

/// What may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// Nothing: etcd was only away, or slow.
    None,
    /// What this gateway has, or gets back.
    Of(&'static str),
    /// As before, and some of it has to.
    Some(&'static str),
    /// Anything.
    Any,
}

/// What must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Both said to own a shard, with leases that live.
    TwoOwners {
        shard: usize,
        one: &'static str,
        other: &'static str,
        time: Duration,
    },
    /// Under the same number there are two maps.
    TwoMaps { generation: u64, at: &'static str },
    /// An older map after a newer one.
    Backwards { at: &'static str, from: u64, to: u64 },
    /// Shards that have changed their owner, and nobody had a reason to.
    Moved { generation: u64, shards: usize },
    /// What had to move has not.
    Stayed { at: &'static str },
    /// Shards of nobody who lives, in the end.
    Orphaned { at: &'static str, shards: usize },
    /// In the end it knows another map than etcd holds.
    Differs { at: &'static str },
}

/// Everything that was said, and what etcd holds in the end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ownership {
    pub(crate) said: BTreeMap<&'static str, Said>,
    /// From which generation on what moves is looked at.
    pub(crate) since: u64,
    pub(crate) etcd: Option<(u64, Owners)>,
    /// For how long the test itself, which waits for nothing, did not run at the worst.
    pub(crate) stalled: Duration,
}

/// Of a machine that lets a process wait for so long it cannot be said whether a gateway lost its lease by the fault.
const STALLED: Duration = Duration::from_secs(1);

type Interval = (Duration, Duration);

impl Said {
    /// The last thing that it said of the map.
    pub(crate) fn last(&self) -> Option<&Word> {
        self.words.last().map(|(_, word)| word)
    }

    /// While it answered.
    fn awake(&self) -> Vec<Interval> {
        let mut awake: Vec<Interval> = Vec::new();
        for pair in self.answered.windows(2) {
            let &[from, to] = pair else { continue };
            match awake.last_mut() {
                _ if to - from > STILL => {}
                Some(last) if last.1 == from => last.1 = to,
                _ => awake.push((from, to)),
            }
        }
        awake
    }

    /// While it had a lease by its own account, and answered; with the map that it had then.
    fn thought(&self) -> Vec<(Interval, &Owners)> {
        let (mut thought, awake) = (Vec::new(), self.awake());
        let ends = self.words.iter().skip(1).map(|(at, _)| *at);
        for ((from, word), to) in self.words.iter().zip(ends.chain([Duration::MAX])) {
            if let Word::Map {
                is_current: true,
                owners,
                ..
            } = word
            {
                let common = awake.iter().filter_map(|interval| meet((*from, to), *interval));
                thought.extend(common.map(|interval| (interval, owners)));
            }
        }
        thought
    }
}

fn meet(one: Interval, other: Interval) -> Option<Interval> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 < both.1).then_some(both)
}

/// While a shard was its own.
fn owned(thought: &[(Interval, &Owners)], id: u64, shard: usize) -> Vec<Interval> {
    let mut owned: Vec<Interval> = Vec::new();
    for (interval, owners) in thought {
        if owners[shard] != id {
            continue;
        }
        match owned.last_mut() {
            Some(last) if last.1 == interval.0 => last.1 = interval.1,
            _ => owned.push(*interval),
        }
    }
    owned
}

impl Ownership {
    pub(crate) fn say(&mut self, name: &'static str, at: Duration, word: Word) {
        self.said.entry(name).or_default().words.push((at, word));
    }

    /// What was asked and is answered now. One that was stopped in between thought nothing from the question on.
    pub(crate) fn answers(&mut self, name: &'static str, asked: Duration, now: Duration) {
        let answered = &mut self.said.entry(name).or_default().answered;
        if now - asked <= STILL {
            answered.push(now);
        }
    }

    /// All maps that somebody was told of, by their numbers.
    pub(crate) fn maps(&self) -> BTreeMap<u64, &Owners> {
        let words = self.said.values().flat_map(|said| &said.words);
        let maps = words.filter_map(|(_, word)| match word {
            Word::Map { generation, owners, .. } if *generation > 0 => Some((*generation, owners)),
            _ => None,
        });
        maps.collect()
    }

    /// How often a shard has changed its owner.
    pub(crate) fn moved(&self) -> usize {
        self.changes().map(|(_, moved)| moved.len()).sum()
    }

    /// From one map to the next one that was told of: whose shards went to whom.
    fn changes(&self) -> impl Iterator<Item = (u64, Vec<(u64, u64)>)> {
        let maps: Vec<_> = self
            .maps()
            .into_iter()
            .filter(|(number, _)| *number >= self.since)
            .collect();
        let changes: Vec<_> = (maps.windows(2))
            .map(|pair| {
                let ((_, before), (generation, after)) = (pair[0], pair[1]);
                let both = before.iter().copied().zip(after.iter().copied());
                (generation, both.filter(|(from, to)| from != to).collect())
            })
            .collect();
        changes.into_iter()
    }

    /// Whether it can be said what may move.
    pub(crate) fn is_judged(&self) -> bool {
        self.stalled < STALLED
    }

    /// Everything that must not be.
    pub(crate) fn violations(&self, moves: Moves) -> Vec<Violation> {
        let mut found = self.twice();
        let maps = self.maps();
        for (at, said) in &self.said {
            let mut last = 0;
            for (_, word) in &said.words {
                let Word::Map { generation, owners, .. } = word else {
                    last = 0;
                    continue;
                };
                if *generation < last {
                    found.push(Violation::Backwards {
                        at,
                        from: last,
                        to: *generation,
                    });
                }
                last = *generation;
                if maps.get(generation).is_some_and(|map| *map != owners) {
                    found.push(Violation::TwoMaps {
                        generation: *generation,
                        at,
                    });
                }
            }
        }
        let id = |name: &str| self.said.get(name).map_or(0, |said| said.id);
        for (generation, moved) in self.changes().filter(|_| self.is_judged()) {
            let without = match moves {
                Moves::Any => 0,
                Moves::None => moved.len(),
                Moves::Of(name) | Moves::Some(name) => {
                    let is_its = |(from, to): &&(u64, u64)| *from == id(name) || *to == id(name);
                    moved.len() - moved.iter().filter(is_its).count()
                }
            };
            if without > 0 {
                found.push(Violation::Moved {
                    generation,
                    shards: without,
                });
            }
        }
        if let Moves::Some(at) = moves
            && !self
                .changes()
                .any(|(_, moved)| moved.iter().any(|(from, _)| *from == id(at)))
        {
            found.push(Violation::Stayed { at });
        }
        let living: Vec<u64> = self.said.values().map(|said| said.id).collect();
        for (at, said) in &self.said {
            let Some(Word::Map {
                generation,
                is_current: true,
                owners,
            }) = said.last()
            else {
                found.push(Violation::Differs { at });
                continue;
            };
            let shards = owners.iter().filter(|owner| !living.contains(owner)).count();
            if shards > 0 {
                found.push(Violation::Orphaned { at, shards });
            }
            if self.etcd.as_ref() != Some(&(*generation, Arc::clone(owners))) {
                found.push(Violation::Differs { at });
            }
        }
        found
    }

    /// Shards that two had at a time, the longest time of each two.
    fn twice(&self) -> Vec<Violation> {
        let thought: Vec<_> = (self.said.iter())
            .map(|(name, said)| (*name, said.id, said.thought()))
            .collect();
        let mut found = Vec::new();
        for (number, (one, its, first)) in thought.iter().enumerate() {
            for (other, others, second) in thought.iter().skip(number + 1) {
                let shards = first.first().map_or(0, |(_, owners)| owners.len());
                let longest = |shard| {
                    let (first, second) = (owned(first, *its, shard), owned(second, *others, shard));
                    let both = first
                        .iter()
                        .flat_map(|one| second.iter().filter_map(|other| meet(*one, *other)));
                    both.map(|(from, to)| to - from).max().unwrap_or_default()
                };
                let worst = (0..shards)
                    .map(|shard| (longest(shard), shard))
                    .max()
                    .unwrap_or_default();
                if worst.0 > SLACK {
                    found.push(Violation::TwoOwners {
                        shard: worst.1,
                        one,
                        other,
                        time: worst.0,
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

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn word(generation: u64, is_current: bool, owners: [u64; 4]) -> Word {
        Word::Map {
            generation,
            is_current,
            owners: owners.into(),
        }
    }

    fn said(id: u64, words: &[(u64, Word)]) -> Said {
        Said {
            id,
            words: words.iter().map(|(time, word)| (at(*time), word.clone())).collect(),
            answered: (0..200).map(|number| at(50 * number)).collect(),
        }
    }

    /// The first one is cut off for a time, and its two shards are the other's meanwhile.
    fn good() -> Ownership {
        let (mine, others) = ([1, 1, 2, 2], [2, 2, 2, 2]);
        let one = [
            (0, word(5, true, mine)),
            (3000, word(5, false, mine)),
            (6000, word(6, true, others)),
            (7000, word(7, true, mine)),
        ];
        let other = [
            (0, word(5, true, mine)),
            (3200, word(6, true, others)),
            (7100, word(7, true, mine)),
        ];
        Ownership {
            said: BTreeMap::from([("a", said(1, &one)), ("b", said(2, &other))]),
            since: 5,
            etcd: Some((7, mine.into())),
            stalled: Duration::ZERO,
        }
    }

    fn with(moves: Moves, change: impl FnOnce(&mut Ownership)) -> Vec<Violation> {
        let mut ownership = good();
        change(&mut ownership);
        ownership.violations(moves)
    }

    fn words<'a>(ownership: &'a mut Ownership, name: &str) -> &'a mut Vec<(Duration, Word)> {
        &mut ownership.said.get_mut(name).unwrap().words
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        for moves in [Moves::Any, Moves::Of("a"), Moves::Some("a"), Moves::Some("b")] {
            assert_eq!(good().violations(moves), []);
        }
        assert_eq!(good().moved(), 4);
    }

    #[test]
    fn each_fault_is_found() {
        // It does not notice that its lease is over.
        let late = with(Moves::Of("a"), |all| _ = words(all, "a").remove(1));
        assert_eq!(
            late,
            [Violation::TwoOwners {
                shard: 1,
                one: "a",
                other: "b",
                time: at(2800)
            }]
        );
        // As long as it stands still it thinks nothing.
        let still = with(Moves::Of("a"), |all| {
            _ = words(all, "a").remove(1);
            let answered = &mut all.said.get_mut("a").unwrap().answered;
            answered.retain(|time| *time < at(2900) || *time > at(5600));
        });
        assert_eq!(still, []);
        let moved = with(Moves::None, |_| ());
        assert_eq!(
            moved,
            [6, 7].map(|generation| Violation::Moved { generation, shards: 2 })
        );
        assert_eq!(with(Moves::None, |all| all.since = 7), []);
        let stalled = with(Moves::None, |all| {
            all.stalled = STALLED;
            words(all, "a")[1].1 = word(5, true, [1, 1, 2, 2]);
        });
        assert!(
            matches!(*stalled, [Violation::TwoOwners { .. }]),
            "the rest is judged: {stalled:?}"
        );
        let stayed = with(Moves::Some("a"), |all| all.since = 7);
        assert_eq!(stayed, [Violation::Stayed { at: "a" }]);
        let other = with(Moves::Any, |all| words(all, "b")[1].1 = word(6, true, [2, 2, 2, 1]));
        assert_eq!(other, [Violation::TwoMaps { generation: 6, at: "a" }]);
        let back = with(Moves::Any, |all| {
            let old = words(all, "b")[0].1.clone();
            words(all, "b").insert(2, (at(3300), old));
        });
        assert_eq!(
            back,
            [Violation::Backwards {
                at: "b",
                from: 6,
                to: 5
            }]
        );
        let new = with(Moves::Any, |all| {
            let old = words(all, "b")[0].1.clone();
            words(all, "b").splice(2..2, [(at(3300), Word::Gone), (at(3400), old)]);
        });
        assert_eq!(new, [], "it has begun anew");
        let nobody = with(Moves::Any, |all| {
            let map = [1, 1, 2, 9];
            for name in ["a", "b"] {
                words(all, name).push((at(9000), word(8, true, map)));
            }
            all.etcd = Some((8, map.into()));
        });
        assert_eq!(nobody, ["a", "b"].map(|at| Violation::Orphaned { at, shards: 1 }));
        let behind = with(Moves::Any, |all| _ = words(all, "b").pop());
        assert!(behind.contains(&Violation::Differs { at: "b" }), "{behind:?}");
        let lapsed = with(Moves::Any, |all| {
            words(all, "b").push((at(9000), word(7, false, [1, 1, 2, 2])));
        });
        assert_eq!(lapsed, [Violation::Differs { at: "b" }]);
    }
}
