//! The clocks of this host: how far apart they are, how well that is known, and what reading them costs.
//!
//!     cargo run --release -p ringside-nic --example clocks

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringside_nic::clock::{
    Boottime, FastClock, KernelClock, Monotonic, MonotonicRaw, Offset, PhcDevice, Realtime, Tai, Timestamp,
};

const READINGS: u32 = 200_000;
const ROUNDS: usize = 15;

fn main() -> Result<(), ringside_nic::Error> {
    println!("distances, measured by readings of the one between readings of the other:");
    println!("  {}", Offset::<Monotonic, Tai>::measure());
    println!("  {}", Offset::<Monotonic, Realtime>::measure());
    println!("  {}", Offset::<Monotonic, Boottime>::measure());
    println!("  {}", Offset::<Monotonic, MonotonicRaw>::measure());
    println!("  {}", Offset::<Realtime, Tai>::measure());

    let mut phcs = 0;
    for device in PhcDevice::all() {
        phcs += 1;
        let device = device?;
        let (offset, method) = device.scope(|phc| phc.offset().map(|(offset, method)| (offset.to_string(), method)))?;
        println!(
            "  {}: {offset} ({method:?}, {:?})",
            device.path().display(),
            device.capabilities()?
        );
    }
    if phcs == 0 {
        println!("  no PHC: this host has no /dev/ptpN");
    }

    let mut fast = FastClock::new();
    println!("\nfast clock: {:?}", fast.source());
    let apart = follow(&mut fast);
    println!(
        "  within {} ns of CLOCK_MONOTONIC by its own account; {} comparisons found it at least {} ns away at the most;\n  \
         {apart} ns at the most between readings of CLOCK_MONOTONIC in front and behind",
        fast.bound_ns(),
        fast.checks(),
        fast.worst_ns()
    );

    println!("\ncost of a reading, in ns: the median of {ROUNDS} interleaved rounds of {READINGS}, and the spread");
    let mut costs: Vec<(&str, Vec<f64>)> = [
        "FastClock::now",
        "FastClock::now_in_order",
        "clock_gettime(MONOTONIC)",
        "Instant::now",
    ]
    .map(|name| (name, Vec::new()))
    .into();
    for _ in 0..ROUNDS {
        costs[0].1.push(cost(|| fast.now().as_nanos()));
        costs[1].1.push(cost(|| fast.now_in_order().as_nanos()));
        costs[2].1.push(cost(now::<Monotonic>));
        costs[3].1.push(cost(Instant::now));
    }
    for (name, mut rounds) in costs {
        rounds.sort_by(f64::total_cmp);
        println!(
            "  {name:26} {:6.1}   {:.1} to {:.1}",
            rounds[ROUNDS / 2],
            rounds[0],
            rounds[ROUNDS - 1]
        );
    }
    Ok(())
}

fn now<C: KernelClock>() -> u64 {
    Timestamp::<C>::now().as_nanos()
}

/// Nanoseconds that one call takes.
fn cost<T>(mut read: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..READINGS {
        black_box(read());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
}

/// For half a second: how far it is from CLOCK_MONOTONIC as seen from outside, in nanoseconds.
fn follow(fast: &mut FastClock) -> u64 {
    let end = Instant::now() + Duration::from_millis(500);
    let mut worst = 0;
    while Instant::now() < end {
        let before = now::<Monotonic>();
        let shown = fast.now_in_order().as_nanos();
        let after = now::<Monotonic>();
        worst = worst.max(before.saturating_sub(shown)).max(shown.saturating_sub(after));
    }
    worst
}
