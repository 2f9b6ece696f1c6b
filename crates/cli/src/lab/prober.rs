//! Who sends probes at their times, and who hears them.
//!
//! ```text
//!        first answer   settle           turn            last answers
//!  ──────────┼────────────┼───────────────┼───────────────────┼────▶ time
//!  probes   ├─── warm-up session ─┤├─ measured session ─┤
//! ```
//!
//! Of round trips one is under way at a time. An answer that takes longer than the time between two probes makes the next one late,
//! which its time from the intended sending has in it. An answer that never comes is waited for so long; what was due meanwhile is
//! not sent, and counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ringside_measure::latency::RttRecorder;
use ringside_measure::pace::Pacer;
use ringside_measure::probe::{Clock, FarStamps, HEADER_LEN, Kind, Probe};
use ringside_measure::sequence::{Arrival, Arrivals, Counts, Tracker};

use super::one_way::Trip;
use super::turn::Reading;
use crate::clock::now_ns;
use crate::compare::{Bench, Mark, Threads};
use crate::peer::Peer;
use crate::session::nanos;

/// How long the first probe may take: a NIC that gets its first program renegotiates the link.
const FIRST_NS: u64 = 5_000_000_000;
/// For so long an answer is waited for. One that comes later, before the turn is over, is counted all the same.
const LOST_NS: u64 = 100_000_000;
/// So much longer a turn takes where nothing at all came through yet: on a machine that is busy with other things.
const PATIENCE_NS: u64 = 1_000_000_000;
/// For so long the last answers are waited for.
const DRAIN_NS: u64 = 300_000_000;
/// How long before its time a sleeping sender looks at the clock: what waking up takes mostly.
const EARLY: Duration = Duration::from_micros(100);
/// A sender that sleeps looks so often whether it is to end.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// Numbers that are remembered: more than are under way.
const WINDOW: usize = 1 << 16;

/// How probes are sent.
pub(super) struct Schedule {
    pub(super) rate: u64,
    pub(super) settle: Duration,
    pub(super) turn: Duration,
    /// Probes of a turn at the most.
    pub(super) count: Option<u64>,
    /// Between two probes the sender sleeps.
    pub(super) sleeps: bool,
    /// Bytes of UDP payload.
    pub(super) payload_len: usize,
    /// Answers are to have the far end's times.
    pub(super) wants_stamps: bool,
}

/// What the threads of a turn share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) threads: Threads,
    pub(super) end: AtomicBool,
    /// Probes that came one way: of the warm-up, and of what is measured.
    arrived: [AtomicU64; 2],
}

/// One way: what was sent.
pub(super) struct Sent {
    pub(super) probes: u64,
    pub(super) steal: f64,
    pub(super) waiting: f64,
}

/// Sends probes.
pub(super) struct Prober<'a> {
    schedule: &'a Schedule,
    bench: &'a Bench,
    shared: &'a Shared,
    payload: Vec<u8>,
}

/// Probes of one session, and their answers.
struct Exchange {
    session: u32,
    pacer: Pacer,
    begun_ns: u64,
    tracker: Tracker,
    times: RttRecorder,
    /// Those whose answers have the far end's times.
    trips: Vec<Trip>,
    not_sent: u64,
}

impl<'a> Prober<'a> {
    pub(super) fn new(schedule: &'a Schedule, bench: &'a Bench, shared: &'a Shared) -> Self {
        Self {
            schedule,
            bench,
            shared,
            payload: vec![0; schedule.payload_len.max(HEADER_LEN)],
        }
    }

    /// Round trips: until the path answers, for as long as it settles, and those that count.
    pub(super) fn ask(&mut self, peer: &mut dyn Peer, session: u32) -> Result<Reading> {
        let mut warm_up = Exchange::new(self.schedule.rate, session)?;
        let mut first = None;
        while !self.is_warm(&mut first, &warm_up, warm_up.tracker.counts().received != 0)? {
            self.trip(peer, &mut warm_up)?;
        }
        let (mark, begin) = (Mark::now(&self.shared.threads)?, now_ns());
        let mut measured = Exchange::new(self.schedule.rate, session.wrapping_add(1))?;
        while !self.is_over(&measured, measured.tracker.counts().received != 0) {
            self.trip(peer, &mut measured)?;
        }
        let (steal, waiting) = self.passed(&mark, begin)?;
        let limit = now_ns() + DRAIN_NS;
        while measured.tracker.counts().lost != 0 && now_ns() < limit && !self.has_to_end() {
            measured.hear(peer)?;
        }
        peer.finish()?;
        ensure!(measured.times.raw().samples() != 0, "no probe was answered");
        Ok(Reading {
            probes: measured.tracker.counts(),
            times: measured.times,
            trips: measured.trips,
            not_sent: measured.not_sent,
            steal,
            waiting,
        })
    }

