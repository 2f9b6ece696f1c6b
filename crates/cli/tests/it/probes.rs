//! ping and echo: every probe is answered or counted as lost, by us, by the kernel and by the ping that everybody has.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common;
use crate::common::frames::{exchange, probe_frame};
use crate::common::{MODES, assert_clean, assert_reconciles, lab, lab_with, port, run, start, start_receiver};
use ringside_measure::probe::{self, Clock, DEFAULT_PORT, Kind, Probe};
use ringside_measure::schema::Operation;
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, VethConfig};
use ringside_wire::MacAddr;
use ringside_wire::flow::{ChecksumState, parse_udp};

/// Every way of waiting, in every mode, by every kind of address: all probes are answered, and the figures make sense.
#[test]
fn ping_and_echo_in_every_wait_policy() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        queues: 2,
        ..VethConfig::tagged("ping")
    });
    for mode in MODES {
        for wait in ["spin", "poll", "busy-poll"] {
            let echo = start_receiver(&lab.b, &format!("echo {{}} -m {mode} --wait {wait} --json"));
            let peers = [
                lab.b.ipv4.to_string(),
                lab.b.ipv6.to_string(),
                MacAddr(lab.b.mac).to_string(),
            ];
            for (to, smallest) in peers.iter().zip([82, 102, 82]) {
                let ping = format!("ping {{}} -m {mode} --wait {wait} --to {to} --count 100 --json");
                let result = run(&lab.a, &ping).good().result();
                assert_eq!(result.frame_bytes, Some(smallest));
                assert_eq!(result.depth_packets, Some(1));
                all_answered(&result, 100);
            }
            let result = echo.interrupt().good().result();
            assert_eq!(result.operation, Operation::Echo);
            assert!(
                result.queues.iter().map(|queue| queue.sent_packets).sum::<u64>() >= 300,
                "{result:#?}"
            );
            assert_reconciles(&result);
        }
    }
    assert_clean(&lab.a);
    assert_clean(&lab.b);
}

/// Depth, schedule and size.
#[test]
fn ping_in_depth_and_by_schedule() {
    if !is_root() {
        return;
    }
    let lab = lab("depth", 2);
    let to = lab.b.ipv4;
    let _echo = start_receiver(&lab.b, "echo {}");
    let ping = |more: &str| {
        run(&lab.a, &format!("ping {{}} --to {to} {more} --json"))
            .good()
            .result()
    };

    let result = ping("--depth 16 --count 500 --size 1000");
    assert_eq!(
        (result.frame_bytes, result.payload_bytes),
        (Some(1000), Some(1000 - 42))
    );
    assert_eq!(result.depth_packets, Some(16));
    all_answered(&result, 500);

    let result = ping("--rate 1000 --count 300");
    assert_eq!((result.target_pps, result.depth_packets), (Some(1000.0), None));
    all_answered(&result, 300);
    // The last of 300 is due 299 ms after the first.
    assert!(result.duration_ns >= 299_000_000, "{}", result.duration_ns);
    let latency = result.latency.unwrap();
    let (raw, corrected) = (latency.raw.unwrap(), latency.corrected.unwrap());
    assert!(
        corrected.max_ns >= raw.max_ns,
        "from the intended sending it takes as long at least"
    );

    let result = ping("--rate 2000 -t 0.5 --wait poll");
    let counts = result.sequence.unwrap();
    // The end may be late on a busy machine, and the rate is kept until then.
    let due = result.duration_ns * 2000 / 1_000_000_000;
    assert!((due / 2..=due + 10).contains(&counts.sent), "{due} due: {counts:?}");
}

/// The run in pieces: each tells the median of the round trips in it, if there were enough for one.
#[test]
fn intervals_have_medians_of_their_own() {
    if !is_root() {
        return;
    }
    let lab = lab("intervals", 1);
    let to = lab.b.ipv4;
    let echo = start_receiver(&lab.b, "echo {} --json");
    let done = run(&lab.a, &format!("ping {{}} --to {to} --depth 2 -t 2 -i 0.2 --json")).good();
    let result = done.result();
    let raw = result.latency.unwrap().raw.unwrap();
    assert!(result.intervals.len() >= 3, "{:?}", result.intervals);
    // The ends are exact, the medians of pieces have three digits.
    let possible = raw.min_ns..=raw.max_ns + raw.max_ns / 1_000;
    for p50 in result.intervals.iter().filter_map(|part| part.p50_ns) {
        assert!(possible.contains(&p50), "{p50} of {raw:?}");
    }
    // A time is noted before its packet is counted. In later pieces either may be the next one's.
    let first = result.intervals[0];
    assert!(first.received_packets < 20 || first.p50_ns.is_some(), "{first:?}");
    let shown = done.err.lines().filter(|line| line.contains("RTT p50")).count();
    let known = result.intervals.iter().filter(|part| part.p50_ns.is_some()).count();
    assert!(known >= 1, "{:?}", result.intervals);
    assert_eq!(shown, known, "{}", done.err);

    // Nothing is timed by others, and too few are no median.
    let few = run(&lab.a, &format!("ping {{}} --to {to} --count 19 --json"))
        .good()
        .result();
    assert_eq!(few.latency.unwrap().raw.unwrap().samples, 19);
    let answers = echo.interrupt().good().result();
    for interval in few.intervals.iter().chain(&answers.intervals) {
        assert_eq!(interval.p50_ns, None, "{interval:?}");
    }
}

