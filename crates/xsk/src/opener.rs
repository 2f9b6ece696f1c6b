//! The process that opened something. A child of `fork()` has a copy of it, whose end must undo
//! nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::mmap::cleared_by_fork;

/// The process that opened a port, a queue or a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    /// The number of the process that reads it; 0 in a child of `fork()` that has opened nothing.
    current: &'static AtomicU64,
    number: u64,
    pid: u32,
}

impl Opener {
    pub(crate) fn this_process() -> Self {
        static CURRENT: OnceLock<&AtomicU64> = OnceLock::new();
        /// Counts in a child of `fork()` from where its parent was, so that no process has the
        /// number of an ancestor. A child may have its parent's PID, in a PID namespace of its own.
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let current = *CURRENT.get_or_init(cleared_by_fork);
        let mut number = current.load(Ordering::Relaxed);
        if number == 0 {
            let next = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
            let set = current.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
            number = set.map_or_else(|other_thread| other_thread, |_| next);
        }
        Self {
            current,
            number,
            pid: std::process::id(),
        }
    }

    /// Returns whether this process is it, and not a child of it. Reads memory only.
    #[inline]
    pub(crate) fn is_this_process(self) -> bool {
        self.current.load(Ordering::Relaxed) == self.number
    }

    /// Returns [`Error::Forked`] for a queue of another process.
    #[inline]
    pub(crate) fn check(self, interface: &str, queue: u32) -> Result<(), Error> {
        match self.is_this_process() {
            true => Ok(()),
            false => Err(self.forked(interface, queue)),
        }
    }

    #[cold]
    fn forked(self, interface: &str, queue: u32) -> Error {
        Error::Forked {
            interface: interface.to_owned(),
            queue,
            opened_by: self.pid,
            child: std::process::id(),
        }
    }

    pub(crate) fn pid(self) -> u32 {
        self.pid
    }
}
