//! One queue's thread: bursts in, decisions, bursts out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use ringside_gateway_core::decide::{Cacheable, Decider, Decision, Settings};
use ringside_gateway_core::table::{HostId, HostReader};
use ringside_gateway_core::{Buffer, DropReason};
use ringside_nic::clock::FastClock;
use ringside_xsk::{Error, Frame, Packet, Queue, Wait};

use super::counters::{Tally, WorkerCounters};
use super::waiting::Waiting;

/// How long a worker sleeps when nothing comes: it looks for new tables and for its end that often.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Packets that wait for MAC addresses, of one worker.
const MOST_WAITING: usize = 256;

/// What workers have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Rules are bound to some address.
    pub(super) has_policy: AtomicBool,
    pub(super) settings: arc_swap::ArcSwap<Settings>,
    /// Hosts whose MAC addresses are wanted. Full: somebody asks again with the next packet.
    pub(super) unresolved: ArrayQueue<HostId>,
    /// What the fast path may take over. Full: it is told again with the next packet.
    pub(super) cacheable: ArrayQueue<Cacheable>,
    /// What the workers' times are counted from.
    pub(super) begun: Instant,
}

/// A packet in its frame, as decisions see it.
struct Edit<'a, 'b>(&'a mut Packet<'b>);

impl Buffer for Edit<'_, '_> {
    fn bytes(&self) -> &[u8] {
        self.0.data()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.data_mut()
    }

    fn move_front(&mut self, by: isize) -> bool {
        match usize::try_from(by) {
            Ok(by) => self.0.extend_front(by),
            Err(_) => self.0.trim_front(by.unsigned_abs()),
        }
    }

    fn set_len(&mut self, len: usize) -> bool {
        self.0.resize(len)
    }
}

/// The same of a packet that was kept.
struct EditKept<'a>(&'a mut Frame);

impl Buffer for EditKept<'_> {
    fn bytes(&self) -> &[u8] {
        self.0.data()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.data_mut()
    }

    fn move_front(&mut self, by: isize) -> bool {
        match usize::try_from(by) {
            Ok(by) => self.0.extend_front(by),
            Err(_) => self.0.trim_front(by.unsigned_abs()),
        }
    }

    fn set_len(&mut self, len: usize) -> bool {
        self.0.resize(len)
    }
}

/// What one thread needs.
pub(super) struct Worker<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) port: u8,
    pub(super) decider: Decider,
    pub(super) hosts: HostReader,
    pub(super) shared: &'a Shared,
    pub(super) counters: &'a WorkerCounters,
    /// When it came round last, in nanoseconds since the start.
    pub(super) seen: &'a AtomicU64,
    pub(super) spin: bool,
    pub(super) patience: Duration,
}

impl Worker<'_> {
    /// Until it is told to stop.
    pub(super) fn run(self) -> Result<(), Error> {
        let Self {
            queue,
            port,
            mut decider,
            mut hosts,
            shared,
            counters,
            seen,
            spin,
            patience,
        } = self;
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let mut waiting: Waiting<Frame> = Waiting::new(MOST_WAITING, patience_ns);
        let mut clock = FastClock::new();
        let mut settings = arc_swap::Cache::new(&shared.settings);
        let mut current = Arc::clone(settings.load());
        while !shared.stop.load(Ordering::Relaxed) {
            let since = u64::try_from(shared.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            seen.store(since, Ordering::Relaxed);
            let latest = settings.load();
            if !Arc::ptr_eq(latest, &current) {
                current = Arc::clone(latest);
                decider.set(Arc::clone(&current));
            }
            let wait = match (spin, waiting.is_empty()) {
                (true, _) => Wait::Spin,
                (false, true) => Wait::Poll(LONGEST_SLEEP),
                (false, false) => Wait::Poll(Duration::from_millis(1)),
            };
            let has_policy = shared.has_policy.load(Ordering::Relaxed);
            let mut burst = queue.recv(wait)?;
            if burst.event().is_some() || burst.is_empty() {
                drop(burst);
            } else {
                let now = clock.now().as_nanos();
                decider.begin(has_policy);
                for packet in &mut burst {
                    decider.read(packet.data());
                }
                let mut decisions = decider.look_up();
                let mut tally = Tally::ZERO;
                for mut packet in &mut burst {
                    tally.received += 1;
                    tally.received_bytes += packet.len() as u64;
                    match decisions.next(now, port, &mut Edit(&mut packet)) {
                        Decision::Send { cache, .. } => {
                            packet.send();
                            tally.sent += 1;
                            tally.sent_bytes += packet.len() as u64;
                            if cache != Cacheable::Nothing {
                                _ = shared.cacheable.push(cache);
                            }
                        }
                        Decision::Answer => {
                            packet.send();
                            tally.answered += 1;
                        }
                        Decision::Complain(_) => {
                            packet.send();
                            tally.complained += 1;
                        }
                        Decision::Wait(host) if waiting.has_room(host) => {
                            _ = shared.unresolved.push(host);
                            waiting.push(now, host, packet.keep());
                            tally.waited += 1;
                        }
                        Decision::Wait(_) => {
                            packet.drop();
                            counters.dropped(DropReason::HostQueueFull);
                        }
                        Decision::Drop(reason) => {
                            packet.drop();
                            counters.dropped(reason);
                        }
                        Decision::Kernel => {
                            packet.drop();
                            tally.not_ours += 1;
                        }
                    }
                }
                burst.finish()?;
                counters.add(&tally);
            }
            if !waiting.is_empty() {
                let now = clock.now().as_nanos();
                let known = |hosts: &mut HostReader, host| hosts.find(host).is_some_and(|host| host.mac.is_some());
                while let Some((mut frame, too_late)) = waiting.next(now, |host| known(&mut hosts, host)) {
                    if too_late {
                        counters.dropped(DropReason::HostUnresolved);
                        continue;
                    }
                    let mut tally = Tally::ZERO;
                    match decider.decide(now, port, has_policy, &mut EditKept(&mut frame)) {
                        Decision::Send { .. } => {
                            (tally.sent, tally.sent_bytes) = (1, frame.len() as u64);
                            if queue.send(frame).is_err() {
                                tally = Tally::ZERO;
                                counters.dropped(DropReason::TransmitFailed);
                            }
                        }
                        Decision::Answer | Decision::Complain(_) => {
                            tally.complained = 1;
                            _ = queue.send(frame);
                        }
                        Decision::Wait(_) => counters.dropped(DropReason::HostUnresolved),
                        Decision::Drop(reason) => counters.dropped(reason),
                        Decision::Kernel => tally.not_ours = 1,
                    }
                    counters.add(&tally);
                }
                queue.flush()?;
            }
        }
        Ok(())
    }
}