/// Sequence figures complete, and the summary of the times consistent in itself.
fn all_answered(result: &ringside_measure::schema::RunResult, count: u64) {
    assert_eq!(result.operation, Operation::Ping);
    let counts = result.sequence.expect("numbered");
    assert_eq!(
        (counts.sent, counts.received, counts.lost),
        (count, count, 0),
        "{counts:?}"
    );
    assert_eq!((counts.duplicated, counts.unexpected), (0, 0), "{counts:?}");
    assert_reconciles(result);
    let latency = result.latency.as_ref().expect("timed");
    assert_eq!(latency.clock, Clock::Monotonic);
    assert_eq!(latency.impossible_packets, 0);
    let raw = latency.raw.as_ref().expect("samples");
    assert_eq!(raw.samples, count);
    let p50 = raw.p50_ns.expect("enough samples for a median");
    assert!(0 < raw.min_ns && raw.min_ns <= p50 && p50 <= raw.max_ns, "{raw:?}");
    assert_eq!(raw.p99_9_ns, None, "too few samples for that");
    // Without a schedule there is nothing that omission could hide, and nothing to correct.
    let is_scheduled = result.target_pps.is_some();
    assert_eq!(latency.corrected.is_some(), is_scheduled, "{latency:?}");
    assert_eq!(latency.corrected_hdr.is_some(), is_scheduled);
    let sender = result.sender_lateness.map(|sender| sender.times.samples);
    assert_eq!(sender, is_scheduled.then_some(count), "{result:?}");
    assert!(latency.jitter.is_some());
}

/// Nobody answers: all are lost, and the run is a failure. Somebody stops to answer: the rest is lost, and it is none.
#[test]
fn lost_probes_are_counted() {
    if !is_root() {
        return;
    }
    let lab = lab("lost", 1);
    let to = lab.b.ipv4;
    for depth in [1, 8] {
        let ping = format!("ping {{}} --to {to} --count 10 --timeout 0.02 --depth {depth} --json");
        let done = run(&lab.a, &ping);
        assert!(done.bad().contains("10 probe(s) sent, none answered"), "{done:#?}");
        let counts = done.result().sequence.unwrap();
        assert_eq!((counts.sent, counts.received, counts.lost), (10, 0, 10));
        assert_eq!(done.result().latency.unwrap().raw, None, "nothing was timed");
    }

    let echo = start_receiver(&lab.b, "echo {} --count 10 --batch 1");
    let done = run(&lab.a, &format!("ping {{}} --to {to} --count 30 --timeout 0.02 -v")).good();
    assert!(
        done.out
            .contains("30 sent, 10 received, 20 lost (66.6667 %), 0 duplicated, 0 out of order"),
        "{}",
        done.out
    );
    assert!(done.out.contains("too few samples for this percentile"), "{}", done.out);
    echo.end().good();
}

/// Answers that come twice and in the wrong order, and those of another run, are told apart.
#[test]
fn odd_answers_are_told_apart() {
    if !is_root() {
        return;
    }
    let lab = lab("odd", 1);
    // Holds every probe until the next one is there, and answers that first, twice; the last alone, by its kernel.
    let socket = lab.b.run(|| UdpSocket::bind((lab.b.ipv4, DEFAULT_PORT)).unwrap());
    let ping = start(
        &lab.a,
        &format!("ping {{}} --to {} --depth 2 --count 20 --json", lab.b.ipv4),
    );
    socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
    for _ in 0..10 {
        let mut pair: Vec<Vec<u8>> = Vec::new();
        let mut from = None;
        for _ in 0..2 {
            let mut data = [0; 2048];
            let (length, peer) = socket.recv_from(&mut data).expect("a probe");
            let mut probe = data[..length].to_vec();
            probe::make_reply_in_place(&mut probe).expect("a request");
            pair.push(probe);
            from = Some(peer);
        }
        let from = from.unwrap();
        let mut foreign = pair[0].clone();
        foreign[8] ^= 0x55;
        for answer in [&foreign, &pair[1], &pair[1], &pair[0]] {
            socket.send_to(answer, from).unwrap();
        }
    }
    let counts = ping.end().good().result().sequence.unwrap();
    assert_eq!((counts.sent, counts.received, counts.lost), (20, 20, 0), "{counts:?}");
    assert_eq!((counts.reordered, counts.longest_reordering), (10, 1), "{counts:?}");
    // The last of them may come after all are answered.
    assert!(
        (9..=10).contains(&counts.duplicated) && counts.unexpected == 10,
        "{counts:?}"
    );
}

