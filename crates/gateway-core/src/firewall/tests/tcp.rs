//! TCP, segment by segment.

use super::bench::{SERVER, client, error_about, packet, rule, turned};
use super::*;

pub(super) const SYN: Flags = Flags::SYN;
pub(super) const ACK: Flags = Flags::ACK;
const RST: Flags = Flags::RST;
const FIN_ACK: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);
pub(super) const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);
pub(super) const RST_ACK: Flags = Flags(Flags::RST.0 | Flags::ACK.0);

/// Where client and server begin to count: both wrap soon.
pub(super) const C: u32 = u32::MAX - 5;
pub(super) const S: u32 = u32::MAX - 1;

/// A window of 1000 bytes, without a shift.
const WINDOW: u16 = 1000;

/// From client to server; `sequence` and `acknowledgment` count from C and S.
pub(super) fn from_client(flags: Flags, sequence: u32, acknowledgment: u32, payload: u32) -> Flow {
    let upper = Upper::Tcp(Segment {
        ports: [4000, 80],
        sequence: C.wrapping_add(sequence),
        len: payload + u32::from(flags.has(SYN)) + u32::from(flags.has(Flags::FIN)),
        acknowledgment: S.wrapping_add(acknowledgment),
        flags,
        window: WINDOW,
        scale: None,
    });
    packet(Protocol::TCP, upper)
}

/// From server to client; `sequence` and `acknowledgment` count from S and C.
pub(super) fn from_server(flags: Flags, sequence: u32, acknowledgment: u32, payload: u32) -> Flow {
    let mut flow = turned(from_client(flags, 0, 0, payload));
    if let Upper::Tcp(segment) = &mut flow.upper {
        segment.sequence = S.wrapping_add(sequence);
        segment.acknowledgment = C.wrapping_add(acknowledgment);
    }
    flow
}

fn with(mut flow: Flow, change: impl FnOnce(&mut Segment)) -> Flow {
    if let Upper::Tcp(segment) = &mut flow.upper {
        change(segment);
    }
    flow
}

/// An open connection, both sides at 1.
pub(super) fn open() -> Bench {
    let mut bench = Bench::open(few());
    assert!(!bench.pass(&from_client(SYN, 0, 0, 0)));
    assert_eq!(bench.state(), State::SynSent);
    assert!(!bench.pass(&from_server(SYN_ACK, 0, 1, 0)));
    assert_eq!(bench.state(), State::SynReceived);
    assert!(bench.pass(&from_client(ACK, 1, 1, 0)));
    assert_eq!(bench.state(), State::Established);
    bench
}

#[test]
fn only_a_syn_begins_one_that_is_tracked_strictly() {
    let strict = Limits {
        pick_up: false,
        ..Limits::default()
    };
    for flags in [ACK, SYN_ACK, FIN_ACK, RST, RST_ACK] {
        let mut bench = Bench::open(strict.clone());
        bench.refuse(&from_client(flags, 0, 0, 0), Refused::NoConnection);
        bench.refuse(&from_server(flags, 0, 0, 0), Refused::NoConnection);
    }
    for flags in [0, Flags::FIN.0, 3, 6, 7, 0x16, 0x3f, Flags::PSH.0 | Flags::URG.0] {
        let mut bench = open();
        bench.refuse(&from_client(Flags(flags), 1, 1, 0), Refused::BadFlags);
        let mut bench = Bench::open(few());
        bench.refuse(&from_client(Flags(flags), 1, 1, 0), Refused::BadFlags);
    }
}

