//! What can be chosen for a queue, and what is chosen when the user does not.

use std::sync::Arc;
use std::time::Duration;

use ringside_nic::{Interface, XdpFeatures};
use serde::Serialize;

use crate::error::Error;
use crate::hints::Layouts;
use crate::mode::{Mode, Path};
use crate::nic_buffers;
use crate::tx_metadata::{Features, TxMetadata};
use crate::umem::{Geometry, SharedUmem};

/// Which way packets go through a queue. What is not needed is not made: no ring, no frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Receive and transmit.
    #[default]
    Both,
    /// Receive only: no TX ring, all frames serve the fill ring.
    Receive,
    /// Transmit only: no RX ring. No XDP program is needed, except with zero-copy on drivers that
    /// send so only under one (Intel's): a [`Port`](crate::Port) attaches one that passes all
    /// packets on, and its report says so.
    ///
    /// With zero-copy the NIC also receives into the UMEM, and the driver copies from there what it
    /// passes to the host. So as many frames as the NIC's receive ring has slots stay on the fill
    /// ring: without them the host would receive nothing on this queue.
    Transmit,
}

/// Preferred busy-polling of one socket. Linux 5.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BusyPoll {
    /// Packets that one poll handles at the most, 1 to 65535 (`SO_BUSY_POLL_BUDGET`).
    pub budget: u32,
    /// Microseconds that a poll may spin for, 1 to 2147483647 (`SO_BUSY_POLL`).
    pub micros: u32,
}

impl BusyPoll {
    /// The given budget, and 20 µs.
    pub fn with_budget(budget: u32) -> Self {
        Self { budget, micros: 20 }
    }
}

/// Options of a queue, each with a default that was measured.
///
/// By default a queue has 4096 frames of 2048 bytes (8 MiB), which ride out bursts and pauses of
/// the application; under steady load a few of them stay in the cache, see
/// [`working_set`](Self::working_set).
#[derive(Clone, Debug)]
pub struct QueueOptions {
    pub(crate) direction: Direction,
    pub(crate) frame_size: Option<u32>,
    pub(crate) frames: Option<u32>,
    /// Frames where no number is asked for: fewer where memory is short.
    pub(crate) default_frames: u32,
    /// Ports among which a limit on memory is divided.
    pub(crate) memory_shares: u32,
    pub(crate) working_set: u32,
    pub(crate) headroom: Option<u32>,
    pub(crate) huge_pages: bool,
    pub(crate) unaligned: bool,
    pub(crate) multi_buffer: bool,
    pub(crate) rx_ring: Option<u32>,
    pub(crate) tx_ring: Option<u32>,
    pub(crate) fill_ring: Option<u32>,
    pub(crate) completion_ring: Option<u32>,
    pub(crate) batch: u32,
    pub(crate) need_wakeup: bool,
    pub(crate) busy_poll: Option<BusyPoll>,
    pub(crate) tx_budget: Option<u32>,
    pub(crate) stall_timeout: Duration,
    pub(crate) busy_timeout: Option<Duration>,
    pub(crate) hints: Option<Arc<Layouts>>,
    pub(crate) tx_metadata: Option<TxMetadata>,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            direction: Direction::Both,
            frame_size: None,
            frames: None,
            default_frames: Self::DEFAULT_FRAMES,
            memory_shares: 1,
            working_set: Self::DEFAULT_WORKING_SET,
            headroom: None,
            huge_pages: false,
            unaligned: false,
            multi_buffer: false,
            rx_ring: None,
            tx_ring: None,
            fill_ring: None,
            completion_ring: None,
            batch: 64,
            need_wakeup: true,
            busy_poll: None,
            tx_budget: None,
            stall_timeout: Duration::from_secs(1),
            busy_timeout: None,
            hints: None,
            tx_metadata: None,
        }
    }
}

