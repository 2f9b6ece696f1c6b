//! A port: an interface with all its queues.

mod guard;
mod ladder;
mod open;
#[cfg(feature = "attach")]
mod own;
mod reopen;
mod settings;

pub use guard::PortGuard;
pub use settings::ThreadedNapi;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringside_nic::{Deferral, Interface};

use self::settings::Settings;
use crate::error::Error;
use crate::mode::{Mode, Path};
use crate::options::QueueOptions;
#[cfg(feature = "attach")]
use crate::program::Filter;
use crate::program::{Program, XskMap};
use crate::queue::Queue;
use crate::report::{PortReport, ProgramReport};
use crate::stats::Stats;
use crate::umem::SharedUmem;

/// An open interface: one socket and one UMEM per queue, an XDP program attached, the XSKMAP filled.
///
/// Everything is undone when it is dropped, also on a panic, in this order: sockets out of the XSKMAP, program detached,
/// frames in flight awaited (100 ms at the most), sockets closed, memory freed. When the process is killed the kernel
/// does the same.
///
/// After `fork()` a port and its queues work in the parent alone: a child has copies of the frames
/// that the kernel does not know. A call there is [`Error::Forked`]. Calls without a `Result` touch
/// no ring and no socket of the parent: [`Queue::alloc`] returns `None`, counters and descriptions
/// ([`Queue::in_flight`], [`Queue::free_frames`], [`StatsReader::counters`]) are as they were
/// before the fork, and packets and frames are the child's copies. A port, queue or burst that the
/// child drops stays as it is for the parent. Maps and descriptors are shared: [`XskMap::remove`]
/// works in the child, too, and a [`LinkWatch`] takes events from the parent's. A daemon opens its
/// ports after `daemon()`, whose caller is a child.
///
/// [`LinkWatch`]: crate::LinkWatch
/// [`StatsReader::counters`]: crate::StatsReader::counters
///
/// ```no_run
/// use ringside_xsk::{Error, Interface, Mode, Port, Wait};
///
/// let mut port = Port::builder(Interface::by_name("eth0")?)
///     .mode(Mode::Auto)              // zero-copy → native copy → generic, told in the report
///     .open()?;                      // one socket per receive queue
/// eprintln!("{}", port.report());    // the mode obtained per queue, and why
/// std::thread::scope(|s| {
///     for queue in port.queues_mut() {
///         s.spawn(move || -> Result<(), Error> {
///             loop {
///                 let mut burst = queue.recv(Wait::Spin)?;
///                 for mut packet in &mut burst {
///                     packet.data_mut()[..12].rotate_left(6);
///                 }
///                 // One publish, one kick. A link that is down does not end the loop.
///                 burst.send_back().or_else(Error::ignore_link_down)?;
///             }
///         });
///     }
/// });
/// # Ok::<(), ringside_xsk::Error>(())
/// ```
pub struct Port {
    // Dropped in this order: from the guard's end on no packet is redirected to the queues.
    guard: PortGuard,
    queues: OpenQueues,
    /// How it was built, to be opened again.
    recipe: PortBuilder,
}

impl Port {
    /// Starts building a port on an interface.
    pub fn builder(interface: Interface) -> PortBuilder {
        PortBuilder {
            interface,
            queues: None,
            mode: Mode::Auto,
            program: None,
            options: QueueOptions::default(),
            umem: None,
            first_place: 0,
            settings: Settings::default(),
            mark: 0,
        }
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        self.guard.interface()
    }

