//! `ringside tx`: transmit, as fast as possible, paced, or at deadlines.

mod asking;
mod cycle;
mod packet;

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ringside_measure::cycle::WakeEarly;
use ringside_measure::pace::{Lateness, Pacer};
use ringside_measure::schema::{LaunchBy, Operation};
use ringside_xsk::{Direction, Filter, Queue, Wait};

pub(crate) use asking::AskArgs;
use asking::{Asking, Collected, Departures};

use super::{account, conclude, cyclic, rates, transmit_ledger};
use crate::args::{TxArgs, ViaArg};
use crate::clock::FastClock;
use crate::live::{self, Offer, Teller};
use crate::session::{self, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system, target};

pub(crate) fn run(args: &TxArgs) -> Result<()> {
    cycle::check(args)?;
    if let (Some(period), ViaArg::AfPacket) = (args.cycle, args.via) {
        return packet::run(args, period);
    }
    let stop = Stop::on_signals()?;
    let port_args = match args.cycle {
        Some(_) => &cycle::port(args)?,
        None => &args.port,
    };
    let interface = session::interface(port_args, &args.run.output)?;
    let web = live::listen(&args.run.prometheus)?;
    let flow = target::flow(&interface, &args.flow)?;
    let mut port = session::open_with(
        interface.clone(),
        port_args,
        Direction::Transmit,
        Filter::None,
        None,
        |(builder, options)| {
            Ok(match args.ask.is_empty() {
                true => (builder, options),
                false => (builder, options.tx_metadata(args.ask.wanted())),
            })
        },
    )?;
    let mut packet = target::packet(&flow, ("--size", args.size), 0, &port, session::link(&port)?.mtu)?;
    let asking = Asking::new(&args.ask, &flow, &mut packet)?;
    output::opened(args.run.verbose, port.report());
    output::note(target::describe(&flow, args.size));

    let offer = Offer::start("tx", &[&port], web)?;
    let watched = Watched::ports([&port]);
    let lanes: Vec<&mut Queue> = port.queues_mut().collect();
    let (queues, wait) = (lanes.len(), session::wait(&args.port));
    // Not before: what resolving the address sent is not part of the run.
    let link_before = interface.state()?;
    let kept = OnceLock::new();
    let late = Mutex::new(None::<Lateness>);
    let collected = Collected::default();
    let ran = session::run(lanes, watched, &args.port, &args.run, &stop, |queue, worker| {
        let departures = asking.departures(&interface, queue)?;
        if let Some(period) = args.cycle {
            let mut sender = cycle::Xsk {
                queue,
                packet: &packet,
                asking,
                departures,
                teller: offer.teller(),
            };
            let (mut cycle, ended) = cyclic::transmit(&mut sender, &worker, &cycle::plan(args, period))?;
            cycle.launch = (args.ask.launch_time).map(|lead| asking::launch(lead, LaunchBy::Unknown));
            // There is one queue, so this is the only one.
            _ = kept.set(cycle);
            return ended.and_then(|()| finish(sender.queue, &worker, sender.departures, &collected));
        }
        let start = worker.start();
        let pacer = match args.rate {
            Some(rate) => {
                let end = session::end_ns(start, args.run.time);
                staggered(rate, worker.number, queues, start)?.until(end)
            }
            None => Pacer::unlimited(start),
        };
        // Of one queue.
        let interval_ns = args.rate.map(|rate| queues as u64 * 1_000_000_000 / rate);
        let packets = Packets {
            packet: &packet,
            pacer,
            batch: args.port.batch,
            asking,
            lateness: interval_ns.map(Lateness::new),
            early: WakeEarly::new(interval_ns.unwrap_or(0)),
        };
        let (departures, lateness) = transmit(queue, &worker, offer.teller(), packets, departures, wait)?;
        if let Some(lateness) = lateness {
            let mut all = late.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *all {
                Some(all) => all.merge(&lateness),
                None => *all = Some(lateness),
            }
        }
        finish(queue, &worker, departures, &collected)
    })?;
    session::take_back(&mut port);
    let stats = port.stats()?;
    let queues = session::counters(&port)?;
    let link_after = port.interface().state().ok();
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
    result.sender_lateness = (late.into_inner().unwrap_or_else(PoisonError::into_inner)).and_then(|all| all.result());
    collected.tell(&port, &mut result);
    result.packets = transmit_ledger(
        &result.queues,
        session::in_flight(&port),
        &link_before,
        link_after.as_ref(),
    );
    let skipped = result.cycle.as_ref().map_or(0, |cycle| cycle.skipped_cycles);
    result.packets.generated += ran.unsent + skipped;
    result.transmitted = rates(stats.own.tx_packets, stats.own.tx_bytes, flow.header_len(), ran.sent);
    account(&mut result);
    let record = system::interface(
        port.interface(),
        link_after.as_ref().unwrap_or(&link_before),
        Some(port.report()),
    );
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

/// What a queue sends, and when.
struct Packets<'a> {
    packet: &'a [u8],
    pacer: Pacer,
    batch: u32,
    asking: Asking,
    /// How late packets of the schedule are sent; `None` without one.
    lateness: Option<Lateness>,
    early: WakeEarly,
}

