//! What the kernel is asked, in a namespace, as root.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::{ArcSwap, ArcSwapOption};
use nix::errno::Errno;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::decide::{PortSettings, Settings};
use ringside_gateway_core::table::Neighbor;
use ringside_gateway_core::{TenantAddress, Underlay, Vni};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};

use super::*;
use crate::datapath::epochs::Epochs;
use crate::datapath::notices::Notices;
use crate::datapath::unreachable::UnreachableHosts;
use crate::datapath::unresolved::{ENTRY_TIMEOUT, UnresolvedHosts};
use crate::datapath::ways::NO_ANSWER;

#[path = "resolver_silence_tests.rs"]
mod silence;

fn shared(tables: &Tables, interfaces: &[&str]) -> Shared {
    let settings = Settings {
        underlay: Underlay::at(&[]),
        ports: Vec::new(),
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 0,
    };
    let names: Vec<String> = interfaces.iter().map(|name| (*name).to_owned()).collect();
    Shared {
        stop: AtomicBool::new(false),
        has_policy: AtomicBool::new(false),
        settings: ArcSwap::from_pointee(settings),
        patience: AtomicU64::new(0),
        unowned: AtomicU64::new(0),
        longest: AtomicU64::new(0),
        epochs: Epochs::new(1),
        trace: ArcSwapOption::empty(),
        ports: ArcSwap::from_pointee(Ports::by_name(&names).unwrap()),
        notices: Notices::default(),
        attaching: Mutex::default(),
        unreachable: UnreachableHosts::default(),
        unresolved: UnresolvedHosts::default(),
        foreign: Arc::clone(&tables.foreign),
    }
}

fn tables() -> Arc<Tables> {
    Arc::new(Tables::new(Limits {
        connections: 1,
        ..Limits::default()
    }))
}

/// One on the test bed's link.
fn host(tables: &Tables, last: u8) -> HostId {
    tables.hosts.intern(Host::at(IpAddr::from([10, 77, 0, last])))
}

/// Hosts that have not found out about each other.
fn unacquainted(tag: &str) -> Lab {
    let config = VethConfig {
        ipv6: false,
        static_neighbours: false,
        ..VethConfig::tagged(tag)
    };
    Lab::veth(config).unwrap()
}

/// One for the tables of a host, who asks it, and who is told.
fn resolver(tables: &Arc<Tables>, at: &End) -> (Resolver, Sender<HostId>, Receiver<HostId>) {
    resolver_by(tables, &[at.interface.name()])
}

/// The same, of a gateway with these interfaces.
fn resolver_by(tables: &Arc<Tables>, interfaces: &[&str]) -> (Resolver, Sender<HostId>, Receiver<HostId>) {
    let (want, wanted) = crossbeam_channel::unbounded();
    let (found, hosts) = crossbeam_channel::unbounded();
    let resolver = Resolver {
        shared: Arc::new(shared(tables, interfaces)),
        tables: Arc::clone(tables),
        resolved: Vec::new(),
        wanted,
        found,
        limits: Arc::default(),
    };
    (resolver, want, hosts)
}

