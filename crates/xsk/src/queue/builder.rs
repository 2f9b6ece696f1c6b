//! A single queue from parts: for those who bring their own XDP program, socket or memory.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringside_nic::Interface;
use ringside_nic::XdpMode;

use super::{Parameters, Queue};
use crate::error::Error;
use crate::link::Link;
use crate::mode::{Mode, Path};
use crate::nic_buffers;
use crate::options::{Direction, QueueOptions, Sizes};
use crate::report::QueueReport;
use crate::socket::{Bound, Failure, Parts, Request, check_mtu};
use crate::umem::{Across, FrameMemory, SharedUmem};

/// Opens one queue of an interface without touching its XDP program.
///
/// The caller puts the queue's socket ([`AsFd`](std::os::fd::AsFd)) into an XSKMAP, see [`XskMap`](crate::XskMap), and
/// attaches a program that redirects to it. A socket made by a privileged process and memory of the caller's can be used.
///
/// ```no_run
/// # use ringside_xsk::{Interface, Queue, QueueOptions, XskMap, Error};
/// # fn open(map: std::os::fd::OwnedFd) -> Result<(), Error> {
/// let interface = Interface::by_name("veth0")?;
/// let queue = Queue::builder(&interface, 0).options(QueueOptions::new().frames(1024)).open()?;
/// XskMap::from_fd(map)?.insert(&queue)?;
/// # Ok(())
/// # }
/// ```
pub struct QueueBuilder {
    interface: Interface,
    queue: u32,
    mode: Mode,
    options: QueueOptions,
    umem: Option<SharedUmem>,
    parts: Parts,
}

impl QueueBuilder {
    pub(crate) fn new(interface: Interface, queue: u32) -> Self {
        Self {
            interface,
            queue,
            mode: Mode::Auto,
            options: QueueOptions::default(),
            umem: None,
            parts: Parts::default(),
        }
    }

    /// Mode to take. Whether a copy is native or generic is up to the attached program, and only checked here.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sizes, direction, waiting.
    #[must_use]
    pub fn options(mut self, options: QueueOptions) -> Self {
        self.options = options;
        self
    }

    /// A fresh `AF_XDP` socket (no UMEM, no rings, not bound), for example received from a privileged process over a unix
    /// socket: `CAP_NET_RAW` is needed to make one, not to use it. With it exactly one mode can be tried: zero-copy
    /// if required, else copy.
    #[must_use]
    pub fn socket(mut self, socket: OwnedFd) -> Self {
        self.parts.socket = Some(socket);
        self
    }

    /// Frame memory of the caller's, page-aligned, at least
    /// [`frames_on`](QueueOptions::frames_on) × frame size. As with
    /// [`socket`](Self::socket) exactly one mode can be tried.
    #[must_use]
    pub fn memory(mut self, memory: Box<dyn FrameMemory>) -> Self {
        self.parts.memory = Some(memory);
        self
    }

    /// Frames of a UMEM that is shared with other queues or ports, instead of one of its own.
    #[must_use]
    pub fn umem(mut self, umem: &SharedUmem) -> Self {
        self.umem = Some(umem.clone());
        self
    }

