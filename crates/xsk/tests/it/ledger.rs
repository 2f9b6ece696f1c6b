//! The ledger against a model: whatever the user and the kernel do, each frame is in the one place where it should be.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{MODES, arrives_at, lab, open, packet as numbered, sender};
use proptest::prelude::*;
use ringside_netlab::testing::{is_root, pause};
use ringside_xsk::testing::{Harness, Kernel, Ring, Words, umem};
use ringside_xsk::{Direction, Error, Frame, Ledger, Packet, Queue, QueueOptions, SendError, Wait};

#[derive(Clone, Debug)]
enum Step {
    /// So many packets arrive, of so many frames each.
    Deliver { packets: usize, frames: usize },
    /// The kernel takes so many packets off the TX ring, and completes so many frames.
    Transmit { packets: u32, frames: u32 },
    /// A burst: what becomes of each packet in turn, and how the burst ends.
    Receive { fates: Vec<Fate>, end: End },
    /// A frame is allocated and kept.
    Alloc,
    /// One of the kept frames is sent.
    Send { which: usize },
    /// Some of the kept frames are dropped, perhaps on another thread.
    Drop { count: usize, elsewhere: bool },
    /// So many packets are written and sent, every so manieth dropped in the last moment.
    SendWith { max: u32, dropped: u32 },
    /// A callback panics after so many packets.
    Panic { after: u32 },
    /// The queue looks after what it sent.
    Drain,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Open,
    Drop,
    Send,
    Keep,
}

#[derive(Clone, Copy, Debug)]
enum End {
    SendBack,
    Finish,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![Just(Fate::Open), Just(Fate::Drop), Just(Fate::Send), Just(Fate::Keep)];
    let end = prop_oneof![4 => Just(End::SendBack), 3 => Just(End::Finish), 1 => Just(End::Forget)];
    prop_oneof![
        6 => (0..12_usize, 1..4_usize).prop_map(|(packets, frames)| Step::Deliver { packets, frames }),
        4 => (0..12_u32, 0..12_u32).prop_map(|(packets, frames)| Step::Transmit { packets, frames }),
        6 => (prop::collection::vec(fate, 1..8), end).prop_map(|(fates, end)| Step::Receive { fates, end }),
        2 => Just(Step::Alloc),
        3 => any::<usize>().prop_map(|which| Step::Send { which }),
        2 => (0..6_usize, any::<bool>()).prop_map(|(count, elsewhere)| Step::Drop { count, elsewhere }),
        3 => (0..12_u32, 1..5_u32).prop_map(|(max, dropped)| Step::SendWith { max, dropped }),
        1 => (0..4_u32).prop_map(|after| Step::Panic { after }),
        1 => Just(Step::Drain),
    ]
}

/// A frame, or several of one packet, in the user's hands.
struct Kept {
    frame: Frame,
    frames: u32,
    id: u64,
}

impl Kept {
    fn check(&self) {
        assert_eq!(id_of(self.frame.data()), self.id, "the packet is as it was");
    }
}

struct Run {
    queue: Queue,
    kernel: Kernel,
    kept: Vec<Kept>,
    frames: u32,
    fill_target: u32,
    /// Frames that a packet to be sent takes from the pool.
    per_packet: u32,
    next_id: u64,
    /// What the kernel has sent.
    sent: HashSet<u64>,
}

fn packet(id: u64) -> [u8; 60] {
    let mut packet = [0; 60];
    packet[..8].copy_from_slice(&id.to_be_bytes());
    packet
}

fn id_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[..8].try_into().expect("8 bytes"))
}

/// What becomes of a call when the kernel takes nothing, or a packet came in more frames than the TX ring has slots: no
/// fault of anyone, and no frame may be lost by it.
fn unless_stuck<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(Error::NoProgress { .. }) => None,
        Err(Error::Setting {
            setting: "frames of a packet",
            ..
        }) => None,
        Err(error) => panic!("{error}"),
    }
}

