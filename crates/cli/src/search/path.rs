//! The path that is searched, and one trial on it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ringside_measure::control::{SESSION_STEP, Start, Tally, Work};
use ringside_measure::latency::RttRecorder;
use ringside_measure::pace::Pacer;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe, SHORT_LEN, ShortProbe};
use ringside_measure::schema::FarEnd;
use ringside_measure::search::capacity::FEEDBACK_NS;
use ringside_measure::search::{Outcome, Trial};
use ringside_measure::sequence::Tracker;
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_wire::udp::ChecksumState;
use ringside_xsk::{Direction, Error, Filter, Port, Queue, Wait};

use super::args::{Args, Method, Mix};
use crate::args::{PortArgs, bad_value};
use crate::clock::FastClock;
use crate::output::{self, note};
use crate::run::whole::Whole;
use crate::serve::{Dialled, Far};
use crate::session::{is_too_long, mtu_was_changed};
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
    /// Who sends them back or counts them, if that is a `ringside serve`.
    server: Option<Server>,
    flow: UdpFlow,
    mtu: u32,
    batch: u32,
    multi_buffer: bool,
    drain: Duration,
    session: u32,
    /// Packets of all trials.
    sent: u64,
    /// Packets of all trials that came out of the path.
    pub(super) received: u64,
    clock: FastClock,
}

/// A `ringside serve` at the other end.
pub(super) struct Server {
    pub(super) end: Far,
    /// Number of its session; the trials' are the next ones.
    session: u32,
    /// It counts, and sends nothing back.
    counts: bool,
}

/// What came of a trial.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) rtt: RttRecorder,
}

