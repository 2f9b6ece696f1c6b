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
    /// Moves up to `batch` packets from the RX ring to the inbox; tells their bytes. Every address and length of
    /// the ring is checked here, once.
    #[inline]
    pub(super) fn receive(&mut self, batch: u32, inbox: &mut Vec<Entry>) -> Result<u64, Violation> {
        let Some(rx) = &mut self.rx else { return Ok(0) };
        let descriptors = rx.peek(batch)?;
        let mut bytes = 0;
        if descriptors.len() == 0 {
            return Ok(bytes);
        }
        let pool = &mut self.pair.lock().pool;
        for desc in descriptors {
            let buf = pool.take_from_rx(desc.addr, desc.len)?;
            bytes += u64::from(desc.len);
            inbox.push(Entry::new(buf, Fate::Open));
        }
        Ok(bytes)
    }

    /// Puts the packets of `entries` that are to be sent on the TX ring, with one publish, and gives the others
    /// back to the pool; stops when the ring is full and tells how many entries are done.
    #[inline]
    pub(super) fn push(&mut self, entries: &[Entry], open: Fate, result: &mut Pushed) -> Result<usize, Violation> {
        let mut slots = match &mut self.tx {
            Some(tx) => Some(tx.reserve(u32::try_from(entries.len()).unwrap_or(u32::MAX))?),
            None => None,
        };
        let pool = &mut self.pair.lock().pool;
        for (done, entry) in entries.iter().enumerate() {
            let fate = if entry.fate() == Fate::Open { open } else { entry.fate() };
            match fate {
                Fate::Send if entry.buf.len >= SHORTEST => {
                    let Some(slots) = slots.as_mut().filter(|slots| slots.remaining() != 0) else {
                        return Ok(done);
                    };
                    let pushed = slots.push(Desc {
                        addr: pool.lend_to_tx(&entry.buf),
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
                    pool.put(entry.buf.frame);
                }
            }
        }
        pool.give_surplus();
        Ok(entries.len())
    }

    /// Published on the TX ring and not taken by the kernel.
    #[inline]
    pub(super) fn pending(&mut self) -> Result<u32, Violation> {
        self.tx.as_mut().map_or(Ok(0), |tx| tx.pending())
    }
}
