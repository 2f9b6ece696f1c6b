//! A path that is worse than it is: packets lost, doubled, damaged, overtaken, late, or too many, on purpose and counted.
//!
//! [`Impairment`] decides about the packets of one direction, and holds those that are to leave later. It knows no sockets and no
//! clock: its owner offers packets as they come, and asks for those that are due. Each packet meets, in this order:
//!
//! 1. **loss**,
//! 2. **corruption**: a bit of it is to be turned, which the owner does,
//! 3. the **rate**: a queue in front of a link that is no faster than this. What finds the queue full is dropped,
//! 4. **duplication**: the copy leaves directly behind its original, and takes nothing of the rate,
//! 5. **delay** with jitter,
//! 6. **reordering**: held back until some later ones have left.
//!
//! So each count stands for itself: a receiver that numbers packets misses those that were lost or found the queue full, sees as
//! many twice as were doubled, and as many out of order as RFC 4737 has it here.
//!
//! What happens to the packet of a number depends on the seed, the number and the settings of that stage alone: more delay
//! does not change which packets are lost. Only the queue's length, and who overtakes whom, depend on when packets come.
//!
//! ```
//! use ringside_measure::impair::{Impairment, Pick, Settings};
//!
//! let settings = Settings { loss: Pick::Every(10), delay_ns: 2_000, ..Settings::default() };
//! let mut path = Impairment::new(&settings, 7, 100)?;
//! let mut out = Vec::new();
//! for number in 0..30 {
//!     let now_ns = number * 1_000;
//!     if let Some(ticket) = path.offer(now_ns, 64) {
//!         path.hold(ticket, number, None);
//!     }
//!     out.extend(std::iter::from_fn(|| path.due(now_ns)));
//! }
//! assert_eq!(out[..3], [0, 1, 2]);
//! let counts = path.counts();
//! assert_eq!((counts.offered, counts.dropped, counts.passed), (30, 3, 25));
//! assert_eq!(path.next_due_ns(), Some(30_000)); // two are still under way
//! # Ok::<(), ringside_measure::Error>(())
//! ```

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::Error;
use crate::latency::Latency;
use crate::random::SplitMix64;

mod delay;
mod pick;
mod queue;
mod settings;

use delay::Delay;
pub use delay::Spread;
pub use pick::Pick;
use pick::Picker;
use queue::RateQueue;
pub use queue::{Rate, Unit};
pub use settings::{Counts, Settings};

/// A packet that is to be held, and what its owner has to do about it first.
#[derive(Debug)]
#[must_use = "the packet counts as held from here on: hand it over by `hold`"]
pub struct Ticket {
    number: u64,
    offered_ns: u64,
    due_ns: u64,
    held_back: bool,
    twice: bool,
    corruption: Option<u64>,
}

impl Ticket {
    /// A copy is wanted.
    #[must_use]
    pub fn twice(&self) -> bool {
        self.twice
    }

    /// A bit is to be turned: a number without pattern that says which, modulo the bits that may be turned.
    #[must_use]
    pub fn corruption(&self) -> Option<u64> {
        self.corruption
    }
}

/// One direction of a path. `T` is a packet.
#[derive(Debug)]
pub struct Impairment<T> {
    loss: Picker,
    corrupt: Picker,
    duplicate: Picker,
    reorder: Picker,
    /// For which bit is turned.
    bits: SplitMix64,
    reorder_by: u64,
    reorder_wait_ns: u64,
    delay: Delay,
    queue: Option<RateQueue>,
    room: usize,
    /// Packets with copies, in all that follow, and those for which a ticket is out.
    held: usize,
    /// Those on their way, the next one on top.
    line: BinaryHeap<Held<T>>,
    /// Those held back, in the order in which they will leave.
    behind: VecDeque<HeldBack<T>>,
    /// The second of a packet that has just left.
    copy: Option<T>,
    /// Packets that left and were not held back.
    overtook: u64,
    /// The highest number that left.
    highest: Option<u64>,
    counts: Counts,
    asked: Latency,
    took: Latency,
    late: Latency,
}

#[derive(Debug)]
struct Held<T> {
    ticket: Ticket,
    packet: T,
    copy: Option<T>,
}

#[derive(Debug)]
struct HeldBack<T> {
    held: Held<T>,
    /// Leaves when so many have overtaken.
    after: u64,
    /// Or then.
    until_ns: u64,
}

impl<T> Impairment<T> {
    /// With room for so many packets at a time, copies included. All memory is taken here.
    ///
    /// # Errors
    /// [`Error::Impairment`] for settings that contradict themselves.
    pub fn new(settings: &Settings, seed: u64, room: usize) -> Result<Self, Error> {
        if settings.reorder_by == 0 {
            return Err(Error::Impairment("reordering by 0 packets reorders nothing".into()));
        }
        // A generator of its own for each stage, so that none shifts the numbers of another.
        let mut seeds = SplitMix64(seed);
        Ok(Self {
            loss: Picker::new("loss", settings.loss, seeds.next())?,
            corrupt: Picker::new("corruption", settings.corrupt, seeds.next())?,
            duplicate: Picker::new("duplication", settings.duplicate, seeds.next())?,
            reorder: Picker::new("reordering", settings.reorder, seeds.next())?,
            bits: SplitMix64(seeds.next()),
            reorder_by: settings.reorder_by,
            reorder_wait_ns: settings.reorder_wait_ns,
            delay: Delay::new(settings, seeds.next())?,
            queue: settings.rate.map(RateQueue::new).transpose()?,
            room,
            held: 0,
            line: BinaryHeap::with_capacity(room),
            behind: VecDeque::with_capacity(room),
            copy: None,
            overtook: 0,
            highest: None,
            counts: Counts::default(),
            asked: Latency::new(),
            took: Latency::new(),
            late: Latency::new(),
        })
    }

