//! xsk.bpf.c on named packets: filters by address, port and protocol, and with ARP and neighbour
//! discovery.

use ringside_bpf::{Filter, XskHints, XskProgram, dry_run};

use crate::common::packets::*;
use crate::common::{LEAST, privileged, with_only};
use crate::steering::Expect::{self, Filtered, Malformed, Neighbour, Wanted};
use crate::steering::{both, passed};

const ICMP: u8 = 1;
const MORE_FRAGMENTS: u16 = 0x2000;
const ALL_NODES: [u8; 2] = [0xff, 0x02];
const NETWORK: [u8; 2] = [0xfd, 0x77];

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], ETH_IPV4, &ipv4(protocol, payload))
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], ETH_IPV6, &ipv6(next, payload))
}

fn arp_frame(operation: u8, sender: u8, target: u8) -> Vec<u8> {
    ethernet(&[], ETH_ARP, &arp(operation, sender, target))
}

fn nd(kind: u8, destination: [u8; 2], host: u8, target: u8) -> Vec<u8> {
    ethernet(&[], ETH_IPV6, &neighbour(kind, destination, host, target))
}

/// Every packet with each filter, and what is expected with it.
fn check(filters: &[&str], fixtures: &[(&str, Vec<u8>, &[Expect])]) {
    if !privileged() {
        return;
    }
    for (at, text) in filters.iter().enumerate() {
        let filter: Filter = text.parse().unwrap();
        for program in both(1, filter) {
            for (name, packet, expect) in fixtures {
                assert_eq!(expect.len(), filters.len(), "{name}");
                let before = program.counters(0).unwrap();
                let (_, after) = dry_run(program.program(), packet).unwrap();
                assert_eq!(&after, packet, "{name}: steering leaves packets as they are");
                let seen = program.counters(0).unwrap() - before;
                let by = program.name();
                assert_eq!(passed(&seen), expect[at].counters(), "{name} of {by} with {filter}");
            }
        }
    }
}

