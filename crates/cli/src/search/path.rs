//! The path that is searched, and one trial on it.

use std::time::Duration;

use anyhow::{Result, bail};
use ringside_measure::latency::RttRecorder;
use ringside_measure::pace::Pacer;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::search::{Outcome, Trial};
use ringside_measure::sequence::Tracker;
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_wire::udp::ChecksumState;
use ringside_xsk::{Direction, Error, Filter, Port, Queue, Wait};

use super::args::{Args, Mix};
use crate::args::PortArgs;
use crate::clock::FastClock;
use crate::output::note;
use crate::stop::Stop;
use crate::{session, target};

/// Packets of a trial that are known at a time: an answer that comes after as many others is not counted.
const WINDOW: usize = 1 << 20;

/// How much later than its end a trial may still send what it could not before, in parts of its duration.
const LATE: u64 = 20;

/// Where packets go in and come out. Opened once for all trials.
pub(super) struct Path {
    near: Port,
    /// Where they come out, if not where they went in.
    far: Option<Port>,
    flow: UdpFlow,
    mtu: u32,
    batch: u32,
    drain: Duration,
    session: u32,
    clock: FastClock,
}

/// What came of a trial.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) rtt: RttRecorder,
}

impl Path {
    pub(super) fn open(args: &Args) -> Result<Self> {
        let (port, output) = (&args.port, &args.output);
        let interface = session::interface(port, output)?;
        let flow = target::flow(&interface, &args.flow)?;
        let (direction, filter) = match &args.receive {
            None => (Direction::Both, Filter::UdpPort(args.flow.from_port)),
            Some(_) => (Direction::Transmit, Filter::None),
        };
        let near = session::open(interface, port, direction, filter, None)?;
        let far = match &args.receive {
            None => None,
            Some(name) if *name == port.interface => {
                bail!("--receive {name}: packets go in there; leave it out if they come back to it")
            }
            Some(name) => {
                let far = PortArgs {
                    interface: name.clone(),
                    queues: None,
                    ..port.clone()
                };
                let interface = session::interface(&far, output)?;
                Some(session::open(
                    interface,
                    &far,
                    Direction::Receive,
                    Filter::UdpPort(args.flow.to_port),
                    None,
                )?)
            }
        };
        note(near.report());
        if let Some(far) = &far {
            note(far.report());
        }
        let mtu = session::link(&near)?.mtu;
        let mut clock = FastClock::new();
        let session = u32::try_from(clock.now_ns() & 0xffff_ffff).expect("masked") ^ std::process::id().rotate_left(16);
        Ok(Self {
            near,
            far,
            flow,
            mtu,
            batch: port.batch,
            drain: args.drain,
            session,
            clock,
        })
    }