#[test]
fn rules_look_at_the_first_segment_only() {
    let web = Service::Ports(Protocol::TCP, 80..=80);
    let mut bench = Bench::new(few(), vec![rule(Direction::Ingress, web, Remote::Any)]);
    let other = with(from_client(SYN, 0, 0, 0), |segment| segment.ports[1] = 81);
    bench.refuse(&other, Refused::Denied(Denied::Ingress));
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    assert!(bench.pass(&from_client(ACK, 1, 1, 0)));
    bench.put_group(SERVER, Vec::new());
    bench.refuse(&from_server(ACK, 1, 1, 5), Refused::NoLongerAllowed(Denied::Ingress));
    bench.refuse(&from_server(ACK, 1, 1, 5), Refused::Denied(Denied::Egress));
    bench.refuse(&from_client(ACK, 1, 1, 5), Refused::Denied(Denied::Ingress));
}

#[test]
fn the_window() {
    let before = |number: u32| number.wrapping_neg();
    let cases: [(&str, Flow, bool); 15] = [
        ("all of it", from_client(ACK, 1, 1, 1000), true),
        ("its last byte", from_client(ACK, 1000, 1, 1), true),
        ("a probe of a full one", from_client(ACK, 1001, 1, 1), true),
        ("after a probe of a full one", from_client(ACK, 1002, 1, 0), true),
        ("nothing behind it", from_client(ACK, 1003, 1, 0), false),
        ("a window behind it", from_client(ACK, 2003, 1, 1), true),
        ("more than a window behind it", from_client(ACK, 2004, 1, 1), false),
        ("far behind it", from_client(ACK, 1 << 31, 1, 1), false),
        ("a window before", from_client(ACK, before(1001), 1, 0), true),
        ("more than that before", from_client(ACK, before(1002), 1, 0), false),
        ("what was not sent acknowledged", from_client(ACK, 1, 2, 0), false),
        ("sent long ago", from_client(ACK, 1, before(65_998), 0), true),
        ("longer ago", from_client(ACK, 1, before(66_000), 0), false),
        ("the other way", from_server(ACK, 1, 1, 1000), true),
        ("the other way, behind it", from_server(ACK, 2004, 1, 1), false),
    ];
    for (name, segment, fits) in cases {
        let mut bench = open();
        let judged = bench.judge(&segment).map(|passed| passed.established);
        assert_eq!(
            judged,
            if fits { Ok(true) } else { Err(Refused::OutOfWindow) },
            "{name}"
        );
        // What does not fit has changed nothing.
        assert!(bench.pass(&from_client(ACK, 1, 1, 5)), "{name}");
        assert!(bench.pass(&from_server(ACK, 1, 6, 5)), "{name}");
    }
}

#[test]
fn an_acknowledgment_opens_the_window() {
    let mut bench = open();
    bench.pass(&from_client(ACK, 1, 1, 1000));
    bench.refuse(&from_client(ACK, 2500, 1, 10), Refused::OutOfWindow);
    bench.pass(&from_server(ACK, 1, 1001, 0));
    bench.pass(&from_client(ACK, 1500, 1, 10));
    bench.pass(&from_server(ACK, 1, 1001, 0));
    bench.pass(&from_client(ACK, 1001, 1, 500));
    bench.pass(&from_server(ACK, 1, 1510, 0));
    bench.refuse(&from_server(ACK, 1, 1512, 0), Refused::OutOfWindow);
}

#[test]
fn windows_are_shifted_if_both_sides_say_so() {
    for (client_scale, server_scale, most) in [(Some(7), Some(2), 4000), (Some(7), None, 1000), (None, Some(2), 1000)] {
        let mut bench = Bench::open(few());
        bench.pass(&with(from_client(SYN, 0, 0, 0), |segment| segment.scale = client_scale));
        bench.pass(&with(from_server(SYN_ACK, 0, 1, 0), |segment| {
            segment.scale = server_scale
        }));
        bench.pass(&from_client(ACK, 1, 1, 0));
        // That of the SYN is not.
        bench.refuse(&from_client(ACK, 1003, 1, 0), Refused::OutOfWindow);
        bench.pass(&from_server(ACK, 1, 1, 0));
        bench.refuse(&from_client(ACK, 4 + 2 * most, 1, 1), Refused::OutOfWindow);
        bench.pass(&from_client(ACK, 1 + most, 1, 1));
    }
}

