//! Asks, listens, and keeps what is known of probes that are under way.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use ringside_measure::cycle::WakeEarly;
use ringside_measure::latency::{Latency, LiveLatency, RttRecorder};
use ringside_measure::pace::{Lateness, Pacer};
use ringside_measure::probe::{Clock, FarStamps, Kind, Probe};
use ringside_measure::schema::{LatencyResult, SenderLateness};
use ringside_measure::sequence::Tracker;
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_wire::udp::ChecksumState;
use ringside_xsk::{Queue, Wait};

use super::load::SelfLoad;
use crate::args::PingArgs;
use crate::clock::FastClock;
use crate::live::Teller;
use crate::run::whole::Whole;
use crate::serve::OneWay;
use crate::session::{self, Worker};

/// For how long copies of answers are waited for at least: a busy machine may take it.
const LEAST_FOR_COPIES_NS: u64 = 20_000_000;

/// Time between two packets of a schedule.
fn interval_ns(rate: u64) -> u64 {
    1_000_000_000 / rate.max(1)
}

/// Probes of one session: what was sent, and what came back.
pub(super) struct Session {
    number: u32,
    pub(super) tracker: Tracker,
    pub(super) rtt: RttRecorder,
    /// Round trips of a turn, from the intended sending; whoever wants them takes them.
    pub(super) turn: Latency,
    /// Sequence number of the next probe.
    next: u64,
}

impl Session {
    fn new(number: u32) -> Self {
        Self {
            number,
            // A second at 1 M probes/s: an answer that comes after as many others is still known.
            tracker: Tracker::new(1 << 20),
            rtt: RttRecorder::new(),
            turn: Latency::new(),
            next: 0,
        }
    }
}

/// Probes under way and what is known of those that came back.
pub(super) struct Pinger {
    pub(super) flow: UdpFlow,
    template: Vec<u8>,
    /// One for each condition.
    pub(super) sessions: Vec<Session>,
    /// That of the probes that are sent now.
    current: usize,
    /// Whether round trips are also kept turn by turn.
    in_turns: bool,
    /// Packets of our own that load the path.
    pub(super) load: Option<SelfLoad>,
    /// Times of each direction, where both ends' clocks can be compared.
    pub(super) one_way: Option<OneWay>,
    depth: usize,
    /// For how long, where that is said.
    time: Option<Duration>,
    /// Probes to send between two looks for answers.
    batch: u32,
    timeout_ns: u64,
    rate: Option<u64>,
    /// How late probes of the schedule are sent; `None` without one.
    lateness: Option<Lateness>,
    /// The path has taken no probe that was due.
    is_held_up: bool,
    early: WakeEarly,
    /// Sequence and time of sending of the probes in flight, oldest first; 0 as time: answered.
    in_flight: VecDeque<(u64, u64)>,
    unanswered: usize,
    pub(super) invalid: u64,
    pub(super) clock: FastClock,
    whole: Whole,
    /// Tells of the queues when somebody asks.
    pub(super) teller: Option<Teller>,
}

impl Pinger {
    /// One for so many sessions, the numbers of which nobody else has.
    pub(super) fn new(args: &PingArgs, flow: UdpFlow, template: Vec<u8>, sessions: usize) -> Self {
        // With a rate the depth is no limit unless it was given: the schedule is kept also when answers are late.
        let rate = args.probe_rate();
        let depth = args.depth.unwrap_or(if rate.is_some() { 65_536 } else { 1 }) as usize;
        let timeout_ns = session::nanos(args.timeout);
        let mut clock = FastClock::new();
        let number = u32::try_from(clock.now_ns() & 0xffff_ffff).expect("masked") ^ std::process::id().rotate_left(16);
        let numbers = std::iter::successors(Some(number), |number| Some(number.wrapping_add(1)));
        Self {
            flow,
            template,
            sessions: numbers.take(sessions).map(Session::new).collect(),
            current: 0,
            in_turns: sessions > 1,
            load: None,
            one_way: None,
            depth,
            time: args.run.time,
            batch: args.port.batch,
            timeout_ns,
            rate,
            lateness: rate.map(|rate| Lateness::new(interval_ns(rate))),
            is_held_up: false,
            early: WakeEarly::new(rate.map_or(u64::MAX, interval_ns)),
            in_flight: VecDeque::with_capacity(depth + 1),
            unanswered: 0,
            invalid: 0,
            clock,
            whole: Whole::new(args.port.multi_buffer),
            teller: None,
        }
    }

