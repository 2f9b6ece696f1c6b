use proptest::prelude::*;

use super::*;

#[test]
fn no_drift_in_a_year() {
    // 7 Mpps does not divide a second into whole nanoseconds; after a year the count is exact.
    let pacer = Pacer::per_second(7_000_000, 5).unwrap();
    let year_s = 365 * 24 * 3_600;
    let now = 5 + year_s * NS_PER_SECOND;
    assert_eq!(pacer.due(now), 7_000_000 * year_s + 1);
    assert_eq!(pacer.due(now - 1), 7_000_000 * year_s);
    assert_eq!(pacer.intended_ns(7_000_000 * year_s), Some(now));
}

#[test]
fn before_the_start_nothing_is_due() {
    let pacer = Pacer::every(10, 100).unwrap();
    assert_eq!([99, 100, 109, 110].map(|now| pacer.due(now)), [0, 1, 1, 2]);
    assert_eq!(Pacer::unlimited(100).due(99), 0);
}

#[test]
fn fractions_of_a_packet_per_second() {
    let pacer = Pacer::per_second_f64(0.5, 0).unwrap();
    assert_eq!(pacer.intended_ns(3), Some(6 * NS_PER_SECOND));
    assert_eq!(
        Pacer::per_second_f64(1_000.0, 9).unwrap().intended_ns(123),
        Pacer::per_second(1_000, 9).unwrap().intended_ns(123)
    );
}

#[test]
fn rates_that_are_none() {
    for rate in [0.0, -1.0, 1e-7, 2e12, f64::NAN, f64::INFINITY] {
        assert!(Pacer::per_second_f64(rate, 0).is_err(), "{rate}");
    }
    for rate in [0, MOST_PER_SECOND + 1] {
        assert!(Pacer::per_second(rate, 0).is_err(), "{rate}");
    }
    assert_eq!(Pacer::every(0, 0), Err(Error::Period));
}

/// Products of up to 64 bits are taken the short way: both ways meet without a gap, for rates with and without common
/// factors with a second.
#[test]
fn both_widths_of_arithmetic_agree() {
    for packets in [1, 7, 1_000, 999_983, 1_000_000, 999_999_999_989, MOST_PER_SECOND] {
        let pacer = Pacer::per_second(packets, 0).unwrap();
        let Schedule {
            packets: short,
            span_ns,
        } = pacer.schedule.unwrap();
        assert_eq!(
            u128::from(short) * u128::from(NS_PER_SECOND),
            u128::from(packets) * u128::from(span_ns)
        );
        let border = u64::MAX / short;
        for now in (border - 3..border.saturating_add(3)).chain([0, 1, NS_PER_SECOND, u64::MAX - 1]) {
            let wide = ((u128::from(now) + 1) * u128::from(packets) - 1) / u128::from(NS_PER_SECOND) + 1;
            assert_eq!(
                u128::from(pacer.due(now)),
                wide.min(u128::from(u64::MAX)),
                "{packets} at {now}"
            );
        }
        let border = u64::MAX / span_ns;
        for sequence in (border - 3..border.saturating_add(3)).chain([0, 1, packets, u64::MAX]) {
            let wide = u128::from(sequence) * u128::from(NS_PER_SECOND) / u128::from(packets);
            let intended = pacer.intended_ns(sequence).unwrap();
            assert_eq!(
                u128::from(intended),
                wide.min(u128::from(u64::MAX)),
                "{packets}, number {sequence}"
            );
        }
    }
}

#[test]
fn the_largest_numbers() {
    let pacer = Pacer::per_second_f64(1e12, 0).unwrap();
    assert_eq!(pacer.due(u64::MAX), u64::MAX);
    let slow = Pacer::every(u64::MAX, u64::MAX).unwrap();
    assert_eq!(slow.due(u64::MAX), 1);
    assert_eq!(slow.intended_ns(u64::MAX), Some(u64::MAX));
}

#[test]
fn unlimited_gives_what_is_asked_for() {
    let mut pacer = Pacer::unlimited(7);
    assert_eq!(pacer.take(7, 64), 0..64);
    assert_eq!(pacer.take(7, 64), 64..128);
    assert_eq!(pacer.intended_ns(5), None);
    assert_eq!(pacer.next_due_ns(), 7);
    assert_eq!(pacer.skip_backlog(8, 0), 0);
}

fn pacers() -> impl Strategy<Value = Pacer> {
    prop_oneof![
        (1..=MOST_PER_SECOND, 0u64..1 << 40).prop_map(|(rate, start)| Pacer::per_second(rate, start).unwrap()),
        (1u64..1 << 30, 0u64..1 << 40).prop_map(|(period, start)| Pacer::every(period, start).unwrap()),
        (1e-6f64..1e9, 0u64..1 << 40).prop_map(|(rate, start)| Pacer::per_second_f64(rate, start).unwrap()),
    ]
}