impl Run {
    fn new(options: QueueOptions, mtu: u32, start: u32) -> Self {
        let harness = Harness::new(options).mtu(mtu).start_index(start);
        let (queue, kernel) = harness.open().expect("valid options");
        let frames = queue.report().frames;
        Self {
            per_packet: u32::try_from(queue.packet_room()).expect("small") / (2048 - 256),
            queue,
            kernel,
            kept: Vec::new(),
            frames,
            fill_target: frames.div_ceil(2),
            next_id: 1,
            sent: HashSet::new(),
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The ledger, which is what the rings hold and what the user has in hand.
    fn ledger(&mut self) -> Ledger {
        let ledger = self.queue.ledger().expect("nobody broke the protocol");
        assert_eq!(ledger.total(), self.frames, "{ledger}");
        assert_eq!(ledger.fill, self.kernel.queued(Ring::Fill), "{ledger}");
        assert_eq!(ledger.rx, self.kernel.queued(Ring::Rx), "{ledger}");
        let sending = u32::try_from(self.kernel.sending()).expect("small");
        assert_eq!(ledger.tx, self.kernel.queued(Ring::Tx) + sending, "{ledger}");
        assert_eq!(ledger.completion, self.kernel.queued(Ring::Completion), "{ledger}");
        assert_eq!(
            ledger.user,
            self.kept.iter().map(|kept| kept.frames).sum::<u32>(),
            "{ledger}"
        );
        assert!(ledger.fill + ledger.rx <= self.fill_target, "{ledger}");
        self.kept.iter().for_each(Kept::check);
        ledger
    }

    fn step(&mut self, step: Step) {
        let before = self.ledger();
        match step {
            Step::Deliver { packets, frames } => {
                for _ in 0..packets {
                    let packet = packet(self.id());
                    let mut parts = vec![&packet[..]];
                    parts.resize(frames, &packet[..14]);
                    self.kernel.deliver_parts(&parts);
                }
                let after = self.ledger();
                assert_eq!(after.fill + after.rx, before.fill + before.rx);
            }
            Step::Transmit { packets, frames } => {
                self.transmit(packets, frames);
                let after = self.ledger();
                assert_eq!(after.tx + after.completion, before.tx + before.completion);
            }
            Step::Receive { fates, end } => self.receive(before, &fates, end),
            Step::Alloc => {
                let id = self.id();
                let frame = self.queue.alloc();
                let frames = if frame.is_some() { self.per_packet } else { 0 };
                if let Some(mut frame) = frame {
                    assert!(frame.write(&packet(id)));
                    self.kept.push(Kept { frame, frames, id });
                }
                let after = self.ledger();
                assert_eq!(after.user - before.user, frames);
                assert_eq!(after.fill, before.fill, "what the fill ring needs is not spent");
            }
            Step::Send { which } => self.send(which),
            Step::Drop { count, elsewhere } => {
                let count = count.min(self.kept.len());
                let dropped: Vec<Kept> = self.kept.drain(..count).collect();
                if elsewhere {
                    std::thread::spawn(move || drop(dropped))
                        .join()
                        .expect("dropping is safe");
                } else {
                    drop(dropped);
                }
                let after = self.ledger();
                assert_eq!(after.free - before.free, before.user - after.user);
            }
            Step::SendWith { max, dropped } => {
                let first = self.next_id;
                let mut at = 0;
                let sent = self.queue.send_with(max, |slot| {
                    at += 1;
                    assert!(slot.write(&packet(first + u64::from(at))));
                    if at % dropped == 0 {
                        slot.drop();
                    }
                });
                self.next_id += u64::from(at);
                if let Some(sent) = unless_stuck(sent) {
                    assert_eq!(sent, at - at / dropped);
                }
            }
            Step::Panic { after } => {
                let (queue, mut called) = (&mut self.queue, 0);
                let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    queue.send_with(after + 1, |slot| {
                        slot.drop();
                        called += 1;
                        if called > after {
                            std::panic::resume_unwind(Box::new("a callback of the user's"));
                        }
                    })
                }));
                assert_eq!(result.is_err(), called > after);
            }
            Step::Drain => {
                unless_stuck(self.queue.drain(Duration::ZERO));
            }
        }
        self.ledger();
    }

    fn transmit(&mut self, packets: u32, frames: u32) {
        let sent = &mut self.sent;
        self.kernel.transmit(packets, |packet| {
            assert!(sent.insert(id_of(packet)), "a packet is sent once");
        });
        self.kernel.complete(frames);
    }

    fn receive(&mut self, before: Ledger, fates: &[Fate], end: End) {
        let completed = self.queue.counters().tx_completed;
        let Some(mut burst) = unless_stuck(self.queue.recv(Wait::Spin)) else {
            return;
        };
        assert!(!burst.is_empty() || before.rx == 0);
        let mut frames = 0;
        let mut single = true;
        for (mut packet, fate) in (&mut burst).into_iter().zip(fates.iter().cycle()) {
            let of_packet = u32::try_from(packet.parts().count()).expect("small");
            frames += of_packet;
            single &= of_packet == 1;
            match fate {
                Fate::Open => {}
                Fate::Drop => packet.drop(),
                Fate::Send => packet.send(),
                Fate::Keep => self.kept.push(Kept {
                    id: id_of(packet.data()),
                    frame: packet.keep(),
                    frames: of_packet,
                }),
            }
        }
        match end {
            End::SendBack => drop(unless_stuck(burst.send_back())),
            End::Finish => drop(unless_stuck(burst.finish())),
            End::Forget => std::mem::forget(burst),
        }
        // The fill ring was stocked first, from what was free and what had come back by then; and at the end with what was
        // dropped.
        let back = u32::try_from(self.queue.counters().tx_completed - completed).expect("small");
        let had = before.fill + before.rx;
        let after = self.ledger();
        let stocked = after.fill + after.rx + frames - had;
        let wanted = self.fill_target - had;
        let dropped = if matches!(end, End::Finish) { frames } else { 0 };
        let all_at_once = single && fates.iter().all(|fate| matches!(fate, Fate::Open));
        let least = wanted.min(before.free) + if all_at_once { dropped } else { 0 };
        assert!(stocked >= least, "{before}: {stocked}");
        assert!(
            stocked <= wanted.min(before.free + back) + dropped,
            "{before}: {stocked}"
        );
        assert!(after.fill + after.rx <= self.fill_target, "{after}");
    }

    fn send(&mut self, which: usize) {
        if self.kept.is_empty() {
            return;
        }
        let kept = self.kept.swap_remove(which % self.kept.len());
        // When the kernel takes nothing off a full ring the frame comes back; as it does when it is too long for the ring.
        if let Err(SendError { error, frame }) = self.queue.send(kept.frame) {
            unless_stuck(Err::<(), _>(error));
            self.kept.push(Kept { frame, ..kept });
        }
    }

    /// At the end all frames can be had back, each once.
    fn finish(mut self) {
        self.kept.clear();
        loop {
            self.transmit(u32::MAX, u32::MAX);
            if unless_stuck(self.queue.drain(Duration::ZERO)) == Some(true) {
                break;
            }
        }
        let ledger = self.ledger();
        assert_eq!((ledger.user, ledger.tx, ledger.completion), (0, 0, 0), "{ledger}");
        let frames: Vec<Frame> = std::iter::from_fn(|| self.queue.alloc()).collect();
        let places: HashSet<*const u8> = frames.iter().map(|frame| frame.data().as_ptr()).collect();
        assert_eq!(places.len(), frames.len(), "no frame is there twice");
        let reserved = self.fill_target - ledger.fill - ledger.rx;
        let spare = ledger.free.saturating_sub(reserved) / self.per_packet;
        assert_eq!(frames.len(), spare as usize, "{ledger}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn frames_are_where_the_ledger_says(
        frames in 4..40_u32,
        tx_bits in 0..6_u32,
        completion_bits in 0..6_u32,
        batch in 1..12_u32,
        jumbo in prop::option::of(prop_oneof![Just(1500_u32), Just(4000)]),
        start in prop_oneof![Just(u32::MAX - 3), Just(0), any::<u32>()],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mtu = jumbo.unwrap_or(1500);
        let options = QueueOptions::new()
            .frames(frames)
            .multi_buffer(jumbo.is_some())
            // Three frames of 1792 bytes for the larger MTU.
            .tx_ring(1 << tx_bits.max(if mtu == 4000 { 2 } else { 0 }))
            .completion_ring(1 << completion_bits)
            .batch(batch)
            .stall_timeout(Duration::ZERO);
        let mut run = Run::new(options, mtu, start);
        for step in steps {
            run.step(step);
        }
        run.finish();
    }
}

