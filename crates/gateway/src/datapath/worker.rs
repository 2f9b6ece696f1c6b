//! One worker's thread: bursts in, decisions, bursts out.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_channel::Sender;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ringside_bpf::gateway::FlowSample;
use ringside_gateway_core::conntrack::Conntrack;
use ringside_gateway_core::decide::{Cacheable, Decider, Decision, Settings};
use ringside_gateway_core::table::{HostId, HostReader};
use ringside_gateway_core::{Buffer, Content, DropReason, Packet};
use ringside_nic::clock::{Monotonic, Timestamp};
use ringside_xsk::{Error, Frame, Queue, Wait};

use super::cache::Cache;
use super::connections::{self, CachedConnections};
use super::counters::{Full, Tally, WorkerCounters};
use super::edit::{Desk, Edit, EditKept, InFrames as _};
use super::epochs::Epochs;
use super::notices::Notices;
use super::ports::Ports;
use super::trace::{Shown, Wanted};
use super::unreachable::UnreachableHosts;
use super::unresolved::UnresolvedHosts;
use super::waiting::Waiting;
use crate::model::Foreign;

/// Longest sleep of an idle worker. It checks for its stop flag at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// The same while packets wait for MAC addresses.
const WHILE_WAITING: Duration = Duration::from_millis(1);
/// What the kernel has dropped for want of room is asked for so often, in nanoseconds.
const COUNT_LOST: u64 = 1_000_000_000;
/// The headers that are read of a packet, outer and inner: 14 + 20 + 8 + 8 and 14 + 20 + 8 bytes with IPv4, 20 more each with IPv6, and options.
const HEADERS: usize = 128;
/// Nanoseconds between two reports of hosts without an address to send from. Their packets do not
/// wait, and reports of hosts that packets wait for come first.
const REPORT_INTERVAL: u64 = 1_000_000;
/// Packets that wait for MAC addresses, of one queue.
const MOST_WAITING: usize = 256;

/// Cached settings and trace, which other threads may replace while a worker runs.
struct Config<'a> {
    settings: arc_swap::Cache<&'a ArcSwap<Settings>, Arc<Settings>>,
    trace: arc_swap::Cache<&'a ArcSwapOption<Wanted>, Option<Arc<Wanted>>>,
}

/// What workers have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Rules are bound to some address.
    pub(super) has_policy: AtomicBool,
    pub(super) settings: ArcSwap<Settings>,
    /// How long packets wait for MAC addresses, in nanoseconds.
    pub(super) patience: AtomicU64,
    /// How long the fast path goes on without a daemon, in nanoseconds.
    pub(super) unowned: AtomicU64,
    /// Until when it may at the longest, whoever starts meanwhile: CLOCK_MONOTONIC in nanoseconds.
    pub(super) longest: AtomicU64,
    /// Which of what the fast path has of connections still holds.
    pub(super) epochs: Epochs,
    /// Whoever wants to see packets.
    pub(super) trace: ArcSwapOption<Wanted>,
    /// As they were found last: one that is made anew is another.
    pub(super) ports: ArcSwap<Ports>,
    pub(super) notices: Notices,
    /// Held while an interface gets its program, and while the cache's program is replaced: no
    /// interface gets one that is not used any more. Whoever locks what is attached as well locks
    /// this first. Drivers may take seconds, so only these two wait for it.
    pub(super) attaching: Mutex<()>,
    pub(super) unreachable: UnreachableHosts,
    pub(super) unresolved: UnresolvedHosts,
    /// Networks that are other gateways'.
    pub(super) foreign: Arc<Foreign>,
}

/// Where a worker tells others what is to be done. Full: it is told again, a host that packets wait for with the next turn, the rest with
/// the next packet.
#[derive(Debug, Clone)]
pub(super) struct Tell {
    /// Hosts whose MAC addresses are wanted.
    pub(super) unresolved: Sender<HostId>,
    /// What the fast path may take over, and in which epoch that was found.
    pub(super) cacheable: Sender<(Cacheable, u64)>,
    /// False: it takes over nothing.
    pub(super) fast: bool,
    /// Of so many packets that are sent on, by chance, one is told; 0: none. A power of two.
    pub(super) one_in: u32,
    /// There.
    pub(super) flows: Sender<FlowSample>,
}

/// CLOCK_MONOTONIC in nanoseconds, which the fast path and connections go by.
pub(crate) fn now() -> u64 {
    Timestamp::<Monotonic>::now().as_nanos()
}

