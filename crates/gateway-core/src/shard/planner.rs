//! [`plan`](super::plan) for who asks often: what is preferred is kept, and changes with the members.
//!
//! A member that comes is looked at once for each shard, one that goes leaves work only where it was preferred. With 1,000 members
//! `plan` looks at a million pairs each time, and this at some thousand when one of them changes.

use std::collections::BTreeMap;

use super::{Member, MemberId, Move, SHARDS, Score, Shard, preferred};

/// Who is preferred for each shard, of some members.
#[derive(Debug, Clone)]
struct Best {
    weights: BTreeMap<MemberId, u32>,
    /// By shard.
    of: Vec<Option<Score>>,
}

impl Best {
    fn new() -> Self {
        Self {
            weights: BTreeMap::new(),
            of: vec![None; SHARDS as usize],
        }
    }

    fn insert(&mut self, id: MemberId, weight: u32) {
        match self.weights.get(&id) {
            Some(known) if *known == weight => return,
            Some(_) => self.remove(id),
            None => {}
        }
        self.weights.insert(id, weight);
        for (shard, best) in Shard::all().zip(&mut self.of) {
            let one = Score::of(shard, id, weight);
            if best.is_none_or(|best| one.beats(best)) {
                *best = Some(one);
            }
        }
    }

    fn remove(&mut self, id: MemberId) {
        if self.weights.remove(&id).is_none() {
            return;
        }
        let weights = &self.weights;
        for (shard, best) in Shard::all().zip(&mut self.of) {
            if best.is_some_and(|best| best.id == id) {
                let all = weights.iter().map(|(id, weight)| Score::of(shard, *id, *weight));
                *best = all.reduce(|best, one| if one.beats(best) { one } else { best });
            }
        }
    }

    fn set(&mut self, member: &Member, is_in: bool) {
        match is_in {
            true => self.insert(member.id, member.weight),
            false => self.remove(member.id),
        }
    }

    fn of(&self, shard: Shard) -> Option<MemberId> {
        self.of
            .get(shard.number() as usize)
            .copied()
            .flatten()
            .map(|best| best.id)
    }
}

/// Members that live, and which move each shard has to make. See the module.
#[derive(Debug, Clone)]
pub struct Planner {
    members: BTreeMap<MemberId, Member>,
    /// Those that do not drain.
    serving: Best,
    /// Those of them that are synced.
    synced: Best,
}

impl Default for Planner {
    fn default() -> Self {
        Self::new()
    }
}

impl Planner {
    /// Of no members.
    #[must_use]
    pub fn new() -> Self {
        Self {
            members: BTreeMap::new(),
            serving: Best::new(),
            synced: Best::new(),
        }
    }

    /// A member that has come, or has changed.
    pub fn put(&mut self, member: Member) {
        self.serving.set(&member, !member.is_draining);
        self.synced.set(&member, !member.is_draining && member.is_synced);
        self.members.insert(member.id, member);
    }

    /// A member that is gone.
    pub fn remove(&mut self, id: MemberId) {
        if self.members.remove(&id).is_some() {
            self.serving.remove(id);
            self.synced.remove(id);
        }
    }

    /// Those that live, by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// One of them.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// The move that [`plan`](super::plan) would make with this shard, had it as many as it likes.
    #[must_use]
    pub fn target(&self, shard: Shard, owner: Option<MemberId>) -> Option<Move> {
        let living = owner.and_then(|owner| self.members.get(&owner));
        let to = match living {
            None => (self.synced.of(shard))
                .or_else(|| self.serving.of(shard))
                .or_else(|| preferred(shard, self.members.values()).map(|member| member.id)),
            Some(owner) if owner.is_draining => self.synced.of(shard),
            Some(_) => self
                .serving
                .of(shard)
                .filter(|to| self.members.get(to).is_some_and(|to| to.is_synced)),
        };
        to.filter(|to| Some(*to) != owner).map(|to| Move {
            shard,
            from: owner,
            to,
            is_urgent: living.is_none(),
        })
    }
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
