//! Datagrams without an answer, and echoes: the fast path may have some of them.

use super::bench::*;
use crate::conntrack::{ConnectionId, Limits, Passed, State};

fn bench(most: u32) -> Bench {
    let bench = Bench::open(Limits {
        connections: 100,
        ..Limits::default()
    });
    bench.firewall.conntrack().limit_brief(most);
    bench
}

impl Bench {
    /// As whoever keeps the fast path's caches does it. True if it was handed over.
    fn hand_over(&mut self, passed: Passed) -> bool {
        let id = passed.connection.expect("a connection");
        passed.established && self.firewall.conntrack().hand_over(id).is_some()
    }

    fn brief(&self) -> u32 {
        let (brief, _) = self.firewall.conntrack().brief();
        brief
    }
}

fn id(passed: Passed) -> ConnectionId {
    passed.connection.expect("a connection")
}

/// With its second packet: most that send one send no other.
#[test]
fn datagrams_without_an_answer_are_handed_over() {
    let mut bench = bench(1);
    let flow = udp(1000, 53);
    assert!(!bench.pass(&flow), "the first");
    let passed = bench.judge(&flow).unwrap();
    assert!(bench.hand_over(passed) && bench.brief() == 1);
    // It is kept, and what the fast path sends on keeps it alive.
    bench.wait(29);
    assert!(bench.firewall.conntrack().touch(id(passed), bench.now));
    bench.wait(29);
    let passed = bench.judge(&flow).unwrap();
    assert!(passed.established && !passed.let_go);
    // Another has to wait for the room.
    let other = udp(1001, 53);
    assert!(!bench.pass(&other) && !bench.pass(&other));
    let again = bench.judge(&other).unwrap();
    assert!(bench.firewall.conntrack().hand_over(id(again)).is_none());
    bench.firewall.conntrack().take_back(id(passed));
    assert_eq!(bench.brief(), 0);
    assert!(bench.pass(&other) && bench.pass(&flow));
    // An answer makes it one of those that need none of that room.
    let passed = bench.judge(&flow).unwrap();
    assert!(bench.hand_over(passed));
    let answer = bench.judge(&turned(flow)).unwrap();
    assert!(answer.established && !answer.let_go);
    assert_eq!(
        (
            bench.brief(),
            bench.firewall.conntrack().find(id(answer)).unwrap().state
        ),
        (0, State::UdpReplied)
    );
}

#[test]
fn a_connection_that_ends_leaves_its_room() {
    let mut bench = bench(1);
    for port in 1..4 {
        let flow = udp(port, 53);
        bench.pass(&flow);
        let passed = bench.judge(&flow).unwrap();
        assert!(bench.hand_over(passed), "{port}");
        bench.wait(31);
        assert_eq!(bench.firewall.conntrack().sweep(bench.now), 1);
        assert_eq!(bench.brief(), 0);
    }
}

/// Its requests and replies, from the second request on.
#[test]
fn echoes_are_handed_over() {
    let mut bench = bench(2);
    let [request, reply] = [echo(7, true), turned(echo(7, false))];
    assert!(!bench.pass(&request) && !bench.pass(&reply));
    let passed = bench.judge(&request).unwrap();
    assert!(bench.hand_over(passed));
    assert!(bench.pass(&reply), "it is kept");
    assert_eq!((bench.brief(), bench.state()), (1, State::IcmpReplied));
    // One that nobody answers, and then somebody does.
    let [request, reply] = [echo(9, true), turned(echo(9, false))];
    bench.pass(&request);
    let passed = bench.judge(&request).unwrap();
    assert!(bench.hand_over(passed));
    let answer = bench.judge(&reply).unwrap();
    assert!(answer.established && !answer.let_go && bench.brief() == 2);
}

#[test]
fn they_are_known_after_a_restart() {
    let (mut before, mut after) = (bench(8), bench(8));
    before.pass(&udp(1000, 53));
    before.pass(&echo(7, true));
    before.pass(&turned(echo(7, false)));
    let mut all = Vec::new();
    before.firewall.conntrack().for_each(|connection| all.push(*connection));
    assert!(
        all.iter()
            .all(|connection| after.firewall.conntrack().restore(after.now, connection))
    );
    assert!(after.pass(&udp(1000, 53)) && after.pass(&echo(7, true)));
    let counts = after.firewall.conntrack().counts();
    assert_eq!((counts.of(State::UdpUnreplied), counts.of(State::IcmpReplied)), (1, 1));
}
