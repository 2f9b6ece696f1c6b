//! The other side of a test: frames made by hand, sent and received through the library.

use std::time::{Duration, Instant};

use ringside_measure::probe::{Clock, DEFAULT_PORT, Kind, Probe};
use ringside_netlab::End;
use ringside_wire::MacAddr;
use ringside_wire::flow::UdpFlow;
use ringside_xsk::{Port, Wait};

/// A frame of an experimental ethertype, of a length and with bytes that follow from its number.
pub fn frame(number: u32, from: &End, to: &End) -> Vec<u8> {
    frame_of(60 + number as usize * 7919 % 1455, number, from, to)
}

/// As [`frame`], of this length.
pub fn frame_of(length: usize, number: u32, from: &End, to: &End) -> Vec<u8> {
    let mut frame = [to.mac, from.mac].concat();
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u64 * 31 + u64::from(number)).to_le_bytes()[0]));
    frame
}

pub fn flow(from: &End, to: &End, port: u16) -> UdpFlow {
    UdpFlow {
        src_mac: MacAddr(from.mac),
        dst_mac: MacAddr(to.mac),
        src: (from.ipv4, 5000).into(),
        dst: (to.ipv4, port).into(),
        ttl: 64,
    }
}

/// A UDP datagram with 40 bytes that are no probe.
pub fn datagram(from: &End, to: &End, port: u16) -> Vec<u8> {
    let flow = flow(from, to, port);
    let mut frame = vec![7; flow.header_len() + 40];
    flow.write(&mut frame, 40).unwrap();
    frame
}

pub fn probe_frame(from: &End, to: &End) -> Vec<u8> {
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

pub fn send(port: &mut Port, frames: &[Vec<u8>]) {
    let queue = port.queues_mut().next().unwrap();
    for frame in frames {
        let mut frame_of = |slot: &mut ringside_xsk::Packet<'_>| assert!(slot.write(frame));
        while queue.send_with(1, &mut frame_of).expect("sends") == 0 {}
        queue.flush().expect("flush");
        // The receivers have few frames, and share the machine.
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// As [`send`], on all queues in turn.
pub fn spread(port: &mut Port, frames: &[Vec<u8>]) {
    let queues = port.queues().len();
    for (number, frame) in frames.iter().enumerate() {
        let queue = port.queues_mut().nth(number % queues).unwrap();
        while queue.send_with(1, |slot| assert!(slot.write(frame))).expect("sends") == 0 {}
        queue.flush().expect("flush");
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub fn receive(port: &mut Port, enough: usize) -> Vec<Vec<u8>> {
    receive_for(port, enough, Duration::from_secs(3))
}

/// Receives on all queues until `enough` is there, or nothing came for `patience`.
pub fn receive_for(port: &mut Port, enough: usize, patience: Duration) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut last = Instant::now();
    while frames.len() < enough && last.elapsed() < patience {
        for queue in port.queues_mut() {
            let mut burst = queue.recv(Wait::Poll(Duration::from_millis(1))).expect("recv");
            for packet in &mut burst {
                frames.push(packet.parts().flatten().copied().collect());
                last = Instant::now();
            }
        }
    }
    frames
}

/// Sends frames one after the other and collects what comes back.
pub fn exchange(port: &mut Port, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut back = Vec::new();
    for frame in frames {
        send(port, std::slice::from_ref(frame));
        back.extend(receive_for(port, 1, Duration::from_secs(3)));
    }
    back
}