/// The server has acknowledged what fills a gap, and the client has sent on, before it comes.
#[test]
fn an_acknowledgment_that_others_have_overtaken_fits() {
    const OFFERED: u32 = 128_000;
    let mut bench = Bench::open(few());
    bench.pass(&with(from_client(SYN, 0, 0, 0), |segment| segment.scale = Some(7)));
    bench.pass(&with(from_server(SYN_ACK, 0, 1, 0), |segment| segment.scale = Some(7)));
    bench.pass(&from_server(ACK, 1, 1, 0));
    bench.pass(&from_client(ACK, 1, 1, OFFERED));
    bench.pass(&from_server(ACK, 1, 1 + OFFERED, 0));
    bench.pass(&from_client(ACK, 1 + OFFERED, 1, OFFERED));
    bench.pass(&from_server(ACK, 1, 1, 100));
    bench.refuse(&from_server(ACK, 1, 1_u32.wrapping_sub(3), 0), Refused::OutOfWindow);
}

#[test]
fn a_window_that_is_no_multiple_of_its_shift() {
    let mut bench = Bench::open(few());
    bench.pass(&with(from_client(SYN, 0, 0, 0), |segment| segment.scale = Some(0)));
    let syn_ack = from_server(SYN_ACK, 0, 1, 0);
    bench.pass(&with(syn_ack, |segment| {
        (segment.window, segment.scale) = (500, Some(3))
    }));
    bench.pass(&from_client(ACK, 1, 1, 500));
    assert!(bench.pass(&from_client(ACK, 1, 1, 0)), "as old as it may be");
}

#[test]
fn who_forges_does_not_move_the_bounds() {
    let mut bench = open();
    bench.pass(&from_client(ACK, 1001, 1, 400));
    assert!(bench.pass(&from_client(ACK, 1, 1, 5)), "the right one");
    assert!(bench.pass(&from_client(ACK, 0, 1, 0)), "a keep-alive");
    bench.refuse(&from_server(ACK, 1, 1402, 0), Refused::OutOfWindow);

    // An answer that did not fit, and another to which it would: the connection is open, and stays what it is.
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(ACK, 1, 77, 0));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    bench.pass(&from_client(ACK, 1, 1, 0));
    bench.refuse(&from_server(SYN_ACK, 90_000, 77, 0), Refused::OutOfWindow);
    assert_eq!(bench.state(), State::Established);
}

#[test]
fn closing_one_side_after_the_other() {
    let mut bench = open();
    assert!(!bench.pass(&from_client(FIN_ACK, 1, 1, 10)));
    assert_eq!(bench.state(), State::FinWait);
    bench.pass(&from_server(ACK, 1, 11, 100));
    assert_eq!(bench.state(), State::FinWait, "the data is acknowledged, not the FIN");
    assert!(!bench.pass(&from_server(ACK, 101, 12, 100)));
    assert_eq!(bench.state(), State::CloseWait);
    // Half closed: one side goes on as long as it likes.
    for n in 0..20 {
        bench.wait(59);
        bench.pass(&from_server(ACK, 201 + n * 10, 12, 10));
        bench.pass(&from_client(ACK, 12, 211 + n * 10, 0));
    }
    bench.pass(&from_server(FIN_ACK, 401, 12, 0));
    assert_eq!(bench.state(), State::LastAck);
    bench.pass(&from_server(FIN_ACK, 401, 12, 0));
    bench.pass(&from_client(ACK, 12, 402, 0));
    assert_eq!(bench.state(), State::TimeWait);
    bench.pass(&from_server(FIN_ACK, 401, 12, 0));
    bench.pass(&from_client(ACK, 12, 402, 0));
    assert_eq!(bench.state(), State::TimeWait);
    bench.wait(121);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1);
}

