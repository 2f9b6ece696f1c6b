//! Where the threads of the queues put their counters when somebody asks for them.
//!
//! The asker counts a number up; a thread that sees a new one puts its counters into its slot, then that number. Nobody waits
//! for the other but the asker, and it not for long. A slot is only written between a question and its answer, and only
//! read behind the answer, so what is read belongs together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ringside_measure::latency::LiveLatency;
use ringside_measure::live::Frames;
use ringside_xsk::{Ledger, Queue, Stats};

/// How long a thread may sleep, and so take to answer, and twice as much.
const PATIENCE: Duration = Duration::from_millis(120);

/// A thread that is not asleep answers within a burst.
const LOOK: Duration = Duration::from_micros(100);

/// One for each of the counters.
const WORDS: usize = 24;

/// On a cache line, and its neighbour that CPUs fetch along, of its own: nothing is written there but questions.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Asked(AtomicU64);

#[derive(Debug)]
pub(super) struct Board {
    asked: Asked,
    slots: Vec<Slot>,
    pub(super) times: OnceLock<Arc<LiveLatency>>,
}

#[derive(Debug)]
struct Slot {
    interface: String,
    queue: u32,
    answered: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// What a queue's thread told of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) stats: Stats,
    /// `None` before the first answer.
    pub(super) frames: Option<Frames>,
}

impl Board {
    /// A board for these queues, by interface and number.
    pub(super) fn new(queues: impl IntoIterator<Item = (String, u32)>) -> Self {
        let slots = queues.into_iter().map(|(interface, queue)| Slot {
            interface,
            queue,
            answered: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        });
        Self {
            asked: Asked::default(),
            slots: slots.collect(),
            times: OnceLock::new(),
        }
    }

    /// Asks all threads, and tells what each of the queues answered; `None` where nothing came in time. One asks at a time.
    pub(super) fn ask(&self) -> Vec<Option<Told>> {
        let number = self.asked.0.fetch_add(1, Ordering::Relaxed) + 1;
        let end = Instant::now() + PATIENCE;
        let answered = |slot: &Slot| slot.answered.load(Ordering::Acquire) == number;
        while !self.slots.iter().all(answered) && Instant::now() < end {
            thread::sleep(LOOK);
        }
        let told = |slot: &Slot| answered(slot).then(|| Told::from_words(&slot.words));
        self.slots.iter().map(told).collect()
    }
}

/// The pen of one thread.
#[derive(Debug)]
pub(crate) struct Teller {
    board: Arc<Board>,
    answered: u64,
}

impl Teller {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board, answered: 0 }
    }

    /// To be called between bursts: tells of the queues, which are all that the thread has, if somebody has asked.
    ///
    /// Then it takes a system call a queue, `getsockopt(XDP_STATISTICS)`. Not on another thread: the kernel takes a lock of
    /// the socket for it that sending takes too, and a thread that is not scheduled would keep it.
    #[inline]
    pub(crate) fn tell<'q>(&mut self, queues: impl IntoIterator<Item = &'q mut Queue>) {
        let asked = self.board.asked.0.load(Ordering::Relaxed);
        if asked != self.answered {
            self.answer(asked, queues);
        }
    }

    #[cold]
    fn answer<'q>(&mut self, asked: u64, queues: impl IntoIterator<Item = &'q mut Queue>) {
        self.answered = asked;
        for queue in queues {
            let is_its = |slot: &&Slot| slot.queue == queue.id() && slot.interface == queue.report().interface;
            // Of a queue that has failed the next call tells; here it says nothing more.
            if let Some(slot) = self.board.slots.iter().find(is_its)
                && let Ok(ledger) = queue.ledger()
                && let Ok(stats) = queue.stats()
            {
                for (to, word) in slot.words.iter().zip(to_words(&stats, &ledger)) {
                    to.store(word, Ordering::Relaxed);
                }
                slot.answered.store(asked, Ordering::Release);
            }
        }
    }
}

fn to_words(stats: &Stats, ledger: &Ledger) -> [u64; WORDS] {
    let (kernel, own) = (&stats.kernel, &stats.own);
    [
        own.rx_packets,
        own.rx_bytes,
        own.tx_packets,
        own.tx_bytes,
        own.tx_completed,
        own.tx_kicks,
        own.rx_kicks,
        own.polls,
        own.wakeups,
        own.empty_looks,
        own.busy_polls,
        kernel.rx_dropped,
        kernel.rx_invalid_descs,
        kernel.tx_invalid_descs,
        kernel.rx_ring_full,
        kernel.rx_fill_ring_empty,
        kernel.tx_ring_empty,
        ledger.free.into(),
        ledger.fill.into(),
        ledger.rx.into(),
        ledger.user.into(),
        ledger.tx.into(),
        ledger.completion.into(),
        own.busy_polls_fruitful,
    ]
}

impl Told {
    /// The inverse of [`to_words`].
    fn from_words(words: &[AtomicU64; WORDS]) -> Self {
        let mut words = words.iter().map(|word| word.load(Ordering::Relaxed));
        let mut next = || words.next().unwrap_or_default();
        let mut stats = Stats::default();
        let (kernel, own) = (&mut stats.kernel, &mut stats.own);
        for counter in [
            &mut own.rx_packets,
            &mut own.rx_bytes,
            &mut own.tx_packets,
            &mut own.tx_bytes,
            &mut own.tx_completed,
            &mut own.tx_kicks,
            &mut own.rx_kicks,
            &mut own.polls,
            &mut own.wakeups,
            &mut own.empty_looks,
            &mut own.busy_polls,
            &mut kernel.rx_dropped,
            &mut kernel.rx_invalid_descs,
            &mut kernel.tx_invalid_descs,
            &mut kernel.rx_ring_full,
            &mut kernel.rx_fill_ring_empty,
            &mut kernel.tx_ring_empty,
        ] {
            *counter = next();
        }
        let mut frames = Frames::default();
        for place in [
            &mut frames.free,
            &mut frames.fill,
            &mut frames.rx,
            &mut frames.user,
            &mut frames.tx,
            &mut frames.completion,
        ] {
            *place = u32::try_from(next()).unwrap_or(u32::MAX);
        }
        own.busy_polls_fruitful = next();
        Self {
            stats,
            frames: Some(frames),
        }
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
