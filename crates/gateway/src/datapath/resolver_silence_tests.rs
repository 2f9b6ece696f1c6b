//! Hosts and routers that stop answering, in a namespace, as root.

use super::*;

/// Sends a packet to a host, and waits until its MAC address is known.
fn reach(at: (&Resolver, &mut Ways<'_>), want: &Sender<HostId>, id: HostId, mac: Option<MacAddr>) {
    want.send(id).unwrap();
    assert_eq!(mac_within(at, id, mac, Duration::from_secs(20)), mac);
}

/// The fast path sends to it, which the kernel does not see.
#[test]
fn a_host_that_stops_answering_is_not_sent_to_until_it_answers_again() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("stops");
    lab.a.run(|| {
        let tables = tables();
        let id = host(&tables, 2);
        let (resolver, want, hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let b = Some(MacAddr(lab.b.mac));
        reach((&resolver, &mut ways), &want, id, b);
        let mut known = |mac, longest| mac_within((&resolver, &mut ways), id, mac, longest);
        let device = lab.b.interface.name();
        let address = |change| ip(&lab.b, &format!("address {change} 10.77.0.2/24 dev {device}"));
        // It misses a question or two, and another program flushes the kernel's table.
        address("del");
        assert_eq!(known(None, Duration::from_millis(1500)), b);
        address("add");
        for _ in 0..5 {
            ip(&lab.a, &format!("neigh flush dev {}", lab.a.interface.name()));
            assert_eq!(known(None, Duration::from_secs(1)), b);
        }
        hosts.try_iter().for_each(drop);
        address("del");
        assert_eq!(known(None, Duration::from_secs(20)), None, "nobody is there");
        assert!(hosts.try_iter().any(|found| found == id), "the fast path forgets it");
        assert_eq!(resolver.shared.unresolved.problems(), [""; 0], "nobody sends to it");
        want.send(id).unwrap();
        let begun = Instant::now();
        assert_eq!(known(b, 2 * LOOK), None);
        let problems = resolver.shared.unresolved.problems();
        let text = "packets to host 10.77.0.2 are lost: it does not answer for its MAC address";
        assert!(
            problems.len() == 1 && problems[0].starts_with(text),
            "{problems:?} {:?}",
            begun.elapsed()
        );
        address("add");
        want.send(id).unwrap();
        assert_eq!(known(b, Duration::from_secs(5)), b);
        assert_eq!(resolver.shared.unresolved.problems(), [""; 0]);
    });
}

/// The kernel has forgotten meanwhile whom the gateway sent to.
#[test]
fn a_host_of_the_process_before_is_not_sent_to_if_nobody_answers() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("stopped");
    lab.a.run(|| {
        let tables = tables();
        let ids = [2, 9].map(|last| host(&tables, last));
        let mac = MacAddr([2; 6]);
        for id in ids {
            assert!(tables.hosts.resolve(id, Some((mac, 0))));
        }
        let (mut resolver, _want, _hosts) = resolver(&tables, &lab.a);
        resolver.resolved.extend(ids);
        let mut ways = resolver.begin();
        let longest = Duration::from_secs(20);
        let mut known = |id, mac| mac_within((&resolver, &mut ways), id, mac, longest);
        let b = Some(MacAddr(lab.b.mac));
        assert_eq!(known(ids[0], b), b);
        assert_eq!(known(ids[1], None), None);
        assert_eq!(known(ids[0], None), b);
    });
}

/// Every link has the network of link-local addresses, and a route without an interface leads to
/// the first one.
#[test]
fn a_router_with_a_link_local_address_is_found_again_on_its_own_link() {
    if !is_root() {
        return;
    }
    let config = VethConfig {
        static_neighbours: false,
        ..VethConfig::tagged("link-local")
    };
    let lab = Lab::veth(config).unwrap();
    add_other_link(&lab.a);
    lab.a.run(|| {
        let (own, device) = (lab.a.interface.name(), lab.b.interface.name());
        let address = format!("fe80::77:2/64 dev {device} nodad");
        let router = |change| ip(&lab.b, &format!("address {change} {address}"));
        router("add");
        ip(&lab.a, &format!("address add fe80::77:1/64 dev {own} nodad"));
        ip(&lab.a, &format!("route add fd88::9/128 via fe80::77:2 dev {own}"));
        ip(&lab.a, "route add fe80::/64 dev second metric 1");
        let first = Route::to("fe80::77:2".parse().unwrap()).unwrap().interface;
        assert_ne!(first.name(), own);
        let tables = tables();
        let id = tables.hosts.intern(Host::at("fd88::9".parse().unwrap()));
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let b = Some(MacAddr(lab.b.mac));
        // As its own traffic would do: the router asks the gateway first.
        ip(
            &lab.a,
            &format!(
                "neigh replace fe80::77:2 lladdr {} dev {own} nud stale",
                MacAddr(lab.b.mac)
            ),
        );
        reach((&resolver, &mut ways), &want, id, b);
        let mut known = |mac, longest| mac_within((&resolver, &mut ways), id, mac, longest);
        router("del");
        assert_eq!(known(None, Duration::from_secs(20)), None, "nobody is there");
        router("add");
        // The last request may have gone out before.
        std::thread::sleep(ASK_AGAIN);
        want.send(id).unwrap();
        assert_eq!(known(b, Duration::from_secs(5)), b);
    });
}

