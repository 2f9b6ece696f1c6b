//! What moves between rings, pool and inbox: no system call, no clock, and only one way to fail.

use crate::error::Violation;
use crate::pair::Held;
use crate::ring::{Desc, Reservation, RingMap};
use crate::socket::Bound;
use crate::umem::pool::Pool;
use crate::umem::{Entry, Fate, chain};

/// An Ethernet header: nothing shorter can be sent.
pub(super) const SHORTEST: u32 = 14;

/// More frames than any kernel makes a packet of: its limit is 46 at the most (`CONFIG_MAX_SKB_FRAGS`).
pub(super) const MOST_FRAMES: usize = 64;

/// What a look at the RX ring brought.
#[derive(Default)]
pub(super) struct Received {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// What became of a burst that was put on the TX ring.
#[derive(Default)]
pub(super) struct Pushed {
    /// Packets on the ring.
    pub(super) packets: u32,
    pub(super) bytes: u64,
    /// Packets that cannot be sent, and why the last one of them: the length of its head, and its frames.
    pub(super) refused: u32,
    pub(super) refused_as: (u32, usize),
}

impl Bound {
    /// Moves packets from the RX ring to the inbox: up to `batch` descriptors, and the rest of the last packet. Every
    /// address and length of the ring is checked here, once.
    #[inline]
    pub(super) fn receive(&mut self, batch: u32, inbox: &mut Vec<Entry>) -> Result<Received, Violation> {
        let Some(rx) = &mut self.rx else {
            return Ok(Received::default());
        };
        let mut received = Received::default();
        let descriptors = rx.peek(batch)?;
        if descriptors.len() == 0 {
            return Ok(received);
        }
        let multi_buffer = self.umem.geometry().multi_buffer();
        let pool = &mut self.pair.lock().pool;
        let mut frames = 0;
        for desc in descriptors {
            frames = received.take(desc, frames, multi_buffer, pool, inbox)?;
        }
        // The burst ends with a packet's end.
        while frames != 0 {
            let mut next = rx.peek(1)?;
            let Some(desc) = next.next() else { break };
            frames = received.take(desc, frames, multi_buffer, pool, inbox)?;
        }
        Ok(received)
    }

    /// Puts the packets of `entries` that are to be sent on the TX ring, with one publish, and gives the others
    /// back to the pool; stops when the ring is full and tells how many entries are done.
    #[inline]
    pub(super) fn push(&mut self, entries: &[Entry], open: Fate, result: &mut Pushed) -> Result<usize, Violation> {
        let most = self.most_frames;
        let mut slots = match &mut self.tx {
            Some(tx) => Some(tx.reserve(u32::try_from(entries.len()).unwrap_or(u32::MAX))?),
            None => None,
        };
        let pair = &mut self.pair.lock();
        let mut done = 0;
        while done < entries.len() {
            let packet = &entries[done..done + chain::first_packet(&entries[done..])];
            let head = &packet[0];
            let fate = if head.fate() == Fate::Open { open } else { head.fate() };
            match fate {
                Fate::Kept => {}
                Fate::Send if head.buf.len >= SHORTEST && filled(packet) <= most => {
                    let frames = filled(packet);
                    let Some(slots) = slots.as_mut().filter(|slots| slots.remaining() as usize >= frames) else {
                        break;
                    };
                    put(&packet[..frames], slots, pair, result);
                    give(&packet[frames..], &mut pair.pool);
                }
                fate => {
                    if fate == Fate::Send {
                        result.refused += 1;
                        result.refused_as = (head.buf.len, filled(packet));
                    }
                    give(packet, &mut pair.pool);
                }
            }
            done += packet.len();
        }
        pair.pool.give_surplus();
        Ok(done)
    }

    /// Published on the TX ring and not taken by the kernel.
    #[inline]
    pub(super) fn pending(&mut self) -> Result<u32, Violation> {
        self.tx.as_mut().map_or(Ok(0), |tx| tx.pending())
    }
}

impl Received {
    /// Moves one descriptor; `frames` are those of the same packet before it. Tells how many it has so far, 0 at its end.
    #[inline]
    fn take(
        &mut self,
        desc: Desc,
        frames: usize,
        multi_buffer: bool,
        pool: &mut Pool,
        inbox: &mut Vec<Entry>,
    ) -> Result<usize, Violation> {
        let buf = pool.take_from_rx(desc.addr, desc.len)?;
        let more = desc.is_continued();
        if more && (!multi_buffer || frames + 1 >= MOST_FRAMES) {
            pool.put(buf.frame);
            return Err(Violation::Chain { frames: frames + 1 });
        }
        self.bytes += u64::from(desc.len);
        inbox.push(Entry::new(buf, Fate::Open).with_more(more));
        if more {
            return Ok(frames + 1);
        }
        self.packets += 1;
        Ok(0)
    }
}

/// Frames of the packet up to the last one with something in it; at least one.
#[inline]
fn filled(packet: &[Entry]) -> usize {
    if packet.len() == 1 {
        return 1;
    }
    packet
        .iter()
        .rposition(|entry| entry.buf.len != 0)
        .map_or(1, |last| last + 1)
}

/// Puts one packet on the ring, which has room for it.
#[inline]
fn put(packet: &[Entry], slots: &mut Reservation<'_, Desc, RingMap>, pair: &mut Held<'_>, result: &mut Pushed) {
    for (left, entry) in (0..packet.len()).rev().zip(packet) {
        let pushed = slots.push(Desc {
            addr: pair.pool.lend_to_tx(&entry.buf),
            len: entry.buf.len,
            options: if left == 0 { 0 } else { Desc::CONTINUED },
        });
        debug_assert!(pushed);
        result.bytes += u64::from(entry.buf.len);
    }
    result.packets += 1;
}

#[inline]
fn give(frames: &[Entry], pool: &mut Pool) {
    for entry in frames {
        pool.put(entry.buf.frame);
    }
}
