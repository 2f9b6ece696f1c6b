//! What both sides of a TCP connection have said, which the fast path goes on from.

use super::bench::{CLIENT, SERVER, error_about, rule, udp};
use super::tcp::{ACK, C, S, SYN, SYN_ACK, from_client, from_server, open};
use super::*;
use crate::conntrack::Said;

#[test]
fn numbers_go_along_to_the_fast_path() {
    // Of windows of 1000 bytes without shifts.
    let mut bench = open();
    bench.pass(&from_client(ACK, 1, 1, 300));
    let id = bench.judge(&from_server(ACK, 1, 201, 50)).unwrap().connection.unwrap();
    // By how far the numbers are from each side's first.
    let said = |first: u32, end, limit| Said {
        end: first.wrapping_add(end),
        limit: first.wrapping_add(limit),
        window: 1000,
        scale: 0,
    };
    let conntrack = bench.firewall.conntrack();
    let (connection, numbers) = conntrack.hand_over_with_numbers(id).unwrap();
    assert!(connection.handed_over);
    assert_eq!(numbers, Some([said(C, 301, 1201), said(S, 51, 1001)]));
    // It is allowed again. What workers still have of it is followed.
    let again = bench.firewall.conntrack().hand_over_with_numbers(id);
    assert!(again.is_some_and(|(_, numbers)| numbers.is_none()));
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    bench.pass(&from_server(ACK, 51, 301, 20));
    let conntrack = bench.firewall.conntrack();
    assert_eq!(conntrack.settle(id), Some([said(C, 301, 1301), said(S, 71, 1001)]));
    assert_eq!(conntrack.settle(id), None, "nobody follows them here any more");
    let again = conntrack.hand_over_with_numbers(id);
    assert!(again.is_some_and(|(_, numbers)| numbers.is_none()));
}

#[test]
fn numbers_of_what_was_picked_up_are_not_known() {
    let mut bench = Bench::open(few());
    let id = bench
        .judge(&from_client(ACK, 500, 500, 10))
        .unwrap()
        .connection
        .unwrap();
    bench.pass(&from_server(ACK, 500, 510, 10));
    let handed = bench.firewall.conntrack().hand_over_with_numbers(id);
    assert!(handed.is_some_and(|(_, numbers)| numbers.is_none()));
}

/// Of the first fragment the fast path has read no numbers, so what it knows does not hold any more.
#[test]
fn a_fragment_takes_a_connection_from_the_fast_path() {
    let mut bench = open();
    let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
    let piece = Piece {
        identification: 7,
        first: true,
    };
    let fragment = Flow {
        fragment: Some(piece),
        ..from_client(ACK, 11, 1, 10)
    };
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    let passed = bench.judge(&fragment).unwrap();
    assert!(passed.let_go && !passed.established);
}

/// The fast path has sent on what workers have not seen. A worker refuses nothing of it for that,
/// and does not know any more what both sides have said.
#[test]
fn what_the_fast_path_has_seen_is_not_refused() {
    for flags in [ACK, Flags::FIN | ACK] {
        let mut bench = open();
        let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
        let handed = bench.firewall.conntrack().hand_over_with_numbers(id);
        assert!(handed.is_some_and(|(_, numbers)| numbers.is_some()));
        bench.pass(&from_client(flags, 5001, 7001, 10));
        assert_eq!(bench.firewall.conntrack().settle(id), None);
        bench.pass(&from_server(ACK, 7001, 5011, 10));
    }
}

/// The server may have offered more than has passed here. What the client has sent beyond that does
/// not count against what it says next.
#[test]
fn what_reaches_beyond_the_window_may_be_acknowledged() {
    let mut bench = open();
    bench.pass(&from_client(ACK, 1001, 1, 500));
    bench.refuse(&from_server(ACK, 1, 1502, 0), Refused::OutOfWindow);
    bench.refuse(&from_client(ACK, 0_u32.wrapping_sub(1), 1, 0), Refused::OutOfWindow);
    bench.pass(&from_client(ACK, 0, 1, 0));
    bench.pass(&from_server(ACK, 1, 1501, 0));
    bench.pass(&from_client(ACK, 1501, 1, 500));
}

/// Its segments go by the fast path before its numbers settle, and a router says that one is too long.
#[test]
fn errors_about_segments_of_the_fast_path_pass() {
    for settles in [false, true] {
        let mut bench = open();
        let sent = from_server(ACK, 1, 1, 500);
        bench.refuse(&error_about(&sent), Refused::Unrelated);
        let id = bench.judge(&from_client(ACK, 1, 1, 0)).unwrap().connection.unwrap();
        let conntrack = bench.firewall.conntrack();
        assert!(
            conntrack
                .hand_over_with_numbers(id)
                .is_some_and(|(_, numbers)| numbers.is_some())
        );
        assert!(!settles || conntrack.settle(id).is_some());
        bench.pass(&error_about(&sent));
    }
}

