//! The five commands with packets: what is sent arrives or is counted, and the figures are right.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{MODES, assert_clean, assert_reconciles, lab, lab_with, losses, port, run, start, start_receiver};
use ringside_measure::probe::{self, Clock, DEFAULT_PORT, Kind, Probe};
use ringside_measure::schema::{Mode, Operation};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, Namespace, VethConfig};
use ringside_wire::flow::{ChecksumState, UdpFlow, parse_udp};
use ringside_wire::{MacAddr, swap_macs};
use ringside_xsk::{Direction, Port, QueueOptions, Wait};

fn obtained(mode: &str) -> Mode {
    match mode {
        "native" => Mode::NativeCopy,
        _ => Mode::Generic,
    }
}

/// Which queues to receive on, and which to send from so that packets come there.
///
/// In native mode a veth delivers transmit queue q to receive queue q. In generic mode the receiver takes the mark that the
/// sender's choice left in the buffer for its own, which counts from 1: q arrives at q - 1, and 0, "none", at 0
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/skb_get_rx_queue>).
fn steering(mode: &str) -> [(&'static str, &'static str); 4] {
    match mode {
        "native" => [("-q 0", "-q 0"), ("-q 2", "-q 2"), ("-q 1,3", "-q 1,3"), ("", "")],
        _ => [("-q 0", "-q 0"), ("-q 2", "-q 3"), ("-q 1,2", "-q 2,3"), ("", "")],
    }
}

