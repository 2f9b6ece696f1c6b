//! One turn of one variant: load, settle, measure, wind down.
//!
//! ```text
//!        open   first packet    settle          slot             drain
//!  ───────┼──────────┼────────────┼───────────────┼────────────────┼──────▶ time
//!  load             ├──────────────────────────────────┤
//!  worker   ├──────────────────────────────────────────────────────┤
//!  rate                           ├───────────────┤
//!  loss             ├──────────────────────────────────────────────┤
//! ```
//!
//! The rate is counted in the slot alone. Loss is a matter of all packets from first to last, since none may be under
//! way at the time of counting.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use ringside_bpf::{Generator, GeneratorOptions, Sent, Sink};
use ringside_measure::compare::Round;
use ringside_measure::latency::{Latency, Summary};
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::schema::Responsiveness;
use ringside_nic::host::{CpuTime, CpuTimes};

use super::bed::Bed;
use super::options::Bench;
use super::under::{Beside, Own};
use crate::clock::now_ns;
use crate::peer::Peer;
use crate::pin;
use crate::stop::Stop;

/// How long the first packet may take: a NIC that gets its first program renegotiates the link.
const FIRST_PACKET: Duration = Duration::from_secs(5);
/// How much before and after a far end's slot packets flow: it begins with the first one that it sees.
const LEAD: Duration = Duration::from_millis(100);
/// How long the last packet may take.
const DRAIN: Duration = Duration::from_millis(50);
/// After this a probe is lost: many times what waking a CPU takes at worst.
const LOST_NS: u64 = 100_000_000;

/// What a turn gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Packets per second that arrived; round trips per second.
    pub(crate) pps: f64,
    /// Share of the packets that did not arrive, from 0 to 1.
    pub(crate) loss: Option<f64>,
    /// Packets per second that the generator offered.
    pub(crate) offered_pps: Option<f64>,
    /// Round trips.
    pub(crate) rtt: Option<Summary>,
    /// Round trips per minute.
    pub(crate) responsiveness: Option<Responsiveness>,
    /// Time of the sender's and the receiver's CPU.
    pub(crate) cpus: [CpuTime; 2],
    /// Share of all CPUs' time that the hypervisor took, from 0 to 1.
    pub(crate) steal: f64,
    /// Share of the slot in which a thread of ours was ready to run and another process had its CPU; the worst thread's.
    pub(crate) waiting: f64,
    /// Such a share of a server's threads; `None` without a server, or if it reports none.
    pub(crate) far_waiting: Option<f64>,
}

impl Reading {
    /// Reports whether the turn counts, as [`Round::is_quiet`] does for one of its figures.
    pub(crate) fn is_quiet(&self) -> bool {
        let round = Round {
            value: self.pps,
            steal: self.steal,
        };
        round.is_quiet()
    }
}

/// The generator, loaded once for each size.
pub(crate) struct Load {
    generator: Generator,
}

impl Load {
    /// Frames of one size from A to B.
    pub(crate) fn open(bed: &Bed, frame_bytes: usize) -> Result<Self> {
        let (_, mut frame) = bed.frame(true, frame_bytes)?;
        // No UDP checksum (RFC 768): a NIC would have verified it, and on a veth the socket would have to.
        if let Some(checksum) = frame.get_mut(40..42) {
            checksum.fill(0);
        }
        let options = GeneratorOptions {
            // Frames come back from XDP_TX with swapped MAC addresses; nobody writes behind them.
            rewrite: 16,
            ..GeneratorOptions::default()
        };
        let (side, index) = (&bed.a, bed.a.interface.index());
        let generator = side.run(|| Generator::new(index, &frame, options))?;
        Ok(Self { generator })
    }

    fn run(&mut self, cpu: u32, threads: &Threads, longest: Duration, stop: &AtomicBool) -> Result<Sent> {
        threads.enter(Place::on(cpu))?;
        Ok(self.generator.run_for(longest, stop)?)
    }
}

/// Where and how urgently a thread runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// `None`: wherever the scheduler likes.
    pub(crate) cpu: Option<u32>,
    /// SCHED_FIFO, if any.
    pub(crate) priority: Option<i32>,
}

impl Place {
    /// On this CPU, under the normal scheduler.
    pub(crate) fn on(cpu: u32) -> Self {
        Self {
            cpu: Some(cpu),
            priority: None,
        }
    }

