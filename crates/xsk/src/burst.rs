//! A burst of packets, and what becomes of each.

use std::fmt;
use std::sync::Arc;

use ringside_nic::LinkEvent;

use crate::error::Error;
use crate::hints::{Hints, Reader};
use crate::queue::Queue;
use crate::tx_metadata::{NotAsked, TxMeta};
use crate::umem::{Entry, Fate, Frame, HintId, Umem, buffer_methods, chain};

/// Received packets, borrowed from their [`Queue`].
///
/// Iterate over `&mut burst` to read, edit and decide; then end it with [`send_back`](Burst::send_back),
/// [`finish`](Burst::finish), or by dropping it. Packets about which nothing was said are dropped: their frames go back
/// to the pool.
///
/// ```no_run
/// # use ringside_xsk::{Queue, Wait, Error};
/// # fn swap_macs(_: &mut [u8]) {}
/// # fn forward(queue: &mut Queue) -> Result<(), Error> {
/// let mut burst = queue.recv(Wait::Spin)?;
/// for mut packet in &mut burst {
///     if packet.len() < 60 {
///         packet.drop();
///     } else {
///         swap_macs(packet.data_mut());
///     }
/// }
/// burst.send_back()?; // all that were not dropped: one publish, one kick
/// # Ok(())
/// # }
/// ```
pub struct Burst<'q> {
    queue: &'q mut Queue,
}

impl<'q> Burst<'q> {
    pub(crate) fn new(queue: &'q mut Queue) -> Self {
        Self { queue }
    }

    /// Number of packets in the burst.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.packets_in_inbox()
    }

    /// True when nothing was received.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.inbox.is_empty()
    }

    /// What happened to the link while waiting: it went down or came up, or the interface has other queues now. The burst
    /// is empty then. Who does not look at it waits on, and receives again when the link is back.
    pub fn event(&self) -> Option<&LinkEvent> {
        self.queue.event.as_ref()
    }

    /// The packets that were not kept so far, and do not ask for anything ([`Packet::ask`]), in the order of their arrival.
    #[inline]
    pub fn iter_mut(&mut self) -> PacketsMut<'_> {
        self.queue.packets()
    }

    /// Has the first `bytes` of each packet come into this CPU's cache, as far as there are so many, and does not wait for them: all at
    /// the same time, and not one after the other as they are read. For who does much with each packet; in a short loop the CPU looks
    /// ahead by itself. Does nothing on other machines than x86-64.
    #[inline]
    pub fn prefetch(&self, bytes: usize) {
        let umem = &self.queue.bound.umem;
        for entry in &self.queue.inbox {
            entry.buf.prefetch(umem, bytes);
        }
    }

    /// As [`iter_mut`](Self::iter_mut), each packet with its hints of the reader's type: as
    /// [`Packet::hints`], with all that is the same for the burst looked up once.
    #[inline]
    pub fn with_hints<T: Hints>(&mut self, reader: Reader<T>) -> PacketsWithHints<'_, T> {
        let packets = self.queue.packets();
        PacketsWithHints {
            id: packets.umem.hint_id(reader.slot()),
            reader,
            packets,
        }
    }

    /// Sends all packets that were not dropped or kept back out on the same queue, with one publish and one kick, and
    /// tells how many. Waits, for the stall time at the most, until the TX ring has room for all.
    ///
    /// A packet that is longer than the interface's MTU allows is dropped, and counted in
    /// [`OwnStats::tx_too_long`](crate::OwnStats::tx_too_long); so it is with every end of a burst.
    pub fn send_back(self) -> Result<u32, Error> {
        self.queue.settle(Fate::Send)
    }

    /// Sends all packets that were not dropped or kept out on another queue of the same UMEM, with one publish and one kick
    /// and without a copy, and tells how many. Waits as [`send_back`](Self::send_back) does.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a queue of another UMEM (see [`SharedUmem`](crate::SharedUmem)); all packets are dropped then.
    /// Otherwise those of the other queue.
    pub fn send_on(self, other: &mut Queue) -> Result<u32, Error> {
        self.queue.settle_on(other, Fate::Send)
    }

    /// Lets go of the burst without ending it: its packets stay where they are, and so do marks. [`Queue::held`] takes it up
    /// again; any other call of the queue but those that only tell something drops all of its packets first. For bindings to
    /// languages that cannot hold a borrow.
    #[inline]
    pub fn hold(self) {
        std::mem::forget(self);
    }

    /// Sends the packets marked by [`Packet::send`], drops the others, and tells how many were sent.
    pub fn finish(self) -> Result<u32, Error> {
        self.queue.settle(Fate::Drop)
    }
}

impl Drop for Burst<'_> {
    /// As [`Burst::finish`]; an error is told by the queue's next call.
    fn drop(&mut self) {
        if !self.queue.inbox.is_empty() {
            self.queue.settle_later();
        }
    }
}

impl fmt::Debug for Burst<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<'b> IntoIterator for &'b mut Burst<'_> {
    type Item = Packet<'b>;
    type IntoIter = PacketsMut<'b>;

    #[inline]
    fn into_iter(self) -> PacketsMut<'b> {
        self.iter_mut()
    }
}

/// Iterator over the packets of a [`Burst`].
pub struct PacketsMut<'b> {
    entries: &'b mut [Entry],
    umem: &'b Arc<Umem>,
}

