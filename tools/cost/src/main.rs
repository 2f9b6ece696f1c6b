//! What a packet costs in user space, without a kernel: instructions and nanoseconds, on rings in ordinary memory.
//!
//! ```text
//! scripts/cost             the table (make cost)
//! scripts/cost --check     fails when a packet costs more than tools/cost/cost.txt says
//! scripts/cost --record    writes tools/cost/cost.txt
//! ```
//!
//! Instructions are counted by callgrind in the user's part of each turn, [`user_side`], and not in the stand-in for the
//! kernel; the figure is the difference between two runs of different length, so that what is done once cancels. They are
//! the same on every machine, but for the C library's way to copy, which follows the CPU: what copies is not checked.
//! Nanoseconds are the median over turns, less the clock's own; they are of this machine, and show no cache misses of a NIC's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringside_cost::instructions;
use ringside_xsk::hints::{Btf, Hints, Layouts, Reader};
use ringside_xsk::testing::{Harness, Kernel};
use ringside_xsk::tx_metadata::{StampSampling, TxMeta, TxMetadata};
use ringside_xsk::{Direction, Frame, Packet, Queue, QueueOptions, Wait};

/// Packets of a burst, and bytes of a packet.
const BURST: u32 = 64;
const PACKET: [u8; 64] = [0xa5; 64];

/// An object with the struct of hints `test_time`. The crate of the programs would have C to compile.
const LAYOUTS: &[u8] = include_bytes!("../../../crates/bpf/src/generated/testing_layouts.o");

/// What a turn does with its burst.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Receive,
    Reflect,
    Keep,
    SendWith,
    SendCopies,
    AllocAndSend,
    RawHints,
    Hints,
    HintsOfPacket,
    SendSilent,
    Stamps,
}

/// The hints that are read.
#[derive(Hints)]
#[repr(C, packed(4))]
struct TestTime {
    number: u64,
    queue: u32,
    btf_id: u32,
}

struct Case {
    name: &'static str,
    what: &'static str,
    work: Work,
    /// Whether its instructions are those of this crate alone.
    checked: bool,
}

const CASES: [Case; 11] = [
    Case {
        name: "receive",
        what: "recv, look at each packet's length, drop",
        work: Work::Receive,
        checked: true,
    },
    Case {
        name: "reflect",
        what: "recv, send_back, completions",
        work: Work::Reflect,
        checked: true,
    },
    Case {
        name: "keep",
        what: "recv, keep each packet, drop the frames",
        work: Work::Keep,
        checked: true,
    },
    Case {
        name: "send_with",
        what: "send_with a length and no bytes, completions",
        work: Work::SendWith,
        checked: true,
    },
    Case {
        name: "send_copies",
        what: "send_with a copy of 64 bytes, completions",
        work: Work::SendCopies,
        checked: false,
    },
    Case {
        name: "alloc_send",
        what: "alloc, a length, send; one flush a burst",
        work: Work::AllocAndSend,
        checked: true,
    },
    Case {
        name: "hints_raw",
        what: "as receive with hints on, a number in front of each packet by raw pointer",
        work: Work::RawHints,
        checked: true,
    },
    Case {
        name: "hints",
        what: "the same number as a field of typed hints, for the burst",
        work: Work::Hints,
        checked: true,
    },
    Case {
        name: "hints_packet",
        what: "the same, packet by packet",
        work: Work::HintsOfPacket,
        checked: true,
    },
    Case {
        name: "send_silent",
        what: "as send_with, on a queue with TX metadata, and nothing asked for",
        work: Work::SendSilent,
        checked: true,
    },
    Case {
        name: "stamps",
        what: "send_asking_with a stamp for each packet, completions, stamps taken",
        work: Work::Stamps,
        checked: true,
    },
];

/// One queue and its kernel.
struct Turns {
    queue: Queue,
    kernel: Kernel,
    kept: Vec<Frame>,
    work: Work,
    reader: Reader<TestTime>,
    front: Vec<u8>,
}

