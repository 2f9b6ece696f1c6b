//! What moves between rings, pool and inbox: no system call, no clock, and only one way to fail.

use crate::burst::Packet;
use crate::error::Violation;
use crate::ring::{ConsumerRing, Desc, Reservation, RingMap};
use crate::socket::Bound;
use crate::stats::OwnCounters;
use crate::tx_metadata::{Ask, AskError, TxMeta};
use crate::umem::pool::Pool;
use crate::umem::{Buf, Entry, Fate, FrameIndex, Umem, chain};

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
    /// Packets that cannot be sent, and why the last one of them.
    pub(super) refused: u32,
    pub(super) refused_as: Refusal,
    /// Packets that are longer than the MTU allows, and the bytes of the last one of them.
    pub(super) too_long: u32,
    pub(super) too_long_bytes: u32,
}

/// Why a packet cannot be sent.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// The length of its head, and its frames.
    Size(u32, usize),
    /// What it asks for.
    Asks(AskError),
}

impl Default for Refusal {
    fn default() -> Self {
        Self::Size(0, 0)
    }
}

impl Pushed {
    /// Notes a packet of `bytes`, of which `head` are in its first frame.
    #[cold]
    fn refuse(&mut self, head: u32, frames: usize, bytes: u32, most: usize) {
        if head < SHORTEST || frames > most {
            self.refused += 1;
            self.refused_as = Refusal::Size(head, frames);
        } else {
            self.too_long += 1;
            self.too_long_bytes = bytes;
        }
    }

    #[cold]
    pub(super) fn refuse_asking(&mut self, error: AskError) {
        self.refused += 1;
        self.refused_as = Refusal::Asks(error);
    }
}

impl Bound {
    /// Moves packets from the RX ring to the inbox: up to `batch` descriptors, and the rest of the last packet. Every
    /// address and length of the ring is checked here, once.
    #[inline]
    pub(super) fn receive(&mut self, batch: u32, inbox: &mut Vec<Entry>) -> Result<Received, Violation> {
        let mut received = Received::default();
        let Some(rx) = &mut self.rx else {
            return Ok(received);
        };
        let mut descriptors = rx.peek(batch)?;
        received.packets = descriptors.len() as u64;
        if received.packets == 0 {
            return Ok(received);
        }
        let start = inbox.len();
        let mut pair = self.pair.lock();
        let (bytes, options) = pair.pool.receive(&mut descriptors, inbox)?;
        drop((pair, descriptors));
        received.bytes = bytes;
        if options & Desc::CONTINUED != 0 {
            received.bytes += self.receive_rest(inbox)?;
            received.packets = inbox[start..].iter().filter(|entry| !entry.more()).count() as u64;
        }
        Ok(received)
    }

    /// Returns the number of packets on the RX ring that an earlier look saw and nobody took.
    #[inline]
    pub(super) fn known(&self) -> u32 {
        self.rx.as_ref().map_or(0, ConsumerRing::seen)
    }

    /// Returns whether the kernel has no frame to receive into: all that it had are on the RX ring,
    /// as far as that was looked at, or back with their user.
    #[inline]
    pub(super) fn is_starved(&mut self) -> bool {
        self.known() >= self.pair.lock().pool.in_fill()
    }

    /// The frames that the last packet lacks, as far as they are there, for a burst ends with a packet's end; tells their
    /// bytes. No packet of the inbox may be longer than any kernel makes one.
    #[cold]
    fn receive_rest(&mut self, inbox: &mut Vec<Entry>) -> Result<u64, Violation> {
        let most = if self.umem.geometry().multi_buffer() {
            MOST_FRAMES
        } else {
            1
        };
        let mut frames = 0;
        for entry in &*inbox {
            frames = count(frames, entry.more(), most)?;
        }
        let mut bytes = 0;
        let Some(rx) = &mut self.rx else { return Ok(bytes) };
        let mut pair = self.pair.lock();
        while frames != 0 {
            let mut next = rx.peek(1)?;
            if next.len() == 0 {
                break;
            }
            let (more_bytes, options) = pair.pool.receive(&mut next, inbox)?;
            bytes += more_bytes;
            frames = count(frames, options & Desc::CONTINUED != 0, most)?;
        }
        Ok(bytes)
    }

    /// Puts the packets of `entries` that are to be sent on the TX ring, with one publish, and gives the others
    /// back to the pool; stops when the ring is full and tells how many entries are done.
    #[inline]
    pub(super) fn push(&mut self, entries: &[Entry], open: Fate, result: &mut Pushed) -> Result<usize, Violation> {
        match self.umem.geometry().reserved() {
            0 => self.push_in::<false>(entries, open, result),
            _ => self.push_in::<true>(entries, open, result),
        }
    }

