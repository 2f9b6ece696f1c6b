//! What happens to the link, for all queues of a port: one subscription, a short log, and for each queue how far it read.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use ringside_nic::{Interface, LinkEvent, LinkWatch};

use crate::error::Error;

/// Events that a queue may be behind. One that is further behind misses those that are over anyway.
const KEPT: usize = 64;

/// The link of a port, watched.
pub(crate) struct Link {
    /// Readable when something happened; the watch's own descriptor once more, so that it can be polled without the lock.
    readable: OwnedFd,
    /// Events since the beginning.
    told: AtomicU64,
    log: Mutex<Log>,
}

struct Log {
    watch: LinkWatch,
    events: VecDeque<LinkEvent>,
}

impl Link {
    pub(crate) fn watch(interface: &Interface) -> Result<Self, Error> {
        let watch = LinkWatch::open(interface)?;
        let readable = watch.as_fd().try_clone_to_owned().map_err(|error| Error::Watch {
            interface: interface.name().to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            readable,
            told: AtomicU64::new(0),
            log: Mutex::new(Log {
                watch,
                events: VecDeque::with_capacity(KEPT),
            }),
        })
    }

    /// Events so far.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// The next event after the first `seen`, which then counts it. One system call when there is none; a queue that finds
    /// another one at it leaves it to that one.
    pub(crate) fn next(&self, seen: &mut u64) -> Option<LinkEvent> {
        let mut log = match self.log.try_lock() {
            Ok(log) => log,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if *seen == self.told.load(Ordering::Relaxed) => return None,
            Err(TryLockError::WouldBlock) => self.log.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let log = &mut *log;
        // A kernel that does not answer has told nothing.
        while let Ok(Some(event)) = log.watch.next() {
            if log.events.len() == KEPT {
                log.events.pop_front();
            }
            log.events.push_back(event);
            self.told.fetch_add(1, Ordering::Relaxed);
        }
        let told = self.told.load(Ordering::Relaxed);
        let oldest = told - log.events.len() as u64;
        *seen = (*seen).max(oldest);
        let at = usize::try_from(*seen - oldest).expect("at most as many as are kept");
        let event = log.events.get(at).cloned();
        *seen += u64::from(event.is_some());
        event
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
