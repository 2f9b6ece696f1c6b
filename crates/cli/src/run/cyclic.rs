//! Packets at deadlines: what `ringside tx --cycle` and `ringside talker` have in common.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::cycle::{Cycle, Deadline, Waiting};
use ringside_measure::probe::Clock;
use ringside_measure::schema::CycleResult;
use ringside_nic::clock::{KernelClock, Monotonic, Tai, Timestamp};

use crate::args::CycleClock;
use crate::session::{POLL, Worker, nanos};

/// A packet that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// When it is to be handed over, in nanoseconds of the cycle's clock.
    pub(crate) deadline_ns: u64,
    /// Which of the cycle's deadlines that is.
    pub(crate) slot: usize,
    /// In which cycle, from 0.
    pub(crate) cycle: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has it.
    Yes,
    /// It could not be sent.
    No,
    /// It was not to be sent.
    Omitted,
}

/// What a cyclic sender sends through.
pub(crate) trait Sender {
    /// Hands a packet over at its deadline.
    fn send(&mut self, due: Due, worker: &Worker<'_>) -> Result<Sent>;

    /// What is to be done when there is time for it.
    fn between(&mut self) -> Result<()>;
}

/// When to send.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Time of a cycle.
    pub(crate) period: Duration,
    /// Those of a cycle, in order of time.
    pub(crate) deadlines: Vec<Deadline>,
    /// Cycles begin at multiples of their time on this clock.
    pub(crate) clock: CycleClock,
    /// How to wait.
    pub(crate) waiting: Waiting,
    /// By so much everything is handed over before.
    pub(crate) ahead: Duration,
}

/// How to wait for deadlines, by `--spin` and `--sleep`.
pub(crate) fn waiting(spin: bool, sleep: bool) -> Waiting {
    match (spin, sleep) {
        (true, _) => Waiting::Spin,
        (_, true) => Waiting::Sleep,
        _ => Waiting::Adaptive,
    }
}

/// Sends until the end of the run. How that went is told also if it ended early.
pub(crate) fn transmit(
    sender: &mut impl Sender,
    worker: &Worker<'_>,
    plan: &Plan,
) -> Result<(CycleResult, Result<()>)> {
    worker.start();
    // A multiple of the period, as on every other host with this clock, and not before there is time to wait for it.
    let (period_ns, ahead_ns) = (nanos(plan.period), nanos(plan.ahead));
    let begin = |now: u64| {
        let first_ns = ((now + ahead_ns) / period_ns + 2) * period_ns - ahead_ns;
        Cycle::with_deadlines(period_ns, plan.deadlines.clone(), first_ns, plan.waiting)
    };
    Ok(match plan.clock {
        CycleClock::Monotonic => {
            let mut cycle = begin(now::<Monotonic>())?;
            let ended = by::<Monotonic>(sender, worker, &mut cycle);
            (CycleResult::of(&cycle, Clock::Monotonic), ended)
        }
        CycleClock::Tai => {
            let mut cycle = begin(now::<Tai>())?;
            let ended = by::<Tai>(sender, worker, &mut cycle);
            (CycleResult::of(&cycle, Clock::Tai), ended)
        }
    })
}

fn now<C: KernelClock>() -> u64 {
    Timestamp::<C>::now().as_nanos()
}

fn by<C: KernelClock>(sender: &mut impl Sender, worker: &Worker<'_>, cycle: &mut Cycle) -> Result<()> {
    while !worker.stop.is_set() && worker.claim(1) != 0 {
        if !wait::<C>(cycle, worker)? {
            worker.give_back(1);
            break;
        }
        cycle.ready(now::<C>());
        let due = Due {
            deadline_ns: cycle.deadline_ns(),
            slot: cycle.slot(),
            cycle: cycle.number(),
        };
        let sent = sender.send(due, worker)?;
        if sent == Sent::Yes {
            worker.sent(1);
            cycle.sent(now::<C>());
        } else {
            worker.give_back(1);
            cycle.not_sent(now::<C>());
        }
        sender.between()?;
    }
    Ok(())
}

/// Waits for the next deadline; false when the run is over before.
fn wait<C: KernelClock>(cycle: &mut Cycle, worker: &Worker<'_>) -> Result<bool> {
    let deadline = cycle.deadline_ns();
    if let Some(asked) = cycle.wake_ns() {
        let mut slept = false;
        // In pieces short enough to see the end of the run.
        loop {
            let now = now::<C>();
            if now >= asked {
                match slept {
                    true => cycle.woke(asked, now),
                    false => cycle.too_late_to_sleep(),
                }
                break;
            }
            if worker.stop.is_set() {
                return Ok(false);
            }
            let piece = asked.min(now + nanos(POLL));
            Timestamp::<C>::from_nanos(piece)
                .sleep_until()
                .context("sleeping until a deadline")?;
            slept = piece == asked;
        }
    }
    while now::<C>() < deadline {
        if worker.stop.is_set() {
            return Ok(false);
        }
        std::hint::spin_loop();
    }
    Ok(true)
}
