//! Packets whose own checksums are wrong: they begin no connection, and change none.

use ringside_gateway_core::conntrack::State;
use ringside_gateway_core::policy::Direction;
use ringside_gateway_core::testing::pseudo;
use ringside_wire::checksum::Sum;
use ringside_wire::tcp::{self, Flags};

use super::*;

const DAMAGED: Decision = Decision::Drop(DropReason::InnerDamaged);
/// Where a tenant's IP header begins, and its IPv4 checksum.
const IP: usize = 14;
const IPV4_CHECKSUM: usize = IP + 10;

/// A tenant's frame, and where the checksum of what it carries is.
struct Carried {
    frame: Vec<u8>,
    ips: [IpAddr; 2],
    protocol: Protocol,
    upper: usize,
    checksum: usize,
}

impl Carried {
    fn new(ips: [IpAddr; 2], protocol: Protocol, upper: &[u8]) -> Self {
        let frame = tenant_ip([A, B], ips, protocol, upper);
        let checksum = match protocol {
            Protocol::TCP => 16,
            Protocol::UDP => 6,
            _ => 2,
        };
        let upper = frame.len() - upper.len();
        Self {
            frame,
            ips,
            protocol,
            upper,
            checksum: upper + checksum,
        }
    }

    fn pseudo(&self) -> Sum {
        pseudo(self.ips, self.protocol, self.frame.len() - self.upper)
    }

    fn put(&mut self, at: usize, word: u16) {
        self.frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }

    fn bytes(&self) -> Vec<u8> {
        sent(self.frame.clone()).bytes()
    }

    /// With one bit of one byte turned.
    fn damaged(&self, at: usize) -> Vec<u8> {
        let mut frame = self.frame.clone();
        frame[at] ^= 4;
        sent(frame).bytes()
    }
}

fn ips(v6: bool) -> [IpAddr; 2] {
    [tenant(1, v6), tenant(2, v6)]
}

fn segment(ips: [IpAddr; 2], ports: [u16; 2], flags: Flags, numbers: [u32; 2]) -> Carried {
    let header = tcp::Header {
        sequence: numbers[0],
        acknowledgment: numbers[1],
        window: 1000,
        ..tcp::Header::new(ports[0], ports[1], flags)
    };
    let mut bytes = [0; tcp::Header::MOST];
    let len = header.emit(&mut bytes).unwrap();
    Carried::new(ips, Protocol::TCP, &bytes[..len])
}

fn datagram(ips: [IpAddr; 2], ports: [u16; 2]) -> Carried {
    let [a, b, c, d] = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat()[..] else {
        unreachable!("four bytes")
    };
    Carried::new(ips, Protocol::UDP, &[a, b, c, d, 0, 12, 0, 0, 1, 2, 3, 4])
}

fn echo(v6: bool) -> Carried {
    let (protocol, kind) = match v6 {
        false => (Protocol::ICMP, icmp::v4::ECHO_REQUEST),
        true => (Protocol::ICMPV6, icmp::v6::ECHO_REQUEST),
    };
    Carried::new(ips(v6), protocol, &[kind, 0, 0, 0, 1, 2, 0, 1, b'e', b'c', b'h', b'o'])
}

/// Both tenants may do anything.
fn ruled() -> Bed {
    let bed = bed(BY_IPV4, settings());
    bed.bind(1, bed.allowing(Direction::Egress));
    bed.bind(2, bed.allowing(Direction::Ingress));
    bed
}

impl Bed {
    fn states(&self) -> Vec<State> {
        let mut states = Vec::new();
        let conntrack = self.decider.firewall().conntrack();
        conntrack.for_each(|connection| states.push(connection.state));
        states
    }
}

