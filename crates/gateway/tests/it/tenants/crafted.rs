//! Packets made by hand: tags, Geneve options, times to live. By the fast path and by workers, which is counted.

use std::net::SocketAddr;

use ringside_netlab::wait_until;
use ringside_wire::flow::{ChecksumState, UdpFlow, parse_udp};
use ringside_wire::{MacAddr, geneve, vxlan};

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant, Tunnel};
use crate::peers::{answered, answered_with, ping};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;
use crate::vtep::{Received, Vtep, in_vxlan};

on! {
    fast = crate::tenants::FAST =>
        tags_stay, a_sender_has_to_be_at_home, options_are_kept_or_refused, time_to_live_is_that_of_a_wire, time_to_live_is_a_routers;
    workers = crate::tenants::WORKERS =>
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

/// In which the gateway knows the hosts' MAC addresses, and sends all on by the way of its kind.
fn bed(tag: &str, kind: Kind, place: Place) -> Bed {
    let mut bed = Bed::new(tag, kind, &[place; 2]);
    let to = bed.at(2).address(Family::V4);
    let echo_goes_by_it = || {
        let before = Sent::so_far(&mut bed);
        answered(bed.at(1), to);
        before.is_followed(&mut bed, kind, 6)
    };
    assert!(wait_until(PATIENCE, echo_goes_by_it));
    bed.hosts[1].vtep().take_received();
    bed
}

/// What the gateway had sent on.
struct Sent {
    fast: u64,
    slow: u64,
}

impl Sent {
    fn so_far(bed: &mut Bed) -> Self {
        let [fast, slow] = ["fast", "slow"].map(|path| bed.ringside().forwarded(path));
        Self { fast, slow }
    }

    /// Whether so many packets were sent on since then by the way of this kind, and none by the other. Workers count when they have sent.
    fn is_followed(&self, bed: &mut Bed, kind: Kind, packets: u64) -> bool {
        let mut now = Self::so_far(bed);
        let has_counted = || {
            now = Self::so_far(bed);
            (now.fast + now.slow) - (self.fast + self.slow) >= packets
        };
        wait_until(PATIENCE, has_counted)
            && match kind.path() {
                "fast" => now.slow == self.slow,
                _ => now.fast == self.fast,
            }
    }
}

/// One of the datagrams goes from host to host, by the way of this kind.
fn sends_on(bed: &mut Bed, kind: Kind, datagram: &[u8]) -> Received {
    let before = Sent::so_far(bed);
    bed.hosts[0].vtep().send(datagram);
    let received = expect(bed.hosts[1].vtep(), 1);
    assert!(before.is_followed(bed, kind, 1), "{}", bed.ringside().statistics());
    received.into_iter().next().expect("one")
}

const VXLAN: Place = Place::new(Family::V4, Tunnel::UserVxlan);

fn tags_stay(kind: Kind) {
    let mut bed = bed("tags", kind, VXLAN);
    let (from, to) = (bed.at(1), bed.at(2));
    let (vni, whole) = (from.card.vni, frame(from, to, to.card.mac));
    for tags in [
        &[][..],
        &[0x81, 0x00, 0x20, 0x07],
        &[0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x07],
    ] {
        let tagged = [&whole[..12], tags, &whole[12..]].concat();
        let received = sends_on(&mut bed, kind, &in_vxlan(vni, &tagged));
        assert_eq!(received.frame, tagged);
    }
}

/// With the check of sources: who writes from another host, or with another MAC address, is not heard.
fn a_sender_has_to_be_at_home(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let more = "source-check = true\n";
    let mut bed = bed("at-home", Kind::Ringside(Ringside { more, ..how }), VXLAN);
    let (from, to) = (bed.at(1), bed.at(2));
    let honest = in_vxlan(from.card.vni, &frame(from, to, to.card.mac));
    let mut liar = honest.clone();
    liar[vxlan::HEADER_LEN + 11] ^= 1;
    sends_on(&mut bed, kind, &honest);
    // Another MAC address; and the second host in the first one's name. The fast path leaves it to workers to say so.
    bed.hosts[0].vtep().send(&liar);
    bed.hosts[1].vtep().send(&honest);
    bed.ringside()
        .wait_until(|gateway| gateway.dropped_by("slow", "wrong-source") == 2);
    assert_eq!(bed.hosts[1].vtep().take_received(), []);
}

fn options_are_kept_or_refused(kind: Kind) {
    for outer in FAMILIES {
        are_kept_or_refused(kind, outer);
    }
}

fn are_kept_or_refused(kind: Kind, outer: Family) {
    let mut bed = bed("options", kind, Place::new(outer, Tunnel::Geneve));
    let (from, to) = (bed.at(1), bed.at(2));
    let (vni, whole) = (from.card.vni, frame(from, to, to.card.mac));
    let packet = |options: &[u8], flags: u8| {
        let mut header = [0; geneve::HEADER_LEN];
        geneve::Header { vni }.emit(&mut header).expect("room");
        header[0] = u8::try_from(options.len() / 4).expect("short");
        header[1] = flags;
        [&header[..], options, &whole].concat()
    };
    // Class, type, length in words, data; the highest bit of a type says that it is critical.
    let known = [0x01, 0x02, 0x03, 1, 0xaa, 0xbb, 0xcc, 0xdd];
    let received = sends_on(&mut bed, kind, &packet(&known, 0));
    assert_eq!((&received.options[..], &received.frame), (&known[..], &whole));
    let critical = [0x01, 0x02, 0x83, 1, 0xaa, 0xbb, 0xcc, 0xdd];
    bed.hosts[0].vtep().send(&packet(&critical, 0x40));
    // The XDP program reads all that comes, and what it finds damaged no worker sees.
    bed.ringside()
        .wait_until(|gateway| gateway.dropped_by("fast", "geneve-critical") == 1);
    sends_on(&mut bed, kind, &packet(&known, 0));
    assert_eq!(bed.hosts[1].vtep().take_received(), []);
}

fn time_to_live_is_that_of_a_wire(kind: Kind) {
    let mut bed = bed("ttl-wire", kind, VXLAN);
    let before = Sent::so_far(&mut bed);
    // Three, and their answers.
    answered_with(bed.at(1), bed.at(2).address(Family::V4), "-t 1");
    assert!(before.is_followed(&mut bed, kind, 6));
}

/// A tenant that takes the gateway for a router: another MAC address than the receiver's.
fn time_to_live_is_a_routers(kind: Kind) {
    let mut bed = bed("ttl-router", kind, VXLAN);
    let router = [2, 0, 0, 9, 9, 9];
    let datagram = in_vxlan(bed.at(1).card.vni, &frame(bed.at(1), bed.at(2), router));
    let received = sends_on(&mut bed, kind, &datagram);
    let (from, to) = (bed.at(1), bed.at(2));
    let frame = &received.frame;
    assert_eq!((&frame[..6], frame[22]), (&to.card.mac[..], 63), "{frame:02x?}");
    let packet = parse_udp(frame).expect("a datagram");
    assert_eq!(packet.checksum_state(frame), ChecksumState::Valid);
    // The last hop: its sender is told, in the receiver's name.
    from.device()
        .add_neighbour(to.address(Family::V4), router)
        .expect("a neighbour");
    let done = ping(from, to.address(Family::V4), "-t 1 -c 1 -W 10");
    assert!(done.out.contains("Time to live exceeded"), "{done:#?}");
    // Which is a worker's to say.
    bed.ringside()
        .wait_until(|gateway| gateway.dropped_by("slow", "inner-ttl") == 1);
}
