//! Who owns nothing sends on, and counts.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ringside_netlab::wait_until;
use ringside_wire::flow::UdpFlow;
use ringside_wire::{MacAddr, vxlan};

use super::Fleet;
use crate::peers::uninterrupted;
use crate::process::PATIENCE;
use crate::vtep::in_vxlan;

/// Sends packets of a network without rules to a gateway that owns nothing: the receiver has them all, none was a worker's, and all
/// are counted.
pub(super) fn sends_on_and_counts(fleet: &Fleet, gateway: usize) {
    const PACKETS: u64 = 300;
    let [from, to] = [0, 1].map(|host: usize| &fleet.bed.tenants[host][1]);
    let one = &fleet.gateways[gateway];
    let foreign = || one.json(&["fleet"])["foreign-packets"].as_u64().expect("a number");
    let missed = || one.json(&["stats"])["handed-up-packets"]["miss"].as_u64().unwrap_or(0);
    let flow = UdpFlow {
        src_mac: MacAddr(from.card.mac),
        dst_mac: MacAddr(to.card.mac),
        src: SocketAddr::from((from.card.v4, 5000)),
        dst: SocketAddr::from((to.card.v4, 5001)),
        ttl: 64,
    };
    let mut frame = vec![0x5a; flow.header_len() + 40];
    flow.write(&mut frame, 40).expect("room");
    let packet = in_vxlan(from.card.vni, &frame);
    // What its host would send, had it an old map.
    let sender = fleet.bed.hosts[0].wire.a.ns.run(|| UdpSocket::bind("0.0.0.0:0"));
    let (sender, old) = (sender.expect("a socket"), (one.address(), vxlan::PORT));
    let receiver = to.ns.run(|| UdpSocket::bind("0.0.0.0:5001")).expect("a socket");
    receiver
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("set");
    let goes = || {
        sender.send_to(&packet, old).expect("sent");
        uninterrupted(|| receiver.recv(&mut [0; 64])).is_ok()
    };
    // Its entries are marked a moment after it has lost the network.
    let before = foreign();
    assert!(wait_until(PATIENCE, || goes() && foreign() > before), "none is counted");
    receiver.set_read_timeout(Some(PATIENCE)).expect("set");
    let (before, missed_before) = (foreign(), missed());
    let arrived = (0..PACKETS).filter(|_| goes()).count() as u64;
    assert_eq!(arrived, PACKETS, "a host with an old map loses nothing");
    assert!(
        wait_until(PATIENCE, || foreign() >= before + PACKETS),
        "{before} and {}",
        foreign()
    );
    assert_eq!(missed(), missed_before, "by the fast path");
}
