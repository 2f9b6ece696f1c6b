use std::sync::atomic::AtomicBool;

use super::*;

fn example() -> (Stats, [u64; WORDS]) {
    let mut words = [0; WORDS];
    for (at, word) in (1..).zip(&mut words) {
        *word = at * 100;
    }
    let board: [AtomicU64; WORDS] = words.map(AtomicU64::new);
    (Told::from_words(&board).stats, words)
}

#[test]
fn each_counter_has_a_word_of_its_own() {
    let (stats, words) = example();
    assert_eq!((stats.own.rx_packets, stats.own.busy_polls_fruitful), (100, 2400));
    assert_eq!((stats.kernel.rx_dropped, stats.kernel.tx_ring_empty), (1200, 1700));
    let board: [AtomicU64; WORDS] = words.map(AtomicU64::new);
    let frames = Told::from_words(&board).frames.unwrap();
    assert_eq!((frames.free, frames.completion, frames.total()), (1800, 2300, 12_300));
}

/// A thread that answers gives what belongs together; one that does not keeps nobody waiting for long.
#[test]
fn answers_are_whole_and_not_waited_for_in_vain() {
    let board = Board::new([("a".to_owned(), 0), ("b".to_owned(), 0)]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // As a thread of a queue does, with all words alike.
            let slot = &board.slots[0];
            let mut value = 0;
            while !over.load(Ordering::Relaxed) {
                let asked = board.asked.0.load(Ordering::Relaxed);
                if asked == slot.answered.load(Ordering::Relaxed) {
                    continue;
                }
                value += 1;
                slot.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
                slot.answered.store(asked, Ordering::Release);
            }
        });
        for _ in 0..20 {
            let begin = Instant::now();
            let told = board.ask();
            assert!(begin.elapsed() >= PATIENCE, "the second one never answers");
            assert!(told[1].is_none());
            // A thread that was not scheduled all the while is none that answers.
            if let Some(told) = told[0] {
                let value = told.stats.own.rx_packets;
                let frames = told.frames.unwrap();
                assert_eq!(
                    (told.stats.kernel.tx_ring_empty, u64::from(frames.completion)),
                    (value, value)
                );
                assert_eq!(told.stats.own.busy_polls_fruitful, value);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
