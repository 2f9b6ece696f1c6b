//! What all commands on one port share: open it, run a pinned thread per queue, watch the clock, collect.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ringside_measure::schema::{self, Interval, Operation, QueueCounters, RunResult, XdpStatistics, XdpVerdicts};
use ringside_nic::host::CpuTimes;
use ringside_nic::{Interface, LinkState};
use ringside_xsk::{Direction, Filter, Port, Queue, Stats, Wait};

use crate::args::{PortArgs, RunArgs, WaitArg};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::{pin, system};

/// How long a sleeping thread may take to notice the end of a run.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// How often the main thread looks whether the interface is still there.
const LINK_LOOK: Duration = Duration::from_millis(250);

/// How long packets may take from the XDP program's counter to the socket: a turn of NAPI, and the machine may be busy.
const SETTLE: Duration = Duration::from_millis(100);

/// What a thread does when there are no packets.
pub(crate) fn wait(args: &PortArgs) -> Wait {
    match args.wait {
        WaitArg::Spin => Wait::Spin,
        WaitArg::Poll => Wait::Poll(POLL),
        WaitArg::BusyPoll => Wait::BusyPoll,
    }
}

/// The interface of a command, with what can be checked before anything is opened or sent.
pub(crate) fn interface(args: &PortArgs, run: &RunArgs) -> Result<Interface> {
    let interface = Interface::by_name(&args.interface)?;
    if !interface.state()?.admin_up {
        return Err(ringside_xsk::Error::InterfaceDown {
            interface: args.interface.clone(),
        }
        .into());
    }
    pin::check(args)?;
    crate::output::check(run)?;
    Ok(interface)
}

/// Opens the port of a command, refusing to cut the user off.
pub(crate) fn open(interface: Interface, args: &PortArgs, direction: Direction, filter: Filter) -> Result<Port> {
    if direction != Direction::Transmit {
        refuse_own_connection(&interface, filter)?;
    }
    let mut builder = Port::builder(interface)
        .mode(args.mode)
        .options(args.options(direction));
    if direction != Direction::Transmit {
        builder = builder.filter(filter);
    }
    if let Some(queues) = &args.queues {
        builder = builder.queues(queues.0.iter().copied());
    }
    Ok(builder.open()?)
}

/// Taking every packet of the interface that carries this very login would end it.
fn refuse_own_connection(interface: &Interface, filter: Filter) -> Result<()> {
    let takes_tcp = matches!(filter, Filter::All | Filter::EtherType(0x0800 | 0x86dd));
    let Some(own) = std::env::var("SSH_CONNECTION").ok().filter(|_| takes_tcp) else {
        return Ok(());
    };
    let Some(server) = own
        .split(' ')
        .nth(2)
        .and_then(|text| text.parse::<std::net::IpAddr>().ok())
    else {
        return Ok(());
    };
    if interface.addresses()?.iter().any(|entry| entry.address == server) {
        bail!(
            "{interface} carries the SSH connection of this login ({server}), and filter {filter} would take its packets: \
             choose another interface, or a filter such as udp:PORT"
        );
    }
    Ok(())
}

/// Counters that a worker updates once a burst and the main thread reads once a second.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

