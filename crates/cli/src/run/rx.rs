//! `ringside rx`: receive and drop.

use anyhow::Result;
use ringside_measure::schema::Operation;
use ringside_xsk::{Direction, Queue, Wait};

use super::{account, not_empty, rates, receive_ledger};
use crate::args::RxArgs;
use crate::session::{self, Worker};
use crate::stop::Stop;
use crate::{output, system};

pub(crate) fn run(args: &RxArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let mut port = session::open(&args.port.interface, &args.port, Direction::Receive, args.filter)?;
    eprintln!("{}", port.report());
    let wait = session::wait(&args.port);
    let lanes: Vec<&mut Queue> = port.queues_mut().collect();
    let ran = session::run(lanes, &args.port, &args.run, &stop, |queue, worker| {
        receive(queue, &worker, wait, args.touch)
    })?;
    // Settled: what the sockets still hold was redirected and is taken now, so that the ledger adds up.
    for queue in port.queues_mut() {
        while !queue.recv(Wait::Spin)?.is_empty() {}
    }
    let stats = port.stats()?;
    let queues = session::counters(&port)?;
    let mut result = session::result(Operation::Rx, &ran, queues);
    result.packets = receive_ledger(&result.queues);
    result.received = rates(ran.received, stats.own.rx_bytes, &ran);
    account(&mut result);
    let record = system::interface(port.interface(), &session::link(&port)?, Some(port.report()));
    let seen: u64 = port.program_counters()?.iter().map(ringside_xsk::QueueCounters::packets).sum();
    drop(port);
    let got = result.packets.received;
    output::finish(&args.run, vec![record], result)?;
    let hint = if seen == 0 {
        "no packet at all reached the interface: is the sender running, and does it send to this interface's MAC address?".to_owned()
    } else {
        format!("{seen} packet(s) reached the interface and went up the stack: see the filter and the queues")
    };
    not_empty(got, &format!("rx {}", args.port.interface), &hint)
}

fn receive(queue: &mut Queue, worker: &Worker<'_>, wait: Wait, touch: bool) -> Result<()> {
    let mut checksum = 0_u64;
    while !worker.stop.is_set() {
        let mut burst = queue.recv(wait)?;
        let packets = u32::try_from(burst.len()).unwrap_or(u32::MAX);
        if packets == 0 {
            continue;
        }
        if touch {
            for packet in &mut burst {
                checksum += packet.data().iter().map(|&byte| u64::from(byte)).sum::<u64>();
            }
        }
        drop(burst);
        worker.live.received(u64::from(packets));
        worker.took(packets);
    }
    std::hint::black_box(checksum);
    Ok(())
}
