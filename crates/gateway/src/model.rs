//! Store, tables in memory and watchers, kept together by two threads, one behind the other.
//!
//! ```text
//!  API ──changes──▶ queue ──▶ writer: store ──committed──▶ applier: tables ─▶ data path ─▶ watchers ─▶ answers
//!  API ◀──objects── Readers (SQLite, what is committed)    workers ◀── Neighbors, Hosts, Policy (no locks)
//!
//! With a fleet the truth is in etcd, and other threads stand at the writer's place ([`crate::fleet`]); the store is a copy:
//!
//!  API ──changes──▶ queue ──▶ transactions ──▶ etcd ──watch──▶ applier: tables ─▶ data path ─▶ watchers ─▶ copy ─▶ answers
//! ```
//! Everything that waits in the queue goes into one transaction (group commit). Only what is on the disk comes into the
//! tables, and only what is in the tables is answered: who has an answer sees packets go by it, and so does a restart.
//! Store and tables take a change by the same rule (a higher version), one after the other, so they cannot differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ringside_gateway_core::Vni;
use ringside_gateway_core::conntrack::{Conntrack, Limits};
use ringside_gateway_core::policy::Policy;
use ringside_gateway_core::table::{Bindings, Hosts, Neighbors};
use tokio::sync::{broadcast, mpsc, oneshot};

mod applier;
mod book;
mod copy;
mod fleet;
mod foreign;
mod health;
mod path;
mod read;
pub(crate) mod rule;
mod steady;
mod sweep;
mod timings;
mod watch;
mod writer;

pub(crate) use applier::Done;
pub use applier::Unstored;
pub(crate) use book::Made;
pub use foreign::Foreign;
pub use health::Health;
pub use path::{
    CacheCounters, CannotTrace, Counters, DataPath, DirectCounters, Drops, NoDataPath, PathCounters, PathSettings,
    TraceFilter, Traced, UnreachableHost, WorkerLoad,
};
pub use read::Readers;
pub(crate) use steady::{Steady, forget_every};
pub use timings::Timings;
pub use watch::{TooSlow, Watcher};

use crate::object::Change;
use crate::store::{Loaded, Store, StoreError};
use book::Book;
use watch::Published;

/// What the data path reads. Workers take readers of these, and never wait.
#[derive(Debug)]
pub struct Tables {
    /// Where every address lives.
    pub neighbors: Neighbors,
    /// The hosts that neighbours name.
    pub hosts: Hosts,
    /// What is bound to addresses, neighbours or not.
    pub bindings: Bindings,
    /// Security groups and what they allow.
    pub policy: Policy,
    /// Connections.
    pub conntrack: Arc<Conntrack>,
    /// Networks that are other gateways'.
    pub foreign: Arc<Foreign>,
    ports: AtomicUsize,
    groups: AtomicUsize,
    tombstones: AtomicUsize,
    draining: AtomicBool,
    /// Ports may be missing, so addresses without one may do nothing.
    closed: AtomicBool,
    connection_limit: u32,
}

impl Tables {
    /// Empty ones.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            connection_limit: limits.connections,
            neighbors: Neighbors::new(),
            hosts: Hosts::new(),
            bindings: Bindings::new(),
            policy: Policy::new(),
            conntrack: Arc::new(Conntrack::new(limits)),
            foreign: Arc::new(Foreign::new()),
            ports: AtomicUsize::new(0),
            groups: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// True if groups are bound to some address, so that senders have to be looked up, too.
    #[must_use]
    pub fn has_policy(&self) -> bool {
        self.ports() > 0 || self.closed.load(Ordering::Relaxed)
    }

    /// True if groups are bound to some address of this network.
    #[must_use]
    pub fn is_policed(&self, vni: Vni) -> bool {
        self.bindings.is_policed(vni)
    }

    /// How many ports are known.
    #[must_use]
    pub fn ports(&self) -> usize {
        self.ports.load(Ordering::Relaxed)
    }

    /// How many security groups are known.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.load(Ordering::Relaxed)
    }

    /// How many deleted objects are remembered.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// How many connections there may be.
    #[must_use]
    pub const fn connection_limit(&self) -> u32 {
        self.connection_limit
    }

    /// True while the gateway is to be taken out of service.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The object is new.
    Created,
    /// It was there in an older version.
    Replaced,
    /// It is gone now.
    Deleted,
    /// It was so already.
    Unchanged,
    /// Something newer is known.
    Older,
    /// Something else is known under the same version.
    Conflict,
    /// There was nothing to delete.
    NotFound,
}

impl Outcome {
    /// True if something is other than it was.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Created | Self::Replaced | Self::Deleted)
    }
}

/// Why a change was not made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store cannot be written now.
    #[error("nothing can be changed now: {0}")]
    ReadOnly(Arc<str>),
    /// The answer to it was lost, or a part of it failed.
    #[error("it is not known whether all of it was changed ({0}): send it again, which does no harm")]
    Unknown(Arc<str>),
    /// The gateway ends.
    #[error("nothing can be changed any more: the gateway is being stopped")]
    Stopping,
}