/// The server has lost the connection, takes the SYN of another one without its data (RFC 7413),
/// and both go on with other numbers than the fast path has.
#[test]
fn an_answer_to_a_syn_takes_a_connection_from_the_fast_path() {
    let lets_go = |bench: &mut Bench, flow: &Flow| bench.judge(flow).unwrap().let_go;
    for acknowledged in [5001, 5501] {
        let mut bench = open();
        let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
        assert!(bench.firewall.conntrack().hand_over_with_numbers(id).is_some());
        assert!(bench.firewall.conntrack().settle(id).is_some());
        let answer = from_server(SYN_ACK, 9000, acknowledged, 0);
        assert!(!lets_go(&mut bench, &answer), "nobody has asked");
        assert!(
            !lets_go(&mut bench, &from_client(SYN, 5000, 0, 500)),
            "it is not answered"
        );
        assert!(lets_go(&mut bench, &answer), "{acknowledged}");
        bench.pass(&from_client(ACK, acknowledged, 9001, 500));
    }
}

/// One that is not in the fast path any more was followed by nobody meanwhile.
#[test]
fn numbers_of_what_was_taken_back_are_not_known() {
    let mut bench = open();
    let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
    let conntrack = bench.firewall.conntrack();
    assert!(conntrack.hand_over_with_numbers(id).is_some());
    conntrack.take_back(id);
    bench.pass(&from_client(ACK, 5001, 7001, 10));
    let handed = bench.firewall.conntrack().hand_over_with_numbers(id);
    assert!(handed.is_some_and(|(_, numbers)| numbers.is_none()));
}

/// Ports may be those of a connection that has ended unseen by the fast path.
#[test]
fn a_connection_takes_its_ports_from_one_that_lingers_in_the_fast_path() {
    let mut bench = open();
    let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    bench.now += 1 << 60;
    bench.firewall.conntrack().sweep(bench.now);
    assert!(bench.firewall.conntrack().is_empty());
    let lingering = bench.firewall.conntrack().lingering();
    bench.firewall.conntrack().follow_numbers(false);
    assert!(!bench.judge(&from_client(SYN, 0, 0, 0)).unwrap().let_go, "no numbers");
    bench.firewall.conntrack().follow_numbers(true);
    bench.now += 1 << 60;
    assert!(bench.judge(&from_client(SYN, 0, 0, 0)).unwrap().let_go);
    bench.firewall.conntrack().let_go(lingering);
    bench.now += 1 << 60;
    assert!(
        !bench.judge(&from_client(SYN, 0, 0, 0)).unwrap().let_go,
        "it is gone there"
    );
}

/// Both ends may have lost a connection, and the one that did not begin it begins another one.
#[test]
fn a_connection_takes_its_ports_from_one_of_the_other_direction() {
    for is_handed in [true, false] {
        let mut bench = open();
        for group in [CLIENT, SERVER] {
            let ways = [Direction::Ingress, Direction::Egress];
            let all = ways.map(|way| rule(way, Service::Any, Remote::Any));
            bench.put_group(group, all.into());
        }
        let id = bench.judge(&from_client(ACK, 1, 1, 10)).unwrap().connection.unwrap();
        if is_handed {
            assert!(bench.firewall.conntrack().hand_over_with_numbers(id).is_some());
        }
        let passed = bench.judge(&from_server(SYN, 5000, 0, 0)).unwrap();
        assert_eq!((passed.let_go, passed.connection), (is_handed, is_handed.then_some(id)));
        let again = bench.firewall.conntrack().hand_over_with_numbers(id);
        assert!(again.is_some_and(|(_, numbers)| numbers.is_none() == is_handed));
    }
}

/// Only of TCP does the fast path know numbers.
#[test]
fn datagrams_that_linger_in_the_fast_path_concern_nobody() {
    let mut bench = open();
    let datagram = udp(1000, 53);
    bench.pass(&datagram);
    let id = bench.judge(&datagram).unwrap().connection.unwrap();
    bench.firewall.conntrack().limit_brief(1);
    assert!(bench.firewall.conntrack().hand_over(id).is_some());
    bench.now += 1 << 60;
    bench.firewall.conntrack().sweep(bench.now);
    assert_eq!(bench.firewall.conntrack().lingering(), 0);
    bench.firewall.conntrack().expect_lingering();
    assert!(!bench.judge(&datagram).unwrap().let_go);
    assert!(bench.judge(&from_client(SYN, 0, 0, 0)).unwrap().let_go);
}
