//! A UMEM for several queues, of one interface or of more.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;

use super::{Geometry, Region, Umem, check_budget};
use crate::error::Error;
use crate::hints::Layouts;
use crate::mmap::Pages;
use crate::opener::Opener;
use crate::tx_metadata::TxMetadata;
use crate::wakeup::wake_rx;

/// Frame memory that several queues share, so that a packet received on one of them leaves by another without a copy:
/// queues of one interface or of several, in this network namespace or in others.
///
/// Each queue takes as many frames out of it as its options say ([`QueueOptions::frames`](crate::QueueOptions::frames)),
/// and gives them back when it is closed. Cheap to clone; the memory lives as long as a clone, a queue or a
/// [`Frame`](crate::Frame) of it. Linux 5.10 (`XDP_SHARED_UMEM` across queues and interfaces).
///
/// The mode is that of the first queue that is opened: the kernel makes all others zero-copy, or all others copy.
///
/// ```no_run
/// use ringside_xsk::{Error, Interface, Port, SharedUmem, Wait};
///
/// let umem = SharedUmem::builder().frames(2048).build()?;
/// let mut from = Port::builder(Interface::by_name("eth0")?).umem(&umem).open()?;
/// let mut to = Port::builder(Interface::by_name("eth1")?).umem(&umem).open()?;
/// let (from, to) = (from.queues_mut().next().unwrap(), to.queues_mut().next().unwrap());
/// loop {
///     let burst = from.recv(Wait::Spin)?;
///     burst.send_on(to).or_else(Error::ignore_link_down)?; // no packet is copied
/// }
/// # Ok::<(), ringside_xsk::Error>(())
/// ```
#[doc(alias = "XDP_SHARED_UMEM")]
#[doc(alias = "xsk_umem__create")]
#[doc(alias = "xsk_socket__create_shared")]
#[derive(Clone)]
pub struct SharedUmem {
    umem: Arc<Umem>,
    sockets: Arc<Mutex<Vec<BoundSocket>>>,
}

impl SharedUmem {
    /// 1024 frames of 2048 bytes unless something else is asked for.
    pub fn builder() -> SharedUmemBuilder {
        SharedUmemBuilder {
            frame_size: crate::options::QueueOptions::DEFAULT_FRAME_SIZE,
            frames: 1024,
            headroom: 0,
            huge_pages: false,
            unaligned: false,
            multi_buffer: false,
            hints: None,
            tx_metadata: TxMetadata::new(),
        }
    }

    /// Of memory that was made elsewhere.
    #[cfg(feature = "testing")]
    pub(crate) fn of(umem: Arc<Umem>) -> Self {
        Self {
            umem,
            sockets: Arc::default(),
        }
    }

    /// Its identity, as [`Frame::umem_id`](crate::Frame::umem_id).
    pub fn id(&self) -> u64 {
        self.umem.id()
    }

    /// Frames that no queue has taken so far, and those on their way home.
    pub fn unclaimed(&self) -> usize {
        self.umem.unclaimed()
    }

    /// Pages that were obtained, and the reason if they are not those asked for.
    pub fn pages(&self) -> (Pages, Option<&str>) {
        (self.umem.region().pages(), self.umem.region().note())
    }

    pub(crate) fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    pub(crate) fn geometry(&self) -> Geometry {
        *self.umem.geometry()
    }

    /// The sockets on this UMEM, for as long as one is being added: the first of them registers the memory with the
    /// kernel, and two at once must not both be the first.
    pub(crate) fn sockets(&self) -> Sockets<'_> {
        Sockets(self.sockets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A bound socket, and the process that bound it.
type BoundSocket = (Weak<OwnedFd>, Opener);

/// The bound sockets of a shared UMEM.
pub(crate) struct Sockets<'u>(MutexGuard<'u, Vec<BoundSocket>>);

impl Sockets<'_> {
    /// One that is still open, and on an interface that is still there: without one the kernel binds no other beside it.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_bind>
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when one was opened before `fork()`: it is bound to the parent's memory.
    pub(crate) fn any(&mut self) -> Result<Option<Arc<OwnedFd>>, Error> {
        self.0.retain(|(socket, _)| socket.strong_count() != 0);
        if let Some((_, opener)) = self.0.iter().find(|(_, opener)| !opener.is_this_process()) {
            return Err(Error::Setting {
                setting: "umem",
                value: "a shared UMEM".into(),
                reason: format!(
                    "process {} opened queues on it, and this is its child {}: make another one, \
                     after fork() or daemon()",
                    opener.pid(),
                    std::process::id()
                ),
            });
        }
        let bound = |socket: &Arc<OwnedFd>| wake_rx(socket.as_fd()) != Err(Errno::NXIO);
        Ok(self.0.iter().filter_map(|(socket, _)| socket.upgrade()).find(bound))
    }

