//! The thread that keeps the fast path's caches, and does what is to be done now and then.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use ringside_gateway_core::decide::Cacheable;
use ringside_gateway_core::table::HostId;

use super::cache::{BATCH, Cache, Moved, Room};
use super::check::Check;
use super::growth::{Growth, GrowthThread};
use super::notices::About;
use super::pace::{self, Pace};
use super::settling::SETTLED;
use super::worker::{Shared, now};
use super::worker_status::WorkerStatus;
use super::{connections, renew};
use crate::model::Tables;

/// What is to be done now and then is done so often.
const TICK: Duration = Duration::from_secs(1);
/// All neighbours are looked through for those of hosts whose MAC addresses were found out; the next time begins so much later.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// A look is as long as that, and goes on after others had their turn: of ten million neighbours it takes a second or so.
const LONGEST_LOOK: Duration = Duration::from_millis(2);
/// Between two parts of it, and of what is looked through when networks change hands: others want the cache as well.
const BETWEEN_PARTS: Duration = Duration::from_millis(2);

pub(super) struct Keeper {
    pub(super) tables: Arc<Tables>,
    pub(super) shared: Arc<Shared>,
    pub(super) cache: Arc<Mutex<Cache>>,
    pub(super) workers: Arc<[WorkerStatus]>,
    pub(super) cacheable: Receiver<(Cacheable, u64)>,
    /// Hosts whose MAC addresses are others than they were.
    pub(super) hosts: Receiver<HostId>,
    pub(super) growth: Arc<Growth>,
}

