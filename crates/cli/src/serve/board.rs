//! The sessions of a server, and what has come of each: entered by the control connections, counted by the threads that have
//! the packets.
//!
//! A thread looks at a number once a burst, and takes a lock only when that has changed. What it counts is its own; it writes it
//! down once a burst, in a cell that nobody else writes to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use ringside_measure::control::{SESSION_STEP, Tally, Work};
use ringside_measure::probe::Probe;
use ringside_measure::sequence::{Arrival, Arrivals};

/// Packets of a session that a thread remembers, to know them when they come again: 8 KiB.
const WINDOW: usize = 1 << 16;

/// Packets that may come at once beyond the rate that is allowed.
const BURST: f64 = 256.0;

/// What a client and this server agreed about.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u32,
    pub(super) work: Work,
    /// Where its packets come from; `None`: from anywhere.
    pub(super) from: Option<SocketAddr>,
    /// Packets per second that are taken at the most.
    pub(super) most_pps: Option<u64>,
    /// When its time is over, by CLOCK_MONOTONIC: nothing is answered after that. 0: it has not begun.
    until_ns: AtomicU64,
    /// One for each thread.
    cells: Vec<Cell>,
}

/// What one thread has counted.
#[derive(Debug, Default)]
struct Cell {
    trial: AtomicU32,
    received: AtomicU64,
    ip_bytes: AtomicU64,
    answered: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    expected: AtomicU64,
    above_rate: AtomicU64,
    /// Taken away by who reads it.
    delay_variation_ns: AtomicU64,
    /// Of the whole session, whichever trials it had.
    whole: [AtomicU64; 4],
}

/// What has come of a whole session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) received: u64,
    pub(super) answered: u64,
    pub(super) ip_bytes: u64,
    pub(super) above_rate: u64,
}

impl Session {
    pub(super) fn new(
        number: u32,
        work: Work,
        from: Option<SocketAddr>,
        most_pps: Option<u64>,
        threads: usize,
    ) -> Self {
        Self {
            number,
            work,
            from,
            most_pps,
            until_ns: AtomicU64::new(0),
            cells: (0..threads).map(|_| Cell::default()).collect(),
        }
    }

    /// Its packets are taken from now on, until then.
    pub(super) fn go(&self, until_ns: u64) {
        self.until_ns.store(until_ns, Relaxed);
    }

    /// What has come of all its trials, over all threads.
    pub(super) fn totals(&self) -> Totals {
        let of = |at: usize| self.cells.iter().map(|cell| cell.whole[at].load(Relaxed)).sum();
        let [received, answered, ip_bytes, above_rate] = [0, 1, 2, 3].map(of);
        Totals {
            received,
            answered,
            ip_bytes,
            above_rate,
        }
    }

    /// What has come of a trial of it, over all threads.
    pub(super) fn tally(&self, trial: u32, at_ns: u64) -> Tally {
        let mut tally = Tally {
            session: trial,
            at_ns,
            ..Tally::default()
        };
        for cell in self.cells.iter().filter(|cell| cell.trial.load(Relaxed) == trial) {
            let read = |counter: &AtomicU64| counter.load(Relaxed);
            tally.received_packets += read(&cell.received);
            tally.ip_bytes += read(&cell.ip_bytes);
            tally.answered_packets += read(&cell.answered);
            tally.duplicated_packets += read(&cell.duplicated);
            tally.reordered_packets += read(&cell.reordered);
            tally.expected_packets = tally.expected_packets.max(read(&cell.expected));
            tally.above_rate_packets += read(&cell.above_rate);
            tally.delay_variation_ns = tally.delay_variation_ns.max(cell.delay_variation_ns.swap(0, Relaxed));
        }
        tally
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// Changes with the list.
    edition: AtomicU64,
    sessions: Mutex<Vec<Arc<Session>>>,
}

impl Board {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Enters one; it is taken off with what is returned.
    ///
    /// # Errors
    /// With as many as are allowed, or one of the same number.
    pub(super) fn enter(self: &Arc<Self>, session: Session, most: usize) -> Result<Entry> {
        let mut list = self.list();
        if list.len() >= most {
            bail!(
                "{} session(s) are under way, more are not allowed (--max-sessions): try again later",
                list.len()
            );
        }
        if list.iter().any(|other| other.number == session.number) {
            bail!("a session of that number is under way: try again");
        }
        let session = Arc::new(session);
        list.push(Arc::clone(&session));
        self.edition.fetch_add(1, Relaxed);
        Ok(Entry {
            board: Arc::clone(self),
            session,
        })
    }
}

/// A session that is on the board for as long as this is there.
#[derive(Debug)]
pub(super) struct Entry {
    board: Arc<Board>,
    pub(super) session: Arc<Session>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.board.list().retain(|other| !Arc::ptr_eq(other, &self.session));
        self.board.edition.fetch_add(1, Relaxed);
    }
}

