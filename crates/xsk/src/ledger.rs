//! Where a queue's frames are.

use std::fmt;

use serde::Serialize;

/// Where the frames of a queue's UMEM are, all of them: the sum of the six is the number of its frames.
///
/// It is taken from the library's book of who owns each frame and from the indices of the rings, while the kernel goes on:
/// a frame that moves meanwhile is in one place or the other, never in both and never in none. The library keeps it right
/// at every burst and checks it from time to time ([`Violation::Ledger`](crate::Violation::Ledger)).
///
/// Of a UMEM that several queues share ([`SharedUmem`](crate::SharedUmem)) the frames of the other queues count as the
/// user's, for one queue cannot see them; and with a [sibling](crate::Queue::sibling) what waits on the sibling's RX
/// ring counts as `fill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ledger {
    /// Nobody has them: in the queue's pool, or dropped by the user and not collected yet.
    pub free: u32,
    /// With the kernel for packets to come: on the fill ring, or taken from it.
    pub fill: u32,
    /// Received and not taken: on the RX ring, or of a packet of which frames are still to come.
    pub rx: u32,
    /// With the user: in a [`Frame`](crate::Frame) each.
    pub user: u32,
    /// With the kernel to be sent: on the TX ring, or taken from it. A kernel that keeps an invalid descriptor for itself,
    /// as older ones do, leaves its frame here.
    pub tx: u32,
    /// Sent, and on the completion ring.
    pub completion: u32,
}

impl Ledger {
    /// All frames of the UMEM.
    pub fn total(&self) -> u32 {
        self.free + self.fill + self.rx + self.user + self.tx + self.completion
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            free,
            fill,
            rx,
            user,
            tx,
            completion,
        } = self;
        write!(
            f,
            "free {free}, fill {fill}, rx {rx}, user {user}, tx {tx}, completion {completion}"
        )
    }
}
