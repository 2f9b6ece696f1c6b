use proptest::prelude::*;

use super::*;
use crate::sequence::Tracker;

/// Far longer than anything here waits.
const LATER: u64 = 1 << 50;

fn path(settings: &Settings) -> Impairment<u64> {
    Impairment::new(settings, 7, 10_000).unwrap()
}

/// Offers packets at these times, each as its own number; what leaves, and when.
fn pass(path: &mut Impairment<u64>, times: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    for (number, now) in (0..).zip(times) {
        until(path, now, &mut out);
        offer(path, now, number, 1000);
    }
    until(path, LATER, &mut out);
    assert_eq!((path.held(), path.next_due_ns()), (0, None));
    out
}

fn offer(path: &mut Impairment<u64>, now: u64, number: u64, bytes: u64) -> bool {
    let Some(ticket) = path.offer(now, bytes) else {
        return false;
    };
    let copy = ticket.twice().then_some(number);
    path.hold(ticket, number, copy);
    true
}

/// As an owner who is never late: asks whenever something is due.
fn until(path: &mut Impairment<u64>, end: u64, out: &mut Vec<(u64, u64)>) {
    let mut now = 0;
    while let Some(due) = path.next_due_ns().filter(|&due| due <= end) {
        now = now.max(due);
        out.extend(std::iter::from_fn(|| path.due(now)).map(|packet| (packet, now)));
    }
}

fn numbers(out: &[(u64, u64)]) -> Vec<u64> {
    out.iter().map(|&(number, _)| number).collect()
}

#[test]
fn nothing_asked_for_is_nothing_done() {
    let mut path = path(&Settings::default());
    let out = pass(&mut path, (0..100).map(|n| n * 10));
    assert_eq!(out, (0..100).map(|n| (n, n * 10)).collect::<Vec<_>>());
    assert_eq!(
        path.counts(),
        Counts {
            offered: 100,
            passed: 100,
            ..Counts::default()
        }
    );
    assert_eq!(path.took().summary().unwrap().max_ns, 0);
}

#[test]
fn every_tenth_is_lost_doubled_and_damaged() {
    let settings = Settings {
        loss: Pick::Every(10),
        duplicate: Pick::Every(4),
        corrupt: Pick::Every(3),
        ..Settings::default()
    };
    let mut path = path(&settings);
    let mut damaged = 0;
    let mut out = Vec::new();
    for number in 0..60 {
        if let Some(ticket) = path.offer(0, 64) {
            damaged += u64::from(ticket.corruption().is_some());
            let copy = ticket.twice().then_some(number);
            path.hold(ticket, number, copy);
        }
        out.extend(std::iter::from_fn(|| path.due(0)));
    }
    // The 10th, counted from 1; the 20th, 40th and 60th were to be doubled and are lost, as every 30th is of the damaged.
    assert!(!out.contains(&9) && !out.contains(&59));
    assert_eq!(out[..6], [0, 1, 2, 3, 3, 4]);
    let counts = path.counts();
    assert_eq!((counts.dropped, counts.passed, counts.duplicated), (6, 54, 12));
    assert_eq!((counts.corrupted, damaged), (18, 18));
    assert_eq!(out.len(), 66);
}

#[test]
fn held_back_until_so_many_have_left() {
    let settings = Settings {
        reorder: Pick::Every(5),
        reorder_by: 3,
        duplicate: Pick::Every(10),
        ..Settings::default()
    };
    let mut path = path(&settings);
    let out = pass(&mut path, 0..14);
    // The 5th, 10th; of the 10th the copy stays with its original.
    assert_eq!(numbers(&out), [0, 1, 2, 3, 5, 6, 7, 4, 8, 10, 11, 12, 9, 9, 13]);
    let counts = path.counts();
    assert_eq!((counts.reordered, counts.longest_reordering), (2, 3));
    assert_eq!((counts.duplicated, counts.not_overtaken), (1, 0));
}

