use proptest::prelude::*;

use super::*;

const PERIOD: u64 = 1_000_000;

/// Runs a cycle whose wake-ups take what `wake_up` says and whose sending takes `sending`.
fn run(mut cycle: Cycle, wake_ups: impl IntoIterator<Item = u64>, sending: u64) -> Cycle {
    let mut now = 0;
    for took in wake_ups {
        if let Some(asked) = cycle.wake_ns().filter(|asked| *asked > now) {
            now = asked + took;
            cycle.woke(asked, now);
        } else if cycle.waiting() == Waiting::Adaptive {
            cycle.too_late_to_sleep();
        }
        now = now.max(cycle.deadline_ns());
        cycle.ready(now);
        now += sending;
        cycle.sent(now);
    }
    cycle
}

fn new(waiting: Waiting) -> Cycle {
    Cycle::new(PERIOD, PERIOD, waiting).unwrap()
}

#[test]
fn no_period_is_an_error() {
    assert_eq!(Cycle::new(0, 5, Waiting::Spin).unwrap_err(), Error::Period);
}

#[test]
fn deadlines_do_not_move_when_the_sender_is_late() {
    let mut cycle = new(Waiting::Spin);
    for turn in 1..=1_000 {
        assert_eq!(cycle.deadline_ns(), turn * PERIOD);
        cycle.ready(turn * PERIOD + turn);
        cycle.sent(turn * PERIOD + 2 * turn);
    }
    assert_eq!(
        cycle.counts(),
        CycleCounts {
            in_time: 1_000,
            late: 0,
            skipped: 0
        }
    );
    let (ready, sent) = (
        cycle.readiness().summary().unwrap(),
        cycle.transmit().summary().unwrap(),
    );
    assert_eq!((ready.min_ns, ready.max_ns), (1, 1_000));
    assert_eq!((sent.min_ns, sent.max_ns), (2, 2_000));
    let jitter = cycle.jitter().unwrap();
    assert_eq!(
        (jitter.mean_abs_consecutive_difference_ns, jitter.differences),
        (2.0, 999)
    );
    assert!(cycle.wake_up().summary().is_none(), "it never slept");
}

#[test]
fn misses_are_counted_once_and_the_schedule_goes_on() {
    let mut cycle = new(Waiting::Spin);
    // Exactly at the next deadline is in time, a nanosecond later is late.
    cycle.sent(2 * PERIOD);
    assert_eq!(
        cycle.counts(),
        CycleCounts {
            in_time: 1,
            late: 0,
            skipped: 0
        }
    );
    cycle.sent(3 * PERIOD + 1);
    assert_eq!(
        cycle.counts(),
        CycleCounts {
            in_time: 1,
            late: 1,
            skipped: 0
        }
    );
    assert_eq!(cycle.deadline_ns(), 3 * PERIOD, "there is time for it yet");
    // Held up for five periods and a half: three deadlines are over with the one after them.
    cycle.sent(8 * PERIOD + PERIOD / 2);
    assert_eq!(
        cycle.counts(),
        CycleCounts {
            in_time: 1,
            late: 2,
            skipped: 4
        }
    );
    assert_eq!(cycle.deadline_ns(), 8 * PERIOD);
    cycle.not_sent(8 * PERIOD + 10);
    assert_eq!(
        cycle.counts(),
        CycleCounts {
            in_time: 1,
            late: 2,
            skipped: 5
        }
    );
    assert_eq!(cycle.counts().misses(), 7);
    assert_eq!(cycle.counts().due(), 8);
    assert_eq!(cycle.deadline_ns(), 9 * PERIOD);
}

#[test]
fn waking_up_is_learned() {
    for took in [0, 3_000, 60_000, 400_000] {
        let cycle = run(new(Waiting::Adaptive), std::iter::repeat_n(took, 1_000), 1_000);
        assert!(
            (took..took + 5_000).contains(&cycle.early_ns()),
            "{took}: {}",
            cycle.early_ns()
        );
        let begun = run(cycle.clone(), [], 0).readiness().summary().unwrap();
        assert_eq!(begun.p50_ns, Some(0), "{took}");
        assert_eq!(cycle.counts().misses(), 0);
    }
    // Better and worse again.
    let wake_ups = [vec![80_000; 500], vec![5_000; 1_000], vec![80_000; 500]].concat();
    let cycle = run(new(Waiting::Adaptive), wake_ups, 1_000);
    assert!((80_000..90_000).contains(&cycle.early_ns()), "{}", cycle.early_ns());
}

#[test]
fn one_that_took_very_long_is_no_rule() {
    let mut cycle = run(new(Waiting::Adaptive), std::iter::repeat_n(20_000, 1_000), 1_000);
    let (asked, learned) = (cycle.wake_ns().unwrap(), cycle.early_ns());
    cycle.woke(asked, asked + 900_000);
    assert!(cycle.early_ns() <= 2 * learned, "{learned}, then {}", cycle.early_ns());
    // Wake-ups of which one in a hundred is late: spinning is no longer than a few of the others.
    let wake_ups = (0..20_050).map(|turn| if turn % 100 == 99 { 500_000 } else { 20_000 });
    let cycle = run(new(Waiting::Adaptive), wake_ups, 1_000);
    assert!((20_000..30_000).contains(&cycle.early_ns()), "{}", cycle.early_ns());
    let ready = cycle.readiness().summary().unwrap();
    assert!(ready.p90_ns == Some(0), "{ready:?}");
}