/// tx to rx, native and generic, on one queue, on another, and on all: every packet is received or counted as lost.
#[test]
fn every_packet_sent_is_received_or_counted() {
    if !is_root() {
        return;
    }
    let lab = lab("sent", 4);
    for mode in MODES {
        for (queues, from) in steering(mode) {
            let receiver = start_receiver(
                &lab.b,
                &format!("rx {{}} -m {mode} {queues} --frames 2048 --wait poll --json"),
            );
            let count = 4000;
            let sent = format!(
                "tx {{}} {from} --to {} --count {count} --rate 100000 --size 200 --json",
                lab.b.ipv4
            );
            let sent = run(&lab.a, &sent).good().result();
            let document = receiver.interrupt().good();
            let (document, received) = (document.document(), document.result());

            assert_eq!(sent.operation, Operation::Tx);
            assert_eq!(sent.packets.sent, count, "--count is exact");
            assert_eq!(sent.frame_bytes, Some(200));
            assert_eq!(sent.payload_bytes, Some(200 - 42));
            assert_eq!(sent.target_pps, Some(100_000.0));
            assert_reconciles(&sent);

            assert_eq!(received.operation, Operation::Rx);
            assert_reconciles(&received);
            let arrived = sent.packets.received;
            assert_eq!(
                received.packets.received + losses(&received),
                arrived,
                "{mode} {queues}: {received:#?} {sent:#?}"
            );
            assert_eq!(arrived + losses(&sent), count);
            // A machine that is busy with other things may lose some; nearly all would mean that nothing works.
            assert!(received.packets.received > count / 2, "{mode} {queues}: {received:#?}");
            let rates = received.received.expect("received");
            let bits = rates.packets_pps * 200.0 * 8.0;
            assert!((rates.frame_bps - bits).abs() < bits * 0.001, "{rates:?}");

            let interface = &document.interfaces[0];
            assert_eq!(interface.name, lab.b.interface.name());
            assert!(
                interface.queues.iter().all(|queue| queue.mode == obtained(mode)),
                "{interface:?}"
            );
            let used: Vec<u32> = received.queues.iter().map(|queue| queue.queue).collect();
            match queues {
                "" => assert_eq!(used, [0, 1, 2, 3]),
                list => assert_eq!(
                    format!("-q {}", used.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
                    list
                ),
            }
            if queues.is_empty() && mode == "generic" {
                continue;
            }
            for (from, to) in sent.queues.iter().zip(&received.queues) {
                assert!(to.received_packets <= from.sent_packets, "{from:?} {to:?}");
                assert!(from.sent_packets == 0 || to.received_packets > 0, "{from:?} {to:?}");
            }
        }
    }
    assert_clean(&lab.b);
}

/// A receiver whose frames do not suffice loses packets, says how many and why, and still adds up.
#[test]
fn losses_are_counted_and_explained() {
    if !is_root() {
        return;
    }
    let lab = lab("losses", 1);
    let receiver = start_receiver(&lab.b, "rx {} --frames 16");
    // Asleep, it gives no frame back.
    receiver.signal(libc::SIGSTOP);
    let sent = run(
        &lab.a,
        &format!("tx {{}} --to {} --count 500 --rate 50000 --json", lab.b.ipv4),
    )
    .good()
    .result();
    assert_eq!(sent.packets.received, 500, "{sent:#?}");
    receiver.signal(libc::SIGCONT);
    let done = receiver.interrupt().good();
    assert!(done.out.contains("received       16 packets in"), "{}", done.out);
    assert!(
        done.out.contains("lost           484 (96.8000 %): rx_dropped"),
        "{}",
        done.out
    );
    assert!(done.out.contains("rx_fill_ring_empty 484"), "{}", done.out);
    assert!(done.out.contains("--frames N"), "{}", done.out);
    assert!(!done.out.contains("unaccounted"), "{}", done.out);
}

/// Packets still flow when the receiver ends: it ends all the same, and adds up.
#[test]
fn a_receiver_ends_while_packets_flow() {
    if !is_root() {
        return;
    }
    let lab = lab("flow", 2);
    let sender = start(&lab.a, &format!("tx {{}} --to {} --json", lab.b.ipv4));
    for wait in ["spin", "poll", "busy-poll"] {
        let received = run(&lab.b, &format!("rx {{}} -t 0.3 --wait {wait} --json"))
            .good()
            .result();
        assert!(received.packets.received > 0);
        assert_reconciles(&received);
        assert!(
            (250_000_000..5_000_000_000).contains(&received.duration_ns),
            "{}",
            received.duration_ns
        );
    }
    assert_reconciles(&sender.interrupt().good().result());
}

/// As many as asked for, to the packet, also when several queues share the number. The other end's link is witness.
#[test]
fn count_is_exact() {
    if !is_root() {
        return;
    }
    let lab = lab("count", 4);
    for (count, more) in [
        (1, ""),
        (63, "--batch 64"),
        (1000, "--batch 7 -q 1"),
        (20_000, ""),
        (5, "--rate 1000"),
    ] {
        let before = lab.b.state().unwrap().stats.rx_packets;
        let sent = run(
            &lab.a,
            &format!("tx {{}} --to {} --count {count} {more} --json", lab.b.ipv4),
        )
        .good()
        .result();
        assert_eq!(sent.packets.sent, count, "{more}");
        assert_eq!(
            sent.queues.iter().map(|queue| queue.sent_packets).sum::<u64>(),
            count,
            "{more}"
        );
        assert_reconciles(&sent);
        let arrived = lab.b.state().unwrap().stats.rx_packets - before;
        assert_eq!(arrived, sent.packets.received, "{more}");
    }
    // The receiver ends by itself, with the burst that holds the last one.
    let receiver = start_receiver(&lab.b, "rx {} --count 100 --batch 16 --json");
    let sender = start(&lab.a, &format!("tx {{}} --to {} --rate 10000", lab.b.ipv4));
    let received = receiver.end().good().result();
    assert!(received.packets.received >= 100, "{received:#?}");
    assert_reconciles(&received);
    sender.interrupt().good();
}

/// A rate is kept in the mean and, with several queues, in between.
#[test]
fn a_rate_is_kept() {
    if !is_root() {
        return;
    }
    let lab = lab("rate", 4);
    let to = lab.b.ipv4;
    for wait in ["spin", "poll"] {
        let sent = run(
            &lab.a,
            &format!("tx {{}} --to {to} --rate 3000 -t 1 --wait {wait} --json"),
        )
        .good()
        .result();
        let due = sent.duration_ns * 3000 / 1_000_000_000;
        assert!(
            (due / 2..=due + 64).contains(&sent.packets.sent),
            "{wait}, {due} due: {}",
            sent.packets.sent
        );
    }
    let arguments = format!("tx {{}} --to {to} --rate 8 --count 8 -i 0.1 --wait poll --json");
    let sent = run(&lab.a, &arguments).good().result();
    assert_eq!(sent.packets.sent, 8);
    assert!(
        sent.duration_ns > 800_000_000,
        "the eighth is due after 875 ms: {}",
        sent.duration_ns
    );
    let at_once = sent.intervals.iter().map(|interval| interval.sent_packets).max();
    assert!(
        at_once.is_some_and(|packets| packets < 4),
        "the queues take turns: {:?}",
        sent.intervals
    );
}

/// Frames of many sizes come back as they went, MAC addresses swapped, on the queue they came from.
#[test]
fn fwd_swaps_macs_and_nothing_else() {
    if !is_root() {
        return;
    }
    let lab = lab("fwd", 2);
    for (mode, wait) in [
        ("native", "spin"),
        ("native", "poll"),
        ("generic", "poll"),
        ("native", "busy-poll"),
    ] {
        let forwarder = start_receiver(&lab.b, &format!("fwd {{}} -m {mode} --wait {wait} --count 300 --json"));
        let mut client = port(&lab.a, |port| port);
        let frames: Vec<Vec<u8>> = (0..300).map(|number| frame(number, &lab.a, &lab.b)).collect();
        let mut back = exchange(&mut client, &frames);
        for frame in &mut back {
            swap_macs(frame).unwrap();
        }
        back.sort();
        let mut frames = frames;
        frames.sort();
        assert_eq!(back.len(), 300, "{mode} {wait}");
        assert!(back == frames, "{mode} {wait}: bytes");
        drop(client);
        let result = forwarder.end().good().result();
        assert_eq!(result.operation, Operation::Fwd);
        assert_eq!(
            (result.packets.sent, result.packets.received),
            (300, 300),
            "{result:#?}"
        );
        assert_reconciles(&result);
        assert!(
            result
                .queues
                .iter()
                .all(|queue| queue.sent_packets == queue.received_packets)
        );
    }
    // The text says what was sent, not what was taken.
    let forwarder = start_receiver(&lab.b, "fwd {} --filter udp:9");
    let mut client = port(&lab.a, |port| port);
    let own = [frame(1, &lab.a, &lab.b), datagram(&lab.a, &lab.b, 9)];
    assert_eq!(
        exchange(&mut client, &own).len(),
        1,
        "only the one that the filter wants"
    );
    drop(client);
    let text = forwarder.interrupt().good().out;
    assert!(text.contains("sent           1 packets in"), "{text}");
}

/// From one interface to another, whatever the numbers of queues, bytes untouched.
#[test]
fn fwd_out_sends_on_unchanged() {
    if !is_root() {
        return;
    }
    for (queues_in, queues_out) in [(1, 1), (4, 1), (1, 4)] {
        let [left, middle, right] = ["fwd-l", "fwd-m", "fwd-r"].map(|tag| Namespace::create(tag).expect("namespace"));
        let config = |subnet, queues, names: [&str; 2]| VethConfig {
            subnet,
            queues,
            ipv6: false,
            gro: true,
            ..VethConfig::named(names[0], names[1])
        };
        let one = Lab::join(&left, &middle, config(1, queues_in, ["far", "in"])).expect("link");
        let two = Lab::join(&middle, &right, config(2, queues_out, ["out", "far"])).expect("link");
        let mut receiver = port(&two.b, |port| port.options(QueueOptions::new().frames(4096)));
        let forwarder = start_receiver(&one.b, "fwd {} --out out --json");
        forwarder.wait_for("copied from one UMEM");
        let mut sender = port(&one.a, |port| {
            port.options(QueueOptions::new().direction(Direction::Transmit))
        });
        let frames: Vec<Vec<u8>> = (0..400).map(|number| frame(number, &one.a, &two.b)).collect();
        send(&mut sender, &frames);
        let mut got = receive(&mut receiver, frames.len());
        got.sort();
        let mut frames = frames;
        frames.sort();
        assert!(
            got == frames,
            "{queues_in} -> {queues_out}: {} frames of {}",
            got.len(),
            frames.len()
        );
        let done = forwarder.interrupt().good();
        let result = done.result();
        assert_eq!(result.packets.received, 400, "{result:#?}");
        assert_reconciles(&result);
        let names: Vec<String> = done
            .document()
            .interfaces
            .into_iter()
            .map(|interface| interface.name)
            .collect();
        assert_eq!(names, ["in", "out"]);
        assert_clean(&one.b);
        assert_clean(&two.a);
    }
}

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
    assert!(latency.corrected.is_some());
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

    let echo = start_receiver(&lab.b, "echo {} --count 10");
    let done = run(&lab.a, &format!("ping {{}} --to {to} --count 30 --timeout 0.02")).good();
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

/// What `tx` puts on the wire: addresses, ports, length and checksums as asked for.
#[test]
fn tx_sends_what_it_says() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig::tagged("wire"));
    let mac = MacAddr(lab.b.mac);
    let cases = [
        (
            format!("--to {}", lab.b.ipv4),
            format!("{}:29621 {}:29620", lab.a.ipv4, lab.b.ipv4),
            64,
        ),
        (
            format!("--to {} --size 1514", lab.b.ipv6),
            format!("[{}]:29621 [{}]:29620", lab.a.ipv6, lab.b.ipv6),
            1514,
        ),
        (
            format!("--to {mac} --size 60"),
            "198.18.0.1:29621 198.18.0.2:29620".to_owned(),
            60,
        ),
        (
            format!("--to 192.0.2.9 --to-mac {mac} --to-port 9 --from 192.0.2.1 --from-port 10 --size 61"),
            "192.0.2.1:10 192.0.2.9:9".to_owned(),
            61,
        ),
    ];
    for (arguments, ends, size) in cases {
        let mut receiver = port(&lab.b, |port| port);
        run(&lab.a, &format!("tx {{}} {arguments} --count 2")).good();
        let frames: Vec<Vec<u8>> = receive(&mut receiver, 2)
            .into_iter()
            .filter(|frame| parse_udp(frame).is_ok())
            .collect();
        assert_eq!(frames.len(), 2, "{arguments}");
        for frame in frames {
            let udp = parse_udp(&frame).expect("UDP");
            assert_eq!(frame.len(), size, "{arguments}");
            assert_eq!(format!("{} {}", udp.src, udp.dst), ends, "{arguments}");
            assert_eq!((udp.src_mac.0, udp.dst_mac.0), (lab.a.mac, lab.b.mac), "{arguments}");
            assert_eq!(udp.checksum_state(&frame), ChecksumState::Valid, "{arguments}");
        }
    }
}

