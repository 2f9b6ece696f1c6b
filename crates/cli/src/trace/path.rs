//! A path of our own: a sender, a receiver, and turns with and without tracing, every other pair of them backwards.
//!
//! ```text
//!  sender, receiver   ├───────────────────────────────────────────────────────────────────────────────────┤
//!  tracing            ├─ settle ─┬── slot ──┤                                         ├─ settle ─┬── slot ──┤ …
//!  without                                  ├─ settle ─┬── slot ──┼─ settle ─┬── slot ──┤
//! ```

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ringside_bpf::{MissingHook, TraceOptions, Tracer};
use ringside_measure::compare::{self, Round};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{CostTurns, TraceCost, TracedPath};
use ringside_measure::trace::{Correlator, Heard, Id};
use ringside_nic::host::CpuTimes;

use super::board::Board;
use super::collect::Collector;
use super::ends::Ends;
use super::result::{self, Names};
use crate::clock::now_ns;
use crate::pin;
use crate::stop::Stop;

/// How often the rings are read.
const READ: Duration = Duration::from_millis(5);
/// What a packet's application knows is looked at only when the kernel has told all about it: what had a CPU is told when it is over.
const TOLD_NS: u64 = 6_000_000;
/// After this a packet is lost.
const LOST_NS: u64 = 500_000_000;
/// How long the first packet may take: a NIC that gets an XDP program may take its link down for a while.
const FIRST_PACKET: Duration = Duration::from_secs(15);
/// For so long a turn goes on for packets that were sent in it: without, the slow ones would be left out.
const LATE: Duration = Duration::from_millis(100);
/// How long the last packets may take.
const DRAIN: Duration = Duration::from_secs(1);

/// How a path is traced.
pub(crate) struct Setup<'a> {
    /// What the result calls it.
    pub(crate) name: &'a str,
    /// Number of its probes.
    pub(crate) session: u32,
    /// One packet in so many.
    pub(crate) one_of: u32,
    /// Also what else the CPUs do.
    pub(crate) disturbers: bool,
    /// It stops at a packet that takes longer.
    pub(crate) stop_above: Option<Duration>,
    /// It stops after so much time, or so many packets.
    pub(crate) time: Duration,
    pub(crate) count: Option<u64>,
    /// For so long packets flow before they count.
    pub(crate) settle: Duration,
    /// Turns with and without tracing; `None`: it is traced all the time.
    pub(crate) slots: Option<Slots>,
    /// CPUs of sender and receiver.
    pub(crate) cpus: [u32; 2],
    /// Threads of other programs that are of the path, and disturb nobody.
    pub(crate) carriers: Vec<u32>,
    /// Threads that are a guest's virtual CPUs, with the numbers of these.
    pub(crate) vcpus: Vec<(u32, u32)>,
}

/// Turns with and without tracing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) length: Duration,
    /// So many pairs of them, however long it takes; `None`: as many as there is time for.
    pub(crate) pairs: Option<u32>,
    /// One ends after so many packets.
    pub(crate) count: Option<u64>,
}

/// Has whoever traces elsewhere, on the same packets' way, begin again, or stop for a while.
pub(super) type Elsewhere<'a> = dyn FnMut(bool) -> Result<()> + 'a;

/// What was traced of one receiver.
pub(crate) struct Traced {
    pub(crate) path: TracedPath,
    pub(crate) missing: Vec<MissingHook>,
}

/// A turn with or without tracing.
struct Turn {
    is_traced: bool,
    from_ns: u64,
    /// Its packets were sent until then.
    until_ns: u64,
    /// And came until then.
    to_ns: u64,
    times: Latency,
    steal: f64,
    /// What tracing programs told in it.
    events: u64,
}

/// What was seen of a path.
pub(super) struct Observed {
    pub(super) collector: Collector,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) lost_events: u64,
    pub(super) missing: Vec<MissingHook>,
    turns: Vec<Turn>,
}

impl Observed {
    /// What tracing costs, if that was looked at.
    pub(super) fn cost(&self) -> Result<Option<TraceCost>> {
        cost(&self.turns)
    }

    /// When nothing was to be traced, in nanoseconds.
    pub(super) fn untraced(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let off = self.turns.iter().filter(|turn| !turn.is_traced);
        off.map(|turn| (turn.from_ns, turn.to_ns))
    }
}