#[test]
fn the_last_one_does_not_wait_for_ever() {
    let settings = Settings {
        reorder: Pick::Every(3),
        reorder_by: 2,
        reorder_wait_ns: 500,
        ..Settings::default()
    };
    let mut path = path(&settings);
    let out = pass(&mut path, [0, 1, 2, 3]);
    // One came behind it, and one is too few: it leaves after its time, out of order all the same.
    assert_eq!(out, [(0, 0), (1, 1), (3, 3), (2, 502)]);
    let counts = path.counts();
    assert_eq!((counts.not_overtaken, counts.reordered), (1, 1));
    // Of the reordering the line knows nothing: it was in time.
    assert_eq!(path.late().summary().unwrap().max_ns, 0);
    assert_eq!(path.took().summary().unwrap().max_ns, 500);
}

#[test]
fn bursts_are_as_long_and_as_many_as_the_model_has_them() {
    let settings = Settings {
        loss: Pick::Bursts {
            enter: 0.01,
            leave: 0.25,
            bad: 1.0,
            good: 0.0,
        },
        ..Settings::default()
    };
    let mut path = path(&settings);
    let lost: Vec<bool> = (0..200_000).map(|_| path.offer(0, 64).is_none()).collect();
    // Room ends, which is no loss of this kind: so count what was meant.
    let dropped = path.counts().dropped as f64 / 200_000.0;
    let mean: f64 = 0.01 / (0.01 + 0.25);
    // Bursts of 4 in the mean: the variance of the share is about 7 times that of single losses.
    let deviation = (7.0 * mean * (1.0 - mean) / 200_000.0).sqrt();
    assert!((dropped - mean).abs() < 5.0 * deviation, "{dropped} of {mean}");
    let whole = &lost[..9_000];
    let bursts = whole.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    let length = whole.iter().filter(|&&lost| lost).count() as f64 / bursts as f64;
    assert!((2.5..6.0).contains(&length), "{length}");
}

#[test]
fn shares_are_met_and_do_not_disturb_each_other() {
    let lossy = Settings {
        loss: Pick::Share(0.1),
        ..Settings::default()
    };
    let all = Settings {
        duplicate: Pick::Share(0.05),
        reorder: Pick::Share(0.02),
        reorder_by: 3,
        delay_ns: 5_000,
        jitter_ns: 1_000,
        ..lossy.clone()
    };
    let fates = |settings: &Settings, seed| {
        let mut path = Impairment::new(settings, seed, 100_000).unwrap();
        let lost: Vec<bool> = (0..100_000).map(|_| !offer(&mut path, 0, 0, 64)).collect();
        (lost, path.counts().dropped)
    };
    let (lost, dropped) = fates(&lossy, 7);
    assert!(dropped.abs_diff(10_000) < 5 * 95, "{dropped}");
    assert_eq!(fates(&all, 7), (lost.clone(), dropped));
    assert_ne!(fates(&all, 8).0, lost);
    assert_eq!(
        fates(
            &Settings {
                loss: Pick::Share(1.0),
                ..all.clone()
            },
            7
        )
        .1,
        100_000
    );
    assert_eq!(
        fates(
            &Settings {
                loss: Pick::Share(0.0),
                ..all
            },
            7
        )
        .1,
        0
    );
}

