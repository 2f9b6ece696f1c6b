//! What all commands on one port share: open it, run a pinned thread per queue, watch the clock, collect.

mod carrier;
mod counters;
mod cpu;
mod faults;
mod flow;
mod known;
mod links;
mod open;
mod spinning;
mod start;
mod watched;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use faults::Faults;
use flow::Flow;
use links::Links;
use ringside_measure::latency::{Glance, LiveLatency};
use ringside_measure::rate::Span;
use ringside_measure::schema::{self, Interval};
use ringside_xsk::{Error, Queue};
use start::Start;
use watched::NicFrames;

pub(crate) use carrier::{Carrier, wait_before_asking};
pub(crate) use counters::{counters, in_flight, link, link_after, queue_counters, result, settle, take_back};
pub(crate) use faults::in_words as fault_in_words;
use known::Known;
pub(crate) use links::{History, is_too_long, mtu_was_changed};
pub(crate) use open::{POLL, interface, open, open_with, patiently, poll_any, shared_umem, wait};
pub(crate) use open::{own_connection, refuse_own_connection};
pub(crate) use spinning::{spinning, warn as warn_of_spinning};
pub(crate) use watched::Watched;

use crate::args::{PortArgs, RunArgs};
use crate::clock::{FastClock, now_ns};
use crate::pin;
use crate::progress::Progress;
use crate::stop::Stop;

/// Counters that a worker updates once a burst and the main thread reads once a second.
#[derive(Debug, Default)]
pub(crate) struct Live {
    received: Flow,
    sent: Flow,
    /// Packets that were due by the schedule and not sent when the run ended.
    unsent: AtomicU64,
    /// Of workers that measure times.
    times: OnceLock<Arc<LiveLatency>>,
}

impl Live {
    pub(crate) fn unsent(&self, packets: u64) {
        self.unsent.fetch_add(packets, Ordering::Relaxed);
    }

    /// Where times are noted, for the medians of the intervals. Allocates when it is asked for the first time: before the
    /// first packet.
    pub(crate) fn times(&self) -> &Arc<LiveLatency> {
        self.times.get_or_init(Arc::default)
    }
}

/// What a worker thread gets.
pub(crate) struct Worker<'a> {
    /// Number of the worker, from 0.
    pub(crate) number: usize,
    pub(crate) stop: &'a Stop,
    pub(crate) live: &'a Live,
    /// Packets that all workers together may still handle; they take their share from it.
    budget: Option<&'a AtomicU64>,
    links: &'a links::Shared,
    start: &'a Start,
    clock: RefCell<FastClock>,
}

/// How long a worker waits before it tries again on a link that is down.
const LINK_PAUSE: Duration = Duration::from_millis(20);

