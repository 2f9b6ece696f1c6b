//! A gateway: the very machine by which the real one follows etcd, tables of cells, and the time that tables take.

use std::collections::VecDeque;
use std::time::Duration;

use ringside_gateway::fleet::FleetName;
use ringside_gateway::fleet::item::Item;
use ringside_gateway::fleet::order::Order;
use ringside_gateway::fleet::sync::{Action, Counts, Failed, Input, Mark, State, Sync, Tell, Timing};
use ringside_gateway::object::Statement;
use ringside_gateway_core::table::Neighbors;

use super::costs::{Costs, OF_KEY};
use super::log::{Log, cell_of, digest_of, key_of};

/// What waits between the machine and the tables in the real gateway.
const AHEAD: usize = 2;

/// What is asked of etcd, one of each at a time, as in the real gateway.
pub(crate) const LIST: usize = 0;
pub(crate) const PULSE: usize = 1;
pub(crate) const WATCH: usize = 2;

/// A watch, as etcd's member has it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) member: usize,
    /// The next revision to be told.
    pub(crate) next: u64,
    pub(crate) under_way: bool,
    pub(crate) asks_progress: bool,
}

/// Something that has come, and the keys that it is about in truth.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) kind: usize,
    pub(crate) tag: u64,
    pub(crate) input: Input,
    pub(crate) keys: u64,
}

impl Heard {
    /// The member did not answer, or that it cannot.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(
            self.input,
            Input::Pulse(Err(_)) | Input::Listed(Err(Failed::Other(_))) | Input::Ended(Failed::Other(_))
        )
    }
}

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) sync: Sync,
    pub(crate) up: bool,
    /// Off from etcd.
    pub(crate) cut: bool,
    /// Off from this member of it alone.
    pub(crate) cut_from: Option<usize>,
    pub(crate) tags: [u64; 3],
    /// In which turn each of these was asked.
    pub(crate) asked: [u64; 3],
    /// How often another of etcd's members was turned to, and in which order, as the real one's door has it.
    turns: u64,
    /// When that was.
    turned: u64,
    order: Order,
    /// What of that was answered.
    pub(crate) answered: [u64; 3],
    pub(crate) stream: Option<Stream>,
    pub(crate) inbox: VecDeque<Heard>,
    /// When it is to be looked at next; others are no longer meant.
    pub(crate) wake: u64,
    /// For when that was noted.
    pub(crate) noted: u64,
    /// All revisions up to this one are in its tables, from this time on.
    pub(crate) applied: (u64, u64),
    /// Its convergence counts: it lives, is not cut off, and has caught up since.
    pub(crate) present: bool,
    /// Since when it has been able to catch up, and to what.
    pub(crate) healed: Option<(u64, u64)>,
    pub(crate) compared_before: u64,
    pub(crate) counts_before: Counts,
    /// Cells that a comparison found other than they had to be.
    pub(crate) divergences: u64,
    pub(crate) received: u64,
    waited: u64,
    /// Since when it waits for its tables.
    blocked: Option<u64>,
    /// When the tables have done what they were told.
    busy: u64,
    told: VecDeque<u64>,
    /// Time that the sweep of a comparison still takes.
    sweep: u64,
    versions: Vec<u32>,
    digest: u64,
    /// What the tables are as of; None: of no one revision.
    mark: Option<u64>,
    keys: u64,
    /// Of a cell.
    networks: u32,
}

pub(crate) fn fleet_mark(revision: Option<u64>) -> Mark {
    Mark {
        cluster: 1,
        fleet: FleetName::read(b"ringside-gateway fleet, schema 1, 0123456789abcdef"),
        revision,
        has_unread: false,
    }
}

/// A rule of the real thing that was broken: the program ends with it.
pub(crate) fn broken(what: &str) -> ! {
    panic!("an invariant is broken: {what}")
}

