//! Bursts that are let go and taken up again, and free frames as a burst: what bindings to other languages build on.

use std::time::Duration;

use ringside_xsk::testing::{Harness, Kernel};
use ringside_xsk::{Direction, Error, Packet, Queue, QueueOptions, Wait};

fn open(options: QueueOptions) -> (Queue, Kernel) {
    Harness::new(options)
        .start_index(u32::MAX - 3)
        .open()
        .expect("valid options")
}

fn sent(kernel: &mut Kernel) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    kernel.transmit(u32::MAX, |packet| packets.push(packet.to_vec()));
    kernel.complete(u32::MAX);
    packets
}

#[test]
fn a_burst_is_let_go_and_taken_up_again() {
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16));
    for _ in 0..40 {
        for number in 0..4 {
            assert!(kernel.deliver(&[number; 60]));
        }
        let mut burst = queue.recv(Wait::Spin).unwrap();
        burst.iter_mut().nth(1).unwrap().send();
        burst.hold();
        // What only tells something leaves it alone.
        assert_eq!((queue.in_flight(), queue.id()), (0, 0));
        let mut burst = queue.held();
        assert_eq!(burst.len(), 4);
        // Which is of no consequence, however much is asked for.
        for bytes in [0, 1, 64, 65, usize::MAX] {
            burst.prefetch(bytes);
        }
        burst.iter_mut().nth(2).unwrap().send();
        burst.hold();
        assert_eq!(queue.held().finish().unwrap(), 2);
        assert_eq!(sent(&mut kernel), [[1; 60], [2; 60]]);
        assert!(queue.held().is_empty(), "it has ended");
        assert!(queue.drain(Duration::ZERO).unwrap());
        // One that nobody takes up is dropped by the next call, and its frames are back.
        assert!(kernel.deliver(&[9; 60]));
        queue.recv(Wait::Spin).unwrap().hold();
        assert!(queue.recv(Wait::Spin).unwrap().is_empty());
        assert_eq!(queue.free_frames(), 8);
    }
}

#[test]
fn free_frames_are_a_burst_to_be_written() {
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16).batch(8));
    for round in 0..40_u8 {
        let mut burst = queue.reserve(5).unwrap();
        assert_eq!(burst.len(), 5);
        for (number, mut packet) in (0..).zip(&mut burst) {
            assert_eq!((packet.len(), packet.room(), packet.front().len()), (0, 2048 - 256, 0));
            assert!(packet.write(&[round ^ number; 60]));
            match number {
                0 => packet.drop(),
                1 => drop(Packet::keep(packet)),
                _ => packet.send(),
            }
        }
        assert_eq!(burst.finish().unwrap(), 3);
        assert_eq!(sent(&mut kernel), [2, 3, 4].map(|number| [round ^ number; 60]));
        // All but those that the fill ring needs, a batch at the most.
        assert!(queue.drain(Duration::ZERO).unwrap());
        let burst = queue.reserve(u32::MAX).unwrap();
        assert_eq!(burst.len(), 8);
        assert_eq!(burst.send_back().map_err(|error| error.to_string()).map(drop), Err("packet length = 0: a packet sent on lo queue 0 has at least an Ethernet header of 14 bytes, in its first frame".into()));
        assert_eq!(queue.free_frames(), 8);
    }
    assert_eq!(queue.reserve(0).unwrap().len(), 0);
}

#[test]
fn no_frame_is_free_while_the_kernel_has_them() {
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(8).direction(Direction::Transmit));
    let mut burst = queue.reserve(8).unwrap();
    for mut packet in &mut burst {
        assert!(packet.resize(60));
    }
    assert_eq!(burst.send_back().unwrap(), 8);
    assert!(queue.reserve(1).unwrap().is_empty());
    assert_eq!(sent(&mut kernel).len(), 8);
    assert_eq!(queue.reserve(8).unwrap().len(), 8);
}

#[test]
fn a_queue_that_only_receives_has_none_to_be_sent() {
    let (mut queue, _kernel) = open(QueueOptions::new().direction(Direction::Receive));
    let error = queue.reserve(1).expect_err("no TX ring");
    assert!(
        matches!(
            error,
            Error::Setting {
                setting: "direction",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_batch_can_be_made_smaller() {
    let (mut queue, mut kernel) = open(QueueOptions::new().batch(8));
    for _ in 0..12 {
        assert!(kernel.deliver(&[1; 60]));
    }
    for (asked, had) in [(3, 3), (0, 1), (u32::MAX, 8)] {
        queue.set_batch(asked);
        assert_eq!(queue.recv(Wait::Spin).unwrap().len(), had);
    }
}

#[test]
fn a_packet_in_several_frames_has_room_in_its_first() {
    let options = QueueOptions::new().frames(32).multi_buffer(true);
    let (mut queue, _kernel) = Harness::new(options).mtu(5000).open().expect("valid options");
    let mut burst = queue.reserve(2).unwrap();
    assert_eq!(burst.len(), 2);
    for packet in &mut burst {
        assert_eq!(packet.room(), 2048 - 256);
        assert!(packet.capacity() >= 5000);
    }
}
