//! Time, and what is under way between a gateway and etcd.

use std::time::Duration;

pub(super) use super::etcd::Fault;
use super::etcd::{Etcd, Items};
use crate::fleet::FleetName;
use crate::fleet::item::Item;
use crate::fleet::key::Key;
use crate::fleet::sync::{Action, Failed, Input, Mark, Pages, Pair, Pulse, State, Sync, Tell, Timing};

/// What happens.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Write(Vec<(u8, Option<u64>)>),
    /// Revisions of somebody else's keys.
    Foreign(u64),
    Compact,
    /// The watch's connection breaks.
    Break,
    /// The watch says nothing any more.
    Stall,
    /// The watch's member hears nothing of the others any more.
    StayBehind,
    FailList,
    /// Events are late for a time.
    Late(Duration),
    /// There is no quorum for a time.
    CutOff(Duration),
    Wait(Duration),
    /// The gateway starts anew, with what it has put down.
    Restart,
}

#[derive(Debug)]
struct Stream {
    next: u64,
    told_it_began: bool,
    stalled: bool,
    /// The highest revision that its member knows.
    most: u64,
    answer_progress: bool,
}

pub(super) struct World {
    pub(super) etcd: Etcd,
    pub(super) sync: Sync,
    pub(super) now: Duration,
    pub(super) tables: Items,
    /// Whether these are as of one revision, and which.
    pub(super) mark: Option<u64>,
    pub(super) divergence: usize,
    pub(super) asked: usize,
    /// What was put down need not be what etcd held.
    pub(super) lenient: bool,
    stream: Option<Stream>,
    list: Option<(Duration, Pages)>,
    pub(super) pulse: Option<(Duration, Pulse)>,
    cut_off: Duration,
    late: Duration,
    fail_list: bool,
    random: u64,
}

const TICK: Duration = Duration::from_millis(10);

