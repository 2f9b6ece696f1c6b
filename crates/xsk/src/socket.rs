//! From options to a bound socket: UMEM registered, rings mapped, fill ring stocked, bound. In that order.

mod checks;

pub(crate) use checks::check_mtu;

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
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets, XdpOptionsFlags, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::conflict;
use crate::error::Error;
use crate::link::Link;
use crate::mmap::Mapping;
use crate::mode::Path;
use crate::nic_buffers;
use crate::options::{BusyPoll, QueueOptions, Sizes};
use crate::pair::{Pair, PairRef};
use crate::ring::{Addr, CompletionRing, ConsumerRing, Desc, FillRing, ProducerRing, RingMap, RxRing, Slot, TxRing};
use crate::sys;
use crate::umem::pool::Pool;
use crate::umem::{Across, FrameMemory, Geometry, Region, SharedUmem, Sockets, Umem, check_budget};

/// What one attempt to open a socket needs to know.
pub(crate) struct Request<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) queue: u32,
    pub(crate) path: Path,
    pub(crate) options: &'a QueueOptions,
    pub(crate) sizes: Sizes,
    /// The UMEM that the queue shares with others, if it does.
    pub(crate) shared: Option<&'a SharedUmem>,
    /// The interface's MTU.
    pub(crate) mtu: u32,
    /// Who watches the interface.
    pub(crate) link: &'a Arc<Link>,
}

/// Time in which memory of a socket that was just closed can be locked again, before a queue takes
/// fewer frames instead.
const FREED_MEMORY_TIMEOUT: Duration = Duration::from_millis(200);

/// What comes in front of the bytes that the MTU counts.
pub(crate) const ETHERNET_AND_TWO_TAGS: u32 = 14 + 2 * 4;

/// Things that the caller brings instead of having them made.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) memory: Option<Box<dyn FrameMemory>>,
}

/// A bound socket with its rings.
pub(crate) struct Bound {
    pub(crate) rx: Option<RxRing>,
    pub(crate) tx: Option<TxRing>,
    /// Whoever opens a further socket on the same UMEM borrows it for that moment.
    pub(crate) fd: Arc<OwnedFd>,
    /// Behind the socket: when the last one of a pair is closed, frames that the kernel had can be taken back.
    pub(crate) pair: PairRef,
    pub(crate) umem: Arc<Umem>,
    /// Frames that a packet to be sent may be in.
    pub(crate) most_frames: usize,
    /// The interface's MTU: no longer packet is sent.
    pub(crate) mtu: u32,
    /// The UMEM's other users may open sockets beside this one.
    pub(crate) shared: Option<SharedUmem>,
    /// Packets per wake-up call on a copy path, where the kernel could be told.
    pub(crate) tx_budget: Option<u32>,
}

impl Drop for Bound {
    /// From here on nobody borrows the socket any more, so dropping `fd` closes it, before the pair takes its frames back.
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.sockets().remove(&self.fd);
        }
    }
}

