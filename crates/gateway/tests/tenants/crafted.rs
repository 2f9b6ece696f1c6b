//! Packets made by hand: tags, Geneve options, times to live.

use std::net::SocketAddr;

use ringside_netlab::wait_until;
use ringside_wire::flow::{ChecksumState, UdpFlow, parse_udp};
use ringside_wire::{MacAddr, geneve, vxlan};

use crate::bed::{Bed, Family, Kind, Place, Tenant, Tunnel};
use crate::on;
use crate::peers::{answered, answered_with, ping};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::vtep::{Received, Vtep};

on! {
    fast = crate::FAST =>
        tags_stay, a_sender_has_to_be_at_home, options_are_kept_or_refused, time_to_live_is_that_of_a_wire, time_to_live_is_a_routers;
}

/// A datagram from one tenant to another, addressed to a MAC address.
fn frame(from: &Tenant, to: &Tenant, mac: [u8; 6]) -> Vec<u8> {
    let flow = UdpFlow {
        src_mac: MacAddr(from.card.mac),
        dst_mac: MacAddr(mac),
        src: SocketAddr::from((from.card.v4, 5000)),
        dst: SocketAddr::from((to.card.v4, 9)),
        ttl: 64,
    };
    let mut frame = vec![0x5a; flow.header_len() + 40];
    flow.write(&mut frame, 40).expect("room");
    frame
}

/// What of the datagrams above has come to a host; waits for so many.
fn expect(vtep: &Vtep, count: usize) -> Vec<Received> {
    let mut received = Vec::new();
    let came = || {
        let datagrams = vtep
            .take_received()
            .into_iter()
            .filter(|one| one.frame.ends_with(&[0x5a; 40]));
        received.extend(datagrams);
        received.len() >= count
    };
    assert!(wait_until(PATIENCE, came), "{received:?}");
    assert_eq!(received.len(), count);
    received
}

fn bed(tag: &str, kind: Kind, tunnel: Tunnel) -> Bed {
    let bed = Bed::new(tag, kind, &[Place::new(Family::V4, tunnel); 2]);
    // So that the gateway knows the hosts' MAC addresses.
    answered(bed.at(1), bed.at(2).address(Family::V4));
    bed.hosts[1].vtep().take_received();
    bed
}

fn tags_stay(kind: Kind) {
    let bed = bed("tags", kind, Tunnel::UserVxlan);
    let (from, to) = (bed.at(1), bed.at(2));
    let whole = frame(from, to, to.card.mac);
    for tags in [
        &[][..],
        &[0x81, 0x00, 0x20, 0x07],
        &[0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x07],
    ] {
        let tagged = [&whole[..12], tags, &whole[12..]].concat();
        let mut header = [0; vxlan::HEADER_LEN];
        vxlan::Header { vni: from.card.vni }.emit(&mut header).expect("room");
        bed.hosts[0].vtep().send(&[&header[..], &tagged].concat());
        let received = expect(bed.hosts[1].vtep(), 1);
        assert_eq!(received[0].frame, tagged);
    }
}

/// With the check of sources: who writes from another host, or with another MAC address, is not heard.
fn a_sender_has_to_be_at_home(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let more = "source-check = true\n";
    let mut bed = bed("at-home", Kind::Ringside(Ringside { more, ..how }), Tunnel::UserVxlan);
    let (from, to) = (bed.at(1), bed.at(2));
    let honest = frame(from, to, to.card.mac);
    let mut header = [0; vxlan::HEADER_LEN];
    vxlan::Header { vni: from.card.vni }.emit(&mut header).expect("room");
    let honest = [&header[..], &honest].concat();
    let mut liar = honest.clone();
    liar[vxlan::HEADER_LEN + 11] ^= 1;
    bed.hosts[0].vtep().send(&honest);
    expect(bed.hosts[1].vtep(), 1);
    // Another MAC address; and the second host in the first one's name.
    bed.hosts[0].vtep().send(&liar);
    bed.hosts[1].vtep().send(&honest);
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("wrong-source") == 2);
    assert_eq!(bed.hosts[1].vtep().take_received(), []);
}

fn options_are_kept_or_refused(kind: Kind) {
    let mut bed = bed("options", kind, Tunnel::Geneve);
    let (from, to) = (bed.at(1), bed.at(2));
    let whole = frame(from, to, to.card.mac);
    let packet = |options: &[u8], flags: u8| {
        let mut header = [0; geneve::HEADER_LEN];
        geneve::Header { vni: from.card.vni }.emit(&mut header).expect("room");
        header[0] = u8::try_from(options.len() / 4).expect("short");
        header[1] = flags;
        [&header[..], options, &whole].concat()
    };
    // Class, type, length in words, data; the highest bit of a type says that it is critical.
    let known = [0x01, 0x02, 0x03, 1, 0xaa, 0xbb, 0xcc, 0xdd];
    bed.hosts[0].vtep().send(&packet(&known, 0));
    let received = expect(bed.hosts[1].vtep(), 1);
    assert_eq!((&received[0].options[..], &received[0].frame), (&known[..], &whole));
    let critical = [0x01, 0x02, 0x83, 1, 0xaa, 0xbb, 0xcc, 0xdd];
    let datagram = packet(&critical, 0x40);
    let again = packet(&known, 0);
    bed.hosts[0].vtep().send(&datagram);
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("geneve-critical") == 1);
    bed.hosts[0].vtep().send(&again);
    expect(bed.hosts[1].vtep(), 1);
}

fn time_to_live_is_that_of_a_wire(kind: Kind) {
    let bed = bed("ttl-wire", kind, Tunnel::UserVxlan);
    answered_with(bed.at(1), bed.at(2).address(Family::V4), "-t 1");
}

/// A tenant that takes the gateway for a router: another MAC address than the receiver's.
fn time_to_live_is_a_routers(kind: Kind) {
    let bed = bed("ttl-router", kind, Tunnel::UserVxlan);
    let (from, to) = (bed.at(1), bed.at(2));
    let router = [2, 0, 0, 9, 9, 9];
    let whole = frame(from, to, router);
    let mut header = [0; vxlan::HEADER_LEN];
    vxlan::Header { vni: from.card.vni }.emit(&mut header).expect("room");
    bed.hosts[0].vtep().send(&[&header[..], &whole].concat());
    let received = expect(bed.hosts[1].vtep(), 1);
    let frame = &received[0].frame;
    assert_eq!((&frame[..6], frame[22]), (&to.card.mac[..], 63), "{frame:02x?}");
    let packet = parse_udp(frame).expect("a datagram");
    assert_eq!(packet.checksum_state(frame), ChecksumState::Valid);
    // The last hop: its sender is told, in the receiver's name.
    from.device()
        .add_neighbour(to.address(Family::V4), router)
        .expect("a neighbour");
    let done = ping(from, to.address(Family::V4), "-t 1 -c 1 -W 2");
    assert!(done.out.contains("Time to live exceeded"), "{done:#?}");
}