impl Live {
    #[inline]
    pub(crate) fn received(&self, packets: u64) {
        self.received.fetch_add(packets, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sent(&self, packets: u64) {
        self.sent.fetch_add(packets, Ordering::Relaxed);
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
}

impl Worker<'_> {
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
}

/// What a run leaves behind, apart from what the command itself found out.
pub(crate) struct Ran {
    pub(crate) duration: Duration,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) cpus: Vec<schema::CpuUse>,
    /// Why it ended early, if it did: what was measured until then is told all the same.
    pub(crate) failure: Option<anyhow::Error>,
}

/// Runs `body` on a thread of its own for each of `lanes`, until time, count or a signal ends it.
///
/// An error of one ends all, and so does the loss of one of `links`. It is the result if no packet was handled before.
pub(crate) fn run<L: Send>(
    lanes: Vec<L>,
    links: &[Interface],
    args: &PortArgs,
    run: &RunArgs,
    stop: &Stop,
    body: impl Fn(L, Worker<'_>) -> Result<()> + Sync,
) -> Result<Ran> {
    let live: Vec<Live> = lanes.iter().map(|_| Live::default()).collect();
    let budget = run.count.map(AtomicU64::new);
    let cpus_before = CpuTimes::read().ok();
    let start = Instant::now();
    let running = AtomicUsize::new(lanes.len());
    let (intervals, ended, failure) = std::thread::scope(|scope| {
        let workers: Vec<_> = lanes
            .into_iter()
            .zip(&live)
            .enumerate()
            .map(|(number, (lane, live))| {
                let worker = Worker {
                    number,
                    stop,
                    live,
                    budget: budget.as_ref(),
                };
                let (body, running) = (&body, &running);
                scope.spawn(move || {
                    let mut end = EndsRun {
                        stop,
                        running,
                        done: false,
                    };
                    pin::thread(args, number)?;
                    body(lane, worker)?;
                    end.done = true;
                    anyhow::Ok(())
                })
            })
            .collect();
        let (intervals, mut failure) = watch(&live, run, stop, start, links);
        stop.set();
        let ended = Instant::now();
        for worker in workers {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failure = failure.or_else(|| Some(explained(error, links))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (intervals, ended, failure)
    });
    let cpus = match (cpus_before, CpuTimes::read().ok()) {
        (Some(before), Some(after)) => system::cpu_use(&before, &after),
        _ => Vec::new(),
    };
    let sum = |field: fn(&Live) -> &AtomicU64| live.iter().map(|live| field(live).load(Ordering::Relaxed)).sum::<u64>();
    let (received, sent) = (sum(|live| &live.received), sum(|live| &live.sent));
    match failure {
        Some(failure) if received + sent == 0 => Err(failure),
        failure => Ok(Ran {
            duration: ended - start,
            intervals,
            cpus,
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

/// Why nothing can be measured on the interface any more, if that is so.
///
/// A thread that spins on an empty ring makes no system call, and `poll()` stays silent too: neither sees its interface
/// go.
fn gone(interface: &Interface) -> Option<anyhow::Error> {
    match interface.state() {
        Ok(state) if state.admin_up => None,
        Ok(_) => Some(anyhow!(
            "{interface} was switched off during the run (ip link set {interface} up switches it on)"
        )),
        Err(error) if error.errno() == Some(libc::ENODEV) => Some(anyhow!("{interface} was removed during the run")),
        // The kernel has no memory for the answer, or the like: no reason to end a measurement.
        Err(_) => None,
    }
}

/// The library tells a lost link as one that may come back; here the run has ended.
fn explained(error: anyhow::Error, links: &[Interface]) -> anyhow::Error {
    match error.downcast_ref() {
        Some(ringside_xsk::Error::LinkDown { interface, .. }) => links
            .iter()
            .find_map(gone)
            .unwrap_or_else(|| anyhow!("{interface} was switched off for a moment during the run")),
        _ => error,
    }
}

/// The main thread's part: one line a second on a terminal, intervals for the record, the end of the run.
fn watch(
    live: &[Live],
    run: &RunArgs,
    stop: &Stop,
    start: Instant,
    links: &[Interface],
) -> (Vec<Interval>, Option<anyhow::Error>) {
    let progress = Progress::new(run.interval.is_some());
    let step = run.interval.unwrap_or(Duration::from_secs(1));
    let end = run.time.map(|time| start + time);
    let mut intervals: Vec<Interval> = Vec::new();
    let (mut begin, mut before) = (start, (0, 0));
    let mut failure = None;
    loop {
        let tick = begin + step;
        let until = end.map_or(tick, |end| end.min(tick));
        let stopped = loop {
            let look = until.min(Instant::now() + LINK_LOOK);
            if stop.sleep_until(look) {
                break true;
            }
            failure = links.iter().find_map(gone);
            if failure.is_some() || look == until {
                break failure.is_some();
            }
        };
        let now = Instant::now();
        let total = live.iter().fold((0, 0), |(received, sent), live| {
            (
                received + live.received.load(Ordering::Relaxed),
                sent + live.sent.load(Ordering::Relaxed),
            )
        });
        let interval = Interval {
            start_ns: nanos(begin - start),
            duration_ns: nanos(now - begin),
            received_packets: total.0 - before.0,
            sent_packets: total.1 - before.1,
            p50_ns: None,
        };
        progress.tick(&interval);
        intervals.push(interval);
        (begin, before) = (now, total);
        if stopped || end.is_some_and(|end| now >= end) {
            progress.finish();
            return (intervals, failure);
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The parts of a result that every command fills in the same way.
pub(crate) fn result(operation: Operation, ran: &Ran, queues: Vec<QueueCounters>) -> RunResult {
    RunResult {
        operation,
        duration_ns: nanos(ran.duration),
        frame_bytes: None,
        payload_bytes: None,
        target_pps: None,
        depth_packets: None,
        packets: ringside_measure::counters::Ledger::default(),
        unaccounted_packets: 0,
        received: None,
        transmitted: None,
        sequence: None,
        latency: None,
        queues,
        cpus: ran.cpus.clone(),
        intervals: ran.intervals.clone(),
    }
}

/// Takes what the sockets still hold after a run, and tells how many packets the XDP program had given them before.
///
/// Packets may still flow: the program cannot be told to stop, so this waits until as many as were counted have come out
/// or are counted as lost, for [`SETTLE`] at the most.
pub(crate) fn settle(port: &mut Port) -> Result<u64> {
    let redirected = port.program_counters()?.iter().map(|queue| queue.redirected).sum();
    let end = Instant::now() + SETTLE;
    loop {
        for queue in port.queues_mut() {
            // A link that went down or a queue that failed has been told by the run.
            while queue.recv(Wait::Spin).is_ok_and(|burst| !burst.is_empty()) && Instant::now() < end {}
        }
        let stats = port.stats()?;
        let out = stats.own.rx_packets + stats.kernel.rx_dropped + stats.kernel.rx_ring_full;
        if out >= redirected || Instant::now() >= end {
            return Ok(redirected);
        }
        std::thread::yield_now();
    }
}

/// All counters of a port's queues, with what the XDP program did.
pub(crate) fn counters(port: &Port) -> Result<Vec<QueueCounters>> {
    let stats: Vec<Stats> = port.queues().iter().map(Queue::stats).collect::<Result<_, _>>()?;
    // Read after the sockets' counters: whatever came out of them has been counted here.
    let verdicts = port.program_counters()?;
    Ok(port
        .queues()
        .iter()
        .zip(stats)
        .map(|(queue, stats)| one_queue(queue, &stats, &verdicts))
        .collect())
}

fn one_queue(queue: &Queue, stats: &Stats, verdicts: &[ringside_xsk::QueueCounters]) -> QueueCounters {
    let (kernel, own) = (stats.kernel, stats.own);
    QueueCounters {
        interface: queue.report().interface.clone(),
        queue: queue.id(),
        received_packets: own.rx_packets,
        sent_packets: own.tx_packets,
        kicks: own.tx_kicks,
        waits: own.polls + own.rx_kicks,
        xdp_statistics: Some(XdpStatistics {
            rx_dropped: kernel.rx_dropped,
            rx_invalid_descs: kernel.rx_invalid_descs,
            tx_invalid_descs: kernel.tx_invalid_descs,
            rx_ring_full: kernel.rx_ring_full,
            rx_fill_ring_empty_descs: kernel.rx_fill_ring_empty,
            tx_ring_empty_descs: kernel.tx_ring_empty,
        }),
        xdp_verdicts: verdicts.get(queue.id() as usize).map(|program| XdpVerdicts {
            redirected: program.redirected,
            passed_filter: program.passed_filter,
            passed_neighbour: program.passed_neighbour,
            passed_unbound: program.passed_unbound,
            passed_malformed: program.passed_malformed,
        }),
    }
}

/// The link's counters, to check ours against.
pub(crate) fn link(port: &Port) -> Result<LinkState> {
    port.interface()
        .state()
        .with_context(|| format!("reading the counters of {}", port.interface()))
}

/// As [`link`] after the run; the last that is known if the interface is gone.
pub(crate) fn link_after(port: &Port, before: &LinkState) -> LinkState {
    port.interface().state().unwrap_or_else(|_| before.clone())
}
