//! What one UMEM for both interfaces is worth: `ringside fwd IN --out OUT` beside the same with `--copy-between`.
//!
//! ```text
//! cargo bench -p ringside --bench forward [-- ROUNDS]        as root, two CPUs; on a busy machine under chrt -f 1
//!
//!   host left            host middle               host right
//!   in-kernel generator ──▶ in   ringside fwd   out ──▶ XDP program that counts and drops
//!   CPU 0                        CPU 1
//! ```
//!
//! The variants take turns, each round in another order, and a variant is compared with the base of its own round. The
//! base comes twice: how far the second one is from 1 is noise.

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::load::{generate, generator};
use common::{Row, row_with, start_receiver};
use ringside_bpf::{Generator, Neighbours, Sink, XdpMode};
use ringside_measure::compare::{Round, figure, ratio};
use ringside_nic::host::CpuTimes;

const SIZES: [usize; 2] = [64, 1500];
/// The base first.
const VARIANTS: [(&str, &str); 3] = [
    ("copied", "--copy-between"),
    ("copied again (A/A)", "--copy-between"),
    ("one UMEM", ""),
];
const SETTLE: Duration = Duration::from_millis(100);
const SLOT: Duration = Duration::from_millis(250);
/// A generator runs for longer than a turn lasts, unless it is told to stop.
const LONGEST: Duration = Duration::from_secs(20);

fn main() {
    let rounds = std::env::args()
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(24);
    let row = row_with("fwd-bench", [1, 1], 1500);
    let sink = Sink::load(Neighbours::Drop).expect("loads");
    let (end, index) = (&row.right.b, row.right.b.interface.index());
    let _attached = end.run(|| sink.attach(index, XdpMode::Native)).expect("attaches");
    println!("{rounds} rounds of {SLOT:?}, {} variants interleaved", VARIANTS.len());
    for size in SIZES {
        measure(&row, &sink, size, rounds);
    }
}

fn measure(row: &Row, sink: &Sink, size: usize, rounds: usize) {
    let mut generator = generator(&row.left.a, &row.left.b, size);
    let mut measured = VARIANTS.map(|_| Vec::new());
    for round in 0..rounds {
        for turn in 0..VARIANTS.len() {
            let variant = (round + turn) % VARIANTS.len();
            measured[variant].push(one_turn(row, sink, &mut generator, VARIANTS[variant].1));
        }
    }
    println!("\n| {size} bytes | packets/s | spread | ÷ copied |\n|---|---|---|---|");
    for ((name, _), values) in VARIANTS.iter().zip(&measured) {
        let figure = figure(values).expect("measured");
        let ratio = ratio(&measured[0], values).expect("as many rounds");
        println!(
            "| {name} | {:.0} k | {:.1} % | {:.3} {} in {} rounds |",
            figure.median / 1e3,
            figure.spread_percent.unwrap_or(0.0),
            ratio.median,
            match (ratio.low, ratio.high) {
                (Some(low), Some(high)) => format!("[{low:.3}–{high:.3}]"),
                _ => "[too few rounds]".to_owned(),
            },
            ratio.rounds_used
        );
    }
}

/// Packets per second that came out at the other end.
fn one_turn(row: &Row, sink: &Sink, generator: &mut Generator, with: &str) -> Round {
    let forwarder = start_receiver(&row.left.b, &format!("fwd {{}} --out out --cpus 1 {with} --json"));
    forwarder.wait_for("one UMEM");
    let stop = AtomicBool::new(false);
    let round = std::thread::scope(|scope| {
        scope.spawn(|| generate(generator, LONGEST, &stop));
        let count = || sink.traffic().expect("counts").packets;
        let (before, begin) = (count(), Instant::now());
        while count() == before && begin.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(SETTLE);
        let cpus = CpuTimes::read().expect("readable");
        let (first, begin) = (count(), Instant::now());
        std::thread::sleep(SLOT);
        let (last, took) = (count(), begin.elapsed());
        let passed = CpuTimes::read().expect("readable").since(&cpus);
        stop.store(true, Ordering::Relaxed);
        #[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
        Round {
            value: (last - first) as f64 / took.as_secs_f64(),
            steal: passed
                .cpus
                .iter()
                .filter_map(|(_, time)| time.fraction(time.steal))
                .fold(0.0, f64::max),
        }
    });
    let shared = forwarder.interrupt().good().document();
    let umem = |at: usize| shared.interfaces[at].queues[0].umem;
    assert_eq!(umem(0) == umem(1), with.is_empty(), "it does what it is measured for");
    round
}
