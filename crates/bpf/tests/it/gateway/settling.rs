//! Numbers of TCP that workers follow, too, until they settle, and what else the owner changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringside_bpf::gateway::{Amendment, CachedConnection, Outcome, TcpSide};

use crate::gateway::bed::Bed;
use crate::gateway::connections::{GENERATION, alive, with_rules};
use crate::gateway::windows::{
    OFFERED, SENT, Said, UNSEEN, WINDOWS, ahead, amend, ends, found, is_dropped, numbers, put,
};

/// Merges what workers know, who have followed numbers from these on.
fn merge(bed: &Bed, from: [TcpSide; 2], to: [TcpSide; 2]) {
    amend(bed, Amendment::Merge { from, to });
}

/// Workers may have segments that nobody has followed here yet. A forged one moves no bounds
/// by them: what is right fits all the same. Nothing is dropped, and the numbers are forgotten if
/// something is too far ahead.
#[test]
fn what_is_ahead_passes_at_first_and_moves_no_bounds() {
    with_rules(|bed| {
        let limit = UNSEEN + OFFERED[1];
        for (said, is_followed) in [
            (ahead(0, limit, 0), true),
            (ahead(0, limit + 1, 0), false),
            (ahead(0, 0, UNSEEN), true),
            (ahead(0, 0, UNSEEN + 1), false),
            (ahead(0, (OFFERED[1] + 3).wrapping_neg(), 0), false),
        ] {
            put(&bed, false, Some(numbers(false)));
            let wider = Said {
                window: WINDOWS[0] + 1,
                ..said
            };
            assert!(!is_dropped(&bed, &wider));
            let known = bed.program.connections().find(&ends()).unwrap().unwrap().numbers;
            let expected = is_followed.then(|| numbers(false));
            assert_eq!(known, expected, "{} {}", wider.sequence, wider.acknowledgment);
            for way in [0, 1] {
                assert!(!is_dropped(&bed, &Said::new(way)), "{way} after {}", wider.sequence);
            }
            // They move the bounds by themselves alone.
            let known = bed.program.connections().find(&ends()).unwrap().unwrap().numbers;
            let sent = known.map(|known| known.sides.map(|side| side.end));
            let expected = is_followed.then(|| SENT.map(|sent| sent.wrapping_add(10)));
            assert_eq!(sent, expected, "after {}", wider.sequence);
        }
    });
}

/// Numbers wrap, and what is far enough ahead counts as behind.
#[test]
fn nobody_walks_ahead_of_numbers_that_have_not_settled() {
    with_rules(|bed| {
        for way in [0, 1] {
            put(&bed, false, Some(numbers(false)));
            for step in 1..=7 {
                assert!(!is_dropped(&bed, &ahead(way, 0, step * UNSEEN)));
                // The first may be of a worker, and has moved no bounds.
                let known = bed.program.connections().find(&ends()).unwrap().unwrap().numbers;
                assert_eq!(known, (step == 1).then(|| numbers(false)), "{way} {step}");
            }
            for way in [0, 1] {
                assert!(!is_dropped(&bed, &Said::new(way)));
                assert!(!is_dropped(&bed, &ahead(way, 0, 0)));
            }
        }
    });
}

/// Numbers that workers have followed meanwhile are added to those followed here.
#[test]
fn numbers_settle_when_all_that_was_ahead_is_known() {
    with_rules(|bed| {
        let mut later = numbers(false).sides;
        later[0].end += 5000;
        later[1].limit = later[1].limit.wrapping_add(5000);
        for is_known in [true, false] {
            put(&bed, false, Some(numbers(false)));
            // The second has acknowledged what a worker has sent on, and offers more.
            let answer = ahead(1, 0, 5000);
            assert!(!is_dropped(&bed, &answer));
            if is_known {
                merge(&bed, numbers(false).sides, later);
            }
            amend(&bed, Amendment::Settle);
            let now = bed.program.connections().find(&ends()).unwrap().unwrap().numbers;
            assert_eq!(now.is_some_and(|now| now.settled), is_known);
            if is_known {
                let limit = SENT[0] + 5000 + OFFERED[1];
                assert_eq!(found(&bed, false)[0].limit, limit, "as it was offered");
                assert!(!is_dropped(&bed, &answer));
                assert!(is_dropped(&bed, &ahead(1, 0, 5001)));
                assert!(is_dropped(&bed, &ahead(0, 5002 + OFFERED[1], 0)));
                assert!(!is_dropped(&bed, &ahead(0, 5001 + OFFERED[1], 0)));
            } else {
                // Forged, or more than can be followed: nothing is checked.
                assert!(!is_dropped(&bed, &ahead(0, 1 << 31, 0)));
            }
        }
    });
}

