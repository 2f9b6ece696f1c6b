//! Free frames of one pair of fill and completion rings, and the way of frames to and from the kernel.
//!
//! Last in, first out: the frame that was touched last is used first, so that a lightly loaded queue works on a few
//! frames that stay in the cache, however many there are.
//!
//! A UMEM of its own belongs to the one pool wholly. Of a shared one each pool has a quota. Frames wander: what was
//! received on one pair and sent on another comes back there. A pool that has more than its quota puts the surplus
//! with the frames that users have dropped (`Umem::give_back`), and one that has less takes from there.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::sync::Arc;

use super::asked::not_opened;
use super::book::{BookEntries, Owner, PairId};
use super::{ANY_CUT, Buf, Entry, FrameIndex, Geometry, Umem, for_cut};
use crate::error::Violation;
use crate::ring::{Addr, Desc, DescRest, Filled, RawDesc, Reservation, RingMap};
use crate::tx_metadata::{AskError, Obtained, Stamps, TIMESTAMP};

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
    /// What packets that are sent may ask for, and the stamps that came.
    tx_metadata: Option<Box<Obtained>>,
    /// One entry a frame, for the audit.
    #[cfg(debug_assertions)]
    pub(super) seen: RefCell<Vec<bool>>,
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
            seen: RefCell::new(vec![false; umem.geometry().frames() as usize]),
            umem,
            pair,
            free,
            quota,
            in_fill: 0,
            in_flight: 0,
            reclaim: true,
            tx_metadata: None,
        };
        // What was taken goes back when it is dropped.
        (pool.free.len() == quota as usize).then_some(pool)
    }

    /// A NIC may write to frames for a while after the socket was closed: the pool's end does not take them back.
    pub(crate) fn zero_copy(&mut self) {
        self.reclaim = false;
    }

    /// The NIC has taken none of the frames: its driver does not receive into them.
    pub(crate) fn untouched(&mut self) {
        self.reclaim = true;
    }

    /// The pair of rings whose frames these are.
    #[cfg(any(feature = "testing", debug_assertions))]
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

    pub(crate) fn umem(&self) -> &Umem {
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
        self.take_with_buf().map(|(_, buf)| buf)
    }

    /// As [`take_buf`](Self::take_buf), with the frame's number.
    #[inline]
    pub(crate) fn take_with_buf(&mut self) -> Option<(FrameIndex, Buf)> {
        let frame = self.take()?;
        let geometry = self.umem.geometry();
        // SAFETY: the pool had the frame, so nobody else does; packets start inside of it (`Geometry::new`).
        let buf = unsafe { Buf::new(geometry.addr(frame) + u64::from(geometry.packet_offset()), 0) };
        Some((frame, buf))
    }

    /// Takes back the frame of a packet.
    #[inline]
    pub(crate) fn put_buf(&mut self, buf: &Buf) {
        self.put(buf.frame(self.umem.geometry()));
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

    /// Moves free frames to the fill ring, as many as its reserved slots take.
    pub(crate) fn lend_to_fill(&mut self, slots: &mut Reservation<'_, Addr, RingMap>) {
        let most = slots.remaining() as usize;
        if self.free.len() < most {
            self.collect_returned();
        }
        let (umem, owner) = (&*self.umem, Owner::Fill(self.pair));
        let left = self.free.len().saturating_sub(most);
        if umem.geometry().hints() {
            self.free[left..].iter().for_each(|&frame| umem.clear_front(frame));
        }
        let lent = slots.push_while(&self.free[left..], |&frame| {
            umem.book().set(frame, owner);
            Some(umem.geometry().addr(frame))
        });
        self.in_fill += lent;
        self.free.truncate(left);
    }

    /// Moves the frames of dropped packets to the fill ring, up to the first that is not one, or until all reserved slots
    /// are used; tells how many.
    #[inline]
    pub(crate) fn lend_dropped(&mut self, dropped: &[Entry], slots: &mut Reservation<'_, Addr, RingMap>) -> usize {
        for_cut!(self.umem.geometry(), self.lend_dropped_in(dropped, slots))
    }

    #[inline(never)]
    fn lend_dropped_in<const CUT: u32>(
        &mut self,
        dropped: &[Entry],
        slots: &mut Reservation<'_, Addr, RingMap>,
    ) -> usize {
        let (geometry, owner) = (*self.umem.geometry(), Owner::Fill(self.pair));
        let book = self.umem.book().entries();
        if geometry.hints() {
            let plain = dropped.iter().take_while(|entry| entry.is_plain());
            plain.for_each(|entry| self.umem.clear_front(entry.buf.frame(&geometry)));
        }
        let lent = slots.push_while(dropped, |entry| {
            entry.is_plain().then(|| {
                let (frame, offset) = geometry.split_in::<CUT>(entry.buf.start());
                book.set(frame, owner);
                entry.buf.start() - u64::from(offset)
            })
        });
        self.in_fill += lent;
        lent as usize
    }

    /// Notes that the TX ring has the packet's frame now, and tells the address to put there.
    #[inline]
    pub(crate) fn lend_to_tx(&mut self, buf: &Buf) -> u64 {
        self.lend_frame_to_tx(buf.frame(self.umem.geometry()));
        buf.start()
    }

    /// Notes that the TX ring has the frame now.
    #[inline]
    pub(crate) fn lend_frame_to_tx(&mut self, frame: FrameIndex) {
        self.umem.book().set(frame, Owner::Tx(self.pair));
        self.in_flight += 1;
    }

    /// Packets may ask for what was obtained.
    pub(crate) fn set_tx_metadata(&mut self, obtained: Option<Obtained>) {
        self.tx_metadata = obtained.map(Box::new);
    }

    pub(crate) fn tx_metadata(&self) -> Option<&Obtained> {
        self.tx_metadata.as_deref()
    }

    pub(crate) fn stamps_mut(&mut self) -> Option<&mut Stamps> {
        self.tx_metadata.as_mut()?.stamps.as_mut()
    }

    /// Why a packet that asks for something cannot be sent here.
    pub(crate) fn refuses(&self, buf: &Buf) -> Option<AskError> {
        let asked = self.umem.asked(buf.frame(self.umem.geometry()));
        let allowed = self.tx_metadata.as_ref().map_or(0, |obtained| obtained.allowed);
        not_opened(asked.flags, allowed).err()
    }

    /// As [`lend_to_tx`](Self::lend_to_tx), of a packet that asks for something: writes that in front of it, and tells the
    /// options of its descriptor.
    pub(crate) fn lend_asking(&mut self, buf: &Buf) -> u32 {
        let frame = buf.frame(self.umem.geometry());
        self.lend_frame_to_tx(frame);
        let Some(obtained) = &mut self.tx_metadata else {
            return 0;
        };
        let mut flags = self.umem.asked(frame).flags & obtained.passed;
        if flags & TIMESTAMP != 0 {
            if obtained.stamps.as_mut().is_some_and(Stamps::wanted) {
                self.umem.book().set(frame, Owner::TxStamp(self.pair));
            } else {
                flags &= !TIMESTAMP;
            }
        }
        if flags == 0 {
            return 0;
        }
        self.umem.write_request(frame, flags);
        Desc::WITH_METADATA
    }

    /// Checks descriptors of the RX ring and takes their packets to the inbox: the kernel must have had each frame, and the
    /// packet must lie in it. Tells the sum of the lengths, and the options of all together.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        descriptors: &mut Filled<'_, Desc, RingMap>,
        inbox: &mut Vec<Entry>,
    ) -> Result<(u64, u32), Violation> {
        for_cut!(self.umem.geometry(), self.receive_in(descriptors, inbox))
    }

    // Not inlined: the loop needs all registers.
    #[inline(never)]
    fn receive_in<const CUT: u32>(
        &mut self,
        descriptors: &mut Filled<'_, Desc, RingMap>,
        inbox: &mut Vec<Entry>,
    ) -> Result<(u64, u32), Violation> {
        let (geometry, book, owner) = (
            *self.umem.geometry(),
            self.umem.book().entries(),
            Owner::Fill(self.pair),
        );
        let (mut bytes, mut any) = (0, DescRest::default());
        let start = inbox.len();
        inbox.reserve(descriptors.len());
        let (received, refused) = descriptors.take_into(inbox.spare_capacity_mut(), |desc, to| {
            let Some(entry) = admit::<CUT>(&geometry, book, owner, desc) else {
                return false;
            };
            to.write(entry);
            bytes += u64::from(desc.rest.len());
            any |= desc.rest;
            true
        });
        // SAFETY: the room behind the last entry was written so far.
        unsafe { inbox.set_len(start + received) };
        #[allow(clippy::cast_possible_truncation, reason = "no more than the ring has slots")]
        {
            self.in_fill -= received as u32;
        }
        let options = any.options();
        if options & !Desc::CONTINUED != 0 {
            inbox[start..].iter_mut().for_each(Entry::strip);
        }
        match refused {
            None => Ok((bytes, options)),
            Some(desc) => Err(self.violation(desc)),
        }
    }

    /// As [`lend_to_fill`](Self::lend_to_fill), one frame without a ring; tells its address.
    #[cfg(test)]
    pub(crate) fn lend_one(&mut self) -> u64 {
        let frame = self.take().expect("a free frame");
        if self.umem.geometry().hints() {
            self.umem.clear_front(frame);
        }
        self.umem.book().set(frame, Owner::Fill(self.pair));
        self.in_fill += 1;
        self.umem.geometry().addr(frame)
    }

    /// As [`receive`](Self::receive), one descriptor without a ring.
    #[cfg(test)]
    pub(crate) fn receive_one(&mut self, addr: u64, len: u32) -> Result<Buf, Violation> {
        let (geometry, book) = (self.umem.geometry(), self.umem.book().entries());
        let (desc, owner) = (Desc { addr, len, options: 0 }.into(), Owner::Fill(self.pair));
        let by_cut = [admit::<ANY_CUT>, admit::<11>, admit::<12>];
        let admit = by_cut[geometry.cut().saturating_sub(10) as usize];
        let entry = admit(geometry, book, owner, desc).ok_or_else(|| self.violation(desc))?;
        self.in_fill -= 1;
        Ok(entry.buf)
    }

    /// What is wrong with a descriptor of the RX ring.
    #[cold]
    fn violation(&self, desc: RawDesc) -> Violation {
        let (geometry, book) = (self.umem.geometry(), self.umem.book().entries());
        match owned_by(geometry, book, Owner::Fill(self.pair), "RX", desc.addr, desc.addr) {
            Err(violation) => violation,
            Ok(_) => Violation::Length {
                addr: desc.addr,
                len: desc.rest.len(),
                frame_size: geometry.frame_size(),
            },
        }
    }

    /// Checks addresses of the completion ring and takes the frames back; tells how many.
    #[inline]
    pub(crate) fn take_from_completion(&mut self, addrs: impl IntoIterator<Item = u64>) -> Result<u32, Violation> {
        let before = self.in_flight;
        let mut addrs = addrs.into_iter();
        while let Some(addr) = self.take_plain(&mut addrs) {
            self.take_stamped(addr)?;
        }
        Ok(before - self.in_flight)
    }

    /// Takes frames back that were sent without a stamp, up to the first address that is not one of them.
    #[inline]
    fn take_plain(&mut self, addrs: &mut impl Iterator<Item = u64>) -> Option<u64> {
        let (umem, owner) = (&*self.umem, Owner::Tx(self.pair));
        let (geometry, book) = (*umem.geometry(), umem.book().entries());
        for addr in addrs {
            let Some(frame) = completed(&geometry, book, owner, addr) else {
                return Some(addr);
            };
            book.set(frame, Owner::User);
            self.in_flight -= 1;
            self.free.push(frame);
        }
        None
    }

    /// Takes back a frame that was sent with a stamp, and notes that.
    #[cold]
    fn take_stamped(&mut self, addr: u64) -> Result<(), Violation> {
        let (geometry, book) = (self.umem.geometry(), self.umem.book().entries());
        let Some(frame) = completed(geometry, book, Owner::TxStamp(self.pair), addr) else {
            owned_by(geometry, book, Owner::Tx(self.pair), "completion", addr, addr | 1)?;
            return Ok(());
        };
        book.set(frame, Owner::User);
        let (token, stamp) = self.umem.stamp(frame);
        self.in_flight -= 1;
        self.free.push(frame);
        if let Some(stamps) = self.stamps_mut() {
            stamps.arrived(token, stamp);
        }
        Ok(())
    }
}

