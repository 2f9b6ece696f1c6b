//! Packets in several frames: received, kept, sent back and sent, from one byte too many for a frame to 9216 bytes.

use crate::common::{MODES, PATIENCE, arrives_at, assert_clean, leading_to, open, try_open};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_xsk::{Direction, Error, Mode, Path, Port, Queue, QueueOptions, SharedUmem, Wait};

/// With the Ethernet header: what "jumbo frames" means.
const LONGEST: usize = 9216;

fn lab(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        queues: 4,
        mtu: 9202,
        tx_checksum: false,
        ipv6: false,
        gro: true,
        ..VethConfig::tagged(tag)
    })
    .expect("test bed")
}

fn options() -> QueueOptions {
    QueueOptions::new().multi_buffer(true).frames(1024)
}

/// Packet `n`, of `len` bytes that follow from `n`.
fn packet(n: u64, len: usize, from: &End, to: &End) -> Vec<u8> {
    let mut data = Vec::with_capacity(len);
    data.extend_from_slice(&to.mac);
    data.extend_from_slice(&from.mac);
    data.extend_from_slice(&0x88b5_u16.to_be_bytes());
    data.extend_from_slice(&n.to_be_bytes());
    data.extend((data.len()..len).map(|at| (at as u64 * 7 + n).to_le_bytes()[0]));
    data
}

/// Everything that a burst brings, until `enough`.
fn collect(queue: &mut Queue, enough: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    while got.len() < enough {
        let mut burst = queue.recv(Wait::Poll(PATIENCE)).expect("recv");
        if burst.is_empty() {
            break;
        }
        let before = got.len();
        for packet in &mut burst {
            let mut bytes = vec![0; packet.len()];
            assert_eq!(packet.copy_to(&mut bytes), packet.len());
            assert!(packet.parts().flatten().eq(&bytes), "the parts are the packet");
            got.push(bytes);
        }
        assert_eq!(got.len() - before, burst.len());
    }
    got
}

fn send(queue: &mut Queue, packets: &[Vec<u8>]) {
    let mut next = packets.iter();
    while next.len() != 0 {
        let left = u32::try_from(next.len()).expect("few");
        queue
            .send_with(left, |slot| assert!(slot.write(next.next().expect("as many as left"))))
            .expect("sends");
    }
    queue.flush().expect("flush");
}

fn nth(port: &mut Port, queue: usize) -> &mut Queue {
    port.queues_mut().nth(queue).expect("a queue")
}

/// Each length around each border of frames, there and back, on two queues, with frames of all sizes.
#[test]
fn every_length_there_and_back() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo");
    for path in MODES {
        for with in [
            options(),
            options().frame_size(4096),
            options().frame_size(3000),
            options().headroom(100),
        ] {
            for queue in [0, 2] {
                let mut near = open(&lab.a, path, |port| port.options(with.clone()));
                let mut far = open(&lab.b, path, |port| port.options(with.clone()));
                let room =
                    nth(&mut near, 0).report().frame_size as usize - nth(&mut near, 0).report().headroom as usize - 256;
                assert!(nth(&mut near, 0).packet_room() >= LONGEST);
                let borders = (1..=LONGEST / room).flat_map(|n| [n * room - 1, n * room, n * room + 1]);
                let lengths: Vec<usize> = [60, 1514].into_iter().chain(borders).chain([LONGEST]).collect();
                let packets: Vec<Vec<u8>> = (0..)
                    .zip(lengths.iter().filter(|&&len| len <= LONGEST))
                    .map(|(n, &len)| packet(n, len, &lab.a, &lab.b))
                    .collect();
                for _ in 0..10 {
                    send(nth(&mut near, leading_to(queue, path)), &packets);
                    let rx = nth(&mut far, queue);
                    let mut back = 0;
                    while back < packets.len() {
                        let burst = rx.recv(Wait::Poll(PATIENCE)).expect("recv");
                        assert!(!burst.is_empty(), "{path} {with:?}: {back} of {}", packets.len());
                        back += burst.send_back().expect("sends") as usize;
                    }
                    let got = collect(nth(&mut near, arrives_at(queue, path)), packets.len());
                    assert!(got == packets, "{path} {with:?} queue {queue}");
                }
                let rx = nth(&mut far, queue);
                assert_eq!(rx.counters().rx_packets, 10 * packets.len() as u64);
                assert!(rx.drain(PATIENCE).unwrap());
                drop(rx.recv(Wait::Spin).unwrap());
                assert_eq!(rx.free_frames(), 512, "{path} {with:?}: no frame is lost");
            }
        }
    }
    assert_clean(&lab.b);
}