/// The ping that everybody has, over both families, and through it all the kernel answers ARP and neighbour discovery.
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
    for mode in MODES {
        let echo = start_receiver(&lab.b, &format!("echo {{}} -m {mode} --wait poll --json"));
        // The answers are the tool's: the kernel's own are switched off.
        lab.b
            .run(|| std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap());
        for (family, to) in [("-4", lab.b.ipv4.to_string()), ("-6", lab.b.ipv6.to_string())] {
            let flush = lab
                .a
                .ns
                .command("ip")
                .args(["neigh", "flush", "dev", lab.a.interface.name()])
                .output()
                .unwrap();
            assert!(flush.status.success(), "{flush:?}");
            let arguments = [family, "-c", "5", "-i", "0.02", "-W", "3", "-s", "100", to.as_str()];
            let output = lab
                .a
                .ns
                .command("ping")
                .args(arguments)
                .output()
                .expect("package iputils-ping");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                text.contains("5 packets transmitted, 5 received, 0% packet loss"),
                "{mode} {family}: {output:?}"
            );
            // Our own ping asks for the address, too.
            lab.a
                .ns
                .command("ip")
                .args(["neigh", "flush", "dev", lab.a.interface.name()])
                .output()
                .unwrap();
            run(&lab.a, &format!("ping {{}} --to {to} --count 3")).good();
        }
        let result = echo.interrupt().good().result();
        let answers: u64 = result.queues.iter().map(|queue| queue.sent_packets).sum();
        assert!(answers >= 16, "{result:#?}");
        let neighbours: u64 = result
            .queues
            .iter()
            .filter_map(|queue| queue.xdp_verdicts)
            .map(|xdp| xdp.passed_neighbour)
            .sum();
        assert!(neighbours >= 2, "{result:#?}");
    }
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
        &format!("ping {{}} --to {} --rate 500 --count 300 --json", lab.b.ipv4),
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

