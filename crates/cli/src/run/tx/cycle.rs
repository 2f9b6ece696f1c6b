//! `ringside tx --cycle`: a packet at each deadline.

use std::time::Duration;

use anyhow::Result;
use ringside_measure::cycle::Deadline;
use ringside_xsk::Queue;

use super::asking::{Asking, Departures};
use crate::args::{CycleClock, List, PortArgs, TxArgs, bad_value};
use crate::live::Teller;
use crate::run::cyclic::{self, Due, Plan, Sender, Sent};
use crate::session::{Worker, nanos};

/// The port of a cyclic sender has one queue: the first, if none was named.
pub(super) fn port(args: &TxArgs) -> Result<PortArgs> {
    let mut port = args.port.clone();
    let queues = port.queues.get_or_insert_with(|| List(vec![0]));
    if queues.0.len() != 1 {
        bad_value!("--cycle sends on one queue: name one with --queues");
    }
    Ok(port)
}

/// An XDP socket.
pub(super) struct Xsk<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) packet: &'a [u8],
    pub(super) asking: Asking,
    pub(super) departures: Option<Departures>,
    pub(super) teller: Teller,
}

impl Sender for Xsk<'_> {
    fn send(&mut self, due: Due, worker: &Worker<'_>) -> Result<Sent> {
        let before = self.queue.counters().tx_packets;
        let done = self.asking.send(self.queue, 1, self.packet, due.deadline_ns);
        // The kernel may have left it on the TX ring.
        let done = done.and_then(|_| self.queue.flush());
        worker.unless_down(done)?;
        // Also a link that is down has a TX ring with some room.
        Ok(match self.queue.counters().tx_packets == before {
            true => Sent::No,
            false => Sent::Yes,
        })
    }

    fn between(&mut self) -> Result<()> {
        self.teller.tell([&mut *self.queue]);
        match &mut self.departures {
            Some(departures) => departures.collect(self.queue),
            None => Ok(()),
        }
    }
}

/// Launch times are of CLOCK_TAI.
pub(super) fn check(args: &TxArgs) -> Result<()> {
    if args.ask.launch_time.is_some() && args.clock != CycleClock::Tai {
        bad_value!("launch times are of CLOCK_TAI, and the deadlines they follow: add --clock tai");
    }
    Ok(())
}

/// One packet a cycle.
pub(super) fn plan(args: &TxArgs, period: Duration) -> Plan {
    let only = Deadline {
        offset_ns: 0,
        span_ns: nanos(period),
    };
    Plan {
        period,
        deadlines: vec![only],
        clock: args.clock,
        waiting: cyclic::waiting(args.spin, args.sleep),
        ahead: Duration::ZERO,
    }
}
