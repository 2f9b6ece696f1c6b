//! What is counted, phase by phase.

use std::collections::VecDeque;

use super::costs::SECOND;
use super::gateway::LIST;
use super::log::Log;
use super::server::{Members, What};
use super::world::Setup;
use super::world::place;

/// Since the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) requests: u64,
    pub(crate) pages: u64,
    /// Keys' events told to watchers.
    pub(crate) events: u64,
    pub(crate) sent: u64,
    /// Of all members, nanoseconds.
    pub(crate) cpu: u64,
    /// Pages that were given up.
    pub(crate) late_pages: u64,
    /// Other questions that were.
    pub(crate) late: u64,
    pub(crate) conflicts: u64,
    /// Transactions that a full database refused.
    pub(crate) refused: u64,
    /// Changes that were acknowledged.
    pub(crate) written: u64,
    pub(crate) transactions: u64,
    /// Of the fleet's members and its map: what was told of them to watchers, and bytes of all answers to members.
    pub(crate) member_events: u64,
    pub(crate) member_bytes: u64,
    /// Maps that were made, and those that met another's.
    pub(crate) map_writes: u64,
    pub(crate) map_conflicts: u64,
    /// Seconds in which gateways that nothing keeps from etcd did not follow it, of all of them.
    pub(crate) not_following: u64,
}

/// A part of the time.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// False if it was given up.
    pub(crate) settled: bool,
    /// From the acknowledged write to the tables of all gateways that could be told, nanoseconds.
    pub(crate) converged: Vec<u64>,
    /// From when a gateway could catch up until it had.
    pub(crate) caught_up: Vec<u64>,
    /// Of transactions.
    pub(crate) answered: Vec<u64>,
    pub(crate) before: Counters,
    pub(crate) after: Counters,
    /// The most in any second.
    pub(crate) peak_sent: u64,
    pub(crate) peak_requests: u64,
    pub(crate) peak_cpu: u64,
    pub(crate) peak_database: u64,
    pub(crate) peak_history: u64,
    pub(crate) peak_backlog: u64,
    /// Of shards.
    pub(crate) moved: u64,
    pub(crate) of_hit: u64,
    pub(crate) ownerless: u64,
    /// When one was moved last.
    pub(crate) moved_last: u64,
    pub(crate) relisted: u64,
    pub(crate) compared: u64,
}

#[derive(Debug)]
struct Pending {
    at: u64,
    missing: usize,
    latest: u64,
    phase: usize,
}

#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) phases: Vec<Phase>,
    pub(crate) events: u64,
    pub(crate) conflicts: u64,
    pub(crate) refused: u64,
    pub(crate) divergences: u64,
    pub(crate) member_events: u64,
    pub(crate) member_bytes: u64,
    pub(crate) map_writes: u64,
    pub(crate) map_conflicts: u64,
    now: Counters,
    last: Counters,
    pending: VecDeque<Pending>,
    /// The revision of the first of them.
    first: u64,
    /// Changes of keys that etcd still keeps.
    history: u64,
    compacted: u64,
}

impl Measure {
    pub(crate) fn new(_: &Setup) -> Self {
        Self {
            phases: Vec::new(),
            events: 0,
            conflicts: 0,
            refused: 0,
            divergences: 0,
            member_events: 0,
            member_bytes: 0,
            map_writes: 0,
            map_conflicts: 0,
            now: Counters::default(),
            last: Counters::default(),
            pending: VecDeque::new(),
            first: 2,
            history: 0,
            compacted: 1,
        }
    }

    fn phase(&mut self) -> Option<&mut Phase> {
        self.phases.last_mut()
    }

    pub(crate) fn begin(&mut self, name: &'static str, now: u64, members: &Members) {
        let before = self.counters(members);
        self.phases.push(Phase {
            name,
            began: now,
            before,
            ..Phase::default()
        });
    }

    pub(crate) fn end(&mut self, now: u64, settled: bool, members: &Members) {
        let after = self.counters(members);
        if let Some(phase) = self.phase() {
            (phase.ended, phase.settled, phase.after) = (now, settled, after);
        }
    }

    fn counters(&self, members: &Members) -> Counters {
        Counters {
            events: self.events,
            conflicts: self.conflicts,
            refused: self.refused,
            member_events: self.member_events,
            member_bytes: self.member_bytes,
            map_writes: self.map_writes,
            map_conflicts: self.map_conflicts,
            sent: members.all.iter().map(|member| member.sent).sum(),
            cpu: members.all.iter().map(|member| member.cpu.served).sum(),
            ..self.now
        }
    }

