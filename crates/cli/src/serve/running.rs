//! A session of a connection: what was asked for, what has come of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ringside_measure::control::{FarVia, Start, Work};
use ringside_measure::counters::{Ledger, LossCause};
use ringside_measure::rate::Rates;
use ringside_measure::schema::{FarEnd, Interval, Operation, RunResult};
use ringside_nic::host::CpuTimes;

use super::board::{Entry, Session, Totals};
use super::udp;
use crate::clock::now_ns;
use crate::cpu_wait::CpuWait;
use crate::output::note;
use crate::system;

/// Packets of a session that come so much after its time still count: they were on their way.
pub(super) const LATE_NS: u64 = 1_000_000_000;

/// A session of this connection.
pub(super) struct Running {
    pub(super) start: Start,
    pub(super) via: FarVia,
    pub(super) entry: Entry,
    /// Where it is not the XDP sockets.
    pub(super) _udp: Option<udp::Responder>,
    pub(super) most_ns: u64,
    pub(super) far: FarEnd,
    pub(super) begun: Option<Begun>,
}

/// What is known since packets came.
pub(super) struct Begun {
    at: Instant,
    cpus: Option<CpuTimes>,
    wait: CpuWait,
    intervals: Vec<Interval>,
    pub(super) piece_began: Instant,
    before: Totals,
    pub(super) next_feedback: Instant,
}

impl Begun {
    pub(super) fn piece(&mut self, session: &Session, now: Instant) {
        let totals = session.totals();
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.intervals.push(Interval {
            start_ns: nanos(self.piece_began - self.at),
            duration_ns: nanos(now - self.piece_began),
            received_packets: totals.received - self.before.received,
            sent_packets: totals.answered - self.before.answered,
            p50_ns: None,
        });
        (self.piece_began, self.before) = (now, totals);
    }
}

impl Running {
    pub(super) fn words(&self) -> String {
        let rate = match self.start.rate_pps {
            Some(rate) => format!("up to {} packets/s", crate::output::count(rate as f64)),
            None => "no rate said".to_owned(),
        };
        let work = match self.start.work {
            Work::Echo => "answers",
            Work::Count | Work::Contest | Work::Errand => "counts",
        };
        let via = match self.via {
            FarVia::AfXdp => "XDP sockets",
            FarVia::Udp => "a UDP socket",
        };
        format!("a session begins: {work} through {via}, {rate}")
    }

    pub(super) fn go(&mut self) {
        let now = Instant::now();
        let most = self
            .start
            .duration_ns
            .map_or(self.most_ns, |wanted| wanted.min(self.most_ns));
        self.entry
            .session
            .go(now_ns().saturating_add(most).saturating_add(LATE_NS));
        self.begun = Some(Begun {
            at: now,
            cpus: CpuTimes::read().ok(),
            wait: CpuWait::of_this_process(),
            intervals: Vec::new(),
            piece_began: now,
            before: Totals::default(),
            next_feedback: now,
        });
    }

    /// What came of it.
    pub(super) fn finish(self, sent: u64, from: SocketAddr) -> FarEnd {
        let session = &self.entry.session;
        let totals = session.totals();
        note(format_args!(
            "{from}: the session ends: {} of {sent} packets came, {} were sent back",
            totals.received, totals.answered
        ));
        let Some(mut begun) = self.begun else { return self.far };
        let now = Instant::now();
        begun.piece(session, now);
        let wait = begun.wait.share();
        let duration_ns = u64::try_from((now - begun.at).as_nanos()).unwrap_or(u64::MAX);
        let cpus = match (&begun.cpus, CpuTimes::read().ok()) {
            (Some(before), Some(after)) => system::cpu_use(before, &after),
            _ => Vec::new(),
        };
        let mut packets = Ledger {
            generated: sent,
            sent,
            received: Some(totals.received),
            ..Ledger::default()
        };
        let missing = sent.saturating_sub(totals.received);
        let above = totals.above_rate.min(missing);
        if above != 0 {
            packets.lose(LossCause::AboveServerRate, above);
        }
        packets.lose(LossCause::WayThere, missing - above);
        let mean = totals.ip_bytes.checked_div(totals.received).unwrap_or(0) + 14;
        let unaccounted_packets = i64::try_from(packets.difference()).unwrap_or(0);
        let result = RunResult {
            duration_ns,
            frame_bytes: Some(mean),
            received: Rates::new(totals.received, mean, mean.saturating_sub(42), duration_ns),
            transmitted: Rates::new(totals.answered, mean, mean.saturating_sub(42), duration_ns),
            unaccounted_packets,
            packets,
            cpus,
            intervals: begun.intervals,
            ..RunResult::new(match self.start.work {
                Work::Echo => Operation::Echo,
                Work::Count | Work::Contest | Work::Errand => Operation::Rx,
            })
        };
        FarEnd {
            result: Some(Box::new(result)),
            cpu_wait_percent: wait.map(|wait| wait * 100.0),
            ..self.far
        }
    }
}