/// Tenants send to it all the while.
#[test]
fn who_does_not_answer_costs_few_looks_and_is_found_when_it_does() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("resolver");
    lab.a.run(|| {
        let tables = tables();
        let host = |last| host(&tables, last);
        let [nobody, b] = [host(9), host(2)];
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        // Until it is known, or that long. How long it took, and how often the table was looked through.
        let mut send = |id, longest: Duration| {
            let (begun, mut looks) = (Instant::now(), 0);
            let mut reader = tables.hosts.reader();
            while begun.elapsed() < longest && reader.find(id).unwrap().mac.is_none() {
                want.send(id).unwrap();
                looks += u64::from(resolver.turn(&mut ways) == Turn::LookedThrough);
                std::thread::sleep(Duration::from_millis(1));
            }
            (begun.elapsed(), looks, reader.find(id).unwrap().mac)
        };
        let (took, looks, mac) = send(nobody, NO_ANSWER + 3 * LOOK);
        assert_eq!(mac, None);
        let problems = resolver.shared.unresolved.problems();
        let text = format!(
            "packets to host 10.77.0.9 are lost: it does not answer for its MAC address on {}; check",
            lab.a.interface.name()
        );
        assert!(problems.len() == 1 && problems[0].starts_with(&text), "{problems:?}");
        // When it was asked for first, and once a second.
        assert!(looks <= 2 + took.as_secs(), "{looks} in {took:?}");
        let (took, looks, mac) = send(b, Duration::from_secs(20));
        assert_eq!(mac, Some(MacAddr(lab.b.mac)), "beside one that does not answer");
        assert!(looks <= 2 + took.as_secs(), "{looks} in {took:?}");
        ip(
            &lab.b,
            &format!("address add 10.77.0.9/24 dev {}", lab.b.interface.name()),
        );
        let (_, _, mac) = send(nobody, Duration::from_secs(20));
        assert_eq!(mac, Some(MacAddr(lab.b.mac)), "there at last");
        assert_eq!(resolver.shared.unresolved.problems(), [""; 0]);
    });
}

/// Has the kernel do something by the command `ip`.
fn ip(end: &End, words: &str) {
    let status = end.ns.command("ip").args(words.split(' ')).status();
    assert!(status.unwrap().success(), "{words}");
}

/// Takes turns until the MAC address of a host is that, or so long. Returns the last one.
fn mac_within(
    (resolver, ways): (&Resolver, &mut Ways<'_>),
    id: HostId,
    wanted: Option<MacAddr>,
    longest: Duration,
) -> Option<MacAddr> {
    let (begun, mut reader) = (Instant::now(), resolver.tables.hosts.reader());
    loop {
        let mac = reader.find(id).unwrap().mac;
        if mac == wanted || begun.elapsed() >= longest {
            return mac;
        }
        assert_ne!(resolver.turn(ways), Turn::Ended);
    }
}

/// A link of the namespace that is not the gateway's.
fn add_other_link(end: &End) {
    for words in [
        "link add second type veth peer name other",
        "link set second up",
        "link set other up",
        "address add 10.78.0.1/24 dev other",
    ] {
        ip(end, words);
    }
}

#[test]
fn another_route_or_none_is_obeyed() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("obeys");
    add_other_link(&lab.a);
    lab.a.run(|| {
        let tables = tables();
        let id = tables.hosts.intern(Host::at([10, 88, 0, 9].into()));
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let route = |words: &str| ip(&lab.a, &format!("route {words}"));
        let own = lab.a.interface.name();
        let by_b = "replace 10.88.0.9/32 via 10.77.0.2";
        let b = Some(MacAddr(lab.b.mac));
        let mut known = |mac, longest| mac_within((&resolver, &mut ways), id, mac, longest);
        route(by_b);
        want.send(id).unwrap();
        assert_eq!(known(b, Duration::from_secs(20)), b);
        for (change, text) in [
            ("del 10.88.0.9/32", "no route to 10.88.0.9"),
            (
                "replace blackhole 10.88.0.9/32",
                "the kernel's route to it is of the type blackhole; remove or replace",
            ),
            (
                "replace 10.88.0.9/32 dev other",
                "the kernel routes to it by other, which is not in path.interface",
            ),
            (
                "replace 10.88.0.9/32 via 10.77.0.123",
                "the router 10.77.0.123 does not answer",
            ),
        ] {
            route(change);
            assert_eq!(known(None, 4 * LOOK), None, "{change}");
            want.send(id).unwrap();
            let begun = Instant::now();
            let text = format!("packets to host 10.88.0.9 are lost: {text}");
            let is_named = || {
                resolver
                    .shared
                    .unresolved
                    .problems()
                    .iter()
                    .any(|one| one.starts_with(&text))
            };
            while !is_named() {
                let problems = resolver.shared.unresolved.problems();
                assert!(begun.elapsed() < 10 * LOOK, "not {text:?} in {problems:?}");
                assert_eq!(known(b, LOOK / 2), None, "{change}");
                want.send(id).unwrap();
            }
            if change.contains("blackhole") {
                route("del blackhole 10.88.0.9/32");
            }
            route(by_b);
            // Nobody sends meanwhile.
            assert_eq!(known(b, 4 * LOOK), b, "after {change}");
            assert_eq!(resolver.shared.unresolved.problems(), [""; 0]);
        }
        // A link that goes down has no routes until it is up again.
        ip(&lab.a, &format!("link set {own} down"));
        assert_eq!(known(None, 3 * LOOK), b);
        ip(&lab.a, &format!("link set {own} up"));
        route(by_b);
        assert_eq!(known(None, 3 * LOOK), b);
    });
}

