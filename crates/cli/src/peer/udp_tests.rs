use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Result;
use ringside_netlab::testing::retry;

use super::{Sending, Udp, Waiting};
use crate::peer::Peer as _;

/// Two ports of the loopback interface that nobody has.
fn addresses() -> [SocketAddr; 2] {
    let taken = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    taken.map(|socket| socket.local_addr().unwrap())
}

/// As [`Udp::open`]. Waits while the address is in use: a child that another thread has forked has a
/// copy of the socket that found it until it executes its program.
fn open(from: SocketAddr, to: SocketAddr, waiting: Waiting, sending: Sending) -> Udp {
    let is_over = |opened: &Result<Udp>| !opened.as_ref().is_err_and(is_in_use);
    let opened = retry(
        Duration::from_secs(10),
        || Udp::open(from, to, waiting, sending, 100),
        is_over,
    );
    opened.unwrap()
}

fn is_in_use(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse)
}

fn pair(waiting: Waiting, sending: Sending) -> (Udp, Udp) {
    let [a, b] = addresses();
    let open = |from, to| open(from, to, waiting, sending);
    (open(a, b), open(b, a))
}

#[test]
fn every_way_of_sending_arrives() {
    for (sending, at_a_time) in [(Sending::Single, 1), (Sending::Many, 64), (Sending::Segmented, 64)] {
        let (mut a, mut b) = pair(Waiting::Blocking, sending);
        assert_eq!(a.transmit().unwrap(), at_a_time);
        let mut received = 0;
        while received < at_a_time {
            let more = b.receive().unwrap();
            assert!(more != 0, "{sending:?}: {received} of {at_a_time}");
            received += more;
        }
        assert_eq!(received, at_a_time, "{sending:?}");
    }
}

#[test]
fn packets_come_back() {
    for waiting in [Waiting::Blocking, Waiting::Spinning] {
        let (mut a, mut b) = pair(waiting, Sending::Many);
        assert_eq!(a.transmit().unwrap(), 64);
        assert_eq!(b.send_back().unwrap(), 64, "loopback delivers before send returns");
        assert_eq!(a.receive().unwrap(), 64);
        assert_eq!(a.receive().unwrap(), 0);
    }
}

/// The host of an end that is not there yet answers the first packet with an error, which the next call to the socket gets.
#[test]
fn an_end_that_comes_later_is_no_failure() {
    let [a, b] = addresses();
    let open = |from, to| open(from, to, Waiting::Spinning, Sending::Single);
    let mut early = open(a, b);
    assert_eq!(early.transmit().unwrap(), 1);
    early.answer().unwrap();
    assert_eq!(early.receive().unwrap(), 0);
    let mut late = open(b, a);
    assert_eq!(early.transmit().unwrap(), 1);
    assert_eq!(late.receive().unwrap(), 1);
}
