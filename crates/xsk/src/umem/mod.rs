//! UMEM: the memory that packets live in, cut into frames.
//!
//! ```text
//!  UMEM     | frame 0 | frame 1 | frame 2 | ...              frame_size = 2048 to 4096 bytes
//!           '---------'
//!  frame    | 256 bytes, XDP's own | headroom, ours | packet ...          |
//!           0                      256              256 + headroom        frame_size
//! ```
//!
//! Every frame has exactly one owner at any time: a [`Pool`](pool::Pool), the user (a [`Frame`], or a
//! [`Packet`](crate::Packet) of a burst), or the kernel (fill ring, TX ring). Each frame that comes back from the kernel
//! is checked against the [`Book`].

mod across;
mod asked;
mod audit;
mod book;
mod budget;
mod buf;
pub(crate) mod chain;
mod entry;
mod frame;
#[cfg(feature = "testing")]
mod heap;
mod hints;
pub(crate) mod pool;
mod region;
mod shared;

#[cfg(all(test, debug_assertions))]
mod audit_tests;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_queue::ArrayQueue;

pub(crate) use across::Across;
pub(crate) use audit::at_most;
pub(crate) use budget::{check as check_budget, memlock_text};
pub(crate) use buf::{Buf, buffer_methods};
pub(crate) use entry::{Entry, Fate};
pub use frame::Frame;
#[cfg(feature = "testing")]
pub(crate) use heap::Lent;
pub use region::FrameMemory;
pub(crate) use region::Region;
pub(crate) use shared::Sockets;
pub use shared::{SharedUmem, SharedUmemBuilder};

use asked::AskedFrames;
pub(crate) use book::PairId;
use book::{Book, Owner, PairIds};
pub(crate) use hints::HintId;
use hints::UmemHints;

use crate::error::Error;
use crate::hints::Layouts;
use crate::tx_metadata::{Features, METADATA_LEN};

/// Bytes that the kernel keeps free in front of every received packet (`XDP_PACKET_HEADROOM`): room for
/// metadata and for headers to be put in front.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6446>
pub const XDP_HEADROOM: u32 = 256;

/// Frames of a packet at the most on usual kernels: `MAX_SKB_FRAGS` and the head.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/linux/skbuff.h#L346>
const USUAL_FRAGMENTS: usize = 18;

/// Size and number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    frame_size: u32,
    /// Its logarithm, if it is a power of two.
    shift: u32,
    frames: u32,
    headroom: u32,
    /// `XDP_UMEM_UNALIGNED_CHUNK_FLAG`
    unaligned: bool,
    /// `XDP_USE_SG`: a packet may be in several frames.
    multi_buffer: bool,
    /// Packets may have hints in front of them.
    hints: bool,
    /// Packets may ask for these.
    tx_features: Features,
}

/// In unaligned mode the kernel tells the frame's start in the lower bits of an address, and where the packet starts in
/// the frame in the upper ones.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L110>
const OFFSET_SHIFT: u32 = 48;

/// [`Geometry::cut`] of frames that are unaligned: otherwise it is their size's logarithm, known when compiling.
pub(crate) const ANY_CUT: u32 = 0;

/// Calls `$self.$method::<CUT>(..)` for the cut that the UMEM has.
macro_rules! for_cut {
    ($geometry:expr, $self:ident.$method:ident($($argument:expr),*)) => {
        match $geometry.cut() {
            11 => $self.$method::<11>($($argument),*),
            12 => $self.$method::<12>($($argument),*),
            _ => $self.$method::<{ crate::umem::ANY_CUT }>($($argument),*),
        }
    };
}
pub(crate) use for_cut;

