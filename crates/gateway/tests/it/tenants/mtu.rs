//! Packets that are too long for the way: a host over IPv4 takes 20 bytes more than one over IPv6.

use std::net::IpAddr;

use ringside_netlab::wait_until;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant};
use crate::peers::{answered_with, connect, deliver, ping};
use crate::process::PATIENCE;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST =>
        who_sends_too_much_is_told, what_may_be_fragmented_is_told_as_well, a_connection_finds_what_goes;
    slow = crate::tenants::SLOW => who_sends_too_much_is_told;
    two_ports = crate::tenants::TWO_PORTS => a_narrower_port_between_hosts_over_ipv6;
    two_ports_slow = crate::tenants::TWO_PORTS_SLOW => a_narrower_port_between_hosts_over_ipv6;
}

const PLACES: [Place; 2] = [Place::vxlan(Family::V4), Place::vxlan(Family::V6)];

fn who_sends_too_much_is_told(kind: Kind) {
    tells(&mut Bed::new("too-long", kind, &PLACES), 1430);
}

/// Sent on as it came, over IPv6 both times, by a port that takes less than the one that it came by. Nobody fragments an outer packet of
/// IPv6, whether the tenant's says DF or not.
fn a_narrower_port_between_hosts_over_ipv6(kind: Kind) {
    let places = [Place::vxlan(Family::V6); 2];
    let bed = Bed::without_gateway("narrow", kind, &places);
    let narrow = &bed.uplinks[1].a;
    narrow.run(|| narrow.interface.set_mtu(1400)).expect("MTU");
    let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
    let mut bed = bed.with(kind, &cards);
    let most = 1400 - 70;
    tells(&mut bed, most);
    // The other tenant has not heard of it yet.
    let (from, to) = (&bed.tenants[0][1], bed.tenants[1][1].address(Family::V4));
    let done = ping(from, to, &format!("-M dont -s {} -c 1 -W 2", most - 28 + 1));
    assert!(done.out.contains("1 packets transmitted, 0 received"), "{done:#?}");
    assert!(wait_until(PATIENCE, || route_mtu(from, to) == Some(most)));
    answered_with(from, to, &format!("-M dont -s {}", most - 28 + 1));
}

/// Tenant 2 is sent no more than so many bytes, with DF; with one more its sender is told, and counted.
fn tells(bed: &mut Bed, most: u32) {
    for inner in FAMILIES {
        let to = bed.at(2).address(inner);
        // IP and ICMP.
        let (headers, told) = match inner {
            Family::V4 => (28, format!("Frag needed and DF set (mtu = {most})")),
            Family::V6 => (48, format!("Packet too big: mtu={most}")),
        };
        let longest = most - headers;
        answered_with(bed.at(1), to, &format!("-M do -s {longest}"));
        let before = bed.ringside().dropped("too-big");
        let done = ping(bed.at(1), to, &format!("-M do -s {} -c 1 -W 10", longest + 1));
        assert!(
            done.out.contains(&told) && done.out.contains(" 0 received"),
            "{done:#?}"
        );
        bed.ringside()
            .wait_until(|gateway| gateway.dropped("too-big") == before + 1);
        // Now the sender knows, and asks nobody.
        let done = ping(bed.at(1), to, &format!("-M do -s {} -c 1 -W 2", longest + 1));
        assert!(done.err.to_lowercase().contains("message too long"), "{done:#?}");
        assert_eq!(known_mtu(bed, to), Some(most));
        // Nor does it fragment what it may not, and what it may gets there.
        answered_with(bed.at(1), to, &format!("-s {}", longest + 1));
    }
}

/// Nothing is fragmented here: the sender does it, once it knows.
fn what_may_be_fragmented_is_told_as_well(kind: Kind) {
    let mut bed = Bed::new("may-be-cut", kind, &PLACES);
    let to = bed.at(2).address(Family::V4);
    let done = ping(bed.at(1), to, "-M dont -s 1422 -c 1 -W 0.5");
    assert!(done.out.contains("1 packets transmitted, 0 received"), "{done:#?}");
    bed.ringside().wait_until(|gateway| gateway.dropped("too-big") == 1);
    // What it is told may come after ping has ended.
    assert!(wait_until(PATIENCE, || known_mtu(&bed, to) == Some(1430)));
    answered_with(bed.at(1), to, "-M dont -s 1422");
    assert_eq!(bed.ringside().dropped("too-big"), 1);
}

fn a_connection_finds_what_goes(kind: Kind) {
    let mut bed = Bed::new("finds-mtu", kind, &PLACES);
    // Else its TCP says from the beginning what it takes.
    let receiver = bed.at(2);
    receiver.ns.run(|| receiver.interface().set_mtu(1450)).expect("MTU");
    for inner in FAMILIES {
        let to = bed.at(2).address(inner);
        // Only towards the one that listens: what that one sends its own host finds too long.
        let [client, server] = connect(bed.at(1), (bed.at(2), to), 7000);
        deliver(&client, &server, 4 << 20);
        assert_eq!(known_mtu(&bed, to), Some(1430));
    }
    assert!(bed.ringside().dropped("too-big") >= 2);
}

/// What the first tenant's kernel has found out about the way to an address.
pub(crate) fn known_mtu(bed: &Bed, to: IpAddr) -> Option<u32> {
    route_mtu(bed.at(1), to)
}

/// Returns the MTU that a tenant's kernel has found out for an address.
fn route_mtu(from: &Tenant, to: IpAddr) -> Option<u32> {
    let output = from.command(&format!("ip route get {to}")).output().expect("ip");
    let route = String::from_utf8(output.stdout).expect("UTF-8");
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1)?.parse().ok()
}