    /// Puts the calling thread there.
    pub(crate) fn take(self) -> Result<()> {
        if let Some(cpu) = self.cpu {
            pin::to_cpu(cpu)?;
        }
        if let Some(priority) = self.priority {
            pin::real_time(priority)?;
        }
        Ok(())
    }
}

/// A peer, the place where it runs, and what it does there until told to end.
pub(crate) struct Worker {
    pub(crate) peer: Box<dyn Peer>,
    pub(crate) place: Place,
    pub(crate) work: fn(&mut dyn Peer) -> Result<u64>,
}

impl Worker {
    pub(crate) fn run(self, threads: &Threads, done: &AtomicU64, end: &AtomicBool) -> Result<()> {
        threads.enter(self.place)?;
        self.work(done, end)
    }

    /// Works in the calling thread until told to end.
    pub(crate) fn work(mut self, done: &AtomicU64, end: &AtomicBool) -> Result<()> {
        let mut count = 0;
        while !end.load(Ordering::Relaxed) {
            let more = (self.work)(self.peer.as_mut())?;
            if more != 0 {
                count += more;
                done.store(count, Ordering::Release);
            }
        }
        self.peer.finish()
    }
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Count<'a> {
    /// What the worker has done.
    Worker,
    /// What has come to a program that was loaded for this turn.
    Sink(&'a Sink),
}

/// How a turn is measured.
pub(crate) struct Slot<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) stop: &'a Stop,
}