    /// [`Bound::push`], for packets that may ask for something, or cannot.
    #[inline]
    fn push_in<const ASKING: bool>(
        &mut self,
        entries: &[Entry],
        open: Fate,
        result: &mut Pushed,
    ) -> Result<usize, Violation> {
        let (most, mtu) = (self.most_frames, self.mtu);
        let mut slots = match &mut self.tx {
            Some(tx) => Some(tx.reserve(u32::try_from(entries.len()).unwrap_or(u32::MAX))?),
            None => None,
        };
        let pool = &mut self.pair.lock().pool;
        let mut left = entries;
        while let Some((head, behind)) = left.split_first() {
            let fate = if head.fate() == Fate::Open { open } else { head.fate() };
            if head.more() || ASKING && head.asks() {
                let (packet, behind) = left.split_at(chain::first_packet(left));
                if !push_special(packet, fate, (most, mtu), slots.as_mut(), pool, result) {
                    break;
                }
                left = behind;
                continue;
            }
            match fate {
                Fate::Send if is_sendable(&head.buf, &self.umem, mtu) => {
                    let Some(slots) = slots.as_mut().filter(|slots| slots.remaining() != 0) else {
                        break;
                    };
                    let pushed = slots.push(Desc {
                        addr: pool.lend_to_tx(&head.buf),
                        len: head.buf.len,
                        options: 0,
                    });
                    debug_assert!(pushed);
                    result.bytes += u64::from(head.buf.len);
                    result.packets += 1;
                }
                Fate::Kept => {}
                fate => {
                    if fate == Fate::Send {
                        result.refuse(head.buf.len, 1, head.buf.len, most);
                    }
                    pool.put_buf(&head.buf);
                }
            }
            left = behind;
        }
        pool.give_surplus();
        Ok(entries.len() - left.len())
    }

    /// Has `write` make packets in up to `frames` free frames and puts each on the TX ring, with one publish, and counts it.
    /// `None`, and nothing done, when the ring has too little room, or the pair is shared.
    #[inline]
    pub(super) fn write_through<A: Ask>(
        &mut self,
        frames: u32,
        counters: &OwnCounters,
        write: &mut impl FnMut(&mut Packet<'_>) -> A,
    ) -> Result<Option<Pushed>, Violation> {
        let (Some(tx), Some(pair)) = (&mut self.tx, self.pair.own()) else {
            return Ok(None);
        };
        let mut slots = tx.reserve(frames)?;
        if slots.remaining() < frames {
            return Ok(None);
        }
        let mut result = Pushed::default();
        for _ in 0..frames {
            let Some((frame, buf)) = pair.pool.take_with_buf() else {
                break;
            };
            let on_panic = PutBack(&mut pair.pool, frame);
            let mut entry = Entry::new(buf, Fate::Send);
            let asked = write(&mut Packet::single(&mut entry, &self.umem));
            std::mem::forget(on_panic);
            if entry.fate() == Fate::Send && is_sendable(&entry.buf, &self.umem, self.mtu) {
                let options = if A::CAN {
                    match lend(&mut pair.pool, &self.umem, frame, &entry.buf, &asked.meta()) {
                        Ok(options) => options,
                        Err(error) => {
                            result.refuse_asking(error);
                            pair.pool.put(frame);
                            continue;
                        }
                    }
                } else {
                    pair.pool.lend_frame_to_tx(frame);
                    0
                };
                let pushed = slots.push(Desc {
                    addr: entry.buf.start(),
                    len: entry.buf.len,
                    options,
                });
                debug_assert!(pushed);
                // At once: the next `write` may panic, and these go all the same.
                counters.tx_packets.add(1);
                counters.tx_bytes.add(u64::from(entry.buf.len));
                result.packets += 1;
                continue;
            }
            if entry.fate() == Fate::Send {
                result.refuse(entry.buf.len, 1, entry.buf.len, 1);
            }
            pair.pool.put(frame);
        }
        Ok(Some(result))
    }

    /// Puts one packet in one frame on the TX ring. False, and nothing done, when that cannot be now, or not at all.
    #[inline]
    pub(super) fn push_one(&mut self, buf: &Buf) -> bool {
        let slots = self.tx.as_mut().map(|tx| tx.reserve(1));
        let Some(Ok(mut slots)) = slots else { return false };
        if slots.remaining() == 0 {
            return false;
        }
        let pool = &mut self.pair.lock().pool;
        let pushed = slots.push(Desc {
            addr: pool.lend_to_tx(buf),
            len: buf.len,
            options: 0,
        });
        debug_assert!(pushed);
        pool.give_surplus();
        true
    }

    /// Published on the TX ring and not taken by the kernel.
    #[inline]
    pub(super) fn pending(&mut self) -> Result<u32, Violation> {
        self.tx.as_mut().map_or(Ok(0), |tx| tx.pending())
    }
}

/// Has the TX ring have the frame of a packet in one frame, and what it asks for written in front of it; tells the options of
/// its descriptor.
#[inline]
fn lend(pool: &mut Pool, umem: &Umem, frame: FrameIndex, buf: &Buf, meta: &TxMeta) -> Result<u32, AskError> {
    if meta.is_empty() {
        pool.lend_frame_to_tx(frame);
        return Ok(0);
    }
    umem.ask(buf, meta, false)?;
    pool.refuses(buf).map_or(Ok(()), Err)?;
    Ok(pool.lend_asking(buf))
}

/// Returns whether a packet in one frame has an Ethernet header, and no more behind it than the MTU
/// allows.
#[inline]
pub(super) fn is_sendable(packet: &Buf, umem: &Umem, mtu: u32) -> bool {
    // One comparison for both, as it mostly is.
    packet.len.wrapping_sub(SHORTEST) <= mtu || packet.len >= SHORTEST && chain::fits_mtu(umem, packet, packet.len, mtu)
}

/// Gives a frame back to the pool when the user's code panics.
struct PutBack<'p>(&'p mut Pool, FrameIndex);