    /// Gives the sessions numbers from this one on: the far end knows them. To be called before the load is made.
    pub(super) fn number_from(&mut self, first: u32) {
        for (number, session) in (first..).zip(&mut self.sessions) {
            session.number = number;
        }
    }

    /// Probes without a schedule come no faster than this, which is what the other end takes.
    pub(super) fn pace_within(&mut self, most: u64) {
        if self.rate.is_none() {
            crate::output::note(format_args!(
                "  probes come at no more than {most} a second, as the server asks (--max-rate)"
            ));
            self.rate = Some(most);
        }
    }

    /// Returns the round trips of a session.
    pub(super) fn latency(&self, session: &Session) -> LatencyResult {
        let times = LatencyResult::round_trip(&session.rtt, Clock::Monotonic);
        match self.lateness {
            Some(_) => times,
            None => times.without_schedule(),
        }
    }

    /// Returns how late the probes of the schedule were sent; `None` without a schedule.
    pub(super) fn sender_lateness(&self) -> Option<SenderLateness> {
        self.lateness.as_ref()?.result()
    }

    /// Has load beside the probes, of a session of its own.
    pub(super) fn load_with(&mut self, make: impl FnOnce(u32) -> SelfLoad) {
        let last = self.sessions.last().map_or(0, |session| session.number);
        self.load = Some(make(last.wrapping_add(1)));
    }

    /// Sends probes from `start_ns` until the worker is to stop, then waits for late answers.
    pub(super) fn run(
        &mut self,
        queues: &mut [&mut Queue],
        worker: &Worker<'_>,
        wait: Wait,
        start_ns: u64,
    ) -> Result<()> {
        let until_ns = session::end_ns(start_ns, self.time);
        self.ask(queues, worker, wait, [start_ns, until_ns])?;
        self.late(queues, worker, wait)?;
        // A copy of the last answer is not there yet when that is.
        let end = self.clock.now_ns().saturating_add(self.copies_ns());
        while self.clock.now_ns() < end {
            let wait = self.sleep(wait, Some(end));
            self.receive(queues, worker, wait)?;
        }
        Ok(())
    }

    /// For how long copies are waited for when all is answered: twice the longest round trip, but no longer than for answers.
    fn copies_ns(&self) -> u64 {
        let round_trips = self.sessions.iter().filter_map(|session| session.rtt.raw().summary());
        round_trips.map(|rtt| rtt.max_ns).max().map_or(0, |longest| {
            (longest.saturating_mul(2))
                .max(LEAST_FOR_COPIES_NS)
                .min(self.timeout_ns)
        })
    }

    /// Probes of a session, until the time or until the worker is to stop.
    pub(super) fn turn(
        &mut self,
        session: usize,
        queues: &mut [&mut Queue],
        worker: &Worker<'_>,
        wait: Wait,
        until_ns: u64,
    ) -> Result<()> {
        self.current = session;
        let start_ns = self.clock.now_ns();
        self.ask(queues, worker, wait, [start_ns, until_ns])
    }

    fn ask(
        &mut self,
        queues: &mut [&mut Queue],
        worker: &Worker<'_>,
        wait: Wait,
        [start_ns, until_ns]: [u64; 2],
    ) -> Result<()> {
        let mut pacer = match self.rate {
            Some(rate) => Pacer::per_second(rate, start_ns)?.until(until_ns),
            None => Pacer::unlimited(start_ns),
        };
        let mut claimed_all = false;
        while !worker.stop.is_set() {
            if let Some(teller) = &mut self.teller {
                teller.tell(queues.iter_mut().map(|queue| &mut **queue));
            }
            let now = self.clock.now_ns();
            if now >= until_ns {
                break;
            }
            self.expire(now);
            if std::mem::take(&mut self.is_held_up)
                && let Some(lateness) = &mut self.lateness
            {
                lateness.held_up_until(now);
            }
            // Sending comes first: a schedule does not wait for answers. But not for long, else they find no room.
            for _ in 0..self.batch {
                if claimed_all || !pacer.is_due(now) {
                    break;
                }
                if self.unanswered >= self.depth {
                    self.is_held_up = true;
                    break;
                }
                if worker.claim(1) == 0 {
                    claimed_all = true;
                    break;
                }
                let sequence = pacer.position();
                // The limit of a server is no schedule.
                let intended = pacer.intended_ns(sequence).filter(|_| self.lateness.is_some());
                if self.send(queues[0], worker, intended)? {
                    pacer.take(now, 1);
                    worker.sent(1);
                } else {
                    worker.give_back(1);
                    self.is_held_up = true;
                    break;
                }
            }
            if claimed_all && self.unanswered == 0 {
                worker.stop.set();
                break;
            }
            // Probes come before the load: what waits here would look like the path's.
            let busy = match &mut self.load {
                Some(load) => load.send(queues[0], worker, now)?,
                None => false,
            };
            let next = (self.rate.is_some() && !claimed_all && self.unanswered < self.depth)
                .then(|| pacer.next_due_ns().min(until_ns));
            if busy {
                self.receive(queues, worker, Wait::Spin)?;
            } else {
                self.rest(queues, worker, wait, next)?;
            }
        }
        if !claimed_all {
            worker.live.unsent(pacer.unsent(self.clock.now_ns()));
        }
        Ok(())
    }

