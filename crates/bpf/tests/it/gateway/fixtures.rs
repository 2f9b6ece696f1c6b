//! One packet for each branch, by name.

use std::time::Duration;

use ringside_bpf::Verdict;
use ringside_bpf::gateway::{Drops, GatewayConfig, GatewayProgram, NeighborKey, Outcome, Sampling, SlowCause, Tunnel};
use ringside_gateway_core::DropReason;
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::corpus::{ROUTER, VNI, gateway, host, mac, tenant};
use ringside_gateway_core::testing::{Sent, tenant_arp, tenant_solicitation, tenant_udp};
use ringside_netlab::testing::retry;
use ringside_wire::MacAddr;
use ringside_wire::checksum::Sum;
use ringside_wire::udp::{ChecksumState, checksum_state};

use crate::common::privileged;
use crate::gateway::bed::{Bed, Ran, SIZES, Wanted, in_namespace, key, neighbor};
use crate::gateway::lane::pseudo_header;

/// What tenant 1 sends to `to`, from its host, over IPv4.
pub(crate) fn udp(to: u8, payload: &[u8]) -> Sent {
    let frame = tenant_udp(
        [mac(1), mac(to)],
        [tenant(1, false), tenant(to, false)],
        [1000, 53],
        64,
        payload,
    );
    sent(frame)
}

pub(crate) fn sent(frame: Vec<u8>) -> Sent {
    Sent::new([host(1, false), gateway(false)], Encapsulation::Vxlan, VNI, frame)
}

fn slow(cause: SlowCause) -> Outcome {
    Outcome::Slow(cause)
}

fn with_bed(test: impl FnOnce(Bed) + Send) {
    if privileged() {
        in_namespace(|second| test(Bed::new(second, Wanted::default())));
    }
}

/// Who counts drops reads the same of both paths.
#[test]
fn reasons_have_the_same_numbers_in_both_paths() {
    let header = include_str!("../../../src/bpf/include/gateway.h");
    let mut found = 0;
    for line in header.lines() {
        let Some((name, number)) = line
            .trim()
            .strip_prefix("DROP_")
            .and_then(|line| line.split_once(" = "))
        else {
            continue;
        };
        let number: u8 = number.trim_end_matches(',').parse().unwrap();
        let name = name.to_lowercase().replace('_', "-");
        let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
        assert_eq!(reason.map(|reason| reason.number()), Some(number), "{name}");
        found += 1;
    }
    assert!(found > 10);
    assert!(
        DropReason::ALL.iter().all(|reason| reason.number() < 64),
        "places of counters"
    );
}