impl Slot<'_> {
    /// Packets per second, and loss. Without a load, the worker is what sends.
    pub(crate) fn rate(&self, worker: Option<Worker>, load: Option<&mut Load>, count: Count<'_>) -> Result<Reading> {
        let (done, end, quiet) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let read = || match count {
            Count::Worker => Ok(done.load(Ordering::Acquire)),
            Count::Sink(sink) => Ok(sink.traffic()?.packets),
        };
        let threads = Threads::default();
        let longest = FIRST_PACKET + self.bench.settle() + self.bench.slot * 2;
        thread::scope(|scope| {
            let worker = worker.map(|worker| {
                let (threads, done, end) = (&threads, &done, &end);
                scope.spawn(move || worker.run(threads, done, end))
            });
            let load = load.map(|load| {
                let (cpu, threads, quiet) = (self.bench.sender_cpu(), &threads, &quiet);
                scope.spawn(move || load.run(cpu, threads, longest, quiet))
            });
            let window = self.window(&threads, &read, || ended(worker.as_ref()) || ended(load.as_ref()));
            // From here on nothing returns before the threads were told.
            quiet.store(true, Ordering::Release);
            let has_load = load.is_some();
            let sent = load.map(join).transpose();
            if has_load {
                drain(&read);
            }
            end.store(true, Ordering::Release);
            let worked = worker.map(join).transpose();
            // The worker's own words say more than that nothing came.
            worked?;
            let sent = sent.context("the generator")?;
            let window = window?;
            if !has_load {
                drain(&read);
            }
            let arrived = read()?;
            let offered = sent.map_or_else(|| done.load(Ordering::Acquire), |sent| sent.offered);
            Ok(Reading {
                loss: (offered != 0).then(|| (1.0 - arrived as f64 / offered as f64).max(0.0)),
                offered_pps: sent.map(|sent| sent.offered as f64 / sent.elapsed.as_secs_f64().max(1e-9)),
                ..window
            })
        })
    }

    /// The same where another host counts, which is asked when nothing is sent any more: what was offered, and what this end's
    /// CPU did. Rate and loss are still to be filled in.
    pub(crate) fn offer(&self, worker: Option<Worker>, load: Option<&mut Load>) -> Result<(Reading, u64)> {
        let (done, end, quiet) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let threads = Threads::default();
        let whole = LEAD * 2 + self.bench.settle() + self.bench.slot;
        thread::scope(|scope| {
            let worker = worker.map(|worker| {
                let (threads, done, end) = (&threads, &done, &end);
                scope.spawn(move || worker.run(threads, done, end))
            });
            let load = load.map(|load| {
                let (cpu, threads, quiet) = (self.bench.sender_cpu(), &threads, &quiet);
                scope.spawn(move || load.run(cpu, threads, whole * 2, quiet))
            });
            self.stop.sleep_until(Instant::now() + LEAD + self.bench.settle());
            let mark = Mark::now(&threads);
            let begin = Instant::now();
            self.stop.sleep_until(begin + self.bench.slot + LEAD);
            let passed = mark.and_then(|mark| {
                let waited = mark.waited(&threads) as f64 / begin.elapsed().as_nanos().max(1) as f64;
                Ok((mark.passed(self.bench)?, waited.min(1.0)))
            });
            // From here on nothing returns before the threads were told.
            quiet.store(true, Ordering::Release);
            end.store(true, Ordering::Release);
            let sent = load.map(join).transpose();
            worker.map(join).transpose()?;
            let sent = sent.context("the generator")?;
            let ((cpus, steal), waiting) = passed?;
            let offered = sent.map_or_else(|| done.load(Ordering::Acquire), |sent| sent.offered);
            let reading = Reading {
                pps: 0.0,
                loss: None,
                offered_pps: sent.map(|sent| sent.offered as f64 / sent.elapsed.as_secs_f64().max(1e-9)),
                rtt: None,
                responsiveness: None,
                cpus,
                steal,
                waiting,
                far_waiting: None,
            };
            Ok((reading, offered))
        })
    }

    /// Waits for packets, settles, and counts for the length of a slot.
    fn window(
        &self,
        threads: &Threads,
        read: &impl Fn() -> Result<u64>,
        has_ended: impl Fn() -> bool,
    ) -> Result<Reading> {
        let begun = Instant::now();
        while read()? == 0 {
            ensure!(!self.stop.is_set(), "interrupted");
            ensure!(!has_ended(), "it ended before a packet arrived");
            ensure!(
                begun.elapsed() < FIRST_PACKET,
                "no packet arrived within {FIRST_PACKET:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
        self.stop.sleep_until(Instant::now() + self.bench.settle());
        let mark = Mark::now(threads)?;
        let (first, begin) = (read()?, Instant::now());
        self.stop.sleep_until(begin + self.bench.slot);
        let (last, elapsed) = (read()?, begin.elapsed());
        let (cpus, steal) = mark.passed(self.bench)?;
        let waiting = (mark.waited(threads) as f64 / elapsed.as_nanos().max(1) as f64).min(1.0);
        ensure!(!has_ended(), "it ended before its time");
        ensure!(last > first, "the flow of packets stopped");
        Ok(Reading {
            pps: (last - first) as f64 / elapsed.as_secs_f64(),
            loss: None,
            offered_pps: None,
            rtt: None,
            responsiveness: None,
            cpus,
            steal,
            waiting,
            far_waiting: None,
        })
    }

    /// Round trips, one under way at a time. The client asks from its place.
    pub(crate) fn ping(
        &self,
        client: Box<dyn Peer>,
        place: Place,
        server: Option<Worker>,
        payload_len: usize,
        beside: Beside,
    ) -> Result<Reading> {
        let (done, end, recording) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let (threads, trips) = (Threads::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let server = server.map(|server| {
                let (threads, done, end) = (&threads, &done, &end);
                scope.spawn(move || server.run(threads, done, end))
            });
            let own = Own::new(&beside, payload_len, std::process::id().wrapping_add(1))?;
            let foreign = match beside {
                Beside::Foreign(foreign) => Some(scope.spawn(|| foreign.run(&end))),
                Beside::Nothing | Beside::Own(_) => None,
            };
            let client = scope.spawn(|| {
                threads.enter(place)?;
                ask(client, payload_len, own, &trips, &recording, &end)
            });
            let read = || Ok(trips.load(Ordering::Acquire));
            let window = self.window_of(&threads, &read, &recording, || {
                ended(server.as_ref()) || client.is_finished() || ended(foreign.as_ref())
            });
            end.store(true, Ordering::Release);
            let asked = join(client);
            foreign.map(join).transpose()?;
            server.map(join).transpose()?;
            let (latency, lost) = asked?;
            let window = window?;
            let heard = latency.samples();
            let rtt = latency.summary().context("no round trip was measured")?;
            ensure!(
                rtt.p50_ns.is_some(),
                "only {heard} round trips were measured: too few for a median"
            );
            Ok(Reading {
                loss: Some(lost as f64 / (heard + lost) as f64),
                rtt: Some(rtt),
                responsiveness: Responsiveness::of(&latency),
                ..window
            })
        })
    }

    /// A window during which the round trips are recorded.
    fn window_of(
        &self,
        threads: &Threads,
        read: &impl Fn() -> Result<u64>,
        recording: &AtomicBool,
        has_ended: impl Fn() -> bool,
    ) -> Result<Reading> {
        let settled = Instant::now() + self.bench.settle();
        let reading = self.window(
            threads,
            &|| {
                recording.store(Instant::now() >= settled, Ordering::Release);
                read()
            },
            has_ended,
        );
        recording.store(false, Ordering::Release);
        reading
    }
}

