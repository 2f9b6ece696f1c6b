//! Packets of addresses that rules are bound to.

use ringside_bpf::gateway::{
    CachedConnection, CachedNeighbor, ConnectionKey, Outcome, PolicySince, PolicySlot, SlowCause,
};
use ringside_gateway_core::testing::corpus::{VNI, mac, tenant};
use ringside_gateway_core::testing::{tenant_ip, tenant_udp};
use ringside_wire::Protocol;
use ringside_wire::tcp::Flags;
use rustix::time::{ClockId, clock_gettime};

use crate::common::privileged;
use crate::gateway::bed::{Bed, Wanted, in_namespace, key, neighbor};
use crate::gateway::fixtures::{sent, udp};

pub(crate) const POLICED: Outcome = Outcome::Slow(SlowCause::Policed);
const SECOND: u64 = 1_000_000_000;
pub(crate) const GENERATION: u64 = 0x0001_0000_0001;

/// Rules are bound to tenant 2, since [`GENERATION`].
pub(crate) fn with_rules(test: impl FnOnce(Bed) + Send) {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let bed = Bed::new(second, Wanted::default());
        since(&bed, VNI, GENERATION);
        police(&bed, 2);
        test(bed);
    });
}

/// The rules of a network are as they are since then.
fn since(bed: &Bed, vni: u32, generation: u64) {
    let entry = (PolicySlot::of(vni), PolicySince::first(generation));
    assert_eq!(bed.program.policies().put(&[entry]).unwrap(), 1);
}

pub(crate) fn police(bed: &Bed, last: u8) {
    for v6 in [false, true] {
        let policed = CachedNeighbor {
            policed: true,
            ..neighbor(last, false)
        };
        bed.program.neighbors().put(&[(key(last, v6), policed)]);
    }
}

pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

pub(crate) fn connection(v6: bool, protocol: Protocol, ports: [u16; 2]) -> ConnectionKey {
    connection_in(VNI, protocol, [(1, ports[0]), (2, ports[1])], v6)
}

/// Between two tenants of a network, each with its port. The first is the lower end.
fn connection_in(vni: u32, protocol: Protocol, ends: [(u8, u16); 2], v6: bool) -> ConnectionKey {
    let [source, destination] = ends.map(|(last, port)| (tenant(last, v6), port));
    let (key, _) = ConnectionKey::new(vni, protocol.0, source, destination);
    key
}

pub(crate) fn alive() -> CachedConnection {
    CachedConnection {
        generation: GENERATION,
        seen: now(),
        name: 0,
        idle_ms: 60_000,
        from_higher: false,
        one_way: false,
        numbers: None,
    }
}

/// A TCP segment from 1 to 2.
fn tcp(v6: bool, flags: Flags) -> Vec<u8> {
    let mut frame = tenant_udp(
        [mac(1), mac(2)],
        [tenant(1, v6), tenant(2, v6)],
        [1000, 53],
        64,
        &[0; 12],
    );
    let (protocol, at) = if v6 { (20, 54) } else { (23, 34) };
    frame[protocol] = 6;
    // Eight bytes of UDP and twelve of nothing: a TCP header with ports and flags.
    frame[at + 4..].fill(0);
    frame[at + 12] = 5 << 4;
    frame[at + 13] = flags.0;
    sent(frame).bytes()
}

#[test]
fn only_known_connections_are_sent_on() {
    with_rules(|bed| {
        let frame = udp(2, b"data").bytes();
        assert_eq!(bed.run(&frame).outcome, POLICED);
        let key = connection(false, Protocol::UDP, [1000, 53]);
        let others = [
            connection_in(VNI + 1, Protocol::UDP, [(1, 1000), (2, 53)], false),
            connection(false, Protocol::UDP, [53, 1000]),
            connection(false, Protocol::TCP, [1000, 53]),
            connection_in(VNI, Protocol::UDP, [(1, 1000), (4, 53)], false),
        ];
        for other in others {
            bed.program.connections().put(&[(other, alive())]).unwrap();
        }
        assert_eq!(bed.run(&frame).outcome, POLICED, "none of these is its");
        bed.program.connections().put(&[(key, alive())]).unwrap();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
        bed.program.connections().remove(&[key]).unwrap();
        assert_eq!(bed.run(&frame).outcome, POLICED);
    });
}

