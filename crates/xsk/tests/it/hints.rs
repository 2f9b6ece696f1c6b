//! Hints in front of packets: never a wrong value, whatever lay there before. On rings in memory, and through the kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::traffic::{only, send};
use crate::common::{MODES, lab, open, packet_of, roomy, sender};
use ringside_bpf::testing::{LAYOUTS, LAYOUTS_FILE};
use ringside_bpf::{Generator, GeneratorOptions, UserProgram};
use ringside_netlab::testing::is_root;
use ringside_xsk::hints::{Btf, HintCounters, Hints, LayoutError, Layouts, Reader, Value};
use ringside_xsk::testing::{Harness, Kernel};
use ringside_xsk::{Error, Packet, Path, Program, Queue, QueueOptions, SharedUmem, Wait};

#[derive(Hints, Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct TestTime {
    number: u64,
    queue: u32,
    btf_id: u32,
}

#[derive(Hints, Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct TestMark {
    mark: u32,
    btf_id: u32,
}

#[derive(Hints, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Step {
    low: u16,
    negative: i16,
}

#[derive(Hints, Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct TestWhole {
    steps: [Step; 3],
    wide: u64,
    bytes: [u8; 6],
    proto: u16,
    btf_id: u32,
}

/// The layouts of the test program, and readers of all three.
struct Set {
    layouts: Layouts,
    time: Reader<TestTime>,
    mark: Reader<TestMark>,
    whole: Reader<TestWhole>,
}

fn set() -> Set {
    let mut layouts = Layouts::of(&Btf::object(LAYOUTS).unwrap()).unwrap();
    Set {
        time: layouts.reader().unwrap(),
        mark: layouts.reader().unwrap(),
        whole: layouts.reader().unwrap(),
        layouts,
    }
}

fn bytes_of(time: TestTime) -> Vec<u8> {
    let TestTime { number, queue, btf_id } = time;
    [&number.to_ne_bytes()[..], &queue.to_ne_bytes(), &btf_id.to_ne_bytes()].concat()
}

const PACKET: [u8; 64] = [9; 64];

struct Bench {
    queue: Queue,
    kernel: Kernel,
    set: Set,
    front: Vec<u8>,
}

impl Bench {
    /// One frame, so that each packet lies where the last one did.
    fn new(options: QueueOptions) -> Self {
        let set = set();
        let options = options.frames(2).hints(set.layouts.clone());
        let (queue, kernel) = Harness::new(options).open().unwrap();
        let btf_id = set.layouts.layout("test_time").unwrap().id();
        let front = bytes_of(TestTime {
            number: 0x1234_5678_9abc,
            queue: 3,
            btf_id,
        });
        Self {
            queue,
            kernel,
            set,
            front,
        }
    }

