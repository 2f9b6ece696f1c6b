//! Frame memory on the heap, and the kernel's access to frames, for the stand-in of the kernel in `crate::testing`.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::book::{Owner, PairId};
use super::{ANY_CUT, FrameMemory, Geometry, Region, Umem};
use crate::error::Error;
use crate::hints::Layouts;

struct Heap {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory that belongs to no thread; its users are frames, which have one owner each.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

// SAFETY: page-aligned zeroed memory that lives as long as the value, at one address; only the UMEM knows it.
unsafe impl FrameMemory for Heap {
    fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated in `Umem::on_heap` with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Whose frame the stand-in accesses: the one that the kernel has through this pair of rings.
#[derive(Clone, Copy)]
pub(crate) enum Lent {
    Fill(PairId),
    Tx(PairId),
}

impl Umem {
    /// A UMEM in an allocation of exactly its size.
    pub(crate) fn on_heap(geometry: Geometry, layouts: Option<Arc<Layouts>>) -> Result<Arc<Self>, Error> {
        let bytes = geometry.bytes();
        let layout = Layout::from_size_align(bytes, rustix::param::page_size()).expect("a UMEM's size");
        // SAFETY: a geometry has at least one frame, so the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        let region = Region::custom(Box::new(Heap { start, layout }), bytes)?;
        Ok(Self::new(region, geometry, layouts))
    }

    /// What the kernel does when it receives: copies `packet` into a frame that it has. False when it does not have it,
    /// or the packet leaves it.
    pub(crate) fn kernel_writes(&self, lent: Lent, addr: u64, packet: &[u8]) -> bool {
        let Some(to) = self.kernel_has(lent, addr, packet.len()) else {
            return false;
        };
        // SAFETY: `kernel_has` says that the bytes lie in one frame, and that nobody else has it.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(packet).cast(), packet.len()) };
        true
    }

    /// What the kernel does when it sends: reads a packet out of a frame that it has. False when it does not have it, or
    /// the packet leaves it.
    pub(crate) fn kernel_reads(&self, lent: Lent, addr: u64, packet: &mut [u8]) -> bool {
        let Some(from) = self.kernel_has(lent, addr, packet.len()) else {
            return false;
        };
        // SAFETY: as in `kernel_writes`.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *packet).cast(), packet.len()) };
        true
    }

    fn kernel_has(&self, lent: Lent, addr: u64, len: usize) -> Option<NonNull<u8>> {
        let (frame, offset) = self
            .geometry()
            .locate_in::<ANY_CUT>(self.geometry().flat_in::<ANY_CUT>(addr))?;
        let owners = match lent {
            Lent::Fill(pair) => [Owner::Fill(pair); 2],
            Lent::Tx(pair) => [Owner::Tx(pair), Owner::TxStamp(pair)],
        };
        let fits = len <= (self.geometry().frame_size() - offset) as usize;
        let start = usize::try_from(self.geometry().addr(frame)).expect("memory that is mapped");
        let lent = owners.iter().any(|&owner| self.book().is(frame, owner));
        // SAFETY: the frame lies in the memory, and the offset in the frame.
        (lent && fits).then(|| unsafe { self.memory().add(start + offset as usize) })
    }
}
