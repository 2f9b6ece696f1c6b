//! Traffic that goes on whatever happens: a [`Flow`] sends numbered packets on a thread of its own, and [`Seen`] checks
//! what arrives: each packet whole, none twice, those of one transmit queue in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringside_netlab::testing::pause;
use ringside_netlab::{End, wait_until};
use ringside_xsk::{Burst, Direction, Error, LinkEvent, Path, Port, Queue, QueueOptions, Stats, Wait};

use super::{PATIENCE, check, leading_to, open, packet};

/// Packets that wait in the ring of a veth's receive queue at the most (`VETH_RING_SIZE`).
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/VETH_RING_SIZE>
pub const VETH_RING: u64 = 256;
/// Packets that a flow sends from a queue before it turns to the next.
const BURST: u32 = 8;
/// Transmit queues at the most: which one a packet is from, the rest of its number tells.
const LANES: usize = 8;

/// The transmit queues that lead to the first receive queues.
pub fn lanes(path: Path, queues: usize) -> Vec<usize> {
    (0..queues).map(|queue| leading_to(queue, path)).collect()
}

/// What arrived so far. Shared by the threads that receive.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Arrived>);

#[derive(Debug, Default)]
pub struct Arrived {
    last: [Option<u64>; LANES],
    packets: u64,
    /// What happened to the link, as told to which queue.
    pub events: Vec<(u32, LinkEvent)>,
}

impl Seen {
    pub fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn packets(&self) -> u64 {
        self.lock().packets
    }

    /// Checks and counts the packets of a burst; tells how many.
    pub fn note(&self, burst: &mut Burst<'_>) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let mut arrived = self.lock();
        let numbers = burst.iter_mut().filter_map(|packet| check(packet.data()));
        numbers.map(|n| arrived.take(n)).count()
    }

    /// Waits until so many more packets came than now; whether they did.
    pub fn more(&self, packets: u64) -> bool {
        let before = self.packets();
        wait_until(PATIENCE, || self.packets() >= before + packets)
    }
}

impl Arrived {
    pub fn take(&mut self, n: u64) {
        let lane = usize::try_from(n).expect("64 bits") % LANES;
        let last = self.last[lane].replace(n);
        assert!(last < Some(n), "packet {n} came after {last:?}: twice, or out of order");
        self.packets += 1;
    }

    /// Transmit queues from which something came.
    pub fn lanes(&self) -> usize {
        self.last.iter().flatten().count()
    }
}

/// What a flow put on its TX rings, and what became of that.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// The counters of its port, and of those before it whose interface went away.
    pub ports: Vec<Stats>,
    /// Times that it was told that sending makes no progress.
    pub stalls: u64,
}

impl Sent {
    /// Packets that the kernel took.
    pub fn taken(&self) -> u64 {
        self.ports.iter().map(|stats| stats.own.tx_completed).sum()
    }
}

/// Numbered packets from one end to the other, until it is stopped.
pub struct Flow {
    state: Arc<State>,
    thread: Option<JoinHandle<Sent>>,
    /// What came back.
    pub answers: Arc<Seen>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    /// Nobody asks any more.
    abandoned: AtomicBool,
    written: AtomicU64,
}

impl Flow {
    /// From these transmit queues, at most so many bursts in a second from each.
    pub fn start(from: &End, to: &End, queues: &[usize], rate: u32) -> Self {
        let transmit = QueueOptions::new().direction(Direction::Transmit);
        let port = open(from, Path::NativeCopy, |port| port.options(transmit.clone()));
        Self::on(port, from, to, queues, rate)
    }

    /// On a port of the sender's. If that can receive, what comes is taken for answers.
    pub fn on(port: Port, from: &End, to: &End, queues: &[usize], rate: u32) -> Self {
        let (state, answers) = (Arc::new(State::default()), Arc::default());
        let sender = Sender {
            from: from.clone(),
            to: to.clone(),
            queues: queues.to_vec(),
            next: [0; LANES],
            pause: Duration::from_secs(1) / rate,
            state: Arc::clone(&state),
            answers: Arc::clone(&answers),
            sent: Sent::default(),
            before: arrived(from, to),
        };
        Self {
            state,
            thread: Some(std::thread::spawn(move || sender.run(port))),
            answers,
        }
    }

    /// Packets so far.
    pub fn written(&self) -> u64 {
        self.state.written.load(Ordering::Relaxed)
    }

    /// Waits until so many more packets were sent than now.
    pub fn more(&self, packets: u64) {
        let before = self.written();
        let ended = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let written = || self.written() >= before + packets;
        wait_until(PATIENCE, || written() || ended());
        assert!(written(), "the flow ended, or hangs");
    }

