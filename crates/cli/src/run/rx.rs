//! `ringside rx`: receive and drop.

use anyhow::Result;
use ringside_measure::schema::Operation;
use ringside_xsk::{Direction, Queue, Wait};

use super::hints::{Source, Table, Tables};
use super::{account, conclude, missed, rates, receive_ledger};
use crate::args::RxArgs;
use crate::live::{self, Offer, Teller};
use crate::session::{self, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system};

pub(crate) fn run(args: &RxArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let interface = session::interface(&args.port, &args.run.output)?;
    let web = live::listen(&args.run.prometheus)?;
    let source = Source::new(args, &interface)?;
    let mut port = session::open_with(
        interface.clone(),
        &args.port,
        Direction::Receive,
        args.filter,
        None,
        |(builder, options)| Ok((source.apply(builder)?, source.options(options))),
    )?;
    output::opened(args.run.verbose, port.report());
    let before = session::link(&port)?;
    let wait = session::wait(&args.port);
    let tables = Tables::default();
    let offer = Offer::start("rx", &[&port], web)?;
    let watched = Watched::ports([&port]);
    let lanes: Vec<&mut Queue> = port.queues_mut().collect();
    let ran = session::run(lanes, watched, &args.port, &args.run, &stop, |queue, worker| {
        let mut table = source.table();
        let ended = receive(queue, &worker, offer.teller(), wait, args.touch, table.as_mut());
        if let Some(table) = table {
            tables.add(table);
        }
        ended
    })?;
    let stats = port.stats()?;
    let redirected = session::settle(&mut port)?;
    let queues = session::counters(&port)?;
    let mut result = session::result(Operation::Rx, &ran, queues);
    result.packets = receive_ledger(
        &result.queues,
        redirected,
        missed(&before, &session::link_after(&port, &before)),
    );
    result.received = rates(stats.own.rx_packets, stats.own.rx_bytes, 0, ran.received);
    account(&mut result);
    result.hints = tables.result(&port);
    let record = system::interface(
        port.interface(),
        &session::link_after(&port, &before),
        Some(port.report()),
    );
    let seen: u64 = port
        .program_counters()?
        .iter()
        .map(ringside_xsk::QueueCounters::packets)
        .sum();
    drop(port);
    let got = result.packets.delivered();
    output::finish(&args.run, vec![record], result)?;
    let hint = if source.is_foreign() {
        format!(
            "the XDP program of {} has redirected nothing to a socket",
            args.port.interface
        )
    } else if seen == 0 {
        "no packet at all reached the interface: is the sender running, and does it send to this interface's MAC address?".to_owned()
    } else {
        format!("{seen} packet(s) reached the interface and went up the stack: see the filter and the queues")
    };
    conclude(ran, got, &format!("rx {}", args.port.interface), &hint)
}

fn receive(
    queue: &mut Queue,
    worker: &Worker<'_>,
    mut teller: Teller,
    wait: Wait,
    touch: bool,
    mut hints: Option<&mut Table>,
) -> Result<()> {
    let mut checksum = 0_u64;
    while !worker.stop.is_set() {
        teller.tell([&mut *queue]);
        let Some(mut burst) = worker.unless_down(queue.recv(wait))? else {
            continue;
        };
        let packets = u32::try_from(burst.len()).unwrap_or(u32::MAX);
        if packets == 0 {
            continue;
        }
        if touch {
            for packet in &mut burst {
                let bytes = packet.parts().flatten();
                checksum += bytes.map(|&byte| u64::from(byte)).sum::<u64>();
            }
        }
        if let Some(table) = &mut hints {
            table.note(&mut burst);
        }
        drop(burst);
        worker.received(u64::from(packets));
        worker.took(packets);
    }
    std::hint::black_box(checksum);
    Ok(())
}
