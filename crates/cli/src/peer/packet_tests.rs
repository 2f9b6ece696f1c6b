use std::time::Duration;

use ringside_bpf::IngressDrop;
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig, wait_until};
use ringside_wire::MacAddr;
use ringside_wire::flow::UdpFlow;

use super::{Packet, Receive};
use crate::peer::Peer as _;

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

/// More packets than the ring has room for, there and back: none is counted twice, and they come.
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
    let mut count = (0, 0, 0);
    for _ in 0..400 {
        count.0 += near.transmit().unwrap();
        // A block with few packets comes after its time: never more are under way than the ring holds.
        let arrived = wait_until(Duration::from_secs(5), || {
            count.1 += far.send_back().unwrap();
            count.2 += near.receive().unwrap();
            count.0 - count.2 < 1000
        });
        assert!(arrived, "{count:?}");
    }
    wait_until(Duration::from_secs(5), || {
        count.1 += far.send_back().unwrap();
        count.2 += near.receive().unwrap();
        count.2 == count.0
    });
    let (sent, there, back) = count;
    assert_eq!(sent, 25_600);
    // The kernel's backlog in front of the taps is 1000 packets: on a machine that is busy elsewhere it may overflow.
    assert!(there <= sent && there >= sent * 95 / 100, "{count:?}");
    assert!(back <= there && back >= sent * 90 / 100, "{count:?}");
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