#[test]
fn ports_and_protocols() {
    let filters = ["tcp:4242", "tcp:4000-4242,udp:53", "icmp", "tcp:4243-65535,icmp"];
    let mut cut = tcp(PORT);
    cut[12] = 6 << 4;
    let mut short = tcp(PORT);
    short[12] = 4 << 4;
    check(
        &filters,
        &[
            ("tcp v4", v4(TCP, &tcp(PORT)), &[Wanted, Wanted, Filtered, Filtered]),
            ("tcp v6", v6(TCP, &tcp(PORT)), &[Wanted, Wanted, Filtered, Filtered]),
            (
                "first port",
                v4(TCP, &tcp(4000)),
                &[Filtered, Wanted, Filtered, Filtered],
            ),
            ("port below", v4(TCP, &tcp(3999)), &[Filtered; 4]),
            (
                "port above",
                v4(TCP, &tcp(4243)),
                &[Filtered, Filtered, Filtered, Wanted],
            ),
            (
                "last port",
                v6(TCP, &tcp(65535)),
                &[Filtered, Filtered, Filtered, Wanted],
            ),
            ("udp of that port", v4(UDP, &udp(PORT, b"")), &[Filtered; 4]),
            (
                "udp 53",
                v4(UDP, &udp(53, b"")),
                &[Filtered, Wanted, Filtered, Filtered],
            ),
            ("tcp 53", v4(TCP, &tcp(53)), &[Filtered; 4]),
            ("sctp", v4(132, &tcp(PORT)), &[Filtered; 4]),
            ("echo request", v4(ICMP, &[8; 8]), &[Filtered, Filtered, Wanted, Wanted]),
            (
                "echo reply v6",
                v6(ICMPV6, &icmpv6(129)),
                &[Filtered, Filtered, Wanted, Wanted],
            ),
            ("icmp in v6", v6(ICMP, &[8; 8]), &[Filtered; 4]),
            ("icmpv6 in v4", v4(ICMPV6, &icmpv6(129)), &[Filtered; 4]),
            ("solicitation", nd(135, ALL_NODES, 1, 2), &[Neighbour; 4]),
            ("arp", arp_frame(1, 1, 2), &[Neighbour; 4]),
            ("experiment", ethernet(&[], ETH_EXPERIMENT, &[0; 46]), &[Filtered; 4]),
            (
                "behind options",
                ethernet(&[], ETH_IPV4, &ipv4_with(TCP, &[1; 40], 0, &tcp(PORT))),
                &[Wanted, Wanted, Filtered, Filtered],
            ),
            (
                "behind an extension",
                v6(0, &extension(TCP, &tcp(PORT))),
                &[Wanted, Wanted, Filtered, Filtered],
            ),
            (
                "in two vlans",
                ethernet(&[SERVICE_VLAN, VLAN], ETH_IPV6, &ipv6(TCP, &tcp(PORT))),
                &[Wanted, Wanted, Filtered, Filtered],
            ),
            (
                "first fragment",
                ethernet(&[], ETH_IPV4, &ipv4_with(TCP, &[], MORE_FRAGMENTS, &tcp(PORT))),
                &[Wanted, Wanted, Filtered, Filtered],
            ),
            (
                "later fragment",
                ethernet(&[], ETH_IPV4, &ipv4_with(TCP, &[], 3, &tcp(PORT))),
                &[Filtered; 4],
            ),
            (
                "later fragment v6",
                v6(44, &fragment6(TCP, 3, false, &tcp(PORT))),
                &[Filtered; 4],
            ),
            (
                "no room for a header",
                v4(TCP, &tcp(PORT)[..19]),
                &[Malformed, Malformed, Filtered, Malformed],
            ),
            (
                "header longer than the segment",
                v4(TCP, &cut),
                &[Malformed, Malformed, Filtered, Malformed],
            ),
            (
                "header shorter than a header",
                v6(TCP, &short),
                &[Malformed, Malformed, Filtered, Malformed],
            ),
        ],
    );
}

/// The packets are from 10.77.0.1 to 10.77.0.2, and from fd77::1 to fd77::2.
#[test]
fn addresses_and_prefixes() {
    let filters = [
        "dst:10.77.0.2",
        "dst:10.77.0.0/31,dst:fd77::2",
        "src:10.77.0.0/31,src:fd77::/16",
        "dst:10.77.0.2,dst:fd77::/127,tcp:4242,udp:4242",
        "src:fd77::1,dst:fd77::/64,dst:10.0.0.0/8",
        "dst:::/0",
        "dst:0.0.0.0/0,icmp",
    ];
    let [w, f] = [Wanted, Filtered];
    let first = ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[], MORE_FRAGMENTS, &udp(PORT, b"")));
    let later = ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[], 1, &[0; 8]));
    let later6 = v6(44, &fragment6(UDP, 1, false, &[0; 8]));
    check(
        &filters,
        &[
            ("tcp v4", v4(TCP, &tcp(PORT)), &[w, f, w, w, f, f, f]),
            ("tcp v6", v6(TCP, &tcp(PORT)), &[f, w, w, f, w, w, f]),
            ("another port", v4(TCP, &tcp(1)), &[w, f, w, f, f, f, f]),
            ("udp v4", v4(UDP, &udp(PORT, b"")), &[w, f, w, w, f, f, f]),
            ("echo request", v4(ICMP, &[8; 8]), &[w, f, w, f, f, f, w]),
            ("esp v4", v4(50, &[0; 8]), &[w, f, w, f, f, f, f]),
            ("esp v6", v6(50, &[0; 8]), &[f, w, w, f, w, w, f]),
            ("first fragment", first, &[w, f, w, w, f, f, f]),
            ("later fragment", later, &[w, f, w, f, f, f, f]),
            ("later fragment v6", later6, &[f, w, w, f, w, w, f]),
            (
                "in a vlan",
                ethernet(&[VLAN], ETH_IPV4, &ipv4(TCP, &tcp(PORT))),
                &[w, f, w, w, f, f, f],
            ),
            (
                "in three vlans",
                ethernet(&[VLAN; 3], ETH_IPV4, &ipv4(TCP, &tcp(PORT))),
                &[f; 7],
            ),
            ("arp", arp_frame(1, 1, 2), &[Neighbour; 7]),
            ("solicitation", nd(135, ALL_NODES, 1, 2), &[Neighbour; 7]),
            ("experiment", ethernet(&[], ETH_EXPERIMENT, &[0; 46]), &[f; 7]),
            (
                "longer than the frame",
                {
                    let mut packet = v4(TCP, &tcp(PORT));
                    packet[17] += 1;
                    packet
                },
                &[Malformed; 7],
            ),
        ],
    );
}