    pub(crate) fn add(&mut self, socket: &Arc<OwnedFd>) {
        self.0.push((Arc::downgrade(socket), Opener::this_process()));
    }

    pub(crate) fn remove(&mut self, socket: &Arc<OwnedFd>) {
        self.0.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(socket));
    }
}

impl fmt::Debug for SharedUmem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedUmem")
            .field("id", &self.id())
            .field("geometry", self.umem.geometry())
            .field("unclaimed", &self.unclaimed())
            .finish_non_exhaustive()
    }
}

/// Makes a [`SharedUmem`].
#[derive(Clone, Debug)]
pub struct SharedUmemBuilder {
    frame_size: u32,
    frames: u32,
    headroom: u32,
    huge_pages: bool,
    unaligned: bool,
    multi_buffer: bool,
    hints: Option<Arc<Layouts>>,
    tx_metadata: TxMetadata,
}

impl SharedUmemBuilder {
    /// Bytes of a frame; as [`QueueOptions::frame_size`](crate::QueueOptions::frame_size).
    #[must_use]
    pub fn frame_size(mut self, bytes: u32) -> Self {
        self.frame_size = bytes;
        self
    }

    /// Frames of all queues together ([`QueueOptions::frames_on`](crate::QueueOptions::frames_on) says how many each takes).
    /// Default 1024.
    #[must_use]
    pub fn frames(mut self, frames: u32) -> Self {
        self.frames = frames;
        self
    }

    /// Bytes to leave free in front of a packet, in addition to the kernel's 256. Default 0.
    #[must_use]
    pub fn headroom(mut self, bytes: u32) -> Self {
        self.headroom = bytes;
        self
    }

    /// Asks for 2 MiB pages; normal ones are taken where there are none.
    #[must_use]
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }

    /// As [`QueueOptions::unaligned_chunks`](crate::QueueOptions::unaligned_chunks).
    #[must_use]
    pub fn unaligned_chunks(mut self, yes: bool) -> Self {
        self.unaligned = yes;
        self
    }

    /// As [`QueueOptions::multi_buffer`](crate::QueueOptions::multi_buffer), for all its queues.
    #[must_use]
    pub fn multi_buffer(mut self, yes: bool) -> Self {
        self.multi_buffer = yes;
        self
    }

    /// As [`QueueOptions::hints`](crate::QueueOptions::hints), for the queues that are opened with the same layouts.
    #[must_use]
    pub fn hints(mut self, layouts: impl Into<Arc<Layouts>>) -> Self {
        self.hints = Some(layouts.into());
        self
    }

    /// As [`QueueOptions::tx_metadata`](crate::QueueOptions::tx_metadata), for all its queues; those that are opened with the
    /// same, but for the sampling of stamps, can ask for it.
    #[must_use]
    pub fn tx_metadata(mut self, tx_metadata: TxMetadata) -> Self {
        self.tx_metadata = tx_metadata;
        self
    }

    /// Maps the memory. The kernel pins it when the first queue is opened.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for impossible sizes, [`Error::Memory`] beyond a limit or when there is not so much.
    pub fn build(self) -> Result<SharedUmem, Error> {
        let geometry = Geometry::new(self.frame_size, self.frames, self.headroom, self.unaligned)?
            .with_multi_buffer(self.multi_buffer)
            .with_tx_features(self.tx_metadata.features());
        let bytes = geometry.bytes();
        let whose = || "a shared UMEM".to_owned();
        check_budget(whose, bytes as u64, 1)?;
        let region = Region::map(bytes, self.huge_pages).map_err(|errno| Error::unmapped(whose(), bytes, errno))?;
        Ok(SharedUmem {
            umem: Umem::new(region, geometry, self.hints),
            sockets: Arc::default(),
        })
    }
}