/// The kernel is witness: it drops datagrams with a wrong checksum. Whole checksums and those left to a NIC, both families.
#[test]
fn checksums_are_right_to_the_kernel() {
    if !is_root() {
        return;
    }
    for tx_checksum in [false, true] {
        let lab = lab_with(VethConfig {
            tx_checksum,
            ..VethConfig::tagged("checksum")
        });
        let echo = start_receiver(&lab.b, "echo {}");
        for ip in [IpAddr::V4(lab.b.ipv4), IpAddr::V6(lab.b.ipv6)] {
            // A probe by the kernel, answered by `echo`, taken by the kernel.
            let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = lab.a.run(|| UdpSocket::bind(any).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut request = [0x5a; 301];
            let probe = Probe {
                kind: Kind::Request,
                clock: Clock::Tai,
                session: 77,
                sequence: 1 << 40,
                intended_ns: 3,
                sent_ns: u64::MAX,
            };
            probe.encode(&mut request).unwrap();
            socket.send_to(&request, SocketAddr::new(ip, DEFAULT_PORT)).unwrap();
            let mut answer = [0; 400];
            let (length, from) = socket
                .recv_from(&mut answer)
                .unwrap_or_else(|error| panic!("{ip}, {tx_checksum}: {error}"));
            assert_eq!((length, from), (301, SocketAddr::new(ip, DEFAULT_PORT)));
            assert_eq!(
                Probe::decode(&answer).unwrap(),
                Probe {
                    kind: Kind::Reply,
                    ..probe
                }
            );
            assert_eq!(answer[probe::HEADER_LEN..301], request[probe::HEADER_LEN..]);
        }
        echo.interrupt().good();
        // Probes by `ping`, taken and answered by the kernel and an ordinary program.
        for ip in [IpAddr::V4(lab.b.ipv4), IpAddr::V6(lab.b.ipv6)] {
            let (stop, server) = (
                AtomicBool::new(false),
                lab.b.run(|| UdpSocket::bind((ip, DEFAULT_PORT)).unwrap()),
            );
            server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let result = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut data = [0; 2048];
                    while !stop.load(Ordering::Relaxed) {
                        if let Ok((length, from)) = server.recv_from(&mut data) {
                            probe::make_reply_in_place(&mut data[..length]).expect("a request");
                            server.send_to(&data[..length], from).expect("sends");
                        }
                    }
                });
                let done = run(&lab.a, &format!("ping {{}} --to {ip} --count 25 --size 333 --json"));
                stop.store(true, Ordering::Relaxed);
                done.good().result()
            });
            assert_eq!(result.sequence.unwrap().received, 25, "{ip}, {tx_checksum}");
        }
    }
}

/// The ping that everybody has, over both families, and through it all the kernel answers ARP and neighbour discovery.
/// Who asks for an address that is not the interface's gets no answer.
#[test]
fn echo_answers_ping_of_iputils_and_the_kernel_answers_arp() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        queues: 2,
        static_neighbours: false,
        ..VethConfig::tagged("icmp")
    });
    let name = lab.a.interface.name();
    for (end, link_local) in [(&lab.a, "fe80::1/64"), (&lab.b, "fe80::2/64")] {
        ip(
            end,
            &format!("address add {link_local} dev {} nodad", end.interface.name()),
        );
    }
    // Addresses of nobody that lead to the echo's MAC address, as those do that a router has behind it.
    let foreign = [("-4", "10.77.0.9"), ("-6", "fd77::9")];
    for (_, ip_address) in foreign {
        let mac = MacAddr(lab.b.mac);
        ip(
            &lab.a,
            &format!("neigh add {ip_address} lladdr {mac} dev {name} nud permanent"),
        );
    }
    // The answers are the tool's: the kernel's own are switched off.
    lab.b.run(|| {
        for file in ["ipv4/icmp_echo_ignore_all", "ipv6/icmp/echo_ignore_all"] {
            std::fs::write(format!("/proc/sys/net/{file}"), "1").unwrap();
        }
    });
    let ping = |family: &str, more: &str, to: &str| {
        let mut command = lab.a.ns.command("ping");
        command
            .arg(family)
            .args(more.split(' '))
            // All at once: it waits 1 s for the last answer.
            .args(["-l", "5", "-s", "100", to]);
        let output = command.output().expect("package iputils-ping");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for mode in MODES {
        let echo = start_receiver(&lab.b, &format!("echo {{}} -m {mode} --wait poll --json"));
        for (family, to) in [("-4", lab.b.ipv4.to_string()), ("-6", lab.b.ipv6.to_string())] {
            ip(&lab.a, &format!("neigh flush dev {name}"));
            let text = ping(family, "-c 5 -W 3", &to);
            assert!(
                text.contains("5 packets transmitted, 5 received, 0% packet loss"),
                "{mode}: {text}"
            );
            // Our own ping asks for the address, too.
            ip(&lab.a, &format!("neigh flush dev {name}"));
            run(&lab.a, &format!("ping {{}} --to {to} --count 3")).good();
        }
        let text = ping("-6", "-c 5 -W 3", &format!("fe80::2%{name}"));
        assert!(text.contains("5 packets transmitted, 5 received"), "{mode}: {text}");
        for (family, to) in foreign {
            let text = ping(family, "-c 3 -W 1", to);
            assert!(text.contains("3 packets transmitted, 0 received"), "{mode}: {text}");
        }
        let result = echo.interrupt().good().result();
        let answers: u64 = result.queues.iter().map(|queue| queue.sent_packets).sum();
        assert_eq!(answers, 2 * (5 + 3) + 5, "{result:#?}");
        // It took them from the interface all the same.
        assert_eq!(result.packets.delivered(), answers + 2 * 3, "{result:#?}");
        assert_reconciles(&result);
        let neighbours: u64 = result
            .queues
            .iter()
            .filter_map(|queue| queue.xdp_verdicts)
            .map(|xdp| xdp.passed_neighbour_packets)
            .sum();
        assert!(neighbours >= 2, "{result:#?}");
    }
}