/// The same, as exact as the kernel's tick, in a fourth of the time: it is asked for each burst, and those of one packet count.
fn about_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// Who sends to whom.
fn flow_of(packet: &Packet) -> Option<FlowSample> {
    match packet.content {
        Content::Ip { src, dst } => Some(FlowSample {
            host: packet.from,
            vni: packet.vni.number(),
            source: src,
            destination: dst,
        }),
        Content::WhoHas { .. } => None,
    }
}

/// How long a burst takes is measured of one in so many.
const MEASURED: u64 = 64;

/// One of its queues.
pub(super) struct Lane<'a> {
    /// The number of its interface.
    port: u8,
    pub(super) queue: &'a mut Queue,
    /// Packets that came there and wait for their host's MAC address.
    pub(super) waiting: Waiting<Frame>,
    /// Packets that the kernel has dropped there, as they were counted last.
    lost: u64,
}

impl<'a> Lane<'a> {
    pub(super) fn new(port: u8, queue: &'a mut Queue) -> Self {
        Self {
            port,
            queue,
            waiting: Waiting::new(MOST_WAITING),
            lost: 0,
        }
    }

    /// For what came there.
    fn desk<'b>(&self, trace: Option<&'b Wanted>) -> Desk<'b> {
        Desk {
            now: about_now(),
            port: self.port,
            queue: self.queue.id(),
            trace,
        }
    }

    /// Packets that the kernel has dropped since the last time, because there was no room for them.
    fn newly_lost(&mut self) -> u64 {
        // An interface that is gone counts nothing any more.
        let Ok(stats) = self.queue.stats() else { return 0 };
        let lost = stats.kernel.rx_dropped + stats.kernel.rx_ring_full;
        lost.saturating_sub(std::mem::replace(&mut self.lost, lost))
    }
}

/// How many packets are left out until one is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skip {
    left: u32,
    random: u64,
}

impl Skip {
    pub(super) fn new(seed: u64) -> Self {
        Self { left: 0, random: seed }
    }

    /// True for one of so many on average: as `is_chosen` of gateway.h does it.
    fn is_over(&mut self, one_in: u32) -> bool {
        if self.left != 0 {
            self.left -= 1;
            return false;
        }
        // Knuth's generator; its high bits are good enough.
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random = next;
        let [a, b, c, d, ..] = next.to_be_bytes();
        self.left = u32::from_be_bytes([a, b, c, d]) & (2 * one_in - 1);
        true
    }
}

/// A packet that leaves by this port, later than it came or by another one; and as what. Whoever wants to see it has it as it came.
pub(super) struct Leaving(u8, Frame, Decision, Option<Box<Shown>>);

/// The same, and its bytes, when it is on the ring of one of the lanes. None: it could not be put there.
pub(super) struct Left(Option<usize>, usize, Decision, Option<Box<Shown>>);

/// Counts what has left, or could not.
fn count_left(decision: Decision, bytes: usize, is_sent: bool, tally: &mut Tally, counters: &WorkerCounters) {
    match decision {
        // It has its reason already.
        Decision::Complain(_) => tally.complained += u64::from(is_sent),
        _ if !is_sent => counters.dropped(DropReason::TransmitFailed, bytes),
        Decision::Answer => tally.answered += 1,
        _ => {
            tally.sent += 1;
            tally.sent_bytes += bytes as u64;
        }
    }
}

/// What one thread needs.
pub(super) struct Worker<'a> {
    pub(super) decider: Decider,
    pub(super) hosts: HostReader,
    pub(super) shared: &'a Shared,
    /// It is to end, and the gateway goes on.
    pub(super) halt: &'a AtomicBool,
    pub(super) tell: Tell,
    pub(super) counters: &'a WorkerCounters,
    /// When it came round last, CLOCK_MONOTONIC in nanoseconds.
    pub(super) seen: &'a AtomicU64,
    pub(super) spin: bool,
    /// Packets until one is told of who sends to whom.
    pub(super) skip: Skip,
    /// When a host without an address to send from was last reported to the resolver.
    pub(super) reported: u64,
    /// Packets of a burst that leave by other interfaces, and those that have left.
    pub(super) leaving: Vec<Leaving>,
    pub(super) left: Vec<Left>,
    pub(super) cache: &'a Mutex<Cache>,
    /// Those of the fast path, also of a program that takes the place of this one.
    pub(super) connections: Arc<CachedConnections>,
    pub(super) conntrack: &'a Conntrack,
}

