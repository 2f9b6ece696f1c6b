//! Numbers of TCP in connections that the program has.

use ringside_bpf::gateway::{
    Amendment, CachedConnection, CachedNeighbor, ConnectionKey, Outcome, PolicySince, PolicySlot, TcpNumbers, TcpSide,
};
use ringside_gateway_core::DropReason;
use ringside_gateway_core::testing::corpus::{VNI, mac, tenant};
use ringside_gateway_core::testing::tenant_ip;
use ringside_wire::Protocol;
use ringside_wire::checksum::Sum;
use ringside_wire::tcp::{Flags, Header};

use crate::gateway::bed::{Bed, key, neighbor};
use crate::gateway::connections::{GENERATION, POLICED, alive, connection, police, with_rules};
use crate::gateway::fixtures::sent;

/// Ends of a connection of tenants 1 and 2.
const PORTS: [u16; 2] = [1000, 53];
/// What both have sent so far.
pub(super) const SENT: [u32; 2] = [1_000_000, u32::MAX - 10];
/// Windows of both, and their shifts.
pub(super) const WINDOWS: [u16; 2] = [1000, 500];
const SCALES: [u8; 2] = [3, 7];
/// In bytes.
pub(super) const OFFERED: [u32; 2] = [8000, 64_000];
const LEAST_LAG: u32 = 66_000;
pub(super) const UNSEEN: u32 = 1 << 28;

const OUT_OF_WINDOW: Outcome = Outcome::Dropped(DropReason::OutOfWindow.number());

/// All that was sent has been acknowledged.
pub(super) fn numbers(settled: bool) -> TcpNumbers {
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
pub(super) struct Said {
    pub(super) way: usize,
    pub(super) flags: Flags,
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    pub(super) window: u16,
    pub(super) payload: usize,
}

impl Said {
    pub(super) fn new(way: usize) -> Self {
        Self {
            way,
            flags: Flags::ACK,
            sequence: 0,
            acknowledgment: 0,
            window: WINDOWS[way],
            payload: 10,
        }
    }

    pub(super) fn bytes(&self, v6: bool) -> Vec<u8> {
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

pub(super) fn put(bed: &Bed, v6: bool, numbers: Option<TcpNumbers>) {
    let key = connection(v6, Protocol::TCP, PORTS);
    let value = CachedConnection { numbers, ..alive() };
    assert_eq!(bed.program.connections().put(&[(key, value)]).unwrap(), 1);
}

pub(super) fn found(bed: &Bed, v6: bool) -> [TcpSide; 2] {
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
            // Data begins up to a window behind what was offered and the byte that probes a closed one.
            assert!(goes(2 * (others + 1), 0) && !goes(2 * (others + 1) + 1, 0));
            // What says nothing but an acknowledgment, up to that byte.
            let is_dropped = |sequence| {
                let bare = Said {
                    sequence,
                    payload: 0,
                    ..Said::new(way)
                };
                outcome(&bed, v6, &bare) == OUT_OF_WINDOW
            };
            assert!(!is_dropped(others + 1) && is_dropped(others + 2));
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

pub(super) fn ahead(way: usize, sequence: u32, acknowledgment: u32) -> Said {
    Said {
        sequence,
        acknowledgment,
        payload: 0,
        ..Said::new(way)
    }
}

pub(super) fn ends() -> ConnectionKey {
    connection(false, Protocol::TCP, PORTS)
}

pub(super) fn amend(bed: &Bed, wanted: Amendment) {
    assert!(bed.program.amend(&ends(), alive().name, wanted).unwrap());
}

pub(super) fn is_dropped(bed: &Bed, said: &Said) -> bool {
    bed.run(&said.bytes(false)).outcome == OUT_OF_WINDOW
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

/// The other end may have offered more by packets that did not pass here.
#[test]
fn what_reaches_beyond_the_window_may_be_acknowledged() {
    with_rules(|bed| {
        put(&bed, false, Some(numbers(true)));
        let mut sent = OFFERED[1];
        for _ in 0..3 {
            let last = Said {
                payload: 1448,
                ..ahead(0, sent, 0)
            };
            sent += 1448;
            assert!(!is_dropped(&bed, &last), "it begins within the window");
            assert!(is_dropped(&bed, &ahead(1, 0, sent + 1)));
            assert!(!is_dropped(&bed, &ahead(1, 0, sent)), "{sent}");
            // All that is offered from there on.
            sent += OFFERED[1];
        }
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
            put();
            let rst = Said {
                flags: Flags::RST,
                ..ahead(0, 1 << 31, 0)
            };
            assert!(is_dropped(&bed, &rst) && is_known(), "after {seconds} s");
            for said in [ahead(0, 1 << 31, 0), ahead(1, 0, 1 << 30)] {
                put();
                assert_eq!(is_dropped(&bed, &said), is_checked, "after {seconds} s");
                assert_eq!(is_known(), is_checked);
                assert_eq!(is_dropped(&bed, &said), is_checked, "once more");
                // What the other end says does not count for this one.
                put();
                assert!(!is_dropped(&bed, &Said::new(1 - said.way)));
                assert_eq!(is_dropped(&bed, &said), is_checked, "{} alone", said.way);
            }
            // Its own does.
            put();
            assert!(!is_dropped(&bed, &ahead(0, 0, 0)));
            assert!(is_dropped(&bed, &ahead(0, 1 << 31, 0)));
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
    });
}

/// Another connection may have their ports by then, and rules may be bound to them again.
#[test]
fn what_does_not_fit_between_ends_without_rules_ends_the_check() {
    with_rules(|bed| {
        let far = ahead(0, 1 << 31, 0);
        let cases = [(far.bytes(false), false), (left_to_a_nic(far.bytes(false)), true)];
        for (bytes, is_slow) in cases {
            for last in [1, 2] {
                bed.program
                    .neighbors()
                    .put(&[(key(last, false), neighbor(last, false))]);
            }
            put(&bed, false, Some(numbers(true)));
            let outcome = bed.run(&bytes).outcome;
            assert_ne!(outcome, OUT_OF_WINDOW);
            assert_eq!(matches!(outcome, Outcome::Slow(_)), is_slow);
            police(&bed, 2);
            assert!(!is_dropped(&bed, &far), "slow: {is_slow}");
            put(&bed, false, Some(numbers(true)));
            assert_eq!(bed.run(&bytes).outcome, OUT_OF_WINDOW, "with rules");
        }
    });
}

/// A segment of IPv4 whose checksum is that of the pseudo header alone.
fn left_to_a_nic(mut bytes: Vec<u8>) -> Vec<u8> {
    // Outer headers, those of VXLAN and Ethernet, and IP's.
    const TCP: usize = 14 + 20 + 8 + 8 + 14 + 20;
    let len = u16::try_from(bytes.len() - TCP).unwrap();
    let sum = Sum::of(&bytes[TCP - 8..TCP]).word(Protocol::TCP.0.into()).word(len);
    bytes[TCP + 16..TCP + 18].copy_from_slice(&sum.fold().to_be_bytes());
    bytes
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
