//! `ringside ping`: round trips to a `ringside echo`, one or more probes in flight, by demand or by schedule.

mod args;
mod load;
mod pinger;
pub(crate) mod table;
mod under_load;

use anyhow::{Result, bail};
use ringside_measure::counters::{Ledger, LossCause};
use ringside_measure::probe::{HEADER_LEN, STAMPED_LEN};
use ringside_measure::schema::{Operation, QueueCounters, XdpStatistics};
use ringside_measure::sequence::Counts;
use ringside_nic::LinkState;
use ringside_xsk::{Direction, Filter, Queue};

pub(crate) use self::args::{LoadArg, LoadArgs};
use self::load::SelfLoad;
pub(crate) use self::load::flood;
use self::pinger::Pinger;
use self::under_load::UnderLoad;
use super::{account, conclude, rates};
use crate::args::{PingArgs, RunArgs, bad_value};
use crate::live::{self, Offer};
use crate::serve::{self, Clocks, Dialled, OneWay};
use crate::session::{self, Ran, Watched};
use crate::stop::Stop;
use crate::{output, system, target};

/// Probes and the load in their own flow are what a server limits.
fn within(args: &PingArgs, most: u64) -> Result<()> {
    let loads_itself = (args.load.under_load.as_ref()).is_some_and(|kinds| kinds.contains(&LoadArg::Own));
    let probes = args.probe_rate().unwrap_or(0);
    if loads_itself
        && args
            .load
            .load_rate
            .is_none_or(|load| load.saturating_add(probes) > most)
    {
        bail!(
            "the server allows {most} packets/s (--max-rate), and {probes} probes/s and the load in their flow come to more: give less with --rate and --load-rate"
        );
    }
    Ok(())
}

/// Says what stands for options of ping(8) that mean something else here.
fn note_options_of_ping(args: &PingArgs) {
    if let (Some(interval), None) = (args.run.interval, args.rate) {
        output::note(format_args!(
            "-i is the time between interval statistics; ping's -i {0} is --rate {1}",
            interval.as_secs_f64(),
            (1.0 / interval.as_secs_f64()).ceil()
        ));
    }
    if let (Some(cpus), None) = (&args.port.cpus, args.run.count) {
        let numbers: Vec<String> = cpus.0.iter().map(u32::to_string).collect();
        output::note(format_args!(
            "-c is the list of CPUs; ping's -c {0} is --count {0}",
            numbers.join(",")
        ));
    }
}