/// Each edit is checked by itself, and not only against the other implementation.
#[test]
fn a_forwarded_packet_by_hand() {
    with_bed(|bed| {
        let frame = udp(2, b"data").bytes();
        let ran = bed.run(&frame);
        assert_eq!((ran.outcome, ran.verdict), (Outcome::Forwarded, Verdict::Tx));
        let mut expected = frame.clone();
        expected[..6].copy_from_slice(&[2, 0, 0, 0, 1, 2]);
        expected[6..12].copy_from_slice(&[2, 0, 0, 0, 1, 0xfe]);
        expected[22] = 63;
        expected[26..34].copy_from_slice(&[192, 0, 2, 254, 192, 0, 2, 2]);
        // The addresses were 192.0.2.1 and 192.0.2.254, the time to live 64: 1 more in the first sum, 0x100 less.
        let checksum = u16::from_be_bytes([frame[24], frame[25]]) + 0x100 - 1;
        expected[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(ran.bytes, expected);

        let routed = tenant_udp(
            [mac(1), ROUTER],
            [tenant(1, false), tenant(2, false)],
            [1, 2],
            64,
            b"data",
        );
        let ran = bed.run(&sent(routed.clone()).bytes());
        assert_eq!(ran.bytes[50..56], mac(2).0, "the receiver's own address");
        assert_eq!((routed[22], ran.bytes[50 + 22]), (64, 63), "the tenant's time to live");
    });
}

/// RFC 1624 has a corner where the sum is 0, which would say that there is no checksum.
#[test]
fn every_value_of_the_checksum_survives() {
    with_bed(|mut bed| {
        let at_edge = |bytes: &[u8]| matches!(bytes[40..42], [0, 0..=2] | [0xff, 0xfd..=0xff]);
        let mut tried = 0;
        for salt in 0..=u16::MAX {
            let ips = [tenant(1, false), tenant(2, false)];
            let frame = tenant_udp([mac(1), ROUTER], ips, [salt, 53], 64, b"data");
            // The tenant's checksum would take the salt out again.
            let mut sent = sent(frame);
            sent.frame[40..42].fill(0);
            sent.checksum = true;
            let frame = sent.bytes();
            let (_, decided) = bed.decide(&frame);
            if !at_edge(&frame) && !at_edge(&decided) && salt % 997 != 0 {
                continue;
            }
            let ran = bed.run(&frame);
            assert_eq!(ran.bytes, decided, "{salt}");
            assert_ne!(ran.bytes[40..42], [0, 0], "{salt}");
            let state = checksum_state(&ran.bytes[34..], gateway(false), host(2, false));
            assert_eq!(state, ChecksumState::Valid, "{salt}");
            tried += u32::from(decided[40..42] == [0xff, 0xff]);
        }
        assert!(tried > 0, "the corner was not met");
    });
}

/// Sets the checksum at `check` to the sum of the pseudo header of the packet at `ip`, and the word
/// at `salt` so that this checksum is complete.
fn make_ambiguous(frame: &mut [u8], ip: usize, check: usize, salt: usize) {
    let pseudo = pseudo_header(&frame[ip..]);
    frame[check..check + 2].copy_from_slice(&pseudo.to_be_bytes());
    frame[salt..salt + 2].fill(0);
    let rest = Sum::of(&frame[ip + 20..]).word(pseudo).finish();
    frame[salt..salt + 2].copy_from_slice(&rest.to_be_bytes());
}

/// Without a daemon, what the program hands up is lost, so only what needs a worker is handed up.
#[test]
fn a_complete_checksum_that_equals_the_pseudo_headers_sum_is_forwarded() {
    with_bed(|mut bed| {
        let plain = udp(2, &[7; 75]);
        let mut with_outer = plain.clone();
        with_outer.checksum = true;
        let [udp, mut tcp, mut outer] = [&plain, &plain, &with_outer].map(Sent::bytes);
        tcp[73] = 6;
        outer[90..92].fill(0);
        for (mut frame, ip, check) in [(udp, 64, 90), (tcp, 64, 100), (outer, 14, 40)] {
            make_ambiguous(&mut frame, ip, check, 110);
            let ran = bed.run(&frame);
            assert_eq!(ran.outcome, Outcome::Forwarded, "{check}: {frame:02x?}");
            assert_eq!(ran.bytes, bed.decide(&frame).1, "{check}");
            // With other data it is the pseudo header's sum and nothing else.
            *frame.last_mut().unwrap() ^= 1;
            assert_eq!(bed.run(&frame).outcome, slow(SlowCause::Checksum), "{check}");
        }
    });
}

#[test]
fn another_port_and_another_way() {
    with_bed(|bed| {
        let ran = bed.run(&udp(4, b"").bytes());
        assert_eq!((ran.outcome, ran.verdict), (Outcome::Redirected, Verdict::Redirect));
        assert_eq!(ran.bytes[6..12], [2, 0, 0, 0, 1, 0xfd], "the second port's address");
        assert_eq!(bed.run(&udp(4, &[0; 60]).bytes()).outcome, slow(SlowCause::TooLong));
        assert_eq!(
            bed.run(&udp(3, b"").bytes()).outcome,
            slow(SlowCause::Encapsulation),
            "IPv6"
        );
        assert_eq!(
            bed.run(&udp(5, b"").bytes()).outcome,
            slow(SlowCause::Encapsulation),
            "Geneve"
        );
        let geneve = Sent {
            encapsulation: Encapsulation::Geneve,
            ..udp(5, b"")
        };
        assert_eq!(bed.run(&geneve.bytes()).outcome, Outcome::Forwarded);
        assert_eq!(bed.run(&udp(99, b"").bytes()).outcome, slow(SlowCause::Miss));
        let elsewhere = Sent { vni: 7, ..udp(2, b"") };
        assert_eq!(
            bed.run(&elsewhere.bytes()).outcome,
            slow(SlowCause::Miss),
            "another network"
        );
    });
}

/// Right at the limit, and one more.
#[test]
fn the_mtu_counts_from_the_outer_ip_header() {
    with_bed(|bed| {
        let headers = 20 + 8 + 8 + 14 + 20 + 8;
        let most = usize::from(crate::gateway::bed::SHORT) - headers;
        assert_eq!(bed.run(&udp(4, &vec![0; most]).bytes()).outcome, Outcome::Redirected);
        assert_eq!(
            bed.run(&udp(4, &vec![0; most + 1]).bytes()).outcome,
            slow(SlowCause::TooLong)
        );
    });
}

#[test]
fn a_port_that_is_not_there() {
    with_bed(|mut bed| {
        bed.configure(|config| config.ports[1] = None);
        assert_eq!(bed.run(&udp(4, b"").bytes()).outcome, slow(SlowCause::Route));
        bed.configure(|config| config.ports[0].as_mut().unwrap().v4 = None);
        assert_eq!(
            bed.run(&udp(2, b"").bytes()).outcome,
            slow(SlowCause::Route),
            "no address"
        );
        let far = ringside_bpf::gateway::CachedNeighbor {
            port: 200,
            ..neighbor(2, false)
        };
        bed.program.neighbors().put(&[(key(2, false), far)]);
        assert_eq!(bed.run(&udp(2, b"").bytes()).outcome, slow(SlowCause::Route));
    });
}

#[test]
fn a_jumbo_frame_in_several_buffers() {
    with_bed(|mut bed| {
        for payload in [3500, 5000, 8800] {
            let frame = udp(2, &vec![7; payload]).bytes();
            let ran = bed.run(&frame);
            assert_eq!(ran.outcome, Outcome::Forwarded);
            assert_eq!(ran.bytes, bed.decide(&frame).1, "{payload} bytes");
        }
        let mut cut = udp(2, &[7; 5000]).bytes();
        cut.truncate(4900);
        assert_eq!(bed.run(&cut).outcome, Outcome::Passed, "shorter than it says");
        let longer = udp(2, &[7; 9000]).bytes();
        assert_eq!(bed.run(&longer).outcome, slow(SlowCause::TooLong));
    });
}

#[test]
fn nobody_to_decide() {
    with_bed(|mut bed| {
        bed.close_worker();
        let reason = DropReason::NoWorker.number();
        // A child process forked by another test shares the socket until it calls exec.
        let frame = udp(99, b"").bytes();
        let is_dropped = |ran: &Ran| ran.outcome == Outcome::Dropped(reason);
        let ran = retry(Duration::from_secs(20), || bed.run(&frame), is_dropped);
        assert_eq!((ran.outcome, ran.verdict), (Outcome::Dropped(reason), Verdict::Drop));
        // What came by no port of the gateway's has no worker either.
        bed.configure(|config| config.ports[0] = None);
        assert_eq!(bed.run(&udp(99, b"").bytes()).outcome, Outcome::Dropped(reason));
    });
}

/// Whatever it is, and whether the fast path knows it or not; but not what is the kernel's.
#[test]
fn what_is_stale_is_dropped() {
    with_bed(|mut bed| {
        let ips = [1, 2].map(|number| match tenant(number, false) {
            std::net::IpAddr::V4(ip) => ip,
            std::net::IpAddr::V6(_) => unreachable!("IPv4"),
        });
        let question = sent(tenant_arp(mac(1), ips[0], ips[1])).bytes();
        let packets = [udp(2, b"").bytes(), udp(99, b"").bytes(), question];
        bed.configure(|config| config.stale = true);
        let reason = DropReason::Stale.number();
        for packet in &packets {
            let ran = bed.run(packet);
            assert_eq!((ran.outcome, ran.verdict), (Outcome::Dropped(reason), Verdict::Drop));
        }
        let mut other = udp(2, b"").bytes();
        // Another protocol than UDP.
        other[23] = 47;
        assert_eq!(bed.run(&other).verdict, Verdict::Pass);
        bed.configure(|config| config.stale = false);
        assert_eq!(bed.run(&packets[0]).outcome, Outcome::Forwarded);
    });
}

#[test]
fn questions_are_answered() {
    with_bed(|mut bed| {
        let (std::net::IpAddr::V4(asker), std::net::IpAddr::V4(target)) = (tenant(1, false), tenant(2, false)) else {
            unreachable!("IPv4")
        };
        let question = sent(tenant_arp(mac(1), asker, target)).bytes();
        let ran = bed.run(&question);
        assert_eq!((ran.outcome, ran.verdict), (Outcome::Answered, Verdict::Tx));
        assert_eq!(ran.bytes[..12], [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 0xfe]].concat());
        assert_eq!(ran.bytes[26..34], [192, 0, 2, 254, 192, 0, 2, 1], "back to the host");
        assert_eq!(ran.bytes[50..62], [mac(1).0, mac(2).0].concat());
        assert_eq!(ran.bytes[70..72], [0, 2], "a reply");
        assert_eq!(ran.bytes[72..78], mac(2).0);
        assert_eq!(ran.bytes, bed.decide(&question).1);

        let (std::net::IpAddr::V6(asker), std::net::IpAddr::V6(target)) = (tenant(1, true), tenant(2, true)) else {
            unreachable!("IPv6")
        };
        let question = sent(tenant_solicitation(mac(1), asker, target)).bytes();
        let ran = bed.run(&question);
        assert_eq!((ran.outcome, ran.verdict), (Outcome::Answered, Verdict::Tx));
        assert_eq!(ran.bytes, bed.decide(&question).1);
        let own = sent(tenant_solicitation(mac(2), asker, target)).bytes();
        let not_asked = DropReason::DiscoveryNotAsked.number();
        assert_eq!(bed.run(&own).outcome, Outcome::Dropped(not_asked), "its own address");
    });
}

