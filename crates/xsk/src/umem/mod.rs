//! UMEM: the memory that packets live in, cut into frames.
//!
//! ```text
//!  UMEM     | frame 0 | frame 1 | frame 2 | ...              frame_size = 2048 or 4096 bytes
//!           '---------'
//!  frame    | 256 bytes, XDP's own | headroom, ours | packet ...          |
//!           0                      256              256 + headroom        frame_size
//! ```
//!
//! Every frame has exactly one owner at any time: the [`Pool`](pool::Pool), the user (a [`Frame`], or a
//! [`Packet`](crate::Packet) of a burst), or the kernel (fill ring, TX ring). The pool keeps the book and
//! checks each frame that comes back from the kernel against it.

mod budget;
mod buf;
mod entry;
mod frame;
pub(crate) mod pool;
mod region;

#[cfg(all(test, not(loom)))]
mod tests;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

pub(crate) use budget::{check as check_budget, memlock_text};
pub(crate) use buf::{Buf, buffer_methods};
pub(crate) use entry::{Entry, Fate};
pub use frame::Frame;
pub use region::FrameMemory;
pub(crate) use region::Region;

use crate::error::Error;

/// Bytes that the kernel keeps free in front of every received packet (`XDP_PACKET_HEADROOM`): room for
/// metadata and for headers to be put in front.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6446>
pub const XDP_HEADROOM: u32 = 256;

/// Size and number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    frame_size: u32,
    shift: u32,
    frames: u32,
    headroom: u32,
}

impl Geometry {
    /// Frames of 2048 or 4096 bytes (the kernel's aligned chunks: a power of two, at least 2048, at most a page).
    /// <https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xdp_umem.c#L166>
    pub(crate) fn new(frame_size: u32, frames: u32, headroom: u32) -> Result<Self, Error> {
        let setting = |setting, value: u32, reason: &str| Error::Setting {
            setting,
            value: value.to_string(),
            reason: reason.into(),
        };
        if frame_size != 2048 && frame_size != 4096 {
            return Err(setting("frame_size", frame_size, "a frame has 2048 or 4096 bytes"));
        }
        if frames == 0 || frames > 1 << 24 {
            return Err(setting("frames", frames, "a UMEM has 1 to 16777216 frames"));
        }
        // At least a minimal Ethernet frame must fit behind both headrooms.
        if headroom > frame_size - XDP_HEADROOM - 64 {
            return Err(setting(
                "headroom",
                headroom,
                "with the kernel's 256 bytes it must leave at least 64 bytes of the frame for the packet",
            ));
        }
        Ok(Self {
            frame_size,
            shift: frame_size.trailing_zeros(),
            frames,
            headroom,
        })
    }

    pub(crate) fn frame_size(&self) -> u32 {
        self.frame_size
    }

    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    pub(crate) fn headroom(&self) -> u32 {
        self.headroom
    }

    /// Offset in the frame at which packets start.
    pub(crate) fn packet_offset(&self) -> u32 {
        XDP_HEADROOM + self.headroom
    }

    /// The longest packet that a frame can hold.
    pub(crate) fn packet_room(&self) -> u32 {
        self.frame_size - self.packet_offset()
    }

    /// Size of the UMEM in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.frames as usize * self.frame_size as usize
    }

    /// UMEM offset of a frame.
    #[inline]
    pub(crate) fn addr(&self, frame: FrameIndex) -> u64 {
        u64::from(frame.0) << self.shift
    }

    /// Frame and offset in it of an address that came out of shared memory; `None` outside the UMEM.
    #[inline]
    pub(crate) fn locate(&self, addr: u64) -> Option<(FrameIndex, u32)> {
        let frame = addr >> self.shift;
        if frame >= u64::from(self.frames) {
            return None;
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "below `frames`, which is a u32; the offset is below 4096"
        )]
        Some((FrameIndex(frame as u32), (addr & u64::from(self.frame_size - 1)) as u32))
    }
}

/// Number of a frame in its UMEM; always below its `Geometry::frames`. Only this module makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameIndex(u32);

// SAFETY: `base` leads into `region`, which may be sent and shared; bytes are reached only through a `Buf`, which
// proves that its frame is its own.
unsafe impl Send for Umem {}
// SAFETY: as above; everything else in it is shared safely by itself.
unsafe impl Sync for Umem {}

/// A UMEM: frame memory, its cut, and the way home for frames that users have kept.
pub(crate) struct Umem {
    id: u64,
    region: Region,
    /// The region's first byte, so that no packet has to ask for it.
    base: NonNull<u8>,
    geometry: Geometry,
    /// Frames that were dropped outside their queue, possibly on another thread. As many places as frames, so
    /// that a push always succeeds.
    returned: ArrayQueue<FrameIndex>,
}

impl Umem {
    pub(crate) fn new(region: Region, geometry: Geometry) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        assert!(region.len() >= geometry.bytes());
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            base: region.as_ptr(),
            region,
            geometry,
            returned: ArrayQueue::new(geometry.frames() as usize),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// First byte of a frame.
    #[inline]
    fn at(&self, frame: FrameIndex) -> NonNull<u8> {
        let offset = (frame.0 as usize) << self.geometry.shift;
        debug_assert!(offset < self.geometry.bytes());
        // SAFETY: a `FrameIndex` is below `frames`, and the region holds all frames (`new`).
        unsafe { self.base.add(offset) }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn give_back(&self, frame: FrameIndex) {
        let pushed = self.returned.push(frame);
        debug_assert!(pushed.is_ok(), "more frames came back than exist");
    }

    pub(crate) fn take_returned(&self) -> Option<FrameIndex> {
        self.returned.pop()
    }
}