impl Drop for PutBack<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.put(self.1);
    }
}

/// The frames of a packet with one more of them; 0 at its end.
fn count(frames: usize, more: bool, most: usize) -> Result<usize, Violation> {
    match more {
        false => Ok(0),
        true if frames + 1 < most => Ok(frames + 1),
        true => Err(Violation::Chain { frames: frames + 1 }),
    }
}

/// [`Bound::push`] for a packet in several frames, or one that asks for something; false when the ring has no room for it.
#[cold]
fn push_special(
    packet: &[Entry],
    fate: Fate,
    (most, mtu): (usize, u32),
    slots: Option<&mut Reservation<'_, Desc, RingMap>>,
    pool: &mut Pool,
    result: &mut Pushed,
) -> bool {
    let (head, frames) = (&packet[0].buf, filled(packet));
    let bytes = packet.iter().map(|entry| entry.buf.len).sum();
    let fate = if packet[0].asks() { Fate::Send } else { fate };
    match fate {
        Fate::Kept => {}
        Fate::Send if head.len >= SHORTEST && frames <= most && chain::fits_mtu(pool.umem(), head, bytes, mtu) => {
            let Some(slots) = slots.filter(|slots| slots.remaining() as usize >= frames) else {
                return false;
            };
            if packet[0].asks()
                && let Some(error) = pool.refuses(head)
            {
                result.refuse_asking(error);
                give(packet, pool);
                return true;
            }
            put(&packet[..frames], slots, pool, result);
            give(&packet[frames..], pool);
        }
        fate => {
            if fate == Fate::Send {
                result.refuse(head.len, frames, bytes, most);
            }
            give(packet, pool);
        }
    }
    true
}

/// Frames of the packet up to the last one with something in it; at least one.
fn filled(packet: &[Entry]) -> usize {
    packet
        .iter()
        .rposition(|entry| entry.buf.len != 0)
        .map_or(1, |last| last + 1)
}

/// Puts one packet on the ring, which has room for it.
fn put(packet: &[Entry], slots: &mut Reservation<'_, Desc, RingMap>, pool: &mut Pool, result: &mut Pushed) {
    for (left, entry) in (0..packet.len()).rev().zip(packet) {
        let more = if left == 0 { 0 } else { Desc::CONTINUED };
        let asked = if entry.asks() {
            pool.lend_asking(&entry.buf)
        } else {
            pool.lend_to_tx(&entry.buf);
            0
        };
        let pushed = slots.push(Desc {
            addr: entry.buf.start(),
            len: entry.buf.len,
            options: more | asked,
        });
        debug_assert!(pushed);
        result.bytes += u64::from(entry.buf.len);
    }
    result.packets += 1;
}

fn give(frames: &[Entry], pool: &mut Pool) {
    for entry in frames {
        pool.put_buf(&entry.buf);
    }
}