/// Why an attempt failed, as far as it decides what is tried next.
pub(crate) enum Failure {
    /// `EBUSY` from bind: held by another socket, or not yet free after a close.
    Busy,
    /// The kernel or the driver refuses this path.
    Refused(Errno),
    /// This path lacks something that was asked for, as a sentence.
    Lacks(String),
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

/// Remedy when the kernel refuses busy-polling.
pub(crate) const BUSY_POLL_ADVICE: &str = "; preferred busy-polling needs Linux 5.11 \
    and CAP_NET_ADMIN";

impl Request<'_> {
    /// One attempt, with a UMEM of its own (a UMEM that saw a failed bind cannot be bound again) or with the shared one.
    pub(crate) fn open(&self, parts: Parts) -> Result<Bound, Failure> {
        let brought = parts.socket.is_some() || parts.memory.is_some();
        let tx_metadata = self.tx_metadata()?;
        let umem = match self.shared {
            Some(shared) => Arc::clone(shared.umem()),
            None => self
                .own_umem(parts.memory)
                .map_err(|error| self.too_little_memory(error))?,
        };
        if self.path == Path::ZeroCopy
            && let Across::Refused(reason) = Across::of(umem.geometry(), umem.region())
        {
            return Err(Failure::Lacks(reason));
        }
        if let Some(reason) = nic_buffers::cuts(self.interface, self.mtu, self.path, umem.geometry()) {
            return Err(Failure::Lacks(reason));
        }
        // Of a queue that receives this was checked first.
        if self.receives_for_host() {
            check_mtu(self.interface, self.mtu, self.sizes).map_err(|error| Failure::Lacks(error.to_string()))?;
        }
        self.check_tx_ring()?;
        self.check_frames()?;
        let Some(mut pool) = Pool::new(Arc::clone(&umem), self.sizes.frames) else {
            let error = self.no_frames_left(&umem);
            return Err(match self.receives_for_host() {
                true => Failure::Lacks(error.to_string()),
                false => error.into(),
            });
        };
        pool.set_tx_metadata(tx_metadata);
        let fd = match parts.socket {
            Some(fd) => fd,
            None => self.socket()?,
        };
        // Held until the socket is bound: the first one on a shared UMEM registers it.
        let mut sockets = self.shared.map(SharedUmem::sockets);
        let first = sockets.as_mut().map_or(Ok(None), Sockets::any)?;
        if first.is_none() {
            // What another socket had locked, the kernel gives back a little after it was closed, as it does queues. A
            // step of the ladder that was refused is such a socket.
            self.patiently(
                |failure| matches!(failure, Failure::Fatal(Error::Memory { .. })),
                || {
                    self.register(fd.as_fd(), &umem)
                        .map_err(|error| self.too_little_memory(error))
                },
            )?;
        }
        let (fill, completion) = self.pair_rings(fd.as_fd())?;
        let pair = Pair {
            fill,
            completion,
            pool,
            fill_target: self.sizes.fill_target,
        };
        let mut bound = self.bound(fd, PairRef::new(pair), umem)?;
        if let Some(busy_poll) = self.options.busy_poll {
            self.set_busy_poll(&bound, busy_poll)?;
        }
        // Before bind: most zero-copy drivers take frames from the fill ring while they set the queue up, and some
        // never look again when it was empty then.
        bound.pair.lock().refill().expect("a new ring is empty");
        if brought {
            // There is but this socket: it has to be tried again itself. A busy queue leaves it as it was.
            self.patiently(Failure::is_busy, || self.bind(bound.fd.as_fd(), first.as_ref()))?;
        } else {
            self.bind(bound.fd.as_fd(), first.as_ref())?;
        }
        // Not before: a NIC that was not bound to writes to no frame, and the next step of the ladder needs them all.
        if self.path == Path::ZeroCopy {
            bound.pair.lock().pool.zero_copy();
        }
        if let Some(sockets) = &mut sockets {
            sockets.add(&bound.fd);
            bound.shared = self.shared.cloned();
        }
        Ok(bound)
    }

    /// A further socket on the queue of `first`, with the same UMEM and the same pair of rings.
    pub(crate) fn open_beside(&self, first: &mut Bound) -> Result<Bound, Failure> {
        let fd = self.socket()?;
        let mut bound = self.bound(fd, first.pair.share(), Arc::clone(&first.umem))?;
        if let Some(busy_poll) = self.options.busy_poll {
            self.set_busy_poll(&bound, busy_poll)?;
        }
        self.bind(bound.fd.as_fd(), Some(&first.fd))?;
        if let Some(shared) = &first.shared {
            shared.sockets().add(&bound.fd);
            bound.shared = Some(shared.clone());
        }
        Ok(bound)
    }

    fn own_umem(&self, memory: Option<Box<dyn FrameMemory>>) -> Result<Arc<Umem>, Error> {
        let bytes = self.sizes.geometry.bytes();
        let region = match memory {
            Some(memory) => Region::custom(memory, bytes)?,
            None => {
                check_budget(|| self.whose(), bytes as u64, 1)?;
                Region::map(bytes, self.options.huge_pages)
                    .map_err(|errno| Error::unmapped(self.whose(), bytes, errno))?
            }
        };
        Ok(Umem::new(region, self.sizes.geometry, self.options.hints.clone()))
    }