    /// Late answers still count: for the time-out, or a second when somebody waits for the end.
    pub(super) fn late(&mut self, queues: &mut [&mut Queue], worker: &Worker<'_>, wait: Wait) -> Result<()> {
        let mut now = self.clock.now_ns();
        let impatient = now + self.timeout_ns.min(1_000_000_000);
        let end = now.saturating_add(self.timeout_ns);
        while self.unanswered != 0 && now < if worker.stop.is_signal() { impatient } else { end } {
            self.expire(now);
            let wait = self.sleep(wait, None);
            self.receive(queues, worker, wait)?;
            now = self.clock.now_ns();
        }
        self.in_flight.clear();
        self.unanswered = 0;
        Ok(())
    }

    /// Waits for answers until shortly before the next probe of the schedule, as early as waking up
    /// takes: the rest of the time is spent spinning.
    fn rest(&mut self, queues: &mut [&mut Queue], worker: &Worker<'_>, wait: Wait, next_ns: Option<u64>) -> Result<()> {
        let (Wait::Poll(longest), Some(next_ns)) = (wait, next_ns) else {
            let wait = self.sleep(wait, next_ns);
            return self.receive(queues, worker, wait).map(drop);
        };
        let now = self.clock.now_ns();
        let wake_ns = next_ns.saturating_sub(self.early.early_ns());
        if wake_ns <= now {
            if next_ns > now {
                self.early.too_late_to_sleep();
            }
            return self.receive(queues, worker, Wait::Spin).map(drop);
        }
        let piece = Duration::from_nanos(wake_ns - now);
        let came = self.receive(queues, worker, self.bounded(piece.min(longest)))?;
        let now = self.clock.now_ns();
        // A packet wakes the thread, too: what that took is not known.
        if came == 0 && now >= wake_ns {
            self.early.woke(now - wake_ns);
        }
        Ok(())
    }

    /// How long to sleep for an answer: not beyond the next probe of the schedule.
    fn sleep(&mut self, wait: Wait, next_ns: Option<u64>) -> Wait {
        let Wait::Poll(longest) = wait else { return wait };
        let until = next_ns.map_or(longest, |next| {
            Duration::from_nanos(next.saturating_sub(self.clock.now_ns()))
        });
        self.bounded(until.min(longest))
    }

    /// Sleeps no longer than until probes time out.
    fn bounded(&self, longest: Duration) -> Wait {
        Wait::Poll(longest.min(Duration::from_nanos(self.timeout_ns)))
    }

