//! What packets ask the real kernel for over veth: stamps, checksums, launch times, and what is refused.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::{MODES, PATIENCE, arrives_at, kernel_socket, lab, leading_to, open, try_open, udp};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_nic::clock::{Monotonic, Offset, Tai, Timestamp};
use ringside_wire::checksum::pseudo_v4;
use ringside_wire::{Protocol, udp as wire_udp};
use ringside_xsk::hints::Layouts;
use ringside_xsk::tx_metadata::{AskError, ChecksumBy, LaunchBy, LaunchTime, StampSampling, TxMeta, TxMetadata};
use ringside_xsk::{Direction, Error, Mode, Path, Port, Queue, QueueOptions, SharedUmem, Wait};

fn asking(wanted: TxMetadata) -> QueueOptions {
    QueueOptions::new().direction(Direction::Transmit).tx_metadata(wanted)
}

fn stamps() -> TxMetadata {
    TxMetadata::new().timestamps(StampSampling::all())
}

fn sender(end: &End, options: QueueOptions) -> Queue {
    end.run(|| {
        Queue::builder(&end.interface, 0)
            .mode(Mode::Require(Path::Copy))
            .options(options.busy_timeout(PATIENCE))
            .open()
    })
    .expect("opens")
}

/// A UDP datagram with the sum of the pseudo-header where its checksum will be, and with the checksum. The checksum starts
/// at byte 34 and is put 6 bytes behind that.
fn datagram(lab: &Lab, port: u16, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut whole = udp(&lab.a, &lab.b, port, payload);
    wire_udp::fill_checksum(&mut whole[34..], lab.a.ipv4.into(), lab.b.ipv4.into()).expect("a datagram");
    let mut asked = whole.clone();
    let length = u16::try_from(8 + payload.len()).expect("short");
    let pseudo = pseudo_v4(lab.a.ipv4, lab.b.ipv4, Protocol::UDP, length);
    asked[40..42].copy_from_slice(&pseudo.fold().to_be_bytes());
    assert_ne!(asked, whole);
    (asked, whole)
}

const UDP_CHECKSUM: TxMeta = TxMeta::new().checksum(34, 6);

/// Stamps are of CLOCK_TAI, grow, and lie between the hand-over and the XDP program of the other end, packet by packet.
#[test]
fn stamps_lie_between_hand_over_and_reception() {
    if !is_root() {
        return;
    }
    let lab = lab("txstamps", 4);
    for path in MODES {
        let (layouts, reader) = Layouts::ringside();
        let mut port = open(&lab.b, path, |port| {
            port.options(QueueOptions::new().hints(layouts.clone()))
        });
        let from = u32::try_from(leading_to(1, path)).expect("small");
        let mut tx = lab.a.run(|| {
            let options = asking(stamps());
            Queue::builder(&lab.a.interface, from)
                .options(options)
                .open()
                .expect("opens")
        });
        let at = arrives_at(from as usize, path);
        let rx = port.queues_mut().nth(at).expect("opened");
        let obtained = tx.report().tx_metadata.expect("asked for").stamps.expect("asked for");
        assert_eq!((obtained.clock, obtained.source), ("CLOCK_TAI", "software"));
        // What the two clocks are apart is known to some hundred nanoseconds, and stays.
        let offset = Offset::<Monotonic, Tai>::measure();
        let mut last = Timestamp::<Tai>::from_nanos(0);
        for number in 0..200_u64 {
            let packet = udp(&lab.a, &lab.b, 5000, &number.to_be_bytes());
            let before = Timestamp::<Tai>::now();
            let sent = tx.send_asking_with(1, |to| {
                assert!(to.write(&packet));
                TxMeta::new().timestamp(number)
            });
            assert_eq!(sent.expect("sends"), 1);
            tx.flush().expect("flush");
            let start = Instant::now();
            let received = loop {
                let mut burst = rx.recv(Wait::Spin).expect("recv");
                if let Some((_, hints)) = burst.with_hints(reader).next() {
                    break Timestamp::<Monotonic>::from_nanos(hints.expect("our own program").rx_ktime);
                }
                assert!(start.elapsed() < PATIENCE, "nothing came");
            };
            let stamp = loop {
                if let Some(stamp) = tx.tx_stamps().expect("sound").next() {
                    break stamp;
                }
                assert!(start.elapsed() < PATIENCE, "no stamp: {:?}", tx.stamp_counters());
            };
            assert_eq!(stamp.token, number);
            let left = stamp.time.software().expect("copy mode");
            let received = offset.convert(received).expect("now");
            let slack = i64::try_from(received.uncertainty_ns).expect("small");
            assert!(before <= left, "{before:?} {left:?}");
            assert!(received.at - left >= -slack, "{left:?} {received:?}");
            assert!(left > last, "{last:?} {left:?}");
            last = left;
        }
        let counters = tx.stamp_counters();
        assert_eq!((counters.wanted, counters.stamped, counters.unread), (200, 200, 0));
        assert_eq!(tx.stats().expect("open").kernel.tx_invalid_descs, 0);
    }
}