/// Only from where the sender lives, with its MAC address.
#[test]
fn senders_are_checked() {
    with_bed(|mut bed| {
        bed.configure(|config| config.source_check = true);
        assert_eq!(bed.run(&udp(2, b"").bytes()).outcome, Outcome::Forwarded);
        let from_elsewhere = Sent {
            hosts: [host(7, false), gateway(false)],
            ..udp(2, b"")
        };
        assert_eq!(bed.run(&from_elsewhere.bytes()).outcome, slow(SlowCause::Sender));
        let ips = [tenant(1, false), tenant(2, false)];
        let as_another = tenant_udp([MacAddr([2, 9, 9, 9, 9, 9]), mac(2)], ips, [1, 2], 64, b"");
        assert_eq!(bed.run(&sent(as_another).bytes()).outcome, slow(SlowCause::Sender));
        let unknown = tenant_udp([mac(9), mac(2)], [tenant(9, false), ips[1]], [1, 2], 64, b"");
        assert_eq!(bed.run(&sent(unknown).bytes()).outcome, slow(SlowCause::Sender));
    });
}

#[test]
fn a_program_without_settings_keeps_out_of_the_way() {
    if !privileged() {
        return;
    }
    let program = GatewayProgram::load(SIZES).unwrap();
    let frame = udp(2, b"").bytes();
    assert_eq!(ringside_bpf::dry_run(&program, &frame).unwrap(), (Verdict::Pass, frame));
    assert_eq!(program.count(Outcome::Passed).unwrap().packets, 1);
}

