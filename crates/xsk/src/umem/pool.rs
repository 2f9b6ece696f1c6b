//! Free frames of one pair of fill and completion rings, and the way of frames to and from the kernel.
//!
//! Last in, first out: the frame that was touched last is used first, so that a lightly loaded queue works on a few
//! frames that stay in the cache, however many there are.
//!
//! A UMEM of its own belongs to the one pool wholly. Of a shared one each pool has a quota. Frames wander: what was
//! received on one pair and sent on another comes back there. A pool that has more than its quota puts the surplus
//! with the frames that users have dropped (`Umem::give_back`), and one that has less takes from there.

use std::sync::Arc;

use super::book::{Owner, PairId};
use super::{Buf, FrameIndex, Geometry, Umem};
use crate::error::Violation;

/// The pool of one pair. One thread at a time owns it; nothing here allocates after [`Pool::new`].
pub(crate) struct Pool {
    umem: Arc<Umem>,
    pair: PairId,
    free: Vec<FrameIndex>,
    quota: u32,
    /// Frames given to the fill ring and not received.
    in_fill: u32,
    /// Frames given to a TX ring and not completed.
    in_flight: u32,
    /// Whether the kernel is done with its frames as soon as the sockets are closed.
    reclaim: bool,
    /// One entry a frame, for the audit.
    #[cfg(debug_assertions)]
    pub(super) seen: Vec<bool>,
}

impl Pool {
    /// Takes `quota` frames out of the UMEM, the lowest on top; `None` when it has not so many left.
    pub(crate) fn new(umem: Arc<Umem>, quota: u32) -> Option<Self> {
        let pair = umem.take_pair()?;
        // Room for all: whatever the quota is, frames of other pools may pass through.
        let mut free = Vec::with_capacity(umem.geometry().frames() as usize);
        free.extend((0..quota).map_while(|_| umem.take_returned()));
        free.sort_unstable_by(|a, b| b.cmp(a));
        let pool = Self {
            #[cfg(debug_assertions)]
            seen: vec![false; umem.geometry().frames() as usize],
            umem,
            pair,
            free,
            quota,
            in_fill: 0,
            in_flight: 0,
            reclaim: true,
        };
        // What was taken goes back when it is dropped.
        (pool.free.len() == quota as usize).then_some(pool)
    }

    /// A NIC may write to frames for a while after the socket was closed: the pool's end does not take them back.
    pub(crate) fn zero_copy(&mut self) {
        self.reclaim = false;
    }

    /// The pair of rings whose frames these are.
    #[cfg(any(all(feature = "testing", not(loom)), debug_assertions))]
    pub(crate) fn pair(&self) -> PairId {
        self.pair
    }