/// How long what is deleted is remembered, how many changes may wait, and so on.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// How long versions of deleted objects are remembered.
    pub tombstones: Duration,
    /// Called with each part of the state that is known, before the data path is started: a start may take long, and somebody may
    /// wait for a sign.
    pub working: Working,
}

/// What is done with each sign that something goes on.
#[derive(Clone)]
pub struct Working(Arc<dyn Fn() + Send + Sync>);

impl Working {
    /// This is done.
    pub fn new(sign: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(sign))
    }

    pub(crate) fn sign(&self) {
        (self.0)();
    }
}

impl Default for Working {
    /// Nothing is.
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl std::fmt::Debug for Working {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Working").finish_non_exhaustive()
    }
}

impl Default for ModelOptions {
    /// Seven days.
    fn default() -> Self {
        Self {
            tombstones: Duration::from_secs(7 * 24 * 3600),
            working: Working::default(),
        }
    }
}

/// Where the answer to a change goes.
pub(crate) type Answer = oneshot::Sender<Result<Vec<Outcome>, WriteError>>;

/// Transactions that may be on the disk and not in the tables: the writer is the slower one, but for its waits.
const AHEAD: usize = 2;

/// Batches of a store that were read and are not in the tables yet.
const READ_AHEAD: usize = 8;

/// Requests that may wait for the writer; more wait with their callers.
const QUEUE: usize = 64;

/// Packets that wait for whoever traces them.
const TRACED: usize = 1024;

/// What the writer is asked.
#[derive(Debug)]
pub(crate) enum Job {
    Write {
        changes: Vec<Change>,
        answer: Answer,
    },
    /// Whether it is alive; and a moment for what is to be done now and then.
    Tick(oneshot::Sender<()>),
    /// Nothing that was lost is missing any more. Says what was, and of how many addresses without a port that opens.
    Repaired(oneshot::Sender<Result<Repaired, WriteError>>),
    Options(ModelOptions),
}

/// What came of it that somebody said that nothing is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repaired {
    /// What was told to be missing until now.
    pub missing: Vec<String>,
    /// Addresses without a port, which might do nothing until now.
    pub opened: usize,
    /// Keys of etcd that were written again.
    pub keys_written: usize,
}

/// Changes that wait for the writer, or were made.
#[derive(Debug)]
pub struct Submitted(oneshot::Receiver<Result<Vec<Outcome>, WriteError>>);

impl Submitted {
    /// Waits until they are on the disk and in the tables.
    ///
    /// # Errors
    /// [`WriteError`]; nothing has changed then, but for [`WriteError::Unknown`].
    pub async fn outcomes(self) -> Result<Vec<Outcome>, WriteError> {
        Self::answered(self.0).await
    }

    async fn answered<T>(answer: oneshot::Receiver<Result<T, WriteError>>) -> Result<T, WriteError> {
        let ended = |_| WriteError::Unknown("the gateway has ended meanwhile".into());
        answer.await.map_err(ended)?
    }
}

/// A handle to everything the control plane knows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Model {
    tables: Arc<Tables>,
    jobs: mpsc::Sender<Job>,
    changes: broadcast::Sender<Arc<Published>>,
    readers: Arc<Readers>,
    health: Arc<Health>,
    timings: Timings,
    path: Arc<dyn DataPath>,
}

impl Model {
    /// Loads a store into tables, then starts the data path with them, then the threads that change them.
    ///
    /// The thread that is returned ends when the last [`Model`] is dropped, with everything written and
    /// applied that was taken.
    ///
    /// # Errors
    /// Those of [`StoreError`], and what starting the data path fails with.
    pub fn start<E: From<StoreError>>(
        mut store: Store,
        limits: Limits,
        options: ModelOptions,
        start_path: impl FnOnce(&Arc<Tables>) -> Result<Arc<dyn DataPath>, E>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), E> {
        let tables = Arc::new(Tables::new(limits));
        let mut book = Book::new(Arc::clone(&tables));
        let began = Instant::now();
        let loaded = fill(&mut book, &mut store, |_| options.working.sign())?;
        report(&loaded, began.elapsed());
        if store.may_lack_ports()? {
            book.close();
        }
        let health = Health::new(store.problems().to_vec(), store.revision()?, store.bytes());
        let health = Arc::new(health.lacking(store.missing()?));
        let readers = Arc::new(Readers::new(&store)?);
        let path = start_path(&tables)?;
        book.set_path(Arc::clone(&path));
        let timings = Timings::new();
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (changes, _) = broadcast::channel(watch::BATCHES);
        let (done, committed) = mpsc::channel(AHEAD);
        let writer = writer::Writer {
            clock: Steady::at(store.clock()?.unwrap_or_else(now)),
            store,
            options,
            health: Arc::clone(&health),
            timings: timings.clone(),
            done,
        };
        let applier = applier::Applier::new(book, timings.clone(), changes.clone(), None);
        let writer = spawn("store", move || writer.run(queue));
        let thread = spawn("tables", move || {
            applier.run(committed);
            // It has ended, for nobody else ends what is received; unless it panicked.
            writer.join().expect("the store's thread does not panic");
        });
        let model = Self {
            tables,
            jobs,
            changes,
            readers,
            health,
            timings,
            path,
        };
        Ok((model, thread))
    }

