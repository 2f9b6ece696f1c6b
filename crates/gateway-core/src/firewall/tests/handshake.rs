//! How TCP connections begin: both at once, lost segments, other numbers, data in the SYN.

use super::tcp::{ACK, RST_ACK, SYN, SYN_ACK, from_client, from_server, open};
use super::*;

#[test]
fn both_open_at_once() {
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN, 0, 0, 0));
    assert_eq!(bench.state(), State::SynReceived);
    bench.pass(&from_client(SYN_ACK, 0, 1, 0));
    assert_eq!(bench.state(), State::SynReceived);
    assert!(bench.pass(&from_server(SYN_ACK, 0, 1, 0)));
    assert_eq!(bench.state(), State::Established);
    assert!(bench.pass(&from_server(ACK, 1, 1, 10)));
}

#[test]
fn whatever_is_lost_is_sent_again() {
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    assert_eq!(bench.state(), State::SynReceived);
    // Data may come with the acknowledgment, and before it is seen.
    bench.pass(&from_server(ACK, 1, 1, 100));
    bench.pass(&from_server(ACK, 101, 1, 900));
    bench.refuse(&from_server(ACK, 2004, 1, 1), Refused::OutOfWindow);
    assert_eq!(bench.state(), State::SynReceived);
    bench.pass(&from_client(ACK, 1, 1, 100));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    bench.pass(&from_client(ACK, 1, 1, 100));
    bench.pass(&from_server(ACK, 101, 101, 100));
    bench.pass(&from_server(ACK, 1, 1, 100));
    bench.pass(&from_client(ACK, 101, 1001, 0));
    // To see whether the other side is still there.
    assert!(bench.pass(&from_client(ACK, 100, 1001, 0)));
    assert!(bench.pass(&from_client(ACK, 100, 1001, 1)));
}

#[test]
fn another_try_with_other_numbers() {
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_client(SYN, 7000, 0, 0));
    assert_eq!((bench.state(), bench.len()), (State::SynSent, 1));
    bench.refuse(&from_server(RST_ACK, 0, 1, 0), Refused::OutOfWindow);
    bench.pass(&from_server(SYN_ACK, 0, 7001, 0));
    assert!(bench.pass(&from_client(ACK, 7001, 1, 0)));
}

/// Its first answer is lost behind the gateway, and a server that keeps nothing of a SYN (SYN
/// cookies), or has been restarted, answers the next one with another number.
#[test]
fn another_answer_to_the_same_syn_counts() {
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 1 << 31, 1, 0));
    bench.refuse(&from_server(SYN_ACK, 7000, 1, 0), Refused::OutOfWindow);
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 7000, 1, 0));
    assert!(bench.pass(&from_client(ACK, 1, 7001, 0)));
    assert!(bench.pass(&from_server(ACK, 7001, 1, 10)));
    bench.refuse(&from_server(ACK, (1 << 31) + 1, 1, 10), Refused::OutOfWindow);
}

#[test]
fn a_handshake_that_comes_once_more_changes_nothing() {
    let mut bench = open();
    bench.pass(&from_client(ACK, 1, 1, 1000));
    bench.pass(&from_server(ACK, 1, 1001, 1000));
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 0, 1, 0));
    assert_eq!(bench.state(), State::Established);
    // What has come since is not forgotten.
    assert!(bench.pass(&from_client(ACK, 1001, 1001, 500)));
    bench.refuse(&from_client(ACK, 3004, 1001, 1), Refused::OutOfWindow);
}

#[test]
fn data_in_the_syn() {
    for taken in [1, 101] {
        let mut bench = Bench::open(few());
        bench.pass(&from_client(SYN, 0, 0, 100));
        bench.pass(&from_server(SYN_ACK, 0, taken, 0));
        assert!(bench.pass(&from_client(ACK, taken, 1, 101 - taken)));
        assert!(bench.pass(&from_server(ACK, 1, 101, 10)));
    }
    let mut bench = Bench::open(few());
    bench.pass(&from_client(SYN, 0, 0, 100));
    bench.pass(&from_client(SYN, 0, 0, 0));
    bench.pass(&from_server(SYN_ACK, 0, 101, 0));
    assert!(bench.pass(&from_client(ACK, 101, 1, 0)));
}
