//! What rules and connection tracking cost: nanoseconds a packet by how many rules and connections there are, beside rules
//! that are read one after the other and a hash map in a lock.
//!
//! `cargo run --release -p ringside-gateway-core --example firewall [CONNECTIONS …]`

mod common;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::{ROUNDS, rounds, timed};
use foldhash::fast::RandomState;
use ringside_gateway_core::conntrack::{Conntrack, Limits, State};
use ringside_gateway_core::flow::{Flow, Segment, Upper};
use ringside_gateway_core::policy::{Direction, GroupId, Policy, ProfileId, Remote, Rule, RuleId, Service, Subject};
use ringside_gateway_core::{Firewall, Vni};
use ringside_wire::Protocol;
use ringside_wire::tcp::Flags;

const BURST: usize = 32;
const ASKED: usize = 1_000_000;

fn number(bits: u64) -> u32 {
    u32::try_from(bits & 0xffff_ffff).expect("32 bits of it")
}

/// `n` rules: a third for any address, a third for prefixes, a third for groups, each to a range of ports of its own.
fn rules(n: u32) -> Vec<Rule> {
    let rule = |n: u32| {
        let first = u16::try_from(n % 6000 * 10).expect("below 60,000");
        let remote = match n % 3 {
            0 => Remote::Any,
            1 => {
                let ip = Ipv4Addr::from(0x0a00_0000 | n << 12);
                Remote::Prefix(format!("{ip}/20").parse().expect("a prefix"))
            }
            _ => Remote::Group(GroupId(1000 + n)),
        };
        Rule {
            id: RuleId(n.into()),
            direction: Direction::Ingress,
            family: None,
            service: Service::Ports(Protocol::TCP, first..=first + 14),
            remote,
        }
    };
    (0..n).map(rule).collect()
}

fn policies() {
    println!(
        "nanoseconds to judge one side of a connection's first packet, least and median of {ROUNDS} rounds of {ASKED}"
    );
    println!("rules  bit rows           one after the other   bytes in all    publish, µs");
    let random = RandomState::default();
    for n in [10, 100, 300, 1000, 3000] {
        let policy = Policy::new();
        let rules = rules(n);
        let mut writer = policy.write();
        let own = writer.profile(&[GroupId(1)]);
        let remotes: Vec<ProfileId> = (0..64)
            .map(|r| writer.profile(&[GroupId(2), GroupId(1000 + r * 3 + 2)]))
            .collect();
        writer.put_group(GroupId(1), rules.clone()).expect("rules with sense");
        let begin = Instant::now();
        writer.publish();
        let publish = begin.elapsed().as_secs_f64() * 1e6;
        let asked: Vec<(Subject, ProfileId)> = (0..ASKED)
            .map(|at| {
                let bits = random.hash_one(at);
                let subject = Subject {
                    source: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | number(bits) & 0x00ff_ffff)),
                    destination: Ipv4Addr::new(10, 255, 0, 1).into(),
                    protocol: Protocol::TCP,
                    service: u16::try_from(bits >> 48).expect("16 bits") % u16::try_from(n * 10).unwrap_or(u16::MAX),
                };
                (subject, remotes[at % remotes.len()])
            })
            .collect();
        let mut reader = policy.reader();
        let rows = timed(ASKED, || {
            let snapshot = reader.load();
            for (subject, remote) in &asked {
                _ = black_box(snapshot.allows(own, Direction::Ingress, subject, Some(*remote)));
            }
        });
        let some = &asked[..ASKED / 100];
        let linear = timed(some.len(), || {
            for (subject, _) in some {
                black_box(rules.iter().any(|rule| {
                    matches!(&rule.service, Service::Ports(protocol, ports)
                        if *protocol == subject.protocol && ports.contains(&subject.service))
                        && match rule.remote {
                            Remote::Any => true,
                            Remote::Prefix(prefix) => prefix.contains(&subject.source),
                            Remote::Group(_) => false,
                        }
                }));
            }
        });
        println!(
            "{n:>5}  {:>6.1} {:>6.1}      {:>8.1} {:>8.1}     {:>10}        {publish:>8.0}",
            rows.0,
            rows.1,
            linear.0,
            linear.1,
            policy.memory(),
        );
    }
}

