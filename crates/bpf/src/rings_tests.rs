use super::*;

/// The words of one CPU.
fn cpu(words: [u64; 5], buckets: &[(usize, u64)]) -> Vec<u8> {
    let mut all = [0; BUCKETS];
    for &(bucket, count) in buckets {
        all[bucket] = count;
    }
    words.iter().chain(&all).flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn cpus_are_added_up() {
    let seen = RingSeen::sum(&[
        cpu([10, 2000, 1, 640, 640], &[(0, 4), (32, 5), (64, 1)]),
        cpu([10, 1000, 0, 320, 640], &[(32, 10)]),
        cpu([0; 5], &[]),
    ]);
    assert_eq!((seen.packets, seen.full, seen.most, seen.size), (20, 1, 640, 640));
    assert!((seen.mean() - 150.0).abs() < 1e-9);
    assert_eq!(
        [0.0, 0.1, 0.5, 0.94, 1.0].map(|share| seen.quantile(share)),
        [0, 0, 320, 320, 640]
    );
}

#[test]
fn what_was_before_does_not_count() {
    let earlier = RingSeen::sum(&[cpu([10, 100, 3, 640, 640], &[(0, 10)])]);
    let later = RingSeen::sum(&[cpu([14, 1380, 5, 640, 640], &[(0, 10), (32, 4)])]);
    let between = later.since(&earlier);
    assert_eq!((between.packets, between.full, between.quantile(0.5)), (4, 2, 320));
    assert!((between.mean() - 320.0).abs() < 1e-9);
}

#[test]
fn nothing_seen_is_nothing_waiting() {
    let seen = RingSeen::sum(&[]);
    assert!(seen.mean() == 0.0 && seen.quantile(0.5) == 0);
}
