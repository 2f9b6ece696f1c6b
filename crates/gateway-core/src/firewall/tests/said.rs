//! What both sides of a TCP connection have said, which the fast path goes on from.

use super::tcp::{ACK, C, S, from_client, from_server, open};
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
    assert_eq!(conntrack.said(id), Some([said(C, 301, 1201), said(S, 51, 1001)]));
    assert!(conntrack.hand_over(id).is_some());
    assert_eq!(conntrack.said(id), None, "nobody follows them here any more");
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
    assert_eq!(bench.firewall.conntrack().said(id), None);
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