/// A query may also fail for want of memory, or because its interface has just gone.
#[test]
fn only_answers_of_the_kernel_withdraw_a_route() {
    let is_transient = |errno: Errno| {
        let source = std::io::Error::from(errno);
        let address = [10, 88, 0, 9].into();
        Cause::of_route(&ringside_nic::Error::NoRoute { address, source }).is_transient()
    };
    for refusal in [Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::EACCES, Errno::EINVAL] {
        assert!(!is_transient(refusal), "{refusal}");
    }
    for failure in [Errno::ENOMEM, Errno::ENOBUFS] {
        assert!(is_transient(failure), "{failure}");
    }
    let gone = Interface::by_index(u32::MAX / 2).unwrap_err();
    assert!(Cause::of_route(&gone).is_transient());
}

/// A few packets, and no more. A router has many hosts behind it.
#[test]
fn hosts_without_an_answer_are_named_if_a_packet_came_for_them() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("few");
    lab.a.run(|| {
        let tables = tables();
        let (resolver, want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        ip(&lab.a, "route add 10.88.0.0/24 via 10.77.0.123");
        let ids = [8, 9].map(|last| tables.hosts.intern(Host::at([10, 88, 0, last].into())));
        for id in ids {
            resolver.ask(id, &mut ways).unwrap();
        }
        want.send(ids[1]).unwrap();
        want.send(ids[1]).unwrap();
        let begun = Instant::now();
        assert_eq!(
            mac_within((&resolver, &mut ways), ids[1], Some(MacAddr([2; 6])), 4 * LOOK),
            None
        );
        let unresolved = &resolver.shared.unresolved;
        let problems = unresolved.problems();
        let text = "packets to host 10.88.0.9 are lost: the router 10.77.0.123 does not answer for its MAC";
        assert!(problems.len() == 1 && problems[0].starts_with(text), "{problems:?}");
        let note = unresolved.note([10, 88, 0, 9].into());
        assert!(note.contains("the router 10.77.0.123 does not answer"), "{note}");
        // From the packets on, however often it is looked at.
        let later = now() + ENTRY_TIMEOUT + nanoseconds(LOOK) - nanoseconds(begun.elapsed());
        unresolved.expire(later, |_| false);
        assert_eq!(unresolved.problems(), [""; 0]);
    });
}

/// It is reached by a route, or was, before the interface lost its address.
#[test]
fn hosts_by_an_interface_without_an_address_of_their_family_are_named() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("no-family")).unwrap();
    add_other_link(&lab.a);
    lab.a.run(|| {
        let tables = tables();
        let own = lab.a.interface.name();
        let (resolver, ..) = resolver_by(&tables, &[own, "second"]);
        let port = PortSettings {
            mac: MacAddr([2; 6]),
            v4: Some([10, 77, 0, 1].into()),
            v6: None,
            mtu: 1500,
        };
        let mut settings = Settings::clone(&resolver.shared.settings.load());
        settings.ports = vec![port, PortSettings { v4: None, ..port }];
        resolver.shared.settings.store(Arc::new(settings));
        ip(&lab.a, "route add 10.79.0.0/24 dev second");
        let mut ways = resolver.begin();
        let ids = [[10, 79, 0, 2], [10, 79, 0, 3], [10, 77, 0, 2]].map(|ip| tables.hosts.intern(Host::at(ip.into())));
        assert!(tables.hosts.resolve(ids[1], Some((MacAddr([2; 6]), 1))));
        for id in ids {
            resolver.ask_or_note(id, &mut ways);
        }
        let problems = resolver.shared.unresolved.problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        for (problem, last) in problems.iter().zip([2, 3]) {
            let text =
                format!("packets to host 10.79.0.{last} are lost: the interface second has no IPv4 address; give");
            assert!(problem.starts_with(&text), "{problem}");
        }
        let mut settings = Settings::clone(&resolver.shared.settings.load());
        settings.ports[1].v4 = Some([10, 79, 0, 1].into());
        resolver.note_unanswered(&ways);
        assert_eq!(resolver.shared.unresolved.problems().len(), 2);
        resolver.shared.settings.store(Arc::new(settings));
        resolver.note_unanswered(&ways);
        assert_eq!(resolver.shared.unresolved.problems(), [""; 0], "it has an address now");
    });
}