pub(crate) fn run(args: &PingArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    note_options_of_ping(args);
    let filter = Filter::UdpPort(args.flow.from_port);
    // Resolved before the port is opened: with the kernel's own neighbour table in the state the user knows.
    let interface = session::interface(&args.port, &args.run.output)?;
    let dialled = args.remote.dial()?;
    if args.one_way && dialled.is_none() {
        bad_value!(
            "--one-way: times of one direction take a `ringside serve` at the other end: name its host in the interface's place, or with --server"
        );
    }
    let web = live::listen(&args.run.prometheus)?;
    let mut flow = target::flow(&interface, &args.flow)?;
    let mut under_load = UnderLoad::new(args, &interface, &flow)?;
    let mut port = session::open(interface.clone(), &args.port, Direction::Both, filter, None)?;
    let least = if args.one_way { STAMPED_LEN } else { HEADER_LEN };
    let smallest = u32::try_from(flow.header_len() + least).expect("small");
    let size = args.size.unwrap_or(smallest);
    let link = session::link(&port)?;
    let template = target::packet(&flow, ("--size", size), least, &port, link.mtu)?;
    // What it gives goes back at once.
    if port.queues_mut().next().is_none_or(|queue| queue.alloc().is_none()) {
        bad_value!(
            "--frames {}: all of them wait for packets; a ping needs twice as many as one packet takes, to receive into and \
             to send from",
            port.queues()[0].report().frames
        );
    }
    output::opened(args.run.verbose, port.report());
    // Opened there before the first packet: on which port, it tells.
    let session = Dialled::session()?;
    let mut far = match dialled {
        Some(dialled) => {
            let turns = under_load.as_ref().map(|turns| turns.longest(args.timeout));
            Some(dialled.start(args.far(&flow, session, size, turns))?)
        }
        None => None,
    };
    if let Some(far) = &far {
        flow.dst.set_port(far.ready.port);
        output::note(far.describe());
    }
    output::note(target::describe(&flow, size));
    let sessions = under_load.as_ref().map_or(1, UnderLoad::conditions);
    let mut pinger = Pinger::new(args, flow, template, sessions);
    if let Some(far) = &far {
        pinger.number_from(session);
        if let Some(most) = far.ready.most_pps {
            within(args, most)?;
            pinger.pace_within(most);
        }
        if args.one_way {
            pinger.one_way = Some(OneWay::new(Clocks::compare(far)?, args.probe_rate().is_some()));
        }
    }
    if let Some(plan) = &under_load {
        output::note(plan.plan());
        if plan.loads_itself() {
            let size = ("--load-size", args.load.load_size);
            let template = target::packet(&flow, size, HEADER_LEN, &port, link.mtu)?;
            let queue = &port.queues()[0];
            pinger.load_with(|session| {
                SelfLoad::new(flow, template, session, args.load.load_rate, queue, args.port.batch)
            });
        }
    }
    let offer = Offer::start("ping", &[&port], web)?;
    pinger.teller = Some(offer.teller());
    let beside = far.as_ref().map_or(0, serve::Far::spinning_here);
    let watched = Watched::ports([&port]).beside(beside);
    let queues: Vec<&mut Queue> = port.queues_mut().collect();
    let wait = session::wait(&args.port);
    // One thread does it all: the answers may come in on any queue.
    let lanes = vec![(queues, &mut pinger, under_load.as_mut())];
    // Turns have their own ends.
    let mut run = RunArgs {
        time: args.run.time.filter(|_| sessions == 1),
        ..args.run.clone()
    };
    if let Some(far) = &mut far {
        far.limit(&mut run);
        far.go(&stop)?;
    }
    let ran = session::run(
        lanes,
        watched,
        &args.port,
        &run,
        &stop,
        |(mut queues, pinger, under_load), worker| {
            // Allocated before the first probe.
            offer.times(worker.live.times());
            let start_ns = worker.start();
            match under_load {
                Some(turns) => turns.run(pinger, &mut queues, &worker, wait),
                None => pinger.run(&mut queues, &worker, wait, start_ns),
            }
        },
    )?;

    let stats = port.stats()?;
    let mut result = session::result(Operation::Ping, &ran, session::counters(&port)?);
    let counts: Counts = pinger.sessions.iter().map(|session| session.tracker.counts()).sum();
    let link_after = session::link_after(&port, &link);
    // Load on the same sockets is in the same counters.
    let known = (sessions == 1).then(|| known_losses(&result.queues, &link, &link_after, pinger.invalid));
    result.packets = ledger(&counts, ran.unsent, known.unwrap_or_default());
    let sent = counts.sent + under_load.as_ref().map_or(0, UnderLoad::own_sent);
    let far = far.map(|far| serve::finish(far, sent, pinger.one_way.as_ref(), pinger.clock.bound_ns()));
    if let Some(far) = far.as_ref().filter(|_| sessions == 1) {
        serve::tell_apart(&mut result.packets, far);
    }
    account(&mut result);
    result.sequence = Some(counts);
    result.frame_bytes = Some(u64::from(size));
    result.payload_bytes = Some(u64::from(size) - pinger.flow.header_len() as u64);
    #[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    {
        // With load beside them the probes are a part of what is sent.
        result.target_pps = args.rate.filter(|_| sessions == 1).map(|rate| rate as f64);
    }
    // With a schedule alone the depth only bounds memory.
    result.depth_packets = args.depth.map(u64::from).or(args.probe_rate().is_none().then_some(1));
    let headers = pinger.flow.header_len();
    result.received = rates(stats.own.rx_packets, stats.own.rx_bytes, headers, ran.received);
    result.transmitted = rates(stats.own.tx_packets, stats.own.tx_bytes, headers, ran.sent);
    result.sender_lateness = pinger.sender_lateness();
    result.latency = Some(pinger.latency(&pinger.sessions[0]));
    result.under_load = under_load.map(|turns| turns.result(&pinger));
    let record = system::interface(port.interface(), &link_after, Some(port.report()));
    drop(port);
    let invalid = pinger.invalid;
    output::finish_with(&args.run, vec![record], result, far.clone())?;
    if invalid != 0 {
        output::note(format_args!(
            "ringside: {invalid} answer(s) had a wrong UDP checksum and were not counted"
        ));
    }
    serve::lost(far.as_ref())?;
    no_answers(ran, args, &counts)
}

/// Where probes or their answers were lost on this host, by its counters.
fn known_losses(
    queues: &[QueueCounters],
    before: &LinkState,
    after: &LinkState,
    invalid: u64,
) -> Vec<(LossCause, u64)> {
    let kernel = |field: fn(&XdpStatistics) -> u64| {
        let counters = queues.iter().filter_map(|queue| queue.xdp_statistics.as_ref());
        counters.map(field).sum::<u64>()
    };
    let dropped = after.stats.tx_dropped.wrapping_sub(before.stats.tx_dropped);
    vec![
        (LossCause::TxInvalidDescs, kernel(|k| k.tx_invalid_descs)),
        (LossCause::LinkTxDropped, dropped),
        (LossCause::AnswerRxDropped, kernel(|k| k.rx_dropped)),
        (LossCause::AnswerRxRingFull, kernel(|k| k.rx_ring_full)),
        (LossCause::AnswerBadChecksum, invalid),
    ]
}

/// Each probe was answered or lost. What this host's counters know is said first; they may know of others' packets, too, so
/// no more is put down to them than was lost.
fn ledger(counts: &Counts, unsent: u64, known: Vec<(LossCause, u64)>) -> Ledger {
    let mut ledger = Ledger {
        generated: counts.sent + unsent,
        sent: counts.sent,
        received: Some(counts.received),
        ..Ledger::default()
    };
    let mut left = counts.lost;
    for (cause, count) in known {
        ledger.lose(cause, count.min(left));
        left -= count.min(left);
    }
    ledger.lose(LossCause::NoAnswer, left);
    ledger
}

fn no_answers(ran: Ran, args: &PingArgs, counts: &Counts) -> Result<()> {
    let hint = format!(
        "{} probe(s) sent, none answered: is `ringside echo` running there, on UDP port {}?",
        counts.sent, args.flow.to_port
    );
    conclude(ran, counts.received, &format!("ping {}", args.port.interface), &hint)
}