    /// Free frames on hand, without those on their way home.
    #[inline]
    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }

    /// Frames given to the fill ring and not received.
    #[inline]
    pub(crate) fn in_fill(&self) -> u32 {
        self.in_fill
    }

    /// Frames given to a TX ring and not completed.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn umem(&self) -> &Umem {
        &self.umem
    }

    pub(super) fn free(&self) -> &[FrameIndex] {
        &self.free
    }

    /// Frames in the pool's care: free ones and those that the kernel has through its pair.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.free.len() + self.in_fill as usize + self.in_flight as usize
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<FrameIndex> {
        self.free.pop().or_else(|| {
            self.collect_returned();
            self.free.pop()
        })
    }

    /// A free frame for a packet to be sent, of length 0 at first.
    #[inline]
    pub(crate) fn take_buf(&mut self) -> Option<Buf> {
        let frame = self.take()?;
        // SAFETY: the pool had the frame, so nobody else does; packets start inside of it (`Geometry::new`).
        Some(unsafe { Buf::new(&self.umem, frame, self.umem.geometry().packet_offset(), 0) })
    }

    #[inline]
    pub(crate) fn put(&mut self, frame: FrameIndex) {
        debug_assert!(self.umem.book().is(frame, Owner::User));
        self.free.push(frame);
    }

    /// Frames that were kept by the user and dropped since, or that another pool had too many of; no more than the quota.
    pub(crate) fn collect_returned(&mut self) {
        while self.held() < self.quota as usize {
            let Some(frame) = self.umem.take_returned() else { break };
            self.free.push(frame);
        }
    }

    /// Gives away what is above the quota. The oldest would be colder, but only the newest are at hand without a move.
    #[inline]
    pub(crate) fn give_surplus(&mut self) {
        while self.held() > self.quota as usize {
            let Some(frame) = self.free.pop() else { break };
            self.umem.give_back(frame);
        }
    }

    /// Notes that the fill ring has up to `most` free frames now, and hands their addresses to `put`.
    #[inline]
    pub(crate) fn lend_to_fill(&mut self, most: u32, mut put: impl FnMut(u64)) {
        if self.free.len() < most as usize {
            self.collect_returned();
        }
        let (umem, owner) = (&*self.umem, Owner::Fill(self.pair));
        let geometry = *umem.geometry();
        let left = self.free.len().saturating_sub(most as usize);
        for &frame in self.free[left..].iter().rev() {
            umem.book().set(frame, owner);
            self.in_fill += 1;
            put(geometry.addr(frame));
        }
        self.free.truncate(left);
    }

    /// Notes that the TX ring has the frame now, and tells the address to put there.
    #[inline]
    pub(crate) fn lend_to_tx(&mut self, buf: &Buf) -> u64 {
        self.umem.book().set(buf.frame, Owner::Tx(self.pair));
        self.in_flight += 1;
        self.umem.geometry().addr(buf.frame) + u64::from(buf.offset)
    }

    /// For frames that come out of the RX ring, as many as there are.
    #[inline]
    pub(crate) fn arrivals(&mut self) -> Arrivals<'_> {
        Arrivals {
            umem: &self.umem,
            geometry: *self.umem.geometry(),
            owner: Owner::Fill(self.pair),
            in_fill: &mut self.in_fill,
        }
    }

    /// Checks addresses of the completion ring and takes the frames back; tells how many.
    #[inline]
    pub(crate) fn take_from_completion(&mut self, addrs: impl IntoIterator<Item = u64>) -> Result<u32, Violation> {
        let (umem, owner) = (&*self.umem, Owner::Tx(self.pair));
        let geometry = *umem.geometry();
        let before = self.in_flight;
        for addr in addrs {
            // Newer kernels lose the lowest bit of an address, so that one at the start of a frame of odd size seems to be
            // in the frame before. No packet starts on the last byte of its frame, hence none leaves it with the bit set.
            // https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_skb_destructor_get_addr
            let (frame, _) = owned_by(umem, &geometry, owner, "completion", addr, addr | 1)?;
            umem.book().set(frame, Owner::User);
            self.in_flight -= 1;
            self.free.push(frame);
        }
        Ok(before - self.in_flight)
    }
}

/// What each frame that comes out of the RX ring is checked against.
pub(crate) struct Arrivals<'p> {
    umem: &'p Umem,
    geometry: Geometry,
    owner: Owner,
    in_fill: &'p mut u32,
}

impl Arrivals<'_> {
    /// Checks a descriptor of the RX ring: the kernel must have had the frame, and the packet must lie in it.
    #[inline]
    pub(crate) fn take(&mut self, addr: u64, len: u32) -> Result<Buf, Violation> {
        let (frame, offset) = owned_by(self.umem, &self.geometry, self.owner, "RX", addr, addr)?;
        if len > self.geometry.frame_size() - offset {
            return Err(Violation::Length {
                addr,
                len,
                frame_size: self.geometry.frame_size(),
            });
        }
        self.umem.book().set(frame, Owner::User);
        *self.in_fill -= 1;
        // SAFETY: the packet lies in the frame, checked above; the kernel owned the frame until now, and the book says
        // that it is ours from here on.
        Ok(unsafe { Buf::new(self.umem, frame, offset, len) })
    }
}

/// The frame at `at`, which is what `addr` on the ring stands for, and the offset in it.
#[inline]
fn owned_by(
    umem: &Umem,
    geometry: &Geometry,
    owner: Owner,
    ring: &'static str,
    addr: u64,
    at: u64,
) -> Result<(FrameIndex, u32), Violation> {
    let Some((frame, offset)) = geometry.locate(at) else {
        return Err(Violation::Address {
            ring,
            addr,
            umem: geometry.bytes() as u64,
        });
    };
    if !umem.book().is(frame, owner) {
        return Err(Violation::NotOwned { ring, addr });
    }
    Ok((frame, offset))
}

impl Drop for Pool {
    /// The frames go back to the UMEM, for the pools that are opened later. Its sockets are closed by now.
    fn drop(&mut self) {
        let lent = self.in_fill + self.in_flight != 0;
        if lent && self.reclaim {
            self.umem.reclaim([Owner::Fill(self.pair), Owner::Tx(self.pair)]);
        }
        if !lent || self.reclaim {
            self.umem.give_pair(self.pair);
        }
        for frame in self.free.drain(..) {
            self.umem.give_back(frame);
        }
    }
}