/// The frame of an address of the completion ring, if its owner is this one.
#[inline]
fn completed(geometry: &Geometry, book: BookEntries<'_>, owner: Owner, addr: u64) -> Option<FrameIndex> {
    // Newer kernels lose the lowest bit of an address, so that one at the start of a frame of odd size seems to be in the frame
    // before. No packet starts on the last byte of its frame, hence none leaves it with the bit set.
    // https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_skb_destructor_get_addr
    let at = geometry.flat_in::<ANY_CUT>(addr | 1);
    let (frame, _) = geometry.locate_in::<ANY_CUT>(at)?;
    book.is(frame, owner).then_some(frame)
}

/// The packet of a descriptor of the RX ring, if the kernel had its frame, which is the user's from here on, and the packet
/// lies in it.
#[inline]
fn admit<const CUT: u32>(geometry: &Geometry, book: BookEntries<'_>, owner: Owner, desc: RawDesc) -> Option<Entry> {
    let (at, len) = (geometry.flat_in::<CUT>(desc.addr), desc.rest.len());
    let (frame, offset) = geometry.locate_in::<CUT>(at)?;
    // Its last byte in the same frame as its first: the same as by its length, and an instruction or two less.
    let fits = match CUT {
        ANY_CUT => len <= geometry.frame_size() - offset,
        _ => at.wrapping_add(len.into()).wrapping_sub(1) >> CUT == at >> CUT,
    };
    if !book.is(frame, owner) || !fits {
        return None;
    }
    book.set(frame, Owner::User);
    // SAFETY: the packet lies in the frame, checked above; the kernel owned the frame until now, and the book says that it
    // is ours from here on.
    Some(Entry::received(unsafe { Buf::new(at, len) }, desc.rest.options()))
}