/// The last entry of each list counts, and none behind it.
#[test]
fn as_many_as_there_may_be() {
    let many = |kind: &str, last: &str| {
        let others = (0..15).map(|n| format!("{kind}:192.0.2.{n}"));
        others.chain([format!("{kind}:{last}")]).collect::<Vec<_>>().join(",")
    };
    let ports: Vec<String> = (0..16).map(|n| format!("tcp:{}", PORT - 15 + n)).collect();
    let full = format!(
        "{},{},{}",
        many("dst", "10.77.0.2"),
        many("src", "10.77.0.1"),
        ports.join(",")
    );
    let filters = [
        &full[..],
        &full.replace("10.77.0.2", "fd77::2").replace("10.77.0.1", "fd77::1"),
    ];
    check(
        &filters,
        &[
            ("tcp v4", v4(TCP, &tcp(PORT)), &[Wanted, Filtered]),
            ("tcp v6", v6(TCP, &tcp(PORT)), &[Filtered, Wanted]),
            ("another port", v4(TCP, &tcp(PORT + 1)), &[Filtered; 2]),
        ],
    );
}

/// Only what is about the filter's addresses is taken: the host finds its own neighbours.
#[test]
fn arp_and_neighbour_discovery_about_the_addresses_alone() {
    let filters = [
        "dst:10.77.0.2,dst:fd77::2,tcp:80,arp",
        "dst:10.77.0.2,dst:fd77::2",
        "dst:10.77.0.4/30,arp",
    ];
    let [w, n, f] = [Wanted, Neighbour, Filtered];
    let with = |at: usize, value: u8| {
        let mut packet = arp_frame(1, 1, 2);
        packet[14 + at] = value;
        packet
    };
    let cut = |mut packet: Vec<u8>, by: usize| {
        packet.truncate(packet.len() - by);
        packet
    };
    let tagged = |kind, payload: &[u8]| ethernet(&[SERVICE_VLAN, VLAN], kind, payload);
    let short = [&ipv6(ICMPV6, &icmpv6(135)[..8])[..]].concat();
    let mut short_group = ethernet(&[], ETH_IPV6, &short);
    (short_group[14 + 24], short_group[14 + 25]) = (0xff, 0x02);
    check(
        &filters,
        &[
            ("request", arp_frame(1, 1, 2), &[w, n, n]),
            ("reply", arp_frame(2, 1, 2), &[w, n, n]),
            ("request for another", arp_frame(1, 1, 3), &[n; 3]),
            ("request by it", arp_frame(1, 2, 1), &[n; 3]),
            ("request for the prefix", arp_frame(1, 1, 7), &[n, n, w]),
            ("request behind the prefix", arp_frame(1, 1, 8), &[n; 3]),
            ("announcement of another", arp_frame(1, 1, 1), &[n; 3]),
            ("in two vlans", tagged(ETH_ARP, &arp(1, 1, 2)), &[w, n, n]),
            ("of other hardware", with(1, 6), &[n; 3]),
            ("of another protocol", with(2, 9), &[n; 3]),
            ("other hardware length", with(4, 8), &[n; 3]),
            ("other protocol length", with(5, 16), &[n; 3]),
            ("padded", [arp_frame(1, 1, 2), vec![0; 18]].concat(), &[w, n, n]),
            ("cut", cut(arp_frame(1, 1, 2), 1), &[n; 3]),
            ("solicitation to a group", nd(135, ALL_NODES, 1, 2), &[w, n, n]),
            ("solicitation of another", nd(135, ALL_NODES, 1, 3), &[n; 3]),
            ("solicitation to it", nd(135, NETWORK, 2, 2), &[w, n, n]),
            ("solicitation to another", nd(135, NETWORK, 1, 2), &[n; 3]),
            ("advertisement to it", nd(136, NETWORK, 2, 1), &[w, n, n]),
            ("advertisement to another", nd(136, NETWORK, 1, 2), &[n; 3]),
            ("its address taken by another", nd(136, ALL_NODES, 1, 2), &[w, n, n]),
            ("advertisement to all", nd(136, ALL_NODES, 1, 1), &[n; 3]),
            ("router advertisement to all", nd(134, ALL_NODES, 1, 2), &[n; 3]),
            ("router advertisement to it", nd(134, NETWORK, 2, 0), &[w, n, n]),
            ("router solicitation to all", nd(133, ALL_NODES, 2, 2), &[n; 3]),
            ("redirect to it", nd(137, NETWORK, 2, 0), &[w, n, n]),
            ("redirect to another", nd(137, NETWORK, 1, 2), &[n; 3]),
            (
                "solicitation in two vlans",
                tagged(ETH_IPV6, &neighbour(135, ALL_NODES, 1, 2)),
                &[w, n, n],
            ),
            ("solicitation without a target", short_group, &[n; 3]),
            (
                "solicitation behind an extension",
                {
                    let plain = neighbour(135, ALL_NODES, 1, 2);
                    let mut packet = ipv6(0, &extension(ICMPV6, &plain[40..]));
                    packet[8..40].copy_from_slice(&plain[8..40]);
                    ethernet(&[], ETH_IPV6, &packet)
                },
                &[w, n, n],
            ),
            ("tcp 80", v4(TCP, &tcp(80)), &[w, w, f]),
            ("tcp 81", v6(TCP, &tcp(81)), &[f, w, f]),
            ("echo request", v4(ICMP, &[8; 8]), &[f, w, f]),
        ],
    );
}

