//! `ringside tx --cycle --via af-packet`: the same deadlines through a packet socket, launch times by `SO_TXTIME`.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::counters::LossCause;
use ringside_measure::schema::{LaunchBy, Operation, QueueCounters, Via};
use ringside_nic::Interface;

use super::asking::launch;
use super::cycle;
use crate::args::{TxArgs, bad_value};
use crate::peer::packet::Timed;
use crate::run::cyclic::{self, Due, Sender, Sent};
use crate::run::{account, conclude, rates, transmit_ledger};
use crate::session::{self, Watched, Worker, nanos};
use crate::stop::Stop;
use crate::{output, system, target};

pub(super) fn run(args: &TxArgs, period: Duration) -> Result<()> {
    for (given, option) in [
        (args.port.queues.is_some(), "--queues: the kernel chooses the queue"),
        (args.ask.tx_stamps.is_some(), "--tx-stamps"),
        (args.ask.checksum_offload.is_some(), "--checksum-offload"),
        (args.ask.launch_time_required, "--launch-time-required"),
        (args.run.prometheus.prometheus.is_some(), "--prometheus"),
    ] {
        if given {
            bad_value!("--via af-packet does not go with {option}");
        }
    }
    let stop = Stop::on_signals()?;
    let interface = session::interface(&args.port, &args.run.output)?;
    let flow = target::flow(&interface, &args.flow)?;
    let link_before = interface.state()?;
    let frame = target::frame(&flow, args.size, &interface, link_before.mtu)?;
    let socket = Timed::open(interface.index(), args.ask.launch_time.is_some(), None)?;
    let kept_by = keeper(&interface)?;
    output::note(format_args!(
        "{interface}: a packet socket{}",
        match (args.ask.launch_time, kept_by) {
            (None, _) => "",
            (_, LaunchBy::Etf) => " with SO_TXTIME (CLOCK_TAI); launch times are kept by the queueing discipline etf",
            _ =>
                " with SO_TXTIME (CLOCK_TAI); launch times are ignored, for there is no queueing discipline etf here: \
                 tc qdisc add dev INTERFACE parent CLASS etf clockid CLOCK_TAI delta NS",
        }
    ));
    output::note(target::describe(&flow, args.size));

    let kept = OnceLock::new();
    let lanes = vec![(socket, &frame)];
    let ran = session::run(
        lanes,
        Watched::link(&interface),
        &args.port,
        &args.run,
        &stop,
        |(socket, frame), worker| {
            let mut sender = Packets {
                socket,
                frame,
                lead_ns: args.ask.launch_time.map(nanos),
                sent: 0,
                missed: 0,
            };
            let (cycle, ended) = cyclic::transmit(&mut sender, &worker, &cycle::plan(args, period))?;
            // What etf throws away it tells within the lead.
            std::thread::sleep(args.ask.launch_time.unwrap_or_default().min(session::POLL));
            sender.missed += sender.socket.missed()?;
            _ = kept.set((cycle, sender.sent, sender.missed));
            ended
        },
    )?;
    let (mut cycle, sent, missed) = kept.into_inner().context("the sending thread left no result")?;
    let link_after = interface.state().ok();
    cycle.via = Via::AfPacket;
    cycle.launch = args.ask.launch_time.map(|lead| {
        let mut told = launch(lead, kept_by);
        told.missed_packets = (kept_by == LaunchBy::Etf).then_some(missed);
        told
    });
    let queue = QueueCounters {
        interface: interface.name().to_owned(),
        queue: 0,
        received_packets: 0,
        sent_packets: sent,
        kicks: sent,
        waits: 0,
        rx_starved: 0,
        xdp_statistics: None,
        xdp_verdicts: None,
    };
    let mut result = session::result(Operation::Tx, &ran, vec![queue]);
    result.frame_bytes = Some(frame.len() as u64);
    result.payload_bytes = Some((frame.len() - flow.header_len()) as u64);
    result.target_pps = Some(1.0 / period.as_secs_f64());
    result.cycle = Some(cycle);
    result.packets = transmit_ledger(&result.queues, 0, &link_before, link_after.as_ref());
    let unexplained = result.packets.sent - result.packets.delivered() - result.packets.lost();
    result
        .packets
        .lose(LossCause::LaunchTimeMissed, missed.min(unexplained));
    result.transmitted = rates(sent, sent * frame.len() as u64, flow.header_len(), ran.sent);
    account(&mut result);
    let record = system::interface(&interface, link_after.as_ref().unwrap_or(&link_before), None);
    let sent = result.packets.sent;
    output::finish(&args.run, vec![record], result)?;
    conclude(
        ran,
        sent,
        &format!("tx {}", args.port.interface),
        "no packet could be sent: is the link up?",
    )
}

/// Who keeps to launch times of packet sockets.
fn keeper(interface: &Interface) -> Result<LaunchBy> {
    let etf = interface.qdiscs()?.iter().any(|qdisc| qdisc.kind == "etf");
    Ok(if etf { LaunchBy::Etf } else { LaunchBy::Nobody })
}

struct Packets<'a> {
    socket: Timed,
    frame: &'a [u8],
    lead_ns: Option<u64>,
    sent: u64,
    missed: u64,
}

impl Sender for Packets<'_> {
    fn send(&mut self, due: Due, worker: &Worker<'_>) -> Result<Sent> {
        let at = self.lead_ns.map(|lead| due.deadline_ns.saturating_add(lead));
        let sent = match self.socket.send_at(self.frame, at) {
            Ok(sent) => sent,
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                worker.pause();
                false
            }
            Err(error) => return Err(error).context("sending through a packet socket"),
        };
        self.sent += u64::from(sent);
        Ok(if sent { Sent::Yes } else { Sent::No })
    }

    fn between(&mut self) -> Result<()> {
        self.missed += self.socket.missed()?;
        Ok(())
    }
}