impl Path {
    pub(super) fn open(args: &Args, stop: &Stop) -> Result<Self> {
        let (port, output) = (&args.port, &args.output);
        let interface = session::interface(port, output)?;
        let dialled = args.remote.dial()?;
        let mut flow = target::flow(&interface, &args.flow)?;
        let (direction, filter) = match &args.receive {
            None => (Direction::Both, Filter::UdpPort(args.flow.from_port)),
            Some(_) => (Direction::Transmit, Filter::None),
        };
        let near = session::open(interface, port, direction, filter, None)?;
        let far = match &args.receive {
            None => None,
            Some(name) if *name == port.interface => {
                bad_value!("--receive {name}: packets go in there; leave it out if they come back to it")
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
        output::opened(args.verbose, near.report());
        if let Some(far) = &far {
            output::opened(args.verbose, far.report());
        }
        let mtu = session::link(&near)?.mtu;
        let server = match dialled {
            Some(dialled) => {
                let session = Dialled::session()?;
                let mut end = dialled.start(args.far(&flow, session))?;
                flow.dst.set_port(end.ready.port);
                note(end.describe());
                // From here on its loss ends the search.
                end.go(stop)?;
                Some(Server {
                    end,
                    session,
                    counts: args.is_one_way(),
                })
            }
            None => None,
        };
        let mut clock = FastClock::new();
        let session = u32::try_from(clock.now_ns() & 0xffff_ffff).expect("masked") ^ std::process::id().rotate_left(16);
        Ok(Self {
            near,
            far,
            server,
            flow,
            mtu,
            batch: port.batch,
            multi_buffer: port.multi_buffer,
            drain: args.drain,
            session,
            sent: 0,
            received: 0,
            clock,
        })
    }

    /// Bytes of the smallest probe: a server has to have a whole one.
    fn least(&self) -> usize {
        match self.server {
            Some(_) => HEADER_LEN,
            None => SHORT_LEN,
        }
    }

    /// Bytes of the smallest packet that holds a probe.
    pub(super) fn smallest(&self) -> u32 {
        u32::try_from(self.flow.header_len() + self.least())
            .expect("small")
            .max(60)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &Port> {
        std::iter::once(&self.near).chain(&self.far)
    }

    /// Whether times are round trips.
    pub(super) fn there_and_back(&self) -> bool {
        self.far.is_none() && !self.counts_there()
    }

    /// Whether a server counts, so that there are no times at all.
    pub(super) fn counts_there(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.counts)
    }

    /// Returns an error if packets were sent and none came out of the path.
    pub(super) fn check_answers(&self, args: &Args) -> Result<()> {
        if self.sent == 0 || self.received != 0 {
            return Ok(());
        }
        let (sent, interface) = (self.sent, &args.port.interface);
        let port = args.flow.to_port;
        match (&args.receive, &self.server) {
            (Some(far), _) => bail!(
                "search {interface}: {sent} packet(s) sent, none arrived at {far}: does the device \
                 in between forward UDP port {port}?"
            ),
            (None, Some(_)) => bail!(
                "search {interface}: {sent} packet(s) sent, none arrived at the server: does a \
                 firewall drop UDP port {}?",
                self.flow.dst.port()
            ),
            (None, None) => bail!(
                "search {interface}: {sent} packet(s) sent, none answered: is `ringside echo` \
                 running there, on UDP port {port}?"
            ),
        }
    }

    /// Returns how many threads of the server spin on this machine.
    pub(super) fn spinning_here(&self) -> u32 {
        self.server.as_ref().map_or(0, |server| server.end.spinning_here())
    }

    /// Ends the session with the server; what it told.
    pub(super) fn finish(&mut self) -> Option<FarEnd> {
        Some(self.server.take()?.end.finish(self.sent))
    }

    /// The number of the next trial.
    fn next_trial(&mut self) -> u32 {
        let next = self.session.wrapping_add(1);
        self.session = match &self.server {
            // The server knows these only.
            Some(server) => server.session | (next % SESSION_STEP),
            None => next,
        };
        self.session
    }

    /// The packets of a mix, to be filled in.
    pub(super) fn packets(&self, mix: &Mix) -> Result<Vec<Vec<u8>>> {
        mix.sizes
            .iter()
            .map(|&size| target::packet(&self.flow, ("--sizes", size), self.least(), &self.near, self.mtu))
            .collect()
    }

    /// Returns why a search has ended: where packets are too long now, the new MTU.
    pub(super) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let link = session::link(&self.near).ok();
        match link.filter(|link| link.mtu != self.mtu && is_too_long(&error)) {
            Some(link) => mtu_was_changed(&link.name, link.mtu, &error),
            None => error,
        }
    }

    /// Runs one trial with these packets, in turn, and waits for what is still on its way.
    pub(super) fn run(&mut self, trial: Trial, packets: &mut [Vec<u8>], stop: &Stop) -> Result<Done> {
        // What of an earlier trial comes now is none of this one's.
        let session = self.next_trial();
        let start = self.clock.now_ns() + 100_000;
        let end = start + trial.duration_ns + trial.duration_ns / LATE + 10_000_000;
        let mut pump = Pump {
            flow: self.flow,
            session,
            kind: if self.far.is_some() { Kind::Request } else { Kind::Reply },
            pacer: Pacer::per_second(trial.load_pps, start)?,
            sent_at: Times::of(packets, self.flow.header_len()),
            whole: Whole::new(self.multi_buffer),
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
        let counts_there = self.server.as_ref().filter(|server| server.counts);
        let comes_back = counts_there.is_none();
        while comes_back && pump.tracker.counts().received < pump.next {
            let now = pump.clock.now_ns();
            if pump.receive(if far.is_empty() { &mut near } else { &mut far })? {
                quiet_since = now;
            } else if now.saturating_sub(quiet_since) > drain {
                break;
            }
        }
        // Frames that were sent come home before the next trial, whatever became of their packets.
        up(near[0].drain(self.drain))?;
        let received = match counts_there {
            Some(server) => server.counted(session, pump.next, self.drain, stop)?,
            None => pump.tracker.counts().received,
        };
        let outcome = Outcome {
            intended: trial.packets(),
            sent: pump.next,
            received,
        };
        let rtt = pump.rtt;
        self.sent += outcome.sent;
        self.received += outcome.received;
        Ok(Done { outcome, rtt })
    }
}

impl Server {
    /// What has come there of a trial, when nothing has come for as long as a path may hold packets back.
    fn counted(&self, trial: u32, sent: u64, drain: Duration, stop: &Stop) -> Result<u64> {
        let mut before = None;
        let mut quiet_since = Instant::now();
        loop {
            let Some(tally) = self.end.count(trial) else {
                // The keeper has told why, and what was not counted is no trial.
                stop.set();
                return Ok(0);
            };
            let came = tally.received_packets;
            if before != Some(came) {
                (before, quiet_since) = (Some(came), Instant::now());
            }
            if came >= sent || quiet_since.elapsed() > drain || stop.is_set() {
                return Ok(came);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Args {
    /// What a search asks the far end for.
    fn far(&self, flow: &UdpFlow, session: u32) -> Start {
        let work = if self.is_one_way() { Work::Count } else { Work::Echo };
        Start {
            rate_pps: self.range().ok().map(|range| range.max_pps()),
            // A trial that has begun in time is ended.
            duration_ns: Some(session::nanos(self.time + self.longest_trial() + self.drain)),
            frame_bytes: self
                .mixes(0)
                .0
                .iter()
                .flat_map(|mix| mix.sizes.clone())
                .max()
                .unwrap_or(0),
            feedback_ns: (self.method == Method::Rfc9097).then_some(FEEDBACK_NS),
            ..self.remote.far(work, flow, session)
        }
    }
}

/// Packets of the server's whole session, one after the other, at whatever rate.
pub(super) struct Stream<'a> {
    pump: Pump<'a>,
    queue: &'a mut Queue,
    end: &'a Far,
    batch: u32,
    sent: &'a mut u64,
}

impl Path {
    /// To a server that counts, with feedback.
    pub(super) fn stream<'a>(&'a mut self, packets: &'a mut [Vec<u8>]) -> Result<Stream<'a>> {
        let server = self.server.as_ref().context("a server that counts")?;
        let start = self.clock.now_ns();
        Ok(Stream {
            pump: Pump {
                flow: self.flow,
                session: server.session,
                kind: Kind::Reply,
                pacer: Pacer::unlimited(start),
                sent_at: Times::of(packets, self.flow.header_len()),
                whole: Whole::new(self.multi_buffer),
                packets,
                tracker: Tracker::new(WINDOW),
                rtt: RttRecorder::new(),
                next: 0,
                left: u64::MAX,
                clock: &mut self.clock,
            },
            queue: self.near.queues_mut().next().context("a queue")?,
            end: &server.end,
            batch: self.batch,
            sent: &mut self.sent,
        })
    }

    /// What the server has told since.
    pub(super) fn tallies(&self) -> Vec<Tally> {
        self.server
            .as_ref()
            .map(|server| server.end.tallies())
            .unwrap_or_default()
    }
}

impl Stream<'_> {
    pub(super) fn now_ns(&mut self) -> u64 {
        self.pump.clock.now_ns()
    }

    pub(super) fn batch(&self) -> u32 {
        self.batch
    }

    pub(super) fn tallies(&self) -> Vec<Tally> {
        self.end.tallies()
    }

    /// Sends what is due by `pacer`.
    pub(super) fn send(&mut self, pacer: &mut Pacer, now: u64) -> Result<()> {
        std::mem::swap(&mut self.pump.pacer, pacer);
        let done = self.pump.send(self.queue, now, self.batch);
        std::mem::swap(&mut self.pump.pacer, pacer);
        done
    }

    /// Waits for what is on the ring; the packets sent.
    pub(super) fn finish(self) -> Result<u64> {
        up(self.queue.drain(Duration::from_millis(200)))?;
        *self.sent += self.pump.next;
        Ok(self.pump.next)
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
    sent_at: Times,
    whole: Whole,
    /// Sequence number of the next packet.
    next: u64,
    /// Packets still to be sent.
    left: u64,
    clock: &'a mut FastClock,
}

impl Pump<'_> {
    /// Sends what is due, at most a burst.
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
            let intended_ns = self.pacer.intended_ns(sequence).unwrap_or(sent_ns);
            let length = packet.len() - headers;
            let written = match length >= HEADER_LEN {
                true => Probe {
                    kind: Kind::Request,
                    clock: Clock::Monotonic,
                    session: self.session,
                    sequence,
                    intended_ns,
                    sent_ns,
                }
                .encode(&mut packet[headers..]),
                false => {
                    self.sent_at.note(sequence, intended_ns, sent_ns);
                    ShortProbe {
                        kind: Kind::Request,
                        session: self.session,
                        sequence,
                    }
                    .encode(&mut packet[headers..])
                }
            };
            let written = written.is_ok() && self.flow.write(packet, length).is_ok();
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
                let frame = self.whole.read(&packet);
                let Some(heard) = heard(frame) else { continue };
                if heard.kind != self.kind || heard.session != self.session {
                    continue;
                }
                came = true;
                if self.tracker.on_received(heard.sequence).is_first() {
                    let (intended_ns, sent_ns) = match heard.times {
                        Some(times) => times,
                        None => self.sent_at.of_packet(heard.sequence),
                    };
                    self.rtt.record(intended_ns, sent_ns, now);
                }
            }
        }
        Ok(came)
    }
}

/// A probe that has come, whole or short.
struct Heard {
    kind: Kind,
    session: u32,
    sequence: u64,
    /// When it was to be sent and when it was; a short one does not carry them.
    times: Option<(u64, u64)>,
}

fn heard(frame: &[u8]) -> Option<Heard> {
    let udp = parse_udp(frame).ok()?;
    let payload = &frame[udp.payload.clone()];
    let heard = match Probe::decode(payload) {
        Ok(probe) => Heard {
            kind: probe.kind,
            session: probe.session,
            sequence: probe.sequence,
            times: Some((probe.intended_ns, probe.sent_ns)),
        },
        Err(_) => {
            let probe = ShortProbe::decode(payload).ok()?;
            Heard {
                kind: probe.kind,
                session: probe.session,
                sequence: probe.sequence,
                times: None,
            }
        }
    };
    (udp.checksum_state(frame) != ChecksumState::Invalid).then_some(heard)
}

/// Times of packets that have no room for them: as many as the tracker knows.
struct Times(Box<[(u64, u64)]>);

impl Times {
    /// With memory only where some packet is short.
    fn of(packets: &[Vec<u8>], headers: usize) -> Self {
        let some_short = packets.iter().any(|packet| packet.len() < headers + HEADER_LEN);
        Self(vec![(0, 0); if some_short { WINDOW } else { 0 }].into_boxed_slice())
    }

    fn note(&mut self, sequence: u64, intended_ns: u64, sent_ns: u64) {
        let at = Self::at(sequence);
        self.0[at] = (intended_ns, sent_ns);
    }

    fn of_packet(&self, sequence: u64) -> (u64, u64) {
        self.0.get(Self::at(sequence)).copied().unwrap_or_default()
    }

    fn at(sequence: u64) -> usize {
        usize::try_from(sequence % WINDOW as u64).unwrap_or(0)
    }
}
