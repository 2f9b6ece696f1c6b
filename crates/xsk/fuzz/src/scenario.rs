//! One input's worth of a hostile kernel and of a user who does not know: the target of the fuzzer (`make fuzz`) and of
//! `crates/xsk/tests/it/hostile.rs`, which runs it without one.
//!
//! The input is a list of acts. The kernel delivers and completes as it should, or overwrites indices, flags and
//! descriptors; the user receives, keeps, edits, sends, drops. What must hold whatever the kernel does:
//!
//! - no access outside of the rings and the UMEM (AddressSanitizer sees it) and no panic;
//! - what the user holds lies in the frames of the UMEM, each part in one frame, no two parts overlap, and nobody else
//!   changes a byte of it;
//! - the only error that the kernel can cause is `Poisoned` (and `NoProgress`, when it takes nothing);
//! - a poisoned queue stays so, and touches no ring any more.

use std::ops::Range;
use std::time::Duration;

use ringside_xsk::clock::{Tai, Timestamp};
use ringside_xsk::testing::{Harness, Kernel, Ring, Words};
use ringside_xsk::tx_metadata::{LaunchTime, StampSampling, TxMeta, TxMetadata};
use ringside_xsk::{Direction, Error, Frame, Packet, Path, Queue, QueueOptions, SendError, Violation, Wait};

/// Runs one input.
///
/// # Panics
///
/// When one of the above does not hold.
pub(crate) fn run(input: &[u8]) {
    let mut bytes = Bytes(input);
    let Some(mut world) = World::new(&mut bytes) else {
        return;
    };
    // Longer inputs say nothing that shorter ones do not.
    for _ in 0..200 {
        if bytes.0.is_empty() {
            break;
        }
        world.act(&mut bytes);
        world.check();
    }
}

/// The rest of the input; zeros behind its end.
struct Bytes<'i>(&'i [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }
}

const RINGS: [Ring; 4] = [Ring::Fill, Ring::Completion, Ring::Rx, Ring::Tx];

/// A packet that the user keeps, all of it filled with one byte.
struct Held {
    frame: Frame,
    mark: u8,
}

struct World {
    queue: Queue,
    kernel: Kernel,
    held: Vec<Held>,
    next_mark: u8,
    memory: Range<usize>,
    /// It was opened for TX metadata.
    asking: bool,
    frame_size: usize,
    poison: Option<Violation>,
    /// The rings when the queue was poisoned, or when the kernel last wrote to them.
    image: Option<[Vec<u64>; 4]>,
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Option<Self> {
        let sizes = bytes.byte();
        let ring = |shift: u8| 1 << (sizes >> shift & 3);
        let how = bytes.byte();
        let (multi_buffer, asking) = (how % 2 == 1, how / 2 % 2 == 1);
        let mut options = QueueOptions::new()
            .frames(1 + u32::from(bytes.byte() % 16))
            .frame_size(bytes.one_of(&[2048, 4096, 3000]))
            .unaligned_chunks(bytes.one_of(&[false, true]))
            .headroom(bytes.one_of(&[0, 64, 1728]))
            .multi_buffer(multi_buffer)
            .direction(bytes.one_of(&[
                Direction::Both,
                Direction::Both,
                Direction::Receive,
                Direction::Transmit,
            ]))
            .need_wakeup(bytes.one_of(&[true, false]))
            .batch(1 + u32::from(bytes.byte() % 9))
            .rx_ring(ring(0))
            .tx_ring(ring(2))
            .fill_ring(ring(4))
            .completion_ring(ring(6))
            .stall_timeout(Duration::ZERO);
        let path = bytes.one_of(&[Path::NativeCopy, Path::ZeroCopy]);
        if asking {
            options = options.tx_metadata(wanted(path, how));
        }
        let harness = Harness::new(options)
            .path(path)
            .mtu(bytes.one_of(&[1500, 4000]))
            .start_index(bytes.one_of(&[0, u32::MAX - 2, u32::MAX, 1 << 31]));
        let (queue, kernel) = match harness.open() {
            Ok(opened) => opened,
            // A TX ring that is too small for a packet of that MTU.
            Err(Error::Setting { .. }) => return None,
            Err(error) => panic!("{error}"),
        };
        Some(Self {
            frame_size: queue.report().frame_size as usize,
            memory: kernel.memory(),
            asking,
            queue,
            kernel,
            held: Vec::new(),
            next_mark: 0,
            poison: None,
            image: None,
        })
    }

