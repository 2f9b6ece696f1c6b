//! Which packet a reader takes from a socket, by the order in which the socket got them.

use std::collections::VecDeque;

use super::{Id, Place};

/// Packets in the queue of a socket: more than its memory holds by default.
const QUEUED: usize = 1 << 14;
/// Packets that may be taken before their socket tells of them: more than one only where several CPUs do it.
const EARLY: usize = 16;

/// What lies in the queue of a socket.
///
/// A packet is in it before the socket tells of it, and a reader that is awake may have taken it by then. What was not told of, when events are lost,
/// makes single packets nobody's or another one's: when the queue is empty again, or its only reader sleeps, the two agree again.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lying: VecDeque<Lying>,
    /// Taken from an empty queue.
    early: VecDeque<(u64, Place)>,
    /// Who was woken up for its packets.
    readers: Readers,
}

/// Who reads a socket.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Readers {
    #[default]
    Unknown,
    One(u32),
    Several,
}

/// A packet.
#[derive(Debug)]
struct Lying {
    /// `None`: it is no probe, or not traced.
    id: Option<Id>,
    /// It was not in the queue before.
    since_ns: u64,
}

impl Queue {
    /// The socket tells of a packet, which was not there before `since_ns`. If a reader has taken it already: when and where.
    pub(super) fn put(&mut self, id: Option<Id>, since_ns: u64) -> Option<(u64, Place)> {
        while let Some((ns, place)) = self.early.pop_front() {
            // Else that was another one, of which nobody told.
            if ns >= since_ns {
                return Some((ns, place));
            }
        }
        self.lying.push_back(Lying { id, since_ns });
        // One whose reader maps a ring never takes any.
        if self.lying.len() > QUEUED {
            self.lying.pop_front();
        }
        None
    }

    /// A reader took a packet: which, if it was told of and is traced.
    pub(super) fn take(&mut self, ns: u64, place: Place) -> Option<Id> {
        match self.lying.front() {
            Some(first) if first.since_ns <= ns => self.lying.pop_front()?.id,
            // One of which nobody has told was there before.
            Some(_) => None,
            None => {
                self.early.push_back((ns, place));
                if self.early.len() > EARLY {
                    self.early.pop_front();
                }
                None
            }
        }
    }

    /// A reader slept when this packet came, so whatever was there before is not there any more, unless there are others: one that was woken up for it
    /// may not have taken it yet when the next one is woken up.
    pub(super) fn slept(&mut self, id: Id, task: Option<u32>) {
        self.readers = match (self.readers, task) {
            (Readers::Unknown, Some(task)) => Readers::One(task),
            (Readers::One(one), Some(task)) if one != task => Readers::Several,
            (readers, _) => readers,
        };
        if self.readers == Readers::Several {
            return;
        }
        if let Some(at) = self.lying.iter().rposition(|lying| lying.id == Some(id)) {
            self.lying.drain(..at);
        }
    }
}