#[test]
fn both_close_at_once() {
    let mut bench = open();
    bench.pass(&from_client(FIN_ACK, 1, 1, 0));
    bench.pass(&from_server(FIN_ACK, 1, 1, 0));
    assert_eq!(bench.state(), State::LastAck);
    bench.pass(&from_client(ACK, 2, 2, 0));
    assert_eq!(bench.state(), State::LastAck);
    bench.pass(&from_server(ACK, 2, 2, 0));
    assert_eq!(bench.state(), State::TimeWait);
}

#[test]
fn the_same_ports_again() {
    let closed = || {
        let mut bench = open();
        bench.pass(&from_client(FIN_ACK, 1, 1, 0));
        bench.pass(&from_server(FIN_ACK, 1, 2, 0));
        bench.pass(&from_client(ACK, 2, 2, 0));
        assert_eq!(bench.state(), State::TimeWait);
        bench
    };
    let mut bench = closed();
    bench.pass(&from_client(SYN, 90_000, 0, 0));
    assert_eq!((bench.state(), bench.len()), (State::SynSent, 1));
    assert_eq!(bench.firewall.conntrack().counts().replaced, 1);
    bench.pass(&from_server(SYN_ACK, 70_000, 90_001, 0));
    assert!(bench.pass(&from_client(ACK, 90_001, 70_001, 0)));

    // As a connection of its own it needs a rule of its own.
    let mut bench = closed();
    bench.refuse(&from_server(SYN, 90_000, 0, 0), Refused::Denied(Denied::Egress));
    assert_eq!(bench.state(), State::TimeWait);
    let mut bench = closed();
    bench.put_group(SERVER, Vec::new());
    bench.refuse(
        &from_client(SYN, 90_000, 0, 0),
        Refused::NoLongerAllowed(Denied::Ingress),
    );
}

#[test]
fn a_refusal() {
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.refuse(&from_server(RST_ACK, 0, 2, 0), Refused::OutOfWindow);
    bench.refuse(&from_server(RST_ACK, 0, 0, 0), Refused::OutOfWindow);
    bench.refuse(&from_server(RST, 0, 1, 0), Refused::OutOfWindow);
    bench.pass(&from_server(RST_ACK, 0, 1, 0));
    assert_eq!(bench.state(), State::Closed);
    bench.pass(&from_client(SYN, 0, 0, 0));
    assert_eq!(bench.state(), State::SynSent, "and again");
    bench.pass(&from_client(RST, 1, 0, 0));
    assert_eq!(bench.state(), State::Closed, "thought better of it");
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    bench.refuse(&from_server(RST, 5000, 0, 0), Refused::OutOfWindow);
    bench.pass(&from_server(RST, 1, 0, 0));
    assert_eq!(bench.state(), State::Closed, "before it was open");
}

#[test]
fn resets() {
    type Expected = Result<State, Refused>;
    let cases: [(&str, Flow, Expected); 8] = [
        ("exactly the number", from_client(RST, 101, 0, 0), Ok(State::Closed)),
        (
            "and with an acknowledgment",
            from_client(RST_ACK, 101, 1, 0),
            Ok(State::Closed),
        ),
        ("in the window", from_client(RST, 102, 0, 0), Ok(State::ResetSeen)),
        ("before it, in doubt", from_client(RST, 100, 0, 0), Ok(State::ResetSeen)),
        (
            "behind the window",
            from_client(RST, 1103, 0, 0),
            Err(Refused::OutOfWindow),
        ),
        (
            "far before",
            from_client(RST, 0_u32.wrapping_sub(5000), 0, 0),
            Err(Refused::OutOfWindow),
        ),
        ("of the server", from_server(RST, 1, 0, 0), Ok(State::Closed)),
        (
            "of the server, forged",
            from_server(RST, 5000, 0, 0),
            Err(Refused::OutOfWindow),
        ),
    ];
    for (name, reset, expected) in cases {
        let mut bench = open();
        bench.pass(&from_client(ACK, 1, 1, 100));
        bench.pass(&from_server(ACK, 1, 101, 0));
        let judged = bench.judge(&reset).map(|passed| (passed.established, bench.state()));
        assert_eq!(judged, expected.map(|state| (false, state)), "{name}");
        match expected {
            Ok(State::Closed) => {
                // What was under way still comes, and keeps nothing alive.
                for _ in 0..3 {
                    bench.wait(3);
                    bench.pass(&from_server(ACK, 1, 101, 10));
                }
                bench.wait(2);
                assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1, "{name}");
            }
            // The receiver asks back, which shows that it lives.
            Ok(_) => {
                assert!(bench.pass(&from_server(ACK, 1, 101, 0)), "{name}");
                assert_eq!(bench.state(), State::Established, "{name}");
            }
            Err(_) => assert_eq!(bench.state(), State::Established, "{name}"),
        }
    }
}