impl fmt::Debug for PacketsMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketsMut")
            .field("frames_left", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl<'b> PacketsMut<'b> {
    pub(crate) fn new(entries: &'b mut [Entry], umem: &'b Arc<Umem>) -> Self {
        Self { entries, umem }
    }
}

impl<'b> Iterator for PacketsMut<'b> {
    type Item = Packet<'b>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'b>> {
        loop {
            let (head, mut behind) = std::mem::take(&mut self.entries).split_first_mut()?;
            if head.is_plain() {
                self.entries = behind;
                return Some(Packet::single(head, self.umem));
            }
            let mut rest: &mut [Entry] = &mut [];
            if head.more() {
                (rest, behind) = behind.split_at_mut(chain::first_packet(behind));
            }
            self.entries = behind;
            if head.fate() != Fate::Kept {
                return Some(Packet {
                    head,
                    rest,
                    umem: self.umem,
                });
            }
        }
    }
}

/// Iterator over the packets of a [`Burst`] and their hints of one type.
pub struct PacketsWithHints<'b, T> {
    packets: PacketsMut<'b>,
    reader: Reader<T>,
    id: HintId,
}

impl<T: Hints> fmt::Debug for PacketsWithHints<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketsWithHints")
            .field("packets", &self.packets)
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}

impl<'b, T: Hints> Iterator for PacketsWithHints<'b, T> {
    type Item = (Packet<'b>, Option<T>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let umem = self.packets.umem;
        let (head, behind) = std::mem::take(&mut self.packets.entries).split_first_mut()?;
        if let Some(hints) = head.plain_hints(umem, self.id) {
            self.packets.entries = behind;
            return Some((Packet::single(head, umem), hints));
        }
        // Found anew, so that the iterator's own parts stay in registers.
        let (next, behind) = odd_packet(head, behind, umem, self.reader);
        self.packets.entries = behind;
        next
    }
}

/// What an iterator gives, and the entries behind it.
type Given<'b, T> = (Option<(Packet<'b>, Option<T>)>, &'b mut [Entry]);

/// The first packet of `head` and `behind` that was not kept and asks for nothing: one in several frames, or that something was said about, or
/// that has no hints.
#[cold]
fn odd_packet<'b, T: Hints>(
    head: &'b mut Entry,
    behind: &'b mut [Entry],
    umem: &'b Arc<Umem>,
    reader: Reader<T>,
) -> Given<'b, T> {
    let mut rest: &mut [Entry] = &mut [];
    let mut left = behind;
    if head.more() {
        (rest, left) = left.split_at_mut(chain::first_packet(left));
    }
    if head.fate() != Fate::Kept {
        let packet = Packet { head, rest, umem };
        let hints = packet.hints(reader);
        return (Some((packet, hints)), left);
    }
    let mut packets = PacketsMut::new(left, umem);
    let next = packets.next().map(|packet| {
        let hints = packet.hints(reader);
        (packet, hints)
    });
    (next, packets.entries)
}

/// One packet in its frame, or frames, borrowed from a burst.
pub struct Packet<'b> {
    head: &'b mut Entry,
    rest: &'b mut [Entry],
    umem: &'b Arc<Umem>,
}

impl<'b> Packet<'b> {
    /// A packet in one frame.
    #[inline]
    pub(crate) fn single(head: &'b mut Entry, umem: &'b Arc<Umem>) -> Self {
        Self {
            head,
            rest: &mut [],
            umem,
        }
    }

    #[inline]
    pub(crate) fn new(entries: &'b mut [Entry], umem: &'b Arc<Umem>) -> Option<Self> {
        let (head, rest) = entries.split_first_mut()?;
        Some(Self { head, rest, umem })
    }
}

impl<'b> Packet<'b> {
    buffer_methods!(head.buf, rest);

    /// Marks the packet to be sent on the queue it came from when the burst ends. The last mark counts.
    #[inline]
    pub fn send(&mut self) {
        self.head.decide(Fate::Send);
    }

    /// Marks the packet to be dropped, also by [`Burst::send_back`]. The last mark counts.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "the word that everybody has for it; the packet is borrowed and has no destructor"
    )]
    pub fn drop(&mut self) {
        self.head.decide(Fate::Drop);
    }

    /// Has the packet sent on the queue it came from when the burst ends, or on the one that the burst is sent on, and asks
    /// the driver for something about it. Nobody reads or changes the packet from here on: what is asked for takes the place
    /// of the hints in front of it, and was checked against the packet as it is. See [`tx_metadata`](crate::tx_metadata).
    ///
    /// # Errors
    ///
    /// The packet comes back as it was, with the reason.
    #[inline]
    pub fn ask(self, meta: TxMeta) -> Result<(), NotAsked<'b>> {
        if meta.is_empty() {
            self.head.decide(Fate::Send);
            return Ok(());
        }
        match self.umem.ask(&self.head.buf, &meta, !self.rest.is_empty()) {
            Ok(()) => {
                self.head.mark_asking();
                Ok(())
            }
            Err(error) => Err(NotAsked { error, packet: self }),
        }
    }

    /// It was marked to be dropped.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.head.fate() == Fate::Drop
    }

    /// Takes the frame out of the burst, to be kept, sent later, or handed to another thread.
    #[inline]
    pub fn keep(self) -> Frame {
        let umem = Arc::clone(self.umem);
        let head = self.head.keep();
        if self.rest.is_empty() {
            Frame::new(umem, head)
        } else {
            Frame::chain(umem, head, self.rest.iter_mut().map(Entry::keep))
        }
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("len", &self.len())
            .field("fate", &self.head.fate())
            .finish()
    }
}