#[test]
fn bytes_are_counted_with_packets() {
    with_bed(|bed| {
        let frame = udp(2, b"12345").bytes();
        let padded = [&frame[..], &[0; 20]].concat();
        for frame in [&frame, &padded] {
            bed.run(frame);
        }
        let counted = bed.program.count(Outcome::Forwarded).unwrap();
        assert_eq!(
            (counted.packets, counted.bytes),
            (2, 2 * frame.len() as u64),
            "without padding"
        );
        let unknown = udp(99, b"12345").bytes();
        bed.run(&unknown);
        let counted = bed.program.count(slow(SlowCause::Miss)).unwrap();
        assert_eq!((counted.packets, counted.bytes), (1, unknown.len() as u64));
    });
}

/// Each filter shows what it names, in either role, and nothing else.
#[test]
fn samples_of_what_is_asked_for() {
    with_bed(|mut bed| {
        let question = match (tenant(1, false), tenant(4, false)) {
            (std::net::IpAddr::V4(asker), std::net::IpAddr::V4(target)) => tenant_arp(mac(1), asker, target),
            _ => unreachable!("IPv4"),
        };
        let v6 = tenant_udp([mac(1), mac(2)], [tenant(1, true), tenant(2, true)], [1, 2], 64, b"");
        let mut not_ours = udp(2, b"").bytes();
        not_ours[23] = 6;
        let frames = [
            udp(2, b"").bytes(),
            udp(4, b"").bytes(),
            Sent { vni: 7, ..udp(2, b"") }.bytes(),
            sent(question).bytes(),
            sent(v6).bytes(),
            not_ours,
        ];
        // Without the flag that says that there is a network.
        let mut unflagged = udp(2, b"").bytes();
        unflagged[42] = 0;
        let mut multicast = udp(2, b"").bytes();
        multicast[50] = 1;
        let [flags, multicasts] = [DropReason::VxlanFlags, DropReason::InnerMulticast].map(|reason| reason.number());
        let frames = frames.into_iter().chain([unflagged, multicast]).collect::<Vec<_>>();
        let (vni, all) = (Some(VNI), Sampling::default());
        let dropped = |drops| Sampling {
            drops: Some(drops),
            ..all
        };
        for (sampling, expected) in [
            (None, vec![]),
            (Some(Sampling::default()), vec![0, 1, 2, 3, 4, 5, 6, 7]),
            (Some(Sampling { vni, ..all }), vec![0, 1, 3, 4, 7]),
            (Some(Sampling { vni: Some(7), ..all }), vec![2]),
            (
                Some(Sampling {
                    vni: None,
                    ip: Some(tenant(2, false)),
                    ..all
                }),
                vec![0, 2],
            ),
            (
                Some(Sampling {
                    vni,
                    ip: Some(tenant(4, false)),
                    ..all
                }),
                vec![1, 3],
            ),
            (
                Some(Sampling {
                    vni,
                    ip: Some(tenant(1, false)),
                    ..all
                }),
                vec![0, 1, 3],
            ),
            (
                Some(Sampling {
                    vni,
                    ip: Some(tenant(1, true)),
                    ..all
                }),
                vec![4],
            ),
            (
                Some(Sampling {
                    vni: None,
                    ip: Some(tenant(77, false)),
                    ..all
                }),
                vec![],
            ),
            (Some(dropped(Drops::Any)), vec![6, 7]),
            (Some(dropped(Drops::For(flags))), vec![6]),
            (Some(dropped(Drops::For(multicasts))), vec![7]),
            (
                Some(Sampling {
                    vni,
                    ..dropped(Drops::Any)
                }),
                vec![7],
            ),
            (Some(dropped(Drops::For(63))), vec![]),
        ] {
            bed.configure(|config| config.sampling = sampling);
            let mut shown = Vec::new();
            for (place, frame) in frames.iter().enumerate() {
                ringside_bpf::dry_run(&bed.program, frame).unwrap();
                for sample in bed.samples() {
                    assert_eq!(sample.bytes, *frame);
                    assert_eq!((sample.ifindex, sample.queue), (1, 0));
                    shown.push(place);
                }
            }
            assert_eq!(shown, expected, "{sampling:?}");
        }
    });
}

