//! What the receiver tells of packets: without a lock, and without waiting for who reads it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ringside_measure::trace::Heard;

/// Packets that may wait to be read: some seconds at usual rates.
const SLOTS: usize = 1 << 16;

/// Shared by sender, receiver and who reads.
pub(super) struct Board {
    slots: Box<[Slot]>,
    /// Packets that were sent.
    pub(super) sent: AtomicU64,
    /// The sender shall end; the receiver still takes what is on its way.
    pub(super) quiet: AtomicBool,
    /// All threads shall end.
    pub(super) end: AtomicBool,
    /// The receiver looks for packets.
    pub(super) ready: AtomicBool,
    /// Numbers of the threads of sender and receiver.
    pub(super) threads: [AtomicU32; 2],
}

/// A packet. Its number is written last, and is one more than the sequence: 0 is none.
#[derive(Default)]
struct Slot {
    number: AtomicU64,
    intended_ns: AtomicU64,
    call_ns: AtomicU64,
    heard_ns: AtomicU64,
    cpu: AtomicU32,
    xdp_ns: AtomicU64,
    xdp_cpu: AtomicU32,
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            sent: AtomicU64::new(0),
            quiet: AtomicBool::new(false),
            end: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            threads: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    /// Whether nothing is to be sent any more.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) || self.end.load(Ordering::Relaxed)
    }

    /// The receiver has a packet.
    pub(super) fn put(&self, sequence: u64, heard: &Heard) {
        let slot = self.slot(sequence);
        // Nobody believes a half-written slot: its number is none of those that are read.
        slot.number.store(0, Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
        slot.intended_ns.store(heard.intended_ns, Ordering::Relaxed);
        slot.call_ns.store(heard.call_ns, Ordering::Relaxed);
        slot.heard_ns.store(heard.heard_ns, Ordering::Relaxed);
        slot.cpu.store(heard.cpu, Ordering::Relaxed);
        let (xdp_ns, xdp_cpu) = heard.xdp.unwrap_or((0, 0));
        slot.xdp_ns.store(xdp_ns, Ordering::Relaxed);
        slot.xdp_cpu.store(xdp_cpu, Ordering::Relaxed);
        slot.number.store(sequence + 1, Ordering::Release);
    }

    /// What was told of a packet, if it came.
    pub(super) fn read(&self, sequence: u64) -> Option<Heard> {
        let slot = self.slot(sequence);
        if slot.number.load(Ordering::Acquire) != sequence + 1 {
            return None;
        }
        let xdp_ns = slot.xdp_ns.load(Ordering::Relaxed);
        let heard = Heard {
            intended_ns: slot.intended_ns.load(Ordering::Relaxed),
            call_ns: slot.call_ns.load(Ordering::Relaxed),
            heard_ns: slot.heard_ns.load(Ordering::Relaxed),
            cpu: slot.cpu.load(Ordering::Relaxed),
            xdp: (xdp_ns != 0).then(|| (xdp_ns, slot.xdp_cpu.load(Ordering::Relaxed))),
        };
        std::sync::atomic::fence(Ordering::SeqCst);
        // A packet of a later round may have come meanwhile.
        (slot.number.load(Ordering::Relaxed) == sequence + 1).then_some(heard)
    }

    fn slot(&self, sequence: u64) -> &Slot {
        // As many as a power of two: what is cut off of the number does not matter.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        &self.slots[sequence as usize & (SLOTS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_put_until_another_has_its_place() {
        let board = Board::new();
        let heard = |ns| Heard {
            intended_ns: ns,
            call_ns: ns + 1,
            heard_ns: ns + 2,
            cpu: 1,
            xdp: Some((ns + 1, 0)),
        };
        assert_eq!(board.read(0), None);
        board.put(0, &heard(100));
        board.put(
            7,
            &Heard {
                xdp: None,
                ..heard(200)
            },
        );
        assert_eq!(board.read(0), Some(heard(100)));
        assert_eq!(
            board.read(7),
            Some(Heard {
                xdp: None,
                ..heard(200)
            })
        );
        assert_eq!(board.read(SLOTS as u64), None);
        board.put(SLOTS as u64, &heard(300));
        assert_eq!((board.read(0), board.read(SLOTS as u64)), (None, Some(heard(300))));
    }
}
