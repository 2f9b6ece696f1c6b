//! A frame that the user owns.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::{Buf, Entry, Fate, Umem, buffer_methods};
use crate::tx_metadata::{AskError, TxMeta};

/// A frame of a UMEM, with a packet in it, owned.
///
/// It comes from [`Packet::keep`](crate::Packet::keep) or [`Queue::alloc`](crate::Queue::alloc), can be sent to another
/// thread and kept as long as wanted: the memory stays mapped, also when the queue is closed meanwhile. Dropping it
/// gives the frame back to its queue, from any thread, without a lock or an allocation.
#[doc(alias = "xsk_umem__get_data")]
pub struct Frame {
    buf: Buf,
    /// The packet's further frames. Empty, and without memory of its own, unless the packet is in several.
    rest: Vec<Entry>,
    umem: Arc<Umem>,
}

impl Frame {
    pub(crate) fn new(umem: Arc<Umem>, buf: Buf) -> Self {
        Self {
            buf,
            rest: Vec::new(),
            umem,
        }
    }

    /// A packet in several frames: `rest` are the further ones.
    pub(crate) fn chain(umem: Arc<Umem>, buf: Buf, rest: impl Iterator<Item = Buf>) -> Self {
        let mut entries = umem.take_list();
        entries.extend(rest.map(|buf| Entry::new(buf, Fate::Open)));
        Self {
            buf,
            rest: entries,
            umem,
        }
    }

    /// Identity of the frame's UMEM, unique in this process. A queue sends only frames of its own UMEM.
    pub fn umem_id(&self) -> u64 {
        self.umem.id()
    }

    buffer_methods!(buf, rest);

    pub(crate) fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Frames that the packet is in; those with nothing in them at its end count.
    pub(crate) fn frames(&self) -> u32 {
        1 + u32::try_from(self.rest.len()).unwrap_or(u32::MAX - 1)
    }

    #[cold]
    fn drop_rest(&mut self) {
        for entry in self.rest.drain(..) {
            self.umem.give_back(entry.buf.frame(self.umem.geometry()));
        }
        self.umem.give_list(std::mem::take(&mut self.rest));
    }

    /// The packet's first frame.
    pub(crate) fn head(&self) -> &Buf {
        &self.buf
    }

    /// Notes what the packet asks for.
    pub(crate) fn ask(&self, meta: &TxMeta) -> Result<(), AskError> {
        self.umem.ask(&self.buf, meta, !self.rest.is_empty())
    }

    /// The frame, if the packet is in but one.
    #[inline]
    pub(crate) fn single(&self) -> Option<&Buf> {
        (self.rest.capacity() == 0).then_some(&self.buf)
    }

    /// Ends without giving the frame back: its ownership went elsewhere. Of a packet in several frames the further ones go
    /// back all the same.
    #[inline]
    pub(crate) fn lend(self) {
        let mut this = ManuallyDrop::new(self);
        if this.rest.capacity() != 0 {
            this.drop_rest();
        }
        // SAFETY: `this` is never used again nor dropped; what else it holds is plain data, or empty by now.
        drop(unsafe { std::ptr::read(&this.umem) });
    }

    /// Takes the frames out without giving them back, as entries behind those in `to`: their ownership goes elsewhere,
    /// into the TX ring or the pool.
    pub(crate) fn into_entries(self, fate: Fate, to: &mut Vec<Entry>) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used again nor dropped, so each field is read out exactly once; the `Arc` is
        // dropped here so that the UMEM's count stays right.
        let (umem, buf, mut rest) = unsafe {
            (
                std::ptr::read(&this.umem),
                std::ptr::read(&this.buf),
                std::mem::take(&mut this.rest),
            )
        };
        to.push(Entry::new(buf, fate).with_more(!rest.is_empty()));
        let last = rest.len();
        to.extend((1..).zip(rest.drain(..)).map(|(n, entry)| entry.with_more(n != last)));
        umem.give_list(rest);
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.umem.give_back(self.buf.frame(self.umem.geometry()));
        if self.rest.capacity() != 0 {
            self.drop_rest();
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("umem", &self.umem.id())
            .field("frame", &self.buf.frame(self.umem.geometry()).0)
            .field("len", &self.len())
            .finish()
    }
}
