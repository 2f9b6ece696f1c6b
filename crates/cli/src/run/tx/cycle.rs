//! `ringside tx --cycle`: a packet at each deadline.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::cycle::{Cycle, Waiting};
use ringside_measure::probe::Clock;
use ringside_measure::schema::CycleResult;
use ringside_nic::clock::{KernelClock, Monotonic, Tai, Timestamp};
use ringside_xsk::Queue;

use crate::args::{CycleClock, List, PortArgs, TxArgs};
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

/// Sends until the end of the run. How that went is told also if it ended early.
pub(super) fn transmit(
    queue: &mut Queue,
    worker: &Worker<'_>,
    packet: &[u8],
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
            let ended = by::<Monotonic>(queue, worker, packet, &mut cycle);
            (CycleResult::of(&cycle, Clock::Monotonic), ended)
        }
        CycleClock::Tai => {
            let mut cycle = begin(now::<Tai>())?;
            let ended = by::<Tai>(queue, worker, packet, &mut cycle);
            (CycleResult::of(&cycle, Clock::Tai), ended)
        }
    })
}

fn now<C: KernelClock>() -> u64 {
    Timestamp::<C>::now().as_nanos()
}

fn by<C: KernelClock>(queue: &mut Queue, worker: &Worker<'_>, packet: &[u8], cycle: &mut Cycle) -> Result<()> {
    while !worker.stop.is_set() && worker.claim(1) != 0 {
        if !wait::<C>(cycle, worker)? {
            worker.give_back(1);
            break;
        }
        cycle.ready(now::<C>());
        let before = queue.counters().tx_packets;
        let done = queue.send_with(1, |slot| {
            let fits = slot.write(packet);
            debug_assert!(fits, "the size was checked against the room");
        });
        // The kernel may have left it on the TX ring.
        let done = done.and_then(|_| queue.flush());
        worker.unless_down(done)?;
        // Also a link that is down has a TX ring with some room.
        if queue.counters().tx_packets == before {
            worker.give_back(1);
            cycle.not_sent(now::<C>());
        } else {
            worker.live.sent(1);
            cycle.sent(now::<C>());
        }
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