/// The frame at `at`, which is what `addr` on the ring stands for, and the offset in it.
#[inline]
fn owned_by(
    geometry: &Geometry,
    book: BookEntries<'_>,
    owner: Owner,
    ring: &'static str,
    addr: u64,
    at: u64,
) -> Result<(FrameIndex, u32), Violation> {
    let Some((frame, offset)) = geometry.locate_in::<ANY_CUT>(geometry.flat_in::<ANY_CUT>(at)) else {
        return Err(Violation::Address {
            ring,
            addr,
            umem: geometry.bytes() as u64,
        });
    };
    if !book.is(frame, owner) {
        return Err(Violation::NotOwned { ring, addr });
    }
    Ok((frame, offset))
}

impl Drop for Pool {
    /// The frames go back to the UMEM, for the pools that are opened later. Its sockets are closed by now.
    fn drop(&mut self) {
        let lent = self.in_fill + self.in_flight != 0;
        if lent && self.reclaim {
            self.umem
                .reclaim([Owner::Fill, Owner::Tx, Owner::TxStamp].map(|owner| owner(self.pair)));
        }
        if !lent || self.reclaim {
            self.umem.give_pair(self.pair);
        }
        for frame in self.free.drain(..) {
            self.umem.give_back(frame);
        }
    }
}