    /// The queues, each to be given to a thread of its own.
    pub fn queues_mut(&mut self) -> std::slice::IterMut<'_, Queue> {
        self.queues.all.iter_mut()
    }

    /// The queues.
    pub fn queues(&self) -> &[Queue] {
        &self.queues.all
    }

    /// Takes the port apart: its queues, which may go to other threads or tasks for good, and a
    /// guard for what they have in common. Without the guard the queues receive nothing any more.
    /// Each is closed when it is dropped; call [`Queue::drain`] before, if what was sent last is to
    /// leave.
    ///
    /// ```no_run
    /// use ringside_xsk::{Error, Interface, Port, Wait};
    ///
    /// let (guard, queues) = Port::builder(Interface::by_name("eth0")?).open()?.into_queues();
    /// for mut queue in queues {
    ///     std::thread::spawn(move || -> Result<(), Error> {
    ///         loop {
    ///             let burst = queue.recv(Wait::Spin)?;
    ///             burst.send_back().or_else(Error::ignore_link_down)?;
    ///         }
    ///     });
    /// }
    /// loop {
    ///     std::thread::sleep(std::time::Duration::from_secs(1));
    ///     println!("{:?}", guard.stats()?);
    /// }
    /// # Ok::<(), ringside_xsk::Error>(())
    /// ```
    pub fn into_queues(self) -> (PortGuard, Vec<Queue>) {
        let Self { guard, mut queues, .. } = self;
        (guard, std::mem::take(&mut queues.all))
    }

    /// What was obtained per queue, and why.
    pub fn report(&self) -> &PortReport {
        self.guard.report()
    }

    /// Checks that this process opened the port, and is not a child of it. Reads memory only.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of `fork()`.
    pub fn check_process(&self) -> Result<(), Error> {
        self.guard.check_process()
    }

    /// The counters of all queues together. For one queue: [`Queue::stats`].
    pub fn stats(&self) -> Result<Stats, Error> {
        self.guard.stats()
    }

    /// What our XDP program counted, per queue of the interface, also for queues without a socket; empty when the port
    /// uses another program.
    #[cfg(feature = "attach")]
    pub fn program_counters(&self) -> Result<Vec<ringside_bpf::QueueCounters>, Error> {
        self.guard.program_counters()
    }

    /// The same counters by themselves, for who reads them from another thread while the queues work on theirs; `None` when
    /// the port uses another program.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] when the process may open no more files.
    #[cfg(feature = "attach")]
    pub fn program_counter_reader(&self) -> Result<Option<ringside_bpf::XskCounters>, Error> {
        self.guard.program_counter_reader()
    }

    fn close(&mut self) {
        self.guard.close();
        self.queues.close();
    }
}

/// The queues of a port, closed together.
struct OpenQueues {
    all: Vec<Queue>,
}

impl OpenQueues {
    /// Gives what is on its way 100 ms to leave, then closes all queues.
    fn close(&mut self) {
        let end = Instant::now() + Duration::from_millis(100);
        // The rings of a child's copies are its parent's.
        for queue in self.all.iter_mut().filter(|queue| queue.is_of_this_process()) {
            // A port is also dropped when its queue or link has failed; there is nobody to tell.
            _ = queue.drain(end.saturating_duration_since(Instant::now()));
        }
        self.all.clear();
    }
}

impl Drop for OpenQueues {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("interface", self.interface())
            .field("queues", &self.queues.all)
            .finish_non_exhaustive()
    }
}

/// Opens a [`Port`].
#[derive(Debug)]
pub struct PortBuilder {
    interface: Interface,
    queues: Option<Vec<u32>>,
    mode: Mode,
    program: Option<Program>,
    options: QueueOptions,
    umem: Option<SharedUmem>,
    /// Where queue 0 is in the caller's XSKMAP.
    first_place: u32,
    settings: Settings,
    /// For the hints of our program.
    mark: u32,
}

