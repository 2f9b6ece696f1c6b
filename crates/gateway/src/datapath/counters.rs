//! What workers count, each its own, read by anybody; and what the XDP program does.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Sender, TrySendError};
use ringside_bpf::gateway::{GatewayProgram, Outcome};
use ringside_gateway_core::DropReason;
use ringside_gateway_core::decide::Decision;

use crate::model::PathCounters;

const REASONS: usize = 64;

/// What became of packets that came to a worker. Packets unless said otherwise.
#[derive(Debug)]
pub(super) struct WorkerCounters {
    received: AtomicU64,
    received_bytes: AtomicU64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    answered: AtomicU64,
    complained: AtomicU64,
    held_back: AtomicU64,
    waited: AtomicU64,
    busy: AtomicU64,
    dropped: [AtomicU64; REASONS],
    dropped_bytes: AtomicU64,
    full: [AtomicU64; Full::ALL.len()],
}

/// Where a worker tells others what is to be done, and may find no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// Hosts whose MAC addresses are wanted.
    Hosts,
    /// What the fast path may take over, or no longer.
    Caches,
    /// Who sends to whom.
    Flows,
}

impl Full {
    pub(super) const ALL: [Self; 3] = [Self::Hosts, Self::Caches, Self::Flows];

    /// As in statistics and labels of metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Caches => "caches",
            Self::Flows => "flows",
        }
    }
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            complained: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            dropped: [const { AtomicU64::new(0) }; REASONS],
            dropped_bytes: AtomicU64::new(0),
            full: [const { AtomicU64::new(0) }; Full::ALL.len()],
        }
    }
}

/// The same, at one time. Adds up: received = sent + answered + dropped + still waiting, but for those dropped as `worker-busy`: these
/// never came to the worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WorkerCounts {
    /// Packets that came.
    pub received: u64,
    /// Their bytes, from the Ethernet header on.
    pub received_bytes: u64,
    /// Packets sent on.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Questions answered.
    pub answered: u64,
    /// Of those in `dropped`, by their own reason: packets in whose place their sender got an ICMP error.
    pub complained: u64,
    /// Of those, too: packets whose sender got none, because there would have been too many.
    pub held_back: u64,
    /// Packets that had to wait for a host's MAC address; they are counted once more when that is known, or not.
    pub waited: u64,
    /// Nanoseconds in which there were packets.
    pub busy: u64,
    /// Packets dropped, by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Their bytes, as they came; but for those dropped as `worker-busy`.
    pub dropped_bytes: u64,
    /// Times that there was no room, in the order of [`Full::ALL`].
    pub full: [u64; Full::ALL.len()],
}

/// What one burst comes to, before it is written down.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    pub(super) received: u64,
    pub(super) received_bytes: u64,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) answered: u64,
    pub(super) complained: u64,
    pub(super) held_back: u64,
    pub(super) waited: u64,
    pub(super) busy: u64,
}

impl Tally {
    pub(super) const ZERO: Self = Self {
        received: 0,
        received_bytes: 0,
        sent: 0,
        sent_bytes: 0,
        answered: 0,
        complained: 0,
        held_back: 0,
        waited: 0,
        busy: 0,
    };
}

/// Why a packet goes no farther, if it does not.
pub(super) fn reason(decision: Decision) -> Option<DropReason> {
    match decision {
        Decision::Kernel => Some(DropReason::NotOurs),
        Decision::NoAddress(_) => Some(DropReason::HostUnresolved),
        Decision::Complain(reason) | Decision::Drop(reason) => Some(reason),
        Decision::Send { .. } | Decision::Answer | Decision::Wait(_) => None,
    }
}