/// Asks again and again; the round trips of the recorded time, and how many probes were lost in it.
fn ask(
    mut peer: Box<dyn Peer>,
    payload_len: usize,
    mut load: Own,
    trips: &AtomicU64,
    recording: &AtomicBool,
    end: &AtomicBool,
) -> Result<(Latency, u64)> {
    let session = std::process::id();
    let mut payload = vec![0; payload_len.max(HEADER_LEN)];
    let mut latency = Latency::new();
    let (mut lost, mut sequence) = (0, 0);
    while !end.load(Ordering::Relaxed) {
        sequence += 1;
        let sent_ns = now_ns();
        let probe = Probe {
            kind: Kind::Request,
            clock: Clock::Monotonic,
            session,
            sequence,
            intended_ns: sent_ns,
            sent_ns,
        };
        probe.encode(&mut payload)?;
        peer.ask(&payload)?;
        let expected = Probe {
            kind: Kind::Reply,
            ..probe
        };
        let mut heard = None;
        while heard.is_none() && now_ns() - sent_ns < LOST_NS && !end.load(Ordering::Relaxed) {
            load.send(peer.as_mut())?;
            // An answer that comes too late is not this one's.
            peer.hear(&mut |payload| {
                if Probe::decode(payload) == Ok(expected) {
                    heard = Some(now_ns());
                }
            })?;
        }
        let recorded = recording.load(Ordering::Relaxed);
        match heard {
            Some(heard) => {
                trips.store(sequence, Ordering::Release);
                if recorded {
                    latency.record(heard - sent_ns);
                }
            }
            None => lost += u64::from(recorded && !end.load(Ordering::Relaxed)),
        }
    }
    peer.finish()?;
    Ok((latency, lost))
}

/// Waits until nothing more arrives.
fn drain(read: &impl Fn() -> Result<u64>) {
    let begun = Instant::now();
    let mut before = read().ok();
    while begun.elapsed() < DRAIN {
        thread::sleep(Duration::from_millis(3));
        let now = read().ok();
        if now == before {
            return;
        }
        before = now;
    }
}

fn ended<T>(thread: Option<&ScopedJoinHandle<'_, T>>) -> bool {
    thread.is_some_and(ScopedJoinHandle::is_finished)
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked")).flatten()
}

/// The threads that are measured.
#[derive(Default)]
pub(crate) struct Threads(Mutex<Vec<i32>>);

impl Threads {
    /// Puts the calling thread in its place, and has it watched.
    pub(crate) fn enter(&self, place: Place) -> Result<()> {
        place.take()?;
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        Ok(())
    }

    /// For how long, in nanoseconds, each was ready to run and did not. Zero where the kernel does not tell.
    fn waited(&self) -> Vec<(i32, u64)> {
        let ids = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ids.into_iter()
            .map(|id| (id, pin::waited_ns(id).unwrap_or(0)))
            .collect()
    }
}

/// A moment from which CPU time is counted.
pub(crate) struct Mark {
    times: CpuTimes,
    waited: Vec<(i32, u64)>,
}

impl Mark {
    pub(crate) fn now(threads: &Threads) -> Result<Self> {
        Ok(Self {
            times: CpuTimes::read()?,
            waited: threads.waited(),
        })
    }

    /// What the two CPUs did since, and the share of all CPUs' time that was stolen.
    pub(crate) fn passed(&self, bench: &Bench) -> Result<([CpuTime; 2], f64)> {
        let passed = CpuTimes::read()?.since(&self.times);
        let all = passed.sum();
        let cpus = bench.cpus.map(|cpu| passed.cpu(cpu).unwrap_or_default());
        Ok((cpus, all.fraction(all.steal).unwrap_or(0.0)))
    }

    /// For how long, in nanoseconds, the thread that waited most since was kept waiting.
    pub(crate) fn waited(&self, threads: &Threads) -> u64 {
        let now = threads.waited();
        let since = self.waited.iter().filter_map(|(id, before)| {
            let (_, after) = now.iter().find(|(other, _)| other == id)?;
            Some(after.saturating_sub(*before))
        });
        since.max().unwrap_or(0)
    }
}
