//! Where threads run that were pinned: looked at again and again, by a thread that sleeps in between.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringside_measure::schema::{SteerCount, SteerThread};
use ringside_nic::process;

/// How often they are looked at. A look reads two files for each thread.
const EVERY: Duration = Duration::from_millis(20);

/// A thread that was pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) cpus: Vec<u32>,
}

/// Looking, until it is ended or dropped.
#[derive(Debug)]
pub(super) struct Runs {
    /// Whoever looks ends with it.
    stop: Sender<()>,
    looking: JoinHandle<Vec<SteerThread>>,
}

impl Runs {
    /// `None` if there is nothing to be looked at.
    pub(super) fn begin(pinned: Vec<Pinned>) -> Option<Self> {
        if pinned.is_empty() {
            return None;
        }
        let (stop, stopped) = mpsc::channel();
        let mut all: Vec<Seen> = pinned.into_iter().map(Seen::new).collect();
        let look = move || {
            loop {
                let is_over = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                // The last look counts what ran since the one before.
                for one in &mut all {
                    one.look(process::ran(one.told.id));
                }
                if is_over {
                    break;
                }
            }
            all.into_iter().map(|one| one.told).collect()
        };
        // Without a thread nobody looks, and nothing is said of it.
        let looking = thread::Builder::new().name("rs-pinned".into()).spawn(look).ok()?;
        Some(Self { stop, looking })
    }

    pub(super) fn end(self) -> Vec<SteerThread> {
        drop(self.stop);
        self.looking.join().unwrap_or_default()
    }
}

/// What was seen of one.
struct Seen {
    told: SteerThread,
    /// For how long it had run then.
    before_ns: Option<u64>,
}

impl Seen {
    fn new(thread: Pinned) -> Self {
        Self {
            before_ns: process::ran(thread.id).map(|(ns, _)| ns),
            told: SteerThread {
                id: thread.id,
                name: thread.name,
                wanted_cpus: thread.cpus,
                ran_ns: 0,
                seen: Vec::new(),
            },
        }
    }

    /// One that sleeps is where it ran before, which may have been in front of its being pinned.
    fn look(&mut self, now: Option<(u64, u32)>) {
        let Some((ns, cpu)) = now else { return };
        let more = self.before_ns.map_or(0, |before| ns.saturating_sub(before));
        self.before_ns = Some(ns);
        if more == 0 {
            return;
        }
        self.told.ran_ns += more;
        match self.told.seen.iter_mut().find(|seen| seen.cpu == cpu) {
            Some(seen) => seen.count += 1,
            None => self.told.seen.push(SteerCount { cpu, count: 1 }),
        }
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