impl QueueOptions {
    /// Bytes of a frame where nothing else is asked for.
    pub const DEFAULT_FRAME_SIZE: u32 = 2048;
    /// Frames of a queue that receives, where no number is asked for. Zero-copy adds to them, see
    /// [`frames`](Self::frames).
    pub const DEFAULT_FRAMES: u32 = 4096;
    /// Fewest frames that a queue takes by default where memory is short.
    pub const MIN_DEFAULT_FRAMES: u32 = 512;
    /// Packets for which frames wait under steady load, where no number is asked for.
    pub const DEFAULT_WORKING_SET: u32 = 1024;
    /// Frames of a queue that transmits alone, where no number is asked for.
    pub const DEFAULT_TRANSMIT_FRAMES: u32 = 256;
    /// Slots that a NIC's receive ring is taken to have where its driver does not report them.
    const DEFAULT_NIC_RING: u32 = 512;

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Receive, transmit or both (the default).
    #[must_use]
    pub fn direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    /// Bytes of a frame, 2048 (the default) to 4096. 256 of them, and the headroom, lie in front of a packet. Another size
    /// than these two makes the chunks unaligned.
    ///
    /// Without it they have 4096 bytes for zero-copy on an igb, whose driver would cut packets of more than 1024 bytes into pieces. With a
    /// size that is too small for the MTU there is no zero-copy then.
    #[must_use]
    #[doc(alias = "chunk_size")]
    pub fn frame_size(mut self, bytes: u32) -> Self {
        self.frame_size = Some(bytes);
        self
    }

    /// Unaligned chunks (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`, Linux 5.4): frames of any size, across the borders of pages; the
    /// packet may start anywhere in its frame. Zero-copy is refused where frames lie across the borders of pages that are not
    /// huge: see [`huge_pages`](Self::huge_pages). Default: where the frame size is no power of two.
    #[must_use]
    pub fn unaligned_chunks(mut self, yes: bool) -> Self {
        self.unaligned = yes;
        self
    }

    /// Packets may be in several frames (`XDP_USE_SG`, and an XDP program loaded with `BPF_F_XDP_HAS_FRAGS`), so that jumbo
    /// frames can be received, forwarded and sent; the interface's MTU decides how many frames a packet to be sent gets.
    /// Linux 6.6. Default no: packets that do not fit a frame are a reason to refuse the interface. A shared UMEM has
    /// its own switch for it.
    #[must_use]
    #[doc(alias = "XDP_USE_SG")]
    #[doc(alias = "XDP_PKT_CONTD")]
    pub fn multi_buffer(mut self, yes: bool) -> Self {
        self.multi_buffer = yes;
        self
    }

    /// Number of frames, or of a shared UMEM this queue's share of them. Default, 512 of a shared UMEM
    /// that has fewer left:
    /// [`DEFAULT_FRAMES`](Self::DEFAULT_FRAMES) for [`Direction::Both`] and [`Direction::Receive`],
    /// with zero-copy and twice as many as the NIC's own ring holds;
    /// [`DEFAULT_TRANSMIT_FRAMES`](Self::DEFAULT_TRANSMIT_FRAMES) for [`Direction::Transmit`].
    /// Fewer than a packet of the interface's MTU takes, with [`multi_buffer`](Self::multi_buffer),
    /// are refused.
    ///
    /// A transmit-only queue with zero-copy takes, in addition, as many as the NIC's own ring
    /// holds: the NIC receives packets for the host into them. Without room for these in a shared
    /// UMEM the queue gets no zero-copy.
    #[must_use]
    pub fn frames(mut self, frames: u32) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Number of ports among which memory is divided: `RLIMIT_MEMLOCK`, and what a control group
    /// has left or this process has for frames. Default 1. The queues of a port take fewer frames
    /// until all of them fit its share, 512 at least, so that the first port of a process leaves
    /// memory for the others. Has no effect on a number of [`frames`](Self::frames) that was
    /// chosen.
    #[must_use]
    pub fn memory_shares(mut self, ports: u32) -> Self {
        self.memory_shares = ports.max(1);
        self
    }