#[test]
fn hosts_that_no_interface_of_the_gateway_leads_to_are_named() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("no-way")).unwrap();
    add_other_link(&lab.a);
    lab.a.run(|| {
        let tables = tables();
        let own = lab.a.interface.name();
        let (resolver, ..) = resolver_by(&tables, &[own, "second"]);
        let mut ways = resolver.begin();
        let at = |ip: [u8; 4]| Host::at(IpAddr::from(ip));
        let port = Host {
            port: Some(2),
            mac: Some(MacAddr([2; 6])),
            ..at([10, 77, 0, 9])
        };
        let behind_other = at([10, 78, 0, 2]);
        let refused = [
            ("unreachable", [192, 0, 2, 2]),
            ("prohibit", [192, 0, 2, 3]),
            ("throw", [192, 0, 2, 4]),
        ];
        for (kind, host) in refused {
            ip(&lab.a, &format!("route add {kind} {}/32", IpAddr::from(host)));
        }
        let [unreachable, prohibited, thrown] = refused.map(|(_, ip)| at(ip));
        let by_other = Host {
            port: Some(0),
            ..at([10, 78, 0, 3])
        };
        for host in [
            port,
            behind_other,
            by_other,
            at([192, 0, 2, 1]),
            unreachable,
            prohibited,
            thrown,
            at([10, 77, 0, 1]),
        ] {
            resolver.ask_or_note(tables.hosts.intern(host), &mut ways);
        }
        std::thread::sleep(NO_ANSWER);
        resolver.note_unanswered(&ways);
        let problems = resolver.shared.unresolved.problems();
        let expected = [
            "10.77.0.1 are lost: it is an address of the gateway itself; put its neighbours with the address of",
            "10.77.0.9 are lost: its neighbours name the interface number 2 (`--port`), and path.interface has 2, from 0; put",
            &format!(
                "10.78.0.2 are lost: the kernel routes to it by other, which is not in path.interface ({own}, second); correct"
            ),
            &format!(
                "10.78.0.3 are lost: it does not answer for its MAC address on {own}, and the kernel routes to it by other, \
                 which is not in path.interface; put its neighbours without `--port` and add other to path.interface"
            ),
            "192.0.2.1 are lost: no route to 192.0.2.1; add a route: ip route add 192.0.2.1 via",
            "192.0.2.2 are lost: the kernel's route to it is of the type unreachable; remove or replace",
            "192.0.2.3 are lost: the kernel's route to it is of the type prohibit; remove or replace",
            "192.0.2.4 are lost: no route to 192.0.2.4",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(&format!("packets to host {expected}")), "{problem}");
        }
        // A route by an interface of the gateway.
        ip(&lab.a, "route add 10.78.0.2/32 dev second");
        std::thread::sleep(ASK_AGAIN);
        let id = tables.hosts.intern(behind_other);
        resolver.ask(id, &mut ways).unwrap();
        resolver.tell(id, [2; 6], 1);
        assert_eq!(resolver.shared.unresolved.problems().len(), expected.len() - 1);
        // Nobody sends to the others any more.
        resolver.shared.unresolved.expire(now() + ENTRY_TIMEOUT, |_| false);
        assert_eq!(resolver.shared.unresolved.problems(), [""; 0]);
    });
}

