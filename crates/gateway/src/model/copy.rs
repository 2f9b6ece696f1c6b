//! The thread that writes down what etcd has told: for a start without it, and for questions.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{Health, Made};
use crate::fleet::Status;
use crate::fleet::sync::Mark;
use crate::store::Store;

/// Bytes of memory of what goes into one transaction, and one more batch.
const AT_ONCE: usize = 8 << 20;
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How often that is doubled where all has to be written anew.
const DOUBLED: u32 = 6;

/// What is to be written.
#[derive(Debug)]
pub(super) enum Copy {
    /// Something that the tables have.
    Made {
        made: Vec<Made>,
        /// What that is as of, if that is another revision than before, or none.
        mark: Option<Mark>,
    },
    /// All that the tables have comes now, in the place of what is there.
    Anew,
    /// That was all of it, and is as of this.
    Whole(Option<Mark>),
}

impl Copy {
    /// Bytes of memory that it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        let made = match self {
            Self::Made { made, .. } => made.iter().map(Made::bytes).sum(),
            Self::Anew | Self::Whole(_) => 0,
        };
        size_of::<Self>() + made
    }
}

/// What is written together.
#[derive(Debug, Default)]
struct Batch {
    made: Vec<Made>,
    mark: Option<Mark>,
    bytes: usize,
    /// With it all has been written anew.
    is_whole: bool,
}

/// What is done with what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is written.
    Keep,
    /// It is a part of what is written anew, in a transaction that is open.
    Anew,
    /// It is forgotten, for the copy was given up. After so many pauses all is written anew.
    Forget(u32),
}

#[derive(Debug)]
pub(super) struct Copier {
    store: Store,
    health: Arc<Health>,
    status: Arc<Status>,
    /// The revision that the copy has, or would have if it could be written.
    copied: watch::Sender<u64>,
    way: Way,
    batch: Batch,
    /// Tries to write all anew that were in vain, one after the other.
    vain: u32,
    /// When something could not be written that waits to be.
    failed: Option<Instant>,
}

impl Copier {
    pub(super) fn new(store: Store, health: Arc<Health>, status: Arc<Status>, copied: watch::Sender<u64>) -> Self {
        Self {
            store,
            health,
            status,
            copied,
            way: Way::Keep,
            batch: Batch::default(),
            vain: 0,
            failed: None,
        }
    }

    /// Until there is nothing more to write.
    pub(super) fn run(mut self, waiting: &Receiver<Copy>) {
        while let Some(first) = self.next(waiting) {
            let mut next = first;
            while let Some(copy) = next {
                self.take(copy);
                let is_enough = self.batch.bytes >= AT_ONCE || self.batch.is_whole;
                next = if is_enough { None } else { waiting.try_recv().ok() };
            }
            match self.way {
                Way::Forget(_) => {}
                // It has answered: that it was too slow is over.
                _ if self.status.backlog.is_given_up() => self.forget(0),
                Way::Anew => self.go_on(),
                // However much comes meanwhile: a disk that fails is not asked all the time, and nobody waits for it.
                Way::Keep if self.failed.is_some_and(|failed| failed.elapsed() < PAUSE) => self.tell_revision(),
                Way::Keep => self.keep(),
            }
        }
        if self.way == Way::Keep {
            if self.batch.bytes > 0 {
                self.keep();
            }
            if let Err(error) = self.store.rest() {
                tracing::warn!(%error, "the store's log stays as it is, and is read at the next start");
            }
        }
    }