impl Worker<'_> {
    /// Waits until all threads of the run are set up. Returns the start of its schedules, in
    /// nanoseconds of CLOCK_MONOTONIC, which is the same for all workers.
    pub(crate) fn start(&self) -> u64 {
        self.start.wait(self.stop)
    }

    /// Counts a burst that has just been received.
    #[inline]
    pub(crate) fn received(&self, packets: u64) {
        if packets != 0 {
            self.live.received.add(packets, self.clock.borrow_mut().now_ns());
        }
    }

    /// Counts a burst that has just been sent.
    #[inline]
    pub(crate) fn sent(&self, packets: u64) {
        if packets != 0 {
            self.live.sent.add(packets, self.clock.borrow_mut().now_ns());
        }
    }

    /// How many of `wanted` packets may be handled; 0 when the run's count is reached.
    #[inline]
    pub(crate) fn claim(&self, wanted: u32) -> u32 {
        let Some(budget) = self.budget else { return wanted };
        let take = |left: u64| Some(left.saturating_sub(u64::from(wanted)));
        let left = budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .unwrap_or(0);
        u32::try_from(left.min(u64::from(wanted))).unwrap_or(wanted)
    }

    /// Gives back what was claimed and not used.
    #[inline]
    pub(crate) fn give_back(&self, packets: u32) {
        if let Some(budget) = self.budget {
            budget.fetch_add(u64::from(packets), Ordering::Relaxed);
        }
    }

    /// Waits a moment for a link that is down.
    pub(crate) fn pause(&self) {
        std::thread::sleep(LINK_PAUSE);
    }

    /// What a call on a queue gave. `None` when the link is down: that has been waited for a moment, what was put on the TX
    /// ring stays there, and the call is to be made again.
    pub(crate) fn unless_down<T>(&self, result: Result<T, Error>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            // A driver that has no carrier may let the TX ring stand.
            Err(error) if matches!(error, Error::LinkDown { .. }) || self.stalled_by_link(&error) => {
                std::thread::sleep(LINK_PAUSE);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits a moment for sent frames to come back. What a link that is down has not taken stays where it is.
    pub(crate) fn drain(&self, queue: &mut Queue) -> Result<()> {
        self.unless_down(queue.drain(POLL * 4)).map(drop)
    }

    fn stalled_by_link(&self, error: &Error) -> bool {
        matches!(error, Error::NoProgress { .. }) && self.links.is_down()
    }

    /// Notes packets that came in; ends the run when they were the last of its count.
    #[inline]
    pub(crate) fn took(&self, packets: u32) {
        if self.budget.is_some() && packets != 0 && self.claim(packets) < packets {
            self.stop.set();
        }
        if let Some(budget) = self.budget
            && budget.load(Ordering::Relaxed) == 0
        {
            self.stop.set();
        }
    }

    /// Whether all packets of `--count` have been received.
    pub(crate) fn has_its_count(&self) -> bool {
        self.budget.is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }
}

/// What a run leaves behind, apart from what the command itself found out.
pub(crate) struct Ran {
    pub(crate) duration: Duration,
    /// When packets were received; `None` without any.
    pub(crate) received: Option<Span>,
    /// When packets were sent; `None` without any.
    pub(crate) sent: Option<Span>,
    pub(crate) intervals: Vec<Interval>,
    /// What became of `--until-ci`.
    pub(crate) until_ci: Option<schema::UntilCi>,
    pub(crate) cpus: Vec<schema::CpuUse>,
    pub(crate) stages: Option<schema::CpuStages>,
    /// Packets that were due by the schedule and not sent when the run ended.
    pub(crate) unsent: u64,
    /// Failed redirects and exceptions; `None` where they are not counted.
    pub(crate) faults: Option<Vec<schema::XdpFault>>,
    pub(crate) links: History,
    /// Why it ended early, if it did: what was measured until then is told all the same.
    pub(crate) failure: Option<anyhow::Error>,
}

impl Ran {
    /// Returns the share of its time, 0 to 1, that the worker which waited most had no CPU. `None`
    /// where the kernel does not report it.
    pub(crate) fn cpu_wait(&self) -> Option<f64> {
        self.stages.as_ref()?.longest_wait(nanos(self.duration))
    }
}

/// Runs `body` on a thread of its own for each of `lanes`, until time, count or a signal ends it.
///
/// An error of one ends all, and so does the end of an interface that is `watched`. It is the
/// result if no packet was handled before.
pub(crate) fn run<L: Send>(
    lanes: Vec<L>,
    mut watched: Watched,
    args: &PortArgs,
    run: &RunArgs,
    stop: &Stop,
    body: impl Fn(L, Worker<'_>) -> Result<()> + Sync,
) -> Result<Ran> {
    spinning::warn(args, spinning(args, lanes.len()), watched.spinning_beside)?;
    let live: Vec<Live> = lanes.iter().map(|_| Live::default()).collect();
    let budget = run.count.map(AtomicU64::new);
    let mut links = Links::watch(&watched.interfaces)?;
    let meter = cpu::Meter::start();
    // The workers, and this thread.
    let common = Start::new(lanes.len() + 1);
    let running = AtomicUsize::new(lanes.len());
    let shared = Arc::clone(&links.shared);
    let mut known = Known::new(run, run.piece());
    let (start, intervals, ended, faults, failure) = std::thread::scope(|scope| {
        let workers: Vec<_> = lanes
            .into_iter()
            .zip(&live)
            .enumerate()
            .map(|(number, (lane, live))| {
                let (body, running, meter, common) = (&body, &running, &meter, &common);
                let (budget, links) = (budget.as_ref(), &*shared);
                scope.spawn(move || {
                    let mut end = EndsRun {
                        stop,
                        running,
                        done: false,
                    };
                    pin::thread(args, number)?;
                    let _metered = meter.worker(number);
                    let worker = Worker {
                        number,
                        stop,
                        live,
                        budget,
                        links,
                        start: common,
                        clock: RefCell::new(FastClock::new()),
                    };
                    common.arrive();
                    body(lane, worker)?;
                    end.done = true;
                    anyhow::Ok(())
                })
            })
            .collect();
        let faults = Faults::watch(&watched.interfaces);
        common.arrive();
        let start_ns = common.wait(stop);
        // This thread may wake up long after it.
        let since = Duration::from_nanos(now_ns().saturating_sub(start_ns));
        let start = Instant::now().checked_sub(since).unwrap_or_else(Instant::now);
        let watched = (&mut links, &mut watched.nics);
        let intervals = watch(&live, run, stop, start, watched, known.as_mut());
        stop.set();
        let ended = Instant::now();
        let mut failure = None;
        for worker in workers {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (start, intervals, ended, faults.end(), links.explain(start, failure))
    });
    let (cpus, stages) = meter.end();
    let (received, sent) = total(&live);
    let span = |flow: fn(&Live) -> &Flow| live.iter().filter_map(|live| flow(live).span()).reduce(Span::merge);
    let unsent = live.iter().map(|live| live.unsent.load(Ordering::Relaxed)).sum();
    match failure {
        Some(failure) if received + sent == 0 => Err(failure),
        failure => Ok(Ran {
            duration: ended - start,
            received: span(|live| &live.received),
            sent: span(|live| &live.sent),
            until_ci: known.map(|known| known.result(&intervals)),
            intervals,
            cpus,
            stages: stages.map(|stages| stages.over(received.max(sent))),
            unsent,
            faults,
            links: links.history(start, ended),
            failure,
        }),
    }
}

/// Ends the run when the last worker is done, or at once when one fails or panics: the others must not run on without it.
struct EndsRun<'a> {
    stop: &'a Stop,
    running: &'a AtomicUsize,
    done: bool,
}

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        let last = self.running.fetch_sub(1, Ordering::Relaxed) == 1;
        if last || !self.done {
            self.stop.set();
        }
    }
}