    /// One way: the same without answers; the other end tells when something has come.
    pub(super) fn send_all(&mut self, peer: &mut dyn Peer, session: u32) -> Result<Sent> {
        let [warm_up_came, came] = &self.shared.arrived;
        let mut warm_up = Exchange::new(self.schedule.rate, session)?;
        let mut first = None;
        while !self.is_warm(&mut first, &warm_up, warm_up_came.load(Ordering::Relaxed) != 0)? {
            self.send(peer, &mut warm_up)?;
        }
        let (mark, begin) = (Mark::now(&self.shared.threads)?, now_ns());
        let mut measured = Exchange::new(self.schedule.rate, session.wrapping_add(1))?;
        while !self.is_over(&measured, came.load(Ordering::Relaxed) != 0) {
            self.send(peer, &mut measured)?;
        }
        let (steal, waiting) = self.passed(&mark, begin)?;
        peer.finish()?;
        let (sent, limit) = (measured.tracker.counts().sent, now_ns() + DRAIN_NS);
        while came.load(Ordering::Acquire) < sent && now_ns() < limit && !self.has_to_end() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Sent {
            probes: sent,
            steal,
            waiting,
        })
    }

    fn has_to_end(&self) -> bool {
        self.shared.end.load(Ordering::Relaxed)
    }

    /// Whether the path has had the time to settle since the first probe came through.
    fn is_warm(&self, first: &mut Option<u64>, exchange: &Exchange, came: bool) -> Result<bool> {
        ensure!(!self.has_to_end(), "it was ended");
        let now = now_ns();
        if came && first.is_none() {
            *first = Some(now);
        }
        match *first {
            Some(first) => Ok(now >= first + nanos(self.schedule.settle)),
            None if now > exchange.begun_ns + FIRST_NS => {
                bail!("no probe came through within {} s", FIRST_NS / 1_000_000_000)
            }
            None => Ok(false),
        }
    }

    fn is_over(&self, exchange: &Exchange, came: bool) -> bool {
        let has_all = self
            .schedule
            .count
            .is_some_and(|count| exchange.tracker.counts().sent >= count);
        let more = if came { 0 } else { PATIENCE_NS };
        let is_late = now_ns() >= exchange.begun_ns + nanos(self.schedule.turn) + more;
        has_all || is_late || self.has_to_end()
    }

    /// What happened since a mark: steal, and the worst thread's wait.
    fn passed(&self, mark: &Mark, begin: u64) -> Result<(f64, f64)> {
        let (_, steal) = mark.passed(self.bench)?;
        let elapsed = now_ns().saturating_sub(begin).max(1);
        #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns")]
        let waiting = mark.waited(&self.shared.threads) as f64 / elapsed as f64;
        Ok((steal, waiting.min(1.0)))
    }

    /// Waits until a probe is due.
    fn wait(&self, exchange: &Exchange) {
        loop {
            let now = now_ns();
            if exchange.pacer.is_due(now) || self.has_to_end() {
                return;
            }
            let left = Duration::from_nanos(exchange.pacer.next_due_ns() - now);
            match left
                .checked_sub(EARLY)
                .filter(|left| self.schedule.sleeps && !left.is_zero())
            {
                Some(left) => std::thread::sleep(left.min(LONGEST_SLEEP)),
                None => std::hint::spin_loop(),
            }
        }
    }

    /// Sends the next probe at its time; its number.
    fn send(&mut self, peer: &mut dyn Peer, exchange: &mut Exchange) -> Result<u64> {
        self.wait(exchange);
        let sequence = exchange.pacer.take(now_ns(), 1).start;
        exchange.tracker.on_sent(sequence);
        let sent_ns = now_ns();
        let probe = Probe {
            kind: Kind::Request,
            clock: Clock::Monotonic,
            session: exchange.session,
            sequence,
            intended_ns: exchange.pacer.intended_ns(sequence).unwrap_or(sent_ns).min(sent_ns),
            sent_ns,
        };
        probe.encode(&mut self.payload)?;
        if self.schedule.wants_stamps {
            FarStamps::ask(&mut self.payload)?;
        }
        peer.ask(&self.payload)?;
        Ok(sequence)
    }

    /// Sends a probe and waits for its answer.
    fn trip(&mut self, peer: &mut dyn Peer, exchange: &mut Exchange) -> Result<()> {
        let sequence = self.send(peer, exchange)?;
        let limit = now_ns() + LOST_NS;
        while exchange.hear(peer)? != Some(sequence) {
            let now = now_ns();
            if now >= limit || self.has_to_end() {
                exchange.not_sent += exchange.pacer.skip_backlog(now, 0);
                break;
            }
        }
        Ok(())
    }
}