/// A thread's view of the board.
#[derive(Debug)]
pub(super) struct View {
    board: Arc<Board>,
    thread: usize,
    edition: u64,
    tracks: Vec<Track>,
}

impl View {
    pub(super) fn new(board: &Arc<Board>, thread: usize) -> Self {
        Self {
            board: Arc::clone(board),
            thread,
            edition: 0,
            tracks: Vec::new(),
        }
    }

    /// To be called once a burst, before it. True: there are sessions.
    #[inline]
    pub(super) fn refresh(&mut self) -> bool {
        let edition = self.board.edition.load(Relaxed);
        if edition != self.edition {
            self.renew(edition);
        }
        !self.tracks.is_empty()
    }

    #[cold]
    fn renew(&mut self, edition: u64) {
        let list = self.board.list();
        self.tracks
            .retain(|track| list.iter().any(|session| Arc::ptr_eq(session, &track.session)));
        for session in list.iter() {
            if !self.tracks.iter().any(|track| Arc::ptr_eq(session, &track.session)) {
                self.tracks.push(Track::new(session));
            }
        }
        self.edition = edition;
    }

    /// Counts a probe; true if it is to be answered.
    #[inline]
    pub(super) fn take(&mut self, probe: &Probe, from: SocketAddr, ip_bytes: u64, now_ns: u64) -> bool {
        let number = probe.session & !(SESSION_STEP - 1);
        let found = self.tracks.iter_mut().find(|track| track.session.number == number);
        found.is_some_and(|track| track.take(probe, from, ip_bytes, now_ns))
    }

    /// To be called once a burst, after it.
    #[inline]
    pub(super) fn publish(&mut self) {
        for track in &mut self.tracks {
            track.publish(self.thread);
        }
    }
}

/// A session as one thread sees it.
#[derive(Debug)]
struct Track {
    session: Arc<Session>,
    /// Which of its trials; 0: nothing has come.
    trial: u32,
    arrivals: Arrivals,
    ip_bytes: u64,
    answered: u64,
    duplicated: u64,
    reordered: u64,
    above_rate: u64,
    whole: Totals,
    /// The least of the differences between both hosts' clocks: what is above it waited somewhere.
    least_ns: Option<i64>,
    variation_ns: u64,
    /// Packets that may come now, and when that was so.
    allowance: f64,
    allowance_ns: u64,
}