#[test]
fn a_reset_in_doubt_and_silence() {
    let mut bench = open();
    bench.pass(&from_client(RST, 5, 0, 0));
    bench.wait(301);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1);
    let mut bench = open();
    bench.pass(&from_client(RST, 5, 0, 0));
    bench.pass(&from_client(SYN, 9000, 0, 0));
    assert_eq!(bench.state(), State::SynSent);
}

#[test]
fn a_syn_on_an_open_connection_changes_nothing() {
    let mut bench = open();
    assert!(bench.pass(&from_client(SYN, 50_000, 0, 0)), "its receiver asks back");
    assert_eq!(bench.state(), State::Established);
    assert!(bench.pass(&from_server(ACK, 1, 1, 0)));
    bench.refuse(&from_server(SYN, 50_000, 0, 0), Refused::Denied(Denied::Egress));
    assert!(bench.pass(&from_client(ACK, 1, 1, 10)));
}

#[test]
fn a_client_that_was_started_anew() {
    // The server's side is open: it asks back, is told that nothing is, and the second try begins a connection.
    let mut bench = open();
    bench.pass(&from_client(SYN, 50_000, 0, 0));
    bench.pass(&from_server(ACK, 1, 1, 0));
    bench.pass(&from_client(RST, 1, 0, 0));
    assert_eq!(bench.state(), State::Closed);
    bench.pass(&from_client(SYN, 50_000, 0, 0));
    bench.pass(&from_server(SYN_ACK, 80_000, 50_001, 0));
    assert!(bench.pass(&from_client(ACK, 50_001, 80_001, 0)));

    // The server was, too: it answers at once.
    let mut bench = open();
    bench.pass(&from_client(SYN, 50_000, 0, 0));
    bench.refuse(&from_server(SYN_ACK, 80_000, 50_002, 0), Refused::OutOfWindow);
    let syn_ack = from_server(SYN_ACK, 80_000, 50_001, 0);
    bench.pass(&with(syn_ack, |segment| segment.scale = Some(2)));
    assert_eq!(
        (bench.state(), bench.firewall.conntrack().weak()),
        (State::SynReceived, 1)
    );
    assert!(bench.pass(&from_client(ACK, 50_001, 80_001, 700)));
    // What its SYN offered was not kept, so its windows may be shifted by any number.
    assert!(bench.pass(&from_server(ACK, 180_000, 50_701, 700)));
    assert!(bench.pass(&from_server(ACK, 80_001, 50_701, 700)));

    // Here everything is forgotten, and only the server thinks that a connection is open.
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 50_000, 0, 0));
    bench.pass(&from_server(ACK, 1, 77, 0));
    bench.pass(&from_client(RST, 77, 0, 0));
    assert_eq!(bench.state(), State::SynSent);
    bench.pass(&from_client(SYN, 50_000, 0, 0));
    bench.pass(&from_server(SYN_ACK, 80_000, 50_001, 0));
    assert!(bench.pass(&from_client(ACK, 50_001, 80_001, 0)));
}