/// A datagram from one tenant to another.
fn datagram(v6: bool, from: u8, to: u8, ports: [u16; 2]) -> Vec<u8> {
    let ips = [from, to].map(|last| tenant(last, v6));
    sent(tenant_udp([mac(from), mac(to)], ips, ports, 64, b"x")).bytes()
}

/// An echo request, or the reply to it.
fn echo(v6: bool, from: u8, to: u8, (is_request, identifier): (bool, u16)) -> Vec<u8> {
    let (protocol, kind) = match (v6, is_request) {
        (false, true) => (Protocol::ICMP, 8),
        (false, false) => (Protocol::ICMP, 0),
        (true, true) => (Protocol::ICMPV6, 128),
        (true, false) => (Protocol::ICMPV6, 129),
    };
    let [high, low] = identifier.to_be_bytes();
    let ips = [from, to].map(|last| tenant(last, v6));
    let message = [kind, 0, 0, 0, high, low, 0, 1];
    sent(tenant_ip([mac(from), mac(to)], ips, protocol, &message)).bytes()
}

/// One entry is for both directions, unless nothing has come back yet; whichever end has begun it.
#[test]
fn an_entry_is_for_both_directions() {
    with_rules(|bed| {
        for v6 in [false, true] {
            let [there, back] = [datagram(v6, 1, 2, [1000, 53]), datagram(v6, 2, 1, [53, 1000])];
            let key = connection(v6, Protocol::UDP, [1000, 53]);
            for (from_higher, one_way, goes) in [
                (false, false, [true, true]),
                (true, false, [true, true]),
                (false, true, [true, false]),
                (true, true, [false, true]),
            ] {
                let value = CachedConnection {
                    from_higher,
                    one_way,
                    ..alive()
                };
                bed.program.connections().put(&[(key, value)]).unwrap();
                let went = [&there, &back].map(|frame| bed.run(frame).outcome != POLICED);
                assert_eq!(
                    went, goes,
                    "IPv6 {v6}, from the higher end {from_higher}, one way {one_way}"
                );
            }
            // Two ports of two others' own conversation.
            assert_eq!(bed.run(&datagram(v6, 2, 1, [1000, 53])).outcome, POLICED);
        }
    });
}

#[test]
fn echoes_belong_to_who_asked_first() {
    with_rules(|bed| {
        for (v6, protocol) in [(false, Protocol::ICMP), (true, Protocol::ICMPV6)] {
            for identifier in [7, ConnectionKey::ECHO_PORT] {
                let key = connection(v6, protocol, [identifier, ConnectionKey::ECHO_PORT]);
                let outcome =
                    |from, to, is_request, identifier| bed.run(&echo(v6, from, to, (is_request, identifier))).outcome;
                assert_eq!(outcome(1, 2, true, identifier), POLICED);
                bed.program.connections().put(&[(key, alive())]).unwrap();
                assert_eq!(outcome(1, 2, true, identifier), Outcome::Forwarded, "the request");
                assert_ne!(outcome(2, 1, false, identifier), POLICED, "the reply");
                assert_eq!(
                    outcome(2, 1, true, identifier),
                    POLICED,
                    "a request against the direction"
                );
                assert_eq!(outcome(1, 2, false, identifier), POLICED, "a reply to no request");
                assert_eq!(outcome(1, 2, true, identifier + 1), POLICED, "another's");
                let one_way = CachedConnection {
                    one_way: true,
                    ..alive()
                };
                bed.program.connections().put(&[(key, one_way)]).unwrap();
                assert_eq!(outcome(1, 2, true, identifier), Outcome::Forwarded);
                assert_eq!(outcome(2, 1, false, identifier), POLICED, "the first reply");
                // Other ICMP, with the same bytes in the identifier's place.
                let mut other = echo(v6, 1, 2, (true, identifier));
                let at = if v6 { 50 + 54 } else { 50 + 34 };
                other[at + 1] = 1;
                assert_eq!(bed.run(&other).outcome, POLICED, "another code");
                other[at..at + 2].copy_from_slice(&[13, 0]);
                assert_eq!(bed.run(&other).outcome, POLICED, "a question for the time");
                bed.program.connections().remove(&[key]).unwrap();
            }
        }
    });
}

