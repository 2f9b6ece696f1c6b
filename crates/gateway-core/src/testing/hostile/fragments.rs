//! Fragments: the first tells whether the others pass.

use std::net::IpAddr;
use std::sync::Arc;

use ringside_wire::Protocol;
use ringside_wire::udp;

use super::Choices;
use super::world::{OPEN_PORT, vni};
use crate::conntrack::{Conntrack, Limits, Refused};
use crate::flow::Upper;
use crate::policy::{Direction, GroupId, Policy, ProfileId, Remote, Rule, RuleId, Service};
use crate::testing::corpus::{self, VNI, mac, tenant};
use crate::{Firewall, Flow};

const SECOND: u64 = 1_000_000_000;

/// A packet in pieces: network, ends (turned or not), protocol and what ties its pieces together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Whole {
    network: u32,
    ips: [IpAddr; 2],
    protocol: Protocol,
    identification: u8,
}

/// When its first piece passed, how often rules had changed then, and to which port it was.
struct Passed {
    whole: Whole,
    at: u64,
    changes: u32,
    is_open: bool,
}

/// Judges pieces of four packets, which the input orders, over IPv4 and IPv6, while rules change. A later piece passes only if a
/// first one of the same packet did in the last 30 seconds and still would, and always if nothing has changed since; one that
/// would put other flags into a TCP header never does.
///
/// # Panics
/// When that does not hold.
pub fn fragments(input: &[u8]) {
    let mut choices = Choices(input);
    let policy = Policy::new();
    let mut is_closed = false;
    let bound = [rules(&policy, 1, is_closed), rules(&policy, 2, is_closed)];
    let limits = Limits {
        connections: 50,
        ..Limits::default()
    };
    let mut firewall = Firewall::new(&policy, Arc::new(Conntrack::new(limits)));
    // As many as are never in each other's way.
    let wholes: Vec<Whole> = (0..4).map(|_| a_whole(&mut choices)).collect();
    let mut passed: Vec<Passed> = Vec::new();
    let (mut now, mut changes) = (SECOND, 0);
    while !choices.is_over() {
        match choices.below(8) {
            0 => now += choices.of(&[SECOND, 29 * SECOND, 31 * SECOND]),
            1 => {
                is_closed = choices.one_in(2);
                changes += 1;
                rules(&policy, 2, is_closed);
            }
            _ => {
                let whole = wholes[choices.below(4)];
                let (offset, port) = (choices.of(&[0, 0, 1, 2, 3, 100]), choices.of(&[OPEN_PORT, 80]));
                let bytes = piece(&whole, offset, port, &mut choices);
                let Ok(flow) = Flow::parse(&bytes) else {
                    continue;
                };
                let is_later = flow.upper == Upper::Later;
                assert_eq!(is_later, offset > 0, "{flow:?}");
                assert!(
                    !is_later || whole.protocol != Protocol::TCP || offset * 8 >= 20,
                    "{flow:?}"
                );
                // Only who gets it has rules.
                let judged = firewall.judge(now, vni(whole.network), &flow, None, bound[1]);
                if is_later {
                    let first = passed.iter().rev().find(|first| first.whole == whole);
                    let may = first.is_some_and(|first| now - first.at <= 30 * SECOND);
                    let same = first.is_some_and(|first| first.changes == changes);
                    let still = first.is_some_and(|first| first.is_open && !is_closed || same);
                    assert!(judged.is_ok() || !(may && same), "{judged:?} of {flow:?}");
                    assert!(judged.is_err() || (may && still), "{flow:?} passes");
                    assert!(matches!(judged, Ok(_) | Err(Refused::UnknownFragment)), "{judged:?}");
                    // No fast path without a look at each.
                    assert!(
                        judged.is_err()
                            || judged.is_ok_and(|passed| !passed.established && passed.connection.is_none())
                    );
                } else if let Ok(judged) = judged {
                    assert!(!judged.established, "{flow:?}");
                    passed.push(Passed {
                        whole,
                        at: now,
                        changes,
                        is_open: !is_closed,
                    });
                }
            }
        }
    }
}

/// What lets UDP to [`OPEN_PORT`] and all of another protocols in; or nothing.
fn rules(policy: &Policy, group: u32, is_closed: bool) -> Option<ProfileId> {
    let services = [
        Service::Ports(Protocol::UDP, OPEN_PORT..=OPEN_PORT),
        Service::Ports(Protocol::TCP, OPEN_PORT..=OPEN_PORT),
        Service::Protocol(Protocol(47)),
    ];
    let rule = |service| Rule {
        id: RuleId(1),
        direction: Direction::Ingress,
        family: None,
        service,
        remote: Remote::Any,
    };
    let rules = if is_closed { vec![] } else { services.map(rule).into() };
    let mut writer = policy.write();
    writer.put_group(GroupId(group), rules).expect("sensible rules");
    let profile = writer.profile(&[GroupId(group)]);
    writer.publish();
    Some(profile)
}

fn a_whole(choices: &mut Choices<'_>) -> Whole {
    let v6 = choices.one_in(2);
    let (from, to) = choices.of(&[(1, 2), (3, 2), (2, 1)]);
    Whole {
        network: VNI + u32::from(choices.one_in(4)),
        ips: [tenant(from, v6), tenant(to, v6)],
        protocol: choices.of(&[Protocol::UDP, Protocol::TCP, Protocol(47)]),
        identification: choices.of(&[7, 8]),
    }
}

/// A fragment of a packet, at an offset in words of eight bytes: the first has the header, the others anything.
fn piece(whole: &Whole, offset: u16, port: u16, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut upper = vec![0; 24];
    if offset > 0 {
        upper = choices.bytes(24).to_vec();
    } else if whole.protocol == Protocol::UDP {
        let header = udp::Header {
            src_port: 4000,
            dst_port: port,
            payload_len: 16,
        };
        header.emit(&mut upper).expect("room");
    } else if whole.protocol == Protocol::TCP {
        upper[2..4].copy_from_slice(&port.to_be_bytes());
        // A SYN, or a segment of the middle.
        (upper[12], upper[13]) = (0x50, choices.of(&[0x02, 0x10]));
    }
    let id = [0, whole.identification];
    let is_v4 = whole.ips[0].is_ipv4();
    let (protocol, fragment) = if is_v4 {
        (whole.protocol, offset)
    } else {
        (Protocol(44), offset << 3)
    };
    let [high, low] = (fragment | if is_v4 { 0x2000 } else { 1 }).to_be_bytes();
    if !is_v4 {
        upper.splice(..0, [whole.protocol.0, 0, high, low, 0, 0, id[0], id[1]]);
    }
    let frame = corpus::packet_of([mac(1), mac(2)], whole.ips, protocol, &upper, |ip| {
        if is_v4 {
            ip[4..6].copy_from_slice(&id);
            ip[6..8].copy_from_slice(&[high, low]);
        }
    });
    frame[14..].to_vec()
}
