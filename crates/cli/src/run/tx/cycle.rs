//! `ringside tx --cycle`: a packet at each deadline.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::cycle::{Cycle, Waiting};
use ringside_measure::probe::Clock;
use ringside_measure::schema::CycleResult;
use ringside_nic::clock::{KernelClock, Monotonic, Tai, Timestamp};
use ringside_xsk::Queue;

use super::asking::{Asking, Departures};
use crate::args::{CycleClock, List, PortArgs, TxArgs};
use crate::live::Teller;
use crate::session::{POLL, Worker, nanos};

/// The port of a cyclic sender has one queue: the first, if none was named.
pub(super) fn port(args: &TxArgs) -> Result<PortArgs> {
    let mut port = args.port.clone();
    let queues = port.queues.get_or_insert_with(|| List(vec![0]));
    if queues.0.len() != 1 {
        bail!("--cycle sends on one queue: name one with --queues");
    }
    Ok(port)
}

/// What a cyclic sender sends through.
pub(super) trait Sender {
    /// Hands a packet over at its deadline, in nanoseconds of the cycle's clock; false when that could not be.
    fn send(&mut self, deadline_ns: u64, worker: &Worker<'_>) -> Result<bool>;

    /// What is to be done when there is time for it.
    fn between(&mut self) -> Result<()>;
}

/// An XDP socket.
pub(super) struct Xsk<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) packet: &'a [u8],
    pub(super) asking: Asking,
    pub(super) departures: Option<Departures>,
    pub(super) teller: Teller,
}

impl Sender for Xsk<'_> {
    fn send(&mut self, deadline_ns: u64, worker: &Worker<'_>) -> Result<bool> {
        let before = self.queue.counters().tx_packets;
        let done = self.asking.send(self.queue, 1, self.packet, deadline_ns);
        // The kernel may have left it on the TX ring.
        let done = done.and_then(|_| self.queue.flush());
        worker.unless_down(done)?;
        // Also a link that is down has a TX ring with some room.
        Ok(self.queue.counters().tx_packets != before)
    }

    fn between(&mut self) -> Result<()> {
        self.teller.tell([&mut *self.queue]);
        match &mut self.departures {
            Some(departures) => departures.collect(self.queue),
            None => Ok(()),
        }
    }
}

/// Launch times are of CLOCK_TAI.
pub(super) fn check(args: &TxArgs) -> Result<()> {
    if args.ask.launch_time.is_some() && args.clock != CycleClock::Tai {
        bail!("launch times are of CLOCK_TAI, and the deadlines they follow: add --clock tai");
    }
    Ok(())
}

/// Sends until the end of the run. How that went is told also if it ended early.
pub(super) fn transmit(
    sender: &mut impl Sender,
    worker: &Worker<'_>,
    period: Duration,
    args: &TxArgs,
) -> Result<(CycleResult, Result<()>)> {
    let waiting = match (args.spin, args.sleep) {
        (true, _) => Waiting::Spin,
        (_, true) => Waiting::Sleep,
        _ => Waiting::Adaptive,
    };
    // A multiple of the period, as on every other host with this clock, and not before there is time to wait for it.
    let period_ns = nanos(period);
    let begin = |now: u64| Cycle::new(period_ns, (now / period_ns + 2) * period_ns, waiting);
    Ok(match args.clock {
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
        if sender.send(cycle.deadline_ns(), worker)? {
            worker.live.sent(1);
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