/// Nonsense on the wire while `echo` and `rx` run: neither falls over, and nothing is answered that is no request.
#[test]
fn nonsense_packets_do_no_harm() {
    if !is_root() {
        return;
    }
    let lab = lab("nonsense", 1);
    let whole = datagram(&lab.a, &lab.b, DEFAULT_PORT);
    let mut frames = vec![vec![0xff; 14], vec![0; 60], whole.clone()];
    for cut in [14, 15, 20, 33, 34, 41, 42, 43, whole.len() - 1] {
        frames.push(whole[..cut].to_vec());
    }
    for (at, bits) in (14..46).zip([0x80_u8, 0x0f, 0xff, 0x01].into_iter().cycle()) {
        let mut frame = whole.clone();
        frame[at] ^= bits;
        frames.push(frame);
    }
    for command in ["echo {}", "rx {}", "fwd {}"] {
        let receiver = start_receiver(&lab.b, &format!("{command} --json"));
        let mut client = port(&lab.a, |port| port);
        send(&mut client, &frames);
        if command == "echo {}" {
            assert_eq!(
                receive_for(&mut client, usize::MAX, Duration::from_millis(200)),
                Vec::<Vec<u8>>::new()
            );
            drop(client);
            run(&lab.a, &format!("ping {{}} --to {} --count 3", lab.b.ipv4)).good();
        }
        let result = receiver.interrupt().good().result();
        assert_reconciles(&result);
    }
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

/// Frames longer than the UMEM's are counted as lost, not cut.
#[test]
fn jumbo_frames_are_counted_where_they_do_not_fit() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        mtu: 3000,
        ipv6: false,
        ..VethConfig::tagged("jumbo")
    });
    // Room for them on both ends.
    let receiver = start_receiver(&lab.b, "rx {} --frame-size 4096 --json");
    let tx = format!("tx {{}} --to {} --frame-size 4096 --size 3014 --count 20", lab.b.ipv4);
    run(&lab.a, &tx).good();
    let result = receiver.interrupt().good().result();
    assert_eq!(result.packets.received, 20, "{result:#?}");
    assert!(
        result
            .received
            .is_some_and(|rates| rates.frame_bps > rates.packets_pps * 3000.0 * 8.0),
        "{result:#?}"
    );
    // The receiver believes its own MTU; the sender's is larger.
    lab.b.run(|| lab.b.interface.set_mtu(1500)).unwrap();
    let receiver = start_receiver(&lab.b, "rx {} -m generic --json");
    run(&lab.a, &tx).good();
    let done = receiver.interrupt();
    let result = done.result();
    assert_eq!(result.packets.received, 0, "{result:#?}");
    assert_reconciles(&result);
    assert!(!done.bad().is_empty());
}

