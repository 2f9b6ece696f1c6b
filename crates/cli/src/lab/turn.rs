//! One turn of one cell: its ends are opened, measure, and are taken down.
//!
//! The ends are those of `ringside compare`: threads of this process, on sockets that were opened in their namespaces. So both read
//! one clock, which one way takes, and a kill closes everything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use ringside_measure::latency::RttRecorder;
use ringside_measure::schema::LatencyKind;
use ringside_measure::sequence::Counts;

use super::load::Running;
use super::one_way::Trip;
use super::prober::{Listener, Prober, Schedule, Shared};
use crate::compare::{Bed, Bench, Contender, Place, Worker};

use crate::stop::Stop;

/// How often the main thread looks whether everything is as it should be.
const LOOK: Duration = Duration::from_millis(10);

/// What a turn gave.
pub(super) struct Reading {
    pub(super) times: RttRecorder,
    pub(super) probes: Counts,
    /// Round trips with the far end's times.
    pub(super) trips: Vec<Trip>,
    /// Probes that were due while an answer was waited for that never came.
    pub(super) not_sent: u64,
    /// Share of all CPUs' time that the hypervisor took, from 0 to 1.
    pub(super) steal: f64,
    /// Share of the turn in which a thread of ours was ready to run and another had its CPU; the worst thread's.
    pub(super) waiting: f64,
}

/// A cell's turn, with all that it needs.
pub(super) struct Turn<'a, 'b> {
    pub(super) bed: &'a Bed,
    pub(super) bench: &'a Bench,
    pub(super) contender: Contender<'a>,
    pub(super) schedule: &'a Schedule,
    /// Tells the probes of this turn from others'; so does the number after it.
    pub(super) session: u32,
    pub(super) loads: &'a mut Running<'b>,
    pub(super) stop: &'a Stop,
}

impl Turn<'_, '_> {
    /// Measures between two ends of this machine.
    pub(super) fn run(self, kind: LatencyKind) -> Result<Reading> {
        match kind {
            LatencyKind::RoundTrip => {
                let _cut = self.contender.cut(&self.bed.b)?;
                let server = self.contender.worker(|peer| peer.answer().map(|()| 0))?;
                self.round_trip(Some(server))
            }
            LatencyKind::OneWay => self.one_way(),
        }
    }

    /// Measures to another machine, which has been told to answer.
    pub(super) fn run_to_far(self) -> Result<Reading> {
        self.round_trip(None)
    }

    fn round_trip(mut self, server: Option<Worker>) -> Result<Reading> {
        let _cut = self.contender.cut(&self.bed.a)?;
        let mut client = self.contender.open(&self.bed.a)?;
        let (shared, done) = (Shared::default(), AtomicU64::new(0));
        let (schedule, session, bench) = (self.schedule, self.session, self.bench);
        let place = Place::on(bench.sender_cpu());
        thread::scope(|scope| {
            let (shared, done) = (&shared, &done);
            let far = server.map(|server| scope.spawn(move || server.run(&shared.threads, done, &shared.end)));
            let near = scope.spawn(move || {
                shared.threads.enter(place)?;
                Prober::new(schedule, bench, shared).ask(client.as_mut(), session)
            });
            let watched = self.watch(&near, far.as_ref());
            shared.end.store(true, Ordering::Relaxed);
            let asked = join(near);
            watched?;
            far.map(join).transpose()?;
            asked
        })
    }

    fn one_way(mut self) -> Result<Reading> {
        let _cut = self.contender.cut(&self.bed.b)?;
        let Worker { mut peer, place, .. } = self.contender.worker(|_| Ok(0))?;
        let mut sender = self.contender.open(&self.bed.a)?;
        let shared = Shared::default();
        let (schedule, session, bench) = (self.schedule, self.session, self.bench);
        let near_place = Place::on(bench.sender_cpu());
        thread::scope(|scope| {
            let shared = &shared;
            let far = scope.spawn(move || {
                shared.threads.enter(place)?;
                Listener::new(session, shared).listen(peer.as_mut())
            });
            let near = scope.spawn(move || {
                shared.threads.enter(near_place)?;
                Prober::new(schedule, bench, shared).send_all(sender.as_mut(), session)
            });
            let watched = self.watch(&near, Some(&far));
            shared.end.store(true, Ordering::Relaxed);
            let sent = join(near);
            watched?;
            let heard = join(far)?;
            let sent = sent?;
            ensure!(heard.times.raw().samples() != 0, "no probe arrived");
            Ok(Reading {
                times: heard.times,
                trips: Vec::new(),
                probes: Counts {
                    sent: sent.probes,
                    lost: sent.probes.saturating_sub(heard.counts.received),
                    ..heard.counts
                },
                not_sent: 0,
                steal: sent.steal,
                waiting: sent.waiting,
            })
        })
    }

    /// Looks after loads and threads until the near end is done, or something is wrong.
    fn watch<T, U>(&mut self, near: &ScopedJoinHandle<'_, T>, far: Option<&ScopedJoinHandle<'_, U>>) -> Result<()> {
        while !near.is_finished() && !far.is_some_and(ScopedJoinHandle::is_finished) {
            ensure!(!self.stop.is_set(), "interrupted");
            self.loads.check()?;
            thread::sleep(LOOK);
        }
        self.loads.check()
    }
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked")).flatten()
}
