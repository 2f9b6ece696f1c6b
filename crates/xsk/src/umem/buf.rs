//! The window of a frame that a packet occupies, shared by everything that owns a frame.

use std::ptr::NonNull;

use super::{FrameIndex, Geometry, Umem};

/// One frame and the packet in it. Whoever holds the `Buf` owns the frame; it is neither `Copy` nor `Clone`.
pub(crate) struct Buf {
    base: NonNull<u8>,
    pub(crate) frame: FrameIndex,
    /// Packet start in the frame.
    pub(crate) offset: u32,
    pub(crate) len: u32,
    frame_size: u32,
}

// SAFETY: a `Buf` is the only way to its frame's bytes, and they are not bound to a thread.
unsafe impl Send for Buf {}

impl Buf {
    /// # Safety
    /// The caller owns `frame` of `umem` and hands that ownership to the `Buf`. `offset + len` must not exceed the
    /// frame size. The `Buf` must not be used after `umem` is gone.
    #[inline]
    pub(super) unsafe fn new(umem: &Umem, frame: FrameIndex, offset: u32, len: u32) -> Self {
        let geometry: &Geometry = umem.geometry();
        debug_assert!(frame.0 < geometry.frames() && offset + len <= geometry.frame_size());
        Self {
            base: umem.at(frame),
            frame,
            offset,
            len,
            frame_size: geometry.frame_size(),
        }
    }

    /// # Safety
    /// The caller gives up the use of `self`: only one of the two may be used from here on.
    #[inline]
    pub(super) unsafe fn duplicate(&self) -> Self {
        Self { ..*self }
    }

    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        // SAFETY: `offset + len <= frame_size` is kept by every method here, and the frame is ours (`new`).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.offset as usize), self.len as usize) }
    }

    #[inline]
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(self.offset as usize), self.len as usize) }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        (self.frame_size - self.offset) as usize
    }

    #[inline]
    pub(crate) fn resize(&mut self, len: usize) -> bool {
        if len > self.capacity() {
            return false;
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most the capacity, which is below 4096"
        )]
        {
            self.len = len as u32;
        }
        true
    }

    #[inline]
    pub(crate) fn move_front(&mut self, by: i32) -> bool {
        let (offset, len) = (
            i64::from(self.offset) + i64::from(by),
            i64::from(self.len) - i64::from(by),
        );
        if offset < 0 || len < 0 {
            return false;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and their sum is unchanged"
        )]
        {
            (self.offset, self.len) = (offset as u32, len as u32);
        }
        true
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
            self.$($head).+.data()
        }

        /// As [`data`](Self::data), to be edited in place.
        #[inline]
        pub fn data_mut(&mut self) -> &mut [u8] {
            self.$($head).+.data_mut()
        }

        /// The packet's parts, frame by frame: one, unless it is in several frames.
        #[inline]
        pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
            crate::umem::chain::parts(&self.$($head).+, &self.$rest)
        }

        /// As [`parts`](Self::parts), to be edited in place.
        #[inline]
        pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
            crate::umem::chain::parts_mut(&mut self.$($head).+, &mut self.$rest)
        }

        /// Copies the packet's bytes into `buffer`, as many as fit; tells how many.
        pub fn copy_to(&self, buffer: &mut [u8]) -> usize {
            crate::umem::chain::copy_to(&self.$($head).+, &self.$rest, buffer)
        }

        /// Length of the packet in bytes, over all its frames.
        #[inline]
        #[allow(clippy::len_without_is_empty, reason = "a packet is a length, not a collection")]
        pub fn len(&self) -> usize {
            crate::umem::chain::len(&self.$($head).+, &self.$rest)
        }

        /// The longest packet that fits from where it starts now, in bytes, over all its frames.
        #[inline]
        pub fn capacity(&self) -> usize {
            crate::umem::chain::capacity(&self.$($head).+, &self.$rest)
        }

        /// Bytes in front of the packet that [`extend_front`](Self::extend_front) can take.
        #[inline]
        pub fn headroom(&self) -> usize {
            self.$($head).+.offset as usize
        }

        /// Sets the packet's length; bytes that come in hold whatever the frame held. False, and nothing changed,
        /// beyond [`capacity`](Self::capacity). A received packet in several frames grows only by what is free behind its
        /// last byte.
        #[inline]
        #[must_use = "false means that the packet did not fit"]
        pub fn resize(&mut self, len: usize) -> bool {
            crate::umem::chain::resize(&mut self.$($head).+, &mut self.$rest, len)
        }

        /// Replaces the packet. False, and nothing changed, beyond [`capacity`](Self::capacity).
        #[inline]
        #[must_use = "false means that the packet did not fit"]
        pub fn write(&mut self, packet: &[u8]) -> bool {
            crate::umem::chain::write(&mut self.$($head).+, &mut self.$rest, packet)
        }

        /// Puts `bytes` of room in front of the packet, to encapsulate it. False beyond [`headroom`](Self::headroom).
        #[inline]
        #[must_use = "false means that there was no room"]
        pub fn extend_front(&mut self, bytes: usize) -> bool {
            i32::try_from(bytes).is_ok_and(|bytes| self.$($head).+.move_front(-bytes))
        }

        /// Takes `bytes` away from the packet's front, to decapsulate it. False beyond its length, or the length of the
        /// part in its first frame.
        #[inline]
        #[must_use = "false means that the packet is shorter"]
        pub fn trim_front(&mut self, bytes: usize) -> bool {
            i32::try_from(bytes).is_ok_and(|bytes| self.$($head).+.move_front(bytes))
        }
    };
}
pub(crate) use buffer_methods;