    /// Returns the largest number of frames that a queue of this interface takes: for the size of a
    /// UMEM that several share, or of [`QueueBuilder::memory`](crate::QueueBuilder::memory). More than
    /// [`frames`](Self::frames) or the default only where the NIC itself may write to them (zero-copy).
    pub fn frames_on(&self, interface: &Interface, mode: Mode) -> u32 {
        match may_be_zero_copy(interface, mode) {
            true => self.total_frames(Path::ZeroCopy, interface.rings().map_or(0, |rings| rings.rx)),
            false => self.total_frames(Path::Copy, 0),
        }
    }

    /// Frames of a queue. `nic_ring`: slots of the NIC's receive ring, 0 if unknown.
    fn total_frames(&self, path: Path, nic_ring: u32) -> u32 {
        let default = match self.direction {
            Direction::Transmit => Self::DEFAULT_TRANSMIT_FRAMES,
            Direction::Receive | Direction::Both if path == Path::ZeroCopy => self.receiving(nic_ring),
            Direction::Receive | Direction::Both => self.default_frames,
        };
        (self.frames.unwrap_or(default)).saturating_add(self.frames_for_host(path, nic_ring))
    }

    /// Frames that a transmit-only queue with zero-copy keeps on the fill ring: as many as the
    /// NIC's receive ring holds. The driver frees each as soon as it has copied the packet for the
    /// host.
    fn frames_for_host(&self, path: Path, nic_ring: u32) -> u32 {
        match (self.direction, path, nic_ring) {
            (Direction::Transmit, Path::ZeroCopy, 0) => Self::DEFAULT_NIC_RING,
            (Direction::Transmit, Path::ZeroCopy, slots) => slots.min(MAX_RING / 4),
            _ => 0,
        }
    }

    /// Halves the number of frames that a queue has by default, for want of memory. False, and
    /// nothing changed, if the caller has chosen it, or it is as low as it gets.
    pub(crate) fn take_fewer_frames(&mut self) -> bool {
        let can = self.can_take_fewer_frames();
        if can {
            self.default_frames /= 2;
        }
        can
    }

    pub(crate) fn can_take_fewer_frames(&self) -> bool {
        self.frames.is_none() && self.direction != Direction::Transmit && self.default_frames > Self::MIN_DEFAULT_FRAMES
    }

    /// Returns why a queue has fewer frames than by default, if it has.
    pub(crate) fn fewer_frames(&self, limit: &str) -> String {
        format!(
            "{} frames instead of {}, because {limit}",
            self.default_frames,
            Self::DEFAULT_FRAMES
        )
    }

    /// Bytes of a frame that a queue of this interface takes: for a UMEM that several share. More than the default only where nobody has
    /// chosen a [`frame_size`](Self::frame_size) and the NIC, which may write to them itself (zero-copy), needs more for a packet of the
    /// interface's MTU.
    pub fn frame_size_on(&self, interface: &Interface, mode: Mode) -> u32 {
        let needed = || {
            let mtu = interface.state().ok()?.mtu;
            let sizes = nic_buffers::sizes(interface, mtu, self, Path::ZeroCopy, 0, None).ok()?;
            may_be_zero_copy(interface, mode).then(|| sizes.geometry.frame_size())
        };
        self.frame_size.or_else(needed).unwrap_or(Self::DEFAULT_FRAME_SIZE)
    }

    /// By default, where the NIC's own ring has so many slots that it fills from ours.
    fn receiving(&self, nic_ring: u32) -> u32 {
        self.default_frames + 2 * nic_ring.min(MAX_RING / 4)
    }