impl PortBuilder {
    /// Only these queues. Default: all that receive.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = u32>) -> Self {
        self.queues = Some(queues.into_iter().collect());
        self
    }

    /// Mode to take. Default [`Mode::Auto`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Packets that our XDP program gives to the sockets. Default all, except ARP and IPv6
    /// neighbour discovery. [`PacketMatch::arp`](crate::PacketMatch::arp) takes those about
    /// addresses that are not the host's, and [`Filter::Wire`] all of them.
    ///
    /// [`open`](Self::open) refuses a filter that takes ARP or neighbour discovery of an address
    /// that the host has at that time.
    #[cfg(feature = "attach")]
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        self.program(Program::Ringside(filter))
    }

    /// The XDP program. Default: Ringside's own, or none for a port that only transmits.
    #[must_use]
    pub fn program(mut self, program: Program) -> Self {
        self.program = Some(program);
        self
    }

    /// Where queue 0 is in the XSKMAP of the caller's program ([`Program::Custom`], [`Program::Attached`]); the others follow:
    /// for a program that serves several interfaces with one map. Default 0.
    #[must_use]
    pub fn first_place(mut self, place: u32) -> Self {
        self.first_place = place;
        self
    }

    /// The mark in the hints of Ringside's own program ([`RingsideRx`](crate::hints::RingsideRx)). Default 0.
    #[cfg(feature = "attach")]
    #[must_use]
    pub fn mark(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    /// Sizes, direction, waiting: the same for each queue.
    #[must_use]
    pub fn options(mut self, options: QueueOptions) -> Self {
        self.options = options;
        self
    }

    /// Frames of a UMEM that is shared with other ports or queues, instead of one for each queue.
    #[must_use]
    pub fn umem(mut self, umem: &SharedUmem) -> Self {
        self.umem = Some(umem.clone());
        self
    }

    /// Defers the interface's interrupts while the port is open, so that busy-polling
    /// ([`QueueOptions::busy_poll`]) drives its queues: for throughput, at the cost of latency whenever nobody polls. Of
    /// the NAPI instances of the port's queues where the kernel can (Linux 6.13) and the driver tells them, otherwise of
    /// the whole interface; the report says which. Put back when the port closes, and after a kill by the next port
    /// that changes something, or by [`changes::recover`](crate::changes::recover). Default: nothing is changed.
    #[must_use]
    #[doc(alias = "napi_defer_hard_irqs")]
    #[doc(alias = "gro_flush_timeout")]
    pub fn deferral(mut self, deferral: Deferral) -> Self {
        self.settings.deferral = Some(deferral);
        self
    }

    /// Lets kernel threads poll the interface's queues while the port is open, instead of the software interrupt. Put
    /// back as [`deferral`](Self::deferral) is. Linux 5.12. Default: nothing is changed.
    #[must_use]
    pub fn threaded_napi(mut self, threaded: ThreadedNapi) -> Self {
        self.settings.threaded = Some(threaded);
        self
    }

    /// The same once more, with descriptors of its own.
    fn try_clone(&self) -> Result<Self, Error> {
        let program = self.program.as_ref().map(Program::try_clone).transpose();
        Ok(Self {
            interface: self.interface.clone(),
            queues: self.queues.clone(),
            mode: self.mode,
            program: program.map_err(|error| Error::Load {
                interface: self.interface.name().to_owned(),
                reason: format!("its descriptors cannot be kept: {error}"),
            })?,
            options: self.options.clone(),
            umem: self.umem.clone(),
            first_place: self.first_place,
            settings: self.settings.clone(),
            mark: self.mark,
        })
    }

    /// Opens the port. On any error everything that was done is undone.
    pub fn open(self) -> Result<Port, Error> {
        open::open(self)
    }
}

/// What has been made of a [`Program`].
struct Loaded {
    /// The caller's program to attach; none when there is none or the caller has attached it.
    attach: Option<OwnedFd>,
    map: Option<XskMap>,
    #[cfg(feature = "attach")]
    own: Option<own::Own>,
    /// Of the caller's program.
    report: Option<ProgramReport>,
}

impl Loaded {
    /// The program to attach for a mode, if there is one.
    fn program_for(&self, path: Path, interface: &Interface) -> Result<Option<BorrowedFd<'_>>, Error> {
        #[cfg(feature = "attach")]
        if let Some(own) = &self.own {
            return own.program_for(path, interface).map(Some);
        }
        #[cfg(not(feature = "attach"))]
        let _ = (path, interface);
        Ok(self.attach.as_ref().map(AsFd::as_fd))
    }

    fn attaches(&self) -> bool {
        #[cfg(feature = "attach")]
        if self.own.is_some() {
            return true;
        }
        self.attach.is_some()
    }
}
