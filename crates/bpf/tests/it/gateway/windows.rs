//! Numbers of TCP in connections that the program has.

use ringside_bpf::gateway::{
    Amendment, CachedConnection, CachedNeighbor, ConnectionKey, Outcome, PolicySince, PolicySlot, TcpNumbers, TcpSide,
};
use ringside_gateway_core::DropReason;
use ringside_gateway_core::testing::corpus::{VNI, mac, tenant};
use ringside_gateway_core::testing::tenant_ip;
use ringside_wire::Protocol;
use ringside_wire::tcp::{Flags, Header};

use crate::gateway::bed::{Bed, key, neighbor};
use crate::gateway::connections::{GENERATION, POLICED, alive, connection, with_rules};
use crate::gateway::fixtures::sent;

/// Ends of a connection of tenants 1 and 2.
const PORTS: [u16; 2] = [1000, 53];
/// What both have sent so far.
const SENT: [u32; 2] = [1_000_000, u32::MAX - 10];
/// Windows of both, and their shifts.
const WINDOWS: [u16; 2] = [1000, 500];
const SCALES: [u8; 2] = [3, 7];
/// In bytes.
const OFFERED: [u32; 2] = [8000, 64_000];
const LEAST_LAG: u32 = 66_000;
const UNSEEN: u32 = 1 << 28;

const OUT_OF_WINDOW: Outcome = Outcome::Dropped(DropReason::OutOfWindow.number());

/// All that was sent has been acknowledged.
fn numbers(settled: bool) -> TcpNumbers {
    let side = |number: usize| TcpSide {
        end: SENT[number],
        limit: SENT[number].wrapping_add(OFFERED[1 - number]),
        window: WINDOWS[number],
        scale: SCALES[number],
    };
    TcpNumbers {
        since: GENERATION,
        settled,
        sides: [side(0), side(1)],
    }
}

/// A segment of the first or second tenant, by how far its numbers are from what was sent.
struct Said {
    way: usize,
    flags: Flags,
    sequence: u32,
    acknowledgment: u32,
    window: u16,
    payload: usize,
}

impl Said {
    fn new(way: usize) -> Self {
        Self {
            way,
            flags: Flags::ACK,
            sequence: 0,
            acknowledgment: 0,
            window: WINDOWS[way],
            payload: 10,
        }
    }

    fn bytes(&self, v6: bool) -> Vec<u8> {
        let way = self.way;
        let header = Header {
            sequence: SENT[way].wrapping_add(self.sequence),
            acknowledgment: SENT[1 - way].wrapping_add(self.acknowledgment),
            window: self.window,
            ..Header::new(PORTS[way], PORTS[1 - way], self.flags)
        };
        let mut bytes = [0; Header::MOST];
        let len = header.emit(&mut bytes).unwrap();
        let upper = [&bytes[..len], &vec![0x5a; self.payload]].concat();
        let [from, to] = if way == 0 { [1, 2] } else { [2, 1] };
        let ips = [from, to].map(|last| tenant(last, v6));
        sent(tenant_ip([mac(from), mac(to)], ips, Protocol::TCP, &upper)).bytes()
    }
}

fn put(bed: &Bed, v6: bool, numbers: Option<TcpNumbers>) {
    let key = connection(v6, Protocol::TCP, PORTS);
    let value = CachedConnection { numbers, ..alive() };
    assert_eq!(bed.program.connections().put(&[(key, value)]).unwrap(), 1);
}

fn found(bed: &Bed, v6: bool) -> [TcpSide; 2] {
    let found = bed.program.connections().find(&connection(v6, Protocol::TCP, PORTS));
    found.unwrap().unwrap().numbers.unwrap().sides
}

/// Returns the verdict on the first segment of a connection, and whether its numbers were recorded.
fn outcome(bed: &Bed, v6: bool, said: &Said) -> Outcome {
    put(bed, v6, Some(numbers(true)));
    let outcome = bed.run(&said.bytes(v6)).outcome;
    if outcome == OUT_OF_WINDOW {
        assert_eq!(found(bed, v6), numbers(true).sides, "it says nothing");
    }
    outcome
}