proptest! {
    #[test]
    fn due_and_intended_agree(pacer in pacers(), sequence in 0u64..1 << 40) {
        let at = pacer.intended_ns(sequence).unwrap();
        if at == u64::MAX {
            // Not before the clock ends, 584 years from its zero.
            prop_assert!(pacer.due(u64::MAX - 1) <= sequence);
        } else {
            // Exactly at its intended time a packet is due, and a nanosecond earlier it is not.
            prop_assert!(pacer.due(at) > sequence);
            if at > 0 {
                prop_assert!(pacer.due(at - 1) <= sequence);
            }
        }
    }

    #[test]
    fn every_number_once_and_never_early(
        mut pacer in pacers(),
        steps in proptest::collection::vec((0u64..1 << 34, 0u64..100, any::<bool>()), 1..50),
    ) {
        let (mut now, mut expected) = (0, 0);
        for (step, most, skip) in steps {
            now += step;
            if skip {
                expected += pacer.skip_backlog(now, most);
            }
            let taken = pacer.take(now, most);
            prop_assert!(taken.end - taken.start <= most);
            prop_assert_eq!(taken.start, expected);
            expected = taken.end;
            if let Some(last) = taken.last() {
                prop_assert!(pacer.intended_ns(last).unwrap() <= now);
            }
            prop_assert_eq!(pacer.position(), expected);
            prop_assert_eq!(pacer.next_due_ns(), pacer.intended_ns(expected).unwrap());
            prop_assert_eq!(pacer.is_due(now), pacer.due(now) > expected);
            prop_assert_eq!(pacer.backlog(now), pacer.due(now) - expected);
            // Nothing held back: what is left is due later, or beyond the caller's own limit.
            if pacer.due(now) == expected {
                prop_assert!(pacer.next_due_ns() > now);
            }
        }
    }
}

proptest! {
    #[test]
    fn uneven_gaps_keep_to_their_bounds_and_their_mean(interval in 1_u64..10_000_000, seed: u64) {
        let mut pace = UnevenPace::new(interval, 1_000, seed).unwrap();
        let (mut before, gaps) = (1_000, 1_000);
        for _ in 0..gaps {
            let due = pace.next(before);
            prop_assert!((interval / 2..=interval / 2 + interval).contains(&(due - before)));
            before = due;
        }
        // An even spread has a standard deviation of 0.29 intervals; of the mean of 1000 gaps, 0.0091. Seven of them.
        let mean = (before - 1_000) as f64 / f64::from(gaps as u32);
        let expected = (interval / 2) as f64 + interval as f64 / 2.0;
        prop_assert!((mean - expected).abs() <= 0.064 * interval as f64, "{} for {}", mean, interval);
    }
}

#[test]
fn uneven_gaps_are_uneven_and_nothing_is_caught_up() {
    let mut pace = UnevenPace::new(1_000_000, 0, 1).unwrap();
    let dues: Vec<u64> = (0..100).map(|_| pace.next(0)).collect();
    let gaps: std::collections::HashSet<u64> = dues.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 90, "{gaps:?}");
    let late = dues[99] + 10_000_000;
    assert_eq!(pace.next(late), late);
    assert!(pace.next(late) >= late + 500_000);
    assert!(UnevenPace::new(0, 0, 1).is_err());
}

#[test]
fn what_a_schedule_wanted_and_did_not_get() {
    let mut pacer = Pacer::per_second(1_000, 0).unwrap();
    pacer.take(5_000_000, 4);
    // Due at 0, 1, 2, 3, 4 and 5 ms; four were taken.
    assert_eq!(pacer.unsent(5_000_000), 2);
    assert_eq!(Pacer::unlimited(0).unsent(5_000_000), 0);
}

#[test]
fn nothing_is_due_at_the_end_of_a_schedule() {
    let end = 5 + 2 * NS_PER_SECOND;
    let mut pacer = Pacer::per_second(100, 5).unwrap().until(end);
    assert_eq!([end - 1, end, u64::MAX].map(|now| pacer.due(now)), [200; 3]);
    assert_eq!(pacer.take(end, 199), 0..199);
    assert_eq!(pacer.next_due_ns(), end - NS_PER_SECOND / 100);
    assert_eq!(pacer.unsent(end), 1);
    assert_eq!(pacer.take(end, 9), 199..200);
    assert_eq!(pacer.next_due_ns(), u64::MAX);
    assert!(!pacer.is_due(end) && pacer.unsent(end) == 0);
    let over = Pacer::per_second(100, 5).unwrap().until(5);
    assert!(!over.is_due(6) && over.due(6) == 0);
    assert_eq!(Pacer::unlimited(0).until(5).due(6), u64::MAX);
}
