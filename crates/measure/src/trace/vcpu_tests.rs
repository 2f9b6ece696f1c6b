use super::*;
use Point::{Awake, Copy, Entered, Kick, SoftIrq};
use Scheduled::{Off, On, Woken};

/// The host's last point is at 1000, the guest's first at 2000.
fn way(changes: &[(u64, Scheduled)], uncertain_ns: u64) -> (Vec<(Point, u64)>, u64) {
    let mut vcpus = Vcpus::new();
    vcpus.watch(1);
    for (ns, what) in changes {
        vcpus.changed(1, *ns, *what, 3);
        // Others have no part in it.
        vcpus.changed(0, *ns + 1, *what, 3);
    }
    let stamp = |ns, point, cpu| Stamp {
        ns,
        point,
        place: Place {
            cpu,
            ..Place::default()
        },
    };
    let (stamps, moved_ns) = vcpus.enter(&stamp(1_000, Copy, 0), &stamp(2_000, SoftIrq, 1), uncertain_ns);
    assert!(stamps.is_sorted_by_key(|stamp| stamp.ns), "{stamps:?}");
    assert!(
        stamps.iter().all(|stamp| (1_000..=2_000).contains(&stamp.ns)),
        "{stamps:?}"
    );
    (stamps.iter().map(|stamp| (stamp.point, stamp.ns)).collect(), moved_ns)
}

#[test]
fn one_that_slept_is_woken_up_and_runs() {
    let slept = [(500, Off), (1_200, Woken), (1_300, On)];
    assert_eq!(way(&slept, 0), (vec![(Kick, 1_200), (Entered, 1_300)], 0));
    // Of which nothing was told before.
    assert_eq!(way(&slept[1..], 0).0, [(Kick, 1_200), (Entered, 1_300)]);
    // What comes later has no part in it.
    let later = [&slept[..], &[(2_100, Off), (2_200, Woken), (2_300, On)]].concat();
    assert_eq!(way(&later, 500).0, [(Kick, 1_200), (Entered, 1_300)]);
}

#[test]
fn what_counts_is_the_last_time_that_it_was_woken_up() {
    let by_timer = [
        (500, Off),
        (1_100, Woken),
        (1_150, On),
        (1_400, Off),
        (1_500, Woken),
        (1_600, On),
    ];
    assert_eq!(way(&by_timer, 0).0, [(Kick, 1_500), (Entered, 1_600)]);
    // Who takes its CPU afterwards makes no other.
    let preempted = [(500, Off), (1_100, Woken), (1_150, On), (1_400, Off), (1_600, On)];
    assert_eq!(way(&preempted, 0).0, [(Kick, 1_100), (Entered, 1_150)]);
}

#[test]
fn one_that_runs_already_is_told_to_be_awake() {
    for awake in [
        &[(500, On)][..],
        &[(500, On), (2_500, Off)],
        &[(2_500, Off), (2_600, Woken), (2_700, On)],
        &[(500, On), (1_200, Off), (1_400, On)],
        // That somebody wakes it up who does not know is nothing to it.
        &[(500, On), (1_200, Woken)],
        &[],
    ] {
        assert_eq!(way(awake, 10), (vec![(Awake, 1_000)], 0), "{awake:?}");
    }
}

/// Somebody else had its CPU, or it was woken up before.
#[test]
fn one_that_waits_for_a_cpu_is_not_woken_up() {
    assert_eq!(way(&[(500, On), (800, Off), (1_700, On)], 0).0, [(Entered, 1_700)]);
    assert_eq!(way(&[(500, Off), (900, Woken), (1_700, On)], 0).0, [(Entered, 1_700)]);
}

/// The guest's clock is known to so much only.
#[test]
fn a_kick_that_seems_to_come_too_late_is_moved_within_what_is_uncertain() {
    let late = [(500, Off), (2_030, Woken), (2_060, On)];
    assert_eq!(way(&late, 100), (vec![(Kick, 2_000), (Entered, 2_000)], 60));
    assert_eq!(way(&late, 20), (vec![], 0), "another one's");
    let split = [(500, Off), (1_990, Woken), (2_060, On)];
    assert_eq!(way(&split, 100), (vec![(Kick, 1_990), (Entered, 2_000)], 60));
}

#[test]
fn of_one_that_is_not_watched_nothing_is_known() {
    let stamp = Stamp {
        ns: 1_000,
        point: Copy,
        place: Place::default(),
    };
    assert_eq!(Vcpus::new().enter(&stamp, &stamp, 0), (Vec::new(), 0));
}
