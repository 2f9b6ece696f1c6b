//! The counters of a queue, for other threads while one works on it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::sockopt::xdp_statistics;

use super::Queue;
use crate::error::Error;
use crate::opener::Opener;
use crate::stats::{KernelStats, OwnCounters, OwnStats, Stats};

/// Reads the counters of a queue from any thread, while another one works on it; see
/// [`Queue::stats_reader`].
#[derive(Clone)]
pub struct StatsReader {
    interface: String,
    queue: u32,
    own: Arc<OwnCounters>,
    socket: SocketCounters,
    opener: Opener,
}

/// Where the kernel's counters of a socket are.
#[derive(Clone)]
pub(super) struct SocketCounters(Arc<Mutex<Socket>>);

enum Socket {
    /// The open socket. The queue removes it from here before it closes, so that a reader keeps it
    /// open only while it holds the lock.
    Open(Arc<OwnedFd>),
    /// What was counted when it was closed.
    Closed(KernelStats),
}

impl SocketCounters {
    pub(super) fn of(socket: &Arc<OwnedFd>) -> Self {
        Self(Arc::new(Mutex::new(Socket::Open(Arc::clone(socket)))))
    }

    /// Reads the counters for the last time, and lets go of the socket.
    pub(super) fn close(&self) {
        let mut socket = self.lock();
        let last = read(&socket).unwrap_or_default();
        *socket = Socket::Closed(last);
    }

    pub(super) fn read(&self) -> Result<KernelStats, Errno> {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Socket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(socket: &Socket) -> Result<KernelStats, Errno> {
    match socket {
        Socket::Open(fd) => kernel_stats(fd.as_fd()),
        Socket::Closed(last) => Ok(*last),
    }
}

fn kernel_stats(fd: BorrowedFd<'_>) -> Result<KernelStats, Errno> {
    let kernel = xdp_statistics(fd)?;
    Ok(KernelStats {
        rx_dropped: kernel.rx_dropped,
        rx_invalid_descs: kernel.rx_invalid_descs,
        tx_invalid_descs: kernel.tx_invalid_descs,
        rx_ring_full: kernel.rx_ring_full.unwrap_or(0),
        rx_fill_ring_empty: kernel.rx_fill_ring_empty_descs.unwrap_or(0),
        tx_ring_empty: kernel.tx_ring_empty_descs.unwrap_or(0),
    })
}

impl StatsReader {
    /// Returns whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        matches!(*self.socket.lock(), Socket::Closed(_))
    }

    /// The queue's number on its interface.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The library's counters, without a system call: exact as of the worker's last step.
    pub fn counters(&self) -> OwnStats {
        self.own.snapshot()
    }

    /// All counters since the queue was opened, or as they were when it was closed. One
    /// `getsockopt()`, for which the kernel holds a lock of the socket that a send on a copy path
    /// takes, too: a thread that loses its CPU meanwhile delays the worker. Call it a few times a
    /// second, not in a loop.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if the kernel does not answer, [`Error::Forked`] in a child of `fork()`.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.opener.check(&self.interface, self.queue)?;
        let kernel = self.socket.read().map_err(|errno| Error::Socket {
            interface: self.interface.clone(),
            queue: self.queue,
            call: "getsockopt(XDP_STATISTICS)",
            errno,
            advice: "",
        })?;
        Ok(Stats {
            kernel,
            own: self.counters(),
        })
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsReader")
            .field("interface", &self.interface)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// Returns a reader of the queue's counters for other threads: for statistics while a worker
    /// has the queue. The queue itself needs no lock for it.
    pub fn stats_reader(&self) -> StatsReader {
        StatsReader {
            interface: self.report.interface.clone(),
            queue: self.report.queue,
            own: Arc::clone(&self.counters),
            socket: self.socket_counters.clone(),
            opener: self.opener,
        }
    }

    /// All counters since the queue was opened. One `getsockopt()`.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if the kernel does not answer, [`Error::Forked`] in a child of `fork()`.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.check_process()?;
        let kernel = self
            .socket_counters
            .read()
            .map_err(|errno| self.failed("getsockopt(XDP_STATISTICS)", errno))?;
        Ok(Stats {
            kernel,
            own: self.counters(),
        })
    }
}
