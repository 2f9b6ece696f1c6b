//! A model whose truth is in etcd.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringside_gateway_core::conntrack::Limits;
use tokio::sync::{broadcast, mpsc, watch};

use super::applier::{Applier, Done, OfFleet};
use super::book::Book;
use super::copy::Copier;
use super::{
    AHEAD, DataPath, Health, Model, ModelOptions, QUEUE, Readers, Tables, Timings, Working, fill, report, spawn,
};
use crate::fleet::clock::Clock;
use crate::fleet::follow::Follower;
use crate::fleet::pages::Tally;
use crate::fleet::sync::Barrier;
use crate::fleet::write::Writer;
use crate::fleet::{Door, Status, space};
use crate::store::{Store, StoreError};

impl Model {
    /// As [`Model::start`], with the truth in etcd and a store that mirrors it ([`Store::open_mirror`]).
    ///
    /// The data path is started when the tables have all that etcd had at the start. A gateway that knows nothing waits for that however
    /// long; one that knows an earlier state waits for as long as an answer may take, and goes on with that.
    ///
    /// # Errors
    /// Those of [`StoreError`], and what starting the data path fails with.
    ///
    /// # Panics
    /// If there are no threads to be had.
    pub fn start_fleet<E: From<StoreError>>(
        mut store: Store,
        door: Door,
        limits: Limits,
        options: ModelOptions,
        start_path: impl FnOnce(&Arc<Tables>) -> Result<Arc<dyn DataPath>, E>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), E> {
        let tables = Arc::new(Tables::new(limits));
        let mut book = Book::new(Arc::clone(&tables));
        let began = Instant::now();
        let mut tally = Tally::default();
        let loaded = fill(&mut book, &mut store, |changes| {
            options.working.sign();
            tally.count(changes);
        })?;
        report(&loaded, began.elapsed());
        // Without a revision if something was damaged, and is missing: everything is listed.
        let mark = store.mark()?;
        let knows = mark.as_ref().and_then(|mark| mark.revision);
        let patience = knows.map(|_| door.options().request);
        let status = Arc::new(Status::new(door.options().timing.silence));
        status.applied.store(knows.unwrap_or(0), Ordering::Relaxed);
        let health = Health::new(store.problems().to_vec(), store.revision()?, store.bytes());
        let health = Arc::new(health.of_fleet(Arc::clone(&status)));
        let readers = Arc::new(Readers::new(&store)?);
        let timings = Timings::new();
        let working = options.working.clone();
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (changes, _) = broadcast::channel(super::watch::BATCHES);
        let (done, told) = mpsc::channel(AHEAD);
        let (copy, to_copy) = std::sync::mpsc::channel();
        let (reached, reached_now) = watch::channel(knows.unwrap_or(0));
        let (copied, copied_now) = watch::channel(knows.unwrap_or(0));
        let copier = Copier::new(store, Arc::clone(&health), Arc::clone(&status), copied);
        let last_mark = mark.clone();
        let follower = Follower::new(door.clone(), (mark, tally.pages()), Arc::clone(&status), done.clone());
        let (space_door, space_status) = (door.clone(), Arc::clone(&status));
        let clock = Arc::new(Clock::new(Arc::clone(&readers), Arc::clone(&status)));
        let clock_door = door.clone();
        let writer = Writer {
            door,
            status: Arc::clone(&status),
            has: [reached_now, copied_now],
            tables: done,
            known: Arc::clone(&tables),
            clock: Arc::clone(&clock),
            readers: Arc::clone(&readers),
            options,
            commit: timings.commit.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be had");
        // What is told is read on a thread of its own, while the next of it comes.
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let follower = spawn("follower", move || {
            handle.block_on(async {
                tokio::select! {
                    () = follower.run() => {}
                    _ = stopped => {}
                }
            });
        });
        let followed = spawn("etcd", move || {
            runtime.block_on(async {
                let space = tokio::spawn(space::watch(space_door, space_status));
                let clock = tokio::spawn(clock.watch(clock_door));
                writer.run(queue).await;
                space.abort();
                clock.abort();
                drop(stop);
            });
            // It has timers of this runtime, and is to end before them.
            follower.join().expect("the follower's thread does not panic");
            // A question to a disk that hangs is not waited for.
            runtime.shutdown_background();
        });
        let copied = spawn("store", move || copier.run(&to_copy));
        let of_fleet = OfFleet {
            status: Arc::clone(&status),
            copy,
            reached,
            revision: knows.unwrap_or(0),
            mark: last_mark,
        };
        let mut applier = Applier::new(book, timings.clone(), changes.clone(), Some(of_fleet));
        let mut told = told;
        wait(&mut applier, &mut told, &status, (patience, &working));
        let path = start_path(&tables)?;
        let ending = Arc::clone(&status);
        applier.book.set_path(Arc::clone(&path));
        let thread = spawn("tables", move || {
            applier.run(told);
            // They have ended, for nobody else ends what is received; unless one panicked.
            followed.join().expect("etcd's thread does not panic");
            if let Err(why) = ending.backlog.wait_for_end() {
                tracing::warn!(
                    why,
                    "the copy of etcd's state is older than what was known: the next start reads what is missing from etcd"
                );
            }
            // If it is not over it ends with the program.
            if copied.is_finished() {
                copied.join().expect("the store's thread does not panic");
            }
        });
        // Lists are to show what was told before the first answer.
        status.backlog.wait_until_written();
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
}

/// Takes what is told until everything is known, or for so long; and says each time that it does.
fn wait(
    applier: &mut Applier,
    told: &mut mpsc::Receiver<Done>,
    status: &Status,
    (patience, working): (Option<Duration>, &Working),
) {
    let began = Instant::now();
    let mut logged = began;
    let mut barrier = Barrier::default();
    loop {
        match told.try_recv() {
            Ok(done) => {
                working.sign();
                applier.take(done);
            }
            Err(mpsc::error::TryRecvError::Disconnected) => return,
            Err(mpsc::error::TryRecvError::Empty) if applier.sweep.is_some() => applier.sweep_a_part(),
            Err(mpsc::error::TryRecvError::Empty) => {
                let has_all = status.look(&mut barrier);
                if has_all == Some(true) || (has_all == Some(false) && patience.is_some()) {
                    return;
                }
                if patience.is_some_and(|patience| began.elapsed() >= patience) {
                    tracing::warn!(
                        state = ?status.state(),
                        "etcd does not say in time what is new: packets go by what was known"
                    );
                    return;
                }
                if logged.elapsed() >= Duration::from_secs(10) {
                    logged = Instant::now();
                    tracing::warn!(state = ?status.state(), "nothing is known yet, and etcd is waited for");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