#[test]
fn delay_is_exact_and_jitter_within_its_bounds() {
    let settings = Settings {
        delay_ns: 50_000,
        jitter_ns: 20_000,
        overtaking: true,
        ..Settings::default()
    };
    let mut free = path(&settings);
    let out = pass(&mut free, (0..10_000).map(|n| n * 100));
    for &(number, at) in &out {
        let took = at - number * 100;
        assert!((30_000..=70_000).contains(&took), "{number}: {took}");
    }
    let asked = free.asked().summary().unwrap();
    assert!((asked.mean_ns - 50_000.0).abs() < 5.0 * 11_550.0 / 100.0, "{asked:?}");
    assert!(asked.min_ns < 30_100 && asked.max_ns > 69_900, "{asked:?}");
    assert_eq!(free.took().summary(), free.asked().summary());
    assert!(free.counts().reordered > 1_000);

    let in_line = Settings {
        overtaking: false,
        ..settings.clone()
    };
    let mut in_line = path(&in_line);
    let out = pass(&mut in_line, (0..10_000).map(|n| n * 100));
    assert!(numbers(&out).is_sorted());
    assert_eq!(in_line.counts().reordered, 0);

    let normal = Settings {
        spread: Spread::Normal,
        ..settings
    };
    let mut normal = path(&normal);
    pass(&mut normal, (0..10_000).map(|n| n * 100));
    let asked = normal.asked().summary().unwrap();
    assert!((asked.mean_ns - 50_000.0).abs() < 5.0 * 200.0, "{asked:?}");
    assert!((asked.stddev_ns - 20_000.0).abs() < 1_000.0, "{asked:?}");
    assert!(asked.max_ns > 100_000, "{asked:?}");
}

#[test]
fn a_rate_spaces_packets_and_drops_what_its_queue_cannot_hold() {
    let settings = Settings {
        rate: Some(Rate {
            per_second: 300_000,
            unit: Unit::Packets,
            queue: 4,
        }),
        ..Settings::default()
    };
    let mut slow = path(&settings);
    // Ten at once: one leaves, four wait.
    let out = pass(&mut slow, [0; 10]);
    assert_eq!(out, [(0, 0), (1, 3_334), (2, 6_667), (3, 10_000), (4, 13_334)]);
    assert_eq!(slow.counts().queue_dropped, 5);

    // For a second twice as many as it takes: all that it takes, and no more.
    let mut slow = path(&settings);
    let out = pass(&mut slow, (0..600_000).map(|n| n * 10_000 / 6));
    let counts = slow.counts();
    assert_eq!(counts.passed, 300_004);
    assert_eq!(counts.passed + counts.queue_dropped, counts.offered);
    let spaced = out.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 3_333);
    assert!(spaced, "{:?}", &out[..5]);

    let bits = Settings {
        rate: Some(Rate {
            per_second: 8_000_000,
            unit: Unit::Bits,
            queue: 100,
        }),
        ..Settings::default()
    };
    let mut bits = path(&bits);
    for (number, bytes) in [(0, 1000), (1, 500), (2, 60), (3, 1514)] {
        assert!(offer(&mut bits, 0, number, bytes));
    }
    let mut out = Vec::new();
    until(&mut bits, LATER, &mut out);
    // A byte takes a microsecond.
    assert_eq!(out, [(0, 0), (1, 1_000_000), (2, 1_500_000), (3, 1_560_000)]);
}

#[test]
fn no_room_is_counted_apart() {
    let settings = Settings {
        duplicate: Pick::Every(1),
        delay_ns: 1_000,
        ..Settings::default()
    };
    let mut path: Impairment<u64> = Impairment::new(&settings, 1, 3).unwrap();
    // Two of the first, one of the second, whose copy has no room, none of the third.
    assert!(offer(&mut path, 0, 0, 64) && offer(&mut path, 0, 1, 64) && !offer(&mut path, 0, 2, 64));
    let counts = path.counts();
    assert_eq!((counts.overflowed, counts.uncopied, path.held()), (1, 1, 3));
    let mut out = Vec::new();
    until(&mut path, LATER, &mut out);
    assert_eq!(numbers(&out), [0, 0, 1]);
    // An owner who has no memory for a copy.
    let ticket = path.offer(2_000, 64).unwrap();
    assert!(ticket.twice());
    path.hold(ticket, 3, None);
    assert_eq!((path.counts().uncopied, path.held()), (2, 1));
}