impl Gateway {
    /// With a copy as of revision 1.
    pub(crate) fn new((timing, pages): (Timing, u32), seed: u64, cells: u32, networks: u32) -> Self {
        Self {
            sync: Sync::new(timing, seed, Some(fleet_mark(Some(1))), Duration::ZERO).with_pages(pages),
            up: true,
            cut: false,
            cut_from: None,
            tags: [0; 3],
            asked: [0; 3],
            turns: 0,
            turned: 0,
            order: Order::new(seed),
            answered: [0; 3],
            stream: None,
            inbox: VecDeque::new(),
            wake: 0,
            noted: 0,
            applied: (1, 0),
            present: true,
            healed: None,
            compared_before: 0,
            counts_before: Counts::default(),
            divergences: 0,
            received: 0,
            waited: 0,
            blocked: None,
            busy: 0,
            told: VecDeque::new(),
            sweep: 0,
            versions: vec![1; cells as usize],
            digest: (0..cells).fold(0, |digest, cell| digest ^ digest_of(cell, 1)),
            mark: Some(1),
            keys: 0,
            networks,
        }
    }

    /// Starts anew, with its copy or without.
    pub(crate) fn start(&mut self, (timing, pages): (Timing, u32), seed: u64, copy: bool, now: u64) {
        self.stop();
        if !copy {
            self.versions.fill(0);
            (self.digest, self.mark) = (0, None);
        }
        self.up = true;
        (self.turns, self.turned, self.order) = (0, now, Order::new(seed));
        (self.waited, self.blocked, self.busy, self.sweep) = (0, None, now, 0);
        self.applied = (self.mark.unwrap_or(0), now);
        let mark = self.mark.map(|revision| fleet_mark(Some(revision)));
        self.sync = Sync::new(timing, seed, mark, Duration::from_nanos(now)).with_pages(pages);
        (self.counts_before, self.compared_before) = (Counts::default(), 0);
    }

    pub(crate) fn stop(&mut self) {
        self.up = false;
        self.stream = None;
        self.tags.iter_mut().for_each(|tag| *tag += 1);
        self.inbox.clear();
        self.told.clear();
        self.wake = u64::MAX;
    }

    /// Whom of etcd's members it asks now.
    pub(crate) fn member(&self, members: usize) -> usize {
        self.order.place(self.turns, members)
    }

    pub(crate) const fn turns(&self) -> u64 {
        self.turns
    }

    /// Who was asked in this turn did not answer: from now on another one is asked, unless that is so already.
    pub(crate) const fn turn_from(&mut self, turn: u64, now: u64) {
        if self.turns == turn {
            (self.turns, self.turned) = (self.turns + 1, now);
        }
    }

    /// True: from now on its first member is asked again.
    pub(crate) fn turns_back(&mut self, members: usize, now: u64, most: Duration) -> bool {
        let since = Duration::from_nanos(now - self.turned);
        let back = self.order.back(self.turns, members, since, most);
        if let Some(turns) = back {
            (self.turns, self.turned) = (turns, now);
        }
        back.is_some()
    }

    /// Time that passes for the machine: not while the tables are waited for.
    fn local(&self, now: u64) -> Duration {
        Duration::from_nanos(self.blocked.unwrap_or(now) - self.waited)
    }

    pub(crate) fn state(&self, now: u64) -> State {
        self.sync.state(self.local(now))
    }

    pub(crate) fn is_following(&self, now: u64) -> bool {
        self.up && self.state(now) == State::Following
    }

    /// The next thing to do. None: nothing before [`Gateway::wake`].
    pub(crate) fn turn(&mut self, now: u64, costs: &Costs, log: &Log, of_cell: u64) -> Option<Action> {
        loop {
            while self.told.front().is_some_and(|done| *done <= now) {
                self.told.pop_front();
            }
            if self.told.len() >= AHEAD {
                // It waits for its tables, and that is not etcd's silence.
                let until = self.told.front().copied().unwrap_or(now);
                self.wake = until;
                self.blocked.get_or_insert(now);
                return None;
            }
            if let Some(since) = self.blocked.take() {
                self.waited += now - since;
            }
            if let Some(action) = self.sync.poll(self.local(now)) {
                match action {
                    Action::Tell(tell) => self.tell(tell, now, costs, log, of_cell),
                    other => return Some(other),
                }
                continue;
            }
            let Some(heard) = self.inbox.pop_front() else {
                let wake = nanoseconds(self.sync.wake()).saturating_add(self.waited);
                self.wake = wake.max(now + 1_000_000);
                return None;
            };
            if self.tags[heard.kind] == heard.tag {
                self.keys = heard.keys;
                self.sync.handle(self.local(now), heard.input);
            }
        }
    }