    fn act(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0 => self.deliver(bytes),
            1 => {
                self.kernel.take(u32::from(bytes.byte()));
                self.kernel.complete(u32::from(bytes.byte()));
                self.kernel.wakeups();
                self.image = None;
            }
            2 | 3 => self.receive(bytes),
            4 => self.alloc(),
            5 => self.send(bytes),
            6 if !self.held.is_empty() => {
                let which = bytes.below(self.held.len());
                self.held.swap_remove(which);
            }
            7 => self.send_with(bytes),
            8 => {
                let flushed = self.queue.flush();
                self.outcome(flushed);
            }
            9 => {
                let drained = self.queue.drain(Duration::ZERO);
                self.outcome(drained);
            }
            10 => {
                let ledger = self.queue.ledger();
                if let Some(ledger) = self.outcome(ledger) {
                    assert_eq!(ledger.total(), self.queue.report().frames);
                    let parts = self.held.iter().map(|held| held.frame.parts().count()).sum::<usize>();
                    assert!(ledger.user as usize >= parts, "{ledger}, and {parts} in hand");
                }
            }
            11 | 12 => self.post(bytes),
            13 => self.overwrite_words(bytes),
            14 => {
                let ring = bytes.one_of(&RINGS);
                let near = self.kernel.hostile(&mut self.queue).words(ring).consumer;
                let index = near.wrapping_add(u32::from(bytes.byte() % 16));
                self.overwrite_slot(bytes, ring, index);
            }
            _ => {
                // Nothing is known of a queue from these, but they have to work.
                self.queue.free_frames();
                self.queue.in_flight();
                if self.asking {
                    let told = self.queue.tx_stamps().map(|stamps| stamps.take(3).count() as u64);
                    let told = self.outcome(told).unwrap_or(0);
                    let counters = self.queue.stamp_counters();
                    assert!(counters.asked <= counters.wanted && told <= counters.stamped);
                    assert!(counters.outstanding() <= u64::from(self.queue.report().frames));
                }
            }
        }
    }

    /// A packet arrives as it should, in one part or in several; 64 bytes are left of a frame with all its headroom.
    fn deliver(&mut self, bytes: &mut Bytes<'_>) {
        let parts = [[0x11_u8; 60].as_slice(), &[0x22; 14], &[0x33; 64]];
        let count = 1 + bytes.below(3);
        for _ in 0..=bytes.below(4) {
            self.kernel.deliver_parts(&parts[..count]);
        }
        self.image = None;
    }

    fn receive(&mut self, bytes: &mut Bytes<'_>) {
        let wait = bytes.one_of(&[Wait::Spin, Wait::BusyPoll, Wait::Poll(Duration::ZERO)]);
        // Borrowed by the burst, so not `self.outcome()` and not `self.claim()` until it has ended.
        let (mut kept, mut windows) = (Vec::new(), self.windows());
        let result = match self.queue.recv(wait) {
            Err(error) => Err(error),
            Ok(mut burst) => {
                let (mut left, empty) = (burst.len(), burst.is_empty());
                assert!(left != 0 || empty);
                for mut packet in &mut burst {
                    left -= 1;
                    windows.extend(packet.parts().map(window));
                    self.next_mark = next(self.next_mark);
                    edit(&mut packet, bytes, self.next_mark);
                    match bytes.byte() % 8 {
                        4 | 5 if self.asking => drop(packet.ask(meta(bytes))),
                        0 => packet.drop(),
                        1 => packet.send(),
                        2 | 3 => kept.push(Held {
                            mark: self.next_mark,
                            frame: packet.keep(),
                        }),
                        _ => {}
                    }
                }
                assert_eq!(left, 0, "as many packets as were told");
                match bytes.byte() % 4 {
                    0 => burst.finish().map(drop),
                    1 => {
                        std::mem::forget(burst);
                        Ok(())
                    }
                    _ => burst.send_back().map(drop),
                }
            }
        };
        disjoint(windows);
        self.held.append(&mut kept);
        self.outcome(result);
    }

    fn alloc(&mut self) {
        // An error is told by the next call.
        if let Some(mut frame) = self.queue.alloc() {
            assert_eq!(self.poison, None, "a poisoned queue gives no frames");
            self.next_mark = next(self.next_mark);
            let mark = self.next_mark;
            let room = frame.capacity();
            assert!(room >= self.queue.packet_room() && frame.resize(room));
            let front = frame.headroom();
            assert!(frame.extend_front(front));
            frame.parts_mut().for_each(|part| part.fill(mark));
            self.held.push(Held { frame, mark });
        }
    }

    fn send(&mut self, bytes: &mut Bytes<'_>) {
        if self.held.is_empty() {
            return;
        }
        let which = bytes.below(self.held.len());
        let Held { mut frame, mark } = self.held.swap_remove(which);
        let len = match bytes.byte() {
            // Too short to be sent.
            byte @ 0..14 => usize::from(byte),
            byte => (usize::from(byte) * 16).min(frame.len()),
        };
        assert!(frame.resize(len.min(frame.len())));
        let sent = match self.asking {
            true => self.queue.send_asking(frame, meta(bytes)),
            false => self.queue.send(frame),
        };
        let result = sent.map_err(|SendError { error, frame }| {
            self.held.push(Held { frame, mark });
            error
        });
        self.outcome(result);
    }

    fn send_with(&mut self, bytes: &mut Bytes<'_>) {
        let (max, held, asking) = (u32::from(bytes.byte() % 12), self.windows(), self.asking);
        let sent = self.queue.send_asking_with(max, |packet| {
            let room = packet.capacity();
            assert!(packet.resize(room));
            // The frame of one that was dropped may be the next one's.
            disjoint(packet.parts().map(window).chain(held.iter().cloned()).collect());
            self.next_mark = next(self.next_mark);
            edit(packet, bytes, self.next_mark);
            if bytes.below(4) == 0 {
                packet.drop();
            }
            if asking { meta(bytes) } else { TxMeta::new() }
        });
        if let Some(sent) = self.outcome(sent) {
            assert!(sent <= max);
        }
    }

    /// The kernel puts a descriptor of its invention on a ring.
    fn post(&mut self, bytes: &mut Bytes<'_>) {
        let ring = bytes.one_of(&[Ring::Rx, Ring::Rx, Ring::Completion]);
        let count = 1 + u32::from(bytes.byte() % 3);
        for _ in 0..count {
            let Words {
                producer,
                consumer,
                flags,
            } = self.kernel.hostile(&mut self.queue).words(ring);
            self.overwrite_slot(bytes, ring, producer);
            let words = Words {
                producer: producer.wrapping_add(1),
                consumer,
                flags,
            };
            self.kernel.hostile(&mut self.queue).set_words(ring, words);
        }
        self.image = None;
    }

    fn overwrite_slot(&mut self, bytes: &mut Bytes<'_>, ring: Ring, index: u32) {
        let frames = u64::from(self.queue.report().frames);
        let size = self.frame_size as u64;
        let frame = u64::from(bytes.byte()) % (frames + 2) * size;
        let offset = match bytes.byte() {
            byte @ 0..192 => u64::from(byte) * 16,
            byte => size - 32 + u64::from(byte % 64),
        };
        let addr = match bytes.byte() % 16 {
            0 => bytes.long(),
            1 => u64::MAX - u64::from(bytes.byte()),
            2 => frames * size - u64::from(bytes.byte()),
            3 => frame | offset << 48,
            4 => frame | bytes.long() << 48,
            5 => offset | frame << 48,
            _ => frame + offset,
        };
        // About as long as the frame is from there.
        let rest = u32::try_from(size.saturating_sub(offset)).unwrap_or(0);
        let len = match bytes.byte() {
            byte @ 0..128 => u32::from(byte),
            byte @ 128..192 => rest.wrapping_add(u32::from(byte)).wrapping_sub(160),
            byte @ 192..224 => u32::from(byte) * 64,
            byte @ 224..250 => u32::MAX - u32::from(byte),
            _ => bytes.word(),
        };
        let options = match bytes.byte() {
            0..128 => 0,
            128..224 => 1,
            _ => bytes.word(),
        };
        let mut hostile = self.kernel.hostile(&mut self.queue);
        hostile.set_slot(ring, index, addr, len, options);
        self.image = None;
    }

    fn overwrite_words(&mut self, bytes: &mut Bytes<'_>) {
        let ring = bytes.one_of(&RINGS);
        let mut words = self.kernel.hostile(&mut self.queue).words(ring);
        let (what, how) = (bytes.byte(), bytes.byte());
        let field = match what % 4 {
            0 => &mut words.flags,
            1 => &mut words.consumer,
            _ => &mut words.producer,
        };
        *field = match how {
            0..96 => field.wrapping_add(u32::from(how % 16)),
            96..192 => field.wrapping_sub(u32::from(how % 16)),
            192..224 => u32::from(how % 4),
            _ => bytes.word(),
        };
        self.kernel.hostile(&mut self.queue).set_words(ring, words);
        self.image = None;
    }

    /// Notes what an answer says about the queue, and that it may say so.
    fn outcome<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(done) => {
                assert_eq!(self.poison, None, "a poisoned queue answers with its error");
                Some(done)
            }
            Err(Error::Poisoned { violation, .. }) => {
                assert!(self.poison.is_none_or(|before| before == violation), "{violation}");
                self.poison = Some(violation);
                None
            }
            // The user's own doing: a packet too short, or in too many frames; the other direction.
            Err(Error::Setting { .. }) => None,
            // Or it asked for what it cannot.
            Err(Error::TxMetadata { .. }) => None,
            Err(Error::NoProgress { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn windows(&self) -> Vec<Range<usize>> {
        let parts = self.held.iter().flat_map(|held| held.frame.parts());
        parts.filter(|part| !part.is_empty()).map(window).collect()
    }

    fn check(&mut self) {
        let windows = self.windows();
        for part in &windows {
            let inside = self.memory.start <= part.start && part.end <= self.memory.end;
            assert!(inside, "{part:x?} is in the UMEM {:x?}", self.memory);
            let frame = |at: usize| (at - self.memory.start) / self.frame_size;
            assert_eq!(frame(part.start), frame(part.end - 1), "{part:x?} is in one frame");
        }
        disjoint(windows);
        for held in &self.held {
            let ends = held
                .frame
                .parts()
                .flat_map(|part| part.first().into_iter().chain(part.last()));
            assert!(
                ends.into_iter().all(|&byte| byte == held.mark),
                "nobody else has written to it"
            );
        }
        if self.poison.is_some() {
            let hostile = self.kernel.hostile(&mut self.queue);
            let image = RINGS.map(|ring| hostile.image(ring));
            let before = self.image.get_or_insert_with(|| image.clone());
            assert!(*before == image, "a poisoned queue touches no ring");
        }
    }
}

/// What packets may ask for: on a copy path all, with zero-copy what every interface can ignore.
fn wanted(path: Path, how: u8) -> TxMetadata {
    let wanted = TxMetadata::new().launch_time(LaunchTime::IfAvailable);
    if path == Path::ZeroCopy {
        return wanted;
    }
    let sampling = StampSampling::one_in(1 + u32::from(how / 4 % 4)).outstanding(1 + u32::from(how / 16));
    let wanted = wanted.timestamps(sampling);
    match how / 64 {
        0 => wanted,
        1 => wanted.software_checksum(),
        _ => wanted.checksum(),
    }
}

/// What a packet asks for, sense or nonsense.
fn meta(bytes: &mut Bytes<'_>) -> TxMeta {
    let what = bytes.byte();
    let mut meta = TxMeta::new();
    if what & 1 != 0 {
        meta = meta.timestamp(what.into());
    }
    if what & 2 != 0 {
        let place = |byte: u8| {
            if byte < 250 {
                u16::from(byte)
            } else {
                u16::MAX - u16::from(byte)
            }
        };
        meta = meta.checksum(place(bytes.byte()), place(bytes.byte()));
    }
    if what & 4 != 0 {
        meta = meta.launch_time(Timestamp::<Tai>::from_nanos(bytes.long()));
    }
    meta
}

/// The user makes a packet longer, shorter, or moves its front, and fills all of it with `mark`.
fn edit(packet: &mut Packet<'_>, bytes: &mut Bytes<'_>, mark: u8) {
    let how = bytes.byte();
    let by = usize::from(how) * 8;
    let (headroom, len, capacity) = (packet.headroom(), packet.len(), packet.capacity());
    match how % 6 {
        0 => assert_eq!(packet.extend_front(by), by <= headroom),
        1 => _ = packet.trim_front(by),
        2 => assert!(packet.resize(by.min(len))),
        3 => assert!(packet.resize(by) || by > len),
        4 => assert!(packet.write(&vec![mark; by.min(capacity)])),
        _ => {}
    }
    packet.parts_mut().for_each(|part| part.fill(mark));
}

fn next(mark: u8) -> u8 {
    mark % 250 + 1
}

fn window(part: &[u8]) -> Range<usize> {
    let start = part.as_ptr() as usize;
    start..start + part.len()
}

fn disjoint(mut windows: Vec<Range<usize>>) {
    windows.sort_unstable_by_key(|part| part.start);
    for pair in windows.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:x?} overlap");
    }
}