    /// A packet of so many bytes has come. `None`: it is to be dropped, and that is counted.
    pub fn offer(&mut self, now_ns: u64, bytes: u64) -> Option<Ticket> {
        let number = self.counts.offered;
        self.counts.offered += 1;
        // All are asked about every packet, so that the number alone decides.
        let (lost, corrupt) = (self.loss.next(), self.corrupt.next());
        let (twice, held_back) = (self.duplicate.next(), self.reorder.next());
        let (bit, delay_ns) = (self.bits.next(), self.delay.next_ns());
        if lost {
            self.counts.dropped += 1;
            return None;
        }
        if self.held >= self.room {
            self.counts.overflowed += 1;
            return None;
        }
        let leaves_ns = match &mut self.queue {
            None => now_ns,
            Some(queue) => {
                let Some(leaves_ns) = queue.admit(now_ns, bytes) else {
                    self.counts.queue_dropped += 1;
                    return None;
                };
                leaves_ns
            }
        };
        self.counts.corrupted += u64::from(corrupt);
        self.held += 1;
        // Where there is no room for the copy the owner need not try.
        let room_for_copy = self.held < self.room;
        self.counts.uncopied += u64::from(twice && !room_for_copy);
        Some(Ticket {
            number,
            offered_ns: now_ns,
            due_ns: self.delay.due_ns(leaves_ns, delay_ns),
            held_back,
            twice: twice && room_for_copy,
            corruption: corrupt.then_some(bit),
        })
    }

    /// Takes the packet, and the copy if one is [wanted](Ticket::twice); where there is none that is counted.
    pub fn hold(&mut self, ticket: Ticket, packet: T, copy: Option<T>) {
        let copy = copy.filter(|_| ticket.twice);
        self.counts.uncopied += u64::from(ticket.twice && copy.is_none());
        self.held += usize::from(copy.is_some());
        self.asked.record(ticket.due_ns - ticket.offered_ns);
        self.line.push(Held { ticket, packet, copy });
    }

    /// The next packet that is to leave by now, if there is one.
    pub fn due(&mut self, now_ns: u64) -> Option<T> {
        if let Some(copy) = self.copy.take() {
            self.held -= 1;
            self.counts.duplicated += 1;
            return Some(copy);
        }
        loop {
            // They were to leave before whatever is on the line.
            if let Some(first) = self.behind.front() {
                let overtaken = self.overtook >= first.after;
                if overtaken || now_ns >= first.until_ns {
                    self.counts.not_overtaken += u64::from(!overtaken);
                    let first = self.behind.pop_front()?;
                    return Some(self.leave(first.held, now_ns));
                }
            }
            if self.line.peek()?.ticket.due_ns > now_ns {
                return None;
            }
            let next = self.line.pop()?;
            self.late.record(now_ns - next.ticket.due_ns);
            if next.ticket.held_back {
                self.behind.push_back(HeldBack {
                    held: next,
                    after: self.overtook + self.reorder_by,
                    until_ns: now_ns.saturating_add(self.reorder_wait_ns),
                });
                continue;
            }
            self.overtook += 1;
            return Some(self.leave(next, now_ns));
        }
    }

    fn leave(&mut self, held: Held<T>, now_ns: u64) -> T {
        let Held { ticket, packet, copy } = held;
        self.held -= 1;
        self.copy = copy;
        self.counts.passed += 1;
        self.took.record(now_ns.saturating_sub(ticket.offered_ns));
        match self.highest {
            Some(highest) if ticket.number < highest => {
                self.counts.reordered += 1;
                let behind = highest - ticket.number;
                self.counts.longest_reordering = self.counts.longest_reordering.max(behind);
            }
            _ => self.highest = Some(ticket.number),
        }
        packet
    }

    /// When [`due`](Self::due) will have a packet at the latest, if no other comes; `None` when it holds none.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        if self.copy.is_some() {
            return Some(0);
        }
        let on_line = self.line.peek().map(|held| held.ticket.due_ns);
        let behind = self.behind.front().map(|first| first.until_ns);
        on_line.into_iter().chain(behind).min()
    }

    /// Packets that it holds, copies included.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How long packets were to be held, from when they were offered: queue, delay and jitter.
    #[must_use]
    pub fn asked(&self) -> &Latency {
        &self.asked
    }

    /// How long packets were held that have left, by the times that [`due`](Self::due) was told; those that were held back included.
    #[must_use]
    pub fn took(&self) -> &Latency {
        &self.took
    }

    /// How much later than they were due packets came off the line: what the owner was late.
    #[must_use]
    pub fn late(&self) -> &Latency {
        &self.late
    }
}

// The heap has its greatest on top: the packet that is due first, and of those at one time the one that came first.
impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |held: &Self| (held.ticket.due_ns, held.ticket.number);
        key(other).cmp(&key(self))
    }
}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Held<T> {}

#[cfg(test)]
mod tests;
