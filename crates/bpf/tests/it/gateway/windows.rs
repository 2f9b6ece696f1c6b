//! Numbers of TCP in connections that the program has.

use ringside_bpf::gateway::{CachedConnection, Outcome, TcpNumbers, TcpSide};
use ringside_gateway_core::DropReason;
use ringside_gateway_core::testing::corpus::{mac, tenant};
use ringside_gateway_core::testing::tenant_ip;
use ringside_wire::Protocol;
use ringside_wire::tcp::{Flags, Header};

use crate::gateway::bed::Bed;
use crate::gateway::connections::{POLICED, alive, connection, now, with_rules};
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
const UNSEEN: u32 = 1 << 24;

const OUT_OF_WINDOW: Outcome = Outcome::Dropped(DropReason::OutOfWindow.number());

/// All that was sent has been acknowledged.
fn numbers(exact_from: u64) -> TcpNumbers {
    let side = |number: usize| TcpSide {
        end: SENT[number],
        limit: SENT[number].wrapping_add(OFFERED[1 - number]),
        window: WINDOWS[number],
        scale: SCALES[number],
    };
    TcpNumbers {
        exact_from,
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
    put(bed, v6, Some(numbers(0)));
    let outcome = bed.run(&said.bytes(v6)).outcome;
    if outcome == OUT_OF_WINDOW {
        assert_eq!(found(bed, v6), numbers(0).sides, "it says nothing");
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
            let (others, own) = (OFFERED[1 - way], OFFERED[way].max(LEAST_LAG));
            let behind = |number: u32| number.wrapping_neg();
            assert!(goes(0, 0), "the next one");
            // Up to what was offered.
            assert!(goes(others, 0) && !goes(others + 1, 0));
            assert!(!goes(1 << 31, 0) && !goes(1 << 30, 0));
            // As old as the largest window, and one more, of ten bytes.
            assert!(goes(behind(others + 11), 0) && !goes(behind(others + 12), 0));
            // What was never sent is acknowledged; and what was long ago.
            assert!(!goes(0, 1) && !goes(0, 1 << 30));
            assert!(goes(0, behind(own)) && !goes(0, behind(own + 1)));
        }
    });
}

#[test]
fn resets_and_ends_out_of_the_window_reach_no_worker() {
    with_rules(|bed| {
        let [rst, fin] = [Flags::RST, Flags::FIN | Flags::ACK];
        for (flags, sequence, expected) in [
            (rst, 0, POLICED),
            (rst, OFFERED[1], POLICED),
            (rst, OFFERED[1] + 1, OUT_OF_WINDOW),
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
            put(&bed, v6, Some(numbers(0)));
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
        put(&bed, false, Some(numbers(0)));
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

/// For a moment after it was put workers may have packets of it, which nobody has followed.
#[test]
fn numbers_may_be_ahead_at_first() {
    with_rules(|bed| {
        let ahead = |sequence, acknowledgment| Said {
            sequence,
            acknowledgment,
            ..Said::new(0)
        };
        let soon = now() + 60_000_000_000;
        let limit = UNSEEN + OFFERED[1];
        for (said, fits) in [
            (ahead(limit, 0), true),
            (ahead(limit + 1, 0), false),
            (ahead(0, UNSEEN), true),
            (ahead(0, UNSEEN + 1), false),
        ] {
            put(&bed, false, Some(numbers(soon)));
            let is_dropped = bed.run(&said.bytes(false)).outcome == OUT_OF_WINDOW;
            assert_eq!(is_dropped, !fits, "{} {}", said.sequence, said.acknowledgment);
            if fits {
                let sides = found(&bed, false);
                let has_sent = sides[1].end == SENT[1].wrapping_add(said.acknowledgment);
                assert!(has_sent && sides[0].end == SENT[0] + (said.sequence + 10).min(limit + 1));
            }
        }
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