/// One group of twenty rules for each of many profiles.
fn profiles() {
    println!("\nmilliseconds to publish, and megabytes");
    println!("profiles  all at once   one group changed   memory");
    for n in [100, 1000, 10_000] {
        let policy = Policy::new();
        let mut writer = policy.write();
        for group in 0..n {
            writer.put_group(GroupId(group), rules(20)).expect("rules with sense");
            writer.profile(&[GroupId(group)]);
        }
        let begin = Instant::now();
        writer.publish();
        let all = begin.elapsed().as_secs_f64() * 1e3;
        let mut group = 0;
        let (_, one) = timed(1, || {
            group += 1;
            let mut writer = policy.write();
            writer.put_group(GroupId(group), rules(19)).expect("rules with sense");
            writer.publish();
        });
        println!(
            "{n:>8}  {all:>11.1}   {:>17.2}   {:>6.1}",
            one / 1e6,
            policy.memory() as f64 / 1e6
        );
    }
}

/// The `n`-th connection's packet from who began it.
fn packet(n: u32, v6: bool, upper: impl Fn([u16; 2]) -> Upper, protocol: Protocol) -> Flow {
    let port = u16::try_from(n % 50_000).expect("below 50,000") + 1024;
    let (source, destination) = if v6 {
        let ip = |low: u32| IpAddr::V6(Ipv6Addr::from(0xfd00 << 112 | u128::from(low)));
        (ip(n / 50_000 + 1), ip(0xffff))
    } else {
        let ip = |low: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | low));
        (ip(n / 50_000 + 1), ip(0xffff))
    };
    Flow {
        source,
        destination,
        protocol,
        hops: 64,
        fragment: None,
        upper: upper([port, 443]),
    }
}

fn turned(flow: &Flow, upper: Upper) -> Flow {
    Flow {
        source: flow.destination,
        destination: flow.source,
        upper,
        ..*flow
    }
}

fn segment(ports: [u16; 2], flags: Flags, sequence: u32, acknowledgment: u32, payload: u32) -> Upper {
    Upper::Tcp(Segment {
        ports,
        sequence,
        len: payload + u32::from(flags.has(Flags::SYN)),
        acknowledgment,
        flags,
        window: 65_535,
        scale: None,
    })
}

fn connections(sizes: &[u32]) {
    println!(
        "\nnanoseconds a packet, random connections, least and median of {ROUNDS} rounds of {ASKED}; a packet of TCP with data"
    );
    println!(
        "connections  family  burst of {BURST}         one at a time       opened, 3 packets each   hash map in a lock   bytes each"
    );
    let policy = Policy::new();
    let mut writer = policy.write();
    let server = Some(writer.profile(&[GroupId(1)]));
    let client = Some(writer.profile(&[GroupId(2)]));
    let all = |direction| Rule {
        id: RuleId(1),
        direction,
        family: None,
        service: Service::Any,
        remote: Remote::Any,
    };
    writer
        .put_group(GroupId(1), vec![all(Direction::Ingress)])
        .expect("a rule");
    writer
        .put_group(GroupId(2), vec![all(Direction::Egress)])
        .expect("a rule");
    writer.publish();
    let random = RandomState::default();
    let vni = Vni::new(7).expect("small");
    for &size in sizes {
        for v6 in [false, true] {
            let limits = Limits {
                connections: size,
                per_tenant: size,
                ..Limits::default()
            };
            let conntrack = Arc::new(Conntrack::new(limits));
            let mut firewall = Firewall::new(&policy, Arc::clone(&conntrack));
            let begin = Instant::now();
            for n in 0..size {
                let tcp =
                    |flags, sequence, acknowledgment| move |ports| segment(ports, flags, sequence, acknowledgment, 0);
                let syn = packet(n, v6, tcp(Flags::SYN, 99, 0), Protocol::TCP);
                firewall.judge(1, vni, &syn, client, server).expect("allowed");
                let Upper::Tcp(Segment { ports: [from, to], .. }) = syn.upper else {
                    return;
                };
                let answer = turned(&syn, segment([to, from], Flags::SYN | Flags::ACK, 199, 100, 0));
                firewall.judge(1, vni, &answer, server, client).expect("an answer");
                let ack = packet(n, v6, tcp(Flags::ACK, 100, 200), Protocol::TCP);
                assert!(firewall.judge(1, vni, &ack, client, server).expect("open").established);
            }
            let opened = begin.elapsed().as_secs_f64() * 1e9 / f64::from(size) / 3.0;
            assert_eq!(conntrack.counts().of(State::Established), size);

            let asked: Vec<Flow> = (0..ASKED)
                .map(|at| {
                    let n = number(random.hash_one(at)) % size;
                    packet(n, v6, |ports| segment(ports, Flags::ACK, 100, 200, 1000), Protocol::TCP)
                })
                .collect();
            let judged = timed(ASKED, || {
                for flow in &asked {
                    assert!(firewall.judge(2, vni, black_box(flow), client, server).is_ok());
                }
            });
            let mut places = Vec::with_capacity(BURST);
            let burst = timed(ASKED, || {
                for burst in asked.chunks(BURST) {
                    places.clear();
                    places.extend(burst.iter().filter_map(|flow| conntrack.place(vni, black_box(flow))));
                    conntrack.look_ahead(&places);
                    for flow in burst {
                        assert!(firewall.judge(2, vni, black_box(flow), client, server).is_ok());
                    }
                }
            });
            let key = |flow: &Flow| (vni, flow.source, flow.destination, flow.protocol, flow.ends_ports());
            let map: HashMap<_, _, RandomState> = (0..size)
                .map(|n| {
                    let flow = packet(n, v6, |ports| segment(ports, Flags::ACK, 0, 0, 0), Protocol::TCP);
                    (key(&flow), [0_u64; 8])
                })
                .collect();
            let map = Mutex::new(map);
            let peer = timed(ASKED, || {
                for flow in &asked {
                    let mut map = map.lock().expect("nobody panics");
                    let entry = map.get_mut(&key(black_box(flow))).expect("known");
                    entry[0] += 1;
                }
            });
            let family = if v6 { "IPv6" } else { "IPv4" };
            println!(
                "{size:>11}  {family}  {:>8.1} {:>8.1}   {:>8.1} {:>8.1}    {opened:>8.1}            {:>8.1} {:>8.1}      {:>6.1}",
                burst.0,
                burst.1,
                judged.0,
                judged.1,
                peer.0,
                peer.1,
                conntrack.memory() as f64 / f64::from(size),
            );
        }
    }
}

