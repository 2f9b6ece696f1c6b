//! Shards that change their owner: what a member takes from the dead, and the maps that say so. What it gives away: [`super::giving`].

use std::collections::BTreeSet;
use std::time::Duration;

use ringside_gateway_core::shard::{MemberId, Move, Shard};

use super::Shards;
use super::terms::{Action, Changed, MapEntry, Outcome, Proposal};

/// Members that a transaction may name, and be below the 128 comparisons that etcd takes.
const NAMED: usize = 100;
/// Members that wait longer for those before them; the others wait as long as this one and a random time.
const RANKS: u32 = 8;

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
            // Those who live are there again by then, and nothing has to move.
            let may_be_back = self.view.are_most_gone() || self.view.is_an_owner_overwritten();
            if may_be_back || self.robbed.is_some_and(|robbed| now < robbed + self.timing.lease) {
                wait += self.timing.back();
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
                self.propose(now, moves, BTreeSet::new());
            }
            return;
        }
        self.give(now);
    }

    /// `bare`: who gets shards without their connections.
    pub(super) fn propose(&mut self, now: Duration, mut moves: Vec<Move>, bare: BTreeSet<MemberId>) {
        let Some((own, ..)) = self.own else { return };
        let mut present = vec![(self.id, own)];
        let mut absent: Vec<(MemberId, u64)> = Vec::new();
        moves.retain(|one| {
            let loser = one.from.filter(|_| one.is_urgent);
            let is_new = |id: &MemberId| absent.iter().all(|(known, _)| known != id);
            let gains = (self.view.peer(one.to)).filter(|_| present.iter().all(|(id, _)| *id != one.to));
            let loses = loser.filter(is_new);
            if present.len() + absent.len() + 2 > NAMED && (gains.is_some() || loses.is_some()) {
                return false;
            }
            present.extend(gains.map(|peer| (one.to, peer.revision)));
            absent.extend(loses.map(|id| (id, self.view.revision_of_absent(id))));
            true
        });
        let mut map = self.view.map().clone();
        map.generation += 1;
        moves.iter().for_each(|one| map.set(one.shard, one.to));
        self.propose.begin(now);
        self.proposed = moves;
        self.bare = bare;
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
        self.map_took(now.saturating_sub(self.propose.at));
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
                    self.counts.given_bare += u64::from(!one.is_urgent && self.bare.contains(&one.to));
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
                self.not_given(now);
                self.propose.failed(now, pause);
                match map {
                    // Somebody was faster: that is all there is to it.
                    Some(map) if map.revision > self.view.map_revision() => self.view.change([Changed::Map(map)]),
                    // Members are other than they were heard of.
                    _ => self.list.next = now,
                }
            }
            Err(why) => {
                self.not_given(now);
                self.error = Some(why);
                self.propose.failed(now, pause);
                self.list.next = now;
            }
        }
    }
}
