//! xsk.bpf.c on named packets: the verdict and the counter, for each filter.

use crate::common::packets::*;
use crate::common::{LEAST, privileged, with_only};
use ringside_bpf::{Error, Filter, QueueCounters, Verdict, XskProgram, dry_run};

/// The counter that a packet is expected in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Wanted: without a socket it goes up as unbound.
    Wanted,
    Filtered,
    Neighbour,
    Malformed,
}

use Expect::{Filtered, Malformed, Neighbour, Wanted};

impl Expect {
    pub(crate) fn counters(self) -> [u64; 4] {
        match self {
            Wanted => [1, 0, 0, 0],
            Filtered => [0, 1, 0, 0],
            Neighbour => [0, 0, 1, 0],
            Malformed => [0, 0, 0, 1],
        }
    }
}

/// In the order of [`Expect::counters`].
pub(crate) fn passed(seen: &QueueCounters) -> [u64; 4] {
    [
        seen.passed_unbound,
        seen.passed_filter,
        seen.passed_neighbour,
        seen.passed_malformed,
    ]
}

/// Both programs: each verdict has to be the same.
pub(crate) fn both(queues: u32, filter: Filter) -> [XskProgram; 2] {
    let load = || XskProgram::load(queues, filter).unwrap();
    let programs = [load(), with_only(LEAST, load)];
    assert_eq!(
        programs.each_ref().map(XskProgram::name),
        ["ringside_xsk", "ringside_xsk_h"]
    );
    programs
}

struct Fixture {
    name: String,
    packet: Vec<u8>,
    all: Expect,
    udp: Expect,
    ethertype: Expect,
}

fn fixture(name: &str, packet: Vec<u8>, all: Expect, udp: Expect, ethertype: Expect) -> Fixture {
    Fixture {
        name: name.to_owned(),
        packet,
        all,
        udp,
        ethertype,
    }
}

