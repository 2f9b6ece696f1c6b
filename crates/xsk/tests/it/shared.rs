//! One UMEM for several sockets: on one queue, across queues, across interfaces.

use std::collections::BTreeSet;

use crate::common;
use crate::common::{
    MODES, PATIENCE, arrives_at, assert_clean, check, collect, lab, leading_to, open, open_once, packet, send_numbers,
    sender,
};
use ringside_bpf::testing::TestProgram;
use ringside_netlab::testing::is_root;
use ringside_xsk::{Direction, Error, Path, Port, Program, Queue, QueueOptions, SharedUmem, Wait};

fn umem(frames: u32) -> SharedUmem {
    SharedUmem::builder().frames(frames).build().unwrap()
}

/// a → b1 | b2 → c: what the middle host receives on one interface it sends on the other from the same frames.
#[test]
fn packets_cross_two_interfaces_without_a_copy() {
    if !is_root() {
        return;
    }
    let (left, right) = (lab("share-l", 4), lab("share-r", 4));
    for path in MODES {
        let umem = umem(1024);
        let options = QueueOptions::new().frames(256);
        let mut from = open(&left.b, path, |port| port.umem(&umem).options(options.clone()));
        let mut to = open(&right.a, path, |port| {
            port.umem(&umem)
                .options(QueueOptions::new().frames(0).direction(Direction::Transmit))
        });
        let mut receiver = open(&right.b, path, |port| port.options(common::roomy()));
        let mut source = sender(&left.a);
        assert_eq!(from.report().queues[0].umem, to.report().queues[1].umem);
        assert_eq!(umem.unclaimed(), 0, "four queues have 256 frames each, four none");

        let tx = source.queues_mut().nth(leading_to(1, path)).unwrap();
        let (from, to) = (from.queues_mut().nth(1).unwrap(), to.queues_mut().nth(1).unwrap());
        let out = receiver.queues_mut().nth(arrives_at(1, path)).unwrap();
        let mut got = Vec::new();
        // Twenty times as many packets as frames: each frame went round.
        for round in 0..400_u64 {
            send_numbers(tx, round * 50..(round + 1) * 50, &left.a, &left.b);
            let mut forwarded = 0;
            while forwarded < 50 {
                let mut burst = from.recv(Wait::Poll(PATIENCE)).unwrap();
                assert!(!burst.is_empty(), "{path}: {forwarded} of round {round}");
                for packet in &mut burst {
                    assert_eq!(packet.headroom(), 256);
                }
                forwarded += burst.send_on(to).unwrap();
            }
            got.extend(collect(out, 50, PATIENCE));
        }
        assert!(got.into_iter().eq(0..20_000), "{path}");
        assert!(to.drain(PATIENCE).unwrap());
        assert_eq!(to.counters().tx_completed, 20_000);
        drop(from.recv(Wait::Spin).unwrap());
        assert_eq!(to.free_frames(), 0, "all went home to the queue that they belong to");
        assert_eq!(from.free_frames() + 128, 256, "{path}: none was lost");
    }
    assert_clean(&left.b);
    assert_clean(&right.a);
}

#[test]
fn an_error_of_a_link_that_is_down_says_which_packets_wait_and_which_were_dropped() {
    if !is_root() {
        return;
    }
    let (left, right) = (lab("down-l", 1), lab("down-r", 1));
    let umem = umem(1024);
    let mut from = open(&left.b, Path::NativeCopy, |port| {
        port.umem(&umem).options(QueueOptions::new().frames(256))
    });
    let mut to = open(&right.a, Path::NativeCopy, |port| {
        port.umem(&umem)
            .options(QueueOptions::new().frames(0).direction(Direction::Transmit))
    });
    let mut receiver = open(&right.b, Path::NativeCopy, |port| port);
    let mut source = sender(&left.a);
    let ports = [&mut from, &mut to, &mut receiver, &mut source];
    let [from, to, receiver, source] = ports.map(common::traffic::only);
    right.a.set_up(false).unwrap();
    let mut forward = |number| {
        send_numbers(source, number..number + 1, &left.a, &left.b);
        let burst = from.recv(Wait::Poll(PATIENCE)).unwrap();
        assert_eq!(burst.len(), 1);
        burst.send_on(to).expect_err("down").to_string()
    };
    let waits = forward(0);
    assert!(waits.contains("what is on the TX ring waits"), "{waits}");
    assert!(!waits.contains("dropped"), "{waits}");
    let dropped = forward(1);
    assert!(
        dropped.contains("1 packet(s) of this call were dropped (tx_abandoned)"),
        "{dropped}"
    );
    assert_eq!((from.counters().tx_abandoned, to.counters().tx_packets), (1, 1));
    right.a.set_up(true).unwrap();
    for end in right.ends() {
        end.wait_ready().unwrap();
    }
    to.flush().unwrap();
    assert_eq!(collect(receiver, 1, PATIENCE), [0], "it waited");
}

