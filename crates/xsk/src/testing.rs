//! A queue without a socket: rings and frames lie in memory of our own, and a [`Kernel`] is on the other side of them.
//!
//! For tests of programs on this library and of the library itself, without root and without an interface; not a part of
//! the stable API. What is on the user's side is the production code, down to the rings: only the memory is another, and
//! the socket, which is one end of a pair of unix sockets. The other end is the kernel's, so that a wake-up can be seen.
//!
//! ```
//! use ringside_xsk::testing::Harness;
//! use ringside_xsk::{QueueOptions, Wait};
//!
//! let (mut queue, mut kernel) = Harness::new(QueueOptions::new()).open()?;
//! queue.recv(Wait::Spin)?;                   // stocks the fill ring
//! assert!(kernel.deliver(&[1; 60]));
//! assert_eq!(queue.recv(Wait::Spin)?.send_back()?, 1);
//! assert_eq!(kernel.transmit(8, |packet| assert_eq!(packet, [1; 60])), 1);
//! assert_eq!(kernel.complete(8), 1);
//! # Ok::<(), ringside_xsk::Error>(())
//! ```

#[allow(unsafe_code, reason = "writes to rings against their protocol")]
mod hostile;
mod kernel;

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringside_nic::Interface;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub use hostile::{Hostile, Words};
pub use kernel::{Kernel, Metadata, Ring};

use crate::error::Error;
use crate::link::Link;
use crate::mode::Path;
use crate::options::{QueueOptions, Sizes};
use crate::pair::{Pair, PairRef};
use crate::queue::{Queue, finish};
use crate::ring::{Addr, ConsumerRing, Desc, HeapRing, ProducerRing};
use crate::socket::{Bound, Failure, Request};
use crate::umem::pool::Pool;
use crate::umem::{Geometry, SharedUmem, Umem};

thread_local! {
    static CLOCK: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Stops the clock of this thread's queues at this time; `None` gives them the kernel's again.
pub fn set_clock(now: Option<Duration>) {
    CLOCK.set(now);
}

/// Returns where the clock of this thread's queues stands, if it was stopped.
pub(crate) fn clock() -> Option<Duration> {
    CLOCK.get()
}

/// Makes queues without a socket.
#[derive(Clone, Debug)]
pub struct Harness {
    options: QueueOptions,
    path: Path,
    start: u32,
    mtu: u32,
    umem: Option<SharedUmem>,
}

impl Harness {
    /// Options as those of a real queue; what only the kernel could do, busy-polling and huge pages, is ignored.
    pub fn new(options: QueueOptions) -> Self {
        Self {
            options,
            path: Path::Copy,
            start: 0,
            mtu: 1500,
            umem: None,
        }
    }

    /// The mode that the queue takes itself to be in. Default [`Path::Copy`].
    #[must_use]
    pub fn path(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    /// Where the indices of all rings start. Default 0; shortly before `u32::MAX` they are about to wrap.
    #[must_use]
    pub fn start_index(mut self, index: u32) -> Self {
        self.start = index;
        self
    }

    /// MTU of the interface, which decides how many frames a packet to be sent gets with
    /// [`QueueOptions::multi_buffer`]. Default 1500.
    #[must_use]
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = bytes;
        self
    }

    /// Frames of a UMEM made by [`umem`].
    #[must_use]
    pub fn umem(mut self, umem: &SharedUmem) -> Self {
        self.umem = Some(umem.clone());
        self
    }

    /// The queue, with its fill ring stocked, and the stand-in for its kernel.
    ///
    /// # Errors
    ///
    /// Those of a real queue that come from its options; and those of the look-up of the interface `lo`, in whose name the
    /// queue is.
    pub fn open(&self) -> Result<(Queue, Kernel), Error> {
        let (interface, link) = loopback()?;
        let sizes = Sizes::choose(&self.options, self.path, 0, self.umem.as_ref())?;
        let umem = match &self.umem {
            Some(shared) => Arc::clone(shared.umem()),
            None => Umem::on_heap(sizes.geometry, self.options.hints.clone())?,
        };
        let request = Request {
            interface,
            queue: 0,
            path: self.path,
            options: &self.options,
            sizes,
            shared: self.umem.as_ref(),
            mtu: self.mtu,
            link,
        };
        request.check_tx_ring()?;
        let tx_metadata = request.tx_metadata().map_err(|failure| match failure {
            Failure::Fatal(error) => error,
            _ => Error::Mode {
                interface: interface.name().to_owned(),
                wanted: self.path,
                reason: "it lacks what the options ask for".into(),
            },
        })?;
        let Some(mut pool) = Pool::new(Arc::clone(&umem), sizes.frames) else {
            return Err(Error::Setting {
                setting: "frames",
                value: sizes.frames.to_string(),
                reason: format!("{} are left of the shared UMEM", umem.unclaimed()),
            });
        };
        pool.set_tx_metadata(tx_metadata);
        let pair = pool.pair();
        let fill = HeapRing::<Addr>::new(sizes.fill, self.start);
        let completion = HeapRing::<Addr>::new(sizes.completion, self.start);
        let ring = |slots: u32| (slots != 0).then(|| HeapRing::<Desc>::new(slots, self.start));
        let (rx, tx) = (ring(sizes.rx), ring(sizes.tx));
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|errno| Error::Unsupported {
            what: "socketpair()",
            errno,
            since: "2.6.27",
            config: "",
        })?;

        let mut bound = Bound {
            rx: rx.as_ref().map(|ring| ConsumerRing::new(ring.side())),
            tx: tx.as_ref().map(|ring| ProducerRing::new(ring.side())),
            fd: Arc::new(ours),
            pair: PairRef::new(Pair {
                fill: ProducerRing::new(fill.side()),
                completion: ConsumerRing::new(completion.side()),
                pool,
                fill_target: sizes.fill_target,
            }),
            most_frames: request.most_frames(),
            mtu: self.mtu,
            umem: Arc::clone(&umem),
            shared: self.umem.clone(),
            tx_budget: None,
        };
        bound.pair.lock().refill().expect("a new ring is empty");
        let queue = finish(&request, bound, self.path, Vec::new());
        Ok((queue, Kernel::new(umem, pair, theirs, [fill, completion], rx, tx)))
    }
}

/// The interface that all queues are said to be of, and its watch. One for all: a fuzzer opens thousands of queues a second.
fn loopback() -> Result<&'static (Interface, Arc<Link>), Error> {
    static LOOPBACK: OnceLock<(Interface, Arc<Link>)> = OnceLock::new();
    if let Some(loopback) = LOOPBACK.get() {
        return Ok(loopback);
    }
    let interface = Interface::by_index(1)?;
    let link = Arc::new(Link::watch(&interface)?);
    Ok(LOOPBACK.get_or_init(|| (interface, link)))
}

/// A UMEM on the heap for several queues, as [`SharedUmem::builder`] makes it of mapped memory: so many frames, of so many
/// bytes.
///
/// # Errors
///
/// [`Error::Setting`] for impossible sizes.
pub fn umem(frame_size: u32, frames: u32, multi_buffer: bool) -> Result<SharedUmem, Error> {
    let geometry = Geometry::new(frame_size, frames, 0, false)?.with_multi_buffer(multi_buffer);
    Ok(SharedUmem::of(Umem::on_heap(geometry, None)?))
}