/// Sends until the end of the run. Returns the record of the departures, and of the lateness.
fn transmit(
    queue: &mut Queue,
    worker: &Worker<'_>,
    mut teller: Teller,
    packets: Packets<'_>,
    mut departures: Option<Departures>,
    wait: Wait,
) -> Result<(Option<Departures>, Option<Lateness>)> {
    let Packets {
        packet,
        mut pacer,
        batch,
        asking,
        mut lateness,
        mut early,
    } = packets;
    let mut clock = FastClock::new();
    loop {
        teller.tell([&mut *queue]);
        let now = clock.now_ns();
        let due = pacer.backlog(now);
        // In this order: what comes due while the thread has to wait, after the end, is not sent.
        if worker.stop.is_set() {
            break;
        }
        if due == 0 {
            // What the kernel has not taken yet shall not wait for the next packet of a slow schedule.
            if worker.unless_down(queue.flush())?.is_some() {
                idle(wait, pacer.next_due_ns(), &mut clock, &mut early);
            } else if let Some(lateness) = &mut lateness {
                lateness.held_up_until(clock.now_ns());
            }
            continue;
        }
        let claimed = worker.claim(u32::try_from(due).unwrap_or(u32::MAX).min(batch));
        if claimed == 0 {
            // The others may still give back what they cannot send, and send it themselves.
            return Ok((departures, lateness));
        }
        let before = queue.counters().tx_packets;
        let done = asking.send(queue, claimed, packet, 0);
        worker.unless_down(done)?;
        // Also a link that is down has a TX ring with some room.
        let sent = u32::try_from(queue.counters().tx_packets - before).unwrap_or(claimed);
        if let Some((lateness, due_ns)) = lateness.as_mut().zip(pacer.intended_ns(pacer.position())) {
            lateness.record(due_ns, now, u64::from(sent));
            if sent < claimed {
                lateness.held_up_until(clock.now_ns());
            }
        }
        pacer.take(now, u64::from(sent));
        worker.give_back(claimed - sent);
        worker.sent(u64::from(sent));
        if let Some(departures) = &mut departures {
            departures.collect(queue)?;
        }
    }
    worker.live.unsent(pacer.unsent(clock.now_ns()));
    Ok((departures, lateness))
}

/// Counters are read after everything has left.
fn finish(queue: &mut Queue, worker: &Worker<'_>, departures: Option<Departures>, collected: &Collected) -> Result<()> {
    while worker.unless_down(queue.flush())?.is_none() && !worker.stop.is_set() {}
    match departures {
        Some(departures) => departures.finish(queue, worker, collected),
        None => worker.drain(queue),
    }
}

/// Waits for the next packet of the schedule, in steps short enough to see the end of the run. Asks
/// to be woken as early as waking up takes, and spins for the rest.
fn idle(wait: Wait, due_ns: u64, clock: &mut FastClock, early: &mut WakeEarly) {
    let Wait::Poll(longest) = wait else {
        std::hint::spin_loop();
        return;
    };
    let now = clock.now_ns();
    let wake_ns = due_ns.saturating_sub(early.early_ns());
    if wake_ns > now {
        std::thread::sleep(Duration::from_nanos(wake_ns - now).min(longest));
        let now = clock.now_ns();
        if now < wake_ns {
            return;
        }
        early.woke(now - wake_ns);
    } else {
        early.too_late_to_sleep();
    }
    while clock.now_ns() < due_ns {
        std::hint::spin_loop();
    }
}