/// Traces what comes to a receiver. `watch` is asked again and again whether everything is as it should be.
///
/// # Errors
/// When the kernel refuses the programs, an end fails, no packet was traced, or `watch` has one.
pub(crate) fn trace(
    setup: &Setup<'_>,
    ends: Ends,
    names: &Names,
    watch: &mut dyn FnMut() -> Result<()>,
    stop: &Stop,
) -> Result<Traced> {
    let make = |tracer: &Tracer| -> Result<Collector> {
        Ok(Collector::new(tracer.reader()?, Correlator::new(), setup.stop_above))
    };
    let mut observed = observe(setup, ends, make, (watch, &mut |_| Ok(())), stop)?;
    ensure!(
        observed.collector.breakdown.whole().samples() > 0,
        "no packet was traced: {} were sent, {} came",
        observed.sent,
        observed.received
    );
    let mut path = result::path(&mut observed.collector, names, observed.lost_events);
    path.receiver = Some(setup.name.to_owned());
    path.sent_packets = Some(observed.sent);
    path.received_packets = Some(observed.received);
    path.cost = observed.cost()?;
    Ok(Traced {
        path,
        missing: observed.missing,
    })
}

/// Has packets flow, traced in their turns.
pub(super) fn observe(
    setup: &Setup<'_>,
    ends: Ends,
    collector: impl FnOnce(&Tracer) -> Result<Collector>,
    (watch, elsewhere): (&mut dyn FnMut() -> Result<()>, &mut Elsewhere<'_>),
    stop: &Stop,
) -> Result<Observed> {
    let session = setup.session;
    let mut tracer = Tracer::load(TraceOptions {
        session: Some(session),
        one_of: setup.one_of,
        disturbers: setup.disturbers,
        tasks: !setup.vcpus.is_empty(),
    })?;
    let mut collector = collector(&tracer)?;
    let watched = setup.vcpus.iter().filter(|_| tracer.watches());
    for (vcpu, thread) in watched {
        tracer.watch(*thread)?;
        collector.watch(*vcpu, *thread);
    }
    let board = Board::new();
    let [sender_cpu, receiver_cpu] = setup.cpus;
    let mut run = Run {
        setup,
        board: &board,
        collector,
        watch,
        elsewhere,
        next: 0,
        received: 0,
        waiting: VecDeque::new(),
        turns: Vec::new(),
        settled_ns: 0,
    };
    let (sender, hearer, asker) = match ends {
        Ends::Two(sender, hearer) => (Some(sender), Some(hearer), None),
        Ends::One(asker) => (None, None, Some(asker)),
    };
    thread::scope(|scope| {
        let board = &board;
        let hearing = hearer
            .map(|hearer| {
                let hearing = thread::Builder::new().name("rs-receiver".into());
                let hearing = hearing.spawn_scoped(scope, move || {
                    enter(board, 1, receiver_cpu)?;
                    hearer.run(session, receiver_cpu, board)
                });
                hearing.context("starting a thread")
            })
            .transpose()?;
        if hearing.is_none() {
            board.ready.store(true, Ordering::Release);
        }
        let sending = thread::Builder::new().name("rs-sender".into());
        let sending = sending.spawn_scoped(scope, move || {
            enter(board, 0, sender_cpu)?;
            while !board.ready.load(Ordering::Acquire) && !board.end.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            sender.map_or(Ok(()), |sender| sender.run(board))?;
            asker.map_or(Ok(()), |asker| asker.run(sender_cpu, board))
        });
        let has_ended = |sending: &ScopedJoinHandle<'_, Result<()>>| {
            sending.is_finished() || hearing.as_ref().is_some_and(ScopedJoinHandle::is_finished)
        };
        let outcome = match &sending {
            Ok(sending) => run.through(&mut tracer, stop, || has_ended(sending)),
            Err(error) => Err(anyhow!("starting a thread: {error}")),
        };
        board.end.store(true, Ordering::Release);
        tracer.detach();
        // Their own words say more than that nothing came.
        hearing.map(join).transpose().context("the receiver")?;
        sending.map(join)?.context("the sender")?;
        outcome
    })?;
    Ok(Observed {
        sent: board.sent.load(Ordering::Acquire),
        received: run.received,
        lost_events: tracer.lost()?,
        missing: tracer.missing().to_vec(),
        turns: run.turns,
        collector: run.collector,
    })
}