    fn whose(&self) -> String {
        format!("{} queue {}", self.interface.name(), self.queue)
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
                Err(failure) if passes(&failure) && start.elapsed() < self.timeout(&failure) => {
                    std::thread::sleep(pause);
                    // The worker that frees the queue needs the lock that each attempt takes, too.
                    pause = (pause * 2).min(Duration::from_millis(80));
                }
                result => return result,
            }
        }
    }

    /// For how long what failed is tried again.
    fn timeout(&self, failure: &Failure) -> Duration {
        let timeout = self.options.busy_timeout.unwrap_or_else(|| match failure {
            Failure::Busy => conflict::busy_timeout(self.interface, self.queue),
            _ => conflict::BUSY_TIMEOUT,
        });
        match failure {
            // Fewer frames are the better remedy.
            Failure::Fatal(Error::Memory { .. }) if self.can_take_fewer_frames() => timeout.min(FREED_MEMORY_TIMEOUT),
            _ => timeout,
        }
    }

    /// Returns whether the queue has frames of its own, and more than the fewest by default.
    pub(crate) fn can_take_fewer_frames(&self) -> bool {
        self.shared.is_none() && self.options.can_take_fewer_frames()
    }

    /// The error for a queue that stayed busy. The holder of the interface's XDP program is the probable owner, unless
    /// that program is `ours`.
    pub(crate) fn busy(&self, ours: bool) -> Error {
        Error::QueueBusy {
            interface: self.interface.name().to_owned(),
            queue: self.queue,
            waited: self.timeout(&Failure::Busy),
            holder: conflict::holder_of(self.interface, self.queue, ours),
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
            flags: umem_flags(geometry),
            tx_metadata_len: geometry.reserved(),
        };
        set_xdp_umem_reg(fd, registration).map_err(|errno| match errno {
            Errno::NOBUFS | Errno::NOMEM => Error::Memory {
                whose: self.whose(),
                required: geometry.bytes() as u64,
                limit: format!(
                    "the kernel refused to pin them ({errno}): RLIMIT_MEMLOCK is {}, and other memory that this user has locked counts too",
                    crate::umem::memlock_text()
                ),
                advice: "raise it (ulimit -l), give the program CAP_IPC_LOCK, or use fewer frames".into(),
            },
            // How much newer kernels want behind the headrooms is no part of their interface: 448 bytes on Linux 6.18.44.
            Errno::INVAL if geometry.headroom() != 0 => Error::Setting {
                setting: "headroom",
                value: geometry.headroom().to_string(),
                reason: format!(
                    "the kernel refused it ({errno}): it leaves {} of the frame's {} bytes for the packet and the kernel's own use, and newer kernels want more; take less, or larger frames{}",
                    geometry.packet_room(),
                    geometry.frame_size(),
                    if geometry.reserved() == 0 { "" } else { "; and TX metadata needs Linux 6.11" }
                ),
            },
            Errno::INVAL if geometry.reserved() != 0 => Error::Unsupported {
                what: "room for TX metadata in a UMEM (XDP_UMEM_TX_METADATA_LEN)",
                errno,
                since: "6.11",
                config: "",
            },
            Errno::BUSY | Errno::INVAL => self.failed(
                "setsockopt(XDP_UMEM_REG)",
                errno,
                "; a socket that was handed over must be fresh: no UMEM registered, not bound",
            ),
            errno => self.failed("setsockopt(XDP_UMEM_REG)", errno, ""),
        })
    }

    /// Makes the fill and the completion ring, which every pair has, whether they are used or not.
    fn pair_rings(&self, fd: BorrowedFd<'_>) -> Result<(FillRing, CompletionRing), Error> {
        let Sizes { fill, completion, .. } = self.sizes;
        self.sized("setsockopt(XDP_UMEM_FILL_RING)", set_xdp_umem_fill_ring_size(fd, fill))?;
        self.sized(
            "setsockopt(XDP_UMEM_COMPLETION_RING)",
            set_xdp_umem_completion_ring_size(fd, completion),
        )?;
        let offsets = self.offsets(fd)?;
        Ok((
            ProducerRing::new(self.map::<Addr>(fd, &offsets.fr, fill, XDP_UMEM_PGOFF_FILL_RING)?),
            ConsumerRing::new(self.map::<Addr>(fd, &offsets.cr, completion, XDP_UMEM_PGOFF_COMPLETION_RING)?),
        ))
    }

    /// Makes the rings of the socket itself.
    fn bound(&self, fd: OwnedFd, pair: PairRef, umem: Arc<Umem>) -> Result<Bound, Error> {
        let Sizes { rx, tx, .. } = self.sizes;
        if rx != 0 {
            self.sized("setsockopt(XDP_RX_RING)", set_xdp_rx_ring_size(&fd, rx))?;
        }
        if tx != 0 {
            self.sized("setsockopt(XDP_TX_RING)", set_xdp_tx_ring_size(&fd, tx))?;
        }
        let offsets = self.offsets(fd.as_fd())?;
        let mut bound = Bound {
            rx: None,
            tx: None,
            fd: Arc::new(fd),
            pair,
            most_frames: self.most_frames(),
            mtu: self.mtu,
            umem,
            shared: None,
            tx_budget: None,
        };
        let fd = bound.fd.as_fd();
        if rx != 0 {
            bound.rx = Some(ConsumerRing::new(self.map::<Desc>(
                fd,
                &offsets.rx,
                rx,
                XDP_PGOFF_RX_RING,
            )?));
        }
        if tx != 0 {
            bound.tx = Some(ProducerRing::new(self.map::<Desc>(
                fd,
                &offsets.tx,
                tx,
                XDP_PGOFF_TX_RING,
            )?));
            bound.tx_budget = self.set_tx_budget(fd)?;
        }
        Ok(bound)
    }

    fn sized(&self, call: &'static str, result: Result<(), Errno>) -> Result<(), Error> {
        result.map_err(|errno| self.failed(call, errno, "; a ring needs memory of the kernel's: try fewer slots"))
    }

    fn offsets(&self, fd: BorrowedFd<'_>) -> Result<XdpMmapOffsets, Error> {
        xdp_mmap_offsets(fd).map_err(|errno| self.failed("getsockopt(XDP_MMAP_OFFSETS)", errno, ""))
    }

    fn set_busy_poll(&self, bound: &Bound, busy_poll: BusyPoll) -> Result<(), Error> {
        sys::set_busy_poll(bound.fd.as_fd(), busy_poll.micros, busy_poll.budget)
            .map_err(|(call, errno)| self.failed(call, errno, BUSY_POLL_ADVICE))
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
        let budget = self.options.tx_budget.unwrap_or(self.sizes.tx);
        if budget < 32 && self.options.tx_budget.is_none() {
            return Ok(None);
        }
        match sys::set_tx_budget(fd, budget) {
            Ok(()) => Ok(Some(budget)),
            Err(_) if self.options.tx_budget.is_none() => Ok(None),
            Err(errno) => Err(self.failed("setsockopt(XDP_MAX_TX_SKB_BUDGET)", errno, "; it needs Linux 6.17")),
        }
    }

    /// Binds the socket; `first` is one on the same UMEM, from which the kernel takes mode and wake-up policy then.
    fn bind(&self, fd: BorrowedFd<'_>, first: Option<&Arc<OwnedFd>>) -> Result<(), Failure> {
        let address = |flags| SocketAddrXdp::new(flags, self.interface.index(), self.queue);
        let result = match first {
            Some(first) => {
                let shared = SocketAddrXdpWithSharedUmem {
                    addr: address(SocketAddrXdpFlags::XDP_SHARED_UMEM),
                    shared_umem_fd: first.as_fd(),
                };
                bind(fd, &shared)
            }
            None => {
                let mut flags = match self.path {
                    Path::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
                    Path::NativeCopy | Path::Generic | Path::Copy => SocketAddrXdpFlags::XDP_COPY,
                };
                if self.options.need_wakeup {
                    flags |= SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
                }
                if self.sizes.geometry.multi_buffer() {
                    flags |= SocketAddrXdpFlags::XDP_USE_SG;
                }
                bind(fd, &address(flags))
            }
        };
        match result {
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

    /// What may be the reason for which `bind()` answered this.
    pub(crate) fn hint(&self, errno: Errno) -> &'static str {
        let geometry = &self.sizes.geometry;
        match errno {
            // https://elixir.bootlin.com/linux/v6.18/C/ident/xp_assign_dev
            Errno::OPNOTSUPP if geometry.tx_features().software_checksum() => {
                " (for a driver that leaves packets where they are, IFF_TX_SKB_NO_LINEAR, the kernel fills in no checksums: ask for TxMetadata::checksum, which it or the device does)"
            }
            _ => since(geometry.multi_buffer(), Some(errno)),
        }
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

fn umem_flags(geometry: &Geometry) -> XdpUmemRegFlags {
    // https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L34
    const XDP_UMEM_TX_SW_CSUM: u32 = 1 << 1;
    const XDP_UMEM_TX_METADATA_LEN: u32 = 1 << 2;
    let mut flags = XdpUmemRegFlags::empty();
    flags.set(XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG, geometry.unaligned());
    let mut also = 0;
    if geometry.reserved() != 0 {
        also |= XDP_UMEM_TX_METADATA_LEN;
    }
    if geometry.tx_features().software_checksum() {
        also |= XDP_UMEM_TX_SW_CSUM;
    }
    flags | XdpUmemRegFlags::from_bits_retain(also)
}

/// What may be the reason for `EINVAL` where packets in several frames were asked for.
pub(crate) fn since(multi_buffer: bool, errno: Option<Errno>) -> &'static str {
    if multi_buffer && errno == Some(Errno::INVAL) {
        " (packets in several frames, multi-buffer, need Linux 6.6)"
    } else {
        ""
    }
}