#[test]
fn what_does_not_come_in_this_order() {
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.refuse(&from_client(ACK, 1, 1, 0), Refused::OutOfState);
    bench.refuse(&from_client(SYN_ACK, 0, 1, 0), Refused::OutOfState);
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    bench.refuse(&from_client(ACK, 1, 2, 0), Refused::OutOfWindow);
    bench.refuse(&from_client(ACK, 1, 0, 0), Refused::OutOfWindow);
    bench.refuse(&from_server(SYN_ACK, 5, 1, 0), Refused::OutOfWindow);
    assert_eq!(bench.state(), State::SynReceived);
    assert!(bench.pass(&from_client(ACK, 1, 1, 0)));
}

/// An answer that was on its way when all connections were forgotten: who waits for it says nothing.
#[test]
fn picked_up_by_an_answer() {
    let web = || {
        vec![rule(
            Direction::Ingress,
            Service::Ports(Protocol::TCP, 80..=80),
            Remote::Any,
        )]
    };
    let mut bench = Bench::new(few(), web());
    assert!(!bench.pass(&from_server(ACK, 500, 500, 10)));
    assert_eq!(bench.state(), State::PickedUp);
    assert!(
        !bench.pass(&from_server(ACK, 500, 500, 10)),
        "the other side has said nothing yet"
    );
    assert!(bench.pass(&from_client(ACK, 500, 510, 10)));
    assert_eq!(bench.state(), State::Established);
    // It is the client's: its rules are those of what it began.
    bench.put_group(SERVER, Vec::new());
    bench.refuse(
        &from_server(ACK, 510, 510, 0),
        Refused::NoLongerAllowed(Denied::Ingress),
    );
    bench.refuse(&from_server(ACK, 510, 510, 0), Refused::Denied(Denied::Egress));

    let mut bench = Bench::new(few(), web());
    bench.pass(&from_server(FIN_ACK, 500, 500, 0));
    bench.pass(&from_client(ACK, 500, 501, 0));
    assert_eq!(bench.state(), State::CloseWait);

    // Its port is none that anybody may connect to; and what begins or ends one is in the middle of none.
    let mut bench = Bench::new(few(), web());
    let other = with(from_server(ACK, 500, 500, 10), |segment| segment.ports[0] = 81);
    bench.refuse(&other, Refused::Denied(Denied::Egress));
    bench.refuse(&from_server(SYN, 500, 0, 0), Refused::Denied(Denied::Egress));
    for flags in [SYN_ACK, RST, RST_ACK] {
        bench.refuse(&from_server(flags, 500, 500, 0), Refused::NoConnection);
    }
    // The client begins anew, as it may at any time; the server does not.
    bench.pass(&from_server(ACK, 500, 500, 10));
    bench.refuse(&from_server(SYN, 500, 0, 0), Refused::Denied(Denied::Egress));
    bench.pass(&from_client(SYN, 9000, 0, 0));
    assert_eq!(bench.state(), State::SynSent);

    let strict = Limits {
        pick_up: false,
        ..few()
    };
    Bench::new(strict, web()).refuse(&from_server(ACK, 500, 500, 10), Refused::NoConnection);
}

#[test]
fn picked_up_in_its_middle() {
    let mut bench = Bench::open(few());
    assert!(!bench.pass(&from_client(ACK, 500, 500, 10)));
    assert_eq!(bench.state(), State::PickedUp);
    assert!(bench.pass(&from_server(ACK, 400, 510, 10)));
    assert_eq!(bench.state(), State::Established);
    // Its windows and their shifts were never seen.
    assert!(bench.pass(&from_client(ACK, 900_000, 300_000, 10)));
    bench.pass(&from_client(FIN_ACK, 900_010, 300_000, 0));
    bench.pass(&from_server(FIN_ACK, 300_000, 900_011, 0));
    bench.pass(&from_client(ACK, 900_011, 300_001, 0));
    assert_eq!(bench.state(), State::TimeWait);

    let mut bench = Bench::open(few());
    bench.pass(&from_client(FIN_ACK, 500, 500, 0));
    bench.pass(&from_server(ACK, 500, 501, 0));
    assert_eq!(bench.state(), State::CloseWait);

    let mut bench = Bench::open(few());
    bench.pass(&from_client(ACK, 500, 500, 10));
    bench.pass(&from_client(SYN, 9000, 0, 0));
    assert_eq!(bench.state(), State::SynSent);
}