/// With the other end down, nothing arrives, and what was sent is counted as lost.
#[test]
fn a_dead_link_is_told() {
    if !is_root() {
        return;
    }
    let lab = lab("dead", 1);
    lab.b.set_up(false).unwrap();
    let done = run(
        &lab.a,
        &format!("tx {{}} --to {} --count 50 --json", MacAddr(lab.b.mac)),
    );
    let result = done.result();
    assert_eq!((result.packets.sent, result.packets.received), (50, 0), "{result:#?}");
    assert_reconciles(&result);
    assert_eq!(losses(&result), 50, "{result:#?}");
}

// --- the other side -------------------------------------------------------------------------------

/// A frame of an experimental ethertype, of a length and with bytes that follow from its number.
fn frame(number: u32, from: &End, to: &End) -> Vec<u8> {
    let length = 60 + number as usize * 7919 % 1455;
    let mut frame = [to.mac, from.mac].concat();
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u64 * 31 + u64::from(number)).to_le_bytes()[0]));
    frame
}

fn flow(from: &End, to: &End, port: u16) -> UdpFlow {
    UdpFlow {
        src_mac: MacAddr(from.mac),
        dst_mac: MacAddr(to.mac),
        src: (from.ipv4, 5000).into(),
        dst: (to.ipv4, port).into(),
        ttl: 64,
    }
}

/// A UDP datagram with 40 bytes that are no probe.
fn datagram(from: &End, to: &End, port: u16) -> Vec<u8> {
    let flow = flow(from, to, port);
    let mut frame = vec![7; flow.header_len() + 40];
    flow.write(&mut frame, 40).unwrap();
    frame
}

fn probe_frame(from: &End, to: &End) -> Vec<u8> {
    let flow = flow(from, to, DEFAULT_PORT);
    let mut frame = vec![0; flow.header_len() + 50];
    let probe = Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session: 5,
        sequence: 6,
        intended_ns: 7,
        sent_ns: 8,
    };
    probe.encode(&mut frame[flow.header_len()..]).unwrap();
    flow.write(&mut frame, 50).unwrap();
    frame
}

fn send(port: &mut Port, frames: &[Vec<u8>]) {
    let queue = port.queues_mut().next().unwrap();
    for frame in frames {
        let mut frame_of = |slot: &mut ringside_xsk::Packet<'_>| assert!(slot.write(frame));
        while queue.send_with(1, &mut frame_of).expect("sends") == 0 {}
        queue.flush().expect("flush");
        // The receivers have few frames, and share the machine.
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn receive(port: &mut Port, enough: usize) -> Vec<Vec<u8>> {
    receive_for(port, enough, Duration::from_secs(3))
}

/// Receives on all queues until `enough` is there, or nothing came for `patience`.
fn receive_for(port: &mut Port, enough: usize, patience: Duration) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut last = Instant::now();
    while frames.len() < enough && last.elapsed() < patience {
        for queue in port.queues_mut() {
            let mut burst = queue.recv(Wait::Poll(Duration::from_millis(1))).expect("recv");
            for packet in &mut burst {
                frames.push(packet.data().to_vec());
                last = Instant::now();
            }
        }
    }
    frames
}

/// Sends frames one after the other and collects what comes back.
fn exchange(port: &mut Port, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut back = Vec::new();
    for frame in frames {
        send(port, std::slice::from_ref(frame));
        back.extend(receive_for(port, 1, Duration::from_millis(500)));
    }
    back
}
