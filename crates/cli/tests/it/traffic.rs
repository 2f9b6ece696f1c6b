//! rx, tx and fwd with packets: what is sent arrives or is counted, and the figures are right.

use std::time::Duration;

use crate::common;
use crate::common::frames::{datagram, exchange, frame, receive, receive_for, send};
use crate::common::{MODES, assert_clean, assert_reconciles, lab, lab_with, losses, port, run, start, start_receiver};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_measure::schema::{Mode, Operation};
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_netlab::{VethConfig, wait_until};
use ringside_wire::flow::{ChecksumState, parse_udp};
use ringside_wire::{MacAddr, swap_macs};

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
            let arrived = sent.packets.delivered();
            assert_eq!(
                received.packets.delivered() + losses(&received),
                arrived,
                "{mode} {queues}: {received:#?} {sent:#?}"
            );
            assert_eq!(arrived + losses(&sent), count);
            // A machine that is busy with other things may lose some; nearly all would mean that nothing works.
            assert!(
                received.packets.delivered() > count / 2,
                "{mode} {queues}: {received:#?}"
            );
            let rates = received.received.expect("received");
            let bits = rates.packets_pps * 200.0 * 8.0;
            assert!((rates.frame_bps - bits).abs() < bits * 0.001, "{rates:?}");

            let interface = &document.interfaces[0];
            assert_eq!(interface.name, lab.b.interface.name());
            assert!(
                interface.queues.iter().all(|queue| queue.mode == obtained(mode)),
                "{interface:?}"
            );
            let with_socket = received.queues.iter().filter(|queue| queue.xdp_statistics.is_some());
            let used: Vec<u32> = with_socket.map(|queue| queue.queue).collect();
            let stages = received.cpu_stages.as_ref().expect("procfs tells");
            let workers = stages.threads.iter().filter(|thread| !thread.is_kernel);
            assert_eq!(workers.count(), used.len(), "{stages:?}");
            assert!(
                (1..=received.packets.delivered()).contains(&stages.packets),
                "{stages:?}"
            );
            assert_ne!(stages.counters.is_some(), stages.no_counters.is_some(), "{stages:?}");
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

/// What the kernel could not hand to a socket is told with the reason, too.
#[test]
fn failed_redirects_are_told_with_their_reason() {
    if !is_root() {
        return;
    }
    let lab = lab("faults", 1);
    let receiver = start_receiver(&lab.b, "rx {} --frames 16 --wait poll --json");
    // Many at once, for longer than the receiver takes to begin counting.
    let sender = format!("tx {{}} --to {} -t 2 --batch 256 --frames 1024", lab.b.ipv4);
    run(&lab.a, &sender).good();
    let result = receiver.interrupt().good().result();
    let faults = result.xdp_faults.as_ref().expect("root may look");
    let told: u64 = faults.iter().map(|fault| fault.packets).sum();
    assert!(
        told > 0 && told <= losses(&result),
        "{faults:?} of {:?}",
        result.packets
    );
    assert!(
        faults
            .iter()
            .all(|fault| fault.interface == lab.b.interface.name() && fault.what.contains("redirect failed")),
        "{faults:?}"
    );
}

/// A receiver whose frames do not suffice loses packets, says how many and why, and still adds up.
#[test]
fn losses_are_counted_and_explained() {
    if !is_root() {
        return;
    }
    let lab = lab("losses", 1);
    let receiver = start_receiver(&lab.b, "rx {} --frames 16 -v");
    // Asleep, it gives no frame back.
    receiver.stop();
    let sent = run(
        &lab.a,
        &format!("tx {{}} --to {} --count 500 --rate 50000 --json", lab.b.ipv4),
    )
    .good()
    .result();
    assert_eq!(sent.packets.delivered(), 500, "{sent:#?}");
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
    // More than the kernel's own packets, such as ARP.
    let flows = || lab.b.state().unwrap().stats.rx_packets > 100;
    assert!(wait_until(common::PATIENCE, flows), "{}", sender.told());
    for wait in ["spin", "poll", "busy-poll"] {
        let received = run(&lab.b, &format!("rx {{}} -t 1 --wait {wait} --json"))
            .good()
            .result();
        assert!(received.packets.delivered() > 0);
        assert_reconciles(&received);
        assert!(
            (990_000_000..5_000_000_000).contains(&received.duration_ns),
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
        assert_eq!(arrived, sent.packets.delivered(), "{more}");
    }
    // The receiver ends by itself, with the burst that holds the last one.
    let receiver = start_receiver(&lab.b, "rx {} --count 100 --batch 16 --json");
    let sender = start(&lab.a, &format!("tx {{}} --to {} --rate 10000", lab.b.ipv4));
    let received = receiver.end().good().result();
    assert!(received.packets.delivered() >= 100, "{received:#?}");
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
        let line = format!("tx {{}} --to {to} --rate 3000 -t 1 --wait {wait} --json");
        measured(|| {
            let sent = run(&lab.a, &line).good().result();
            let due = sent.duration_ns * 3000 / 1_000_000_000;
            let packets = sent.packets.sent;
            let summary = format!("{wait}, {due} due: {packets}");
            // Each of four queues may begin with one.
            assert!(packets <= due + 4, "{summary}");
            expect(packets >= due / 2, summary)
        });
    }
    let arguments = format!("tx {{}} --to {to} --rate 8 --count 8 -i 0.1 --wait poll --json");
    let sent = run(&lab.a, &arguments).good().result();
    assert_eq!(sent.packets.sent, 8);
    assert!(
        sent.duration_ns > 800_000_000,
        "the eighth is due after 875 ms: {}",
        sent.duration_ns
    );
    assert!(!sent.intervals.is_empty());
    for interval in &sent.intervals {
        let due = 8.0 * interval.duration_ns as f64 / 1e9;
        assert!(
            interval.sent_packets as f64 <= 3.0 + due,
            "the queues take turns: {:?}",
            sent.intervals
        );
    }
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
            (result.packets.sent, result.packets.delivered()),
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
    assert!(text.contains("sent           1 packet in"), "{text}");
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
    // Room for them on both ends. In 200 ms they come in more than one burst, so there is a rate.
    let receiver = start_receiver(&lab.b, "rx {} --frame-size 4096 --json");
    let to = lab.b.ipv4;
    let tx = format!("tx {{}} --to {to} --frame-size 4096 --size 3014 --rate 100 --count 20");
    run(&lab.a, &tx).good();
    let result = receiver.interrupt().good().result();
    assert_eq!(result.packets.delivered(), 20, "{result:#?}");
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
    assert_eq!(result.packets.delivered(), 0, "{result:#?}");
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
    assert_eq!(
        (result.packets.sent, result.packets.delivered()),
        (50, 0),
        "{result:#?}"
    );
    assert_reconciles(&result);
    assert_eq!(losses(&result), 50, "{result:#?}");
}
