//! `ringside tx`: transmit, as fast as possible, paced, or at deadlines.

mod cycle;

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use ringside_measure::pace::Pacer;
use ringside_measure::schema::Operation;
use ringside_xsk::{Direction, Filter, Queue, Wait};

use super::{account, conclude, rates, transmit_ledger};
use crate::args::TxArgs;
use crate::clock::{FastClock, now_ns};
use crate::session::{self, Worker};
use crate::stop::Stop;
use crate::{output, system, target};

pub(crate) fn run(args: &TxArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let port_args = match args.cycle {
        Some(_) => &cycle::port(args)?,
        None => &args.port,
    };
    let interface = session::interface(port_args, &args.run)?;
    let flow = target::flow(&interface, &args.flow)?;
    let mut port = session::open(interface.clone(), port_args, Direction::Transmit, Filter::None, None)?;
    let packet = target::packet(&flow, args.size, 0, &port, session::link(&port)?.mtu)?;
    output::note(port.report());
    output::note(target::describe(&flow, args.size));

    let lanes: Vec<&mut Queue> = port.queues_mut().collect();
    let (start, queues, wait) = (now_ns(), lanes.len(), session::wait(&args.port));
    // Not before: what resolving the address sent is not part of the run.
    let link_before = interface.state()?;
    let kept = OnceLock::new();
    let ran = session::run(lanes, &[interface], &args.port, &args.run, &stop, |queue, worker| {
        if let Some(period) = args.cycle {
            let (cycle, ended) = cycle::transmit(queue, &worker, &packet, period, args)?;
            // There is one queue, so this is the only one.
            _ = kept.set(cycle);
            return ended.and_then(|()| finish(queue, &worker));
        }
        let pacer = match args.rate {
            Some(rate) => staggered(rate, worker.number, queues, start)?,
            None => Pacer::unlimited(start),
        };
        transmit(queue, &worker, &packet, pacer, args.port.batch, wait)
    })?;
    let stats = port.stats()?;
    let queues = session::counters(&port)?;
    let link_after = session::link_after(&port, &link_before);
    let mut result = session::result(Operation::Tx, &ran, queues);
    result.frame_bytes = Some(packet.len() as u64);
    result.payload_bytes = Some((packet.len() - flow.header_len()) as u64);
    #[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    {
        result.target_pps = match args.cycle {
            Some(period) => Some(1.0 / period.as_secs_f64()),
            None => args.rate.map(|rate| rate as f64),
        };
    }
    result.cycle = kept.into_inner();
    result.packets = transmit_ledger(&result.queues, session::in_flight(&port), &link_before, &link_after);
    result.transmitted = rates(stats.own.tx_packets, stats.own.tx_bytes, flow.header_len(), &ran);
    account(&mut result);
    let record = system::interface(port.interface(), &link_after, Some(port.report()));
    drop(port);
    let sent = result.packets.sent;
    output::finish(&args.run, vec![record], result)?;
    conclude(
        ran,
        sent,
        &format!("tx {}", args.port.interface),
        "no packet could be sent: is the link up?",
    )
}

/// The share of one queue of `rate`. The queues begin one after the other, so that all together send evenly.
fn staggered(rate: u64, number: usize, queues: usize, start: u64) -> Result<Pacer> {
    let begin = start + number as u64 * 1_000_000_000 / rate;
    #[allow(clippy::cast_precision_loss, reason = "rates and queues are far below 2^53")]
    Ok(Pacer::per_second_f64(rate as f64 / queues as f64, begin)?)
}

fn transmit(
    queue: &mut Queue,
    worker: &Worker<'_>,
    packet: &[u8],
    mut pacer: Pacer,
    batch: u32,
    wait: Wait,
) -> Result<()> {
    let mut clock = FastClock::new();
    while !worker.stop.is_set() {
        let due = pacer.backlog(clock.now_ns());
        if due == 0 {
            // What the kernel has not taken yet shall not wait for the next packet of a slow schedule.
            if worker.unless_down(queue.flush())?.is_some() {
                idle(wait, pacer.next_due_ns(), &mut clock);
            }
            continue;
        }
        let claimed = worker.claim(u32::try_from(due).unwrap_or(u32::MAX).min(batch));
        if claimed == 0 {
            // The others may still give back what they cannot send, and send it themselves.
            break;
        }
        let before = queue.counters().tx_packets;
        let done = queue.send_with(claimed, |slot| {
            let fits = slot.write(packet);
            debug_assert!(fits, "the size was checked against the room");
        });
        worker.unless_down(done)?;
        // Also a link that is down has a TX ring with some room.
        let sent = u32::try_from(queue.counters().tx_packets - before).unwrap_or(claimed);
        pacer.take(clock.now_ns(), u64::from(sent));
        worker.give_back(claimed - sent);
        worker.live.sent(u64::from(sent));
    }
    finish(queue, worker)
}

/// Counters are read after everything has left.
fn finish(queue: &mut Queue, worker: &Worker<'_>) -> Result<()> {
    while worker.unless_down(queue.flush())?.is_none() && !worker.stop.is_set() {}
    worker.drain(queue)
}

/// Waits for the next packet of the schedule, in steps short enough to see the end of the run.
fn idle(wait: Wait, due_ns: u64, clock: &mut FastClock) {
    match wait {
        Wait::Poll(longest) => {
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(clock.now_ns())).min(longest));
        }
        _ => std::hint::spin_loop(),
    }
}
