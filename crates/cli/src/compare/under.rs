//! What loads the path of round trips beside them: the asker's own flow, or another sender's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::pace::Pacer;
use ringside_measure::probe::{Clock, Kind, Probe};
use ringside_measure::schema::LoadKind;

use super::bed::Bed;
use super::slot::Place;
use crate::clock::now_ns;
use crate::peer::Peer;
use crate::peer::packet::{Packet, Receive};
use crate::pin;

/// Bytes of a foreign frame, where the MTU allows it.
const FOREIGN_BYTES: usize = 1024;
/// UDP port of foreign load: discard.
const DISCARD: u16 = 9;
/// Packets of the asker's own load between two looks for its answer.
const OWN_BURST: u64 = 16;

/// A condition, and the packets a second that make it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Under {
    pub(crate) kind: LoadKind,
    pub(crate) rate: u64,
}

impl Under {
    pub(crate) const IDLE: Self = Self {
        kind: LoadKind::Idle,
        rate: 0,
    };
}

/// The load of a turn.
pub(crate) enum Beside {
    Nothing,
    /// Requests of another session, through the asker's own socket; they are answered, too.
    Own(u64),
    Foreign(Box<Foreign>),
}

/// Another sender's load: a packet socket, past the IP stack and its queues.
pub(crate) struct Foreign {
    sender: Packet,
    place: Place,
    rate: u64,
}

impl Beside {
    /// From A to B, where the asker is.
    pub(crate) fn open(under: Under, bed: &Bed, place: Place) -> Result<Self> {
        match under.kind {
            LoadKind::Idle => Ok(Self::Nothing),
            LoadKind::SelfInduced => Ok(Self::Own(under.rate)),
            LoadKind::Foreign => {
                let mtu = bed.a.run(|| bed.a.interface.state())?.mtu;
                let bytes = FOREIGN_BYTES.min(mtu as usize + 14);
                let (mut flow, mut frame) = bed.frame(true, bytes)?;
                flow.dst.set_port(DISCARD);
                flow.write(&mut frame, bytes - flow.header_len())
                    .context("writing a frame of the load")?;
                let index = bed.a.interface.index();
                let sender = bed.a.run(|| Packet::open(index, Receive::Nothing, flow, frame))?;
                Ok(Self::Foreign(Box::new(Foreign {
                    sender,
                    place,
                    rate: under.rate,
                })))
            }
        }
    }
}

impl Foreign {
    /// Sends until told to end.
    pub(crate) fn run(mut self, end: &AtomicBool) -> Result<()> {
        if let Some(cpu) = self.place.cpu {
            pin::to_cpu(cpu)?;
        }
        let mut pacer = Pacer::per_second(self.rate, now_ns())?;
        while !end.load(Ordering::Relaxed) {
            let now = now_ns();
            if !pacer.is_due(now) {
                let pause = Duration::from_nanos(pacer.next_due_ns() - now);
                std::thread::sleep(pause.min(Duration::from_millis(1)));
                continue;
            }
            // A batch at a time: the schedule is kept over batches.
            let sent = self.sender.transmit().context("foreign load")?;
            pacer.take(now, sent.max(1));
        }
        self.sender.finish()
    }
}

/// The asker's own load, between its probes.
pub(crate) struct Own {
    pacer: Option<Pacer>,
    payload: Vec<u8>,
    session: u32,
    sequence: u64,
}

impl Own {
    pub(crate) fn new(beside: &Beside, payload_len: usize, session: u32) -> Result<Self> {
        Ok(Self {
            pacer: match beside {
                Beside::Own(rate) => Some(Pacer::per_second(*rate, now_ns())?),
                Beside::Nothing | Beside::Foreign(_) => None,
            },
            payload: vec![0; payload_len],
            session,
            sequence: 0,
        })
    }

    /// Sends what is due.
    pub(crate) fn send(&mut self, peer: &mut dyn Peer) -> Result<()> {
        let Some(pacer) = &mut self.pacer else { return Ok(()) };
        let now = now_ns();
        for _ in pacer.take(now, OWN_BURST) {
            let probe = Probe {
                kind: Kind::Request,
                clock: Clock::Monotonic,
                session: self.session,
                sequence: self.sequence,
                intended_ns: now,
                sent_ns: now,
            };
            self.sequence += 1;
            probe.encode(&mut self.payload)?;
            peer.ask(&self.payload)?;
        }
        Ok(())
    }
}
