//! Shards that change their owner: what a member takes from the dead, and what it gives away.

use std::time::Duration;

use ringside_gateway_core::shard::{MemberId, Move, Shard};

use super::Shards;
use super::terms::{Action, Changed, MapEntry, Outcome, Proposal};

/// Members that a transaction may name, and be below the 128 comparisons that etcd takes.
const NAMED: usize = 100;
/// Members that wait longer for those before them; the others wait as long as this one and a random time.
const RANKS: u32 = 8;

/// Shards that are being given away.
#[derive(Debug)]
pub(super) struct Giving {
    moves: Vec<Move>,
    /// The new owner has what it needs, or will not have it.
    is_ready: bool,
    is_bare: bool,
}

impl Shards {
    pub(super) fn move_shards(&mut self, now: Duration) {
        let needs_care = self.view.damage().is_some() || self.view.map_revision() == 0 || self.view.has_orphans();
        if !self.is_watching || !self.is_member(now) {
            self.orphaned = None;
            return;
        }
        if !needs_care {
            self.orphaned = None;
        } else if self.orphaned.is_none() {
            self.orphaned = Some(now);
            let rank = u32::try_from(self.view.rank(self.id)).unwrap_or(u32::MAX);
            let mut wait = self.timing.stagger * rank.min(RANKS);
            if rank > RANKS {
                wait += self.chance.up_to(self.timing.stagger * RANKS);
            }
            self.propose.next = self.propose.next.max(now + wait);
        }
        if self.propose.is_asked {
            return;
        }
        if self.orphaned.is_some() {
            if self.propose.is_due(now) {
                let moves: Vec<Move> = (Shard::all().filter_map(|shard| self.view.target(shard)))
                    .filter(|one| one.is_urgent)
                    .collect();
                self.propose(now, moves, false);
            }
            return;
        }
        self.give(now);
    }

    /// Gives away what is to be another's: first the connections, then the shards.
    fn give(&mut self, now: Duration) {
        let giving = self.giving.take().filter(|giving| {
            // Whom it is given to may have changed meanwhile.
            let holds = |one: &Move| self.view.target(one.shard) == Some(*one);
            self.handing.is_asked || giving.moves.iter().all(holds)
        });
        match giving {
            Some(giving) if giving.is_ready => {
                if self.propose.is_due(now) {
                    self.propose(now, giving.moves, giving.is_bare);
                } else {
                    self.giving = Some(giving);
                }
            }
            Some(giving) => {
                self.giving = Some(giving);
                if self.handing.is_due(now) {
                    self.hand_over(now);
                }
            }
            None if self.handing.is_asked || !self.propose.is_due(now) => {}
            None => {
                let mut moves = self.view.mine().to_vec();
                // To one of them at a time.
                let Some(to) = moves.first().map(|one| one.to) else {
                    return;
                };
                moves.retain(|one| one.to == to);
                moves.truncate(self.timing.most);
                self.giving = Some(Giving {
                    moves,
                    is_ready: false,
                    is_bare: false,
                });
                self.stuck = None;
                self.handing.done(now);
                self.hand_over(now);
            }
        }
    }

    fn hand_over(&mut self, now: Duration) {
        let Some(giving) = &self.giving else { return };
        let Some(to) = giving.moves.first().map(|one| one.to) else {
            return;
        };
        self.handing.begin(now);
        let shards = giving.moves.iter().map(|one| one.shard).collect();
        self.actions.push_back(Action::HandOver { to, shards });
    }

    pub(super) fn handed_over(&mut self, now: Duration, result: Result<bool, String>) {
        let pause = self.pause(self.handing.tries);
        let Some(giving) = &mut self.giving else {
            self.handing.done(now);
            return;
        };
        match result {
            Ok(has_them) => {
                (giving.is_ready, giving.is_bare) = (true, !has_them);
                self.handing.done(now);
            }
            Err(why) => {
                let since = *self.stuck.get_or_insert(now);
                if now.saturating_sub(since) >= self.timing.hand_over {
                    (giving.is_ready, giving.is_bare) = (true, true);
                }
                self.error = Some(why);
                self.handing.failed(now, pause);
            }
        }
    }

    fn propose(&mut self, now: Duration, mut moves: Vec<Move>, is_bare: bool) {
        let Some((own, ..)) = self.own else { return };
        let mut present = vec![(self.id, own)];
        let mut absent: Vec<MemberId> = Vec::new();
        moves.retain(|one| {
            let loser = one.from.filter(|_| one.is_urgent);
            let is_new = |id: &MemberId| !absent.contains(id);
            let gains = (self.view.peer(one.to)).filter(|_| present.iter().all(|(id, _)| *id != one.to));
            let loses = loser.filter(is_new);
            if present.len() + absent.len() + 2 > NAMED && (gains.is_some() || loses.is_some()) {
                return false;
            }
            present.extend(gains.map(|peer| (one.to, peer.revision)));
            absent.extend(loses);
            true
        });
        let mut map = self.view.map().clone();
        map.generation += 1;
        moves.iter().for_each(|one| map.set(one.shard, one.to));
        self.propose.begin(now);
        self.proposed = moves;
        self.is_bare = is_bare;
        self.actions.push_back(Action::Propose(Proposal {
            revision: self.view.map_revision(),
            map: map.encode(),
            present,
            absent,
        }));
    }

    pub(super) fn outcome(&mut self, now: Duration, result: Result<Outcome, String>) {
        let moves = std::mem::take(&mut self.proposed);
        let pause = self.pause(self.propose.tries);
        match result {
            Ok(Outcome::Made(revision)) => {
                let mut map = self.view.map().clone();
                map.generation += 1;
                for one in &moves {
                    map.set(one.shard, one.to);
                    let counted = match one.is_urgent {
                        true => &mut self.counts.taken,
                        false => &mut self.counts.given,
                    };
                    *counted += 1;
                    self.counts.given_bare += u64::from(!one.is_urgent && self.is_bare);
                }
                // Unless something newer is known already.
                if revision > self.view.map_revision() {
                    let value = Some(map.encode());
                    self.view.change([Changed::Map(MapEntry { value, revision })]);
                }
                self.propose.done(now);
                // Those that there was no room for.
                self.orphaned = None;
            }
            Ok(Outcome::Otherwise(map)) => {
                self.counts.conflicts += 1;
                if let Some(map) = map {
                    self.view.change([Changed::Map(map)]);
                }
                self.propose.failed(now, pause);
                // Members are other than they were heard of, too, perhaps.
                self.list.next = now;
            }
            Err(why) => {
                self.error = Some(why);
                self.propose.failed(now, pause);
                self.list.next = now;
            }
        }
    }
}