/// A queue for one direction has no frames on the other's rings.
#[test]
fn a_ledger_of_one_direction() {
    let (queue, mut kernel) = Harness::new(QueueOptions::new().direction(Direction::Receive).frames(8))
        .open()
        .unwrap();
    assert!(kernel.deliver(&[1; 60]));
    assert_eq!(
        queue.ledger().unwrap().to_string(),
        "free 0, fill 7, rx 1, user 0, tx 0, completion 0"
    );
    let (mut queue, mut kernel) = Harness::new(QueueOptions::new().direction(Direction::Transmit).frames(8))
        .open()
        .unwrap();
    assert_eq!(queue.send_with(3, |slot| assert!(slot.write(&[1; 60]))).unwrap(), 3);
    kernel.take(2);
    kernel.complete(1);
    assert_eq!(
        queue.ledger().unwrap().to_string(),
        "free 5, fill 0, rx 0, user 0, tx 2, completion 1"
    );
}

/// With several queues on a UMEM each sees the others' frames as the user's.
#[test]
fn a_ledger_of_a_shared_umem() {
    let shared = umem(2048, 40, false).unwrap();
    let harness = Harness::new(QueueOptions::new().frames(16)).umem(&shared);
    let (mut from, mut kernel) = harness.open().unwrap();
    let (mut to, _to_kernel) = harness.open().unwrap();
    assert_eq!(
        from.ledger().unwrap().to_string(),
        "free 16, fill 8, rx 0, user 16, tx 0, completion 0"
    );
    assert!(kernel.deliver(&[1; 60]));
    from.recv(Wait::Spin).unwrap().send_on(&mut to).unwrap();
    // The other one has a frame more in its care than its share, and gave a free one away in return.
    assert_eq!(
        from.ledger().unwrap().to_string(),
        "free 17, fill 7, rx 0, user 16, tx 0, completion 0"
    );
    assert_eq!(
        to.ledger().unwrap().to_string(),
        "free 16, fill 8, rx 0, user 15, tx 1, completion 0"
    );
}

