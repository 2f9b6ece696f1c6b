//! From options to a bound socket: UMEM registered, rings mapped, fill ring stocked, bound. In that order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringside_nic::Interface;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets, xdp_options,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::error::Error;
use crate::mmap::Mapping;
use crate::mode::Path;
use crate::options::{QueueOptions, Sizes};
use crate::ring::{CompletionRing, ConsumerRing, FillRing, ProducerRing, RingMap, RxRing, Slot, TxRing};
use crate::sys;
use crate::umem::pool::Pool;
use crate::umem::{FrameMemory, Region, Umem, check_budget};

/// What one attempt to open a socket needs to know.
pub(crate) struct Request<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) queue: u32,
    pub(crate) path: Path,
    pub(crate) options: &'a QueueOptions,
    pub(crate) sizes: Sizes,
}

/// Things that the caller brings instead of having them made.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) memory: Option<Box<dyn FrameMemory>>,
}

/// A bound socket with its rings.
pub(crate) struct Bound {
    pub(crate) fill: FillRing,
    pub(crate) completion: CompletionRing,
    pub(crate) rx: Option<RxRing>,
    pub(crate) tx: Option<TxRing>,
    pub(crate) fd: OwnedFd,
    pub(crate) pool: Pool,
    /// Packets per wake-up call on a copy path, where the kernel could be told.
    pub(crate) tx_budget: Option<u32>,
}

/// Why an attempt failed, as far as it decides what is tried next.
pub(crate) enum Failure {
    /// `EBUSY` from bind: held by another socket, or not yet free after a close.
    Busy,
    /// The kernel or the driver refuses this path.
    Refused(Errno),
    /// Trying anything else makes no sense.
    Fatal(Error),
}

impl Failure {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

impl Request<'_> {
    /// One attempt, with a UMEM of its own: a UMEM that saw a failed bind cannot be bound again.
    pub(crate) fn open(&self, parts: Parts) -> Result<Bound, Failure> {
        let bytes = self.sizes.geometry.bytes();
        let brought = parts.socket.is_some() || parts.memory.is_some();
        let region = match parts.memory {
            Some(memory) => Region::custom(memory, bytes)?,
            None => {
                check_budget(self.interface.name(), self.queue, bytes as u64)?;
                Region::map(bytes, self.options.huge_pages).map_err(|errno| Error::Memory {
                    interface: self.interface.name().to_owned(),
                    queue: self.queue,
                    required: bytes as u64,
                    limit: format!("mmap() answered {errno}"),
                    advice: "use fewer or smaller frames, or free memory".into(),
                })?
            }
        };
        let fd = match parts.socket {
            Some(fd) => fd,
            None => self.socket()?,
        };
        let umem = Umem::new(region, self.sizes.geometry);
        // What another socket had locked, the kernel gives back a little after it was closed, as it does queues. A step
        // of the ladder that was refused is such a socket.
        self.patiently(
            |failure| matches!(failure, Failure::Fatal(Error::Memory { .. })),
            || Ok(self.register(fd.as_fd(), &umem)?),
        )?;
        let mut bound = self.map_rings(fd, umem)?;
        if self.sizes.tx != 0 {
            bound.tx_budget = self.set_tx_budget(bound.fd.as_fd())?;
        }
        if let Some(busy_poll) = self.options.busy_poll {
            sys::set_busy_poll(bound.fd.as_fd(), busy_poll.micros, busy_poll.budget).map_err(|(call, errno)| {
                self.failed(
                    call,
                    errno,
                    match errno {
                        Errno::INVAL => "; a budget is 1 to 65535 packets, a time 1 to 2147483647 us",
                        _ => "; preferred busy-polling needs Linux 5.11 and CAP_NET_ADMIN",
                    },
                )
            })?;
        }
        // Before bind: most zero-copy drivers take frames from the fill ring while they set the queue up, and some
        // never look again when it was empty then.
        bound.stock_fill_ring(self.sizes.fill_target);
        if brought {
            // There is but this socket: it has to be tried again itself. A busy queue leaves it as it was.
            self.patiently(Failure::is_busy, || self.bind(bound.fd.as_fd()))?;
        } else {
            self.bind(bound.fd.as_fd())?;
        }
        Ok(bound)
    }