    /// Makes changes, in order, all or none of them, and says what became of each once they are on the disk and in the
    /// tables.
    ///
    /// # Errors
    /// [`WriteError`]; nothing has changed then, but for [`WriteError::Unknown`].
    pub async fn write(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, WriteError> {
        self.submit(changes).await?.outcomes().await
    }

    /// As [`Model::write`], in two steps: this one ends when there is room in the queue.
    ///
    /// # Errors
    /// [`WriteError::Stopping`].
    pub async fn submit(&self, changes: Vec<Change>) -> Result<Submitted, WriteError> {
        let (answer, outcomes) = oneshot::channel();
        let job = Job::Write { changes, answer };
        self.jobs.send(job).await.map_err(|_| WriteError::Stopping)?;
        Ok(Submitted(outcomes))
    }

    /// True when the writer answers; to be called about once a second, for what it does now and then.
    pub async fn tick(&self) -> bool {
        let (answer, alive) = oneshot::channel();
        self.jobs.send(Job::Tick(answer)).await.is_ok() && alive.await.is_ok()
    }

    /// Notes that all of what a damaged store has lost was put anew, or is not missed: addresses without a port may do anything again.
    ///
    /// # Errors
    /// [`WriteError`]; nothing has changed then, but for [`WriteError::Unknown`].
    pub async fn repaired(&self) -> Result<Repaired, WriteError> {
        let (answer, done) = oneshot::channel();
        let asked = self.jobs.send(Job::Repaired(answer)).await;
        asked.map_err(|_| WriteError::Stopping)?;
        Submitted::answered(done).await
    }

    /// Other options from now on.
    pub async fn set_options(&self, options: ModelOptions) {
        // If the writer is gone there is nothing to set.
        _ = self.jobs.send(Job::Options(options)).await;
    }

    /// Every change from now on.
    #[must_use]
    pub fn watch(&self) -> Watcher {
        Watcher::new(self.changes.subscribe())
    }

    /// How many watch.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.changes.receiver_count()
    }

    /// Questions about what is committed.
    #[must_use]
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What works, and what does not.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// How long changes take.
    #[must_use]
    pub const fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Has packets dropped while nothing has been known for sure of etcd's state for so long, if there is a limit; to be called about once
    /// a second. Nothing but this gateway changes the state of one without a fleet: that never gets too old.
    pub fn limit_age(&self, limit: Option<Duration>) {
        match self.health.fleet_status() {
            Some(status) => self.path.set_stale(status.limit_age(limit), status.left_of(limit)),
            None => self.path.set_stale(false, Some(Duration::MAX)),
        }
    }

    /// False if the data path does not go on.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.path.is_alive()
    }

    /// Everything that needs attention, for people.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.health.problems();
        problems.extend(self.readers.problem());
        problems.extend(self.path.problems());
        problems
    }

    /// What sends packets on.
    #[must_use]
    pub fn path(&self) -> &Arc<dyn DataPath> {
        &self.path
    }

    /// What the data path has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.path.counters()
    }

    /// Shows packets from now on, until the receiver is dropped.
    ///
    /// # Errors
    /// [`CannotTrace`].
    pub fn trace(&self, filter: TraceFilter) -> Result<mpsc::Receiver<Traced>, CannotTrace> {
        let (to, traced) = mpsc::channel(TRACED);
        self.path.trace(filter, to)?;
        Ok(traced)
    }

    /// Takes the gateway out of service, or back.
    pub fn drain(&self, drain: bool) {
        self.tables.draining.store(drain, Ordering::Relaxed);
        self.path.drain(drain);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.expect("a thread can be started")
}

/// Reads and checks rows while those before them come into the tables.
fn fill(book: &mut Book, store: &mut Store, mut look: impl FnMut(&[Change])) -> Result<Loaded, StoreError> {
    let (read, to_apply) = std::sync::mpsc::sync_channel::<(Vec<Change>, Vec<i64>)>(READ_AHEAD);
    std::thread::scope(|scope| {
        let applied = scope.spawn(move || {
            let batches = to_apply.iter();
            batches.for_each(|(changes, deleted)| book.load(&changes, &deleted));
        });
        // If the other has panicked, it is told below.
        let loaded = store.load(|changes, deleted| {
            look(changes);
            _ = read.send((changes.to_vec(), deleted.to_vec()));
        });
        drop(read);
        applied.join().expect("what is in the store can be applied");
        loaded
    })
}

fn report(loaded: &Loaded, took: Duration) {
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        objects = loaded.objects,
        tombstones = loaded.tombstones,
        quarantined = loaded.quarantined,
        milliseconds,
        "the store is loaded"
    );
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