    /// Stops sending, and waits until the kernel has taken everything and all answers came.
    pub fn stop(mut self) -> Sent {
        self.state.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.state.abandoned.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

struct Sender {
    from: End,
    to: End,
    queues: Vec<usize>,
    /// Numbers go on when the port is opened anew.
    next: [u64; LANES],
    pause: Duration,
    state: Arc<State>,
    answers: Arc<Seen>,
    sent: Sent,
    /// What had arrived when it began.
    before: Option<u64>,
}

/// Packets that the one end has dropped or the other has received, unless one is away.
fn arrived(from: &End, to: &End) -> Option<u64> {
    let [from, to] = [from, to].map(|end| end.state().ok().map(|state| state.stats));
    Some(from?.tx_dropped + to?.rx_packets)
}

impl Sender {
    fn run(mut self, mut port: Port) -> Sent {
        while !self.state.stop.load(Ordering::Relaxed) {
            for at in 0..self.queues.len() {
                let outcome = self.send(&mut port, self.queues[at]);
                self.survive(outcome, &mut port);
            }
            let outcome = self.take_answers(&mut port);
            self.survive(outcome, &mut port);
            self.state.written.store(self.next.iter().sum(), Ordering::Relaxed);
            if self.state.abandoned.load(Ordering::Relaxed) {
                return self.sent;
            }
            std::thread::sleep(self.pause);
        }
        let end = Instant::now() + PATIENCE;
        for tx in port.queues_mut() {
            assert!(
                tx.drain(end - Instant::now()).expect("link is up"),
                "frames are missing"
            );
        }
        let taken = port.stats().expect("counters").own.tx_completed;
        wait_until(ARRIVAL, || self.have_arrived(taken));
        if port.queues().iter().any(|queue| queue.report().rx_ring != 0) {
            let mut quiet = Instant::now();
            while quiet.elapsed() < ANSWER {
                if self.take_answers(&mut port).expect("link is up") != 0 {
                    quiet = Instant::now();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.sent.ports.push(port.stats().expect("counters"));
        self.sent
    }

    /// Whether so many packets have arrived since the flow began. False where it has had more than
    /// one port.
    fn have_arrived(&self, taken: u64) -> bool {
        let now = arrived(&self.from, &self.to);
        self.sent.ports.is_empty() && self.before.is_some_and(|before| now >= Some(before + taken))
    }

    fn send(&mut self, port: &mut Port, lane: usize) -> Result<usize, Error> {
        let tx = port.queues_mut().nth(lane).expect("a queue");
        let sent = tx.send_with(BURST, |slot| {
            let n = self.next[lane] * LANES as u64 + lane as u64;
            assert!(slot.write(&packet(n, self.from.mac, self.to.mac)));
            self.next[lane] += 1;
        });
        sent.map(|packets| packets as usize)
    }

    fn take_answers(&self, port: &mut Port) -> Result<usize, Error> {
        let mut all = 0;
        for rx in port.queues_mut().filter(|queue| queue.report().rx_ring != 0) {
            loop {
                let packets = self.answers.note(&mut rx.recv(Wait::Spin)?);
                if packets == 0 {
                    break;
                }
                all += packets;
            }
        }
        Ok(all)
    }

    /// A link that is down comes up again, one that is gone has a successor.
    fn survive(&mut self, outcome: Result<usize, Error>, port: &mut Port) {
        match outcome {
            Ok(_) | Err(Error::LinkDown { .. }) => {}
            Err(Error::NoProgress { .. }) => self.sent.stalls += 1,
            Err(Error::LinkGone { .. }) => {
                for queue in port.queues_mut() {
                    // Counts what was sent in the last moment.
                    _ = queue.drain(Duration::ZERO);
                }
                self.sent.ports.push(port.stats().expect("counters"));
                self.from.run(|| port.reopen(PATIENCE)).expect("the flow goes on");
            }
            Err(error) => panic!("the flow ends: {error}"),
        }
    }
}

/// Receives on every queue of the port, each on a thread of its own, while `fault` runs. A queue whose link is gone ends.
pub fn receiving<T>(port: &mut Port, seen: &Seen, wait: Wait, fault: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for queue in port.queues_mut() {
            let stop = &stop;
            scope.spawn(move || receive(queue, seen, wait, stop));
        }
        // Also when the fault panics: the scope waits for its threads.
        let _stop = Stop(&stop);
        fault()
    })
}

/// How long a packet that was counted may be under way to its socket.
const ON_THE_WAY: Duration = Duration::from_millis(200);
/// How long packets that were sent may be under way, on a machine that has other things to do. What
/// a link loses when it goes away is waited for as long.
const ARRIVAL: Duration = Duration::from_millis(500);
/// How long an answer may take, on such a machine.
const ANSWER: Duration = Duration::from_secs(1);

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn receive(queue: &mut Queue, seen: &Seen, wait: Wait, stop: &AtomicBool) {
    let number = queue.id();
    let mut idle = 0_u32;
    // A sender's packet is completed before the receiver's NAPI poll, in which it came, hands over what it has.
    let mut stopped = None;
    loop {
        if stopped.is_none() && stop.load(Ordering::Relaxed) {
            stopped = Some(Instant::now());
        }
        let is_over = stopped.is_some_and(|since: Instant| since.elapsed() >= ON_THE_WAY);
        match queue.recv(if is_over { Wait::Spin } else { wait }) {
            Ok(mut burst) => {
                if let Some(event) = burst.event().cloned() {
                    assert!(burst.is_empty(), "{event} with packets");
                    seen.lock().events.push((number, event));
                }
                idle = if seen.note(&mut burst) == 0 { idle + 1 } else { 0 };
                if is_over && idle > 0 {
                    return;
                }
            }
            Err(Error::LinkGone { event, .. }) => {
                seen.lock().events.push((number, event));
                return;
            }
            Err(error) => panic!("queue {number}: {error}"),
        }
        // Spinning, but not all the time at the expense of the others.
        if idle % 2048 == 2047 {
            pause();
        }
    }
}