/// Of many packets in bursts the chosen ones get a stamp, in order, and all is told; no more are awaited than may be.
#[test]
fn sampling_covers_what_it_says() {
    if !is_root() {
        return;
    }
    let lab = lab("txsample", 1);
    let _port = open(&lab.b, Path::NativeCopy, |port| port);
    for (sampling, least, most) in [
        (StampSampling::all(), 4096, 4096),
        (StampSampling::one_in(8), 512, 512),
        (StampSampling::one_in(4).outstanding(2), 128, 1024),
    ] {
        let mut tx = sender(&lab.a, asking(TxMetadata::new().timestamps(sampling)));
        let packet = udp(&lab.a, &lab.b, 5000, &[0; 18]);
        let (mut number, mut told) = (0, Vec::new());
        let start = Instant::now();
        while number < 4096 {
            let sent = tx.send_asking_with((4096 - number).min(32) as u32, |to| {
                assert!(to.write(&packet));
                number += 1;
                TxMeta::new().timestamp(number)
            });
            sent.expect("sends");
            told.extend(tx.tx_stamps().expect("sound").map(|stamp| stamp.token));
            assert!(start.elapsed() < PATIENCE);
        }
        assert!(tx.drain(PATIENCE).expect("drains"));
        told.extend(tx.tx_stamps().expect("sound").map(|stamp| stamp.token));
        let counters = tx.stamp_counters();
        assert_eq!(counters.wanted, 4096);
        assert_eq!(counters.asked, counters.stamped, "all are back");
        assert_eq!(counters.stamped, told.len() as u64 + counters.unread);
        assert!((least..=most).contains(&counters.stamped), "{sampling:?}: {counters:?}");
        assert!(told.is_sorted(), "in the order of completion");
        let coverage = counters.coverage().expect("some wanted one");
        assert!((coverage - counters.stamped as f64 / 4096.0).abs() < 1e-9);
    }
}

/// The other end's kernel takes the datagram, which it would not with a wrong checksum; and an XDP socket there sees a whole
/// one where the kernel filled it in.
#[test]
fn checksums_are_filled_in() {
    if !is_root() {
        return;
    }
    for (offload, wanted, by) in [
        // No offload on the device: the kernel fills in what the device cannot.
        (false, TxMetadata::new().checksum(), ChecksumBy::DeviceOrKernel),
        // A veth "offloads": the mark travels with the packet, and the other kernel takes it as good.
        (true, TxMetadata::new().checksum(), ChecksumBy::DeviceOrKernel),
        (true, TxMetadata::new().software_checksum(), ChecksumBy::Kernel),
    ] {
        let config = VethConfig {
            tx_checksum: offload,
            ipv6: false,
            ..VethConfig::tagged("txcsums")
        };
        let lab = Lab::veth(config).expect("test bed");
        let mut tx = sender(&lab.a, asking(wanted.timestamps(StampSampling::all())));
        assert_eq!(tx.report().tx_metadata.expect("asked for").checksum, Some(by));
        let socket = kernel_socket(&lab.b, 5000);
        let take = || {
            let mut buffer = [0; 2048];
            socket.recv(&mut buffer).map(|len| buffer[..len].to_vec())
        };
        for len in [18, 19, 1000] {
            let payload = vec![0x5a; len];
            let (asked, _) = datagram(&lab, 5000, &payload);
            let sent = tx.send_asking_with(1, |to| {
                assert!(to.write(&asked));
                UDP_CHECKSUM.timestamp(len as u64)
            });
            assert_eq!(sent.expect("sends"), 1);
            assert_eq!(take().expect("it comes"), payload, "{wanted:?}, {len} bytes");
            let told = tx.tx_stamps().expect("sound").next().expect("both at once");
            assert_eq!(told.token, len as u64, "the stamp lies over the checksum's words");
        }
        // The same bytes without the request are wrong, and thrown away: so the above shows something.
        let (asked, _) = datagram(&lab, 5000, &[1; 18]);
        let (_, whole) = datagram(&lab, 5000, &[2; 18]);
        for packet in [asked, whole] {
            assert_eq!(tx.send_with(1, |to| assert!(to.write(&packet))).expect("sends"), 1);
        }
        assert_eq!(take().expect("the second one"), [2; 18]);

        let whole_at_the_socket = !offload || by == ChecksumBy::Kernel;
        for path in MODES {
            let mut port = open(&lab.b, path, |port| port);
            let (asked, whole) = datagram(&lab, 5000, &[3; 33]);
            let sent = tx.send_asking_with(1, |to| {
                assert!(to.write(&asked));
                UDP_CHECKSUM
            });
            assert_eq!(sent.expect("sends"), 1);
            let got = first(&mut port);
            assert_eq!(
                got,
                if whole_at_the_socket { whole } else { asked },
                "{path} {wanted:?}"
            );
        }
    }
}

