//! What moves between rings, pool and inbox: no system call, no clock, and only one way to fail.

use crate::error::Violation;
use crate::ring::Desc;
use crate::socket::Bound;
use crate::umem::{Entry, Fate};

/// An Ethernet header: nothing shorter can be sent.
pub(super) const SHORTEST: u32 = 14;

/// What became of a burst that was put on the TX ring.
#[derive(Default)]
pub(super) struct Pushed {
    /// Packets on the ring.
    pub(super) packets: u32,
    pub(super) bytes: u64,
    /// Packets that were too short to be sent, and the length of the last one.
    pub(super) runts: u32,
    pub(super) runt_len: u32,
}

impl Bound {
    /// Puts up to `want` free frames on the fill ring; tells how many.
    #[inline]
    pub(super) fn refill(&mut self, want: u32) -> Result<u32, Violation> {
        let mut slots = self.fill.reserve(want)?;
        let mut moved = 0;
        while slots.remaining() != 0 {
            let Some(frame) = self.pool.take() else { break };
            let pushed = slots.push(self.pool.lend_to_fill(frame));
            debug_assert!(pushed);
            moved += 1;
        }
        Ok(moved)
    }

    /// Moves up to `batch` packets from the RX ring to the inbox; tells their bytes. Every address and length of
    /// the ring is checked here, once.
    #[inline]
    pub(super) fn receive(&mut self, batch: u32, inbox: &mut Vec<Entry>) -> Result<u64, Violation> {
        let Some(rx) = &mut self.rx else { return Ok(0) };
        let mut bytes = 0;
        for desc in rx.peek(batch)? {
            let buf = self.pool.take_from_rx(desc.addr, desc.len)?;
            bytes += u64::from(desc.len);
            inbox.push(Entry::new(buf, Fate::Open));
        }
        Ok(bytes)
    }

    /// Takes back what the kernel is done sending; tells how many.
    #[inline]
    pub(super) fn complete(&mut self) -> Result<u32, Violation> {
        let mut completed = 0;
        if self.pool.in_flight() != 0 {
            loop {
                let before = completed;
                for addr in self.completion.peek(u32::MAX)? {
                    self.pool.take_from_completion(addr)?;
                    completed += 1;
                }
                // A second look costs a cache line that the kernel has just written: only when there was something.
                if completed == before || self.pool.in_flight() == 0 {
                    break;
                }
            }
        }
        Ok(completed)
    }

    /// Puts the packets of `entries` that are to be sent on the TX ring, with one publish, and gives the others
    /// back to the pool; stops when the ring is full and tells how many entries are done.
    #[inline]
    pub(super) fn push(&mut self, entries: &[Entry], open: Fate, result: &mut Pushed) -> Result<usize, Violation> {
        let mut slots = match &mut self.tx {
            Some(tx) => Some(tx.reserve(u32::try_from(entries.len()).unwrap_or(u32::MAX))?),
            None => None,
        };
        for (done, entry) in entries.iter().enumerate() {
            let fate = if entry.fate() == Fate::Open { open } else { entry.fate() };
            match fate {
                Fate::Send if entry.buf.len >= SHORTEST => {
                    let Some(slots) = slots.as_mut().filter(|slots| slots.remaining() != 0) else {
                        return Ok(done);
                    };
                    let pushed = slots.push(Desc {
                        addr: self.pool.lend_to_tx(&entry.buf),
                        len: entry.buf.len,
                        options: 0,
                    });
                    debug_assert!(pushed);
                    result.packets += 1;
                    result.bytes += u64::from(entry.buf.len);
                }
                Fate::Kept => {}
                fate => {
                    if fate == Fate::Send {
                        result.runts += 1;
                        result.runt_len = entry.buf.len;
                    }
                    self.pool.put(entry.buf.frame);
                }
            }
        }
        Ok(entries.len())
    }

    /// Published on the TX ring and not taken by the kernel.
    #[inline]
    pub(super) fn pending(&mut self) -> Result<u32, Violation> {
        self.tx.as_mut().map_or(Ok(0), |tx| tx.pending())
    }
}
