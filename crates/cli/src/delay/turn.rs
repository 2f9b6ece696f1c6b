//! One turn of one cell: the application, who sends to it, and what that cost.
//!
//! ```text
//!   application's CPU   ├─ drains ─┼── warm-up ──┼──────── samples ────────┼───┤
//!   NAPI's CPU                     ├─ sender: packet … packet … packet ────┤ last one seen
//!   CPU time            ├──────────────────────────────────────────────────────┤
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ringside_measure::delay::{Cell, Delays, Stamps, Verdict, Wait};
use ringside_nic::host::{CpuTime, CpuTimes, IdleUse, idle_use};
use ringside_xsk::hints::{Reader, RingsideRx};
use ringside_xsk::{self as xsk, BusyPolling, Queue};
use rustix::time::{ClockId, clock_gettime};

use super::plan::Place;
use super::sender::Sender;
use crate::clock::now_ns;
use crate::pin;
use crate::session::{POLL, nanos};
use crate::stop::Stop;

/// What came before the turn is taken away first, for this long at the most.
const DRAIN: Duration = Duration::from_millis(20);

/// What a turn is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) cell: Cell,
    pub(super) place: Place,
    /// Its number within the run.
    pub(super) number: u32,
    /// Samples to be had.
    pub(super) want: u64,
    /// Packets before them.
    pub(super) warm_up: u64,
    /// When to go without.
    pub(super) longest: Duration,
    /// The application's real-time priority.
    pub(super) priority: Option<i32>,
}

/// What a turn gave.
pub(super) struct Reading {
    pub(super) delays: Delays,
    /// Packets of our own sender.
    pub(super) sent: Option<u64>,
    /// Packets of our own sender that did not come; of others those that the kernel dropped at the socket.
    pub(super) lost: u64,
    /// What the application's CPU did.
    pub(super) cpu: CpuTime,
    /// Share of the two CPUs' time that the hypervisor took, from 0 to 1.
    pub(super) steal: f64,
    pub(super) thread: ThreadTime,
    /// How the application's CPU slept.
    pub(super) idle: Vec<IdleUse>,
    pub(super) busy_polling: BusyPolling,
    /// Why our own sender did not come before the application.
    pub(super) unprivileged: Option<String>,
}

/// What became of the time of the application's thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadTime {
    pub(super) elapsed_ns: u64,
    pub(super) running_ns: u64,
    /// Ready to run, and not running.
    pub(super) waiting_ns: u64,
}

/// What the threads of a turn tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The application looks for packets.
    pub(super) ready: AtomicBool,
    /// The application shall end.
    pub(super) end: AtomicBool,
    /// Packets that the application has.
    pub(super) seen: AtomicU64,
    /// Those of them that count.
    pub(super) good: AtomicU64,
}