impl Geometry {
    /// Aligned chunks are a power of two; unaligned ones have any size, also across pages. Both have at least 2048 bytes
    /// and at most a page of 4096.
    /// <https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xdp_umem.c#L166>
    pub(crate) fn new(frame_size: u32, frames: u32, headroom: u32, unaligned: bool) -> Result<Self, Error> {
        let setting = |setting, value: u32, reason: &str| Error::Setting {
            setting,
            value: value.to_string(),
            reason: reason.into(),
        };
        if !(2048..=4096).contains(&frame_size) {
            return Err(setting("frame_size", frame_size, "a frame has 2048 to 4096 bytes"));
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
            unaligned: unaligned || !frame_size.is_power_of_two(),
            multi_buffer: false,
            hints: false,
            tx_features: Features::default(),
        })
    }

    /// With packets in several frames, or without.
    pub(crate) fn with_multi_buffer(mut self, yes: bool) -> Self {
        self.multi_buffer = yes;
        self
    }

    /// With hints in front of packets, or without.
    pub(crate) fn with_hints(mut self, yes: bool) -> Self {
        self.hints = yes;
        self
    }

    /// With room for what packets may ask for, or without.
    pub(crate) fn with_tx_features(mut self, features: Features) -> Self {
        self.tx_features = features;
        self
    }

    /// What packets may ask for.
    #[inline]
    pub(crate) fn tx_features(&self) -> Features {
        self.tx_features
    }

    /// Bytes in front of every packet, received or not, that are the kernel's when it is sent: it refuses one with less,
    /// whether it asks for something or not.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xp_aligned_validate_desc>
    #[inline]
    pub(crate) fn reserved(&self) -> u32 {
        match self.tx_features.is_empty() {
            true => 0,
            false => METADATA_LEN,
        }
    }

    /// Whether the word in front of packets is cleared before the kernel gets a frame.
    #[inline]
    pub(crate) fn hints(&self) -> bool {
        self.hints
    }

    pub(crate) fn multi_buffer(&self) -> bool {
        self.multi_buffer
    }

    /// Frames that a packet of so many bytes needs.
    pub(crate) fn frames_for(&self, packet: u32) -> u32 {
        if self.multi_buffer {
            packet.div_ceil(self.packet_room()).max(1)
        } else {
            1
        }
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

    pub(crate) fn unaligned(&self) -> bool {
        self.unaligned
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

    /// The cut, for loops that are compiled for each.
    #[inline]
    pub(crate) fn cut(&self) -> u32 {
        match self.frame_size {
            _ if self.unaligned => ANY_CUT,
            2048 => 11,
            4096 => 12,
            _ => ANY_CUT,
        }
    }

    /// UMEM offset of a frame.
    #[inline]
    pub(crate) fn addr(&self, frame: FrameIndex) -> u64 {
        self.addr_in::<ANY_CUT>(frame)
    }

    /// Frame, and offset in it, of a place in the UMEM: [`Buf::start`], and not what came out of shared memory.
    #[inline]
    fn split(&self, at: u64) -> (FrameIndex, u32) {
        self.split_in::<ANY_CUT>(at)
    }

    /// As [`addr`](Self::addr), for one [`cut`](Self::cut).
    #[inline]
    pub(crate) fn addr_in<const CUT: u32>(&self, frame: FrameIndex) -> u64 {
        match CUT {
            ANY_CUT => u64::from(frame.0) * u64::from(self.frame_size),
            _ => u64::from(frame.0) << CUT,
        }
    }

    /// As [`frame_size`](Self::frame_size), for one [`cut`](Self::cut).
    #[inline]
    pub(crate) fn frame_size_in<const CUT: u32>(&self) -> u32 {
        match CUT {
            ANY_CUT => self.frame_size,
            _ => 1 << CUT,
        }
    }

    /// The place in the UMEM that an address on a ring stands for, which may be anywhere.
    #[inline]
    pub(crate) fn flat_in<const CUT: u32>(&self, addr: u64) -> u64 {
        if CUT == ANY_CUT && self.unaligned {
            (addr & ((1 << OFFSET_SHIFT) - 1)) + (addr >> OFFSET_SHIFT)
        } else {
            addr
        }
    }

    /// Frame, and offset in it, of a place that came out of shared memory, for one [`cut`](Self::cut); `None` outside the
    /// UMEM.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "below `frames`, which is a u32")]
    pub(crate) fn locate_in<const CUT: u32>(&self, at: u64) -> Option<(FrameIndex, u32)> {
        let (frame, offset) = self.divided_in::<CUT>(at);
        (frame < u64::from(self.frames)).then_some((FrameIndex(frame as u32), offset))
    }

    /// As [`split`](Self::split), for one [`cut`](Self::cut).
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a place of a frame, whose number is a u32"
    )]
    fn split_in<const CUT: u32>(&self, at: u64) -> (FrameIndex, u32) {
        let (frame, offset) = self.divided_in::<CUT>(at);
        debug_assert!(frame < u64::from(self.frames));
        // SAFETY: a place of a `Buf` lies in its UMEM, whose frames are counted by a u32.
        unsafe { std::hint::assert_unchecked(frame <= u64::from(u32::MAX)) };
        (FrameIndex(frame as u32), offset)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "below 4096")]
    fn divided_in<const CUT: u32>(&self, at: u64) -> (u64, u32) {
        let size = u64::from(self.frame_size_in::<CUT>());
        if CUT == ANY_CUT {
            // A power of two is by far the most usual one, and a division by far the slowest instruction.
            match self.unaligned {
                true => (at / size, (at % size) as u32),
                false => (at >> self.shift, (at & (size - 1)) as u32),
            }
        } else {
            (at >> CUT, (at & (size - 1)) as u32)
        }
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

/// A UMEM: frame memory, its cut, the book of its frames, and the way home for those that have no pool.
pub(crate) struct Umem {
    id: u64,
    region: Region,
    /// The region's first byte, so that no packet has to ask for it.
    base: NonNull<u8>,
    geometry: Geometry,
    book: Book,
    pairs: Mutex<PairIds>,
    /// Frames without a pool: not yet taken by one, or dropped outside of their queue, possibly on another thread. As
    /// many places as frames, so that a push always succeeds.
    returned: ArrayQueue<FrameIndex>,
    /// What may be in front of packets.
    hints: Option<UmemHints>,
    /// What packets ask for that are to be sent.
    asked: Option<AskedFrames>,
    /// Empty lists for the further frames of kept packets, so that keeping one allocates nothing: enough for all frames.
    lists: Option<ArrayQueue<Vec<Entry>>>,
}

impl Umem {
    /// With hints in front of packets, if there are layouts of them.
    pub(crate) fn new(region: Region, geometry: Geometry, layouts: Option<Arc<Layouts>>) -> Arc<Self> {
        let geometry = geometry.with_hints(layouts.is_some());
        static NEXT: AtomicU64 = AtomicU64::new(1);
        assert!(region.len() >= geometry.bytes());
        let returned = ArrayQueue::new(geometry.frames() as usize);
        for frame in 0..geometry.frames() {
            _ = returned.push(FrameIndex(frame));
        }
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            base: region.as_ptr(),
            region,
            geometry,
            book: Book::new(geometry.frames()),
            pairs: Mutex::default(),
            returned,
            hints: layouts.map(UmemHints::new),
            asked: (!geometry.tx_features().is_empty()).then(|| AskedFrames::new(geometry.frames())),
            lists: geometry.multi_buffer().then(|| Self::lists(geometry.frames())),
        })
    }

    fn lists(frames: u32) -> ArrayQueue<Vec<Entry>> {
        // A packet with further frames has at least two.
        let lists = ArrayQueue::new(frames.div_ceil(2) as usize);
        while lists.push(Vec::with_capacity(USUAL_FRAGMENTS)).is_ok() {}
        lists
    }

    fn take_list(&self) -> Vec<Entry> {
        self.lists.as_ref().and_then(ArrayQueue::pop).unwrap_or_default()
    }

    fn give_list(&self, list: Vec<Entry>) {
        if let Some(lists) = self.lists.as_ref().filter(|_| list.capacity() != 0) {
            _ = lists.push(list);
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn book(&self) -> &Book {
        &self.book
    }

    /// A number for one more pair of rings; none when so many are in use.
    fn take_pair(&self) -> Option<PairId> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives the number of a pair back of which nothing is in the book any more.
    fn give_pair(&self, pair: PairId) {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).give(pair);
    }

    /// First byte of the memory.
    #[inline]
    fn memory(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Frames that no pool has taken or that came home.
    pub(crate) fn unclaimed(&self) -> usize {
        self.returned.len()
    }

    pub(crate) fn give_back(&self, frame: FrameIndex) {
        let pushed = self.returned.push(frame);
        debug_assert!(pushed.is_ok(), "more frames came back than exist");
    }

    pub(crate) fn take_returned(&self) -> Option<FrameIndex> {
        self.returned.pop()
    }

    /// Takes back all frames of these owners, whose sockets are gone.
    fn reclaim(&self, owners: [Owner; 3]) {
        for (frame, owner) in (0..).map(FrameIndex).zip(self.book.owners()) {
            if owners.contains(&owner) {
                self.book.set(frame, Owner::User);
                self.give_back(frame);
            }
        }
    }
}