impl Exchange {
    fn new(rate: u64, session: u32) -> Result<Self> {
        let begun_ns = now_ns();
        Ok(Self {
            session,
            pacer: Pacer::per_second(rate, begun_ns)?,
            begun_ns,
            tracker: Tracker::new(WINDOW),
            times: RttRecorder::new(),
            trips: Vec::new(),
            not_sent: 0,
        })
    }

    /// Takes the answers that are there; the highest number that came.
    fn hear(&mut self, peer: &mut dyn Peer) -> Result<Option<u64>> {
        let (session, tracker, times) = (self.session, &mut self.tracker, &mut self.times);
        let trips = &mut self.trips;
        let mut highest = None;
        peer.hear(&mut |payload| {
            let now = now_ns();
            let Some(probe) = of_session(payload, Kind::Reply, session) else {
                return;
            };
            if tracker.on_received(probe.sequence).is_first() {
                times.record(probe.intended_ns, probe.sent_ns, now);
                trips.extend(FarStamps::read(payload).map(|stamps| Trip {
                    intended_ns: probe.intended_ns,
                    sent_ns: probe.sent_ns,
                    stamps,
                    heard_ns: now,
                }));
                highest = highest.max(Some(probe.sequence));
            }
        })?;
        Ok(highest)
    }
}

fn of_session(payload: &[u8], kind: Kind, session: u32) -> Option<Probe> {
    Probe::decode(payload)
        .ok()
        .filter(|probe| probe.kind == kind && probe.session == session)
}

/// Hears probes one way.
pub(super) struct Listener<'a> {
    session: u32,
    shared: &'a Shared,
    arrivals: Arrivals,
    heard: Heard,
}

/// What came one way.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) times: RttRecorder,
    /// But for what was sent and lost, of which a receiver does not know.
    pub(super) counts: Counts,
}

impl<'a> Listener<'a> {
    pub(super) fn new(session: u32, shared: &'a Shared) -> Self {
        Self {
            session,
            shared,
            arrivals: Arrivals::new(WINDOW),
            heard: Heard::default(),
        }
    }

    /// Listens until told to end.
    pub(super) fn listen(mut self, peer: &mut dyn Peer) -> Result<Heard> {
        while !self.shared.end.load(Ordering::Relaxed) {
            peer.hear(&mut |payload| {
                let now = now_ns();
                self.take(payload, now);
            })?;
        }
        peer.finish()?;
        self.heard.counts.received = self.arrivals.received();
        Ok(self.heard)
    }

    fn take(&mut self, payload: &[u8], now: u64) {
        let [warm_up, measured] = &self.shared.arrived;
        let measured_session = self.session.wrapping_add(1);
        let Some(probe) = of_session(payload, Kind::Request, measured_session) else {
            if of_session(payload, Kind::Request, self.session).is_some() {
                warm_up.fetch_add(1, Ordering::Relaxed);
            }
            return;
        };
        let counts = &mut self.heard.counts;
        match self.arrivals.on_received(probe.sequence) {
            Arrival::InOrder => {}
            Arrival::Reordered { distance } => {
                counts.reordered += 1;
                counts.longest_reordering = counts.longest_reordering.max(distance);
            }
            Arrival::Duplicate => {
                counts.duplicated += 1;
                return;
            }
            Arrival::Late => {
                counts.late += 1;
                return;
            }
            Arrival::Unexpected => {
                counts.unexpected += 1;
                return;
            }
        }
        self.heard.times.record(probe.intended_ns, probe.sent_ns, now);
        measured.fetch_add(1, Ordering::Release);
    }
}