/// Another program removes its entry again and again.
#[test]
fn entries_that_the_kernel_loses_cost_few_looks() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("loses");
    lab.a.run(|| {
        let tables = tables();
        let id = host(&tables, 2);
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let b = Some(MacAddr(lab.b.mac));
        reach((&resolver, &mut ways), &want, id, b);
        let (begun, mut looks) = (Instant::now(), 0);
        for _ in 0..30 {
            ip(&lab.a, &format!("neigh flush dev {}", lab.a.interface.name()));
            for _ in 0..3 {
                looks += u64::from(resolver.turn(&mut ways) == Turn::LookedThrough);
            }
        }
        let took = begun.elapsed();
        // One a second.
        assert!(looks <= 2 + took.as_secs(), "{looks} in {took:?}");
        assert_eq!(mac_within((&resolver, &mut ways), id, None, LOOK), b);
    });
}

/// Its neighbour entries stay while the link is down.
#[test]
fn a_link_that_was_down_gives_hosts_time_to_answer() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("flaps");
    lab.a.run(|| {
        let own = lab.a.interface.name();
        let keep = format!("/proc/sys/net/ipv4/conf/{own}/arp_evict_nocarrier");
        std::fs::write(keep, "0").unwrap();
        let tables = tables();
        let id = host(&tables, 2);
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let b = Some(MacAddr(lab.b.mac));
        reach((&resolver, &mut ways), &want, id, b);
        let device = lab.b.interface.name();
        ip(&lab.b, &format!("address del 10.77.0.2/24 dev {device}"));
        // The kernel has it checked, and it fails.
        let begun = Instant::now();
        while ways.hops[&(0, IpAddr::from([10, 77, 0, 2]))].mac_lost_at.is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            resolver.turn(&mut ways);
        }
        let mut known = |mac, longest| mac_within((&resolver, &mut ways), id, mac, longest);
        ip(&lab.b, &format!("link set {device} down"));
        assert_eq!(known(None, NO_ANSWER + LOOK), b, "nothing is sent anyway");
        ip(&lab.b, &format!("link set {device} up"));
        assert_eq!(known(None, LOOK + LOOK / 4), b);
        ip(&lab.b, &format!("address add 10.77.0.2/24 dev {device}"));
        assert_eq!(known(None, NO_ANSWER + 2 * LOOK), b, "it answers");
    });
}

/// Its requests are repeated for another host's packets.
#[test]
fn a_host_whose_new_router_is_silent_waits_also_beside_others() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("beside");
    lab.a.run(|| {
        let tables = tables();
        let behind = |last| tables.hosts.intern(Host::at([10, 88, 0, last].into()));
        let [id, other] = [9, 10].map(behind);
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        ip(&lab.a, "route add 10.88.0.9/32 via 10.77.0.2");
        ip(&lab.a, "route add 10.88.0.10/32 via 10.77.0.123");
        let b = Some(MacAddr(lab.b.mac));
        reach((&resolver, &mut ways), &want, id, b);
        // Requests go out a little before each look at routes.
        while ways.looked_at_routes.elapsed() < LOOK * 7 / 10 {
            resolver.turn(&mut ways);
        }
        let (begun, mut reader) = (Instant::now(), tables.hosts.reader());
        let mut is_moved = false;
        while reader.find(id).unwrap().mac.is_some() {
            assert!(begun.elapsed() < 8 * LOOK);
            want.send(other).unwrap();
            resolver.turn(&mut ways);
            std::thread::sleep(Duration::from_millis(1));
            if !is_moved && begun.elapsed() > LOOK {
                ip(&lab.a, "route replace 10.88.0.9/32 via 10.77.0.123");
                is_moved = true;
            }
        }
        assert!(is_moved);
    });
}