    /// Receives one packet, with these bytes in front of it.
    fn receive<T>(&mut self, front: &[u8], see: impl FnOnce(&mut Packet<'_>, &Set) -> T) -> T {
        self.queue.recv(Wait::Spin).unwrap();
        assert!(self.kernel.deliver_behind(front, &PACKET));
        let mut burst = self.queue.recv(Wait::Spin).unwrap();
        let seen = see(&mut burst.iter_mut().next().unwrap(), &self.set);
        burst.finish().unwrap();
        seen
    }

    fn counters(&self) -> (u64, u64, u64) {
        let HintCounters {
            absent, unknown, stale, ..
        } = self.queue.hint_counters();
        (absent, unknown, stale)
    }
}

fn number(time: Option<TestTime>) -> Option<u64> {
    time.map(|time| time.number)
}

#[test]
fn what_an_earlier_packet_left_is_no_hint() {
    for options in [QueueOptions::new(), QueueOptions::new().frame_size(3000).headroom(8)] {
        let mut bench = Bench::new(options);
        let front = bench.front.clone();
        for _ in 0..5 {
            bench.receive(&front, |packet, set| {
                assert_eq!(number(packet.hints(set.time)), Some(0x1234_5678_9abc));
                assert!(packet.hints(set.mark).is_none(), "another struct");
            });
            bench.receive(&[], |packet, set| {
                assert_eq!(number(packet.hints(set.time)), None);
                assert!(packet.raw_hints().is_none());
            });
        }
        assert_eq!(bench.counters(), (10, 0, 0));
        bench.receive(&[0xff; 16], |packet, set| assert!(packet.hints(set.time).is_none()));
        assert_eq!(bench.counters(), (10, 1, 0));
        // What the user wrote there is none either: the header of a packet that was encapsulated.
        bench.receive(&[], |packet, _| {
            assert!(packet.extend_front(front.len()));
            packet.data_mut()[..front.len()].copy_from_slice(&front);
        });
        bench.receive(&[], |packet, set| assert_eq!(number(packet.hints(set.time)), None));
        assert_eq!(bench.counters(), (11, 1, 0));
    }
}

type Change = fn(&mut Packet<'_>);

#[test]
fn a_packet_that_was_moved_or_replaced_has_none() {
    let changes: [(&str, Change); 4] = [
        ("extended", |packet| assert!(packet.extend_front(1))),
        ("trimmed", |packet| assert!(packet.trim_front(1))),
        ("there and back", |packet| {
            assert!(packet.trim_front(4) && packet.extend_front(4))
        }),
        ("replaced", |packet| assert!(packet.write(&[1; 60]))),
    ];
    for (what, change) in changes {
        let mut bench = Bench::new(QueueOptions::new());
        let front = bench.front.clone();
        bench.receive(&front, |packet, set| {
            assert!(packet.hints(set.time).is_some());
            packet.data_mut()[0] ^= 1;
            assert!(
                packet.resize(40) && packet.hints(set.time).is_some(),
                "its end may be another"
            );
            change(packet);
            assert!(
                packet.hints(set.time).is_none() && packet.raw_hints().is_none(),
                "{what}"
            );
        });
        assert_eq!(bench.counters(), (0, 0, 2), "{what}");
    }
}

#[test]
fn frames_keep_hints_until_they_are_sent() {
    let mut bench = Bench::new(QueueOptions::new());
    let front = bench.front.clone();
    bench.queue.recv(Wait::Spin).unwrap();
    assert!(bench.kernel.deliver_behind(&front, &PACKET));
    let mut burst = bench.queue.recv(Wait::Spin).unwrap();
    let mut kept = burst.iter_mut().next().unwrap().keep();
    burst.finish().unwrap();
    assert_eq!(number(kept.hints(bench.set.time)), Some(0x1234_5678_9abc));
    assert!(kept.extend_front(4));
    assert!(kept.hints(bench.set.time).is_none());
    bench.queue.send(kept).unwrap();
    bench.kernel.take(8);
    bench.kernel.complete(8);
    // The frame that comes from the pool still has those bytes in front of it, and is of no packet that was received.
    let frames = bench.queue.free_frames();
    let sent = bench.queue.send_with(2, |packet| {
        assert!(packet.hints(bench.set.time).is_none());
        assert!(packet.write(&PACKET) && packet.hints(bench.set.time).is_none());
    });
    assert!(sent.unwrap() >= 1, "{frames}");
    bench.kernel.take(8);
    bench.kernel.complete(8);
    if let Some(frame) = bench.queue.alloc() {
        assert!(frame.hints(bench.set.time).is_none());
    }
    assert_eq!(bench.counters().0, 0);
}

/// Queues without hints: the reader finds none, and nothing in front of the first packet of the UMEM is touched.
#[test]
fn without_layouts_there_are_no_hints() {
    let set = set();
    let (mut queue, mut kernel) = Harness::new(QueueOptions::new()).open().unwrap();
    assert!(kernel.deliver_behind(&[1; 32], &PACKET));
    let mut burst = queue.recv(Wait::Spin).unwrap();
    for (packet, hints) in burst.with_hints(set.time) {
        assert!(hints.is_none() && packet.hints(set.mark).is_none() && packet.raw_hints().is_none());
    }
    burst.finish().unwrap();
    assert_eq!(queue.hint_counters(), HintCounters::default());
}

#[test]
fn a_shared_umem_has_one_meaning_for_each_id() {
    let set = set();
    let plain = SharedUmem::builder().frames(64).build().unwrap();
    let options = QueueOptions::new().frames(16).hints(set.layouts.clone());
    let refused = Harness::new(options.clone()).umem(&plain).open().unwrap_err();
    assert!(matches!(refused, Error::Setting { setting: "hints", .. }), "{refused}");
    let umem = SharedUmem::builder()
        .frames(64)
        .hints(set.layouts.clone())
        .build()
        .unwrap();
    let (mut with, mut kernel) = Harness::new(options).umem(&umem).open().unwrap();
    let (mut without, mut other) = Harness::new(QueueOptions::new().frames(16)).umem(&umem).open().unwrap();
    let front = bytes_of(TestTime {
        number: 5,
        queue: 0,
        btf_id: set.layouts.layout("test_time").unwrap().id(),
    });
    // The same bytes, which on the queue without hints are of nobody knows which program.
    for (queue, kernel, expected) in [(&mut with, &mut kernel, Some(5)), (&mut without, &mut other, None)] {
        assert!(kernel.deliver_behind(&front, &PACKET));
        let mut burst = queue.recv(Wait::Spin).unwrap();
        for (packet, hints) in burst.with_hints(set.time) {
            assert_eq!(number(hints), expected);
            assert_eq!(number(packet.hints(set.time)), expected);
        }
    }
}

#[test]
fn fields_are_read_by_name() {
    let mut bench = Bench::new(QueueOptions::new());
    let front = bench.front.clone();
    let layouts = bench.queue.layouts().unwrap().clone();
    let (number, mark) = (
        layouts.field("test_time", "number").unwrap(),
        layouts.field("test_mark", "mark").unwrap(),
    );
    let others = set().layouts.field("test_time", "number").unwrap();
    assert!(matches!(
        layouts.field("test_time", "nothing"),
        Err(LayoutError::UnknownField { .. })
    ));
    bench.receive(&front, |packet, _| {
        let raw = packet.raw_hints().unwrap();
        assert_eq!((raw.layout().name(), raw.bytes()), ("test_time", &front[..]));
        assert_eq!(raw.value(&number), Some(Value::Unsigned(0x1234_5678_9abc)));
        assert_eq!(raw.value(&mark), None, "of another struct");
        assert_eq!(raw.value(&others), None, "of another set");
        let table: Vec<_> = raw
            .values()
            .map(|(field, values)| (field.name(), values.collect::<Vec<_>>()))
            .collect();
        let expected = [
            ("number", vec![Value::Unsigned(0x1234_5678_9abc)]),
            ("queue", vec![Value::Unsigned(3)]),
        ];
        assert_eq!(table, expected);
    });
}

/// What the test program writes for packet `n`, or nothing.
fn check(packet: &Packet<'_>, n: u64, set: &Set, seen: &mut [u64; 5]) {
    let (time, mark, whole) = (packet.hints(set.time), packet.hints(set.mark), packet.hints(set.whole));
    let there = [time.is_some(), mark.is_some(), whole.is_some()];
    let kind = usize::try_from(n % 5).unwrap();
    assert_eq!(there, std::array::from_fn(|which| which == kind), "packet {n}");
    assert_eq!(packet.raw_hints().is_some(), kind < 3);
    seen[kind] += 1;
    if let Some(time) = time {
        assert_eq!(({ time.number }, { time.queue }), (n, 0));
    }
    if let Some(mark) = mark {
        assert_eq!(u64::from(mark.mark), n & 0xffff_ffff);
    }
    if let Some(whole) = whole {
        let low = |by: u64| u16::try_from((n + by) & 0xffff).unwrap();
        let steps = [(0, 0), (1, -1), (2, -2)].map(|(by, negative)| Step { low: low(by), negative });
        assert_eq!({ whole.steps }, steps);
        assert_eq!({ whole.wide }, n << 32 | 7);
        assert_eq!(whole.bytes, [0, 1, 2, 3, 4, 5].map(|by| low(by).to_le_bytes()[0]));
        assert_eq!({ whole.proto }, 0x8100_u16.to_be());
    }
}

/// Three structs, none, and an id that means nothing, in turn, through frames that had another one before: 40000 packets, or as
/// many as `RINGSIDE_HINTS_PACKETS` says.
#[test]
fn alternating_layouts_have_never_a_wrong_value() {
    if !is_root() {
        return;
    }
    let count = std::env::var("RINGSIDE_HINTS_PACKETS").map_or(40_000, |count| count.parse().expect("a number"));
    let limit = Duration::from_secs(60 + count / 20_000);
    for path in MODES {
        let lab = lab("altern", 1);
        let set = set();
        let mut port = open(&lab.b, path, |port| {
            let program = UserProgram::load(std::path::Path::new(LAYOUTS_FILE), None, 1, false).unwrap();
            assert_eq!(program.name(), "layouts");
            let (program, xsks_map) = program.into_fds();
            port.program(Program::Custom { program, xsks_map })
                .options(roomy().hints(set.layouts.clone()))
        });
        let mut from = sender(&lab.a);
        let tx = from.queues_mut().next().unwrap();
        let rx = only(&mut port);
        let (mut seen, mut next) = ([0; 5], 0);
        let start = Instant::now();
        // 61 is no multiple of 5 nor of the number of frames: each frame has each kind after each other.
        while next < count {
            let until = next + 61;
            let packets: Vec<_> = (next..until).map(|n| packet_of(n, 64, lab.a.mac, lab.b.mac)).collect();
            send(tx, &packets);
            while next < until {
                assert!(start.elapsed() < limit, "{next} after {limit:?}");
                let mut burst = rx.recv(Wait::Poll(Duration::from_millis(100))).unwrap();
                for (packet, time) in burst.with_hints(set.time) {
                    let n = u64::from_be_bytes(packet.data()[14..22].try_into().unwrap());
                    assert_eq!(n, next);
                    assert_eq!(number(time), (n % 5 == 0).then_some(n));
                    check(&packet, n, &set, &mut seen);
                    next += 1;
                }
            }
        }
        assert!(seen.iter().all(|&kind| kind >= count / 5), "{seen:?}");
        let counters = rx.hint_counters();
        // Each is asked five times: by the burst, by type three times, and for any.
        assert_eq!(
            (counters.absent, counters.unknown, counters.stale),
            (5 * seen[3], 5 * seen[4], 0),
            "{path}"
        );
        assert_ne!(path, Path::ZeroCopy);
    }
}

/// The same as fast as the kernel can make packets and the receiver takes them; what finds no free frame is lost, and checked
/// is what comes: 200000 packets, or as many as `RINGSIDE_HINTS_PACKETS` says.
#[test]
fn alternating_layouts_at_full_rate_have_never_a_wrong_value() {
    if !is_root() {
        return;
    }
    let count = std::env::var("RINGSIDE_HINTS_PACKETS").map_or(200_000, |count| count.parse().expect("a number"));
    let limit = Duration::from_secs(60 + count / 20_000);
    for path in MODES {
        let lab = lab("fullrate", 1);
        let set = set();
        let mut port = open(&lab.b, path, |port| {
            let program = UserProgram::load(std::path::Path::new(LAYOUTS_FILE), None, 1, false).unwrap();
            let (program, xsks_map) = program.into_fds();
            port.program(Program::Custom { program, xsks_map })
                .options(roomy().hints(set.layouts.clone()))
        });
        let options = GeneratorOptions {
            sequence_offset: Some(14),
            ..Default::default()
        };
        let template = packet_of(0, 64, lab.a.mac, lab.b.mac);
        let stop = AtomicBool::new(false);
        let (mut seen, mut next, start) = ([0; 5], 0, Instant::now());
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                lab.a.run(|| {
                    let mut generator = Generator::new(lab.a.interface.index(), &template, options).unwrap();
                    generator.run_for(limit, &stop).unwrap()
                })
            });
            let stops = StopOnDrop(&stop);
            let rx = only(&mut port);
            while seen.iter().sum::<u64>() < count {
                assert!(start.elapsed() < limit, "{seen:?} after {limit:?}");
                let mut burst = rx.recv(Wait::Poll(Duration::from_millis(100))).unwrap();
                for (packet, time) in burst.with_hints(set.time) {
                    let n = u64::from_be_bytes(packet.data()[14..22].try_into().unwrap());
                    assert!(n >= next, "packet {n} after {next}");
                    next = n + 1;
                    assert_eq!(number(time), (n % 5 == 0).then_some(n));
                    check(&packet, n, &set, &mut seen);
                }
            }
            drop(stops);
            sending.join().unwrap()
        });
        let checked: u64 = seen.iter().sum();
        println!(
            "{path}: {checked} packets checked in {:?}, of {} sent",
            start.elapsed(),
            sent.transmitted
        );
        assert!(seen.iter().all(|&kind| kind >= count / 10), "{seen:?}");
        let counters = only(&mut port).hint_counters();
        assert_eq!(
            (counters.absent, counters.unknown, counters.stale),
            (5 * seen[3], 5 * seen[4], 0),
            "{path}"
        );
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What our own program tells is true: a time between before and after, the queue, the CPU, a number without gaps, the mark.
#[test]
fn our_own_program_tells_when_and_where() {
    if !is_root() {
        return;
    }
    for path in MODES {
        for multi_buffer in [false, true] {
            let lab = lab("ownhints", 2);
            let (layouts, reader) = Layouts::ringside();
            let mut port = open(&lab.b, path, |port| {
                port.mark(0xa5)
                    .options(roomy().multi_buffer(multi_buffer).hints(layouts.clone()))
            });
            let mut from = sender(&lab.a);
            let (mut seen, mut count) = ([0; 2], 0_u64);
            for (queue, tx) in from.queues_mut().enumerate() {
                let before = monotonic();
                let packets: Vec<_> = (0..50).map(|n| packet_of(n, 100, lab.a.mac, lab.b.mac)).collect();
                send(tx, &packets);
                let rx = port.queues_mut().nth(common::arrives_at(queue, path)).unwrap();
                let (id, start) = (rx.id(), Instant::now());
                let (mut last, mut got) = (before, 0);
                let mut numbers = std::collections::BTreeMap::<u32, u64>::new();
                while got < 50 {
                    assert!(start.elapsed() < Duration::from_secs(10), "{got} of 50");
                    let mut burst = rx.recv(Wait::Poll(Duration::from_millis(100))).unwrap();
                    for (packet, hints) in burst.with_hints(reader) {
                        let hints = hints.expect("each has some");
                        assert_eq!((hints.rx_queue, hints.mark, packet.len()), (id, 0xa5, 100));
                        assert!((last..=monotonic()).contains(&hints.rx_ktime), "{hints:?}");
                        last = hints.rx_ktime;
                        let next = numbers.entry(hints.rx_cpu).or_insert(hints.packet);
                        assert_eq!(*next, hints.packet, "no gap on a CPU");
                        *next += 1;
                        got += 1;
                    }
                }
                seen[id as usize] += got;
                count += got;
                assert_eq!(rx.hint_counters(), HintCounters::default());
            }
            assert_eq!(count, 100, "{seen:?}");
        }
    }
}

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

/// 4096 readers of one port hold no more than the process has types.
#[test]
fn readers_are_copies() {
    let mut layouts = set().layouts;
    for _ in 0..4096 {
        layouts.reader::<TestTime>().unwrap();
    }
}