#[test]
fn nonsense_is_refused() {
    let refused = |settings: Settings| {
        let made: Result<Impairment<()>, Error> = Impairment::new(&settings, 0, 1);
        made.unwrap_err().to_string()
    };
    for (settings, word) in [
        (
            Settings {
                loss: Pick::Share(1.1),
                ..Settings::default()
            },
            "loss",
        ),
        (
            Settings {
                corrupt: Pick::Share(f64::NAN),
                ..Settings::default()
            },
            "corruption",
        ),
        (
            Settings {
                duplicate: Pick::Every(0),
                ..Settings::default()
            },
            "duplication",
        ),
        (
            Settings {
                reorder_by: 0,
                ..Settings::default()
            },
            "by 0",
        ),
        (
            Settings {
                delay_ns: 1_000_000,
                jitter_ns: 2_000_000,
                ..Settings::default()
            },
            "a delay of 1ms with a jitter of 2ms would be below zero",
        ),
    ] {
        assert!(refused(settings).contains(word), "{word}");
    }
    let rate = Rate {
        per_second: 0,
        unit: Unit::Bits,
        queue: 1,
    };
    assert!(
        refused(Settings {
            rate: Some(rate),
            ..Settings::default()
        })
        .contains("rate of 0")
    );
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        1 => Just(Pick::Never),
        3 => (0.0..0.6).prop_map(Pick::Share),
        2 => (1u64..12).prop_map(Pick::Every),
        1 => (0.0..0.3, 0.1..0.9).prop_map(|(enter, leave)| Pick::Bursts { enter, leave, bad: 0.9, good: 0.01 }),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let rate = (1_000u64..5_000_000, 0usize..40).prop_map(|(per_second, queue)| Rate {
        per_second,
        unit: Unit::Packets,
        queue,
    });
    (
        (pick(), pick(), pick(), pick()),
        1u64..20,
        0u64..50_000,
        0u64..=100,
        any::<bool>(),
        proptest::option::of(rate),
    )
        .prop_map(
            |((loss, duplicate, corrupt, reorder), reorder_by, delay_ns, jitter, overtaking, rate)| Settings {
                loss,
                duplicate,
                corrupt,
                reorder,
                reorder_by,
                reorder_wait_ns: 20_000,
                delay_ns,
                jitter_ns: delay_ns * jitter / 100,
                spread: Spread::Uniform,
                overtaking,
                rate,
            },
        )
}

proptest! {
    /// A receiver that numbers packets sees what was injected, whatever that was.
    #[test]
    fn what_a_receiver_sees_is_what_was_done(
        settings in settings(),
        seed in any::<u64>(),
        room in prop_oneof![1usize..20, Just(10_000)],
        gaps in proptest::collection::vec(0u64..3_000, 1..400),
    ) {
        let mut path = Impairment::new(&settings, seed, room).unwrap();
        let mut again = Impairment::new(&settings, seed, room).unwrap();
        let times: Vec<u64> = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) }).collect();
        let out = pass(&mut path, times.iter().copied());
        prop_assert_eq!(&out, &pass(&mut again, times.iter().copied()));
        let mut tracker = Tracker::new(1024);
        for number in 0..times.len() as u64 {
            tracker.on_sent(number);
        }
        for &(number, at) in &out {
            tracker.on_received(number);
            prop_assert!(at >= times[usize::try_from(number).unwrap()] + settings.delay_ns - settings.jitter_ns);
        }
        let (seen, counts) = (tracker.counts(), path.counts());
        prop_assert_eq!(seen.sent, counts.offered);
        prop_assert_eq!(seen.received, counts.passed);
        prop_assert_eq!(seen.lost, counts.dropped + counts.queue_dropped + counts.overflowed);
        prop_assert_eq!(seen.duplicated, counts.duplicated);
        prop_assert_eq!(seen.reordered, counts.reordered);
        prop_assert_eq!(seen.longest_reordering, counts.longest_reordering);
        prop_assert_eq!(path.took().samples(), counts.passed);
        if !settings.overtaking && settings.reorder == Pick::Never {
            prop_assert_eq!(counts.reordered, 0);
        }
    }
}