#[test]
fn segments_out_of_the_window_are_dropped() {
    with_rules(|bed| {
        for (v6, way) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let goes = |sequence: u32, acknowledgment: u32| {
                let said = Said {
                    sequence,
                    acknowledgment,
                    ..Said::new(way)
                };
                match outcome(&bed, v6, &said) {
                    OUT_OF_WINDOW => false,
                    Outcome::Forwarded | Outcome::Redirected => true,
                    other => panic!("{other:?}"),
                }
            };
            let (others, lag) = (OFFERED[1 - way], (2 * (OFFERED[way] + 1)).max(LEAST_LAG));
            let behind = |number: u32| number.wrapping_neg();
            assert!(goes(0, 0), "the next one");
            // Up to what was offered, and behind the byte that probes a closed window.
            assert!(goes(others + 1, 0) && !goes(others + 2, 0));
            assert!(!goes(1 << 31, 0) && !goes(1 << 30, 0));
            // As old as the largest window, and two more, of ten bytes.
            assert!(goes(behind(others + 12), 0) && !goes(behind(others + 13), 0));
            // What was never sent is acknowledged; and what was long ago.
            assert!(!goes(0, 1) && !goes(0, 1 << 30));
            assert!(goes(0, behind(lag)) && !goes(0, behind(lag + 1)));
        }
    });
}

#[test]
fn resets_and_ends_out_of_the_window_reach_no_worker() {
    with_rules(|bed| {
        let [rst, fin] = [Flags::RST, Flags::FIN | Flags::ACK];
        for (flags, sequence, expected) in [
            (rst, 0, POLICED),
            (rst, OFFERED[1] + 1, POLICED),
            (rst, OFFERED[1] + 2, OUT_OF_WINDOW),
            (rst | Flags::ACK, 1 << 31, OUT_OF_WINDOW),
            // What refuses a SYN of who knows nothing of the connection has no number.
            (rst | Flags::ACK, SENT[0].wrapping_neg(), POLICED),
            (rst, SENT[0].wrapping_neg(), OUT_OF_WINDOW),
            (fin, 0, POLICED),
            (fin, 1 << 31, OUT_OF_WINDOW),
            (Flags::SYN, 1 << 31, POLICED),
        ] {
            let said = Said {
                flags,
                sequence,
                payload: 0,
                ..Said::new(0)
            };
            assert_eq!(outcome(&bed, false, &said), expected, "{flags:?} {sequence}");
        }
        // A FIN takes a number, and what acknowledges it fits.
        let end = Said {
            flags: fin,
            ..Said::new(0)
        };
        assert_eq!(outcome(&bed, false, &end), POLICED);
        let answer = Said {
            acknowledgment: 11,
            payload: 0,
            ..Said::new(1)
        };
        assert_ne!(bed.run(&answer.bytes(false)).outcome, OUT_OF_WINDOW);
        assert_eq!(outcome(&bed, false, &answer), OUT_OF_WINDOW, "without it");
    });
}

/// What is sent moves what may be acknowledged, and what is acknowledged moves what may be sent.
#[test]
fn numbers_are_followed() {
    with_rules(|bed| {
        for v6 in [false, true] {
            put(&bed, v6, Some(numbers(true)));
            let mut at = [0u32; 2];
            for _ in 0..100 {
                for way in [0, 1] {
                    let said = Said {
                        sequence: at[way],
                        acknowledgment: at[1 - way],
                        payload: 1000,
                        ..Said::new(way)
                    };
                    assert_ne!(bed.run(&said.bytes(v6)).outcome, OUT_OF_WINDOW, "{at:?}");
                    at[way] += 1000;
                }
            }
            let sides = found(&bed, v6);
            for way in [0, 1] {
                assert_eq!(sides[way].end, SENT[way].wrapping_add(at[way]));
            }
            // Acknowledged without the last one's.
            assert_eq!(sides[1].limit, SENT[1].wrapping_add(at[1] - 1000 + OFFERED[0]));
            // A larger window is remembered.
            let wide = Said {
                sequence: at[0],
                acknowledgment: at[1],
                window: WINDOWS[0] + 1,
                ..Said::new(0)
            };
            assert_ne!(bed.run(&wide.bytes(v6)).outcome, OUT_OF_WINDOW);
            assert_eq!(found(&bed, v6)[0].window, WINDOWS[0] + 1);
        }
    });
}

/// Also what the program cannot send on is followed: the answer to what a worker has sent on fits.
#[test]
fn what_goes_to_workers_is_followed() {
    with_rules(|bed| {
        put(&bed, false, Some(numbers(true)));
        let mut last = Said {
            payload: 100,
            ..Said::new(0)
        }
        .bytes(false);
        // The outer time to live ends here.
        last[22] = 1;
        assert!(matches!(bed.run(&last).outcome, Outcome::Slow(_)));
        assert_eq!(found(&bed, false)[0].end, SENT[0] + 100);
    });
}