#[test]
fn damaged_packets_begin_no_connection() {
    for v6 in [false, true] {
        let syn = segment(ips(v6), [1000, 80], Flags::SYN, [1, 0]);
        for carried in [syn, datagram(ips(v6), [1000, 53]), echo(v6)] {
            let mut bed = ruled();
            let last = carried.frame.len() - 1;
            for at in [last, carried.checksum, carried.checksum + 1] {
                assert_eq!(
                    bed.judge(&carried.damaged(at)),
                    DAMAGED,
                    "{:?} byte {at}",
                    carried.protocol
                );
            }
            if !v6 {
                assert_eq!(bed.judge(&carried.damaged(IPV4_CHECKSUM)), DAMAGED);
            }
            assert_eq!(bed.states(), [], "{:?}", carried.protocol);
            assert_eq!(bed.judge(&carried.bytes()), Decision::Send { port: 0 });
            assert_eq!(bed.states().len(), 1);
            // What belongs to it is its receiver's to verify.
            let of_udp = carried.protocol == Protocol::UDP;
            assert!(!of_udp || bed.judge(&carried.damaged(last)) == Decision::Send { port: 0 });
        }
    }
}

/// Without rules nothing is remembered, and the receiver verifies.
#[test]
fn damaged_packets_pass_where_no_rules_are_bound() {
    for v6 in [false, true] {
        let carried = echo(v6);
        let mut bed = bed(BY_IPV4, settings());
        assert_eq!(
            bed.judge(&carried.damaged(carried.checksum)),
            Decision::Send { port: 0 }
        );
    }
}

/// None at all, or the sum of the pseudo header that a sender's kernel leaves for a NIC.
#[test]
fn checksums_that_are_missing_or_left_to_a_nic_are_right() {
    for v6 in [false, true] {
        let mut without = datagram(ips(v6), [1000, 53]);
        without.put(without.checksum, 0);
        let mut bed = ruled();
        assert_eq!(bed.judge(&without.bytes()), Decision::Send { port: 0 });
        for mut left in [
            segment(ips(v6), [1000, 80], Flags::SYN, [1, 0]),
            datagram(ips(v6), [1001, 53]),
        ] {
            left.put(left.checksum, left.pseudo().fold());
            assert_eq!(
                bed.judge(&left.bytes()),
                Decision::Send { port: 0 },
                "{:?}",
                left.protocol
            );
        }
        assert_eq!(bed.states().len(), 3);
    }
}

/// An answer, a handshake's end, and a reset that nobody will take.
#[test]
fn damaged_packets_change_no_state() {
    const GOES: Decision = Decision::Send { port: 0 };
    for v6 in [false, true] {
        let [there, back] = [ips(v6), [tenant(2, v6), tenant(1, v6)]];
        let mut bed = ruled();
        assert_eq!(bed.judge(&datagram(there, [1000, 53]).bytes()), GOES);
        let answer = datagram(back, [53, 1000]);
        assert_eq!(bed.judge(&answer.damaged(answer.checksum)), DAMAGED);
        assert_eq!(bed.states(), [State::UdpUnreplied]);
        assert_eq!(bed.judge(&answer.bytes()), GOES);
        assert_eq!(bed.states(), [State::UdpReplied]);

        let mut bed = ruled();
        let ack = Flags::ACK;
        for (carried, before, after) in [
            (
                segment(back, [80, 1000], Flags::SYN | ack, [100, 2]),
                State::SynSent,
                State::SynReceived,
            ),
            (
                segment(there, [1000, 80], ack, [2, 101]),
                State::SynReceived,
                State::Established,
            ),
            (
                segment(there, [1000, 80], Flags::RST | ack, [2, 101]),
                State::Established,
                State::Closed,
            ),
        ] {
            if before == State::SynSent {
                assert_eq!(bed.judge(&segment(there, [1000, 80], Flags::SYN, [1, 0]).bytes()), GOES);
            }
            assert_eq!(bed.states(), [before]);
            assert_eq!(bed.judge(&carried.damaged(carried.checksum)), DAMAGED, "{before:?}");
            assert_eq!(bed.states(), [before]);
            assert_eq!(bed.judge(&carried.bytes()), GOES);
            assert_eq!(bed.states(), [after]);
        }
    }
}