    /// Opens the queue.
    pub fn open(mut self) -> Result<Queue, Error> {
        let link = Arc::new(Link::watch(&self.interface)?);
        // The kernel binds a socket to an interface that is down, and the first use fails.
        let state = self.interface.state()?;
        if !state.admin_up {
            return Err(Error::InterfaceDown {
                interface: self.interface.name().to_owned(),
            });
        }
        let available = self.interface.rx_queues()?.max(self.interface.tx_queues()?);
        if self.queue >= available {
            return Err(Error::NoSuchQueue {
                interface: self.interface.name().to_owned(),
                queue: self.queue,
                available,
                direction: "receive or transmit",
            });
        }
        if self.options.direction != Direction::Transmit {
            let sizes = Sizes::choose(&self.options, Path::Copy, 0, self.umem.as_ref())?;
            check_mtu(&self.interface, state.mtu, sizes)?;
        }
        if self.umem.is_some() && self.parts.memory.is_some() {
            return Err(Error::Setting {
                setting: "memory",
                value: "the caller's".into(),
                reason: "a queue has frames of a shared UMEM or memory of its own, not both".into(),
            });
        }
        let only_once = self.parts.socket.is_some() || self.parts.memory.is_some();
        let steps: &[Path] = match self.mode {
            Mode::Require(Path::ZeroCopy) => &[Path::ZeroCopy],
            Mode::Auto if !only_once => &[Path::ZeroCopy, Path::Copy],
            _ => &[Path::Copy],
        };
        let nic_ring = self.interface.rings().map_or(0, |rings| rings.rx);
        let (interface, shared, lent) = (&self.interface, self.umem.as_ref(), self.parts.memory.is_some());
        let choose = |options: &QueueOptions, path, nic_ring| match lent {
            // Somebody else's memory is as long as that has made it.
            true => Sizes::choose(options, path, nic_ring, shared),
            false => nic_buffers::sizes(interface, state.mtu, options, path, nic_ring, shared),
        };
        let mut why = Vec::new();
        let mut short_of: Option<String> = None;
        let mut parts = Some(std::mem::take(&mut self.parts));
        let mut steps_left = steps.iter();
        let mut step = steps_left.next();
        while let Some(&path) = step {
            let request = Request {
                interface: &self.interface,
                queue: self.queue,
                path,
                options: &self.options,
                sizes: choose(&self.options, path, nic_ring)?,
                shared: self.umem.as_ref(),
                mtu: state.mtu,
                link: &link,
            };
            let result = if only_once {
                request.open(parts.take().unwrap_or_default())
            } else {
                request.open_patiently()
            };
            match result {
                Ok(bound) => {
                    let path = self.copy_path(path)?;
                    let mut queue = finish(&request, bound, path, std::mem::take(&mut why));
                    if let Some(limit) = &short_of {
                        queue.note(self.options.fewer_frames(limit));
                    }
                    if !queue.lacks_program() {
                        return Ok(queue);
                    }
                    queue.end_unused();
                    why.push(format!("{path} refused: {LACKS_PROGRAM}"));
                }
                Err(Failure::Busy) => return Err(request.busy(false)),
                Err(Failure::Fatal(Error::Memory { ref limit, .. }))
                    if !only_once && request.can_take_fewer_frames() =>
                {
                    short_of = Some(limit.clone());
                    self.options.take_fewer_frames();
                    continue;
                }
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Refused(errno)) => {
                    let hint = request.hint(errno);
                    why.push(format!("{path} refused by bind(): {errno}{hint}"));
                }
                Err(Failure::Lacks(reason)) => why.push(format!("{path} was not tried: {reason}")),
            }
            step = steps_left.next();
        }
        Err(Error::Mode {
            interface: self.interface.name().to_owned(),
            wanted: steps[steps.len() - 1],
            reason: why.join("; "),
        })
    }

    /// Native or generic: what the attached program makes of a copy.
    fn copy_path(&self, bound: Path) -> Result<Path, Error> {
        if bound == Path::ZeroCopy {
            return Ok(bound);
        }
        let attached = self.interface.state()?.xdp.map(|xdp| xdp.mode);
        let path = match attached {
            Some(XdpMode::Generic) => Path::Generic,
            Some(_) => Path::NativeCopy,
            None => Path::Copy,
        };
        match self.mode {
            // Without a program nothing is received yet; the caller attaches one and knows how.
            Mode::Require(wanted) if path != wanted && ![path, wanted].contains(&Path::Copy) => Err(Error::Mode {
                interface: self.interface.name().to_owned(),
                wanted,
                reason: format!("the attached XDP program makes it {path}"),
            }),
            _ => Ok(path),
        }
    }
}