    /// Packets for which frames wait on the fill ring under steady load, in the copy modes. Default
    /// 1024. With as many as the fill ring has slots, or more, all wait at all times.
    ///
    /// The kernel takes the frames of the fill ring in turn, so each of them passes through the
    /// cache. An idle queue, and one whose load comes in bursts, keeps all of its frames there. If
    /// for 40 ms packets come at a high rate and the application takes each soon, or if it is
    /// overloaded all the time, fewer wait. A burst, a slower rate or a pause of 10 ms restores
    /// them, and a burst makes the time longer that it takes until load counts as steady again.
    /// Only [`Queue::recv`](crate::Queue::recv) restores them: an event loop that sleeps elsewhere
    /// calls it every 10 ms, or sets this to `u32::MAX`.
    /// [`OwnStats::rx_shrunk`](crate::OwnStats::rx_shrunk) counts how often fewer waited.
    #[must_use]
    pub fn working_set(mut self, packets: u32) -> Self {
        self.working_set = packets;
        self
    }

    /// Bytes to leave free in front of a packet, in addition to the kernel's 256. Default 0.
    #[must_use]
    pub fn headroom(mut self, bytes: u32) -> Self {
        self.headroom = Some(bytes);
        self
    }

    /// Asks for 2 MiB pages; normal ones are taken, and the report says so, when there are none.
    #[must_use]
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }

    /// Reads what the XDP program puts in front of packets, which is one of these structs: see [`hints`](crate::hints).
    /// Costs a store and a look for each packet received, which without hints are not made. A shared UMEM must be made with
    /// the same layouts. Default: nothing is read.
    #[must_use]
    pub fn hints(mut self, layouts: impl Into<Arc<Layouts>>) -> Self {
        self.hints = Some(layouts.into());
        self
    }

    /// Lets packets ask the driver for checksums, launch times, and the time at which they left: see
    /// [`tx_metadata`](crate::tx_metadata). It costs 24 bytes of the room in front of packets, received ones included, and
    /// packets that ask for nothing no time. A shared UMEM must be made for the same. Linux 6.11. Default: nothing can be
    /// asked for.
    #[must_use]
    #[doc(alias = "XDP_UMEM_TX_METADATA_LEN")]
    pub fn tx_metadata(mut self, tx_metadata: TxMetadata) -> Self {
        self.tx_metadata = Some(tx_metadata);
        self
    }

    /// Slots of the RX ring, rounded up to a power of two. Default: as many as frames that the fill ring gets.
    #[must_use]
    pub fn rx_ring(mut self, slots: u32) -> Self {
        self.rx_ring = Some(slots);
        self
    }

    /// Slots of the TX ring, rounded up to a power of two. Default 256.
    #[must_use]
    pub fn tx_ring(mut self, slots: u32) -> Self {
        self.tx_ring = Some(slots);
        self
    }

    /// Slots of the fill ring, rounded up to a power of two: as many frames at the most wait for packets.
    /// Default: half of the frames, all of them for [`Direction::Receive`].
    #[must_use]
    pub fn fill_ring(mut self, slots: u32) -> Self {
        self.fill_ring = Some(slots);
        self
    }

    /// Slots of the completion ring, rounded up to a power of two. Default: as many as frames that can be in flight.
    #[must_use]
    pub fn completion_ring(mut self, slots: u32) -> Self {
        self.completion_ring = Some(slots);
        self
    }

    /// Packets of a burst at the most. Default 64.
    #[must_use]
    pub fn batch(mut self, packets: u32) -> Self {
        self.batch = packets;
        self
    }

    /// Whether the kernel tells when it must be woken (`XDP_USE_NEED_WAKEUP`, Linux 5.4). Default yes; without, every
    /// burst costs a system call.
    #[must_use]
    pub fn need_wakeup(mut self, yes: bool) -> Self {
        self.need_wakeup = yes;
        self
    }

    /// Preferred busy-polling, for [`Wait::BusyPoll`](crate::Wait::BusyPoll). Default off.
    #[must_use]
    pub fn busy_poll(mut self, busy_poll: BusyPoll) -> Self {
        self.busy_poll = Some(busy_poll);
        self
    }

    /// Packets that one `sendto()` sends on a copy path (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17; 32 before).
    /// 32 to the TX ring's size; default: that size where the kernel has the option.
    #[must_use]
    pub fn tx_budget(mut self, packets: u32) -> Self {
        self.tx_budget = Some(packets);
        self
    }

    /// Time without any progress on the TX ring after which sending fails. Default 1 s.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Time for which a busy queue, or memory that cannot be locked, is tried again when opening: after a close the
    /// kernel takes 20 to 30 ms until both are free, on an overloaded machine several seconds.
    ///
    /// Default: 2 s, and 30 s for a queue to which no socket is bound any more, where the kernel lists sockets
    /// (`CONFIG_XDP_SOCKETS_DIAG`, Linux 5.1).
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = Some(timeout);
        self
    }
}

