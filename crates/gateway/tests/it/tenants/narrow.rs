//! Hosts behind a router whose next link takes less than the gateway's: what that router says is heard, and what a route says is known.
//!
//! ```text
//!  host 1 ─── switch ─── gateway          host 2 is the router on the way to the far host:
//!                │                        10.77.9.1, fd77:0:0:9::1
//!             host 2 ═══ far host         an MTU of 1400 between these two
//! ```

use std::sync::Arc;

use ringside_netlab::{Lab, Namespace, VethConfig, wait_until};
use serde_json::Value;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant, ip, outer};
use crate::peers::{answered_with, connect, deliver, ping};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::mtu::known_mtu;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => a_router_on_the_way_is_heard, a_route_says_what_goes, what_was_heard_outlives_the_daemon;
    slow = crate::tenants::SLOW => a_router_on_the_way_is_heard, a_route_says_what_goes;
}

const NARROW: u32 = 1400;
const SUBNET: u8 = 9;

struct Far {
    tenant: Tenant,
    _wire: Lab,
}

/// A host behind host 2, with a tenant of network 42, whom the gateway knows.
fn far(bed: &mut Bed, tag: &str, place: Place) -> Far {
    let router = Arc::clone(&bed.hosts[1].wire.a.ns);
    let ns = Namespace::create(&format!("{tag}-far")).expect("namespace");
    let config = VethConfig {
        names: ["eth0".to_owned(), "far".to_owned()],
        mtu: NARROW,
        subnet: SUBNET,
        tx_checksum: false,
        static_neighbours: false,
        ..VethConfig::default()
    };
    let wire = Lab::join(&ns, &router, config).expect("veth");
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let file = format!("/proc/sys/net/{setting}");
        router.run(|| std::fs::write(file, "1")).expect("a router");
    }
    route(bed, "");
    ip(&ns, &format!("route add default via {}", wire.b.ipv4));
    ip(&ns, &format!("-6 route add default via {}", wire.b.ipv6));
    // Else the router would cut what is too long for its next link, and say nothing.
    if place.outer == Family::V4 {
        ip(&bed.at(1).ns, "link set dev tenant0 type vxlan df set");
    }
    let remote = outer(&bed.uplinks[0].a, place);
    let tenant = Tenant::new(tag, (42, 9), place, &wire, remote);
    bed.ringside().learn(&[tenant.card]);
    Far { tenant, _wire: wire }
}

/// The gateway's way to the far host, and what else its route says.
fn route(bed: &Bed, more: &str) {
    let (gateway, router) = (&bed.uplinks[0].a.ns, &bed.hosts[1].wire.a);
    ip(
        gateway,
        format!("route replace 10.77.{SUBNET}.0/24 via {} {more}", router.ipv4).trim(),
    );
    let v6 = format!("-6 route replace fd77:0:0:{SUBNET}::/64 via {} {more}", router.ipv6);
    ip(gateway, v6.trim());
}

fn count(bed: &mut Bed, name: &str) -> u64 {
    let all: Value = bed.ringside().statistics();
    let count = all["path-mtu"][name].as_u64();
    count.unwrap_or(0)
}

fn limited(bed: &mut Bed) -> u64 {
    bed.ringside().statistics()["limited-hosts"].as_u64().expect("a number")
}

/// What of an outer packet of this length is the tenant's.
fn inside(mtu: u32, outer: Family) -> u32 {
    mtu - if outer == Family::V4 { 50 } else { 70 }
}

/// A transfer goes, and its sender knows what goes from then on.
fn is_learned(bed: &Bed, far: &Far, inner: Family, most: u32) {
    let to = far.tenant.address(inner);
    // Only towards the far one: what that one sends its own host finds too long.
    let [client, server] = connect(bed.at(1), (&far.tenant, to), 7000);
    deliver(&client, &server, 1 << 20);
    assert_eq!(known_mtu(bed, to), Some(most));
}

fn a_router_on_the_way_is_heard(kind: Kind) {
    for outer in FAMILIES {
        let mut bed = Bed::new("narrow-way", kind, &[Place::vxlan(outer); 2]);
        let far = far(&mut bed, "narrow-way", Place::vxlan(outer));
        assert_eq!(limited(&mut bed), 0);
        for inner in FAMILIES {
            is_learned(&bed, &far, inner, inside(NARROW, outer));
        }
        // Once is enough for all who send there.
        assert_eq!((count(&mut bed, "taken"), limited(&mut bed)), (1, 1));
        assert!(count(&mut bed, "heard") >= 1);
        assert!(bed.ringside().dropped("too-big") >= 2);
        // Others are sent what they were sent before.
        let most = Place::vxlan(outer).mtu();
        answered_with(bed.at(1), bed.at(2).card.v4.into(), &format!("-M do -s {}", most - 28));
    }
}

fn a_route_says_what_goes(kind: Kind) {
    let place = Place::vxlan(Family::V4);
    let mut bed = Bed::new("narrow-route", kind, &[place; 2]);
    let far = far(&mut bed, "narrow-route", place);
    let to = far.tenant.address(Family::V4);
    answered_with(bed.at(1), to, "");
    // Less than what the router's next link takes, so that nobody else says it; and less again, while packets go.
    for mtu in [1380, 1350] {
        route(&bed, &format!("mtu {mtu}"));
        let most = inside(mtu, Family::V4);
        let told = format!("mtu = {most}");
        let is_told = || {
            let done = ping(bed.at(1), to, &format!("-M do -s {} -c 1 -W 0.5", most - 28 + 1));
            // An answer may come after ping has ended.
            done.out.contains(&told) || known_mtu(&bed, to) == Some(most)
        };
        assert!(wait_until(PATIENCE, is_told));
        answered_with(bed.at(1), to, &format!("-M do -s {}", most - 28));
    }
    assert_eq!((count(&mut bed, "taken"), limited(&mut bed)), (0, 1));
    route(&bed, "");
    bed.ringside()
        .wait_until(|gateway| gateway.statistics()["limited-hosts"] == 0);
}

/// The fast path keeps to it, and the next daemon knows it by that.
fn what_was_heard_outlives_the_daemon(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let place = Place::vxlan(Family::V6);
    let mut bed = Bed::new("narrow-kept", kind, &[place; 2]);
    let far = far(&mut bed, "narrow-kept", place);
    is_learned(&bed, &far, Family::V4, inside(NARROW, Family::V6));
    // So that it has come to the fast path, which is told once a second.
    let handed_up = |bed: &mut Bed| {
        bed.ringside().statistics()["handed-up-packets"]["too-long"]
            .as_u64()
            .unwrap_or(0)
    };
    let to = far.tenant.address(Family::V6);
    let longest = inside(NARROW, Family::V6) - 48;
    assert!(wait_until(PATIENCE, || {
        let before = handed_up(&mut bed);
        ping(bed.at(1), to, &format!("-M do -s {} -c 1 -W 0.2", longest + 1));
        ip(&bed.at(1).ns, "-6 route flush cache");
        handed_up(&mut bed) > before
    }));
    let folder = bed.ringside().end(false);
    bed.ringside().start_in(folder);
    assert_eq!((count(&mut bed, "taken"), limited(&mut bed)), (0, 1));
    // A late answer of before may have told the tenant again.
    ip(&bed.at(1).ns, "-6 route flush cache");
    let done = ping(bed.at(1), to, &format!("-M do -s {} -c 1 -W 10", longest + 1));
    assert!(
        done.out.contains(&format!("mtu={}", inside(NARROW, Family::V6))),
        "{done:#?}"
    );
}