#[test]
fn through_the_fast_path_and_back() {
    let mut bench = open();
    let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    // Much has passed unseen.
    assert!(bench.pass(&from_server(ACK, 700_000, 900_000, 10)));
    assert!(
        bench.pass(&from_client(RST, 123, 0, 0)),
        "nobody knows whether it counts, so it stays there"
    );
    assert_eq!(
        (bench.state(), bench.firewall.conntrack().weak()),
        (State::ResetSeen, 1)
    );
    assert_eq!(bench.firewall.conntrack().hand_over(id), None, "nothing new");
    assert!(bench.firewall.conntrack().touch(id, bench.now - 1), "before the reset");
    assert_eq!(bench.state(), State::ResetSeen);
    bench.wait(200);
    assert!(bench.firewall.conntrack().touch(id, bench.now));
    assert_eq!(bench.state(), State::Established, "it did not");
    bench.pass(&from_client(RST, 900_000, 0, 0));
    bench.wait(301);
    assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1, "it did");

    let mut bench = open();
    let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    let handed_over = |bench: &Bench| {
        let mut told = Vec::new();
        let conntrack = bench.firewall.conntrack();
        conntrack.for_each(|connection| told.push(connection.handed_over));
        told
    };
    assert_eq!(handed_over(&bench), [true]);
    let end = bench.judge(&from_server(FIN_ACK, 800_000, 900_000, 10)).unwrap();
    assert!(end.let_go && !end.established);
    assert_eq!(handed_over(&bench), [false]);
    assert_eq!(bench.firewall.conntrack().hand_over(id), None);
    assert!(bench.firewall.conntrack().touch(id, bench.now));
    let end = bench.judge(&from_client(FIN_ACK, 900_000, 800_011, 0)).unwrap();
    assert!(!end.let_go, "once");
    bench.pass(&from_server(ACK, 800_011, 900_001, 0));
    assert_eq!(bench.state(), State::TimeWait);
}

#[test]
fn fragments_end_the_checking() {
    let mut bench = open();
    let piece = Piece {
        identification: 1,
        first: true,
    };
    let first = Flow {
        fragment: Some(piece),
        ..from_client(ACK, 1, 1, 8)
    };
    bench.pass(&first);
    let later = Flow {
        fragment: Some(Piece { first: false, ..piece }),
        ..packet(Protocol::TCP, Upper::Later)
    };
    bench.pass(&later);
    assert!(
        bench.pass(&from_server(ACK, 1, 900, 0)),
        "as far as the later ones reached"
    );
}

#[test]
fn errors_quote_numbers_that_were_sent() {
    let mut bench = open();
    let sent = from_client(ACK, 1, 1, 500);
    bench.pass(&sent);
    bench.pass(&error_about(&sent));
    bench.refuse(&error_about(&from_client(ACK, 501, 1, 0)), Refused::Unrelated);
    bench.refuse(&error_about(&from_client(ACK, 1 << 20, 1, 0)), Refused::Unrelated);
    bench.refuse(
        &error_about(&from_client(ACK, 0_u32.wrapping_sub(1 << 20), 1, 0)),
        Refused::Unrelated,
    );
    bench.refuse(&error_about(&from_server(ACK, 1, 1, 0)), Refused::Unrelated);
    assert_eq!(bench.state(), State::Established);

    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&error_about(&from_client(SYN, 0, 0, 0)));
    bench.refuse(&error_about(&from_server(SYN_ACK, 0, 0, 0)), Refused::Unrelated);
    assert_eq!(bench.firewall.conntrack().len(), 1);
    assert_eq!(client(), error_about(&sent).destination);
}