/// Numbers wrap: the fast path may have sent on so much since a connection was put that what workers
/// know seems to be ahead.
#[test]
fn only_what_workers_have_followed_since_is_merged() {
    with_rules(|bed| {
        for sent in [0, 400, 600, 1 << 30, 1 << 31, 3_000_000_000, u32::MAX - 600] {
            for followed in [0, 500] {
                let [from, mut known, mut expected] = [numbers(false).sides; 3];
                let mut here = numbers(false);
                let sides = here.sides.iter_mut().zip(&mut known).zip(&mut expected);
                for ((here, known), expected) in sides {
                    for (side, by) in [(here, sent), (known, followed), (expected, sent.max(followed))] {
                        side.end = side.end.wrapping_add(by);
                        side.limit = side.limit.wrapping_add(by);
                    }
                }
                put(&bed, false, Some(here));
                merge(&bed, from, known);
                assert_eq!(found(&bed, false), expected, "{sent} {followed}");
            }
        }
    });
}

/// The other end may send as much as the largest window before what was sent last.
#[test]
fn a_window_from_ahead_counts_when_numbers_settle() {
    with_rules(|bed| {
        for (window, most) in [(WINDOWS[0] + 1, 1023), (u16::MAX, u16::MAX)] {
            put(&bed, false, Some(numbers(false)));
            let wide = Said {
                window,
                ..ahead(0, 0, 5000)
            };
            assert!(!is_dropped(&bed, &wide));
            let mut later = numbers(false).sides;
            later[1].end = later[1].end.wrapping_add(5000);
            merge(&bed, numbers(false).sides, later);
            assert_eq!(found(&bed, false)[0].window, WINDOWS[0], "not before");
            amend(&bed, Amendment::Settle);
            let settled = found(&bed, false).map(|side| side.window);
            assert!((window..=most).contains(&settled[0]), "{settled:?}");
            assert_eq!(settled[1], WINDOWS[1]);
        }
    });
}

#[test]
fn a_connection_is_changed_in_place() {
    with_rules(|bed| {
        put(&bed, false, Some(numbers(true)));
        let renewal = Amendment::Renew {
            name: 77,
            generation: GENERATION + 1,
            seen: 0,
            idle_ms: 5,
        };
        let before = alive();
        assert!(
            !bed.program.amend(&ends(), before.name + 1, renewal).unwrap(),
            "another one"
        );
        amend(&bed, renewal);
        let after = bed.program.connections().find(&ends()).unwrap().unwrap();
        let wanted = CachedConnection {
            name: 77,
            generation: GENERATION + 1,
            idle_ms: 5,
            numbers: Some(numbers(true)),
            ..before
        };
        assert_eq!(
            after,
            CachedConnection {
                seen: after.seen,
                ..wanted
            }
        );
        assert!(bed.program.amend(&ends(), 77, Amendment::Forget).unwrap());
        assert!(!is_dropped(&bed, &ahead(0, 1 << 31, 0)));
    });
}

/// The owner gives connections of the process before other names while packets come.
#[test]
fn what_is_sent_on_while_a_connection_is_renewed_is_noted() {
    with_rules(|bed| {
        put(&bed, false, Some(numbers(true)));
        let (program, is_over) = (&bed.program, AtomicBool::new(false));
        let renew = || {
            for name in alive().name.. {
                let renewal = Amendment::Renew {
                    name: name + 1,
                    generation: GENERATION,
                    seen: 0,
                    idle_ms: alive().idle_ms,
                };
                assert!(program.amend(&ends(), name, renewal).unwrap());
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        let is_lost = |sent: &u32| {
            let said = Said {
                payload: 1,
                ..ahead(0, *sent, 0)
            };
            let outcome = bed.run(&said.bytes(false)).outcome;
            let is_sent_on = matches!(outcome, Outcome::Forwarded | Outcome::Redirected);
            is_sent_on && found(&bed, false)[0].end != SENT[0] + sent + 1
        };
        let lost = thread::scope(|scope| {
            scope.spawn(renew);
            let lost = (0..20_000).filter(is_lost).count();
            is_over.store(true, Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, 0);
    });
}