impl Turns {
    fn new(work: Work) -> Self {
        let direction = match work {
            Work::Receive | Work::Keep | Work::RawHints | Work::Hints | Work::HintsOfPacket => Direction::Receive,
            Work::Reflect => Direction::Both,
            _ => Direction::Transmit,
        };
        let mut options = QueueOptions::new().direction(direction).batch(BURST);
        let btf = Btf::object(LAYOUTS).expect("an object");
        let mut layouts = Layouts::of(&btf).expect("structs of hints");
        let reader = layouts.reader::<TestTime>().expect("as the program has it");
        let id = layouts.layout("test_time").expect("it is there").id();
        let front = [&1_u64.to_ne_bytes()[..], &0_u32.to_ne_bytes(), &id.to_ne_bytes()].concat();
        if matches!(work, Work::RawHints | Work::Hints | Work::HintsOfPacket) {
            options = options.hints(layouts);
        }
        if matches!(work, Work::SendSilent | Work::Stamps) {
            options = options.tx_metadata(TxMetadata::new().timestamps(StampSampling::all()));
        }
        let (queue, kernel) = Harness::new(options).open().expect("valid options");
        Self {
            queue,
            kernel,
            kept: Vec::with_capacity(BURST as usize),
            work,
            reader,
            front,
        }
    }

    /// The kernel's part before the user's.
    fn kernel_side(&mut self) {
        self.kernel.transmit_asking(u32::MAX, |_, metadata| {
            if let Some(metadata) = metadata {
                metadata[8..16].copy_from_slice(&1_u64.to_ne_bytes());
            }
        });
        self.kernel.complete(u32::MAX);
        if matches!(self.work, Work::RawHints | Work::Hints | Work::HintsOfPacket) {
            for _ in 0..BURST {
                assert!(self.kernel.deliver_behind(&self.front, &PACKET));
            }
        }
        if matches!(self.work, Work::Receive | Work::Reflect | Work::Keep) {
            for _ in 0..BURST {
                assert!(self.kernel.deliver(&PACKET));
            }
        }
    }
}

/// The part that is counted and timed.
#[inline(never)]
fn user_side(turns: &mut Turns) -> u32 {
    let queue = &mut turns.queue;
    match turns.work {
        Work::Receive => {
            let mut burst = queue.recv(Wait::Spin).expect("sound");
            let bytes: usize = burst.iter_mut().map(|packet| packet.len()).sum();
            std::hint::black_box(bytes);
            burst.finish().expect("sound");
            BURST
        }
        Work::Reflect => {
            let burst = queue.recv(Wait::Spin).expect("sound");
            burst.send_back().expect("sound")
        }
        Work::Keep => {
            let mut burst = queue.recv(Wait::Spin).expect("sound");
            turns.kept.extend(burst.iter_mut().map(Packet::keep));
            burst.finish().expect("sound");
            let kept = turns.kept.len();
            turns.kept.clear();
            u32::try_from(kept).expect("a burst")
        }
        Work::RawHints => {
            let mut burst = queue.recv(Wait::Spin).expect("sound");
            let mut sum = 0_u64;
            for packet in &mut burst {
                let start = packet.data().as_ptr();
                // SAFETY: the kernel's stand-in has put 16 bytes in front of the packet, which starts with a number.
                sum += unsafe { start.sub(16).cast::<u64>().read_unaligned() };
            }
            assert_eq!(std::hint::black_box(sum), u64::from(BURST));
            burst.finish().expect("sound");
            BURST
        }
        Work::Hints => {
            let mut burst = queue.recv(Wait::Spin).expect("sound");
            let mut sum = 0_u64;
            for (_, hints) in burst.with_hints(turns.reader) {
                let Some(hints) = hints else { continue };
                sum += hints.number;
            }
            assert_eq!(std::hint::black_box(sum), u64::from(BURST));
            burst.finish().expect("sound");
            BURST
        }
        Work::HintsOfPacket => {
            let mut burst = queue.recv(Wait::Spin).expect("sound");
            let mut sum = 0_u64;
            for packet in &mut burst {
                let Some(hints) = packet.hints(turns.reader) else {
                    continue;
                };
                sum += hints.number;
            }
            assert_eq!(std::hint::black_box(sum), u64::from(BURST));
            burst.finish().expect("sound");
            BURST
        }
        Work::Stamps => {
            let mut number = 0;
            let sent = queue.send_asking_with(BURST, |packet| {
                assert!(packet.resize(PACKET.len()));
                number += 1;
                TxMeta::new().timestamp(number)
            });
            let stamps = queue.tx_stamps().expect("sound");
            std::hint::black_box(stamps.map(|stamp| stamp.token).sum::<u64>());
            sent.expect("sound")
        }
        Work::SendWith | Work::SendSilent => queue
            .send_with(BURST, |packet| assert!(packet.resize(PACKET.len())))
            .expect("sound"),
        Work::SendCopies => queue
            .send_with(BURST, |packet| assert!(packet.write(std::hint::black_box(&PACKET))))
            .expect("sound"),
        Work::AllocAndSend => {
            for _ in 0..BURST {
                let mut frame = queue.alloc().expect("enough frames");
                assert!(frame.resize(PACKET.len()));
                queue.send(frame).expect("sound");
            }
            queue.drain(Duration::ZERO).expect("sound");
            BURST
        }
    }
}