    /// Waits for something; or, when something could not be written, for a time. None: there will be no more.
    fn next(&mut self, waiting: &Receiver<Copy>) -> Option<Option<Copy>> {
        loop {
            match waiting.recv_timeout(PAUSE) {
                Ok(copy) => return Some(Some(copy)),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            match &mut self.way {
                // That it was given up is no news that comes this way.
                Way::Keep | Way::Anew if self.status.backlog.is_given_up() => return Some(None),
                Way::Keep if self.batch.bytes > 0 => return Some(None),
                Way::Keep => {
                    if let Err(error) = self.store.rest() {
                        // It only takes room.
                        tracing::warn!(%error, "the store's log could not be written back");
                    }
                    self.health.set_bytes(self.store.bytes());
                }
                Way::Anew => {}
                Way::Forget(pauses) => {
                    // What could not be brought to its end keeps no room: a disk that was too small for it is others', too.
                    _ = self.store.rest();
                    match pauses {
                        0 => self.status.backlog.want_all(),
                        _ => *pauses -= 1,
                    }
                }
            }
        }
    }

    fn take(&mut self, copy: Copy) {
        let bytes = copy.bytes();
        match (copy, self.way) {
            (Copy::Made { made, mark }, Way::Keep | Way::Anew) => {
                self.batch.made.extend(made);
                self.batch.mark = mark.or(self.batch.mark.take());
                self.batch.bytes += bytes;
            }
            (Copy::Whole(mark), Way::Anew) => {
                self.batch.mark = mark.or(self.batch.mark.take());
                self.batch.bytes += bytes;
                self.batch.is_whole = true;
            }
            (Copy::Anew, _) => {
                self.status.backlog.taken(bytes);
                match self.store.begin_anew() {
                    Ok(()) => self.way = Way::Anew,
                    Err(error) => self.in_vain(error.to_string()),
                }
            }
            (Copy::Made { .. } | Copy::Whole(_), _) => self.status.backlog.taken(bytes),
        }
    }

    /// Writes what came, or tries to.
    fn keep(&mut self) {
        let backlog = &self.status.backlog;
        match self.store.mirror(&self.batch.made, self.batch.mark.as_ref()) {
            Ok(revision) => {
                self.health.can_write(revision, self.store.bytes());
                if backlog.written(self.batch.bytes) {
                    tracing::info!("the copy of etcd's state can be written again");
                }
                self.tell_revision();
                (self.batch, self.failed) = (Batch::default(), None);
            }
            Err(error) => {
                if backlog.failed(error.to_string()) {
                    tracing::error!(%error, "the copy of etcd's state cannot be written");
                }
                self.failed = Some(Instant::now());
                // The truth is in etcd and in the tables all the same.
                self.tell_revision();
                if self.status.backlog.is_given_up() {
                    self.in_vain(error.to_string());
                }
            }
        }
    }

    /// Writes a part of all that there is.
    fn go_on(&mut self) {
        let made = std::mem::take(&mut self.batch.made);
        let written = self.store.go_on_anew(&made).and_then(|()| match self.batch.is_whole {
            true => self.store.end_anew(self.batch.mark.as_ref()).map(Some),
            false => Ok(None),
        });
        match written {
            Ok(None) => self.status.backlog.taken(std::mem::take(&mut self.batch.bytes)),
            Ok(Some(revision)) => {
                tracing::info!("the copy of etcd's state was made anew");
                self.health.can_write(revision, self.store.bytes());
                self.status.backlog.is_whole();
                self.status.backlog.written(self.batch.bytes);
                self.tell_revision();
                (self.way, self.vain, self.batch) = (Way::Keep, 0, Batch::default());
            }
            Err(error) => self.in_vain(error.to_string()),
        }
    }

    fn tell_revision(&self) {
        if let Some(revision) = self.batch.mark.as_ref().and_then(|mark| mark.revision) {
            self.copied.send_replace(revision);
        }
    }

    /// It could not be written: the next try is twice as late as the last one.
    fn in_vain(&mut self, why: String) {
        tracing::error!(why, "the copy of etcd's state cannot be written anew yet");
        self.status.backlog.failed(why);
        self.status.backlog.give_up();
        self.vain = (self.vain + 1).min(DOUBLED);
        self.forget(1 << self.vain);
    }

    /// What waits is not written. After so many pauses, all is.
    fn forget(&mut self, pauses: u32) {
        self.store.give_up_anew();
        self.failed = None;
        self.status.backlog.taken(std::mem::take(&mut self.batch).bytes);
        self.way = Way::Forget(pauses);
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.status.backlog.end();
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