/// More packets on the RX ring than frames were lent for: the sum is wrong before any of them is looked at.
#[test]
fn frames_that_do_not_add_up_poison_the_queue() {
    let (mut queue, mut kernel) = Harness::new(QueueOptions::new().frames(8).rx_ring(64)).open().unwrap();
    let mut hostile = kernel.hostile(&mut queue);
    let words = hostile.words(Ring::Rx);
    hostile.set_words(
        Ring::Rx,
        Words {
            producer: words.producer + 5,
            ..words
        },
    );
    let error = queue.ledger().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("5 frame(s) are on the RX ring where 4 can be"),
        "{error}"
    );
    assert!(
        matches!(queue.recv(Wait::Spin), Err(Error::Poisoned { .. })),
        "and stays so"
    );
}

/// The check comes by itself: every 1024 bursts, in a debug build first every 16.
#[test]
fn the_ledger_is_checked_from_time_to_time() {
    let every = if cfg!(debug_assertions) { 16 } else { 1024 };
    for receives in [true, false] {
        let burst = |queue: &mut Queue| match receives {
            true => queue.recv(Wait::Spin).map(drop),
            false => queue.flush(),
        };
        let (mut queue, mut kernel) = Harness::new(QueueOptions::new().frames(8)).open().unwrap();
        let mut hostile = kernel.hostile(&mut queue);
        let words = hostile.words(Ring::Completion);
        hostile.set_words(
            Ring::Completion,
            Words {
                producer: words.producer + 1,
                ..words
            },
        );
        // Nothing was sent, so nothing else looks at the completion ring.
        assert_eq!((0..2000).take_while(|_| burst(&mut queue).is_ok()).count(), every - 1);
        let error = burst(&mut queue).unwrap_err().to_string();
        assert!(
            error.contains("1 frame(s) are on the completion ring where 0 can be"),
            "{error}"
        );
    }
}

/// The real kernel moves frames while they are counted: the sum is right all the same, and the user's part exact.
#[test]
fn a_ledger_on_the_real_kernel() {
    if !is_root() {
        return;
    }
    let lab = lab("ledger", 2);
    for path in MODES {
        let mut server = open(&lab.b, path, |port| port);
        let mut client = sender(&lab.a);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tx = client.queues_mut().nth(1).unwrap();
                let template = numbered(1, lab.a.mac, lab.b.mac);
                while !stop.load(Ordering::Relaxed) {
                    tx.send_with(32, |slot| assert!(slot.write(&template))).unwrap();
                    assert_eq!(tx.ledger().unwrap().total(), 256);
                    pause();
                }
                assert!(tx.drain(Duration::from_secs(2)).unwrap());
                assert_eq!(
                    tx.ledger().unwrap().to_string(),
                    "free 256, fill 0, rx 0, user 0, tx 0, completion 0"
                );
            });
            let rx = server.queues_mut().nth(arrives_at(1, path)).unwrap();
            let (mut kept, mut received) = (Vec::new(), 0);
            while received < 5000 {
                let mut burst = rx.recv(Wait::Poll(Duration::from_secs(5))).unwrap();
                assert!(!burst.is_empty(), "{path}: nothing came for 5 s");
                received += burst.len();
                kept.extend((&mut burst).into_iter().step_by(5).map(Packet::keep));
                burst.send_back().unwrap();
                let ledger = rx.ledger().unwrap();
                assert_eq!(
                    (ledger.total(), ledger.user as usize),
                    (QueueOptions::DEFAULT_FRAMES, kept.len()),
                    "{path}: {ledger}"
                );
                let dropped = kept.len().min(10);
                kept.drain(..dropped);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
