//! Packets that are longer than the interface's MTU, and an MTU that changes.

use std::time::{Duration, Instant};

use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};
use ringside_xsk::{Direction, Error, LinkEvent, Path, Queue, QueueOptions, SharedUmem, Wait};

use crate::common::traffic::{expect, expect_nothing, only};
use crate::common::{PATIENCE, open, packet_of, roomy, send_one};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

fn lab(tag: &str) -> Lab {
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged(tag)
    };
    Lab::veth(config).expect("test bed")
}

/// Returns a packet of this length, with VLAN tags in front of its ethertype.
fn tagged(lab: &Lab, tags: &[[u8; 2]], len: usize) -> Vec<u8> {
    let mut packet = packet_of(7, len - 4 * tags.len(), lab.a.mac, lab.b.mac);
    for tag in tags {
        packet.splice(12..12, [tag[0], tag[1], 0, 5]);
    }
    packet
}

fn is_refused(result: Result<(), Error>, bytes: usize) {
    let text = result.expect_err("longer than the MTU").to_string();
    let parts = [
        "veth-a",
        "1514 bytes",
        "MTU of 1500",
        &bytes.to_string(),
        "ip link set dev veth-a mtu",
    ];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

fn next_event(queue: &mut Queue) -> LinkEvent {
    let start = Instant::now();
    loop {
        if let Some(event) = queue
            .recv(Wait::Poll(Duration::from_millis(50)))
            .expect("no error")
            .event()
        {
            return event.clone();
        }
        assert!(start.elapsed() < PATIENCE, "no link event");
    }
}

#[test]
fn packets_above_the_mtu_are_refused_or_counted_and_never_said_to_be_sent() {
    if !is_root() {
        return;
    }
    for path in [Path::NativeCopy, Path::Generic] {
        let lab = lab("mtu");
        let mut receiver = open(&lab.b, path, |port| port.options(roomy()));
        let mut sender = open(&lab.a, path, |port| port.options(roomy()));
        let (tx, rx) = (only(&mut sender), only(&mut receiver));
        assert_eq!(tx.mtu(), 1500);
        let longest = packet_of(1, 1500 + HEADER, lab.a.mac, lab.b.mac);
        let too_long = packet_of(2, 1501 + HEADER, lab.a.mac, lab.b.mac);

        let mut frame = tx.alloc().expect("a frame");
        assert!(frame.write(&too_long) && !frame.fits_mtu(1500) && frame.fits_mtu(1501));
        let refused = tx.send(frame).expect_err("longer than the MTU");
        assert_eq!(refused.frame.data(), too_long, "the frame comes back");
        is_refused(Err(refused.error), too_long.len());
        let sent = tx.send_with(1, |slot| assert!(slot.write(&too_long)));
        is_refused(sent.map(drop), too_long.len());
        // Others of the same call are sent.
        let mut packets = [&longest, &too_long, &longest].into_iter();
        let sent = tx.send_with(3, |slot| assert!(slot.write(packets.next().expect("three"))));
        is_refused(sent.map(drop), too_long.len());
        assert!(tx.drain(PATIENCE).expect("sends"));
        let counters = tx.counters();
        assert_eq!(
            (
                counters.tx_packets,
                counters.tx_completed,
                counters.tx_too_long,
                counters.tx_abandoned
            ),
            (2, 2, 2, 0),
            "{path}"
        );
        expect(rx, Wait::Poll(PATIENCE), &[longest.clone(), longest.clone()]);
        expect_nothing(rx);
    }
}

#[test]
fn vlan_tags_do_not_count_as_part_of_the_mtu() {
    if !is_root() {
        return;
    }
    let lab = lab("mtutags");
    let mut sender = open(&lab.a, Path::NativeCopy, |port| port.options(roomy()));
    let tx = only(&mut sender);
    let (c_tag, s_tag) = ([0x81, 0x00], [0x88, 0xa8]);
    for (tags, len, is_taken) in [
        (&[c_tag][..], 1518, true),
        (&[c_tag], 1519, false),
        (&[c_tag, s_tag], 1522, true),
        (&[c_tag, s_tag], 1523, false),
        (&[c_tag, c_tag, s_tag], 1526, false),
        (&[], 1518, false),
    ] {
        let packet = tagged(&lab, tags, len);
        let sent = tx.send_with(1, |slot| assert!(slot.write(&packet)));
        assert_eq!(sent.is_ok(), is_taken, "{tags:?} {len}: {sent:?}");
    }
}

#[test]
fn a_burst_drops_packets_above_the_mtu_of_the_interface_it_is_sent_on() {
    if !is_root() {
        return;
    }
    let (from, to) = (lab("mtuin"), lab("mtuout"));
    from.a.run(|| from.a.interface.set_mtu(1700).expect("an MTU"));
    from.b.run(|| from.b.interface.set_mtu(1700).expect("an MTU"));
    let umem = SharedUmem::builder().frames(2048).build().expect("a UMEM");
    let mut sender = open(&from.a, Path::NativeCopy, |port| port.options(roomy()));
    let on_umem = |port: ringside_xsk::PortBuilder| port.umem(&umem).options(QueueOptions::new().frames(512));
    let mut incoming = open(&from.b, Path::NativeCopy, on_umem);
    let mut outgoing = open(&to.a, Path::NativeCopy, on_umem);
    let mut receiver = open(&to.b, Path::NativeCopy, |port| port.options(roomy()));
    let (tx, rx) = (only(&mut sender), only(&mut receiver));
    let (incoming, outgoing) = (only(&mut incoming), only(&mut outgoing));
    let packet = |n, len| packet_of(n, len, from.a.mac, from.b.mac);
    for packet in [packet(1, 1514), packet(2, 1700), packet(3, 60)] {
        send_one(tx, &packet);
    }
    let (mut arrived, start) = (0, Instant::now());
    while arrived < 3 {
        let burst = incoming.recv(Wait::Poll(Duration::from_millis(20))).expect("receives");
        arrived += burst.len();
        burst.send_on(outgoing).expect("what came is no error of this program");
        assert!(start.elapsed() < PATIENCE, "{arrived} of 3 packets arrived");
    }
    assert!(outgoing.drain(PATIENCE).expect("sends"));
    let counters = outgoing.counters();
    assert_eq!(
        (counters.tx_packets, counters.tx_completed, counters.tx_too_long),
        (2, 2, 1)
    );
    expect(rx, Wait::Poll(PATIENCE), &[packet(1, 1514), packet(3, 60)]);
    outgoing.ledger().expect("each frame has one owner");
}

#[test]
fn a_changed_mtu_is_an_event_and_the_new_limit() {
    if !is_root() {
        return;
    }
    let lab = lab("mtunew");
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port.options(roomy()));
    let mut sender = open(&lab.a, Path::NativeCopy, |port| port.options(roomy()));
    let (tx, rx) = (only(&mut sender), only(&mut receiver));
    let packet = packet_of(5, 1400, lab.a.mac, lab.b.mac);
    lab.a.run(|| lab.a.interface.set_mtu(1300).expect("an MTU"));
    assert_eq!(next_event(tx), LinkEvent::MtuChanged { mtu: 1300 });
    assert_eq!(tx.mtu(), 1300);
    tx.send_with(1, |slot| assert!(slot.write(&packet)))
        .expect_err("longer than the MTU");
    lab.a.run(|| lab.a.interface.set_mtu(1500).expect("an MTU"));
    assert_eq!(next_event(tx), LinkEvent::MtuChanged { mtu: 1500 });
    send_one(tx, &packet);
    expect(rx, Wait::Poll(PATIENCE), &[packet]);
}

#[test]
fn a_queue_that_only_sends_follows_the_mtu() {
    if !is_root() {
        return;
    }
    let lab = lab("mtuonly");
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port.options(roomy()));
    let mut sender = open(&lab.a, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().direction(Direction::Transmit))
    });
    let (tx, rx) = (only(&mut sender), only(&mut receiver));
    let packet = packet_of(5, 1400, lab.a.mac, lab.b.mac);
    for (mtu, is_taken) in [(1300, false), (1500, true)] {
        lab.a.run(|| lab.a.interface.set_mtu(mtu).expect("an MTU"));
        let start = Instant::now();
        while tx.mtu() != mtu {
            tx.flush().expect("nothing to send");
            assert!(start.elapsed() < PATIENCE, "the MTU is still {}", tx.mtu());
        }
        let sent = tx.send_with(1, |slot| assert!(slot.write(&packet)));
        assert_eq!(sent.is_ok(), is_taken, "{sent:?}");
    }
    expect(rx, Wait::Poll(PATIENCE), &[packet]);
}