impl Queue {
    /// A further socket on the same queue, with the same UMEM and mode: a frame received on one can be sent from the
    /// other without a copy. An XDP program decides, by the place in an XSKMAP that each is put at
    /// ([`XskMap::insert_at`](crate::XskMap::insert_at)), which of them a packet goes to.
    ///
    /// Both may be on different threads. The kernel has one fill and one completion ring for the queue, so from here on
    /// both take a lock for each burst. Of the options direction, RX and TX ring, burst and time-outs count. Linux 5.4.
    ///
    /// # Errors
    ///
    /// As [`QueueBuilder::open`]; [`Error::Setting`] for a sibling that receives where this queue only transmits, for then
    /// nobody fills the fill ring.
    #[doc(alias = "XDP_SHARED_UMEM")]
    pub fn sibling(&mut self, options: &QueueOptions) -> Result<Self, Error> {
        self.check_process()?;
        let first = self.report.direction;
        if options.direction != Direction::Transmit && first == Direction::Transmit
            || options.direction != Direction::Receive && first == Direction::Receive
        {
            return Err(Error::Setting {
                setting: "direction",
                value: format!("{:?}", options.direction),
                reason: format!(
                    "the fill and completion ring of {} queue {} were made for {first:?}; open it with Direction::Both first",
                    self.report.interface, self.report.queue
                ),
            });
        }
        let own = Sizes::choose(options, self.report.path, 0, None)?;
        if options.tx_metadata.is_some() && own.geometry.tx_features() != self.sizes.geometry.tx_features() {
            return Err(Error::Setting {
                setting: "tx_metadata",
                value: format!("{:?}", options.tx_metadata),
                reason: format!(
                    "{} queue {} was opened without, or for other requests, and its siblings share that: open it with the same",
                    self.report.interface, self.report.queue
                ),
            });
        }
        let interface = self.interface.clone();
        let request = Request {
            interface: &interface,
            queue: self.report.queue,
            path: self.report.path,
            options,
            sizes: Sizes {
                rx: own.rx,
                tx: own.tx,
                ..self.sizes
            },
            shared: None,
            mtu: self.bound.mtu,
            link: &self.link.clone(),
        };
        self.end_working_set()?;
        match request.open_beside(&mut self.bound) {
            Ok(bound) => {
                let mut sibling = finish(&request, bound, self.report.path, Vec::new());
                sibling.end_working_set()?;
                Ok(sibling)
            }
            Err(Failure::Fatal(error)) => Err(error),
            Err(Failure::Busy) => Err(request.busy(true)),
            // A sibling has the mode of the first queue, and asks for nothing that it was not opened for.
            Err(Failure::Lacks(reason)) => Err(Error::Mode {
                interface: request.interface.name().to_owned(),
                wanted: self.report.path,
                reason,
            }),
            Err(Failure::Refused(errno)) => Err(request.failed(
                "bind() with XDP_SHARED_UMEM",
                errno,
                "; several sockets on one queue need Linux 5.4",
            )),
        }
    }
}

/// Why a driver has no zero-copy for a socket that only sends.
pub(crate) const LACKS_PROGRAM: &str = "its driver sends with zero-copy only while an \
    XDP program is attached: attach one, or open the port for both directions";

/// Makes the queue of a bound socket, with its report.
pub(crate) fn finish(request: &Request<'_>, mut bound: Bound, path: Path, why: Vec<String>) -> Queue {
    let Request {
        interface,
        queue,
        options,
        sizes,
        ..
    } = request;
    let region = bound.umem.region();
    let mut notes: Vec<String> = region.note().map(str::to_owned).into_iter().collect();
    if path == Path::ZeroCopy
        && let Across::Told(told) = Across::of(&sizes.geometry, region)
    {
        notes.push(told);
    }
    // Those of a sibling are the first queue's.
    let receives_for_host = request.receives_for_host() && bound.pair.own().is_some();
    let report = QueueReport {
        interface: interface.name().to_owned(),
        queue: *queue,
        path,
        direction: options.direction,
        rx_ring: sizes.rx,
        tx_ring: sizes.tx,
        fill_ring: sizes.fill,
        completion_ring: sizes.completion,
        frames: sizes.frames,
        umem: bound.umem.id(),
        frame_size: sizes.geometry.frame_size(),
        headroom: sizes.geometry.headroom(),
        multi_buffer: sizes.geometry.multi_buffer(),
        tx_metadata: bound
            .pair
            .read(|pair| pair.pool.tx_metadata().map(|obtained| obtained.report)),
        memory_bytes: region.len() as u64,
        pages: region.pages(),
        need_wakeup: options.need_wakeup,
        busy_poll: options.busy_poll,
        tx_budget: (path != Path::ZeroCopy && options.direction != Direction::Receive)
            .then(|| bound.tx_budget.unwrap_or(32)),
        host_frames: if receives_for_host { sizes.fill_target } else { 0 },
        refused_modes: why,
        notes,
    };
    Queue::new(
        bound,
        Parameters {
            sizes: *sizes,
            interface: (*interface).clone(),
            link: Arc::clone(request.link),
            frames_per_packet: request.frames_per_packet(),
            batch: options.batch,
            stall_timeout: options.stall_timeout,
            hints: options.hints.is_some(),
            report,
        },
    )
}

impl fmt::Debug for QueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("interface", &self.interface)
            .field("queue", &self.queue)
            .field("mode", &self.mode)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
