//! What the gateway answers itself, and what it carries to nobody. The receiving host is a program that tells what came.

use std::net::IpAddr;

use crate::bed::{Bed, Family, Kind, Place, Tunnel};
use crate::peers::{MOMENT, answered, ping, unanswered};
use crate::tenants::on;
use crate::vtep::Received;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

on! {
    fast = crate::tenants::FAST =>
        questions_are_answered_in_place, what_is_for_many_is_carried_to_nobody, nobody_is_made_up, all_speak_to_all;
    generic = crate::tenants::GENERIC => questions_are_answered_in_place, all_speak_to_all;
}

/// A question in ARP, or a neighbour solicitation.
fn is_question(received: &Received) -> bool {
    let byte = |at: usize| received.frame.get(at).copied();
    match received.ethertype() {
        ARP => byte(21) == Some(1),
        // Next header and type.
        IPV6 => byte(20) == Some(58) && byte(54) == Some(135),
        _ => false,
    }
}

fn is_for_many(received: &Received) -> bool {
    received.frame.first().is_some_and(|byte| byte & 1 == 1)
}

const PLACES: [Place; 2] = [
    Place::new(Family::V4, Tunnel::Vxlan),
    Place::new(Family::V4, Tunnel::UserVxlan),
];

fn questions_are_answered_in_place(kind: Kind) {
    let mut bed = Bed::new("in-place", kind, &PLACES);
    let before = bed.ringside().answered();
    for inner in crate::bed::FAMILIES {
        let (from, to) = (bed.at(1), bed.at(2));
        assert_eq!(from.neighbour(to.address(inner)), None);
        answered(from, to.address(inner));
        assert_eq!(from.neighbour(to.address(inner)), Some(to.card.mac));
        assert_eq!(to.neighbour(from.address(inner)), Some(from.card.mac));
    }
    let received = bed.hosts[1].vtep().take_received();
    // The echo requests, and answers to what the tenant itself has asked.
    assert!(received.len() >= 8, "{received:?}");
    for one in &received {
        assert!(!is_for_many(one) && !is_question(one), "{one:02x?}");
    }
    // Both have asked, in both families.
    bed.ringside().wait_until(|gateway| gateway.answered() >= before + 4);
}

fn what_is_for_many_is_carried_to_nobody(kind: Kind) {
    let mut bed = Bed::new("for-many", kind, &PLACES);
    // What tenants say when they come up is for many as well.
    std::thread::sleep(MOMENT);
    let before = bed.ringside().dropped("inner-multicast");
    let done = ping(bed.at(1), "10.0.0.255".parse().expect("an address"), "-b -c 5 -W 1");
    assert!(done.out.contains("5 packets transmitted, 0 received"), "{done:#?}");
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("inner-multicast") >= before + 5);
    assert_eq!(bed.hosts[1].vtep().take_received(), []);
}

fn nobody_is_made_up(kind: Kind) {
    let mut bed = Bed::new("made-up", kind, &PLACES);
    for address in ["10.0.0.77", "fd00::77"] {
        let address: IpAddr = address.parse().expect("an address");
        let before = bed.ringside().dropped("no-neighbor");
        unanswered(bed.at(1), address);
        assert_eq!(bed.at(1).neighbour(address), None);
        bed.ringside()
            .wait_until(|gateway| gateway.dropped("no-neighbor") > before);
    }
    assert_eq!(bed.hosts[1].vtep().take_received(), []);
}

fn all_speak_to_all(kind: Kind) {
    let places = [
        Place::new(Family::V4, Tunnel::Vxlan),
        Place::new(Family::V6, Tunnel::Geneve),
        Place::new(Family::V6, Tunnel::Vxlan),
        Place::new(Family::V4, Tunnel::Geneve),
        Place::new(Family::V4, Tunnel::VxlanUnsummed),
    ];
    let bed = Bed::new("all-to-all", kind, &places);
    for from in 1..=places.len() {
        for to in (1..=places.len()).filter(|to| *to != from) {
            for inner in crate::bed::FAMILIES {
                let done = answered(bed.at(from), bed.at(to).address(inner));
                assert!(done.out.contains("ttl=64"), "{from} to {to}: {done:#?}");
            }
        }
    }
}