/// With hints, for packets in several buffers, and with hints of a NIC's driver.
#[test]
fn all_variants_take_it() {
    if !privileged() {
        return;
    }
    let addresses = "dst:10.77.0.2,dst:fd77::2,src:10.0.0.0/8,src:fd77::/16";
    let filter: Filter = format!("{addresses},tcp:4242,udp:1-9,icmp,arp").parse().unwrap();
    let hints = XskHints { id: 1, mark: 0 };
    let with_hints = |multi_buffer| {
        let loaded = XskProgram::load_with_hints(1, filter, multi_buffer, hints);
        loaded.unwrap()
    };
    let programs = [
        XskProgram::load_multi_buffer(1, filter).unwrap(),
        with_hints(false),
        with_hints(true),
        with_only(LEAST, || with_hints(false)),
    ];
    let options = ethernet(&[], ETH_IPV4, &ipv4_with(TCP, &[1; 8], 0, &tcp(PORT)));
    let solicitation = nd(135, ALL_NODES, 1, 2);
    for program in programs {
        for packet in [&options, &solicitation] {
            dry_run(program.program(), packet).unwrap();
        }
        dry_run(program.program(), &v4(TCP, &tcp(1))).unwrap();
        let seen = program.counters(0).unwrap();
        assert_eq!(
            (seen.passed_unbound, seen.passed_filter),
            (2, 1),
            "{}: {seen:?}",
            program.name()
        );
    }
}
