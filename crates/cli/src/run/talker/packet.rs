//! Through packet sockets: one for each class, for its priority is the socket's.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::schema::{LaunchBy, QueueCounters, Via};
use ringside_nic::Interface;

use super::args::QdiscArg;
use super::frames::Frames;
use super::qdisc::OURS;
use super::{Ended, Talk, Talker, Through, Told};
use crate::peer::packet::Timed;
use crate::run::cyclic;
use crate::session::{self, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system};

pub(super) fn run(talk: Talk<'_>, frames: Frames, stop: &Stop) -> Result<Ended> {
    let (args, interface) = (talk.args, &talk.interface);
    let (kept_by, after_ns) = keeper(interface)?;
    let lead = (kept_by != LaunchBy::Thread).then_some(args.lead);
    let base = if args.qdisc == QdiscArg::AsItIs { 0 } else { OURS };
    let priorities: Vec<u8> = talk.schedule.classes().iter().map(|class| base + class.pcp).collect();
    let sockets = priorities
        .iter()
        .map(|&priority| Timed::open(interface.index(), lead.is_some(), Some(priority)));
    let sockets = Sockets {
        sockets: sockets.collect::<Result<_>>()?,
        missed: 0,
        after_ns,
    };
    output::note(format_args!(
        "{interface}: a packet socket for each class, {}",
        match kept_by {
            LaunchBy::Etf => "with SO_TXTIME (CLOCK_TAI), kept by the queueing discipline etf",
            LaunchBy::Taprio => "with SO_TXTIME (CLOCK_TAI); taprio opens its gates in the windows",
            _ => "each packet awaited by the thread: there is neither etf nor taprio here to keep times",
        }
    ));
    let before = interface.state()?;
    let kept = OnceLock::new();
    let lanes = vec![(frames, sockets)];
    let ran = session::run(
        lanes,
        Watched::link(interface),
        &args.port,
        &args.run,
        stop,
        |lane, worker| {
            let (frames, sockets) = lane;
            let mut talker = Talker::new(&talk, frames, sockets, lead);
            let plan = talker.plan();
            let (cycle, ended) = cyclic::transmit(&mut talker, &worker, &plan)?;
            // What is kept leaves, or is thrown away, within the lead and a cycle.
            std::thread::sleep(lead.map_or(Duration::ZERO, |lead| lead + plan.period.min(session::POLL)));
            cyclic::Sender::between(&mut talker)?;
            let (sent, sockets) = talker.finish();
            _ = kept.set((cycle, sent, sockets.missed));
            ended
        },
    )?;
    let (cycle, mut sent, missed) = kept.into_inner().context("the sending thread left no result")?;
    for (class, &priority) in sent.iter_mut().zip(&priorities) {
        class.socket_priority = Some(priority.into());
    }
    let all = sent.iter().map(|class| class.sent_packets).sum();
    let queue = QueueCounters {
        interface: interface.name().to_owned(),
        queue: 0,
        received_packets: 0,
        sent_packets: all,
        kicks: all,
        waits: 0,
        rx_starved: 0,
        xdp_statistics: None,
        xdp_verdicts: None,
    };
    let after = interface.state().ok();
    let record = system::interface(interface, after.as_ref().unwrap_or(&before), None);
    let (result, ran) = talk.result(Told {
        ran,
        cycle,
        via: Via::AfPacket,
        kept_by,
        lead,
        missed: lead.map(|_| missed),
        sent,
        queues: vec![queue],
        in_flight: 0,
        before,
        after,
    })?;
    Ok(Ended { record, result, ran })
}

/// Who keeps to the times that packets carry, and what has to be added to these.
fn keeper(interface: &Interface) -> Result<(LaunchBy, u64)> {
    let all = interface.qdiscs()?;
    let has = |kind: &str| all.iter().any(|one| one.kind == kind);
    Ok(match (has("etf"), has("taprio")) {
        // Where the NIC does not keep the time, a packet leaves when etf gives it to the driver: so long before.
        (true, _) => {
            let leaves = interface
                .qdisc_setup()
                .ok()
                .flatten()
                .map(|setup| setup.etf)
                .unwrap_or_default();
            let early = leaves
                .iter()
                .filter(|leaf| !leaf.offload)
                .map(|leaf| leaf.delta_ns)
                .max();
            (LaunchBy::Etf, early.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0))
        }
        (false, true) => (LaunchBy::Taprio, AFTER_OPENING_NS),
        (false, false) => (LaunchBy::Thread, 0),
    })
}

struct Sockets {
    sockets: Vec<Timed>,
    missed: u64,
    /// Added to the times of packets.
    after_ns: u64,
}

/// taprio throws away a packet whose time is the very moment at which its gate opens: it has to be after it.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/find_entry_to_transmit>
const AFTER_OPENING_NS: u64 = 1;

impl Through for Sockets {
    fn hand_over(&mut self, class: usize, frame: &[u8], launch_ns: Option<u64>, worker: &Worker<'_>) -> Result<bool> {
        let socket = self.sockets.get(class).context("a socket for each class")?;
        match socket.send_at(frame, launch_ns.map(|at| at + self.after_ns)) {
            Ok(sent) => Ok(sent),
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                worker.pause();
                Ok(false)
            }
            Err(error) => Err(error).context("sending through a packet socket"),
        }
    }

    fn between(&mut self) -> Result<()> {
        for socket in &self.sockets {
            self.missed += socket.missed()?;
        }
        Ok(())
    }
}
