//! Packets sent and expected: order, length, every byte, and where in the frame they lie.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringside_netlab::testing::pause;
use ringside_netlab::{End, Lab};
use ringside_xsk::{Error, Packet, Pages, Port, Queue, QueueOptions, Wait, XDP_HEADROOM};

use super::conformance::Case;
use super::{PATIENCE, packet_of};

/// Packets of these numbers, all of one length, from one end to the other.
pub fn packets(numbers: std::ops::Range<u64>, len: usize, from: &End, to: &End) -> Vec<Vec<u8>> {
    numbers.map(|n| packet_of(n, len, from.mac, to.mac)).collect()
}

/// Sends packets, and waits until the kernel has them all.
pub fn send(tx: &mut Queue, packets: &[Vec<u8>]) {
    let start = Instant::now();
    let mut left = packets;
    while !left.is_empty() {
        let most = u32::try_from(left.len()).expect("few");
        let mut next = left.iter();
        let sent = tx.send_with(most, |slot| {
            assert!(slot.write(next.next().expect("no more than asked for")))
        });
        left = &left[sent.expect("sends") as usize..];
        assert!(start.elapsed() < PATIENCE, "{} packets cannot be sent", left.len());
    }
    while let Err(error) = tx.flush() {
        // The other side of an emulated NIC may have had no CPU for longer than the stall time.
        let again = matches!(error, Error::NoProgress { .. }) && start.elapsed() < PATIENCE;
        assert!(again, "{error}");
    }
}

/// Receives exactly these packets, in their order: as long, the same in every byte, right behind the headroom, and in
/// several frames only if each but the last is full.
pub fn expect(rx: &mut Queue, wait: Wait, packets: &[Vec<u8>]) {
    expect_but(rx, wait, packets, |_| false);
}

/// As [`expect`], with other packets among them that do not matter.
pub fn expect_but(rx: &mut Queue, wait: Wait, packets: &[Vec<u8>], ignored: impl Fn(&[u8]) -> bool) {
    let mut next = packets.iter();
    let start = Instant::now();
    while next.len() != 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {} packets did not arrive; {:?}",
            next.len(),
            packets.len(),
            rx.stats()
        );
        let offset = (XDP_HEADROOM + rx.report().headroom) as usize;
        let room = rx.report().frame_size as usize - offset;
        let mut burst = rx.recv(wait).expect("recv");
        if burst.is_empty() {
            pause();
        }
        for packet in &mut burst {
            if ignored(packet.data()) {
                continue;
            }
            let at = packets.len() - next.len();
            let expected = next.next().unwrap_or_else(|| panic!("one more: {:?}", packet.data()));
            assert_eq!(packet.headroom(), offset, "where packet {at} starts in its frame");
            same(at, &packet, expected, room);
        }
    }
}

/// Fails unless the packet is the expected one, over frames with so much room each.
pub fn same(at: usize, packet: &Packet<'_>, expected: &[u8], room: usize) {
    assert_eq!(packet.len(), expected.len(), "length of packet {at}");
    let mut left = expected;
    for part in packet.parts() {
        let (now, behind) = left.split_at(part.len());
        assert!(
            part.len() == room || behind.is_empty(),
            "a part of packet {at} is not full"
        );
        let wrong = part.iter().zip(now).position(|(got, wanted)| got != wanted);
        assert_eq!(wrong, None, "packet {at}: {part:?}\n{now:?}");
        left = behind;
    }
}

/// Receives what comes, until nothing has for a moment: some of these packets, each once. How many.
///
/// With zero-copy a packet for which the NIC has no frame is up to the NIC: lost, or kept until there is one.
pub fn expect_some(rx: &mut Queue, packets: &[Vec<u8>]) -> usize {
    let mut came = BTreeSet::new();
    loop {
        let mut burst = rx.recv(Wait::Poll(Duration::from_millis(200))).expect("recv");
        if burst.is_empty() && burst.event().is_none() {
            return came.len();
        }
        for packet in &mut burst {
            let n = packets.iter().position(|sent| sent == packet.data());
            let n = n.unwrap_or_else(|| panic!("nobody has sent {:x?}", packet.data()));
            assert!(came.insert(n), "packet {n} came twice, among {came:?}");
        }
    }
}

/// Fails if a packet comes within a moment.
pub fn expect_nothing(rx: &mut Queue) {
    let mut burst = rx.recv(Wait::Poll(Duration::from_millis(50))).expect("recv");
    assert_eq!(
        burst.iter_mut().map(|packet| packet.data().to_vec()).next(),
        None,
        "one too many"
    );
}

/// Sends so many packets of a length from end a to end b, in bursts of 64.
pub fn exchange(lab: &Lab, tx: &mut Queue, rx: &mut Queue, wait: Wait, traffic: (u64, usize)) {
    exchange_in(64, lab, tx, rx, wait, traffic);
}

/// As [`exchange`], in bursts of so many.
pub fn exchange_in(batch: u64, lab: &Lab, tx: &mut Queue, rx: &mut Queue, wait: Wait, (count, len): (u64, usize)) {
    for first in (0..count).step_by(usize::try_from(batch).expect("small")) {
        let burst = packets(first..count.min(first + batch), len, &lab.a, &lab.b);
        send(tx, &burst);
        expect(rx, wait, &burst);
    }
}

/// The one queue of a port.
pub fn only(port: &mut Port) -> &mut Queue {
    let mut queues = port.queues_mut();
    let only = queues.next().expect("one queue");
    assert_eq!(queues.len(), 0);
    only
}

/// The queue of this number.
pub fn queue(port: &mut Port, id: u32) -> &mut Queue {
    port.queues_mut().find(|queue| queue.id() == id).expect("opened")
}

/// Opens a receiving and a sending end of the same options, and exchanges packets. The pages that the UMEM has.
pub fn through(lab: &Lab, case: Case, options: QueueOptions, traffic: (u64, usize)) -> Pages {
    let mut port = case.port(&lab.b, options.clone(), |port| port);
    let mut tx = case.sender(&lab.a, options);
    exchange(lab, &mut tx, only(&mut port), case.wait(), traffic);
    expect_nothing(only(&mut port));
    assert!(tx.drain(PATIENCE).expect("drains"), "all frames come back");
    tx.report().pages
}