impl Track {
    fn new(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            trial: 0,
            arrivals: Arrivals::new(WINDOW),
            ip_bytes: 0,
            answered: 0,
            duplicated: 0,
            reordered: 0,
            above_rate: 0,
            whole: Totals::default(),
            least_ns: None,
            variation_ns: 0,
            allowance: BURST,
            allowance_ns: 0,
        }
    }

    #[inline]
    fn take(&mut self, probe: &Probe, from: SocketAddr, ip_bytes: u64, now_ns: u64) -> bool {
        let session = &self.session;
        if session.from.is_some_and(|own| own != from) || now_ns >= session.until_ns.load(Relaxed) {
            return false;
        }
        if !self.is_allowed(now_ns) {
            self.above_rate += 1;
            self.whole.above_rate += 1;
            return false;
        }
        let answers = self.session.work == Work::Echo;
        if probe.session != self.trial && !self.next_trial(probe.session) {
            // Of an earlier trial, or of one of several that take turns: answered, but counted only in the whole.
            self.count(ip_bytes, answers);
            return answers;
        }
        self.ip_bytes += ip_bytes;
        let arrival = self.arrivals.on_received(probe.sequence);
        match arrival {
            Arrival::InOrder => {}
            Arrival::Reordered { .. } => self.reordered += 1,
            Arrival::Duplicate => {
                self.duplicated += 1;
                self.whole.answered += u64::from(answers);
            }
            Arrival::Late | Arrival::Unexpected => return false,
        }
        if arrival != Arrival::Duplicate {
            self.count(ip_bytes, answers);
        }
        // The clocks may be anything apart: what counts is by how much the difference grows.
        let difference = now_ns.wrapping_sub(probe.sent_ns).cast_signed();
        let least = self.least_ns.map_or(difference, |least| least.min(difference));
        self.least_ns = Some(least);
        self.variation_ns = self.variation_ns.max(difference.wrapping_sub(least).unsigned_abs());
        self.answered += u64::from(answers);
        answers
    }

    #[inline]
    fn count(&mut self, ip_bytes: u64, answers: bool) {
        self.whole.received += 1;
        self.whole.answered += u64::from(answers);
        self.whole.ip_bytes += ip_bytes;
    }

    /// The first packet of a trial ends the one before. False: this one has ended.
    #[cold]
    fn next_trial(&mut self, trial: u32) -> bool {
        // Their numbers begin again after the last.
        let ahead = trial.wrapping_sub(self.trial) % SESSION_STEP;
        if self.trial != 0 && ahead >= SESSION_STEP / 2 {
            return false;
        }
        self.trial = trial;
        self.arrivals.reset();
        (
            self.ip_bytes,
            self.answered,
            self.duplicated,
            self.reordered,
            self.above_rate,
        ) = (0, 0, 0, 0, 0);
        true
    }

    #[inline]
    fn is_allowed(&mut self, now_ns: u64) -> bool {
        let Some(most) = self.session.most_pps else { return true };
        #[allow(clippy::cast_precision_loss, reason = "a rate, to some digits")]
        {
            let since = now_ns.saturating_sub(self.allowance_ns) as f64 / 1e9;
            self.allowance = (self.allowance + since * most as f64).min(BURST.max(most as f64 / 100.0));
        }
        self.allowance_ns = now_ns;
        let allowed = self.allowance >= 1.0;
        self.allowance -= f64::from(u8::from(allowed));
        allowed
    }

    fn publish(&mut self, thread: usize) {
        let Some(cell) = self.session.cells.get(thread) else {
            return;
        };
        let whole = &self.whole;
        let totals = [whole.received, whole.answered, whole.ip_bytes, whole.above_rate];
        for (cell, total) in cell.whole.iter().zip(totals) {
            cell.store(total, Relaxed);
        }
        cell.trial.store(self.trial, Relaxed);
        cell.received.store(self.arrivals.received(), Relaxed);
        cell.ip_bytes.store(self.ip_bytes, Relaxed);
        cell.answered.store(self.answered, Relaxed);
        cell.duplicated.store(self.duplicated, Relaxed);
        cell.reordered.store(self.reordered, Relaxed);
        cell.expected.store(self.arrivals.expected(), Relaxed);
        cell.above_rate.store(self.above_rate, Relaxed);
        cell.delay_variation_ns
            .fetch_max(std::mem::take(&mut self.variation_ns), Relaxed);
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