/// The main thread's part: one line a second on a terminal, intervals for the record, what happens
/// to the links and their NICs, the end of the run.
fn watch(
    live: &[Live],
    run: &RunArgs,
    stop: &Stop,
    start: Instant,
    (links, nics): (&mut Links, &mut NicFrames),
    mut known: Option<&mut Known>,
) -> Vec<Interval> {
    let progress = Progress::new(run.interval.is_some());
    let step = run.piece();
    let end = run.time.map(|time| start + time);
    let mut intervals: Vec<Interval> = Vec::new();
    let mut glance = Glance::new();
    let (mut begin, mut before) = (start, (0, 0));
    loop {
        let tick = begin + step;
        let until = end.map_or(tick, |end| end.min(tick));
        let mut stopped = false;
        while !stopped && Instant::now() < until {
            stopped = stop.sleep_until(until.min(Instant::now() + LINK_PAUSE)) | links.tell(start, &progress);
            nics.report(&progress);
        }
        let now = Instant::now();
        let total = total(live);
        let interval = Interval {
            start_ns: nanos(begin - start),
            duration_ns: nanos(now - begin),
            received_packets: total.0 - before.0,
            sent_packets: total.1 - before.1,
            p50_ns: glance.median(live.iter().filter_map(|live| live.times.get().map(AsRef::as_ref))),
        };
        progress.tick(&interval);
        intervals.push(interval);
        (begin, before) = (now, total);
        let stopped = stopped || known.as_mut().is_some_and(|known| known.is_reached(&intervals));
        if stopped || end.is_some_and(|end| now >= end) {
            progress.finish();
            return intervals;
        }
    }
}

/// Returns the packets that all workers together have received, and those that they have sent.
fn total(live: &[Live]) -> (u64, u64) {
    live.iter().fold((0, 0), |(received, sent), live| {
        (received + live.received.packets(), sent + live.sent.packets())
    })
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the end of a schedule that begins at `start_ns`; `u64::MAX` for a run without an end.
pub(crate) fn end_ns(start_ns: u64, time: Option<Duration>) -> u64 {
    time.map_or(u64::MAX, |time| start_ns.saturating_add(nanos(time)))
}
