//! The window of a frame that a packet occupies, shared by everything that owns a frame.

use super::entry::HINTS;
use super::{FrameIndex, Geometry, Umem};

/// One frame and the packet in it. Whoever holds the `Buf` owns the frame; it is neither `Copy` nor `Clone`.
///
/// As small as the ring's descriptor that it comes from, for a burst writes and reads one for each packet. Where the
/// memory is its UMEM knows, which all methods are told: the one that the `Buf` was made of.
#[repr(C)]
pub(crate) struct Buf {
    /// Where the packet starts, from the UMEM's start on: always in the frame that it is about, also when it has no bytes.
    at: u64,
    pub(crate) len: u32,
    /// For an [`Entry`](super::Entry).
    pub(super) state: u32,
}

const _: () = assert!(size_of::<Buf>() == size_of::<crate::ring::Desc>());

impl Buf {
    /// # Safety
    /// The caller owns the frame of the UMEM that `at` lies in and hands that ownership to the `Buf`. The packet does not
    /// leave the frame.
    #[inline]
    pub(super) unsafe fn new(at: u64, len: u32) -> Self {
        Self { at, len, state: 0 }
    }

    /// # Safety
    /// The caller gives up the use of `self`: only one of the two may be used from here on.
    #[inline]
    pub(super) unsafe fn duplicate(&self) -> Self {
        Self {
            state: self.state & HINTS,
            ..*self
        }
    }

    /// Where the packet starts, from the UMEM's start on.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.at
    }

    #[inline]
    pub(crate) fn frame(&self, geometry: &Geometry) -> FrameIndex {
        geometry.split(self.at).0
    }

    /// Packet start in the frame.
    #[inline]
    pub(crate) fn offset(&self, geometry: &Geometry) -> u32 {
        geometry.split(self.at).1
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "an offset in memory that is mapped")]
    pub(crate) fn data<'b>(&'b self, umem: &'b Umem) -> &'b [u8] {
        // SAFETY: the packet lies in its frame, which every method here keeps so, and the frame is ours (`new`).
        unsafe { std::slice::from_raw_parts(umem.memory().as_ptr().add(self.at as usize), self.len as usize) }
    }

    /// Has the cache lines of the packet's first bytes come, as many as there are, and does not wait for them.
    #[inline]
    pub(crate) fn prefetch(&self, umem: &Umem, bytes: usize) {
        let data = self.data(umem);
        for line in data[..bytes.min(data.len())].chunks(CACHE_LINE) {
            prefetch(line);
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "an offset in memory that is mapped")]
    pub(crate) fn data_mut<'b>(&'b mut self, umem: &'b Umem) -> &'b mut [u8] {
        // SAFETY: as in `data`, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(umem.memory().as_ptr().add(self.at as usize), self.len as usize) }
    }

    #[inline]
    pub(crate) fn capacity(&self, geometry: &Geometry) -> usize {
        (geometry.frame_size() - self.offset(geometry)) as usize
    }

    #[inline]
    pub(crate) fn resize(&mut self, geometry: &Geometry, len: usize) -> bool {
        if len > self.capacity(geometry) {
            return false;
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most the capacity, which is at most 4096"
        )]
        {
            self.len = len as u32;
        }
        true
    }

    #[inline]
    pub(crate) fn move_front(&mut self, geometry: &Geometry, by: i32) -> bool {
        let offset = i64::from(self.offset(geometry)) + i64::from(by);
        let len = i64::from(self.len) - i64::from(by);
        let least = if by < 0 { i64::from(geometry.reserved()) } else { 0 };
        // One that starts where its frame ends would be taken for one of the next frame.
        if !(least..i64::from(geometry.frame_size())).contains(&offset) || len < 0 {
            return false;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and their sum is unchanged"
        )]
        {
            self.at = self.at.wrapping_add_signed(by.into());
            self.len = len as u32;
        }
        self.forget_hints();
        true
    }

    /// What is in front of the packet is no hints any more.
    #[inline]
    pub(crate) fn forget_hints(&mut self) {
        self.state &= !HINTS;
    }
}