    fn tell(&mut self, tell: Tell, now: u64, costs: &Costs, log: &Log, of_cell: u64) {
        // Each neighbour is looked at, part by part, in what time others leave.
        let whole = self.versions.len() as u64 * of_cell * OF_KEY * costs.compare;
        self.sweep = self.sweep.saturating_sub(now.saturating_sub(self.busy));
        let mut cost = 0;
        match tell {
            Tell::Begin => self.mark = None,
            Tell::Items { items, compare } => {
                let is_event = !compare && self.mark.is_some();
                let keys = if is_event {
                    self.keys
                } else {
                    items.len() as u64 * of_cell
                };
                let mut changed = 0;
                for item in &items {
                    let (cell, version) = cell_and_version(item, self.networks);
                    let known = u64::from(self.versions[cell as usize]);
                    if version < known {
                        broken("a gateway went back to an older state");
                    }
                    if compare && version != known {
                        self.divergences += 1;
                    }
                    // Of the keys that a cell stands for no more have changed than changes were told of.
                    let most = if known == 0 { of_cell * OF_KEY } else { of_cell };
                    changed += ((version - known) * self.mean_keys(log)).min(most);
                    self.set(cell, version);
                }
                let changed = if is_event { keys } else { changed };
                cost = changed * costs.apply + (keys * OF_KEY).saturating_sub(changed) * costs.compare;
            }
            Tell::Policy { items, .. } if items.is_empty() => {}
            Tell::Policy { .. } => broken("a gateway was told of groups and ports, of which there are none"),
            Tell::Sweep { keep, compare } => {
                for cell in 0..u32::try_from(self.versions.len()).unwrap_or(u32::MAX) {
                    if self.versions[cell as usize] > 0 && !keep.contains(&key_of(cell, self.networks)) {
                        self.divergences += u64::from(compare);
                        self.set(cell, 0);
                    }
                }
                if compare {
                    self.sweep = whole;
                } else {
                    // What comes then does not wait for it, but is of no revision before its end.
                    cost = whole;
                }
            }
            Tell::Revision(revision) => {
                if self.mark.is_some_and(|mark| revision < mark) {
                    broken("a gateway was told of an older revision");
                }
                if self.digest != log.change(revision).digest {
                    broken("the tables are other than etcd at the revision that they were told of");
                }
                self.mark = Some(revision);
                self.applied = (revision, self.busy.max(now));
            }
        }
        if cost > 0 {
            // As long as that takes, and a part at least.
            let share = self.sweep.min(cost.max(whole / Neighbors::PARTS as u64));
            self.sweep -= share;
            self.busy = self.busy.max(now) + cost + share;
            self.told.push_back(self.busy);
        }
    }

    fn mean_keys(&self, log: &Log) -> u64 {
        log.change(log.revision()).keys.max(1)
    }

    fn set(&mut self, cell: u32, version: u64) {
        let known = &mut self.versions[cell as usize];
        self.digest ^= digest_of(cell, u64::from(*known)) ^ digest_of(cell, version);
        *known = u32::try_from(version).unwrap_or(u32::MAX);
    }

    /// Whether it holds just what etcd does.
    pub(crate) fn is_complete(&self, log: &Log) -> bool {
        self.digest == log.change(log.revision()).digest
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn cell_and_version(item: &Item, networks: u32) -> (u32, u64) {
    let entry = match item {
        Item::Neighbors(_, entries) => entries.first(),
        _ => None,
    };
    match entry.map(|entry| &entry.statement) {
        Some(Statement::Put(neighbor)) => (cell_of(neighbor.address, networks), neighbor.version),
        _ => broken("something else than a cell was told of"),
    }
}
