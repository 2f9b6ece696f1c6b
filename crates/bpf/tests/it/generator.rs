//! The generator on a veth.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::packets::*;
use crate::common::{PacketSocket, Pair, pin, privileged, settled};
use ringside_bpf::{Error, Generator, GeneratorOptions, Neighbours, Sent, Sink, XdpMode};
use ringside_netlab::testing::{expect, measured};
use rustix::time::{ClockId, clock_gettime};

fn raw_frame() -> Vec<u8> {
    ethernet(&[], ETH_EXPERIMENT, &[0; 50])
}

/// Runs `work` with the left device's index, the right one having a sink.
fn into_sink(work: impl FnOnce(u32, &Sink) + Send) {
    let pair = Pair::new();
    let sink = Sink::load(Neighbours::Pass).unwrap();
    let _link = pair.right.enter(|index| sink.attach(index, XdpMode::Native).unwrap());
    pair.left.enter(|index| work(index, &sink));
}

fn adds_up(sent: Sent) {
    assert_eq!(sent.offered, sent.transmitted + sent.dropped + sent.refused, "{sent:?}");
}

#[test]
fn every_frame_is_accounted_for() {
    if !privileged() {
        return;
    }
    into_sink(|index, sink| {
        pin(0);
        let mut generator = Generator::new(index, &raw_frame(), GeneratorOptions::default()).unwrap();
        for packets in [1, 63, 64, 65, 100_000, 1_500_000] {
            let before = sink.traffic().unwrap();
            let sent = generator.run(packets).unwrap();
            adds_up(sent);
            assert_eq!(sent.offered, packets);
            assert_eq!(sent.refused, 0);
            let seen = settled(|| sink.traffic().unwrap()) - before;
            assert_eq!(seen.packets, sent.transmitted);
            assert_eq!(seen.bytes, sent.transmitted * 64);
        }
        assert_eq!(generator.next_sequence(), 1_600_193);
    });
}

/// Returns the seconds of CPU time that this thread spends on `work`.
fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap().as_secs_f64()
    };
    let begin = now();
    work();
    now() - begin
}

/// Compares the CPU time per frame of the generator with that of a UDP socket, in turns.
///
/// This is no benchmark: a generator that is slower than a socket would be useless. CPU time,
/// unlike wall time, does not depend on other processes.
#[test]
fn it_is_faster_than_a_socket() {
    const FRAMES: u64 = 20_000;
    if !privileged() {
        return;
    }
    let [socket, other] = [0, 0].map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
    socket.connect(other.local_addr().unwrap()).unwrap();
    into_sink(|index, sink| {
        pin(0);
        let frame = raw_frame();
        let mut generator = Generator::new(index, &frame, GeneratorOptions::default()).unwrap();
        measured(|| {
            let before = sink.traffic().unwrap();
            let mut transmitted = 0;
            let mut turn = || {
                let by_socket = cpu_seconds(|| {
                    for _ in 0..FRAMES {
                        socket.send(&frame).unwrap();
                    }
                });
                let by_generator = cpu_seconds(|| {
                    let sent = generator.run(FRAMES).unwrap();
                    adds_up(sent);
                    transmitted += sent.transmitted;
                });
                by_socket / by_generator
            };
            let mut ratios: Vec<f64> = (0..9).map(|_| turn()).collect();
            ratios.sort_by(f64::total_cmp);
            println!("CPU time per frame, socket / generator: {ratios:.2?}");
            assert_eq!((settled(|| sink.traffic().unwrap()) - before).packets, transmitted);
            expect(ratios[ratios.len() / 2] > 1.0, format_args!("{ratios:.2?}"))
        });
    });
}

#[test]
fn it_sends_for_a_given_time() {
    if !privileged() {
        return;
    }
    into_sink(|index, sink| {
        let options = GeneratorOptions {
            sequence_offset: Some(20),
            ..Default::default()
        };
        let mut generator = Generator::new(index, &raw_frame(), options).unwrap();
        let before = sink.traffic().unwrap();
        let begin = Instant::now();
        let sent = generator
            .run_for(Duration::from_secs(1), &AtomicBool::new(false))
            .unwrap();
        let took = begin.elapsed();
        adds_up(sent);
        assert_eq!((settled(|| sink.traffic().unwrap()) - before).packets, sent.transmitted);
        assert!(took >= Duration::from_millis(900), "{took:?}");
    });
}

