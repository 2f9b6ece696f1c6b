//! The log of a gateway under load: nothing in it is about a packet.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ringside_netlab::Namespace;

use crate::bed::{Bed, Family, Kind, Place, ip};
use crate::peers::{answered, connect, exchange, wait_for_answer};
use crate::ringside::Ringside;
use crate::tenants::on;

const fn quiet(how: Ringside) -> Kind {
    Kind::Ringside(Ringside {
        more: "[log]\nlevel = \"info\"",
        // Longer than a CPU is away at a time, or the first packet to a host is lost.
        patience: 1500,
        ..how
    })
}
const FAST: Kind = quiet(Ringside::FAST);
const SLOW: Kind = quiet(Ringside {
    cache: Some(1),
    ..Ringside::FAST
});

on! {
    fast = super::FAST => nothing_is_logged_for_a_packet;
    slow = super::SLOW => nothing_is_logged_for_a_packet;
}

/// Sends so many datagrams of so many bytes, in 10,000 a second: in 150 ms without a CPU a worker's
/// ring does not run over.
fn send(ns: &Namespace, to: impl Into<SocketAddr>, (times, bytes): (u32, usize)) {
    let to = to.into();
    let socket = ns.run(|| UdpSocket::bind(("0.0.0.0", 0))).expect("a socket");
    for number in 1..=times {
        // What an ICMP error has said of the way is told once as this one's error.
        _ = socket.send_to(&vec![0; bytes], to);
        if number.is_multiple_of(100) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn nothing_is_logged_for_a_packet(kind: Kind) {
    const TIMES: u32 = 3000;
    const HANDFUL: usize = 5;
    // Over IPv6 there is less room for a tenant's packet: what is sent to the second is too long for its host.
    let mut bed = Bed::new("quiet", kind, &[Family::V4, Family::V6, Family::V4].map(Place::vxlan));
    let mut card = bed.at(2).card;
    card.v4 = [10, 0, 0, 50].into();
    card.v6 = "fd00::50".parse().expect("an address");
    card.host = "10.77.0.99".parse().expect("an address that nobody has");
    bed.ringside().learn(&[card]);
    let [narrow, to] = [2, 3].map(|host| bed.at(host).address(Family::V4));
    for to in [narrow, to] {
        wait_for_answer(bed.at(1), to);
        answered(bed.at(1), to);
    }
    // Who is not known, and whose host is not: nobody asks for their MAC addresses.
    let from = bed.at(1).ns.clone();
    for number in [50, 77] {
        ip(
            &from,
            &format!("neighbour add 10.0.0.{number} lladdr 02:00:00:00:00:{number} dev tenant0 nud permanent"),
        );
    }
    let host = bed.hosts[0].wire.a.clone();
    let gateway = bed.uplinks[0].a.ipv4;
    let lines = |bed: &mut Bed| bed.ringside().daemon().log().lines().count();
    let before = lines(&mut bed);
    let streams = connect(bed.at(1), (bed.at(3), to), 7000);
    exchange(&streams, 16 << 20);
    send(&from, ([10, 0, 0, 77], 9), (TIMES, 100));
    send(&from, ([10, 0, 0, 50], 9), (TIMES, 100));
    send(&host.ns, (gateway, 4789), (TIMES, 100));
    // Whatever its kernel is told.
    ip(&from, &format!("route replace {narrow} dev tenant0 mtu lock 1450"));
    send(&from, (narrow, 9), (TIMES, 1450 - 28));
    // A machine that has other things to do may have no room for some of them.
    let many = u64::from(TIMES) / 3;
    bed.ringside().wait_until(|gateway| {
        let reasons = ["no-neighbor", "vxlan-flags", "too-big", "host-queue-full"];
        reasons.iter().all(|reason| gateway.dropped(reason) >= many) && gateway.sent_on() >= 4 * many
    });
    // What is logged now and then has its time, too.
    std::thread::sleep(Duration::from_secs(2));
    let more = lines(&mut bed) - before;
    assert!(more <= HANDFUL, "{more} lines: {}", bed.ringside().daemon().log());
}
