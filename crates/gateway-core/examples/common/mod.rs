//! What both examples measure with.

use std::time::Instant;

pub(crate) const ROUNDS: usize = 7;

/// Least and median of the rounds.
pub(crate) fn rounds(measure: impl FnMut() -> f64) -> (f64, f64) {
    let mut figures: Vec<f64> = std::iter::repeat_with(measure).take(ROUNDS).collect();
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[ROUNDS / 2])
}

/// Nanoseconds for each of so many things that `work` does: least and median of the rounds, after one that does not count.
pub(crate) fn timed(each: usize, mut work: impl FnMut()) -> (f64, f64) {
    work();
    rounds(|| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64() * 1e9 / each as f64
    })
}