#[test]
fn it_stops_when_told() {
    if !privileged() {
        return;
    }
    into_sink(|index, _| {
        let mut generator = Generator::new(index, &raw_frame(), GeneratorOptions::default()).unwrap();
        let stop = AtomicBool::new(false);
        measured(|| {
            stop.store(false, Ordering::Release);
            thread::scope(|scope| {
                let stopper = scope.spawn(|| {
                    thread::sleep(Duration::from_millis(200));
                    stop.store(true, Ordering::Release);
                    Instant::now()
                });
                let sent = generator.run_for(Duration::from_secs(20), &stop).unwrap();
                let lag = stopper.join().unwrap().elapsed();
                println!("stopped after {lag:?}");
                adds_up(sent);
                // 50 ms are usual; the machine may be busy with other tests.
                expect(lag < Duration::from_millis(1000), format_args!("stopped after {lag:?}"))
            })
        });
        // A stop is for one run only.
        assert_eq!(generator.run(10).unwrap().offered, 10);
        // And whoever was told before it began does nothing.
        let sent = generator.run_for(Duration::from_secs(20), &stop).unwrap();
        assert_eq!(sent.offered, 0);
    });
}

/// Numbers without a gap, a right checksum in each, and the rest as in the template.
#[test]
fn frames_are_numbered_and_their_checksums_right() {
    if !privileged() {
        return;
    }
    let payload = [0xa5; 40];
    let v4 = ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(PORT, &payload)));
    let v6 = ethernet(&[], ETH_IPV6, &ipv6(UDP, &udp(PORT, &payload)));
    for (mut template, offset, checksum) in [(v4.clone(), 50, true), (v6, 74, true), (v4, 50, false)] {
        if checksum {
            complete_checksum(&mut template);
        }
        let pair = Pair::new();
        // Instead of a program: frames come up to the stack, where the tap sees them.
        pair.right.command("ethtool -K veth0 gro on");
        let tap = pair.right.enter(|_| PacketSocket::new(Duration::from_millis(300)));
        let first = 0x00ff_fffe_fffe;
        let options = GeneratorOptions {
            sequence_offset: Some(offset),
            first_sequence: first,
            ..Default::default()
        };
        let sent = pair.left.enter(|index| {
            let mut generator = Generator::new(index, &template, options).unwrap();
            generator.run(30).unwrap() + generator.run(34).unwrap()
        });
        assert_eq!(sent.transmitted, 64);
        let frames: Vec<_> = tap
            .frames()
            .into_iter()
            .filter(|frame| frame.len() == template.len() && frame[..14] == template[..14])
            .collect();
        assert_eq!(frames.len(), 64);
        for (number, frame) in (first..).zip(&frames) {
            let mut expected = template.clone();
            expected[offset..offset + 8].copy_from_slice(&number.to_be_bytes());
            if checksum {
                assert!(checksum_is_right(frame), "frame {number:#x}");
                complete_checksum(&mut expected);
            }
            assert_eq!(*frame, expected, "frame {number:#x}");
        }
    }
}

#[test]
fn a_peer_that_takes_nothing_is_told() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let down = pair.left.enter(|index| {
        let mut generator = Generator::new(index, &raw_frame(), GeneratorOptions::default()).unwrap();
        // No XDP program on the peer, and no GRO.
        let error = generator.run(1000).unwrap_err();
        assert!(matches!(error, Error::NotTaken { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("veth0 took none of") && text.contains("gro on"),
            "{text}"
        );

        pair.left.command("ip link set veth0 down");
        generator.run(1000)
    });
    assert!(matches!(down, Err(Error::NotTaken { .. })), "{down:?}");
    let missing = pair
        .left
        .enter(|index| Generator::new(index + 1000, &raw_frame(), GeneratorOptions::default()).unwrap_err());
    assert!(missing.to_string().contains("no such interface"), "{missing}");
}
