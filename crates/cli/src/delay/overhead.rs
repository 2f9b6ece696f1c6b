//! What the tool's own reading of the clock costs, which is part of every delay.

use anyhow::{Result, anyhow};
use ringside_measure::schema::ClockRead;

use crate::clock::now_ns;
use crate::pin;

/// Readings of a batch: far more than an interruption of the clock itself is worth.
const BATCH: u32 = 1_000;
const BATCHES: u32 = 101;

/// Reads the clock again and again on a CPU.
pub(super) fn clock_read(cpu: u32) -> Result<ClockRead> {
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || pin::to_cpu(cpu).map(|()| read()));
        reading.join().map_err(|_| anyhow!("reading the clock panicked"))?
    })
}

fn read() -> ClockRead {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begin = now_ns();
            for _ in 1..BATCH {
                std::hint::black_box(now_ns());
            }
            (now_ns() - begin) as f64 / f64::from(BATCH)
        })
        .collect();
    batches.sort_unstable_by(f64::total_cmp);
    ClockRead {
        reads: u64::from(BATCH) * u64::from(BATCHES),
        min_ns: batches[0],
        median_ns: batches[batches.len() / 2],
    }
}