fn ahead(way: usize, sequence: u32, acknowledgment: u32) -> Said {
    Said {
        sequence,
        acknowledgment,
        payload: 0,
        ..Said::new(way)
    }
}

fn ends() -> ConnectionKey {
    connection(false, Protocol::TCP, PORTS)
}

fn amend(bed: &Bed, wanted: Amendment) {
    assert!(bed.program.amend(&ends(), alive().name, wanted).unwrap());
}

fn is_dropped(bed: &Bed, said: &Said) -> bool {
    bed.run(&said.bytes(false)).outcome == OUT_OF_WINDOW
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

/// Somebody hits the window, and uses up what was offered.
#[test]
fn right_segments_fit_after_forged_ones_in_the_window() {
    with_rules(|bed| {
        const OFFERED: u32 = 1 << 17;
        let mut wide = numbers(true);
        wide.sides[1].window = u16::try_from(OFFERED >> SCALES[1]).unwrap();
        wide.sides[0].limit = SENT[0] + OFFERED;
        put(&bed, false, Some(wide));
        let forged = Said {
            sequence: OFFERED,
            ..Said::new(0)
        };
        assert!(!is_dropped(&bed, &forged));
        assert_eq!(found(&bed, false)[0].end, SENT[0] + OFFERED + 1);
        assert!(!is_dropped(&bed, &Said::new(1)), "it acknowledges what was sent");
        assert!(!is_dropped(&bed, &ahead(0, u32::MAX, 0)), "a keep-alive");
    });
}

/// The second acknowledges what has filled a gap, and the first sends on, before an acknowledgment
/// from before that comes.
#[test]
fn an_acknowledgment_that_others_have_overtaken_fits() {
    with_rules(|bed| {
        let data = |sequence| Said {
            sequence,
            payload: 1000,
            ..Said::new(0)
        };
        put(&bed, false, Some(numbers(true)));
        for window in [0, OFFERED[1]] {
            for at in (window..window + OFFERED[1]).step_by(1000) {
                assert!(!is_dropped(&bed, &data(at)), "{at}");
            }
            assert!(!is_dropped(&bed, &ahead(1, 0, window + OFFERED[1])));
        }
        let overtaken = Said {
            acknowledgment: 0,
            ..Said::new(1)
        };
        assert!(!is_dropped(&bed, &overtaken));
    });
}

/// A gap may be one of packets that did not pass here: a connection that nothing fits to goes on.
#[test]
fn numbers_are_forgotten_after_a_gap_if_something_does_not_fit() {
    with_rules(|bed| {
        for (seconds, is_checked) in [(20, true), (40, false)] {
            let quiet = CachedConnection {
                seen: alive().seen - seconds * 1_000_000_000,
                numbers: Some(numbers(true)),
                ..alive()
            };
            let put = || assert_eq!(bed.program.connections().put(&[(ends(), quiet)]).unwrap(), 1);
            let is_known = || {
                let found = bed.program.connections().find(&ends()).unwrap();
                found.is_some_and(|found| found.numbers.is_some())
            };
            put();
            assert!(!is_dropped(&bed, &ahead(0, 0, 0)));
            assert!(is_known(), "it fits");
            for said in [ahead(0, 1 << 31, 0), ahead(1, 0, 1 << 30)] {
                put();
                assert_eq!(is_dropped(&bed, &said), is_checked, "after {seconds} s");
                assert_eq!(is_known(), is_checked);
                assert_eq!(is_dropped(&bed, &said), is_checked, "once more");
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
                amend(&bed, Amendment::Merge(later));
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

/// The bounds of both are a second apart at the most. Numbers wrap, and of what is further apart
/// nobody knows which is ahead.
#[test]
fn bounds_of_workers_that_are_far_apart_end_the_check() {
    const MAX_AHEAD: u32 = UNSEEN + (1 << 30);
    with_rules(|bed| {
        let behind = u32::wrapping_neg;
        for (by, is_known, is_ahead) in [
            (MAX_AHEAD, true, true),
            (MAX_AHEAD + 1, false, false),
            (1 << 31, false, false),
            (behind(MAX_AHEAD + 1), false, false),
            (behind(MAX_AHEAD), true, false),
        ] {
            for (number, is_limit) in [(0, false), (0, true), (1, false), (1, true)] {
                let mut merged = numbers(false).sides;
                let side = &mut merged[number];
                let bound = if is_limit { &mut side.limit } else { &mut side.end };
                *bound = bound.wrapping_add(by);
                put(&bed, false, Some(numbers(false)));
                amend(&bed, Amendment::Merge(merged));
                let now = bed.program.connections().find(&ends()).unwrap().unwrap().numbers;
                let expected = if is_ahead { merged } else { numbers(false).sides };
                assert_eq!(now.map(|now| now.sides), is_known.then_some(expected), "{by}");
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
            amend(&bed, Amendment::Merge(later));
            assert_eq!(found(&bed, false)[0].window, WINDOWS[0], "not before");
            amend(&bed, Amendment::Settle);
            let settled = found(&bed, false).map(|side| side.window);
            assert!((window..=most).contains(&settled[0]), "{settled:?}");
            assert_eq!(settled[1], WINDOWS[1]);
        }
    });
}

#[test]
fn numbers_count_for_nothing_without_the_option() {
    with_rules(|mut bed| {
        let rst = Said {
            flags: Flags::RST,
            ..ahead(0, 1 << 31, 0)
        };
        assert_eq!(outcome(&bed, false, &rst), OUT_OF_WINDOW);
        bed.config.check_windows = false;
        bed.program.configure(&bed.config).unwrap();
        assert_eq!(outcome(&bed, false, &rst), POLICED);
        let said = Said {
            payload: 100,
            ..Said::new(0)
        };
        for is_bound in [true, false] {
            let receiver = CachedNeighbor {
                policed: is_bound,
                ..neighbor(2, false)
            };
            bed.program.neighbors().put(&[(key(2, false), receiver)]);
            assert!(matches!(
                outcome(&bed, false, &said),
                Outcome::Forwarded | Outcome::Redirected
            ));
            assert_eq!(found(&bed, false), numbers(true).sides);
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

/// Nobody followed numbers while no rules were bound in the network.
#[test]
fn numbers_from_before_a_gap_are_not_checked() {
    with_rules(|bed| {
        for (since, is_checked) in [
            (PolicySince::first(GENERATION), true),
            (PolicySince::first(GENERATION).then(GENERATION + 1), true),
            (PolicySince::first(GENERATION + 1), false),
        ] {
            put(&bed, false, Some(numbers(true)));
            bed.program.policies().put(&[(PolicySlot::of(VNI), since)]).unwrap();
            assert_eq!(is_dropped(&bed, &ahead(0, 1 << 31, 0)), is_checked, "{since:?}");
        }
    });
}

/// Rules that are bound to another address of the network may be bound to these again.
#[test]
fn numbers_are_followed_while_ends_have_no_rules() {
    with_rules(|bed| {
        for last in [1, 2] {
            bed.program
                .neighbors()
                .put(&[(key(last, false), neighbor(last, false))]);
        }
        put(&bed, false, Some(numbers(true)));
        let said = Said {
            payload: 100,
            ..Said::new(0)
        };
        assert!(matches!(
            bed.run(&said.bytes(false)).outcome,
            Outcome::Forwarded | Outcome::Redirected
        ));
        assert_eq!(found(&bed, false)[0].end, SENT[0] + 100);
        // No rules, nothing to be dropped.
        assert!(!is_dropped(&bed, &ahead(0, 1 << 31, 0)));
    });
}

/// Its ports may be those of another one by now.
#[test]
fn nothing_is_dropped_of_a_connection_that_has_timed_out() {
    with_rules(|bed| {
        let over = CachedConnection {
            seen: 1,
            idle_ms: 1,
            numbers: Some(numbers(true)),
            ..alive()
        };
        assert_eq!(bed.program.connections().put(&[(ends(), over)]).unwrap(), 1);
        assert_eq!(bed.run(&ahead(0, 1 << 31, 0).bytes(false)).outcome, POLICED);
    });
}

#[test]
fn anything_fits_where_no_numbers_are_known() {
    with_rules(|bed| {
        for flags in [Flags::ACK, Flags::RST, Flags::FIN | Flags::ACK] {
            let far = Said {
                flags,
                sequence: 1 << 31,
                acknowledgment: 1 << 31,
                ..Said::new(0)
            };
            put(&bed, false, None);
            assert_ne!(bed.run(&far.bytes(false)).outcome, OUT_OF_WINDOW, "{flags:?}");
        }
    });
}