impl QueueOptions {
    /// What packets may ask for.
    pub(crate) fn tx_features(&self) -> Result<Features, Error> {
        self.tx_metadata.map_or(Ok(Features::default()), |wanted| {
            wanted.check()?;
            Ok(wanted.features())
        })
    }

    /// The cut of a shared UMEM, which cannot be chosen for one queue of it.
    fn fitting(&self, shared: &SharedUmem) -> Result<Geometry, Error> {
        let theirs = shared.umem().layouts();
        if let Some(ours) = &self.hints
            && theirs.is_none_or(|theirs| !ours.agrees(theirs))
        {
            return Err(Error::Setting {
                setting: "hints",
                value: format!("{} layout(s)", ours.len()),
                reason: "the shared UMEM was made without hints, or with other layouts or readers: give SharedUmemBuilder::hints the same".into(),
            });
        }
        let shared = shared.geometry();
        for (setting, wanted, has) in [
            ("frame_size", self.frame_size, shared.frame_size()),
            ("headroom", self.headroom, shared.headroom()),
        ] {
            if let Some(wanted) = wanted.filter(|&wanted| wanted != has) {
                return Err(Error::Setting {
                    setting,
                    value: wanted.to_string(),
                    reason: format!("the shared UMEM was made with {has}"),
                });
            }
        }
        if let Some(wanted) = &self.tx_metadata
            && self.tx_features()? != shared.tx_features()
        {
            return Err(Error::Setting {
                setting: "tx_metadata",
                value: format!("{wanted:?}"),
                reason: "the shared UMEM was made without, or for other requests: give SharedUmemBuilder::tx_metadata the same".into(),
            });
        }
        if self.multi_buffer && !shared.multi_buffer() {
            return Err(Error::Setting {
                setting: "multi_buffer",
                value: "true".into(),
                reason: "the shared UMEM was made without".into(),
            });
        }
        Ok(shared)
    }
}

/// The sizes that result for one queue, all checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) geometry: Geometry,
    /// Frames that the queue has: all of its UMEM, or its share of it.
    pub(crate) frames: u32,
    /// 0: no such ring.
    pub(crate) rx: u32,
    /// 0: no such ring.
    pub(crate) tx: u32,
    pub(crate) fill: u32,
    pub(crate) completion: u32,
    /// Frames that are kept in the fill ring.
    pub(crate) fill_target: u32,
    /// Packets for which frames are kept there under steady load.
    pub(crate) working_set: u32,
}

/// The largest ring the library makes; the kernel's own limit is a matter of memory.
const MAX_RING: u32 = 1 << 20;

