use std::os::fd::AsFd as _;
use std::time::Duration;

use ringside_bpf::IngressDrop;
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig, wait_until};
use ringside_wire::MacAddr;
use ringside_wire::flow::UdpFlow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Packet, Receive};
use crate::peer::sys::ring_drops;
use crate::peer::{BATCH, Peer as _};

fn lab() -> Lab {
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged("packet-peer")
    };
    Lab::veth(config).unwrap()
}

fn flow(from: &End, to: &End) -> UdpFlow {
    UdpFlow {
        src_mac: MacAddr(from.mac),
        dst_mac: MacAddr(to.mac),
        src: (from.ipv4, 7).into(),
        dst: (to.ipv4, 7).into(),
        ttl: 64,
    }
}

fn open(from: &End, to: &End, receive: Receive) -> Packet {
    let flow = flow(from, to);
    let mut frame = vec![0; 100];
    flow.write(&mut frame, 58).unwrap();
    from.run(|| Packet::open(from.interface.index(), receive, flow, frame))
        .unwrap()
}

/// Packets for which a peer's ring had no room, since the last call.
fn drops(peer: &Packet) -> u64 {
    ring_drops(peer.socket.as_fd()).unwrap().into()
}

/// Packets that an end was given to send and the other did not take: the kernel's backlog in front of the taps, which
/// all interfaces of a CPU share, was full.
fn refused(lab: &Lab) -> u64 {
    lab.ends().map(|end| end.state().unwrap().stats.tx_dropped).iter().sum()
}

/// More packets than the ring has room for, there and back: each comes once, or is counted as lost.
#[test]
fn a_block_ring_hands_over_every_packet_and_sends_it_back() {
    if !is_root() {
        return;
    }
    let lab = lab();
    let drop = IngressDrop::load().unwrap();
    let _links = lab
        .ends()
        .map(|end| end.run(|| drop.attach(end.interface.index())).unwrap());
    let mut near = open(&lab.a, &lab.b, Receive::Blocks);
    let mut far = open(&lab.b, &lab.a, Receive::Blocks);
    let (mut offered, mut there, mut back, mut lost) = (0, 0, 0, 0);
    for turn in 1..=400 {
        near.transmit().unwrap();
        offered += BATCH as u64;
        let under_way = if turn < 400 { 1000 } else { 0 };
        let arrived = wait_until(Duration::from_secs(5), || {
            there += far.send_back().unwrap();
            back += near.receive().unwrap();
            // Blocks are closed by time as well: on a busy machine there may be few packets in each, and no block free.
            lost += drops(&near) + drops(&far);
            back + lost + under_way >= offered
        });
        let refused = if arrived { 0 } else { refused(&lab) };
        assert!(
            back + lost + refused + under_way >= offered,
            "{offered}: {there} there, {back} back, {lost} without room, {refused} refused"
        );
    }
    assert_eq!(offered, 25_600);
    assert!(back <= there && there <= offered, "{offered} {there} {back}");
    // A block that comes twice, or late, would come now.
    assert!(!readable(&near) && !readable(&far));
    assert_eq!(
        offered,
        back + lost + refused(&lab),
        "{there} there, {back} back, {lost} without room"
    );
}

/// Looking at a ring without packets changes nothing: the next block is the one that the kernel fills next.
#[test]
fn a_block_ring_stays_in_step_with_the_kernel() {
    if !is_root() {
        return;
    }
    let lab = lab();
    let mut near = open(&lab.a, &lab.b, Receive::Nothing);
    let mut far = open(&lab.b, &lab.a, Receive::Blocks);
    for looks in 0..20 {
        for _ in 0..looks {
            assert_eq!(far.receive().unwrap(), 0);
        }
        near.ask(&[0; 8]).unwrap();
        assert!(wait_until(Duration::from_secs(5), || readable(&far)), "{looks}");
        assert_eq!(far.receive().unwrap(), 1, "after {looks} looks");
    }
}

/// Whether the kernel has handed over a block that was not given back.
fn readable(peer: &Packet) -> bool {
    let mut fds = [PollFd::new(&peer.socket, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

/// A ring that nobody reads counts what it has no room for.
#[test]
fn a_full_block_ring_counts_what_it_drops() {
    if !is_root() {
        return;
    }
    let lab = lab();
    let mut near = open(&lab.a, &lab.b, Receive::Nothing);
    let mut far = open(&lab.b, &lab.a, Receive::Blocks);
    let mut sent = 0;
    while sent < 25_600 {
        sent += near.transmit().unwrap();
    }
    let (mut received, mut dropped) = (0, 0);
    wait_until(Duration::from_secs(5), || {
        received += far.receive().unwrap();
        dropped += drops(&far);
        received + dropped >= sent
    });
    // A packet in each block at the least, since they are closed by time as well.
    assert!(dropped > 10_000 && received >= 16, "{received} {dropped}");
    assert_eq!(received + dropped, sent, "{received} {dropped}");
}

/// More than the ring has room for, of which none is to be heard, beside one that is.
#[test]
fn what_others_send_takes_no_place_of_a_frame_ring() {
    if !is_root() {
        return;
    }
    let lab = lab();
    let mut far = open(&lab.b, &lab.a, Receive::Frames);
    let mut other = flow(&lab.a, &lab.b);
    other.dst.set_port(8);
    let mut frame = vec![0; 100];
    other.write(&mut frame, 58).unwrap();
    let mut loud = lab
        .a
        .run(|| Packet::open(lab.a.interface.index(), Receive::Nothing, other, frame))
        .unwrap();
    let mut near = open(&lab.a, &lab.b, Receive::Nothing);
    for n in 0..4 {
        loud.transmit().unwrap();
        // With a tag, which the kernel takes out, and without.
        near = near.tagged((n == 3).then_some(5));
        near.ask(&[n; 8]).unwrap();
        loud.transmit().unwrap();
    }
    let mut heard = Vec::new();
    wait_until(Duration::from_secs(5), || {
        far.hear(&mut |payload| heard.push(payload[0])).unwrap();
        heard.len() >= 4
    });
    assert_eq!((heard, drops(&far)), (vec![0, 1, 2, 3], 0));
}

/// A frame ring has a packet at once, and again after it went round many times.
#[test]
fn a_frame_ring_hands_over_single_packets() {
    if !is_root() {
        return;
    }
    let lab = lab();
    let mut near = open(&lab.a, &lab.b, Receive::Nothing);
    let mut far = open(&lab.b, &lab.a, Receive::Frames);
    for n in 0..1000_u64 {
        near.ask(&n.to_be_bytes()).unwrap();
        let mut heard = Vec::new();
        wait_until(Duration::from_secs(5), || {
            far.hear(&mut |payload| heard.push(payload[..8].to_vec())).unwrap();
            !heard.is_empty()
        });
        assert_eq!(heard, [n.to_be_bytes().to_vec()]);
    }
}
