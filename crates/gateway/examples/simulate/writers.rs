//! Changes on their way into etcd: some gateways take what a controller tells them, and write as the real writer does: up to 128 keys
//! a transaction, up to eight at a time, the next ones when these are made.

use super::costs::{OPERATIONS, SECOND};
use super::server::{Ask, What};
use super::world::{Event, Setup, World};

/// Gateways that changes are told to. Assumed.
const WRITERS: usize = 4;
const UNDER_WAY: u64 = 8;
/// What a controller gathers before it tells it. Assumed.
const PAUSE: u64 = SECOND / 20;

/// What becomes a transaction.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) writer: usize,
    pub(crate) keys: u64,
    /// As of which revision its keys were read.
    read: u64,
    began: u64,
    /// In which turn its gateway asked for it.
    pub(crate) turn: u64,
}

#[derive(Debug)]
pub(crate) struct Writer {
    gateway: usize,
    /// Changes that wait, in millionths.
    waiting: u64,
    counted: u64,
    under_way: u64,
}

#[derive(Debug)]
pub(crate) struct Writers {
    all: Vec<Writer>,
    /// Changes a second of each, in millionths.
    rate: u64,
    waits_for_disk: Vec<Part>,
    flushing: bool,
    /// When what is to be applied is.
    applied: u64,
    /// Nothing more is told.
    pub(crate) stopped: bool,
}

impl Writers {
    pub(crate) fn new(setup: &Setup) -> Self {
        let count = WRITERS.min(setup.gateways);
        let writer = |number| Writer {
            gateway: number * setup.gateways / count,
            waiting: 0,
            counted: SECOND,
            under_way: 0,
        };
        Self {
            all: (0..count).map(writer).collect(),
            rate: setup.churn * 1_000_000 / count as u64,
            waits_for_disk: Vec::new(),
            flushing: false,
            applied: 0,
            stopped: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Changes that wait to be written.
    pub(crate) fn waiting(&self) -> u64 {
        self.all.iter().map(|writer| writer.waiting / 1_000_000).sum()
    }
}

impl World {
    pub(crate) fn cycle(&mut self, number: usize) {
        let now = self.now;
        let writer = &mut self.writers.all[number];
        let passed = now - writer.counted;
        let more = u128::from(passed) * u128::from(self.writers.rate) / u128::from(SECOND);
        writer.waiting += u64::try_from(more).unwrap_or(0);
        writer.counted = now;
        let keys = (writer.waiting / 1_000_000).min(OPERATIONS * UNDER_WAY);
        let gateway = &self.gateways[writer.gateway];
        let can = gateway.up && !gateway.cut && gateway.is_following(now);
        if keys == 0 || !can || self.writers.stopped {
            return self.after(PAUSE, Event::Cycle(number));
        }
        let writer = &mut self.writers.all[number];
        writer.waiting -= keys * 1_000_000;
        writer.under_way = keys.div_ceil(OPERATIONS);
        let gateway = writer.gateway;
        let mut left = keys;
        while left > 0 {
            let part = Part {
                writer: number,
                keys: left.min(OPERATIONS),
                read: self.log.revision(),
                began: now,
                turn: self.gateways[gateway].turns(),
            };
            left -= part.keys;
            self.ask(Ask {
                gateway,
                kind: 0,
                tag: 0,
                what: What::Read(part),
            });
        }
    }

    /// Whom it was asked of has no answer: another one is asked, later.
    pub(crate) fn give_back(&mut self, part: Part) {
        let gateway = self.writers.all[part.writer].gateway;
        self.gateways[gateway].turn_from(part.turn, self.now);
        self.put_off(part);
    }

    fn put_off(&mut self, part: Part) {
        self.writers.all[part.writer].waiting += part.keys * 1_000_000;
        self.ended(part.writer, SECOND / 2);
    }

    fn ended(&mut self, number: usize, pause: u64) {
        let writer = &mut self.writers.all[number];
        writer.under_way -= 1;
        if writer.under_way == 0 {
            self.after(pause, Event::Cycle(number));
        }
    }

    pub(crate) fn propose(&mut self, part: Part) {
        if !self.members.has_quorum(self.now) {
            return self.give_back(part);
        }
        self.writers.waits_for_disk.push(part);
        self.flush();
    }

    fn flush(&mut self) {
        if self.writers.flushing || self.writers.waits_for_disk.is_empty() {
            return;
        }
        self.writers.flushing = true;
        let parts = std::mem::take(&mut self.writers.waits_for_disk);
        let costs = &self.setup.costs;
        // The leader's disk and the quickest follower's, at the same time but for the way there.
        let time = costs.sync + 2 * costs.way;
        self.after(time, Event::Flushed(self.members.term, parts));
    }

    pub(crate) fn flushed(&mut self, term: u64, parts: Vec<Part>) {
        self.writers.flushing = false;
        for part in parts {
            if term != self.members.term {
                self.give_back(part);
                continue;
            }
            let costs = &self.setup.costs;
            let cost = costs.transaction / 2 + part.keys * costs.transaction_key / 2;
            self.writers.applied = self.writers.applied.max(self.now) + cost;
            self.at(self.writers.applied, Event::Apply(part));
        }
        self.flush();
    }

    /// One after the other.
    #[allow(clippy::cast_precision_loss, reason = "a probability")]
    pub(crate) fn apply(&mut self, mut part: Part) {
        let now = self.now;
        let others: u64 = (part.read + 1..=self.log.revision())
            .map(|revision| self.log.change(revision).keys)
            .sum();
        let expected = (others * part.keys) as f64 / self.setup.keys() as f64;
        if self.random.part() < expected {
            self.measure.conflicts += 1;
            part.read = self.log.revision();
            return self.after(4 * self.setup.costs.way, Event::Propose(part));
        }
        if self.measure.database(&self.setup) > self.setup.quota {
            self.measure.refused += 1;
            return self.put_off(part);
        }
        let cells = self.log.cells() as usize;
        let mut changed = vec![0; if self.random.below(8) == 0 { 3 } else { 1 }];
        for cell in &mut changed {
            *cell = u32::try_from(self.random.below(cells)).unwrap_or(0);
        }
        let revision = self.log.write(&changed, part.keys, now);
        let present = self.gateways.iter().filter(|gateway| gateway.present).count();
        self.measure.written(revision, part.keys, now, part.began, present);
        self.note([revision, part.keys, now]);
        self.ended(part.writer, PAUSE);
    }
}