impl Sizes {
    /// `nic_ring`: slots of the NIC's own receive ring, which a zero-copy driver fills from the fill ring. It and our
    /// RX ring can hold frames at the same time, so the fill ring must have room for both.
    pub(crate) fn choose(
        options: &QueueOptions,
        path: Path,
        nic_ring: u32,
        shared: Option<&SharedUmem>,
    ) -> Result<Self, Error> {
        let ring = |setting: &'static str, slots: u32| {
            if slots == 0 || slots > MAX_RING {
                return Err(Error::Setting {
                    setting,
                    value: slots.to_string(),
                    reason: format!("a ring has 1 to {MAX_RING} slots; it is rounded up to a power of two"),
                });
            }
            Ok(slots.next_power_of_two())
        };
        if options.batch == 0 || options.batch > MAX_RING {
            return Err(Error::Setting {
                setting: "batch",
                value: options.batch.to_string(),
                reason: format!("a burst has 1 to {MAX_RING} packets"),
            });
        }
        options.busy_poll.map_or(Ok(()), BusyPoll::check)?;
        if options.working_set == 0 {
            return Err(Error::Setting {
                setting: "working_set",
                value: "0".into(),
                reason: "without a frame that waits nothing is received: take 1 or more".into(),
            });
        }
        let mut frames = options.total_frames(path, nic_ring);
        // Who shares a UMEM may have made it for fewer.
        if let Some(shared) = shared
            && shared.unclaimed() < frames as usize
            && options.can_take_fewer_frames()
        {
            let fewer = QueueOptions {
                default_frames: QueueOptions::MIN_DEFAULT_FRAMES,
                ..options.clone()
            };
            frames = fewer.total_frames(path, nic_ring);
        }
        let for_host = options.frames_for_host(path, nic_ring);
        let geometry = match shared {
            Some(shared) => options.fitting(shared)?,
            None => Geometry::new(
                options.frame_size.unwrap_or(QueueOptions::DEFAULT_FRAME_SIZE),
                frames,
                options.headroom.unwrap_or(0),
                options.unaligned,
            )?
            .with_multi_buffer(options.multi_buffer)
            .with_hints(options.hints.is_some())
            .with_tx_features(options.tx_features()?),
        };

        let for_fill = match options.direction {
            Direction::Receive => frames.max(1),
            Direction::Both => frames.div_ceil(2).max(1),
            Direction::Transmit => for_host.max(1),
        }
        .min(MAX_RING);
        let fill = ring("fill_ring", options.fill_ring.unwrap_or(for_fill))?;
        let fill_target = match options.direction {
            Direction::Transmit => for_host.min(fill),
            Direction::Receive => fill.min(frames),
            Direction::Both => match options.fill_ring {
                Some(_) => fill.min(frames),
                None => for_fill,
            },
        };
        let rx = match options.direction {
            Direction::Transmit => 0,
            _ => ring("rx_ring", options.rx_ring.unwrap_or(fill))?,
        };
        let tx = match options.direction {
            Direction::Receive => 0,
            _ => ring("tx_ring", options.tx_ring.unwrap_or(256))?,
        };
        if let Some(budget) = options.tx_budget
            && tx != 0
            && !(32..=tx).contains(&budget)
        {
            return Err(Error::Setting {
                setting: "tx_budget",
                value: budget.to_string(),
                reason: format!("the kernel takes one from 32 to the TX ring's size, which is {tx} (tx_ring)"),
            });
        }
        let completion = match options.direction {
            Direction::Receive => 1,
            _ => ring(
                "completion_ring",
                options.completion_ring.unwrap_or(frames.max(tx).min(MAX_RING)),
            )?,
        };
        Ok(Self {
            geometry,
            frames,
            rx,
            tx,
            fill,
            completion,
            fill_target,
            working_set: options.working_set,
        })
    }
}

/// Whether a socket of this mode may get zero-copy on the interface, which may not tell.
fn may_be_zero_copy(interface: &Interface, mode: Mode) -> bool {
    let features = (interface.device_capabilities().ok()).and_then(|device| device.xdp_features);
    matches!(mode, Mode::Auto | Mode::Require(Path::ZeroCopy))
        && features.is_none_or(|features| features.contains(XdpFeatures::XSK_ZEROCOPY))
}