impl Worker<'_> {
    /// Until it is told to stop.
    pub(super) fn run(mut self, mut lanes: Vec<Lane<'_>>) -> Result<(), Error> {
        let done = self.turns(&mut lanes);
        // Nobody sends these any more.
        let trace = self.shared.trace.load_full();
        for lane in &mut lanes {
            while let Some((mut frame, _)) = lane.waiting.next(u64::MAX, |_| false) {
                self.waited_in_vain(&lane.desk(trace.as_deref()), &mut frame);
            }
        }
        let mut tally = Tally::ZERO;
        for Leaving(_, frame, decision, _) in self.leaving.drain(..) {
            count_left(decision, frame.len(), false, &mut tally, self.counters);
        }
        tally.held_back = self.decider.take_held_back();
        self.counters.add(&tally);
        self.leave_the_rest(&mut lanes);
        self.count_lost(&mut lanes);
        done
    }

    /// What is still on the rings is nobody's any more, and neither is what comes.
    fn leave_the_rest(&self, lanes: &mut [Lane<'_>]) {
        let program = Arc::clone(&self.cache.lock().unwrap_or_else(PoisonError::into_inner).program);
        for lane in &*lanes {
            // It may never have been served.
            _ = program.dismiss(lane.port, lane.queue.id());
        }
        // Whatever was on its way to them has come by then.
        std::thread::sleep(Duration::from_millis(1));
        for lane in lanes {
            let mut tally = Tally::ZERO;
            // A socket that has failed has nothing more to say.
            while let Ok(mut burst) = lane.queue.recv(Wait::Spin) {
                // What has happened to the link is told before what came.
                if burst.is_empty() && burst.event().is_none() {
                    break;
                }
                for packet in &mut burst {
                    tally.received += 1;
                    tally.received_bytes += packet.len() as u64;
                    self.counters.dropped(DropReason::NoWorker, packet.len());
                }
            }
            self.counters.add(&tally);
        }
    }

    fn count_lost(&self, lanes: &mut [Lane<'_>]) {
        let lost = lanes.iter_mut().map(Lane::newly_lost).sum();
        self.counters.dropped_more(DropReason::WorkerBusy, lost);
    }

    fn turns(&mut self, lanes: &mut [Lane<'_>]) -> Result<(), Error> {
        let shared = self.shared;
        let mut config = Config {
            settings: arc_swap::Cache::new(&shared.settings),
            trace: arc_swap::Cache::new(&shared.trace),
        };
        let mut turns = 0_u64;
        // Who has but one queue sleeps there.
        let alone = lanes.len() == 1;
        let mut counted = 0;
        while !shared.stop.load(Ordering::Relaxed) && !self.halt.load(Ordering::Relaxed) {
            let now = about_now();
            self.seen.store(now, Ordering::Relaxed);
            if now.saturating_sub(counted) >= COUNT_LOST {
                counted = now;
                self.count_lost(lanes);
            }
            let sleep = if lanes.iter().all(|lane| lane.waiting.is_empty()) {
                LONGEST_SLEEP
            } else {
                WHILE_WAITING
            };
            let wait = if alone && !self.spin {
                Wait::Poll(sleep)
            } else {
                Wait::Spin
            };
            let mut idle = true;
            for number in 0..lanes.len() {
                turns += 1;
                let is_measured = turns.is_multiple_of(MEASURED);
                idle &= !self.turn(&mut lanes[number], wait, &mut config, is_measured)?;
                let trace = config.trace.load().as_deref();
                if !lanes[number].waiting.is_empty() {
                    self.look_after(&mut lanes[number], trace);
                }
                if !self.leaving.is_empty() {
                    self.leave(lanes, number, trace)?;
                }
            }
            if idle && !alone && !self.spin {
                let fds = lanes
                    .iter()
                    .map(|lane| PollFd::new(lane.queue.as_fd(), PollFlags::POLLIN));
                let timeout = PollTimeout::try_from(sleep).unwrap_or(PollTimeout::ZERO);
                // Whatever it says, the next turn looks.
                _ = poll(&mut fds.collect::<Vec<_>>(), timeout);
            }
        }
        Ok(())
    }

    /// One burst. False if there was none.
    fn turn(
        &mut self,
        lane: &mut Lane<'_>,
        wait: Wait,
        config: &mut Config<'_>,
        is_measured: bool,
    ) -> Result<bool, Error> {
        let Lane {
            port, queue, waiting, ..
        } = lane;
        let (port, queue_id) = (*port, queue.id());
        // What happens to the link is the supervisor's to tell.
        let mut burst = queue.recv(wait)?;
        if burst.is_empty() {
            return Ok(false);
        }
        // Load the settings after the wait, so that a burst uses those set before it arrived.
        self.decider.set(config.settings.load());
        let trace = config.trace.load().as_deref();
        let (begun, measured) = (about_now(), is_measured.then(now));
        let epoch = self.shared.epochs.latest();
        self.decider.begin(self.shared.has_policy.load(Ordering::Relaxed));
        burst.prefetch(HEADERS);
        // Of packets that are in several frames.
        let mut pieces = VecDeque::new();
        for mut packet in &mut burst {
            let whole = Edit(&mut packet).in_one_piece();
            self.decider.read(whole.as_ref().map_or(packet.data(), Buffer::bytes));
            pieces.extend(whole);
        }
        let mut decisions = self.decider.look_up();
        let mut tally = Tally::ZERO;
        let foreign = Some(&self.shared.foreign).filter(|foreign| foreign.is_possible());
        let (mut others, mut back_bytes) = (0, 0);
        let desk = Desk {
            now: begun,
            port,
            queue: queue_id,
            trace,
        };
        for mut packet in &mut burst {
            tally.received += 1;
            // As it came: what is sent in its place may be shorter, or longer.
            let bytes = packet.len();
            tally.received_bytes += bytes as u64;
            let whole = match packet.len() == packet.data().len() {
                true => None,
                false => pieces.pop_front(),
            };
            let flow = match self.tell.one_in {
                0 => None,
                one_in => self
                    .skip
                    .is_over(one_in)
                    .then(|| flow_of(&decisions.peek(packet.data())?))
                    .flatten(),
            };
            if let Some(foreign) = foreign {
                let peeked = decisions.peek(packet.data());
                others += u64::from(peeked.is_some_and(|packet| foreign.is(packet.vni)));
            }
            let no_room = |host| (!waiting.has_room(host)).then_some(DropReason::HostQueueFull);
            let mut shown = None;
            let decision = desk.decide(&mut decisions, &mut Edit(&mut packet), whole, no_room, &mut shown);
            connections::let_go(&self.connections, self.conntrack, decisions.cacheable());
            match decision {
                Decision::Send { port: by } => {
                    if let Some(flow) = flow
                        && matches!(decisions.cacheable(), Cacheable::Nothing | Cacheable::Neighbor(_))
                    {
                        self.counters.tell(Full::Flows, &self.tell.flows, flow);
                    }
                    if by == port {
                        tally.sent += 1;
                        tally.sent_bytes += packet.len() as u64;
                        back_bytes += bytes;
                        packet.send();
                    } else {
                        self.leaving.push(Leaving(by, packet.keep(), decision, shown));
                    }
                    let cacheable = self.tell.fast.then(|| decisions.cacheable());
                    if let Some(cacheable @ (Cacheable::Neighbor(_) | Cacheable::Connection { .. })) = cacheable {
                        self.counters
                            .tell(Full::Caches, &self.tell.cacheable, (cacheable, epoch));
                    }
                }
                Decision::Answer => {
                    packet.send();
                    tally.answered += 1;
                    back_bytes += bytes;
                }
                Decision::Complain(_) => {
                    packet.send();
                    tally.complained += 1;
                    self.counters.refused(decision, bytes);
                }
                Decision::Wait(host) => {
                    let is_asked_for = self.counters.tell(Full::Hosts, &self.tell.unresolved, host);
                    let patience = self.shared.patience.load(Ordering::Relaxed);
                    waiting.push(begun.saturating_add(patience), (host, is_asked_for), packet.keep());
                    tally.waited += 1;
                }
                Decision::NoAddress(_) | Decision::Drop(_) | Decision::Kernel => {
                    if let Decision::NoAddress(host) = decision
                        && begun >= self.reported.saturating_add(REPORT_INTERVAL)
                    {
                        self.reported = begun;
                        self.counters.tell(Full::Hosts, &self.tell.unresolved, host);
                    }
                    packet.drop();
                    self.counters.refused(decision, bytes);
                }
            }
        }
        let finished = burst.finish();
        tally.held_back = self.decider.take_held_back();
        if let Some(measured) = measured {
            tally.busy = now().saturating_sub(measured) * MEASURED;
        }
        if finished.is_err() {
            // The ring ends with its socket.
            let packets = tally.sent + tally.answered;
            self.counters
                .dropped_all(DropReason::TransmitFailed, packets, back_bytes);
            (tally.sent, tally.sent_bytes, tally.answered, tally.complained) = (0, 0, 0, 0);
        }
        self.counters.add(&tally);
        self.shared.foreign.count(others);
        // The supervisor closes the socket of a link that is down. Workers of other links go on.
        finished.or_else(Error::ignore_link_down).map(|_| true)
    }

    /// Sends packets whose host is known by now, and lets go of those that have waited for too long.
    fn look_after(&mut self, lane: &mut Lane<'_>, trace: Option<&Wanted>) {
        let desk = lane.desk(trace);
        let settings = self.shared.settings.load();
        lane.waiting
            .ask_again(|host| self.tell.unresolved.try_send(host).is_ok());
        loop {
            let is_known = |host| {
                let host = self.hosts.find(host);
                host.is_some_and(|host| host.mac.is_some() && settings.port_to(&host).is_some())
            };
            let Some((mut frame, too_late)) = lane.waiting.next(desk.now, is_known) else {
                break;
            };
            if too_late {
                self.waited_in_vain(&desk, &mut frame);
                continue;
            }
            let whole = EditKept(&mut frame).in_one_piece();
            self.decider.begin(self.shared.has_policy.load(Ordering::Relaxed));
            self.decider.read(whole.as_ref().map_or(frame.data(), Buffer::bytes));
            let mut decisions = self.decider.look_up();
            let bytes = frame.len();
            // Somebody may take the address back in this very moment.
            let unresolved = |_| Some(DropReason::HostUnresolved);
            let mut shown = None;
            let decision = desk.decide(&mut decisions, &mut EditKept(&mut frame), whole, unresolved, &mut shown);
            connections::let_go(&self.connections, self.conntrack, decisions.cacheable());
            self.counters.refused(decision, bytes);
            let port = match decision {
                Decision::Send { port } => port,
                Decision::Answer | Decision::Complain(_) => lane.port,
                Decision::Wait(_) | Decision::NoAddress(_) | Decision::Drop(_) | Decision::Kernel => continue,
            };
            self.leaving.push(Leaving(port, frame, decision, shown));
        }
    }

    /// Lets go of a packet that nobody has told the MAC address of its host for, and shows that.
    fn waited_in_vain(&mut self, desk: &Desk<'_>, frame: &mut Frame) {
        self.counters.dropped(DropReason::HostUnresolved, frame.len());
        if desk.trace.is_none() {
            return;
        }
        let whole = EditKept(frame).in_one_piece();
        let bytes = whole.as_ref().map_or(frame.data(), Buffer::bytes);
        self.decider.begin(self.shared.has_policy.load(Ordering::Relaxed));
        self.decider.read(bytes);
        let shown = desk.take(&mut self.decider.look_up(), bytes, (frame.data(), frame.len()));
        desk.comes_to(shown.as_deref(), DropReason::HostUnresolved);
    }

    /// Sends what leaves by another interface than it came by, or later: by the queues there that this worker has, in turn.
    /// None of them is waited for, because it would be waited for by all; and where one takes nothing the others go on.
    fn leave(&mut self, lanes: &mut [Lane<'_>], from: usize, trace: Option<&Wanted>) -> Result<(), Error> {
        for Leaving(port, frame, decision, shown) in self.leaving.drain(..) {
            let bytes = frame.len();
            let there = lanes.iter().filter(|lane| lane.port == port).count();
            let mut way = lanes.iter_mut().enumerate().filter(|(_, lane)| lane.port == port);
            let lane = match way.nth(from % there.max(1)) {
                Some((number, Lane { queue, .. })) if queue.in_flight() < queue.report().tx_ring => {
                    queue.send(frame).is_ok().then_some(number)
                }
                Some(_) | None => None,
            };
            self.left.push(Left(lane, bytes, decision, shown));
        }
        let mut done = Ok(());
        for (number, lane) in lanes.iter_mut().enumerate() {
            if let Err(error) = lane.queue.flush() {
                let there = self.left.iter_mut().filter(|Left(lane, ..)| *lane == Some(number));
                there.for_each(|Left(lane, ..)| *lane = None);
                done = done.and(error.ignore_link_down());
            }
        }
        let mut tally = Tally::ZERO;
        for Left(lane, bytes, decision, shown) in self.left.drain(..) {
            let sent = lane.is_some();
            if !sent {
                let reason = match decision {
                    Decision::Complain(reason) => reason,
                    _ => DropReason::TransmitFailed,
                };
                lanes[from].desk(trace).comes_to(shown.as_deref(), reason);
            }
            count_left(decision, bytes, sent, &mut tally, self.counters);
        }
        self.counters.add(&tally);
        done
    }
}