    /// As [`Request::open`], again and again while the queue is busy, for as long as the options say.
    pub(crate) fn open_patiently(&self) -> Result<Bound, Failure> {
        self.patiently(Failure::is_busy, || self.open(Parts::default()))
    }

    fn patiently<T>(
        &self,
        passes: impl Fn(&Failure) -> bool,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            match attempt() {
                Err(failure) if passes(&failure) && start.elapsed() < self.options.busy_timeout => {
                    std::thread::sleep(pause.min(self.options.busy_timeout.saturating_sub(start.elapsed())));
                    // The worker that frees the queue needs the lock that each attempt takes, too.
                    pause = (pause * 2).min(Duration::from_millis(80));
                }
                result => return result,
            }
        }
    }

    /// The error for a queue that stayed busy. The holder of the interface's XDP program is the probable owner, unless
    /// that program is `ours`.
    pub(crate) fn busy(&self, ours: bool) -> Error {
        Error::QueueBusy {
            interface: self.interface.name().to_owned(),
            queue: self.queue,
            waited: self.options.busy_timeout,
            holder: if ours {
                String::new()
            } else {
                crate::conflict::holder_of(self.interface)
            },
        }
    }

    fn socket(&self) -> Result<OwnedFd, Error> {
        socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => Error::Permission {
                action: "opening an XDP socket",
                interface: self.interface.name().to_owned(),
                errno,
                needs: "CAP_NET_RAW",
            },
            Errno::AFNOSUPPORT => Error::Unsupported {
                what: "the address family AF_XDP",
                errno,
                since: "4.18",
                config: ", with CONFIG_XDP_SOCKETS=y",
            },
            errno => self.failed("socket(AF_XDP)", errno, ""),
        })
    }

    fn register(&self, fd: BorrowedFd<'_>, umem: &Umem) -> Result<(), Error> {
        let geometry = umem.geometry();
        let registration = XdpUmemReg {
            addr: umem.region().as_ptr().as_ptr() as u64,
            len: geometry.bytes() as u64,
            chunk_size: geometry.frame_size(),
            headroom: geometry.headroom(),
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(fd, registration).map_err(|errno| match errno {
            Errno::NOBUFS | Errno::NOMEM => Error::Memory {
                interface: self.interface.name().to_owned(),
                queue: self.queue,
                required: geometry.bytes() as u64,
                limit: format!(
                    "the kernel refused to pin them ({errno}): RLIMIT_MEMLOCK is {}, and other memory that this user has locked counts too",
                    crate::umem::memlock_text()
                ),
                advice: "raise it (ulimit -l), give the program CAP_IPC_LOCK, or use fewer frames".into(),
            },
            Errno::BUSY | Errno::INVAL => self.failed(
                "setsockopt(XDP_UMEM_REG)",
                errno,
                "; a socket that was handed over must be fresh: no UMEM registered, not bound",
            ),
            errno => self.failed("setsockopt(XDP_UMEM_REG)", errno, ""),
        })
    }

    fn map_rings(&self, fd: OwnedFd, umem: Arc<Umem>) -> Result<Bound, Error> {
        let Sizes {
            rx,
            tx,
            fill,
            completion,
            ..
        } = self.sizes;
        let set = |call: &'static str, result: Result<(), Errno>| {
            result.map_err(|errno| self.failed(call, errno, "; a ring needs memory of the kernel's: try fewer slots"))
        };
        set("setsockopt(XDP_UMEM_FILL_RING)", set_xdp_umem_fill_ring_size(&fd, fill))?;
        set(
            "setsockopt(XDP_UMEM_COMPLETION_RING)",
            set_xdp_umem_completion_ring_size(&fd, completion),
        )?;
        if rx != 0 {
            set("setsockopt(XDP_RX_RING)", set_xdp_rx_ring_size(&fd, rx))?;
        }
        if tx != 0 {
            set("setsockopt(XDP_TX_RING)", set_xdp_tx_ring_size(&fd, tx))?;
        }
        let offsets = xdp_mmap_offsets(&fd).map_err(|errno| self.failed("getsockopt(XDP_MMAP_OFFSETS)", errno, ""))?;
        Ok(Bound {
            fill: ProducerRing::new(self.map::<u64>(fd.as_fd(), &offsets.fr, fill, XDP_UMEM_PGOFF_FILL_RING)?),
            completion: ConsumerRing::new(self.map::<u64>(
                fd.as_fd(),
                &offsets.cr,
                completion,
                XDP_UMEM_PGOFF_COMPLETION_RING,
            )?),
            rx: match rx {
                0 => None,
                _ => Some(ConsumerRing::new(self.map::<crate::ring::Desc>(
                    fd.as_fd(),
                    &offsets.rx,
                    rx,
                    XDP_PGOFF_RX_RING,
                )?)),
            },
            tx: match tx {
                0 => None,
                _ => Some(ProducerRing::new(self.map::<crate::ring::Desc>(
                    fd.as_fd(),
                    &offsets.tx,
                    tx,
                    XDP_PGOFF_TX_RING,
                )?)),
            },
            fd,
            pool: Pool::new(umem),
            tx_budget: None,
        })
    }

    fn map<T: Slot>(&self, fd: BorrowedFd<'_>, offset: &XdpRingOffset, size: u32, page: u64) -> Result<RingMap, Error> {
        let mapping = Mapping::shared(fd, RingMap::bytes::<T>(offset, size), page)
            .map_err(|errno| self.failed("mmap() of a ring", errno, ""))?;
        RingMap::new::<T>(mapping, offset, size).ok_or(Error::Unsupported {
            what: "the ring flag need_wakeup",
            errno: Errno::OPNOTSUPP,
            since: "5.4",
            config: "",
        })
    }

    /// A budget that was asked for must be had; the default is taken where the kernel offers it.
    fn set_tx_budget(&self, fd: BorrowedFd<'_>) -> Result<Option<u32>, Error> {
        // The kernel takes 32 up to the TX ring's size.
        // https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xsk.c#L1515
        let budget = self.options.tx_budget.unwrap_or(self.sizes.tx).min(self.sizes.tx);
        if budget < 32 && self.options.tx_budget.is_none() {
            return Ok(None);
        }
        match sys::set_tx_budget(fd, budget) {
            Ok(()) => Ok(Some(budget)),
            Err(_) if self.options.tx_budget.is_none() => Ok(None),
            Err(errno) => Err(self.failed(
                "setsockopt(XDP_MAX_TX_SKB_BUDGET)",
                errno,
                "; it needs Linux 6.17, and a value from 32 to the TX ring's size",
            )),
        }
    }

    fn bind(&self, fd: BorrowedFd<'_>) -> Result<(), Failure> {
        let mut flags = match self.path {
            Path::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Path::NativeCopy | Path::Generic | Path::Copy => SocketAddrXdpFlags::XDP_COPY,
        };
        if self.options.need_wakeup {
            flags |= SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        }
        match bind(fd, &SocketAddrXdp::new(flags, self.interface.index(), self.queue)) {
            Ok(()) => {}
            Err(Errno::BUSY) => return Err(Failure::Busy),
            Err(Errno::NETDOWN) => {
                return Err(Failure::Fatal(Error::InterfaceDown {
                    interface: self.interface.name().to_owned(),
                }));
            }
            Err(Errno::NODEV) => {
                return Err(Failure::Fatal(self.failed(
                    "bind()",
                    Errno::NODEV,
                    "; the interface was removed",
                )));
            }
            Err(errno) => return Err(Failure::Refused(errno)),
        }
        // What was obtained, asked of the kernel and not inferred from the flags.
        let zero_copy = xdp_options(fd).is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        if zero_copy != (self.path == Path::ZeroCopy) {
            return Err(Failure::Refused(Errno::OPNOTSUPP));
        }
        Ok(())
    }

    pub(crate) fn failed(&self, call: &'static str, errno: Errno, advice: &'static str) -> Error {
        Error::Socket {
            interface: self.interface.name().to_owned(),
            queue: self.queue,
            call,
            errno,
            advice,
        }
    }
}

impl Bound {
    fn stock_fill_ring(&mut self, frames: u32) {
        let mut slots = self.fill.reserve(frames).expect("a new ring is empty");
        for _ in 0..slots.remaining() {
            let Some(frame) = self.pool.take() else { break };
            let pushed = slots.push(self.pool.lend_to_fill(frame));
            debug_assert!(pushed);
        }
    }
}
