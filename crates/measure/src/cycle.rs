//! Cyclic transmission: one packet at each deadline of an exact schedule, one or several a cycle, and how well that went.
//!
//! ```text
//!          asleep                 spinning   sending
//!   ├─────────────────────────┼──────────┼─────────┤
//!   last packet     asked for │   │ woke │ deadline│ on its way          next deadline
//!                             └───┴──────┘         │
//!                     the wake-up took this long   └── late if not before here ──┘
//! ```
//!
//! A deadline is when a packet is to be handed to the kernel. A thread that sleeps until then is late by what waking up takes,
//! so it asks to be woken earlier, by as much as waking up has taken lately, and spins for the rest.
//!
//! ```
//! use ringside_measure::cycle::{Cycle, Waiting};
//!
//! let mut cycle = Cycle::new(1_000_000, 5_000_000, Waiting::Adaptive)?;
//! for _ in 0..100 {
//!     let asked = cycle.wake_ns().unwrap();
//!     cycle.woke(asked, asked + 60_000); // each time 60 µs late
//!     let deadline = cycle.deadline_ns();
//!     cycle.ready(deadline.max(asked + 60_000));
//!     cycle.sent(deadline + 2_000);
//! }
//! assert!(cycle.early_ns() >= 60_000 && cycle.early_ns() < 70_000); // it has learned that
//! assert_eq!(cycle.counts().misses(), 0);
//! # Ok::<(), ringside_measure::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::latency::{Jitter, JitterEstimator, Latency};

mod early;

pub use early::WakeEarly;

/// How a thread waits for a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// Asleep until shortly before it, then spinning.
    Adaptive,
    /// Asleep until the deadline itself: late by what waking up takes.
    Sleep,
    /// Spinning all the time.
    Spin,
}

/// What became of the deadlines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CycleCounts {
    /// Packets on their way before the next one was due, or their own window was over.
    pub in_time: u64,
    /// Packets on their way after that.
    pub late: u64,
    /// Deadlines without a packet, because that had come for them too by then, or nothing could be sent.
    pub skipped: u64,
}

impl CycleCounts {
    /// Deadlines that were missed.
    #[must_use]
    pub fn misses(self) -> u64 {
        self.late + self.skipped
    }

    /// All deadlines that have come.
    #[must_use]
    pub fn due(self) -> u64 {
        self.in_time + self.misses()
    }
}

/// One of the deadlines that come again in each cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// When, from the begin of the cycle.
    pub offset_ns: u64,
    /// For how long a packet is worth sending from then on: it is in time until then, and left out from then on. A cycle at the most.
    pub span_ns: u64,
}

/// A cyclic sender's schedule and record. Knows no clock: it is told the times, all of one.
#[derive(Debug, Clone)]
pub struct Cycle {
    period_ns: u64,
    /// Those of a cycle, in order of time.
    deadlines: Box<[Deadline]>,
    /// Begin of the present cycle.
    begin_ns: u64,
    /// Number of the present cycle.
    number: u64,
    /// The next deadline in it.
    slot: usize,
    waiting: Waiting,
    early: WakeEarly,
    counts: CycleCounts,
    wake_up: Latency,
    ready: Latency,
    transmit: Latency,
    jitter: JitterEstimator,
}

impl Cycle {
    /// A packet every `period_ns` nanoseconds, the first one at `first_ns`.
    ///
    /// # Errors
    /// [`Error::Period`] for zero.
    pub fn new(period_ns: u64, first_ns: u64, waiting: Waiting) -> Result<Self, Error> {
        // A packet is worth sending until the next one is due.
        let only = Deadline {
            offset_ns: 0,
            span_ns: period_ns,
        };
        Self::with_deadlines(period_ns, vec![only], first_ns, waiting)
    }

    /// Several packets a cycle, at deadlines in order of time that all lie in it; the first cycle begins at `first_ns`.
    ///
    /// # Errors
    /// [`Error::Period`] for a cycle of zero, [`Error::Schedule`] for deadlines that are none, not in order, or outside of the cycle.
    pub fn with_deadlines(
        period_ns: u64,
        deadlines: Vec<Deadline>,
        first_ns: u64,
        waiting: Waiting,
    ) -> Result<Self, Error> {
        if period_ns == 0 {
            return Err(Error::Period);
        }
        let inside = |one: &Deadline| one.offset_ns < period_ns && (1..=period_ns).contains(&one.span_ns);
        if deadlines.is_empty() || !deadlines.is_sorted_by_key(|one| one.offset_ns) || !deadlines.iter().all(inside) {
            return Err(Error::Schedule(format!(
                "a cycle of {period_ns} ns needs deadlines inside of it, in order of time, each worth keeping for a cycle at the most"
            )));
        }
        Ok(Self {
            period_ns,
            deadlines: deadlines.into_boxed_slice(),
            begin_ns: first_ns,
            number: 0,
            slot: 0,
            waiting,
            early: WakeEarly::new(period_ns),
            counts: CycleCounts::default(),
            wake_up: Latency::new(),
            ready: Latency::new(),
            transmit: Latency::new(),
            jitter: JitterEstimator::new(),
        })
    }

