//! What the examples measure with.

use std::str::FromStr;
use std::time::Instant;

use ringside_nic::HugePages;

/// As the gateway has it.
#[global_allocator]
static MEMORY: HugePages = HugePages;

/// The numbers among the words of the command line, or these. With `normal-pages` there are no huge ones.
pub(crate) fn sizes<T: FromStr>(usual: impl IntoIterator<Item = T>) -> Vec<T> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "normal-pages") {
        HugePages::none().expect("Linux 3.15");
    }
    let sizes: Vec<T> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        usual.into_iter().collect()
    } else {
        sizes
    }
}

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
