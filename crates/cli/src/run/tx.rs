//! `ringside tx`: transmit, as fast as possible or paced.

use anyhow::{Result, bail};
use ringside_measure::pace::Pacer;
use ringside_measure::schema::Operation;
use ringside_xsk::{Direction, Filter, Queue};

use super::{account, not_empty, rates, transmit_ledger};
use crate::args::TxArgs;
use crate::clock::now_ns;
use crate::session::{self, Worker};
use crate::stop::Stop;
use crate::{output, system, target};

pub(crate) fn run(args: &TxArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let mut port = session::open(&args.port.interface, &args.port, Direction::Transmit, Filter::None)?;
    let link_before = session::link(&port)?;
    let flow = target::flow(port.interface(), &args.flow)?;
    let room = port.queues()[0].packet_room().min(link_before.mtu as usize + 14);
    let packet = target::packet(&flow, args.size, room, |_| ())?;
    eprintln!("{}", port.report());
    eprintln!("  {} -> {} ({} -> {}), {} bytes", flow.src, flow.dst, flow.src_mac, flow.dst_mac, packet.len());

    let lanes: Vec<&mut Queue> = port.queues_mut().collect();
    let share = args.rate.map(|rate| per_queue(rate, lanes.len())).transpose()?;
    let ran = session::run(lanes, &args.port, &args.run, &stop, |queue, worker| {
        let pacer = match &share {
            Some(rates) => Pacer::per_second_f64(rates[worker.number], now_ns())?,
            None => Pacer::unlimited(now_ns()),
        };
        transmit(queue, &worker, &packet, pacer, args.port.batch)
    })?;
    let stats = port.stats()?;
    let queues = session::counters(&port)?;
    let link_after = session::link(&port)?;
    let mut result = session::result(Operation::Tx, &ran, queues);
    result.frame_bytes = Some(packet.len() as u64);
    result.payload_bytes = Some((packet.len() - flow.header_len()) as u64);
    #[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    {
        result.target_pps = args.rate.map(|rate| rate as f64);
    }
    result.packets = transmit_ledger(&result.queues, &link_before, &link_after);
    result.transmitted = rates(stats.own.tx_packets, stats.own.tx_bytes, &ran);
    account(&mut result);
    let record = system::interface(port.interface(), &link_after, Some(port.report()));
    drop(port);
    let sent = result.packets.sent;
    output::finish(&args.run, vec![record], result)?;
    not_empty(sent, &format!("tx {}", args.port.interface), "no packet could be sent: is the link up?")
}

/// The rate of each queue, so that all together give exactly the rate asked for.
fn per_queue(rate: u64, queues: usize) -> Result<Vec<f64>> {
    if rate == 0 {
        bail!("--rate 0 sends nothing: give packets per second, or leave it out for as fast as possible");
    }
    #[allow(clippy::cast_precision_loss, reason = "rates and queues are far below 2^53")]
    Ok(vec![rate as f64 / queues as f64; queues])
}

fn transmit(queue: &mut Queue, worker: &Worker<'_>, packet: &[u8], mut pacer: Pacer, batch: u32) -> Result<()> {
    while !worker.stop.is_set() {
        let due = pacer.due(now_ns()).saturating_sub(pacer.position());
        if due == 0 {
            std::hint::spin_loop();
            continue;
        }
        let claimed = worker.claim(u32::try_from(due).unwrap_or(u32::MAX).min(batch));
        if claimed == 0 {
            worker.stop.set();
            break;
        }
        let sent = queue.send_with(claimed, |slot| {
            let fits = slot.write(packet);
            debug_assert!(fits, "the size was checked against the frame's room");
        })?;
        pacer.take(now_ns(), u64::from(sent));
        worker.give_back(claimed - sent);
        worker.live.sent(u64::from(sent));
    }
    // Counters are read after everything has left.
    queue.flush()?;
    queue.drain(session::POLL * 4)?;
    Ok(())
}
