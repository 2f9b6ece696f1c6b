//! How long it takes, told before it begins, and how long at the most.

use std::time::Duration;

use super::args::Args;
use super::bed::Bed;

/// Beside the packets: threads that start and end.
const OVERHEAD: Duration = Duration::from_millis(30);
/// What a turn may take beyond twice its time.
const PATIENCE: Duration = Duration::from_secs(1);
/// All cells together, where others send and no time was given.
const LONGEST: Duration = Duration::from_secs(300);

/// How much time there is.
pub(super) struct Budget {
    interval: Duration,
    /// Samples of a turn.
    pub(super) want: u64,
    pub(super) warm_up: u64,
    /// A turn at the most.
    pub(super) turn: Duration,
    /// All of it, as it is expected.
    expected: Duration,
    /// All of it at the most.
    pub(super) most: Duration,
}

impl Budget {
    pub(super) fn new(args: &Args, bed: &Bed, cells: usize) -> Self {
        let interval = bed.interval();
        let want = args.samples.div_ceil(u64::from(args.rounds));
        let turns = u32::try_from(cells).unwrap_or(u32::MAX).saturating_mul(args.rounds);
        let take = |packets: u64| interval.saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX));
        let one = take(want + warm_up(want)).saturating_add(OVERHEAD);
        let patient = one.saturating_mul(2).saturating_add(PATIENCE);
        let time = args.time.or((!bed.is_lab()).then_some(LONGEST));
        let turn = match time {
            Some(time) => patient.min(time / turns.max(1)),
            None => patient,
        };
        // Where there is no time for all samples, the warm-up must not take what there is.
        let fits = turn.as_nanos() / interval.as_nanos().max(1);
        let fits = u64::try_from(fits).unwrap_or(u64::MAX);
        let warm_up = warm_up(want.min(fits)).min(fits / 4);
        Self {
            interval,
            want,
            warm_up,
            turn,
            expected: one.min(turn).saturating_mul(turns),
            most: time.unwrap_or(patient.saturating_mul(turns)),
        }
    }

    fn is_short(&self) -> bool {
        self.interval.as_secs_f64() * (self.want as f64) > self.turn.as_secs_f64()
    }
}

/// A twentieth: enough for caches, and not for much of the time.
fn warm_up(samples: u64) -> u64 {
    (samples / 20).clamp(10, 200)
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} samples and {} packets of warm-up a turn; about {:.0} s, {:.0} s at the most",
            self.want,
            self.warm_up,
            self.expected.as_secs_f64(),
            self.most.as_secs_f64().ceil()
        )?;
        match self.is_short() {
            true => f.write_str("; not all samples fit into that time: give more with --time"),
            false => Ok(()),
        }
    }
}
