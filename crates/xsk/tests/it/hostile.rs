//! A hostile kernel against a user who goes on: the fuzzer's target (`crates/xsk/fuzz`), run on the inputs that were kept
//! and on random ones, for a few seconds. `make fuzz` goes on for as long as one likes.

#[path = "../../fuzz/src/scenario.rs"]
mod scenario;

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Runs `inputs` on a thread of its own, and fails when one of them panics or takes longer than any should.
fn run_all(inputs: impl Iterator<Item = Vec<u8>> + Send + 'static) {
    const LIMIT: Duration = Duration::from_secs(20);
    let current = Arc::new(Mutex::new(Vec::new()));
    let (tell, told) = mpsc::channel();
    let worker = std::thread::spawn({
        let current = Arc::clone(&current);
        move || {
            for (number, input) in inputs.enumerate() {
                current.lock().expect("no panic").clone_from(&input);
                scenario::run(&input);
                if number % 100 == 0 {
                    _ = tell.send(());
                }
            }
        }
    });
    let end = std::iter::repeat_with(|| told.recv_timeout(LIMIT)).find_map(Result::err);
    let input = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let advice = format!(
        "it can be kept: printf '{}' >crates/xsk/fuzz/corpus/hostile/NAME",
        escaped(&input)
    );
    assert_eq!(
        end,
        Some(mpsc::RecvTimeoutError::Disconnected),
        "an input takes longer than {LIMIT:?}; {advice}"
    );
    if worker.join().is_err() {
        panic!("an input panicked, see above; {advice}");
    }
}

fn escaped(input: &[u8]) -> String {
    input.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\x{byte:02x}").expect("a string");
        text
    })
}

/// The inputs that are kept: what the fuzzer found to reach new code, and every fault that it ever found.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/hostile");
    let files = std::fs::read_dir(&folder).expect("the corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect()
}

/// Marsaglia's xorshift: a failure comes again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit as u64).max(1)).expect("below a usize")
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.next().to_le_bytes()[3]).collect()
    }

    /// One kept input with a few bytes changed, taken out or put in, perhaps followed by the end of another.
    fn variation(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        if self.below(3) == 0 {
            let other = &corpus[self.below(corpus.len())];
            input.truncate(self.below(input.len() + 1));
            input.extend_from_slice(&other[self.below(other.len() + 1)..]);
        }
        for _ in 0..=self.below(6) {
            let at = self.below(input.len() + 1);
            match self.below(3) {
                0 if at < input.len() => input[at] = self.next().to_le_bytes()[5],
                1 if at < input.len() => _ = input.remove(at),
                _ => _ = input.splice(at..at, self.bytes(8)),
            }
        }
        input
    }
}

#[test]
fn kept_inputs() {
    let corpus = corpus();
    assert!(corpus.len() > 50, "{} inputs", corpus.len());
    run_all(corpus.into_iter());
}

#[test]
fn random_inputs() {
    let mut random = Random(0x5851_f42d_4c95_7f2d);
    run_all((0..10_000).map(move |_| random.bytes(300)));
}

#[test]
fn variations_of_kept_inputs() {
    let (corpus, mut random) = (corpus(), Random(0x2545_f491_4f6c_dd1d));
    run_all((0..20_000).map(move |_| random.variation(&corpus)));
}