#[test]
fn both_families_and_protocols() {
    with_rules(|bed| {
        for v6 in [false, true] {
            for protocol in [Protocol::TCP, Protocol::UDP] {
                let key = connection(v6, protocol, [1000, 53]);
                let frame = match protocol {
                    Protocol::TCP => tcp(v6, Flags::ACK | Flags::PSH),
                    _ => {
                        let ips = [tenant(1, v6), tenant(2, v6)];
                        sent(tenant_udp([mac(1), mac(2)], ips, [1000, 53], 64, b"x")).bytes()
                    }
                };
                assert_eq!(bed.run(&frame).outcome, POLICED, "{key:?}");
                bed.program.connections().put(&[(key, alive())]).unwrap();
                assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded, "{key:?}");
            }
        }
    });
}

/// What opens and closes connections is a worker's, and so is what is none of plain data.
#[test]
fn only_plain_data() {
    with_rules(|bed| {
        let key = connection(false, Protocol::TCP, [1000, 53]);
        bed.program.connections().put(&[(key, alive())]).unwrap();
        let ack = Flags::ACK;
        for flags in [
            Flags::SYN,
            ack | Flags::SYN,
            ack | Flags::FIN,
            ack | Flags::RST,
            Flags::PSH,
            ack | Flags::URG,
        ] {
            assert_eq!(bed.run(&tcp(false, flags)).outcome, POLICED, "{flags:?}");
        }
        for flags in [ack, ack | Flags::PSH, ack | Flags::ECE, ack | Flags::CWR] {
            assert_eq!(bed.run(&tcp(false, flags)).outcome, Outcome::Forwarded, "{flags:?}");
        }
        for fragment in [0x20, 0x01] {
            let mut frame = tcp(false, ack);
            frame[50 + 14 + 6] |= fragment;
            assert_eq!(bed.run(&frame).outcome, POLICED, "a fragment");
        }
        for words in [4, 6, 15] {
            let mut frame = tcp(false, ack);
            frame[50 + 34 + 12] = words << 4;
            assert_eq!(bed.run(&frame).outcome, POLICED, "a header of {words} words");
        }
    });
}

/// A fragment of a tenant's datagram, of either family: at this offset in words of eight bytes, and with more to come or not.
fn fragment(to: u8, v6: bool, offset: u16, more: bool) -> Vec<u8> {
    let ips = [tenant(1, v6), tenant(to, v6)];
    let mut frame = tenant_udp([mac(1), mac(to)], ips, [1000, 53], 64, &[0; 8]);
    if v6 {
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        frame.splice(54..54, [17, 0, high, low, 0, 0, 0, 7]);
        frame[19] += 8;
        frame[20] = 44;
    } else {
        let word = offset | u16::from(more) << 13;
        frame[20..22].copy_from_slice(&word.to_be_bytes());
    }
    sent(frame).bytes()
}

/// Nothing says of a later fragment whose it is, and of the first one a worker has to know that it passed. That holds for who is sent
/// to and for who sends; without rules at either end they go as all packets do.
#[test]
fn no_fragment_goes_where_rules_are_bound() {
    with_rules(|bed| {
        for v6 in [false, true] {
            let key = connection(v6, Protocol::UDP, [1000, 53]);
            bed.program.connections().put(&[(key, alive())]).unwrap();
            let ips = [tenant(1, v6), tenant(2, v6)];
            let whole = sent(tenant_udp([mac(1), mac(2)], ips, [1000, 53], 64, &[0; 40])).bytes();
            assert_eq!(bed.run(&whole).outcome, Outcome::Forwarded, "whole");
            for (offset, more) in [(0, true), (1, true), (6, false), (1000, false)] {
                let outcome = |to| bed.run(&fragment(to, v6, offset, more)).outcome;
                assert_eq!(outcome(2), POLICED, "{v6} {offset}");
                assert_eq!(outcome(4), Outcome::Redirected, "{v6} {offset}: no rules at either end");
            }
        }
        police(&bed, 1);
        for v6 in [false, true] {
            assert_eq!(bed.run(&fragment(4, v6, 1, false)).outcome, POLICED, "the sender's");
        }
    });
}

