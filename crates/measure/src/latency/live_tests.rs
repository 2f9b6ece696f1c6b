use proptest::prelude::*;

use super::*;
use crate::latency::Latency;

fn add(times: &LiveLatency, ns: impl IntoIterator<Item = u64>) {
    ns.into_iter().for_each(|ns| times.record(ns));
}

#[test]
fn buckets_follow_each_other_without_a_gap_and_keep_three_digits() {
    for number in 0..BUCKETS {
        let longest = longest_of(number);
        assert_eq!(bucket(longest), number);
        assert_eq!(bucket(longest + 1), number + 1, "the next time is in the next bucket");
        let shortest = number.checked_sub(1).map_or(0, |before| longest_of(before) + 1);
        assert!((longest - shortest) * 1_000 <= longest, "{shortest} to {longest}");
    }
}

#[test]
fn a_look_sees_only_what_is_new() {
    let (times, mut glance) = (LiveLatency::new(), Glance::new());
    assert_eq!(glance.median([&times]), None);
    add(&times, (0..1_000).map(|_| 300));
    assert_eq!(glance.median([&times]), Some(300));
    assert_eq!(glance.median([&times]), None, "nothing new");
    add(&times, (0..20).map(|_| 500));
    assert_eq!(glance.median([&times]), Some(500), "the thousand before have been seen");
    add(&times, (0..19).map(|_| 500));
    assert_eq!(glance.median([&times]), None, "too few, as for every percentile");
    assert_eq!(Glance::new().median([&times]), Some(300), "another one sees all");
}

#[test]
fn several_sources_are_one_and_may_come_later() {
    let (one, other, mut glance) = (LiveLatency::new(), LiveLatency::new(), Glance::new());
    assert_eq!(glance.median([]), None);
    add(&one, (0..30).map(|_| 100));
    assert_eq!(glance.median([&one]), Some(100));
    add(&one, (0..10).map(|_| 100));
    add(&other, (0..15).map(|_| 200));
    assert_eq!(glance.median([&one, &other]), Some(200));
}

#[test]
fn a_time_beyond_the_longest_counts_as_that() {
    let (times, mut glance) = (LiveLatency::new(), Glance::new());
    add(&times, (0..20).map(|_| u64::MAX));
    let median = glance.median([&times]).unwrap();
    assert!(
        (LONGEST_NS..LONGEST_NS + LONGEST_NS / 1_000).contains(&median),
        "{median}"
    );
}

#[test]
fn counters_that_wrap_still_tell_the_difference() {
    let (times, mut glance) = (LiveLatency::new(), Glance::new());
    times.counts[bucket(400)].store(u32::MAX - 3, Ordering::Relaxed);
    glance.median([&times]);
    add(&times, (0..25).map(|_| 400));
    assert_eq!(glance.median([&times]), Some(400));
}

#[test]
fn nothing_is_lost_between_two_threads() {
    let times = LiveLatency::new();
    let mut glance = Glance::new();
    let mut look = || {
        glance.median([&times]);
        glance.fresh.iter().map(|&count| u64::from(count)).sum::<u64>()
    };
    let mut seen = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| add(&times, (0..200_000).map(|i| i % 5_000)));
        while !writer.is_finished() {
            seen += look();
        }
    });
    assert_eq!(seen + look(), 200_000);
}

#[test]
fn a_tally_knows_all_also_where_the_counts_wrap() {
    let times = LiveLatency::new();
    let mut tally = Tally::new();
    assert_eq!(tally.look(&times).samples(), 0);
    times.counts[bucket(700)].store(u32::MAX - 1, Ordering::Relaxed);
    tally.look(&times);
    (0..5).for_each(|_| times.record(700));
    let all = tally.look(&times);
    assert_eq!(all.samples(), u64::from(u32::MAX) + 4);
    assert_eq!(all.summary().unwrap().p50_ns, Some(700));
}

proptest! {
    #[test]
    fn a_tally_is_the_histogram(first in proptest::collection::vec(0..LONGEST_NS, 0..50),
                                then in proptest::collection::vec(0..LONGEST_NS, 0..50)) {
        let (times, mut tally, mut whole) = (LiveLatency::new(), Tally::new(), Latency::new());
        first.iter().for_each(|&ns| { times.record(ns); whole.record(ns) });
        let earlier = tally.look(&times).clone();
        then.iter().for_each(|&ns| { times.record(ns); whole.record(ns) });
        let all = tally.look(&times).clone();
        let buckets = |latency: &Latency| Vec::from_iter(latency.buckets());
        prop_assert_eq!(buckets(&all), buckets(&whole));
        // What has come since is what was recorded since.
        let mut fresh = Latency::new();
        then.iter().for_each(|&ns| fresh.record(ns));
        prop_assert_eq!(buckets(&all.since(&earlier)), buckets(&fresh));
        prop_assert_eq!(all.at_most(LONGEST_NS), (first.len() + then.len()) as u64);
        let until = 1 << 20;
        let short = first.iter().chain(&then).filter(|&&ns| ns < until).count() as u64;
        prop_assert!(all.at_most(until - 1) >= short);
        prop_assert_eq!(all.at_most(until / 2 - 1), first.iter().chain(&then).filter(|&&ns| ns < until / 2).count() as u64);
    }

    #[test]
    fn the_median_is_that_of_the_histogram(values in proptest::collection::vec(0..=LONGEST_NS, 20..200), shift in 0..30_u32) {
        let (times, mut latency) = (LiveLatency::new(), Latency::new());
        for ns in values {
            times.record(ns >> shift);
            latency.record(ns >> shift);
        }
        let summary = latency.summary().unwrap();
        // The histogram alone knows the exact ends.
        let median = Glance::new().median([&times]).map(|ns| ns.clamp(summary.min_ns, summary.max_ns));
        prop_assert_eq!(median, summary.p50_ns);
    }
}