/// Nobody has sent to them: a network may become its own at any time.
#[test]
fn who_is_one_of_a_fleet_knows_the_way_to_all_hosts_beforehand() {
    if !is_root() {
        return;
    }
    let lab = unacquainted("prepares");
    lab.a.run(|| {
        let tables = tables();
        let ids = [2, 9].map(|last| host(&tables, last));
        let (resolver, _want, _hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let mut reader = tables.hosts.reader();
        let mut known_within = |longest: Duration| {
            let begun = Instant::now();
            while begun.elapsed() < longest && reader.find(ids[0]).unwrap().mac.is_none() {
                resolver.turn(&mut ways);
            }
            (reader.find(ids[0]).unwrap().mac, ways.places.len())
        };
        assert_eq!(known_within(LOOK * 2), (None, 0), "by itself it asks for nobody");
        tables.foreign.set(|_| false);
        let b = Some(MacAddr(lab.b.mac));
        assert_eq!(
            known_within(Duration::from_secs(20)),
            (b, 2),
            "all, also who does not answer"
        );
    });
}

/// Hosts that somebody lives on stay, others go with what the kernel is asked for them.
#[test]
fn hosts_without_neighbours_are_forgotten() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("forgets")).unwrap();
    lab.a.run(|| {
        let tables = tables();
        let host = |last| host(&tables, last);
        let ids: Vec<HostId> = (10..20).map(host).collect();
        let kept = host(2);
        let address = TenantAddress::new(Vni::new(1).unwrap(), [10, 0, 0, 1].into());
        let neighbor = Neighbor {
            mac: MacAddr([2; 6]),
            host: kept,
            policy: 0,
            version: 1,
        };
        tables.neighbors.write().put(address, neighbor);
        let (resolver, _want, hosts) = resolver(&tables, &lab.a);
        let mut ways = resolver.begin();
        let round = |ways: &mut Ways| {
            let before = ways.round;
            while ways.round == before {
                for id in ways.look_for_users(&tables.neighbors) {
                    resolver.forget(id, ways);
                }
            }
        };
        let known = |ways: &Ways| {
            let mut hosts: Vec<HostId> = ways.places.iter().map(|known| known.id).collect();
            hosts.sort_unstable();
            assert!(
                ways.places
                    .iter()
                    .enumerate()
                    .all(|(number, known)| ways.numbers[&known.id] == number)
            );
            let at_hops: usize = ways.hops.values().map(|hop| hop.hosts.len()).sum();
            assert_eq!((at_hops, ways.hops.len()), (hosts.len(), hosts.len()));
            hosts
        };
        ids.iter()
            .chain([&kept])
            .for_each(|id| resolver.ask(*id, &mut ways).unwrap());
        let found = Some((MacAddr([2; 6]), 0));
        assert!(tables.hosts.resolve(ids[0], found) && tables.hosts.resolve(kept, found));
        assert_eq!(known(&ways).len(), 11);
        round(&mut ways);
        assert_eq!(
            known(&ways).len(),
            11,
            "they have just come: who lives there may not have been seen"
        );
        round(&mut ways);
        assert_eq!(known(&ways), [kept]);
        let mut reader = tables.hosts.reader();
        assert!(reader.find(kept).unwrap().mac.is_some());
        assert_eq!(reader.find(ids[0]).unwrap().mac, None, "it would be followed no more");
        assert!(
            hosts.try_iter().any(|id| id == ids[0]),
            "who has come meanwhile is told"
        );

        // The last one goes, and somebody comes to another.
        tables.neighbors.write().remove(address, 2);
        tables.neighbors.write().put(
            address,
            Neighbor {
                host: ids[3],
                version: 3,
                ..neighbor
            },
        );
        resolver.ask(ids[3], &mut ways).unwrap();
        round(&mut ways);
        round(&mut ways);
        assert_eq!(known(&ways), [ids[3]]);
    });
}