/// The calling thread is one of the path.
fn enter(board: &Board, which: usize, cpu: u32) -> Result<()> {
    let id = rustix::thread::gettid().as_raw_nonzero().get();
    board.threads[which].store(u32::try_from(id).unwrap_or(0), Ordering::Release);
    pin::to_cpu(cpu)
}

fn join(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().map_err(|_| anyhow!("a thread panicked")).flatten()
}

/// What goes on in the thread that reads.
struct Run<'a> {
    setup: &'a Setup<'a>,
    board: &'a Board,
    collector: Collector,
    watch: &'a mut dyn FnMut() -> Result<()>,
    elsewhere: &'a mut Elsewhere<'a>,
    /// The next packet to be read from the board.
    next: u64,
    /// Packets that came.
    received: u64,
    /// Packets of which the kernel may not have told all yet.
    waiting: VecDeque<(u64, Heard)>,
    turns: Vec<Turn>,
    /// When lost packets were last let go.
    settled_ns: u64,
}

impl Run<'_> {
    /// All turns, until the time is over or something ends it.
    fn through(&mut self, tracer: &mut Tracer, stop: &Stop, has_ended: impl Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        while self.received == 0 {
            self.take()?;
            if stop.is_set() || has_ended() {
                return Ok(());
            }
            if begun.elapsed() > FIRST_PACKET {
                bail!("no packet came within {FIRST_PACKET:?}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        let threads = self.board.threads.iter().map(|id| id.load(Ordering::Acquire));
        self.collector.own = threads.filter(|id| *id != 0).collect();
        self.collector.receiver = self.collector.own.get(1).copied();
        self.collector.own.extend(&self.setup.carriers);
        let over = Instant::now() + self.setup.time;
        let is_done = |run: &Self| {
            let enough = run.setup.count.is_some_and(|count| run.traced() >= count);
            enough || run.collector.flight.recorded.is_some() || stop.is_set() || has_ended()
        };
        let slots = self.setup.slots;
        let most = slots.and_then(|slots| Some(slots.pairs? as usize * 2));
        let is_over = |turns: usize| most.map_or_else(|| Instant::now() >= over, |most| turns >= most);
        // To load and attach the programs takes time of its own.
        let all = self.setup.time.saturating_sub(self.setup.settle);
        let length = slots.map_or(all, |slots| slots.length);
        while !is_over(self.turns.len()) && !is_done(self) {
            let was_traced = self.turns.last().is_some_and(|turn| turn.is_traced);
            let is_traced = slots.is_none() || matches!(self.turns.len() % 4, 0 | 3);
            if is_traced != was_traced {
                if is_traced {
                    tracer.attach()?;
                } else {
                    tracer.detach();
                }
                // The first turn finds everybody tracing.
                if !self.turns.is_empty() {
                    (self.elsewhere)(is_traced)?;
                }
            }
            self.wait(Instant::now() + self.setup.settle, &is_done)?;
            self.take()?;
            let (times, from_ns, told) = (CpuTimes::read()?, now_ns(), self.collector.told);
            self.turns.push(Turn {
                is_traced,
                from_ns,
                until_ns: u64::MAX,
                to_ns: u64::MAX,
                times: Latency::new(),
                steal: 0.0,
                events: 0,
            });
            let is_full = |run: &Self| {
                let packets = run.turns.last().map(|turn| turn.times.samples());
                let most = slots.and_then(|slots| slots.count);
                is_done(run) || packets.zip(most).is_some_and(|(packets, most)| packets >= most)
            };
            self.wait(Instant::now() + length, &is_full)?;
            if let Some(turn) = self.turns.last_mut() {
                turn.until_ns = now_ns();
            }
            let sent = self.board.sent.load(Ordering::Acquire);
            self.wait(Instant::now() + LATE, &|run: &Self| run.next >= sent || is_done(run))?;
            self.take()?;
            let all = CpuTimes::read()?.since(&times).sum();
            if let Some(turn) = self.turns.last_mut() {
                // What is still on its way is not traced to its end.
                turn.to_ns = now_ns();
                turn.steal = all.fraction(all.steal).unwrap_or(0.0);
                turn.events = self.collector.told - told;
            }
        }
        tracer.detach();
        let drained = Instant::now() + DRAIN;
        self.board.quiet.store(true, Ordering::Release);
        let is_missing = |run: &Self| run.received < run.board.sent.load(Ordering::Acquire);
        // The sender may send one more: what it has sent is known when it has ended.
        while Instant::now() < drained && (!has_ended() || is_missing(self) || !self.waiting.is_empty()) {
            thread::sleep(READ);
            self.take()?;
        }
        Ok(())
    }

    fn traced(&self) -> u64 {
        let traced = self.turns.iter().filter(|turn| turn.is_traced);
        traced.map(|turn| turn.times.samples()).sum()
    }

    fn wait(&mut self, until: Instant, is_done: &impl Fn(&Self) -> bool) -> Result<()> {
        while Instant::now() < until && !is_done(self) {
            thread::sleep(READ);
            self.take()?;
        }
        Ok(())
    }

    /// Takes what was told: first what the kernel did, then what the application did before.
    fn take(&mut self) -> Result<()> {
        let now = now_ns();
        (self.watch)()?;
        self.collector.read()?;
        let sent = self.board.sent.load(Ordering::Acquire);
        while self.next < sent {
            let Some(ahead) = (self.next..sent.min(self.next + 1000)).find_map(|number| {
                let heard = self.board.read(number)?;
                Some((number, heard))
            }) else {
                break;
            };
            let (number, heard) = ahead;
            if number != self.next && heard.heard_ns + LOST_NS > now {
                break;
            }
            self.waiting.push_back((number, heard));
            self.received += 1;
            self.next = number + 1;
        }
        while let Some((number, heard)) = self.waiting.front().copied() {
            if heard.heard_ns + TOLD_NS > now {
                break;
            }
            self.waiting.pop_front();
            self.heard(number, heard);
        }
        if now > self.settled_ns + LOST_NS {
            self.collector.settle(now.saturating_sub(LOST_NS * 2), false);
            self.settled_ns = now;
        }
        Ok(())
    }

    /// A packet counts for the turn in which it was sent, if that had not ended when it came.
    fn heard(&mut self, sequence: u64, heard: Heard) {
        let turn = self.turns.iter_mut().rev();
        let mut turn = turn.filter(|turn| {
            let is_sent = turn.from_ns <= heard.intended_ns.min(heard.call_ns) && heard.call_ns <= turn.until_ns;
            is_sent && heard.heard_ns <= turn.to_ns
        });
        let turn = turn.next();
        let is_traced =
            turn.as_ref().is_some_and(|turn| turn.is_traced) && sequence.is_multiple_of(self.setup.one_of.into());
        if let Some(turn) = turn {
            turn.times.record(heard.heard_ns.saturating_sub(heard.call_ns));
        }
        let id = Id {
            session: self.setup.session,
            sequence,
        };
        let is_over = self.collector.flight.recorded.is_some();
        self.collector.heard(id, heard, is_traced && !is_over);
    }
}

/// What tracing costs: turns with it beside those without, pair by pair.
fn cost(turns: &[Turn]) -> Result<Option<TraceCost>> {
    let round = |turn: &Turn| {
        let median = turn.times.median()?;
        #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns")]
        let value = median as f64;
        Some(Round {
            value,
            steal: turn.steal,
        })
    };
    let (mut off, mut on) = (Vec::new(), Vec::new());
    let mut counted = [CostTurns::default(); 2];
    for pair in turns.as_chunks::<2>().0 {
        let (with, without) = match pair {
            [with, without] if with.is_traced && !without.is_traced => (with, without),
            [without, with] if with.is_traced && !without.is_traced => (with, without),
            _ => return Ok(None),
        };
        if let (Some(untraced), Some(traced)) = (round(without), round(with)) {
            off.push(untraced);
            on.push(traced);
            for (counted, turn) in counted.iter_mut().zip([without, with]) {
                counted.turns += 1;
                counted.packets += turn.times.samples();
                counted.events += turn.events;
            }
        }
    }
    if off.is_empty() {
        return Ok(None);
    }
    Ok(Some(TraceCost {
        off_ns: compare::figure(&off)?,
        on_ns: compare::figure(&on)?,
        ratio: compare::ratio(&off, &on)?,
        off: counted[0],
        on: counted[1],
        always_on: None,
    }))
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
