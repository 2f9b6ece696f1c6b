//! What the number of frames that wait for packets is worth: the default, of which fewer wait under
//! steady load, beside fixed 512 and 4096.
//!
//! ```text
//! cargo bench -p ringside --bench frames [-- ROUNDS]        as root, two CPUs
//!
//!   steady   in-kernel generator on CPU 0 ──▶ ringside rx on CPU 1: packets/s
//!   burst    1,000 packets at once        ──▶ ringside rx: packets received
//!   TCP      iperf3 ── ringside impair, as a wire on one UMEM ── iperf3: bits/s, retransmissions
//! ```
//!
//! The variants take turns, each round in another order, and a variant is compared with the base of
//! its own round. The base comes twice: the distance of the second one from 1 is noise.

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::load::{generate, generator, iperf3};
use common::{Row, Running, lab, start_receiver, wire};
use ringside_bpf::Generator;
use ringside_measure::compare::{Round, figure, ratio};
use ringside_measure::schema::RunResult;
use ringside_netlab::End;
use ringside_nic::host::CpuTimes;

/// The base first.
const VARIANTS: [(&str, &str); 4] = [
    ("512 frames", "--frames 512 --working-set 512"),
    ("512 frames again (A/A)", "--frames 512 --working-set 512"),
    ("4096 frames", "--frames 4096 --working-set 4096"),
    ("default", ""),
];
const STEADY: Duration = Duration::from_millis(800);
const BURST: u64 = 1_000;

fn main() {
    let rounds = std::env::args()
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(10);
    println!("{rounds} rounds, {} variants interleaved", VARIANTS.len());
    let pair = lab("frames-bench", 1);
    let mut generator = generator(&pair.a, &pair.b, 64);
    measure("steady", "packets/s", rounds, |with| {
        steady(&pair.b, &mut generator, with)
    });
    measure("burst", "of 1,000 packets received", rounds, |with| {
        burst(&pair.b, &mut generator, with)
    });
    let row = wire("frames-tcp");
    // A veth hands over half of a checksum otherwise, and TCP drops what a wire makes of it.
    for end in [&row.left.a, &row.right.b] {
        let mut ethtool = end.ns.command("ethtool");
        ethtool.args(["-K", end.interface.name(), "tx", "off"]);
        assert!(ethtool.status().expect("ethtool").success(), "no checksums");
    }
    measure("TCP", "bit/s", rounds, |with| tcp(&row, with));
}

/// The figure of a turn, and the number of packets that found no frame or were sent again.
struct Turn {
    value: f64,
    lost: u64,
}

fn measure(name: &str, unit: &str, rounds: usize, mut turn: impl FnMut(&str) -> Turn) {
    let mut measured = VARIANTS.map(|_| Vec::new());
    let mut lost = VARIANTS.map(|_| Vec::new());
    for round in 0..rounds {
        for at in 0..VARIANTS.len() {
            let variant = (round + at) % VARIANTS.len();
            let before = CpuTimes::read().expect("readable");
            let turn = turn(VARIANTS[variant].1);
            let passed = CpuTimes::read().expect("readable").since(&before).sum();
            measured[variant].push(Round {
                value: turn.value,
                steal: passed.fraction(passed.steal).unwrap_or(0.0),
            });
            lost[variant].push(turn.lost);
        }
    }
    println!(
        "\n| {name} | {unit} | spread | ÷ {} | lost, or sent again: median (most) |",
        VARIANTS[0].0
    );
    println!("|---|---|---|---|---|");
    for ((variant, values), lost) in VARIANTS.iter().zip(&measured).zip(&mut lost) {
        let figure = figure(values).expect("measured");
        let ratio = ratio(&measured[0], values).expect("as many rounds");
        lost.sort_unstable();
        println!(
            "| {} | {:.0} | {:.1} % | {:.3} {} | {} ({}) |",
            variant.0,
            figure.median,
            figure.spread_percent.unwrap_or(0.0),
            ratio.median,
            match (ratio.low, ratio.high) {
                (Some(low), Some(high)) => format!("[{low:.3}–{high:.3}]"),
                _ => "[too few rounds]".to_owned(),
            },
            lost[lost.len() / 2],
            lost[lost.len() - 1],
        );
    }
}

/// Packets for which no frame waited, and those that did not reach the socket for another reason.
fn refused(result: &RunResult) -> u64 {
    let counters = result.queues.iter().filter_map(|queue| queue.xdp_statistics);
    counters.map(|kernel| kernel.rx_dropped + kernel.rx_ring_full).sum()
}

/// Ends a receiver once it has no packets left to take.
fn finish(receiver: Running) -> RunResult {
    receiver.interrupt().good().result()
}

fn steady(end: &End, generator: &mut Generator, with: &str) -> Turn {
    let receiver = start_receiver(end, &format!("rx {{}} --cpus 1 --wait spin {with} --json"));
    generate(generator, STEADY, &AtomicBool::new(false));
    let result = finish(receiver);
    Turn {
        value: result.received.expect("packets").packets_pps,
        lost: refused(&result),
    }
}

fn burst(end: &End, generator: &mut Generator, with: &str) -> Turn {
    let receiver = start_receiver(end, &format!("rx {{}} {with} --json"));
    generator.run(BURST).expect("runs");
    std::thread::sleep(Duration::from_millis(100));
    let result = finish(receiver);
    #[allow(clippy::cast_precision_loss, reason = "1,000 packets")]
    let value = result.packets.delivered() as f64;
    Turn {
        value,
        lost: refused(&result),
    }
}

fn tcp(row: &Row, with: &str) -> Turn {
    let wire = start_receiver(&row.left.b, &format!("impair in,out --wait spin {with} --json"));
    let [client, _] = iperf3(row, "-t 2");
    finish(wire);
    Turn {
        value: client["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .expect("a rate"),
        lost: client["end"]["sum_sent"]["retransmits"].as_u64().expect("counted"),
    }
}