fn first(port: &mut Port) -> Vec<u8> {
    let start = Instant::now();
    loop {
        for queue in port.queues_mut() {
            let mut burst = queue.recv(Wait::Spin).expect("recv");
            if let Some(packet) = burst.iter_mut().next() {
                return packet.parts().collect::<Vec<_>>().concat();
            }
        }
        assert!(start.elapsed() < PATIENCE, "nothing came");
    }
}

/// Received packets, with hints in front of them, sent back with a request: in place, in their frames.
#[test]
fn received_packets_ask_in_the_room_of_their_hints() {
    if !is_root() {
        return;
    }
    let lab = lab("txback", 1);
    for path in MODES {
        for unaligned in [false, true] {
            let (layouts, reader) = Layouts::ringside();
            let mut options = QueueOptions::new()
                .hints(layouts)
                .tx_metadata(stamps().software_checksum());
            if unaligned {
                options = options.frame_size(3000);
            }
            let mut port = open(&lab.b, path, |port| port.options(options.clone()));
            let rx = port.queues_mut().next().expect("one");
            let mut client = open(&lab.a, path, |port| port);
            for round in 0..50_u64 {
                let (asked, whole) = datagram(&lab, 5000, &round.to_be_bytes());
                common::send_one(client.queues_mut().next().expect("one"), &asked);
                let start = Instant::now();
                let mut answered = false;
                while !answered {
                    assert!(start.elapsed() < PATIENCE, "nothing came");
                    let mut burst = rx.recv(Wait::Spin).expect("recv");
                    for (packet, hints) in burst.with_hints(reader) {
                        let hints = hints.expect("our own program's");
                        packet.ask(UDP_CHECKSUM.timestamp(hints.packet)).expect("possible");
                        answered = true;
                    }
                    burst.finish().expect("sends");
                }
                assert_eq!(first(&mut client), whole, "{path} {round}");
                let start = Instant::now();
                let stamp = loop {
                    if let Some(stamp) = rx.tx_stamps().expect("sound").next() {
                        break stamp;
                    }
                    assert!(start.elapsed() < PATIENCE);
                };
                assert!(stamp.time.as_nanos() > 0 && stamp.token <= round + 1);
            }
            assert_eq!(
                rx.hint_counters(),
                Default::default(),
                "no hint was missing, unknown, or stale"
            );
            assert_eq!(rx.stamp_counters().coverage(), Some(1.0));
        }
    }
}