/// Ends the turn with whoever holds it, however that ends.
pub(super) struct Ends<'a>(pub(super) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Turn {
    /// Runs it on an open queue, with a sender of our own or somebody else's.
    pub(super) fn run(
        &self,
        queue: &mut Queue,
        reader: Reader<RingsideRx>,
        sender: Option<&Sender>,
        stop: &Stop,
    ) -> Result<Reading> {
        let shared = Shared::default();
        let dropped_before = dropped(queue)?;
        let (times, idle) = (CpuTimes::read()?, idle_use(self.place.application));
        let (application, sent) = thread::scope(|scope| {
            let application = scope.spawn(|| self.application(queue, reader, &shared));
            let sent = match sender {
                Some(sender) => {
                    let sender = scope.spawn(|| sender.run(self, &shared, stop));
                    Some(join(sender))
                }
                None => {
                    self.listen(&shared, stop);
                    None
                }
            };
            (join(application), sent.transpose())
        });
        // The application's words say more than that nobody was there to send to.
        let ((delays, thread), sent) = (application?, sent?);
        let passed = CpuTimes::read()?.since(&times);
        let cpu = |cpu| passed.cpu(cpu).unwrap_or_default();
        let both = match self.place {
            Place { napi, application } if napi == application => cpu(napi),
            Place { napi, application } => cpu(napi) + cpu(application),
        };
        Ok(Reading {
            sent: sent.as_ref().map(|sent| sent.packets),
            lost: match &sent {
                Some(sent) => sent.packets.saturating_sub(delays.packets()),
                None => dropped(queue)?.saturating_sub(dropped_before),
            },
            unprivileged: sent.and_then(|sent| sent.unprivileged),
            delays,
            cpu: cpu(self.place.application),
            steal: both.fraction(both.steal).unwrap_or(0.0),
            thread,
            idle: since(idle, idle_use(self.place.application)),
            busy_polling: queue.busy_polling(),
        })
    }

    /// Somebody else sends: until there is enough of it, or the time is over.
    fn listen(&self, shared: &Shared, stop: &Stop) {
        let _ends = Ends(&shared.end);
        let over = Instant::now() + self.longest;
        while shared.good.load(Ordering::Relaxed) < self.want && !shared.end.load(Ordering::Acquire) {
            // In steps, so that it sees the samples.
            let step = Instant::now() + Duration::from_millis(20);
            if stop.sleep_until(step.min(over)) || Instant::now() >= over {
                return;
            }
        }
    }

    /// The application: takes packets until it is told to end.
    fn application(
        &self,
        queue: &mut Queue,
        reader: Reader<RingsideRx>,
        shared: &Shared,
    ) -> Result<(Delays, ThreadTime)> {
        let _ends = Ends(&shared.end);
        pin::to_cpu(self.place.application)?;
        if let Some(priority) = self.priority {
            pin::real_time(priority)?;
        }
        let drained = Instant::now() + DRAIN;
        while !queue.recv(xsk::Wait::Spin)?.is_empty() && Instant::now() < drained {}
        let wait = match self.cell.wait {
            Wait::Spin => xsk::Wait::Spin,
            Wait::Poll => xsk::Wait::Poll(POLL),
            Wait::BusyPoll => xsk::Wait::BusyPoll,
        };
        let mut delays = Delays::new(self.cell.core, self.warm_up);
        let mut good = 0;
        let mark = Mark::now();
        shared.ready.store(true, Ordering::Release);
        while !shared.end.load(Ordering::Relaxed) {
            let mut burst = queue.recv(wait)?;
            if burst.is_empty() {
                continue;
            }
            // CLOCK_MONOTONIC itself, which is the clock of the XDP program: at a packet a millisecond the fast clock would
            // compare itself with it at each reading, and be dearer.
            let dequeued_ns = now_ns();
            let dequeued_cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX);
            for (_, hints) in burst.with_hints(reader) {
                let Some(hints) = hints else {
                    delays.without_hints();
                    continue;
                };
                // Left from before, when nobody took it.
                if hints.rx_ktime < mark.at_ns {
                    continue;
                }
                let stamps = Stamps {
                    xdp_ns: hints.rx_ktime,
                    xdp_cpu: hints.rx_cpu,
                    dequeued_ns,
                    dequeued_cpu,
                };
                good += u64::from(delays.record(stamps) == Verdict::Sample);
            }
            shared.seen.store(delays.packets(), Ordering::Relaxed);
            shared.good.store(good, Ordering::Relaxed);
        }
        Ok((delays, mark.passed()))
    }
}

/// A moment in the life of a thread.
struct Mark {
    at_ns: u64,
    ran_ns: u64,
    waited_ns: u64,
}

impl Mark {
    fn now() -> Self {
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        Self {
            ran_ns: nanos(Duration::try_from(ran).unwrap_or_default()),
            waited_ns: pin::waited_ns(id).unwrap_or(0),
            at_ns: now_ns(),
        }
    }

    /// What the same thread did since.
    fn passed(&self) -> ThreadTime {
        let now = Self::now();
        ThreadTime {
            elapsed_ns: now.at_ns - self.at_ns,
            running_ns: now.ran_ns.saturating_sub(self.ran_ns),
            waiting_ns: now.waited_ns.saturating_sub(self.waited_ns),
        }
    }
}

/// Packets that the kernel has dropped at the queue's socket.
fn dropped(queue: &Queue) -> Result<u64> {
    let kernel = queue.stats()?.kernel;
    Ok(kernel.rx_dropped + kernel.rx_ring_full)
}

fn since(before: Vec<IdleUse>, after: Vec<IdleUse>) -> Vec<IdleUse> {
    let passed = after.into_iter().zip(before).map(|(mut now, before)| {
        now.entries = now.entries.saturating_sub(before.entries);
        now.time_us = now.time_us.saturating_sub(before.time_us);
        now
    });
    passed.collect()
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked")).flatten()
}