    /// Sends the next probe; false when no frame was free or the link is down.
    fn send(&mut self, queue: &mut Queue, worker: &Worker<'_>, intended: Option<u64>) -> Result<bool> {
        let before = queue.counters().tx_packets;
        let (headers, length) = (self.flow.header_len(), self.template.len() - self.flow.header_len());
        let Session { number, next, .. } = self.sessions[self.current];
        let sequence = next;
        let mut sent_ns = 0;
        let sent = queue.send_with(1, |slot| {
            sent_ns = self.clock.now_ns();
            let probe = Probe {
                kind: Kind::Request,
                clock: Clock::Monotonic,
                session: number,
                sequence,
                intended_ns: intended.unwrap_or(sent_ns),
                sent_ns,
            };
            let payload = &mut self.template[headers..];
            let written = probe.encode(payload).is_ok()
                && (self.one_way.is_none() || FarStamps::ask(payload).is_ok())
                && self.flow.write(&mut self.template, length).is_ok();
            debug_assert!(written, "the template has room for a probe");
            let fits = slot.write(&self.template);
            debug_assert!(fits, "the size was checked against the room");
        });
        worker.unless_down(sent)?;
        // Also a link that is down has a TX ring with some room.
        if queue.counters().tx_packets == before {
            return Ok(false);
        }
        let session = &mut self.sessions[self.current];
        session.next += 1;
        session.tracker.on_sent(sequence);
        // As the times of a result: of the probes without load.
        if let Some((lateness, due_ns)) = self.lateness.as_mut().zip(intended)
            && self.current == 0
        {
            lateness.record(due_ns, sent_ns, 1);
        }
        self.in_flight.push_back((sequence, sent_ns.max(1)));
        self.unanswered += 1;
        Ok(true)
    }

    /// Takes what is there, or what comes meanwhile. Returns the number of packets.
    fn receive(&mut self, queues: &mut [&mut Queue], worker: &Worker<'_>, wait: Wait) -> Result<usize> {
        let mut came = 0;
        let wait = match wait {
            Wait::Poll(timeout) if queues.len() > 1 => {
                session::poll_any(queues.iter().map(|queue| &**queue), timeout)?;
                Wait::Spin
            }
            wait => wait,
        };
        for queue in queues {
            let Some(mut burst) = worker.unless_down(queue.recv(wait))? else {
                continue;
            };
            if burst.is_empty() {
                continue;
            }
            came += burst.len();
            // Not before the answer was there.
            let now = self.clock.now_in_order_ns();
            let mut answers = 0;
            let mut whole = std::mem::take(&mut self.whole);
            for packet in &mut burst {
                answers += u64::from(self.answer(whole.read(&packet), now, worker.live.times()));
            }
            self.whole = whole;
            worker.received(answers);
        }
        Ok(came)
    }

    /// Takes one received packet; true when it is the first answer to one of our probes.
    fn answer(&mut self, frame: &[u8], now: u64, times: &LiveLatency) -> bool {
        let Ok(udp) = parse_udp(frame) else { return false };
        // Before anything in it is believed: a damaged answer is nobody's.
        if udp.checksum_state(frame) == ChecksumState::Invalid {
            self.invalid += 1;
            return false;
        }
        let Ok(probe) = Probe::decode(&frame[udp.payload.clone()]) else {
            return false;
        };
        if probe.kind != Kind::Reply {
            return false;
        }
        if let Some(load) = self.load.as_mut().filter(|load| load.is_own(&probe)) {
            load.came_back();
            return false;
        }
        let Some(of) = self.sessions.iter().position(|session| session.number == probe.session) else {
            self.sessions[self.current].tracker.on_foreign();
            return false;
        };
        let session = &mut self.sessions[of];
        if !session.tracker.on_received(probe.sequence).is_first() {
            return false;
        }
        session.rtt.record(probe.intended_ns, probe.sent_ns, now);
        if let Some(one_way) = &mut self.one_way {
            one_way.record(&frame[udp.payload.clone()], &probe, now);
        }
        if let Some(ns) = now.checked_sub(probe.sent_ns) {
            times.record(ns);
        }
        if self.in_turns
            && let Some(ns) = now.checked_sub(probe.intended_ns.min(probe.sent_ns))
        {
            session.turn.record(ns);
        }
        if of != self.current {
            return true;
        }
        if let Some(front) = self.in_flight.front().map(|entry| entry.0)
            && let Some(at) = probe.sequence.checked_sub(front)
            && let Some(entry) = usize::try_from(at).ok().and_then(|at| self.in_flight.get_mut(at))
            && entry.1 != 0
        {
            entry.1 = 0;
            self.unanswered -= 1;
        }
        true
    }

    /// Forgets probes that were answered, and those for which the time is over.
    fn expire(&mut self, now: u64) {
        while let Some(&(_, sent)) = self.in_flight.front() {
            if sent != 0 {
                if now.saturating_sub(sent) < self.timeout_ns {
                    break;
                }
                self.unanswered -= 1;
            }
            self.in_flight.pop_front();
        }
    }
}