    pub(crate) fn asked(&mut self, what: &What) {
        self.now.requests += 1;
        self.now.pages += u64::from(matches!(what, What::List { .. }));
    }

    pub(crate) fn asked_otherwise(&mut self) {
        self.now.requests += 1;
    }

    pub(crate) fn late(&mut self, kind: usize) {
        if kind == LIST {
            self.now.late_pages += 1;
        } else {
            self.now.late += 1;
        }
    }

    pub(crate) fn written(&mut self, revision: u64, keys: u64, now: u64, began: u64, missing: usize) {
        self.now.written += keys;
        self.now.transactions += 1;
        self.now.requests += 2;
        self.history += keys;
        debug_assert_eq!(revision, self.first + self.pending.len() as u64);
        let phase = self.phases.len().saturating_sub(1);
        self.pending.push_back(Pending {
            at: now,
            missing,
            latest: now,
            phase,
        });
        if let Some(phase) = self.phase() {
            phase.answered.push(now - began);
        }
        self.pop();
    }

    fn of(&mut self, after: u64, upto: u64) -> impl Iterator<Item = &mut Pending> {
        let from = place((after + 1).saturating_sub(self.first));
        let to = place((upto + 1).saturating_sub(self.first)).min(self.pending.len());
        self.pending.range_mut(from.min(to)..to)
    }

    /// A gateway's tables have everything up to a revision.
    pub(crate) fn told(&mut self, before: u64, upto: u64, at: u64) {
        for pending in self.of(before, upto) {
            pending.missing = pending.missing.saturating_sub(1);
            pending.latest = pending.latest.max(at);
        }
        self.pop();
    }

    /// A gateway cannot be told any more.
    pub(crate) fn away(&mut self, told: u64) {
        for pending in self.of(told, u64::MAX - 1) {
            pending.missing = pending.missing.saturating_sub(1);
        }
        self.pop();
    }

    /// One has caught up, and counts from now on.
    pub(crate) fn caught_up(&mut self, told: u64, time: u64) {
        for pending in self.of(told, u64::MAX - 1) {
            pending.missing += 1;
        }
        if let Some(phase) = self.phase() {
            phase.caught_up.push(time);
        }
    }

    fn pop(&mut self) {
        while self.pending.front().is_some_and(|pending| pending.missing == 0) {
            let Some(pending) = self.pending.pop_front() else { break };
            self.first += 1;
            if let Some(phase) = self.phases.get_mut(pending.phase) {
                phase.converged.push(pending.latest - pending.at);
            }
        }
    }

    pub(crate) fn compacted(&mut self, log: &Log, until: u64) {
        for revision in self.compacted + 1..=until {
            self.history -= log.change(revision).keys;
        }
        self.compacted = self.compacted.max(until);
    }

    /// Bytes of etcd's database.
    pub(crate) const fn database(&self, setup: &Setup) -> u64 {
        setup.keys() * setup.costs.key_database + self.history * setup.costs.change_database
    }

    pub(crate) fn second(&mut self, not_following: u64, backlog: u64, members: &Members, setup: &Setup) {
        self.now.not_following += not_following;
        let (now, last) = (self.counters(members), self.last);
        self.last = now;
        let (database, history) = (self.database(setup), self.history);
        let cores = setup.costs.members * setup.costs.cores;
        if let Some(phase) = self.phase() {
            let most = |peak: &mut u64, value: u64| *peak = value.max(*peak);
            most(&mut phase.peak_sent, now.sent - last.sent);
            most(&mut phase.peak_requests, now.requests - last.requests);
            most(
                &mut phase.peak_cpu,
                (now.cpu - last.cpu) * 100 / (SECOND * cores as u64),
            );
            most(&mut phase.peak_database, database);
            most(&mut phase.peak_history, history);
            most(&mut phase.peak_backlog, backlog);
        }
    }
}

/// The one that so many of a thousand are not above; the values are put in order.
pub(crate) fn quantile(values: &mut [u64], permille: usize) -> u64 {
    values.sort_unstable();
    match values.len() {
        0 => 0,
        count => values[(count - 1) * permille / 1000],
    }
}