    /// Bytes of the smallest packet that holds a probe.
    pub(super) fn smallest(&self) -> u32 {
        u32::try_from(self.flow.header_len() + HEADER_LEN)
            .expect("small")
            .max(60)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &Port> {
        std::iter::once(&self.near).chain(&self.far)
    }

    /// Whether times are round trips.
    pub(super) fn there_and_back(&self) -> bool {
        self.far.is_none()
    }

    /// The packets of a mix, to be filled in.
    pub(super) fn packets(&self, mix: &Mix) -> Result<Vec<Vec<u8>>> {
        mix.sizes
            .iter()
            .map(|&size| target::packet(&self.flow, size, HEADER_LEN, &self.near, self.mtu))
            .collect()
    }

    /// Runs one trial with these packets, in turn, and waits for what is still on its way.
    pub(super) fn run(&mut self, trial: Trial, packets: &mut [Vec<u8>], stop: &Stop) -> Result<Done> {
        // What of an earlier trial comes now is none of this one's.
        self.session = self.session.wrapping_add(1);
        let start = self.clock.now_ns() + 100_000;
        let end = start + trial.duration_ns + trial.duration_ns / LATE + 10_000_000;
        let mut pump = Pump {
            flow: self.flow,
            session: self.session,
            kind: if self.far.is_some() { Kind::Request } else { Kind::Reply },
            pacer: Pacer::per_second(trial.load_pps, start)?,
            packets,
            tracker: Tracker::new(WINDOW),
            rtt: RttRecorder::new(),
            next: 0,
            left: trial.packets(),
            clock: &mut self.clock,
        };
        let mut near: Vec<&mut Queue> = self.near.queues_mut().collect();
        let mut far: Vec<&mut Queue> = self.far.iter_mut().flat_map(|port| port.queues_mut()).collect();
        while pump.left > 0 && !stop.is_set() {
            let now = pump.clock.now_ns();
            if now > end {
                break;
            }
            pump.send(near[0], now, self.batch)?;
            pump.receive(if far.is_empty() { &mut near } else { &mut far })?;
        }
        up(near[0].flush())?;
        let mut quiet_since = pump.clock.now_ns();
        let drain = session::nanos(self.drain);
        while pump.tracker.counts().received < pump.next {
            let now = pump.clock.now_ns();
            if pump.receive(if far.is_empty() { &mut near } else { &mut far })? {
                quiet_since = now;
            } else if now.saturating_sub(quiet_since) > drain {
                break;
            }
        }
        // Frames that were sent come home before the next trial, whatever became of their packets.
        up(near[0].drain(self.drain))?;
        let outcome = Outcome {
            intended: trial.packets(),
            sent: pump.next,
            received: pump.tracker.counts().received,
        };
        Ok(Done { outcome, rtt: pump.rtt })
    }
}

/// What a call gave; nothing while the link is down, which is a loss and no failure.
fn up<T>(result: Result<T, Error>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::LinkDown { .. } | Error::NoProgress { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends and receives one trial's packets.
struct Pump<'a> {
    flow: UdpFlow,
    session: u32,
    kind: Kind,
    pacer: Pacer,
    packets: &'a mut [Vec<u8>],
    tracker: Tracker,
    rtt: RttRecorder,
    /// Sequence number of the next packet.
    next: u64,
    /// Packets still to be sent.
    left: u64,
    clock: &'a mut FastClock,
}

impl Pump<'_> {
    /// Sends what is due, a burst at the most.
    fn send(&mut self, queue: &mut Queue, now: u64, batch: u32) -> Result<()> {
        let due = self.pacer.backlog(now).min(self.left).min(u64::from(batch));
        if due == 0 {
            return up(queue.flush()).map(drop);
        }
        let before = queue.counters().tx_packets;
        let headers = self.flow.header_len();
        let mut sequence = self.next;
        let sent_ns = self.clock.now_ns();
        let sent = queue.send_with(u32::try_from(due).unwrap_or(batch), |slot| {
            let at = usize::try_from(sequence).unwrap_or(0) % self.packets.len();
            let packet = &mut self.packets[at];
            let probe = Probe {
                kind: Kind::Request,
                clock: Clock::Monotonic,
                session: self.session,
                sequence,
                intended_ns: self.pacer.intended_ns(sequence).unwrap_or(sent_ns),
                sent_ns,
            };
            let length = packet.len() - headers;
            let written = probe.encode(&mut packet[headers..]).is_ok() && self.flow.write(packet, length).is_ok();
            debug_assert!(written, "the packet has room for a probe");
            let fits = slot.write(packet);
            debug_assert!(fits, "the size was checked against the room");
            sequence += 1;
        });
        up(sent)?;
        let sent = queue.counters().tx_packets - before;
        for sequence in self.next..self.next + sent {
            self.tracker.on_sent(sequence);
        }
        self.next += sent;
        self.left -= sent;
        self.pacer.take(now, sent);
        Ok(())
    }

    /// Takes what has come; true: something of this trial had.
    fn receive(&mut self, queues: &mut [&mut Queue]) -> Result<bool> {
        let mut came = false;
        for queue in queues {
            let Some(mut burst) = up(queue.recv(Wait::Spin))? else {
                continue;
            };
            if burst.is_empty() {
                continue;
            }
            let now = self.clock.now_in_order_ns();
            for packet in &mut burst {
                let frame = packet.data();
                let Ok(udp) = parse_udp(frame) else { continue };
                let Ok(probe) = Probe::decode(&frame[udp.payload.clone()]) else {
                    continue;
                };
                if probe.kind != self.kind
                    || probe.session != self.session
                    || udp.checksum_state(frame) == ChecksumState::Invalid
                {
                    continue;
                }
                came = true;
                if self.tracker.on_received(probe.sequence).is_first() {
                    self.rtt.record(probe.intended_ns, probe.sent_ns, now);
                }
            }
        }
        Ok(came)
    }
}