/// One thread writes: no need for an atomic addition.
fn add(counter: &AtomicU64, more: u64) {
    if more != 0 {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}

impl WorkerCounters {
    pub(super) fn add(&self, tally: &Tally) {
        add(&self.received, tally.received);
        add(&self.received_bytes, tally.received_bytes);
        add(&self.sent, tally.sent);
        add(&self.sent_bytes, tally.sent_bytes);
        add(&self.answered, tally.answered);
        add(&self.complained, tally.complained);
        add(&self.held_back, tally.held_back);
        add(&self.waited, tally.waited);
        add(&self.busy, tally.busy);
    }

    /// Tells others something, and counts it if there is no room. False then.
    pub(super) fn tell<T>(&self, queue: Full, to: &Sender<T>, what: T) -> bool {
        let is_full = matches!(to.try_send(what), Err(TrySendError::Full(_)));
        add(&self.full[queue as usize], is_full.into());
        !is_full
    }

    /// Counts a packet of so many bytes.
    pub(super) fn dropped(&self, reason: DropReason, bytes: usize) {
        self.dropped_all(reason, 1, bytes);
    }

    /// Counts a packet that goes no farther, by its reason, with the bytes that it came with.
    pub(super) fn refused(&self, decision: Decision, bytes: usize) {
        if let Some(reason) = reason(decision) {
            self.dropped(reason, bytes);
        }
    }

    /// Counts packets of so many bytes together.
    pub(super) fn dropped_all(&self, reason: DropReason, packets: u64, bytes: usize) {
        self.dropped_more(reason, packets);
        add(&self.dropped_bytes, bytes as u64);
    }

    /// Counts packets whose bytes nobody knows.
    pub(super) fn dropped_more(&self, reason: DropReason, packets: u64) {
        add(&self.dropped[usize::from(reason.number()) % REASONS], packets);
    }

    /// What has been counted so far.
    #[must_use]
    pub(super) fn read(&self) -> WorkerCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let dropped = DropReason::ALL.iter().filter_map(|&reason| {
            let count = of(&self.dropped[usize::from(reason.number())]);
            (count != 0).then_some((reason, count))
        });
        WorkerCounts {
            received: of(&self.received),
            received_bytes: of(&self.received_bytes),
            sent: of(&self.sent),
            sent_bytes: of(&self.sent_bytes),
            answered: of(&self.answered),
            complained: of(&self.complained),
            held_back: of(&self.held_back),
            waited: of(&self.waited),
            busy: of(&self.busy),
            dropped: dropped.collect(),
            dropped_bytes: of(&self.dropped_bytes),
            full: Full::ALL.map(|queue| of(&self.full[queue as usize])),
        }
    }
}

/// What the program has counted, and what it handed to workers, by cause. A counter that cannot be read is left out, as it would be a
/// moment later.
pub(super) fn of_program(program: &GatewayProgram) -> (PathCounters, Vec<(&'static str, u64)>) {
    let (mut counts, mut handed_up) = (PathCounters::default(), Vec::new());
    for outcome in Outcome::all() {
        let Ok(counter) = program.count(outcome) else { continue };
        let reason = match outcome {
            Outcome::Dropped(number) => DropReason::ALL.iter().find(|known| known.number() == number).copied(),
            _ => None,
        };
        // What was found out afterwards came only once.
        if !reason.is_some_and(DropReason::is_afterwards) {
            counts.received_packets += counter.packets;
            counts.received_bytes += counter.bytes;
        }
        match outcome {
            Outcome::Forwarded | Outcome::Redirected => {
                counts.forwarded_packets += counter.packets;
                counts.forwarded_bytes += counter.bytes;
            }
            Outcome::Answered => counts.answered_packets += counter.packets,
            Outcome::Passed => counts.passed_packets += counter.packets,
            Outcome::Dropped(_) if counter.packets != 0 => {
                counts.dropped_bytes += counter.bytes;
                counts
                    .dropped_packets
                    .extend(reason.map(|reason| (reason, counter.packets)));
            }
            Outcome::Slow(cause) if counter.packets != 0 => handed_up.push((cause.name(), counter.packets)),
            Outcome::Dropped(_) | Outcome::Slow(_) => {}
        }
    }
    (counts, handed_up)
}

const _: () = {
    let mut at = 0;
    while at < DropReason::ALL.len() {
        assert!(
            (DropReason::ALL[at].number() as usize) < REASONS,
            "a counter for each reason"
        );
        at += 1;
    }
};

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