    /// When the next packet is to be sent.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.next().offset_ns)
    }

    /// Which of the cycle's deadlines that is, from 0.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Which cycle that is, from 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    fn next(&self) -> Deadline {
        // There is one at least, and `slot` is always one of them.
        self.deadlines.get(self.slot).copied().unwrap_or(Deadline {
            offset_ns: 0,
            span_ns: self.period_ns,
        })
    }

    /// When to be woken for it; `None` for not to sleep.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        match self.waiting {
            Waiting::Adaptive => Some(self.deadline_ns().saturating_sub(self.early_ns())),
            Waiting::Sleep => Some(self.deadline_ns()),
            Waiting::Spin => None,
        }
    }

    /// It slept and was to be woken at `asked_ns`; the clock shows `now_ns`. What waking up took is
    /// learned from it.
    pub fn woke(&mut self, asked_ns: u64, now_ns: u64) {
        if let Some(took) = now_ns.checked_sub(asked_ns) {
            self.wake_up.record(took);
            self.early.woke(took);
        }
    }

    /// When it looked, the time to be woken was over already, and it did not sleep.
    pub fn too_late_to_sleep(&mut self) {
        self.early.too_late_to_sleep();
    }

    /// The deadline has come, and the packet is about to be sent.
    pub fn ready(&mut self, now_ns: u64) {
        self.ready.record(now_ns.saturating_sub(self.deadline_ns()));
    }

    /// The packet is on its way. Goes on to the next deadline whose time is not over.
    pub fn sent(&mut self, now_ns: u64) {
        let after = now_ns.saturating_sub(self.deadline_ns());
        self.transmit.record(after);
        self.jitter.record(after);
        if after > self.next().span_ns {
            self.counts.late += 1;
        } else {
            self.counts.in_time += 1;
        }
        self.advance(now_ns);
    }

    /// Nothing could be sent at this deadline.
    pub fn not_sent(&mut self, now_ns: u64) {
        self.counts.skipped += 1;
        self.advance(now_ns);
    }

    fn advance(&mut self, now_ns: u64) {
        self.step();
        // Those whose time is over: a burst of packets that are all late helps nobody. After a long break whole cycles at once.
        let cycles = (now_ns.saturating_sub(self.deadline_ns()) / self.period_ns).saturating_sub(1);
        if cycles > 0 {
            self.begin_ns = self.begin_ns.saturating_add(cycles.saturating_mul(self.period_ns));
            self.number += cycles;
            self.counts.skipped += cycles.saturating_mul(self.deadlines.len() as u64);
        }
        while (self.deadline_ns().checked_add(self.next().span_ns)).is_some_and(|over| now_ns >= over) {
            self.counts.skipped += 1;
            self.step();
        }
    }

    fn step(&mut self) {
        self.slot += 1;
        if self.slot == self.deadlines.len() {
            self.slot = 0;
            self.number += 1;
            self.begin_ns = self.begin_ns.saturating_add(self.period_ns);
        }
    }

    /// How much before the deadline it asks to be woken, as learned.
    #[must_use]
    pub fn early_ns(&self) -> u64 {
        self.early.early_ns()
    }

    /// What became of the deadlines until now.
    #[must_use]
    pub fn counts(&self) -> CycleCounts {
        self.counts
    }

    /// What waking up took, from the time that was asked for.
    #[must_use]
    pub fn wake_up(&self) -> &Latency {
        &self.wake_up
    }

    /// From the deadline to the thread being ready to send.
    #[must_use]
    pub fn readiness(&self) -> &Latency {
        &self.ready
    }

    /// From the deadline to the packet being on its way.
    #[must_use]
    pub fn transmit(&self) -> &Latency {
        &self.transmit
    }

    /// How much that changes from packet to packet; `None` below two packets.
    #[must_use]
    pub fn jitter(&self) -> Option<Jitter> {
        self.jitter.jitter()
    }

    /// Time between two deadlines, or of a cycle where it has several.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// How it waits.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }
}

#[cfg(test)]
mod tests;