/// Queues of one port on one UMEM: a packet kept on one queue is sent from the other.
#[test]
fn a_kept_frame_leaves_by_another_queue() {
    if !is_root() {
        return;
    }
    let lab = lab("share-q", 2);
    for path in MODES {
        let umem = umem(1024);
        let mut port = open(&lab.b, path, |port| port.umem(&umem));
        let mut peer = open(&lab.a, path, |port| port);
        send_numbers(
            peer.queues_mut().nth(leading_to(0, path)).unwrap(),
            7..8,
            &lab.a,
            &lab.b,
        );
        let mut queues = port.queues_mut();
        let (first, second) = (queues.next().unwrap(), queues.next().unwrap());
        let mut burst = first.recv(Wait::Poll(PATIENCE)).unwrap();
        let frame = burst.iter_mut().next().expect("one packet").keep();
        drop(burst);
        second.send(frame).unwrap();
        second.flush().unwrap();
        let back = peer.queues_mut().nth(arrives_at(1, path)).unwrap();
        assert_eq!(collect(back, 1, PATIENCE), [7], "{path}");
        assert!(second.drain(PATIENCE).unwrap());
    }
}

/// Several sockets on one queue: the program steers, each gets its packets, and the frames are everybody's.
#[test]
fn siblings_share_a_queue() {
    if !is_root() {
        return;
    }
    let lab = lab("share-s", 4);
    for path in MODES {
        for (queue, number) in [(0_usize, 0_u32), (1, 1)] {
            let test = TestProgram::steer(4).unwrap();
            let map = ringside_xsk::XskMap::from_fd(test.xsks_map.try_clone().unwrap()).unwrap();
            let program = Program::Custom {
                program: test.program,
                xsks_map: test.xsks_map,
            };
            let mut port = open_once(&lab.b, path, |port| port.queues([number]).program(program));
            let first = port.queues_mut().next().unwrap();
            let mut others: Vec<Queue> = lab.b.run(|| {
                (0..3)
                    .map(|_| first.sibling(&QueueOptions::new()).expect("a sibling"))
                    .collect()
            });
            map.remove(number);
            map.insert_at(0, first).unwrap();
            for (place, other) in (1..).zip(&others) {
                assert_eq!(other.report().path, path);
                map.insert_at(place, other).unwrap();
            }
            let mut near = open(&lab.a, path, |port| port);
            for round in 0..20_u64 {
                let tx = near.queues_mut().nth(leading_to(queue, path)).unwrap();
                send_numbers(tx, round * 100..(round + 1) * 100, &lab.a, &lab.b);
                let mut got = collect(first, 25, PATIENCE);
                assert!(got.iter().all(|n| n % 256 % 4 == 0), "{got:?}");
                // One thread a socket.
                let more: Vec<Vec<u64>> = std::thread::scope(|scope| {
                    let threads: Vec<_> = others
                        .iter_mut()
                        .map(|other| scope.spawn(|| collect(other, 25, PATIENCE)))
                        .collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                for (place, numbers) in (1..).zip(&more) {
                    assert!(numbers.iter().all(|n| n % 256 % 4 == place), "{place}: {numbers:?}");
                }
                got.extend(more.into_iter().flatten());
                let all: BTreeSet<u64> = got.iter().copied().collect();
                assert!(all.into_iter().eq(round * 100..(round + 1) * 100), "{path}: {got:?}");
            }
            // What one receives another one sends.
            let tx = near.queues_mut().nth(leading_to(queue, path)).unwrap();
            send_numbers(tx, 4..5, &lab.a, &lab.b);
            let burst = first.recv(Wait::Poll(PATIENCE)).unwrap();
            assert_eq!(burst.send_on(&mut others[2]).unwrap(), 1);
            let back = near.queues_mut().nth(arrives_at(queue, path)).unwrap();
            assert_eq!(collect(back, 1, PATIENCE), [4], "{path}");
            // The first one's end is not the end of the others.
            drop(port);
            assert_eq!(others[0].free_frames(), others[1].free_frames());
        }
        assert_clean(&lab.b);
    }
}

/// A queue's frames are the UMEM's again when it closes, those that the kernel had included.
#[test]
fn a_closed_queue_gives_its_frames_back() {
    if !is_root() {
        return;
    }
    let lab = lab("share-c", 2);
    for path in MODES {
        let umem = umem(1024);
        let stays = open(&lab.a, path, |port| port.umem(&umem).queues([0]));
        for _ in 0..3 {
            let mut port = open(&lab.b, path, |port| port.umem(&umem).queues([1]));
            assert_eq!(umem.unclaimed(), 0);
            let queue = port.queues_mut().next().unwrap();
            let kept = queue.alloc().unwrap();
            queue
                .send_with(10, |slot| assert!(slot.write(&packet(0, lab.b.mac, lab.a.mac))))
                .unwrap();
            drop(port);
            assert_eq!(umem.unclaimed(), 511, "{path}");
            drop(kept);
            assert_eq!(umem.unclaimed(), 512);
        }
        drop(stays);
        assert_eq!(umem.unclaimed(), 1024);
        // With nobody left the next one registers it anew.
        drop(open(&lab.b, path, |port| port.umem(&umem)));
    }
    assert_clean(&lab.b);
}

/// Zero-copy is tried first, which a veth has not: the frames of the attempt are there for the next one.
#[test]
fn a_mode_that_was_refused_keeps_no_frames() {
    if !is_root() {
        return;
    }
    let lab = lab("share-a", 2);
    let umem = umem(1024);
    let open = || Port::builder(lab.b.interface.clone()).umem(&umem).open();
    let port = lab.b.run(open).expect("frames for both queues");
    assert_eq!(port.queues().len(), 2);
    assert!(port.report().queues[1].refused_modes[0].starts_with("zero-copy refused"));
    assert_eq!(umem.unclaimed(), 0);
    drop(port);
    assert_eq!(umem.unclaimed(), 1024);
}

/// What a shared UMEM cannot do is told with its numbers.
#[test]
fn nonsense_with_a_shared_umem() {
    if !is_root() {
        return;
    }
    let lab = lab("share-n", 2);
    let umem = umem(600);
    let try_open = |with: QueueOptions| {
        common::try_open(&lab.b, Path::NativeCopy, |port| port.umem(&umem).options(with)).expect_err("refused")
    };
    let few = try_open(QueueOptions::new()).to_string();
    assert!(
        few.contains("600 frames, and 88 of them are left for veth-b queue 1"),
        "{few}"
    );
    let cut = try_open(QueueOptions::new().frame_size(4096)).to_string();
    assert!(
        cut.contains("frame_size = 4096: the shared UMEM was made with 2048"),
        "{cut}"
    );
    let headroom = try_open(QueueOptions::new().headroom(64)).to_string();
    assert!(headroom.contains("headroom = 64"), "{headroom}");
    assert_eq!(umem.unclaimed(), 600, "nothing is lost by a refusal");

    // A burst for a queue of another UMEM.
    let mut port = open(&lab.b, Path::NativeCopy, |port| port.queues([0]));
    let mut other = open(&lab.a, Path::NativeCopy, |port| port);
    send_numbers(other.queues_mut().next().unwrap(), 0..3, &lab.a, &lab.b);
    let from = port.queues_mut().next().unwrap();
    let burst = from.recv(Wait::Poll(PATIENCE)).unwrap();
    let sent = burst.len() as u64;
    let error = burst
        .send_on(other.queues_mut().next().unwrap())
        .expect_err("another UMEM");
    assert!(matches!(error, Error::Setting { setting: "frame", .. }), "{error}");
    assert!(error.to_string().contains("SharedUmem"), "{error}");
    assert_eq!(from.counters().tx_abandoned, sent);
    // And a sibling that would receive where nobody fills the fill ring.
    let mut only = open(&lab.b, Path::Copy, |port| {
        port.queues([1])
            .options(QueueOptions::new().direction(Direction::Transmit))
    });
    let sibling = only.queues_mut().next().unwrap().sibling(&QueueOptions::new());
    assert!(
        matches!(
            sibling,
            Err(Error::Setting {
                setting: "direction",
                ..
            })
        ),
        "{sibling:?}"
    );
}

/// Frames of any size, across the borders of pages.
#[test]
fn unaligned_chunks_carry_packets() {
    if !is_root() {
        return;
    }
    let lab = lab("unaligned", 4);
    for path in MODES {
        for options in [
            QueueOptions::new().unaligned_chunks(true),
            QueueOptions::new().frame_size(3000),
            QueueOptions::new().frame_size(4001).frames(333).headroom(17),
            QueueOptions::new().frame_size(2500).huge_pages(true),
        ] {
            for queue in 0..2 {
                let mut near = open(&lab.a, path, |port| port.options(options.clone()));
                let mut far = open(&lab.b, path, |port| port.options(options.clone()));
                // Each frame several times, there and back.
                for round in 0..20_u64 {
                    let numbers = round * 100..(round + 1) * 100;
                    let tx = near.queues_mut().nth(leading_to(queue, path)).unwrap();
                    send_numbers(tx, numbers.clone(), &lab.a, &lab.b);
                    let rx = far.queues_mut().nth(queue).unwrap();
                    let mut got = Vec::new();
                    while got.len() < 100 {
                        let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
                        assert!(!burst.is_empty(), "{path} {options:?}");
                        got.extend(burst.iter_mut().filter_map(|packet| check(packet.data())));
                        burst.send_back().unwrap();
                    }
                    assert!(got.into_iter().eq(numbers.clone()), "{path} {options:?}");
                    let back = near.queues_mut().nth(arrives_at(queue, path)).unwrap();
                    assert!(
                        collect(back, 100, PATIENCE).into_iter().eq(numbers),
                        "{path} {options:?}"
                    );
                }
            }
        }
    }
}

/// A UMEM that was made for queues of 512 frames each is shared as before.
#[test]
fn queues_take_fewer_frames_by_default_of_a_small_shared_umem() {
    if !is_root() {
        return;
    }
    let lab = lab("small", 1);
    let umem = umem(1024);
    let [a, b] = [&lab.a, &lab.b].map(|end| open(end, Path::NativeCopy, |port| port.umem(&umem)));
    for port in [a, b] {
        assert_eq!(port.report().queues[0].frames, 512);
    }
}
