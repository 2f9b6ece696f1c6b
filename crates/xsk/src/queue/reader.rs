//! The counters of a queue, for other threads while one works on it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::sockopt::xdp_statistics;

use super::Queue;
use crate::error::Error;
use crate::mode::Path;
use crate::opener::Opener;
use crate::ring::ProducerIndex;
use crate::socket::Bound;
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
pub(super) struct SocketCounters(Arc<Shared>);

struct Shared {
    socket: Mutex<Socket>,
    /// Whether the socket is [`Socket::Closed`], without the lock: another reader may have it.
    is_closed: AtomicBool,
}

enum Socket {
    /// The open socket, and what a zero-copy NIC receives into. The queue removes both from here
    /// before it closes, so that a reader keeps them only while it holds the lock.
    Open(Arc<OwnedFd>, Option<NicFrames>),
    /// What was counted when it was closed.
    Closed(KernelStats),
}

/// The frames that the kernel and its NIC have to receive into, by the rings' indices: those that
/// went onto the fill ring and are not on the RX ring yet.
struct NicFrames {
    fill: ProducerIndex,
    rx: ProducerIndex,
}

impl NicFrames {
    fn are_used_up(&self) -> bool {
        // First what came back: what is lent meanwhile makes the difference only larger.
        let returned = self.rx.load();
        self.fill.load() == returned
    }
}

impl SocketCounters {
    pub(super) fn of(bound: &Bound, path: Path) -> Self {
        let rx = bound.rx.as_ref().filter(|_| path == Path::ZeroCopy);
        let frames = rx.map(|rx| NicFrames {
            fill: bound.pair.read(|pair| pair.fill.producer_index()),
            rx: rx.producer_index(),
        });
        Self(Arc::new(Shared {
            socket: Mutex::new(Socket::Open(Arc::clone(&bound.fd), frames)),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Counts if the NIC has no frame now: the queue's thread may be inside no call.
    fn look_for_frames(&self, own: &OwnCounters) {
        if let Socket::Open(_, Some(frames)) = &*self.lock()
            && frames.are_used_up()
        {
            own.note_starved(true);
        }
    }

    /// Reads the counters for the last time, and lets go of the socket.
    pub(super) fn close(&self) {
        let mut socket = self.lock();
        let last = read(&socket).unwrap_or_default();
        *socket = Socket::Closed(last);
        self.0.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn read(&self) -> Result<KernelStats, Errno> {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Socket> {
        self.0.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(socket: &Socket) -> Result<KernelStats, Errno> {
    match socket {
        Socket::Open(fd, _) => kernel_stats(fd.as_fd()),
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
    /// Returns whether the queue was closed. It never waits: a queue that is closing is not closed.
    pub fn is_closed(&self) -> bool {
        self.socket.0.is_closed.load(Ordering::Acquire)
    }

    /// The queue's number on its interface.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The library's counters, without a system call: exact as of the worker's last step. A
    /// zero-copy NIC that has no frame now is counted, too, in
    /// [`rx_starved`](OwnStats::rx_starved): the worker may take no packets at all. In a child of
    /// `fork()` they are as they were when it was made.
    pub fn counters(&self) -> OwnStats {
        if self.opener.is_this_process() {
            self.socket.look_for_frames(&self.own);
        }
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
        self.socket_counters.look_for_frames(&self.counters);
        Ok(Stats {
            kernel,
            own: self.counters(),
        })
    }
}
