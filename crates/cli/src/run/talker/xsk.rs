//! Through an XDP socket, with launch times where the NIC keeps them.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::schema::{LaunchBy, Via};
use ringside_nic::clock::{Tai, Timestamp};
use ringside_xsk::tx_metadata::{self, LaunchTime, TxMeta, TxMetadata};
use ringside_xsk::{Direction, Filter, Queue};

use super::frames::Frames;
use super::{Ended, Talk, Talker, Through, Told};
use crate::args::{List, bad_value};
use crate::run::cyclic;
use crate::session::{self, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system};

pub(super) fn run(talk: Talk<'_>, frames: Frames, stop: &Stop) -> Result<Ended> {
    let (args, interface) = (talk.args, &talk.interface);
    let mut port_args = args.port.clone();
    port_args.queues.get_or_insert_with(|| List(vec![0]));
    let mut port = session::open_with(
        interface.clone(),
        &port_args,
        Direction::Transmit,
        Filter::None,
        None,
        |(builder, options)| {
            let wanted = TxMetadata::new().launch_time(LaunchTime::IfAvailable);
            Ok((builder, options.tx_metadata(wanted)))
        },
    )?;
    let obtained = port.queues().first().and_then(|queue| queue.report().tx_metadata);
    let by_device = obtained.and_then(|obtained| obtained.launch_time) == Some(tx_metadata::LaunchBy::Device);
    // A driver that does not say so sends at once, most likely.
    let (kept_by, lead) = match by_device {
        true => (LaunchBy::Device, Some(args.lead)),
        false => (LaunchBy::Thread, None),
    };
    let longest = talk
        .schedule
        .classes()
        .iter()
        .map(|class| class.frame_bytes)
        .max()
        .unwrap_or(0) as usize;
    let room = port.queues().first().map_or(0, Queue::packet_room);
    if longest > room {
        bad_value!("frames of {longest} bytes do not fit the UMEM's of {room}: give larger ones with --frame-size");
    }
    output::opened(args.run.verbose, port.report());
    if !by_device {
        output::note("  the driver does not keep launch times: the thread waits for each packet");
    }
    let before = session::link(&port)?;
    let kept = OnceLock::new();
    let watched = Watched::ports([&port]);
    let lanes: Vec<_> = port.queues_mut().zip([frames]).collect();
    let ran = session::run(lanes, watched, &port_args, &args.run, stop, |lane, worker| {
        let (queue, frames) = lane;
        let mut talker = Talker::new(&talk, frames, Socket { queue }, lead);
        let plan = talker.plan();
        let (cycle, ended) = cyclic::transmit(&mut talker, &worker, &plan)?;
        let (sent, socket) = talker.finish();
        _ = kept.set((cycle, sent));
        ended?;
        std::thread::sleep(lead.unwrap_or(Duration::ZERO));
        while worker.unless_down(socket.queue.flush())?.is_none() && !worker.stop.is_set() {}
        worker.drain(socket.queue)
    })?;
    let (cycle, sent) = kept.into_inner().context("the sending thread left no result")?;
    session::take_back(&mut port);
    let after = interface.state().ok();
    let record = system::interface(interface, after.as_ref().unwrap_or(&before), Some(port.report()));
    let (result, ran) = talk.result(Told {
        ran,
        cycle,
        via: Via::AfXdp,
        kept_by,
        lead,
        missed: None,
        sent,
        queues: session::counters(&port)?,
        in_flight: session::in_flight(&port),
        before,
        after,
    })?;
    Ok(Ended { record, result, ran })
}

struct Socket<'a> {
    queue: &'a mut Queue,
}

impl Through for Socket<'_> {
    fn hand_over(&mut self, _: usize, frame: &[u8], launch_ns: Option<u64>, worker: &Worker<'_>) -> Result<bool> {
        let before = self.queue.counters().tx_packets;
        let done = match launch_ns {
            None => self.queue.send_with(1, |slot| {
                let fits = slot.write(frame);
                debug_assert!(fits, "the size was checked against the room");
            }),
            Some(at) => self.queue.send_asking_with(1, |slot| {
                let fits = slot.write(frame);
                debug_assert!(fits, "the size was checked against the room");
                TxMeta::new().launch_time(Timestamp::<Tai>::from_nanos(at))
            }),
        };
        // The kernel may have left it on the TX ring.
        let done = done.and_then(|_| self.queue.flush());
        worker.unless_down(done)?;
        Ok(self.queue.counters().tx_packets != before)
    }

    fn between(&mut self) -> Result<()> {
        Ok(())
    }
}