/// The kernel reads the metadata of a packet in several frames from the first one, and sums up all of them.
#[test]
fn packets_in_several_frames_ask_once() {
    if !is_root() {
        return;
    }
    let config = VethConfig {
        mtu: 9000,
        tx_checksum: false,
        ipv6: false,
        ..VethConfig::tagged("txjumbo")
    };
    let lab = Lab::veth(config).expect("test bed");
    let mut tx = sender(&lab.a, asking(stamps().checksum()).multi_buffer(true));
    let socket = kernel_socket(&lab.b, 5000);
    for len in [100, 2000, 6000, 8900] {
        let payload: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
        let (asked, _) = datagram(&lab, 5000, &payload);
        let sent = tx.send_asking_with(1, |to| {
            assert!(to.write(&asked));
            UDP_CHECKSUM.timestamp(len as u64)
        });
        assert_eq!(sent.expect("sends"), 1);
        let mut buffer = [0; 9000];
        let got = socket.recv(&mut buffer).expect("it comes, so its checksum is right");
        assert_eq!(buffer[..got], payload);
        assert!(tx.drain(PATIENCE).expect("drains"));
        let told: Vec<u64> = tx.tx_stamps().expect("sound").map(|stamp| stamp.token).collect();
        assert_eq!(told, [len as u64], "one stamp a packet");
    }
    let mut software = {
        drop(tx);
        sender(&lab.a, asking(TxMetadata::new().software_checksum()).multi_buffer(true))
    };
    let (asked, _) = datagram(&lab, 5000, &[0; 6000]);
    let refused = software.send_asking_with(1, |to| {
        assert!(to.write(&asked));
        UDP_CHECKSUM
    });
    assert!(matches!(
        refused,
        Err(Error::TxMetadata {
            error: AskError::ChecksumOfParts,
            ..
        })
    ));
    // And the queue goes on.
    assert_eq!(software.send_with(1, |to| assert!(to.write(&asked))).expect("sends"), 1);
    assert!(software.drain(PATIENCE).expect("drains"));
}

/// A veth keeps to no launch time: required it is an error, otherwise it is told, and packets leave at once, stamped.
#[test]
fn launch_times_are_kept_or_told_not_to_be() {
    if !is_root() {
        return;
    }
    let lab = lab("txlaunch", 1);
    let required = asking(TxMetadata::new().launch_time(LaunchTime::Required));
    let error = lab
        .a
        .run(|| Queue::builder(&lab.a.interface, 0).options(required).open())
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("launch_time = required") && text.contains("tx-launch-time-fifo") && text.contains("IfAvailable"),
        "{text}"
    );

    let wanted = stamps().launch_time(LaunchTime::IfAvailable);
    let mut tx = sender(&lab.a, asking(wanted));
    let by = tx
        .report()
        .tx_metadata
        .expect("asked for")
        .launch_time
        .expect("asked for");
    assert!(matches!(by, LaunchBy::Unknown | LaunchBy::Nobody));
    assert!(
        tx.report().to_string().contains("packets leave at once"),
        "{}",
        tx.report()
    );
    let launch = Timestamp::<Tai>::now() + Duration::from_secs(3600);
    let packet = udp(&lab.a, &lab.b, 5000, &[0; 18]);
    let sent = tx.send_asking_with(1, |to| {
        assert!(to.write(&packet));
        TxMeta::new().timestamp(1).launch_time(launch)
    });
    assert_eq!(sent.expect("sends"), 1);
    assert!(tx.drain(PATIENCE).expect("drains"));
    let stamp = tx.tx_stamps().expect("sound").next().expect("it left").time.software();
    assert!(stamp.expect("copy mode") < launch);
}