/// `ip` with these words, in an end's namespace.
fn ip(end: &End, words: &str) {
    let output = end
        .ns
        .command("ip")
        .args(words.split(' '))
        .output()
        .expect("package iproute2");
    assert!(output.status.success(), "ip {words}: {output:?}");
}

/// Two pings at once: on one interface there is one XDP program, so the second is refused and the first goes on.
#[test]
fn a_second_ping_does_not_disturb_the_first() {
    if !is_root() {
        return;
    }
    let lab = lab("two", 2);
    let _echo = start_receiver(&lab.b, "echo {}");
    let first = start(
        &lab.a,
        &format!("ping {{}} --to {} --rate 100 --count 300 --json", lab.b.ipv4),
    );
    first.wait_for("bytes");
    let second = run(
        &lab.a,
        &format!("ping {{}} --to {} --from-port 6000 --count 5", lab.b.ipv4),
    );
    let message = second.refused();
    assert!(
        message.contains("already has an XDP program: ringside_xsk"),
        "{message}"
    );
    assert!(
        message.contains(&format!("end process {} (ringside)", first.pid())),
        "{message}"
    );
    all_answered(&first.end().good().result(), 300);
}

/// Probes of a VLAN are answered into the VLAN.
#[test]
fn vlan_tagged_probes_are_answered() {
    if !is_root() {
        return;
    }
    let lab = lab("vlan", 1);
    let echo = start_receiver(&lab.b, "echo {}");
    let mut client = port(&lab.a, |port| port);
    let mut frame = probe_frame(&lab.a, &lab.b);
    frame.splice(12..12, [0x81, 0x00, 0x20, 0x2a]);
    let back = exchange(&mut client, &[frame.clone()]);
    assert_eq!(back.len(), 1);
    assert_eq!(back[0][..12], [lab.a.mac, lab.b.mac].concat());
    assert_eq!(back[0][12..16], frame[12..16], "the tag");
    let udp = parse_udp(&back[0]).unwrap();
    assert_eq!(udp.checksum_state(&back[0]), ChecksumState::Valid);
    assert_eq!(Probe::decode(&back[0][udp.payload]).unwrap().kind, Kind::Reply);
    drop(client);
    echo.interrupt().good();
}

/// Options that ping(8) has too, and that mean something else here.
#[test]
fn options_of_ping_are_explained() {
    if !is_root() {
        return;
    }
    let lab = lab("pinglike", 1);
    let server = start_receiver(&lab.b, "echo {}");
    let done = run(&lab.a, &format!("ping {{}} --to {} -i 0.25 -c 0 -t 500ms", lab.b.ipv4)).good();
    for hint in ["ping's -i 0.25 is --rate 4", "ping's -c 0 is --count 0"] {
        assert!(done.err.contains(hint), "{done:#?}");
    }
    let done = run(
        &lab.a,
        &format!(
            "ping {{}} --to {} --rate 1k --count 0.1k -i 250ms -c 0 --json",
            lab.b.ipv4
        ),
    )
    .good();
    assert!(!done.err.contains("ping's"), "{done:#?}");
    all_answered(&done.result(), 100);
    server.interrupt().good();
}