fn run(work: Work, count: u32) {
    let mut turns = Turns::new(work);
    for _ in 0..count {
        turns.kernel_side();
        assert_eq!(user_side(&mut turns), BURST);
    }
}

/// Median nanoseconds per packet.
fn nanoseconds(work: Work) -> f64 {
    const TURNS: usize = 4000;
    let mut turns = Turns::new(work);
    let mut median = |timed: &mut dyn FnMut(&mut Turns)| {
        let mut times: Vec<f64> = (0..TURNS)
            .map(|_| {
                turns.kernel_side();
                let start = Instant::now();
                timed(&mut turns);
                let time = start.elapsed();
                // A turn that was not timed has its packets taken all the same.
                time.as_secs_f64() * 1e9
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        times[TURNS / 2]
    };
    let with = median(&mut |turns| assert_eq!(user_side(turns), BURST));
    let clock = {
        let mut times: Vec<f64> = (0..TURNS)
            .map(|_| Instant::now().elapsed().as_secs_f64() * 1e9)
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        times[TURNS / 2]
    };
    (with - clock) / f64::from(BURST)
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cost.txt")
}

/// The recorded instructions per packet.
fn record_of(name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(recorded()).ok()?;
    let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Instructions of all cases, counted on two threads at a time.
fn all_instructions() -> Vec<Result<f64, String>> {
    std::thread::scope(|scope| {
        let halves = CASES.chunks(CASES.len().div_ceil(2));
        let counting: Vec<_> = halves
            .map(|cases| {
                scope.spawn(|| {
                    cases
                        .iter()
                        .map(|case| instructions(case.name, BURST))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let done = counting.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        done.collect()
    })
}

fn table() -> ExitCode {
    println!("per packet of {} bytes, bursts of {BURST}:", PACKET.len());
    println!("{:<12} {:>12} {:>8}  ", "", "instructions", "ns");
    let mut status = ExitCode::SUCCESS;
    for (case, instructions) in CASES.iter().zip(all_instructions()) {
        let count = match &instructions {
            Ok(count) => format!("{count:.1}"),
            Err(_) => "?".into(),
        };
        println!(
            "{:<12} {count:>12} {:>8.1}  {}",
            case.name,
            nanoseconds(case.work),
            case.what
        );
        if let Err(error) = instructions {
            eprintln!("{}: {error}", case.name);
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// More than this much over the record is a failure, less than it is to be told.
const TOLERANCE: f64 = 0.05;

fn check() -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for (case, instructions) in CASES.iter().zip(all_instructions()).filter(|(case, _)| case.checked) {
        let verdict = match (instructions, record_of(case.name)) {
            (Err(error), _) => Err(error),
            (_, None) => Err(format!("no record of it in {}", recorded().display())),
            (Ok(now), Some(record)) if now > record * (1.0 + TOLERANCE) => {
                Err(format!("{now:.1} instructions a packet, {record:.1} are recorded"))
            }
            (Ok(now), Some(record)) if now < record * (1.0 - TOLERANCE) => Ok(format!(
                "{now:.1} instructions a packet, less than the {record:.1} recorded: cost --record"
            )),
            (Ok(now), Some(record)) => Ok(format!("{now:.1} instructions a packet, {record:.1} are recorded")),
        };
        match verdict {
            Ok(text) => println!("{}: {text}", case.name),
            Err(text) => {
                println!("{}: FAILED: {text}", case.name);
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}

fn record() -> ExitCode {
    let mut text = String::new();
    for (case, instructions) in CASES.iter().zip(all_instructions()).filter(|(case, _)| case.checked) {
        match instructions {
            Ok(count) => writeln!(text, "{} {count:.1}", case.name).expect("a string"),
            Err(error) => {
                eprintln!("{}: {error}", case.name);
                return ExitCode::FAILURE;
            }
        }
    }
    print!("{text}");
    match std::fs::write(recorded(), text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", recorded().display());
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => table(),
        ["--check"] => check(),
        ["--record"] => record(),
        ["--turns", name, count] => {
            let case = CASES.iter().find(|case| case.name == name);
            match (case, count.parse()) {
                (Some(case), Ok(count)) => {
                    run(case.work, count);
                    ExitCode::SUCCESS
                }
                _ => ExitCode::FAILURE,
            }
        }
        _ => {
            eprintln!("cost [--check | --record]");
            ExitCode::FAILURE
        }
    }
}