/// The ports of a flow, as a key of the hash map beside.
trait Ports {
    fn ends_ports(&self) -> [u16; 2];
}

impl Ports for Flow {
    fn ends_ports(&self) -> [u16; 2] {
        match self.upper {
            Upper::Tcp(Segment { ports, .. }) => ports,
            _ => [0, 0],
        }
    }
}

/// Several threads on one table.
fn threads(size: u32) {
    println!("\nnanoseconds a packet of each of several threads, {size} connections");
    println!("threads  stripes, each thread another packet   one connection for all");
    let policy = Policy::new();
    let mut writer = policy.write();
    let client = Some(writer.profile(&[GroupId(2)]));
    let all = Rule {
        id: RuleId(1),
        direction: Direction::Egress,
        family: None,
        service: Service::Any,
        remote: Remote::Any,
    };
    writer.put_group(GroupId(2), vec![all]).expect("a rule");
    writer.publish();
    let limits = Limits {
        connections: size,
        per_tenant: size,
        ..Limits::default()
    };
    let conntrack = Arc::new(Conntrack::new(limits));
    let vni = Vni::new(7).expect("small");
    let udp = |n: u32| packet(n, false, Upper::Ports, Protocol::UDP);
    let mut firewall = Firewall::new(&policy, conntrack);
    for n in 0..size {
        firewall.judge(1, vni, &udp(n), client, None).expect("allowed");
    }
    for count in [1_u64, 2] {
        let run = |only_one: bool| {
            let begin = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..count {
                    let mut firewall = firewall.clone();
                    scope.spawn(move || {
                        for at in 0..ASKED as u64 {
                            let n = number(at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) ^ thread) % size;
                            let flow = udp(if only_one { 0 } else { n });
                            assert!(firewall.judge(2, vni, black_box(&flow), client, None).is_ok());
                        }
                    });
                }
            });
            begin.elapsed().as_secs_f64() * 1e9 / ASKED as f64
        };
        let median = |only_one| rounds(|| run(only_one)).1;
        println!("{count:>7}  {:>36.1}   {:>23.1}", median(false), median(true));
    }
}

fn main() {
    let sizes: Vec<u32> = common::sizes([1_000, 10_000, 100_000, 1_000_000]);
    policies();
    profiles();
    connections(&sizes);
    threads(100_000);
}
