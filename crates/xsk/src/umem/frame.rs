//! A frame that the user owns.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::{Buf, Umem, buffer_methods};

/// A frame of a UMEM, with a packet in it, owned.
///
/// It comes from [`Packet::keep`](crate::Packet::keep) or [`Queue::alloc`](crate::Queue::alloc), can be sent to another
/// thread and kept as long as wanted: the memory stays mapped, also when the queue is closed meanwhile. Dropping it
/// gives the frame back to its queue, from any thread, without a lock or an allocation.
#[doc(alias = "xsk_umem__get_data")]
pub struct Frame {
    buf: Buf,
    umem: Arc<Umem>,
}

impl Frame {
    pub(crate) fn new(umem: Arc<Umem>, buf: Buf) -> Self {
        Self { buf, umem }
    }

    /// Identity of the frame's UMEM, unique in this process. A queue sends only frames of its own UMEM.
    pub fn umem_id(&self) -> u64 {
        self.umem.id()
    }

    buffer_methods!(buf);

    pub(crate) fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    pub(crate) fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Takes the frame out without giving it back: its ownership goes elsewhere, into the TX ring or the pool.
    pub(crate) fn into_buf(self) -> Buf {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used again nor dropped, so each field is read out exactly once; the `Arc` is
        // dropped here so that the UMEM's count stays right.
        unsafe {
            drop(std::ptr::read(&this.umem));
            std::ptr::read(&this.buf)
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.umem.give_back(self.buf.frame);
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("umem", &self.umem.id())
            .field("frame", &self.buf.frame.0)
            .field("len", &self.buf.len)
            .finish()
    }
}