#[test]
fn sleeping_to_the_deadline_is_late_by_the_wake_up() {
    let cycle = run(new(Waiting::Sleep), std::iter::repeat_n(30_000, 100), 1_000);
    let ready = cycle.readiness().summary().unwrap();
    assert_eq!((ready.min_ns, ready.max_ns), (30_000, 30_000));
    assert_eq!(cycle.wake_up().summary().unwrap().max_ns, 30_000);
}

#[test]
fn a_wake_up_that_takes_longer_than_the_period_means_spinning() {
    let cycle = Cycle::new(10_000, 10_000, Waiting::Adaptive).unwrap();
    let cycle = run(cycle, std::iter::repeat_n(100_000, 10_000), 100);
    assert!((9_000..=10_000).contains(&cycle.early_ns()), "{}", cycle.early_ns());
    let counts = cycle.counts();
    assert!(
        counts.in_time > 3 * counts.misses(),
        "it tries to sleep only now and then: {counts:?}"
    );
}

/// A time in which the machine was too busy for anything is forgotten: it sleeps again, and is as exact as before.
#[test]
fn a_busy_time_is_forgotten() {
    let busy = run(new(Waiting::Adaptive), std::iter::repeat_n(5_000_000, 200), 1_000);
    assert!(busy.early_ns() > PERIOD * 9 / 10, "{}", busy.early_ns());
    let before = busy.wake_up().samples();
    let after = run(busy, std::iter::repeat_n(30_000, 2_000), 1_000);
    assert!((30_000..40_000).contains(&after.early_ns()), "{}", after.early_ns());
    assert!(after.wake_up().samples() > before + 1_000);
}

proptest! {
    /// Whatever happens: each deadline is counted once, and none is in the past by more than a period after one was sent.
    #[test]
    fn every_deadline_is_counted_once(
        period in 1u64..1_000_000,
        first in 0u64..1 << 40,
        steps in proptest::collection::vec((0u64..10_000_000, any::<bool>()), 1..100),
    ) {
        let mut cycle = Cycle::new(period, first, Waiting::Adaptive).unwrap();
        let mut now = first;
        for (step, sent) in steps {
            now = now.max(cycle.deadline_ns()) + step;
            if sent { cycle.sent(now) } else { cycle.not_sent(now) }
            prop_assert_eq!(cycle.deadline_ns(), first + cycle.counts().due() * period);
            prop_assert!(now < cycle.deadline_ns() + period);
            prop_assert!(cycle.wake_ns().unwrap() <= cycle.deadline_ns());
        }
    }
}

#[test]
fn several_deadlines_a_cycle_come_again_in_order() {
    let deadlines =
        [(0, 100), (50, 50), (600_000, 200_000)].map(|(offset_ns, span_ns)| Deadline { offset_ns, span_ns });
    let mut cycle = Cycle::with_deadlines(PERIOD, deadlines.to_vec(), 5 * PERIOD, Waiting::Spin).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let at = cycle.deadline_ns();
        seen.push((at, cycle.slot(), cycle.number()));
        cycle.sent(at + 1);
    }
    let first = 5 * PERIOD;
    assert_eq!(
        seen,
        [
            (first, 0, 0),
            (first + 50, 1, 0),
            (first + 600_000, 2, 0),
            (first + PERIOD, 0, 1)
        ]
    );
    // Late is what is later than the deadline's own span, and what is over is left out.
    assert_eq!((cycle.slot(), cycle.deadline_ns()), (1, first + PERIOD + 50));
    cycle.sent(first + PERIOD + 50 + 51);
    assert_eq!((cycle.counts().late, cycle.counts().skipped, cycle.slot()), (1, 0, 2));
    cycle.sent(first + 2 * PERIOD + 100);
    assert_eq!(
        (
            cycle.counts().late,
            cycle.counts().skipped,
            cycle.slot(),
            cycle.number()
        ),
        (2, 2, 2, 2)
    );
    // Long breaks take no longer than short ones.
    cycle.sent(first + 1_000_000_000 * PERIOD + 599_999);
    assert_eq!((cycle.slot(), cycle.number()), (2, 1_000_000_000));
    assert_eq!(cycle.counts().due(), 1_000_000_000 * 3 + 2);
    for wrong in [
        vec![],
        vec![(10, 5), (5, 5)],
        vec![(PERIOD, 1)],
        vec![(0, 0)],
        vec![(0, PERIOD + 1)],
    ] {
        let deadlines = wrong
            .iter()
            .map(|&(offset_ns, span_ns)| Deadline { offset_ns, span_ns })
            .collect();
        assert!(
            Cycle::with_deadlines(PERIOD, deadlines, 0, Waiting::Spin).is_err(),
            "{wrong:?}"
        );
    }
}