/// A kept packet has all its frames, leaves by another queue of the UMEM, and gives them back when it is dropped.
#[test]
fn a_kept_packet_has_all_its_frames() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-keep");
    let umem = SharedUmem::builder().frames(4096).multi_buffer(true).build().unwrap();
    for path in MODES {
        let mut near = open(&lab.a, path, |port| port.options(options()));
        let mut far = open(&lab.b, path, |port| port.umem(&umem).options(options()));
        let packets = [packet(1, LONGEST, &lab.a, &lab.b), packet(2, 5000, &lab.a, &lab.b)];
        send(nth(&mut near, leading_to(1, path)), &packets);
        let mut queues = far.queues_mut();
        let (mut kept, rx) = (Vec::new(), queues.nth(1).unwrap());
        while kept.len() < 2 {
            let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
            assert!(!burst.is_empty());
            kept.extend(burst.iter_mut().map(ringside_xsk::Packet::keep));
            assert_eq!(burst.iter_mut().count(), 0);
        }
        for (frame, packet) in kept.iter().zip(&packets) {
            assert_eq!(frame.len(), packet.len());
            assert!(frame.parts().flatten().eq(packet));
        }
        let (second, first) = (kept.pop().unwrap(), kept.pop().unwrap());
        drop(rx.recv(Wait::Spin).unwrap());
        let before = umem.unclaimed();
        let frames = first.parts().count();
        drop(first);
        assert_eq!(umem.unclaimed(), before + frames);
        let tx = queues.next().unwrap();
        tx.send(second).unwrap();
        tx.flush().unwrap();
        let got = collect(nth(&mut near, arrives_at(2, path)), 1);
        assert_eq!(got, packets[1..], "{path}");
    }
    assert_eq!(umem.unclaimed(), 4096);
}

/// Frames are had, written in pieces, cut and sent one by one.
#[test]
fn a_packet_is_made_in_several_frames() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-make");
    let mut near = open(&lab.a, Path::NativeCopy, |port| port.options(options()));
    let mut far = open(&lab.b, Path::NativeCopy, |port| port.options(options()));
    let tx = nth(&mut near, 1);
    let whole = packet(9, 6000, &lab.a, &lab.b);
    let mut frame = tx.alloc().unwrap();
    assert!(frame.capacity() >= LONGEST && frame.len() == 0);
    assert!(frame.resize(6000));
    let mut left = whole.as_slice();
    for part in frame.parts_mut() {
        let (now, behind) = left.split_at(part.len());
        part.copy_from_slice(now);
        left = behind;
    }
    assert!(left.is_empty() && frame.len() == 6000);
    assert!(!frame.resize(frame.capacity() + 1) && frame.len() == 6000);
    // Cut to less than the first frame has, and in the second one.
    assert!(frame.resize(1000) && frame.len() == 1000 && frame.parts().count() == 1);
    assert!(frame.resize(2000) && frame.len() == 2000 && frame.parts().count() == 2);
    assert!(frame.write(&whole));
    tx.send(frame).unwrap();
    tx.flush().unwrap();
    assert_eq!(collect(nth(&mut far, 1), 1), [whole]);
    let tx = nth(&mut near, 1);
    assert!(tx.drain(PATIENCE).unwrap());
    drop(tx.recv(Wait::Spin).unwrap());
    assert_eq!(tx.free_frames(), 512);
}

/// Without the switch an interface with such an MTU is refused, with the way out.
#[test]
fn without_the_switch_the_mtu_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-off");
    let error = try_open(&lab.b, Path::NativeCopy, |port| port).expect_err("refused");
    assert!(matches!(error, Error::MtuTooLarge { mtu: 9202, .. }), "{error}");
    assert!(error.to_string().contains("multi-buffer"), "{error}");
    // A TX ring that could never take a whole packet.
    let small = try_open(&lab.a, Path::Copy, |port| {
        port.options(options().direction(Direction::Transmit).tx_ring(4))
    });
    assert!(
        matches!(small, Err(Error::Setting { setting: "tx_ring", .. })),
        "{small:?}"
    );
    // Frames that could never hold one: all of them, and those that wait for packets.
    for (direction, frames) in [(Direction::Transmit, 5), (Direction::Receive, 5), (Direction::Both, 10)] {
        let few = try_open(&lab.a, Path::NativeCopy, |port| {
            port.mode(Mode::Auto)
                .options(options().direction(direction).frames(frames))
        });
        assert!(
            matches!(few, Err(Error::Setting { setting: "frames", .. })),
            "{direction:?}: {few:?}"
        );
    }
    // Two headers of room are not in a first frame of 13 bytes.
    let mut port = open(&lab.a, Path::Copy, |port| {
        port.options(options().direction(Direction::Transmit))
    });
    let tx = nth(&mut port, 0);
    let runt = tx.send_with(1, |slot| assert!(slot.write(&[0; 13])));
    assert!(
        matches!(
            runt,
            Err(Error::Setting {
                setting: "packet length",
                ..
            })
        ),
        "{runt:?}"
    );
}