/// The methods that everything with a packet in frames has. `self.$head` is the first `Buf`, `self.$rest` a slice or
/// vector with the entries of the further ones.
macro_rules! buffer_methods {
    ($($head:ident).+, $rest:ident) => {
        /// The packet, from its Ethernet header on. Of a packet in several frames
        /// ([`QueueOptions::multi_buffer`](crate::QueueOptions::multi_buffer)) the part in the first; all are
        /// [`parts`](Self::parts).
        #[inline]
        pub fn data(&self) -> &[u8] {
            self.$($head).+.data(&self.umem)
        }

        /// As [`data`](Self::data), to be edited in place.
        #[inline]
        pub fn data_mut(&mut self) -> &mut [u8] {
            self.$($head).+.data_mut(&self.umem)
        }

        /// The packet's parts, frame by frame: one, unless it is in several frames.
        #[inline]
        pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
            crate::umem::chain::parts(&self.umem, &self.$($head).+, &self.$rest)
        }

        /// As [`parts`](Self::parts), to be edited in place.
        #[inline]
        pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
            crate::umem::chain::parts_mut(&self.umem, &mut self.$($head).+, &mut self.$rest)
        }

        /// Copies the packet's bytes into `buffer`, as many as fit; tells how many.
        pub fn copy_to(&self, buffer: &mut [u8]) -> usize {
            crate::umem::chain::copy_to(&self.umem, &self.$($head).+, &self.$rest, buffer)
        }

        /// The hints of the XDP program about this packet, if they are of the reader's type; otherwise `None`, and the reason
        /// is in [`Queue::hint_counters`](crate::Queue::hint_counters). For all packets of a burst
        /// [`Burst::with_hints`](crate::Burst::with_hints) is faster by some instructions.
        ///
        /// `None` once the packet's start was moved or the packet replaced, for other bytes lie in front of it then.
        #[inline]
        pub fn hints<T: crate::hints::Hints>(&self, reader: crate::hints::Reader<T>) -> Option<T> {
            self.$($head).+.hints(&self.umem, reader)
        }

        /// As [`hints`](Self::hints), of any of the port's structs, to be read by the names of its fields.
        pub fn raw_hints(&self) -> Option<crate::hints::RawHints<'_>> {
            self.$($head).+.raw_hints(&self.umem)
        }

        /// The bytes in front of the packet that can be hints, up to where it starts; empty where none can be. For who decodes
        /// them otherwise than by [`hints`](Self::hints).
        #[inline]
        pub fn front(&self) -> &[u8] {
            self.$($head).+.hint_room(&self.umem)
        }

        /// Length of the packet in bytes, over all its frames.
        #[inline]
        #[allow(clippy::len_without_is_empty, reason = "a packet is a length, not a collection")]
        pub fn len(&self) -> usize {
            crate::umem::chain::len(&self.$($head).+, &self.$rest)
        }

        /// Returns whether an interface with this MTU ([`Queue::mtu`](crate::Queue::mtu)) sends the
        /// packet: its Ethernet header and up to two VLAN tags do not count.
        #[inline]
        pub fn fits_mtu(&self, mtu: u32) -> bool {
            let bytes = u32::try_from(self.len()).unwrap_or(u32::MAX);
            crate::umem::chain::fits_mtu(&self.umem, &self.$($head).+, bytes, mtu)
        }

        /// The longest packet that fits from where it starts now, in bytes, over all its frames.
        #[inline]
        pub fn capacity(&self) -> usize {
            crate::umem::chain::capacity(self.umem.geometry(), &self.$($head).+, &self.$rest)
        }

        /// As [`capacity`](Self::capacity), of the packet's first frame alone.
        #[inline]
        pub fn room(&self) -> usize {
            self.$($head).+.capacity(self.umem.geometry())
        }

        /// Bytes in front of the packet that [`extend_front`](Self::extend_front) can take. With
        /// [`QueueOptions::tx_metadata`](crate::QueueOptions::tx_metadata) 24 bytes less than lie there.
        #[inline]
        pub fn headroom(&self) -> usize {
            let geometry = self.umem.geometry();
            (self.$($head).+.offset(geometry)).saturating_sub(geometry.reserved()) as usize
        }

        /// Sets the packet's length; bytes that come in hold whatever the frame held. False, and nothing changed,
        /// beyond [`capacity`](Self::capacity). A received packet in several frames grows only by what is free behind its
        /// last byte.
        #[inline]
        #[must_use = "false means that the packet did not fit"]
        pub fn resize(&mut self, len: usize) -> bool {
            crate::umem::chain::resize(self.umem.geometry(), &mut self.$($head).+, &mut self.$rest, len)
        }

        /// Replaces the packet. False, and nothing changed, beyond [`capacity`](Self::capacity).
        #[inline]
        #[must_use = "false means that the packet did not fit"]
        pub fn write(&mut self, packet: &[u8]) -> bool {
            crate::umem::chain::write(&self.umem, &mut self.$($head).+, &mut self.$rest, packet)
        }

        /// Puts `bytes` of room in front of the packet, to encapsulate it. False beyond [`headroom`](Self::headroom).
        #[inline]
        #[must_use = "false means that there was no room"]
        pub fn extend_front(&mut self, bytes: usize) -> bool {
            i32::try_from(bytes).is_ok_and(|bytes| self.$($head).+.move_front(self.umem.geometry(), -bytes))
        }

        /// Takes `bytes` away from the packet's front, to decapsulate it. False beyond its length, or the length of the
        /// part in its first frame, and when nothing would be left of one that ends where its frame does.
        #[inline]
        #[must_use = "false means that the packet is shorter"]
        pub fn trim_front(&mut self, bytes: usize) -> bool {
            i32::try_from(bytes).is_ok_and(|bytes| self.$($head).+.move_front(self.umem.geometry(), bytes))
        }
    };
}
pub(crate) use buffer_methods;

/// What memory comes in.
const CACHE_LINE: usize = 64;

/// Has a cache line come.
#[inline]
fn prefetch(line: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it changes nothing that a program sees and faults at no address, and SSE is there on every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}