/// Which program sees what; the ethertype filter wants `ETH_EXPERIMENT`.
fn fixtures() -> Vec<Fixture> {
    let ours = udp(PORT, b"payload!");
    let v4 = |payload: &[u8]| ethernet(&[], ETH_IPV4, payload);
    let v6 = |payload: &[u8]| ethernet(&[], ETH_IPV6, payload);
    let cut = |mut packet: Vec<u8>, by: usize| {
        packet.truncate(packet.len() - by);
        packet
    };
    let patched = |mut packet: Vec<u8>, at: usize, with: &[u8]| {
        packet[at..at + with.len()].copy_from_slice(with);
        packet
    };

    let mut all = vec![
        fixture("arp", ethernet(&[], ETH_ARP, &[0; 28]), Neighbour, Neighbour, Neighbour),
        fixture(
            "arp in a vlan",
            ethernet(&[VLAN], ETH_ARP, &[0; 28]),
            Neighbour,
            Neighbour,
            Neighbour,
        ),
        fixture(
            "nothing but an arp header",
            ethernet(&[], ETH_ARP, &[]),
            Neighbour,
            Neighbour,
            Neighbour,
        ),
        fixture(
            "icmpv6 132",
            v6(&ipv6(ICMPV6, &icmpv6(132))),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "icmpv6 138",
            v6(&ipv6(ICMPV6, &icmpv6(138))),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "echo request v6",
            v6(&ipv6(ICMPV6, &icmpv6(128))),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "icmpv6 without a type",
            v6(&ipv6(ICMPV6, &[])),
            Malformed,
            Malformed,
            Malformed,
        ),
        fixture("udp v4", v4(&ipv4(UDP, &ours)), Wanted, Wanted, Filtered),
        fixture(
            "udp v4, padded frame",
            v4(&[ipv4(UDP, &ours), vec![0; 20]].concat()),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "udp v4, other port",
            v4(&ipv4(UDP, &udp(PORT + 1, b""))),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "udp v4, port as source",
            v4(&ipv4(UDP, &patched(udp(9, b""), 0, &PORT.to_be_bytes()))),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "udp v4 with options",
            v4(&ipv4_with(UDP, &[1; 40], 0, &ours)),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "udp v4, empty datagram",
            v4(&ipv4(UDP, &udp(PORT, b""))),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "first fragment v4",
            v4(&ipv4_with(UDP, &[], 0x2000, &patched(ours.clone(), 4, &[5, 0]))),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "later fragment v4",
            v4(&ipv4_with(UDP, &[], 0x0001, &ours)),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "last fragment v4",
            v4(&ipv4_with(UDP, &[], 0x1fff, &ours)),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "don't fragment v4",
            v4(&ipv4_with(UDP, &[], 0x4000, &ours)),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture("tcp v4", v4(&ipv4(TCP, &ours)), Wanted, Filtered, Filtered),
        fixture("udp v6", v6(&ipv6(UDP, &ours)), Wanted, Wanted, Filtered),
        fixture(
            "udp v6, hop by hop",
            v6(&ipv6(0, &extension(UDP, &ours))),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "udp v6, four extensions",
            v6(&ipv6(
                0,
                &extension(60, &extension(43, &extension(60, &extension(UDP, &ours)))),
            )),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "udp v6, five extensions",
            v6(&ipv6(
                0,
                &extension(
                    60,
                    &extension(43, &extension(60, &extension(60, &extension(UDP, &ours)))),
                ),
            )),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "first fragment v6",
            v6(&ipv6(44, &fragment6(UDP, 0, true, &patched(ours.clone(), 4, &[5, 0])))),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "later fragment v6",
            v6(&ipv6(44, &fragment6(UDP, 1, false, &ours))),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture("tcp v6", v6(&ipv6(TCP, &ours)), Wanted, Filtered, Filtered),
        fixture(
            "udp v4 in a vlan",
            ethernet(&[VLAN], ETH_IPV4, &ipv4(UDP, &ours)),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "udp v6 in a vlan in a vlan",
            ethernet(&[SERVICE_VLAN, VLAN], ETH_IPV6, &ipv6(UDP, &ours)),
            Wanted,
            Wanted,
            Filtered,
        ),
        fixture(
            "udp v4 in three vlans",
            ethernet(&[VLAN; 3], ETH_IPV4, &ipv4(UDP, &ours)),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "experiment",
            ethernet(&[], ETH_EXPERIMENT, &[0; 46]),
            Wanted,
            Filtered,
            Wanted,
        ),
        fixture(
            "experiment in a vlan",
            ethernet(&[VLAN], ETH_EXPERIMENT, &[0; 46]),
            Wanted,
            Filtered,
            Wanted,
        ),
        fixture("802.3 length", ethernet(&[], 46, &[0; 46]), Wanted, Filtered, Filtered),
        fixture(
            "jumbo type 8870",
            ethernet(&[], 0x8870, &[0; 1000]),
            Wanted,
            Filtered,
            Filtered,
        ),
        fixture(
            "nothing but an ethernet header",
            ethernet(&[], ETH_EXPERIMENT, &[]),
            Wanted,
            Filtered,
            Wanted,
        ),
        fixture(
            "cut vlan tag",
            cut(ethernet(&[VLAN], ETH_IPV4, &[]), 2),
            Malformed,
            Malformed,
            Malformed,
        ),
        fixture(
            "cut second vlan tag",
            cut(ethernet(&[SERVICE_VLAN, VLAN], ETH_IPV4, &[]), 1),
            Malformed,
            Malformed,
            Malformed,
        ),
        fixture(
            "cut v6 header",
            cut(v6(&ipv6(UDP, &[])), 1),
            Malformed,
            Malformed,
            Malformed,
        ),
        fixture(
            "cut hop by hop",
            cut(v6(&ipv6(0, &extension(UDP, &[]))), 7),
            Malformed,
            Malformed,
            Malformed,
        ),
        fixture(
            "half an extension",
            cut(v6(&ipv6(0, &extension(UDP, &[]))), 4),
            Malformed,
            Malformed,
            Malformed,
        ),
        // What only the UDP filter looks into is malformed only for it.
        fixture(
            "cut v4 header",
            cut(v4(&ipv4(UDP, &[])), 1),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "cut v4 datagram",
            cut(v4(&ipv4(UDP, &ours)), 1),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v4 header length 4",
            v4(&patched(ipv4(UDP, &ours), 0, &[0x41])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v4 with version 6",
            v4(&patched(ipv4(UDP, &ours), 0, &[0x65])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v4 total length below header",
            v4(&patched(ipv4(UDP, &ours), 2, &[0, 19])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v4 options beyond the packet",
            v4(&patched(ipv4(UDP, &ours), 0, &[0x4f])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "cut udp v4 header",
            v4(&ipv4(UDP, &ours[..7])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "udp length below header",
            v4(&ipv4(UDP, &patched(ours.clone(), 4, &[0, 7]))),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "udp length beyond packet",
            v4(&ipv4(UDP, &patched(ours.clone(), 4, &[0, 17]))),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v6 with version 4",
            v6(&patched(ipv6(UDP, &ours), 0, &[0x45])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v6 payload beyond frame",
            v6(&patched(ipv6(UDP, &ours), 4, &[1, 0])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v6 payload below udp header",
            v6(&patched(ipv6(UDP, &ours), 4, &[0, 7])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v6 extension beyond payload",
            v6(&patched(ipv6(0, &extension(UDP, &ours)), 4, &[0, 4])),
            Wanted,
            Malformed,
            Filtered,
        ),
        fixture(
            "v6 extension beyond frame",
            v6(&patched(ipv6(0, &extension(UDP, &ours)), 41, &[200])),
            Wanted,
            Malformed,
            Filtered,
        ),
    ];
    for kind in 133..=137 {
        let nd = ipv6(ICMPV6, &icmpv6(kind));
        all.push(fixture(&format!("nd {kind}"), v6(&nd), Neighbour, Neighbour, Neighbour));
        let tagged = ethernet(&[SERVICE_VLAN, VLAN], ETH_IPV6, &nd);
        all.push(fixture(
            &format!("nd {kind} in two vlans"),
            tagged,
            Neighbour,
            Neighbour,
            Neighbour,
        ));
        let hop = v6(&ipv6(0, &extension(ICMPV6, &icmpv6(kind))));
        all.push(fixture(
            &format!("nd {kind}, hop by hop"),
            hop,
            Neighbour,
            Neighbour,
            Neighbour,
        ));
    }
    all
}

fn verdicts(filter: Filter, expect: impl Fn(&Fixture) -> Expect) {
    if !privileged() {
        return;
    }
    for program in both(3, filter) {
        for fixture in fixtures() {
            let before = program.counters(0).unwrap();
            let (verdict, packet) = dry_run(program.program(), &fixture.packet).unwrap();
            let name = format!("{} of {}", fixture.name, program.name());
            assert_eq!(verdict, Verdict::Pass, "{name}: nothing but a socket keeps a packet");
            assert_eq!(packet, fixture.packet, "{name}: steering leaves packets as they are");
            let seen = program.counters(0).unwrap() - before;
            let expect = match expect(&fixture) {
                Wanted | Filtered if contradicts_itself(&fixture.packet) => Malformed,
                expect => expect,
            };
            assert_eq!(passed(&seen), expect.counters(), "{name} with filter {filter}");
            assert_eq!((seen.packets(), seen.redirected), (1, 0), "{name}");
        }
        assert_eq!(program.counters(1).unwrap(), QueueCounters::default());
        assert_eq!(program.counters_elsewhere().unwrap(), QueueCounters::default());
    }
}

#[test]
fn filter_all() {
    verdicts(Filter::All, |fixture| fixture.all);
}

#[test]
fn filter_udp_port() {
    verdicts(Filter::UdpPort(PORT), |fixture| fixture.udp);
}

#[test]
fn filter_ethertype() {
    verdicts(Filter::EtherType(ETH_EXPERIMENT), |fixture| fixture.ethertype);
}

/// What the UDP filter wants is wanted; the echo requests come on top.
#[test]
fn filter_echo() {
    if !privileged() {
        return;
    }
    let v4 = |protocol, fragment, payload: &[u8]| ethernet(&[], ETH_IPV4, &ipv4_with(protocol, &[], fragment, payload));
    let v6 = |next, payload: &[u8]| ethernet(&[], ETH_IPV6, &ipv6(next, payload));
    let request = [8, 0, 0, 0, 0, 1, 0, 1];
    let request6 = [128, 0, 0, 0, 0, 1, 0, 1];
    let fixtures = [
        ("our UDP port", v4(UDP, 0, &udp(PORT, b"payload!")), Wanted),
        ("another UDP port", v4(UDP, 0, &udp(PORT + 1, b"payload!")), Filtered),
        ("ICMP echo request", v4(1, 0, &request), Wanted),
        ("ICMP echo reply", v4(1, 0, &[0, 0, 0, 0, 0, 1, 0, 1]), Filtered),
        ("ICMP echo request, first fragment", v4(1, 0x2000, &request), Filtered),
        ("ICMP echo request, later fragment", v4(1, 2, &request), Filtered),
        ("ICMP without a type", v4(1, 0, &[]), Malformed),
        ("TCP", v4(6, 0, &request), Filtered),
        ("ICMPv6 echo request", v6(58, &request6), Wanted),
        ("ICMPv6 echo reply", v6(58, &[129, 0, 0, 0, 0, 1, 0, 1]), Filtered),
        ("neighbour solicitation", v6(58, &[135; 24]), Neighbour),
        ("ICMPv4 in IPv6", v6(1, &request), Filtered),
        (
            "ICMP echo request behind options",
            ethernet(&[], ETH_IPV4, &ipv4_with(1, &[1; 4], 0, &request)),
            Wanted,
        ),
        (
            "ICMPv6 echo request, hop by hop",
            v6(0, &extension(ICMPV6, &request6)),
            Filtered,
        ),
        (
            "our UDP port, hop by hop",
            v6(0, &extension(UDP, &udp(PORT, b""))),
            Wanted,
        ),
    ];
    for program in both(1, Filter::Echo(PORT)) {
        for (name, packet, expect) in &fixtures {
            let before = program.counters(0).unwrap();
            dry_run(program.program(), packet).unwrap();
            let seen = program.counters(0).unwrap() - before;
            assert_eq!(passed(&seen), expect.counters(), "{name} of {}", program.name());
        }
    }
}

/// Those who ask through a wire do not ask the host in the middle.
#[test]
fn filter_wire() {
    if !privileged() {
        return;
    }
    let load = || XskProgram::load(1, Filter::Wire).unwrap();
    // It looks at no packet, so that CAP_PERFMON makes no difference.
    for program in [load(), with_only(LEAST, load)] {
        assert_eq!(program.name(), "ringside_xsk");
        for fixture in fixtures() {
            let before = program.counters(0).unwrap();
            dry_run(program.program(), &fixture.packet).unwrap();
            let seen = program.counters(0).unwrap() - before;
            assert_eq!(
                passed(&seen),
                Wanted.counters(),
                "{} of {}",
                fixture.name,
                program.name()
            );
        }
    }
}

#[test]
fn filter_none() {
    verdicts(Filter::None, |fixture| match fixture.all {
        Wanted => Filtered,
        other => other,
    });
}

#[test]
fn an_outer_type_matches_too() {
    if !privileged() {
        return;
    }
    let tagged = ethernet(&[SERVICE_VLAN, VLAN], ETH_EXPERIMENT, &[0; 40]);
    for program in both(1, Filter::EtherType(SERVICE_VLAN)) {
        dry_run(program.program(), &tagged).unwrap();
        assert_eq!(program.counters(0).unwrap().passed_unbound, 1);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |queues, filter| match XskProgram::load(queues, filter) {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(0, Filter::All).contains("0 queues"));
    assert!(refused(1, Filter::UdpPort(0)).contains("udp:0"));
    assert!(refused(1, Filter::EtherType(0x0806)).contains("ARP"));
    if privileged() {
        let program = XskProgram::load(2, Filter::All).unwrap();
        assert!(matches!(program.counters(2), Err(Error::Invalid { .. })));
        assert_eq!(program.name(), "ringside_xsk");
        assert_ne!(program.id(), 0);
    }
}