/// A packet of a live connection keeps it alive; others do not.
#[test]
fn packets_say_that_a_connection_lives() {
    with_rules(|bed| {
        let key = connection(false, Protocol::UDP, [1000, 53]);
        let seen = |bed: &Bed| {
            let mut found = Vec::new();
            bed.program
                .connections()
                .for_each(|key, connection| found.push((key, connection)))
                .unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].0, key);
            found[0].1.seen
        };
        let frame = udp(2, b"data").bytes();
        let old = CachedConnection {
            seen: now() - SECOND,
            ..alive()
        };
        bed.program.connections().put(&[(key, old)]).unwrap();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
        let after = seen(&bed);
        assert!(after > old.seen && after <= now(), "{after}");

        let over = CachedConnection {
            seen: now() - 2 * SECOND,
            idle_ms: 1000,
            ..alive()
        };
        bed.program.connections().put(&[(key, over)]).unwrap();
        assert_eq!(bed.run(&frame).outcome, POLICED, "too long ago");
        assert_eq!(seen(&bed), over.seen);

        let outdated = CachedConnection {
            generation: GENERATION - (1 << 32),
            ..old
        };
        bed.program.connections().put(&[(key, outdated)]).unwrap();
        assert_eq!(bed.run(&frame).outcome, POLICED, "allowed by another policy");
        assert_eq!(seen(&bed), outdated.seen);

        // A clock of user space that is some ticks ahead of the kernel's coarse one ends nothing.
        let ahead = CachedConnection {
            seen: now() + 100_000_000,
            ..alive()
        };
        bed.program.connections().put(&[(key, ahead)]).unwrap();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
        assert_eq!(seen(&bed), ahead.seen);
    });
}

#[test]
fn a_new_policy_ends_what_the_old_one_allowed() {
    with_rules(|mut bed| {
        let key = connection(false, Protocol::UDP, [1000, 53]);
        bed.program.connections().put(&[(key, alive())]).unwrap();
        let frame = udp(2, b"data").bytes();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
        // Of this network, not of another one.
        for other in [VNI + 1, VNI - 1, VNI ^ 0x8000] {
            since(&bed, other, GENERATION + 1);
            assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded, "{other}");
        }
        since(&bed, VNI, GENERATION + 1);
        assert_eq!(bed.run(&frame).outcome, POLICED);
        let anew = CachedConnection {
            generation: GENERATION + 1,
            ..alive()
        };
        bed.program.connections().put(&[(key, anew)]).unwrap();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded, "allowed by the new one");
        // All at once, as after a restart.
        bed.configure(|config| config.generation = GENERATION + 2);
        assert_eq!(bed.run(&frame).outcome, POLICED);
    });
}

/// With rules in its network the sender's count as well, and one that is not in the cache may have some.
#[test]
fn senders_have_rules_too() {
    with_rules(|bed| {
        let frame = udp(4, b"").bytes();
        assert_eq!(bed.run(&frame).outcome, Outcome::Redirected, "no rules at either end");
        police(&bed, 1);
        assert_eq!(bed.run(&frame).outcome, POLICED, "the sender's");
        let ips = [tenant(9, false), tenant(4, false)];
        let unknown = sent(tenant_udp([mac(9), mac(4)], ips, [1, 2], 64, b"")).bytes();
        let whose = Outcome::Slow(SlowCause::Sender);
        assert_eq!(bed.run(&unknown).outcome, whose, "an unknown sender's");
        // Its connection was allowed when somebody was known there: what holds now a worker knows.
        let key = connection_in(VNI, Protocol::UDP, [(9, 1), (4, 2)], false);
        bed.program.connections().put(&[(key, alive())]).unwrap();
        assert_eq!(bed.run(&unknown).outcome, whose);
        since(&bed, VNI, 0);
        since(&bed, VNI + 1, GENERATION);
        assert_eq!(bed.run(&frame).outcome, Outcome::Redirected);
        assert_eq!(bed.run(&unknown).outcome, Outcome::Redirected);
        assert_eq!(
            bed.run(&udp(2, b"").bytes()).outcome,
            POLICED,
            "the receiver's own say so"
        );
    });
}