fn timing() -> Timing {
    Timing {
        compare: Duration::from_secs(10),
        ..Timing::default()
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            etcd: Etcd::new(),
            sync: Sync::new(timing(), seed, None, Duration::ZERO),
            now: Duration::ZERO,
            tables: Items::new(),
            mark: None,
            divergence: 0,
            asked: 0,
            lenient: false,
            stream: None,
            list: None,
            pulse: None,
            cut_off: Duration::ZERO,
            late: Duration::ZERO,
            fail_list: false,
            random: seed,
        }
    }

    fn chance(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Write(pairs) => self.etcd.write(&pairs),
            Step::Foreign(revisions) => self.etcd.revision += revisions,
            Step::Compact => self.etcd.compact(),
            Step::Break => {
                if self.stream.take().is_some() {
                    self.sync
                        .handle(self.now, Input::Ended(Failed::Other("it broke".to_owned())));
                }
            }
            Step::Stall => self.stream.iter_mut().for_each(|stream| stream.stalled = true),
            Step::StayBehind => {
                let most = self.etcd.revision;
                self.stream.iter_mut().for_each(|stream| stream.most = most);
            }
            Step::FailList => self.fail_list = true,
            // What progress runs ahead of is not as late as what is believed of it then.
            Step::Late(time) if self.etcd.progress_is_ahead => self.late = self.now + time.min(timing().settle / 2),
            Step::Late(time) => self.late = self.now + time,
            Step::CutOff(time) => self.cut_off = self.now + time,
            Step::Wait(time) => self.run(time),
            Step::Restart => {
                let mark = self.sync.mark().map(|mark| Mark {
                    revision: self.mark,
                    ..mark.clone()
                });
                let seed = self.chance(u64::MAX >> 33);
                self.sync = Sync::new(timing(), seed, mark, self.now);
                (self.stream, self.list, self.pulse) = (None, None, None);
            }
        }
        self.turn();
    }

    /// Nothing fails from now on.
    pub(super) fn calm(&mut self) {
        self.cut_off = self.now;
        self.late = self.now;
        self.fail_list = false;
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.answer();
        for _ in 0..1000 {
            let Some(action) = self.sync.poll(self.now) else {
                assert!(
                    self.sync.wake() > self.now,
                    "it would be asked again at once: {:?}",
                    self.sync
                );
                return;
            };
            self.act(action);
        }
        panic!("it does not come to rest: {:?}", self.sync);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Tell(tell) => self.tell(tell),
            Action::Unwatch => self.stream = None,
            Action::Watch(next) => {
                self.asked += 1;
                self.stream = Some(Stream {
                    next,
                    told_it_began: false,
                    stalled: false,
                    most: u64::MAX,
                    answer_progress: false,
                });
            }
            Action::Progress => {
                self.stream.iter_mut().for_each(|stream| stream.answer_progress = true);
            }
            Action::Pulse => {
                self.asked += 1;
                // As of now, told later.
                let pulse = Pulse {
                    revision: self.etcd.revision,
                    cluster: self.etcd.cluster,
                    fleet: self.etcd.fleet.as_deref().map(FleetName::read),
                };
                let late = Duration::from_millis(self.chance(40));
                self.pulse = Some((self.now + late, pulse));
            }
            Action::List(pages) => {
                self.asked += 1;
                let late = Duration::from_millis(self.chance(60));
                self.list = Some((self.now + late, pages));
            }
        }
    }

    fn answer(&mut self) {
        let now = self.now;
        if let Some((_, pulse)) = self.pulse.take_if(|(at, _)| *at <= now) {
            let pulse = if now < self.cut_off {
                Err("no quorum".to_owned())
            } else {
                Ok(pulse)
            };
            self.sync.handle(now, Input::Pulse(pulse));
        }
        let list = self.list.take_if(|(at, _)| *at <= now);
        if let Some((_, pages)) = list {
            let listed = if now < self.cut_off || std::mem::take(&mut self.fail_list) {
                Err(Failed::Other("no list".to_owned()))
            } else {
                self.etcd.list(&pages, 2)
            };
            self.sync.handle(now, Input::Listed(listed));
        }
        self.watch();
    }

    fn watch(&mut self) {
        let now = self.now;
        let ahead = self.etcd.progress_is_ahead;
        let events_come = self.chance(3) > 0 && now >= self.late;
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.stalled) else {
            return;
        };
        if !stream.told_it_began {
            stream.told_it_began = true;
            self.sync.handle(now, Input::Watching);
        }
        // Some at a time, as they come.
        let (mut pairs, mut behind): (Vec<Pair>, _) = (Vec::new(), !events_come);
        if events_come {
            loop {
                match self.etcd.events(stream.next) {
                    Ok(Some(events)) => {
                        let Some(revision) = events.first().map(|pair| pair.revision) else {
                            stream.next += 1;
                            continue;
                        };
                        if revision > stream.most {
                            break;
                        }
                        stream.next = revision + 1;
                        pairs.extend(events);
                        if pairs.len() > 3 {
                            behind = true;
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(failed) => {
                        self.stream = None;
                        self.sync.handle(now, Input::Ended(failed));
                        return;
                    }
                }
            }
        }
        let progress = (stream.answer_progress && (ahead || !behind)).then(|| self.etcd.revision.min(stream.most));
        if progress.is_some() {
            stream.answer_progress = false;
        }
        if !pairs.is_empty() {
            self.sync.handle(now, Input::Events(pairs));
        }
        if let Some(progress) = progress {
            self.sync.handle(now, Input::Progress(progress));
        }
    }

    fn tell(&mut self, tell: Tell) {
        let before = self.tables.clone();
        let compare = match tell {
            Tell::Begin => {
                self.mark = None;
                false
            }
            Tell::Items { items, compare } => {
                let is_of_list = self.mark.is_none() && !compare;
                let is_neighbors = |item: &Item| matches!(item, Item::Neighbors(..));
                assert!(
                    !is_of_list || items.iter().all(is_neighbors),
                    "groups and ports are told at once"
                );
                self.hold(items);
                compare
            }
            Tell::Policy { items, keep } => {
                assert_eq!(self.mark, None, "it is of a list");
                self.tables
                    .retain(|key, _| matches!(key, Key::Neighbors(_)) || keep.contains(key));
                self.hold(items);
                false
            }
            Tell::Sweep { keep, compare } => {
                self.tables.retain(|key, _| keep.contains(key));
                compare
            }
            Tell::Revision(revision) => {
                self.mark = Some(revision);
                if !self.lenient && self.etcd.fault.is_none() && self.divergence == 0 && !self.lost() {
                    assert_eq!(self.tables, self.etcd.at(revision), "at revision {revision}");
                }
                false
            }
        };
        if compare {
            let differs = |key: &&_| before.get(key) != self.tables.get(key);
            let keys: std::collections::BTreeSet<_> = before.keys().chain(self.tables.keys()).collect();
            self.divergence += keys.iter().filter(|key| differs(key)).count();
        }
    }

    fn hold(&mut self, items: Vec<Item>) {
        for item in items {
            match item.write() {
                None => _ = self.tables.remove(&item.key()),
                Some(_) => _ = self.tables.insert(item.key(), item),
            }
        }
    }

    /// An event was lost on purpose.
    fn lost(&self) -> bool {
        self.etcd.has_lost
    }

    pub(super) fn is_complete(&self) -> bool {
        self.tables == self.etcd.at(self.etcd.revision)
    }

    pub(super) fn assert_complete(&self) {
        assert_eq!(
            self.tables,
            self.etcd.at(self.etcd.revision),
            "{:?} {:?}",
            self.sync.state(self.now),
            self.sync
        );
        assert_ne!(self.sync.state(self.now), State::Behind);
    }
}