/// All sockets of a UMEM agree on what can be asked for, or are told.
#[test]
fn a_shared_umem_is_of_one_mind() {
    if !is_root() {
        return;
    }
    let lab = lab("txshared", 2);
    let umem = SharedUmem::builder().tx_metadata(stamps()).build().expect("memory");
    let on = |umem: &SharedUmem, queue: u32, options: QueueOptions| {
        let builder = Queue::builder(&lab.a.interface, queue)
            .mode(Mode::Require(Path::Copy))
            .umem(umem)
            .options(options.direction(Direction::Transmit));
        lab.a.run(|| builder.open())
    };
    let text = |result: Result<Queue, Error>| result.expect_err("refused").to_string();
    let other = text(on(&umem, 0, asking(TxMetadata::new().checksum())));
    assert!(
        other.contains("tx_metadata") && other.contains("SharedUmemBuilder::tx_metadata"),
        "{other}"
    );
    let plain = SharedUmem::builder().build().expect("memory");
    let none = text(on(&plain, 0, asking(stamps())));
    assert!(none.contains("SharedUmemBuilder::tx_metadata"), "{none}");

    // Each with a sampling of its own; and one that asks for nothing, on which nothing can be asked for.
    let sampled = stamps().timestamps(StampSampling::one_in(2));
    let mut first = on(&umem, 0, asking(sampled)).expect("agrees");
    let mut second = on(&umem, 1, QueueOptions::new()).expect("asks for nothing");
    let packet = udp(&lab.a, &lab.b, 5000, &[0; 18]);
    let mut frame = first.alloc().expect("free");
    assert!(frame.write(&packet));
    let refused = second
        .send_asking(frame, TxMeta::new().timestamp(9))
        .expect_err("not opened for it");
    assert!(
        refused.error.to_string().contains("queue 1: a time of completion"),
        "{}",
        refused.error
    );
    first
        .send_asking(refused.frame, TxMeta::new().timestamp(1))
        .expect("sends");
    for _ in 0..3 {
        second.send_with(1, |to| assert!(to.write(&packet))).expect("sends");
    }
    assert!(first.drain(PATIENCE).expect("drains") && second.drain(PATIENCE).expect("drains"));
    assert_eq!(first.tx_stamps().expect("sound").count(), 1);

    // A sibling shares the pair of rings, and with it the stamps.
    let wrong = first
        .sibling(&asking(TxMetadata::new().checksum()))
        .expect_err("disagrees")
        .to_string();
    assert!(wrong.contains("tx_metadata") && wrong.contains("siblings"), "{wrong}");
    let mut sibling = lab.a.run(|| first.sibling(&asking(sampled))).expect("agrees");
    assert_eq!(sibling.report().tx_metadata, first.report().tx_metadata);
    for (n, queue) in (0_u64..).zip([&mut sibling, &mut first]) {
        let sent = queue.send_asking_with(1, |to| {
            assert!(to.write(&packet));
            TxMeta::new().timestamp(10 + n)
        });
        assert_eq!(sent.expect("sends"), 1);
    }
    assert!(sibling.drain(PATIENCE).expect("drains"));
    let told: Vec<u64> = first.tx_stamps().expect("sound").map(|stamp| stamp.token).collect();
    assert_eq!(told, [11], "one in two, whoever sends");
    assert_eq!(sibling.stamp_counters(), first.stamp_counters());
}

/// A port that asks for it has it on all queues; and a mode that cannot do it is told by name.
#[test]
fn a_port_tells_what_it_got() {
    if !is_root() {
        return;
    }
    let lab = lab("txport", 2);
    let options = QueueOptions::new().tx_metadata(stamps().checksum());
    for path in MODES {
        let port = open(&lab.b, path, |port| port.options(options.clone()));
        for queue in &port.report().queues {
            let text = queue.to_string();
            assert!(
                text.contains("TX metadata: stamps of CLOCK_TAI in software; checksums by the device"),
                "{text}"
            );
        }
        let json = serde_json::to_value(port.report()).expect("JSON");
        assert_eq!(json["queues"][0]["tx_metadata"]["stamps"]["clock"], "CLOCK_TAI");
        assert_eq!(json["queues"][1]["tx_metadata"]["checksum"], "device-or-kernel");
    }
    let error = try_open(&lab.b, Path::ZeroCopy, |port| port.options(options))
        .expect_err("veth has none")
        .to_string();
    assert!(
        error.contains("zero-copy") && error.contains("tx-timestamp") || error.contains("tx-checksum"),
        "{error}"
    );
    drop(port_of(&lab));
}

/// Mode::Auto goes on to a copy path where zero-copy lacks what is asked for, and says why.
fn port_of(lab: &Lab) -> Port {
    let options = QueueOptions::new()
        .tx_metadata(TxMetadata::new().software_checksum())
        .busy_timeout(PATIENCE);
    let port = lab
        .b
        .run(|| Port::builder(lab.b.interface.clone()).options(options).open())
        .expect("opens");
    let notes = port.report().queues[0].refused_modes.join(" ");
    assert!(
        notes.contains("the kernel fills in checksums on copy paths only"),
        "{notes}"
    );
    port
}