impl Keeper {
    pub(super) fn run(self) {
        let (mut ticked, mut looked) = (Instant::now(), Instant::now());
        let mut synchronise = Pace::steady(pace::of_connections(&self.tables.conntrack), ticked);
        let mut moved: Option<Moved> = None;
        let mut check = Check::new(ticked);
        let (mut marks, mut growth) = (false, GrowthThread::default());
        let (mut settles, mut held) = (false, 0);
        // Since the last tick.
        let mut is_failing = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let pause = match (marks || settles || moved.is_some(), self.hosts.is_empty()) {
                (true, _) => BETWEEN_PARTS,
                (false, true) => TICK / 10,
                (false, false) => BETWEEN_LOOKS,
            };
            match self.cacheable.recv_timeout(pause) {
                Ok(first) => {
                    if let Err(error) = self.take(first) {
                        is_failing = true;
                        let problem = format!("the fast path takes no connections, workers do: {error}");
                        self.shared.notices.tell(About::Caches, Some(problem));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if moved.is_none() && !self.hosts.is_empty() && looked.elapsed() >= BETWEEN_LOOKS {
                moved = Some(Moved::new(self.hosts.try_iter()));
            }
            if let Some(hosts) = &mut moved {
                self.follow(hosts);
                if hosts.is_done() {
                    moved = None;
                    looked = Instant::now();
                }
            }
            settles = self.settle(&mut held).unwrap_or_else(|error| {
                is_failing = true;
                let problem = format!("the fast path does not check new TCP connections: {error}");
                self.shared.notices.tell(About::Caches, Some(problem));
                false
            });
            marks = self.cache().mark().unwrap_or_else(|error| {
                tracing::warn!(%error, "packets cannot be let into the straight lane again");
                false
            });
            // Not while entries wait for what their hosts are reached by now.
            if check.is_due(Instant::now()) && moved.is_none() && self.hosts.is_empty() {
                self.cache().check(&mut check, Instant::now());
            }
            if ticked.elapsed() >= TICK {
                let since = ticked.elapsed();
                ticked = Instant::now();
                warn("what is to be done every second", self.tick(since));
                growth.start_if_due(&self.growth, ticked);
                if !std::mem::take(&mut is_failing) {
                    self.shared.notices.tell(About::Caches, None);
                }
                // Time-outs may be others by now.
                synchronise.hasten(pace::of_connections(&self.tables.conntrack), ticked);
            }
            let begun = Instant::now();
            if synchronise.is_due(begun) {
                let program = Arc::clone(&self.cache().program);
                let done = connections::synchronise(&program, &self.tables.conntrack, &self.shared.epochs);
                let done = done.map(|entries| self.cache().handed.entries = entries);
                warn("connections cannot be told what was sent on", done);
                synchronise.done(begun, Instant::now());
            }
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles numbers of TCP, but not while a worker that was held up may have packets from before
    /// they were put: until `held`. Returns whether there may be more of them.
    fn settle(&self, held: &mut u64) -> Result<bool> {
        let now = now();
        if !may_settle(&self.workers, held, now) {
            return Ok(false);
        }
        let mut cache = self.cache();
        let program = Arc::clone(&cache.program);
        cache.handed.settling.settle(&program, &self.tables.conntrack, now)
    }

    /// What workers have found.
    fn take(&self, first: (Cacheable, u64)) -> Result<()> {
        let (mut addresses, mut open) = (Vec::new(), Vec::new());
        let more = self.cacheable.try_iter().take(BATCH);
        for (found, epoch) in std::iter::once(first).chain(more) {
            match found {
                // Workers let go of what has ended.
                Cacheable::Nothing | Cacheable::Ended(_) => {}
                Cacheable::Neighbor(address) => addresses.push(address),
                Cacheable::Connection { connection, .. } => open.push((connection, epoch)),
            }
        }
        // No epoch begins as long as somebody has the lock.
        let mut cache = self.cache();
        if cache.lacks_some() {
            let both = open.iter().filter_map(|(id, _)| self.tables.conntrack.find(*id));
            addresses.extend(both.flat_map(|connection| connection.ends()));
        }
        addresses.sort_unstable();
        addresses.dedup();
        // As it was found last.
        open.sort_unstable_by_key(|(id, epoch)| (id.to_bits(), Reverse(*epoch)));
        open.dedup_by_key(|(id, _)| *id);
        cache.refresh(&addresses, Room::Made);
        let program = Arc::clone(&cache.program);
        let at = (&self.shared.epochs, now());
        cache.handed.hand_over(&program, &self.tables.conntrack, open, at)
    }

    /// Looks on for neighbours of hosts whose MAC addresses have changed.
    fn follow(&self, moved: &mut Moved) {
        let begun = Instant::now();
        while !moved.is_done() && begun.elapsed() < LONGEST_LOOK {
            let addresses = moved.next(&self.tables.neighbors);
            if !addresses.is_empty() {
                self.cache().refresh(&addresses, Room::Kept);
            }
        }
    }

    fn tick(&self, since: Duration) -> Result<()> {
        self.tables.conntrack.sweep(now());
        for worker in &*self.workers {
            worker.measure(since);
        }
        let mut cache = self.cache();
        renew(&cache.program, &self.shared)?;
        let program = Arc::clone(&cache.program);
        let at = (&self.shared.epochs, now());
        cache.handed.relieve(&program, &self.tables.conntrack, at)?;
        cache.count_foreign()
    }
}

/// Returns whether no worker was held up in the time in which numbers settle. Sets until when the
/// packets of one that is may come.
fn may_settle(workers: &[WorkerStatus], held: &mut u64, now: u64) -> bool {
    if workers.iter().any(|worker| worker.is_held_up(now)) {
        *held = now + SETTLED;
    }
    now >= *held
}

fn warn(what: &str, done: Result<()>) {
    if let Err(error) = done {
        tracing::warn!(%error, "{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It reads packets from before in its next turn.
    #[test]
    fn numbers_do_not_settle_until_a_second_after_a_worker_was_held_up() {
        let workers = [WorkerStatus::new(), WorkerStatus::new()];
        let (mut held, begun) = (0, 10 * SETTLED);
        assert!(may_settle(&workers, &mut held, begun), "none runs");
        let turn = |at| workers[1].seen.store(at, Ordering::Relaxed);
        turn(begun);
        assert!(may_settle(&workers, &mut held, begun + SETTLED / 2 - 1));
        let late = begun + SETTLED / 2;
        assert!(!may_settle(&workers, &mut held, late));
        turn(late);
        assert!(!may_settle(&workers, &mut held, late + SETTLED / 4));
        turn(late + SETTLED - 1);
        assert!(!may_settle(&workers, &mut held, late + SETTLED - 1));
        assert!(may_settle(&workers, &mut held, late + SETTLED));
        workers[1].end();
        assert!(may_settle(&workers, &mut held, late + 9 * SETTLED), "it has ended");
    }
}