#[test]
fn samples_that_nobody_reads_are_counted() {
    with_bed(|bed| {
        let frame = udp(2, b"").bytes();
        for _ in 0..1000 {
            ringside_bpf::dry_run(&bed.program, &frame).unwrap();
        }
        let shown = bed.samples().len() as u64;
        assert!(shown > 100);
        assert_eq!(bed.program.samples_lost().unwrap(), 1000 - shown);
        assert_eq!(bed.program.count(Outcome::Forwarded).unwrap().packets, 1000);
    });
}

/// Each set of settings is met whole: addresses and ports that never are together are never seen together.
#[test]
fn settings_change_without_a_gap() {
    with_bed(|mut bed| {
        bed.configure(|config| config.sampling = None);
        let one = bed.config.clone();
        let two = GatewayConfig {
            derive_source_port: true,
            ttl: 7,
            ..one.clone()
        };
        let frame = udp(2, b"data").bytes();
        let of = |config| {
            bed.program.configure(config).unwrap();
            ringside_bpf::dry_run(&bed.program, &frame).unwrap().1
        };
        let (first, second) = (of(&one), of(&two));
        assert_ne!(first, second);
        let done = std::sync::atomic::AtomicBool::new(false);
        let program = &bed.program;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    program.configure(if round % 2 == 0 { &one } else { &two }).unwrap();
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let (verdict, bytes) = ringside_bpf::dry_run(program, &frame).unwrap();
                assert_eq!(verdict, Verdict::Tx);
                assert!(bytes == first || bytes == second);
            }
        });
    });
}

/// A VNI of all ones, a neighbour of IPv6 over IPv6, Geneve: what is not in the corpus.
#[test]
fn the_largest_network() {
    with_bed(|bed| {
        let vni = 0x00ff_ffff;
        let key = NeighborKey {
            vni,
            ip: tenant(2, true),
        };
        let there = ringside_bpf::gateway::CachedNeighbor {
            host: host(2, true),
            tunnel: Some(Tunnel::Geneve),
            ..neighbor(2, false)
        };
        bed.program.neighbors().put(&[(key, there)]);
        let frame = tenant_udp([mac(1), mac(2)], [tenant(1, true), tenant(2, true)], [1, 2], 64, b"x");
        let frame = Sent::new([host(1, true), gateway(true)], Encapsulation::Geneve, vni, frame).bytes();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
    });
}
