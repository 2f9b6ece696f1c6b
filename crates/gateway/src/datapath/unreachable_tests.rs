use ringside_gateway_core::Vni;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::table::Neighbor;
use ringside_wire::MacAddr;

use super::*;

const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));

fn ip(last: u8) -> IpAddr {
    [198, 51, 100, last].into()
}

fn tenant(last: u8) -> TenantAddress {
    TenantAddress::new(Vni::new(42).expect("a number"), [10, 0, 0, last].into())
}

fn underlay() -> Underlay {
    Underlay::at(&[[192, 0, 2, 1].into()])
}

/// Puts a tenant behind the host of the same number. `version` has to rise.
fn put(tables: &Tables, last: u8, encapsulation: Option<Encapsulation>, version: u64) -> HostId {
    let host = tables.hosts.intern(Host {
        encapsulation,
        ..Host::at(ip(last))
    });
    let neighbor = Neighbor {
        mac: MacAddr([2; 6]),
        host,
        policy: 0,
        version,
    };
    tables.neighbors.write().put(tenant(last), neighbor);
    host
}

fn packet(last: u8, encapsulation: Encapsulation, receiver: Option<TenantAddress>) -> Tunnelled {
    Tunnelled {
        from: [192, 0, 2, 1].into(),
        host: ip(last),
        encapsulation,
        receiver,
    }
}

struct Bed {
    tables: Tables,
    known: UnreachableHosts,
    ids: Vec<HostId>,
}

/// Two tenants, each behind the host of the same number, which take VXLAN.
fn bed() -> Bed {
    let tables = Tables::new(Limits::default());
    let ids = [1, 2].map(|last| put(&tables, last, Some(Encapsulation::Vxlan), 1));
    Bed {
        tables,
        known: UnreachableHosts::default(),
        ids: ids.to_vec(),
    }
}

impl Bed {
    fn tracker(&self) -> Tracker<'_> {
        Tracker::new(&self.known, &self.tables)
    }

    fn ignored(&self) -> u64 {
        self.known.ignored.load(Ordering::Relaxed)
    }

    fn problems(&self, now: u64) -> Vec<String> {
        self.known.problems(&underlay(), now)
    }
}

#[test]
fn reports_a_host_until_its_answers_stop() {
    let bed = bed();
    let mut tracker = bed.tracker();
    let message = packet(2, Encapsulation::Vxlan, Some(tenant(2)));
    let start = 100 * SECOND;
    for time in 0..3 {
        tracker.record(&bed.ids, &message, (Unreachable::Port, ip(2)), start + time * SECOND);
    }
    let problems = bed.problems(start + 5 * SECOND);
    let expected = "packets to host 198.51.100.2 (VXLAN, UDP port 4789) are lost: 198.51.100.2 answers \
                    port-unreachable \
                    (3 ICMP messages, the last 3 s ago); check the encapsulation of its neighbours";
    assert!(
        problems.len() == 1 && problems[0].starts_with(expected),
        "{problems:#?}"
    );
    let hosts = bed.known.hosts(&underlay());
    assert_eq!((hosts.len(), hosts[0].host, hosts[0].messages), (1, ip(2), 3));
    let last = start + 2 * SECOND;
    tracker.expire(last + ENTRY_TIMEOUT - 1);
    assert_eq!(bed.problems(last).len(), 1);
    tracker.expire(last + ENTRY_TIMEOUT);
    assert_eq!(bed.problems(last), [""; 0]);
    assert_eq!(bed.known.messages()[0], ("port-unreachable", 3), "counters stay");
}

#[test]
fn forgets_a_host_whose_neighbour_is_corrected() {
    for corrected in [Some(Encapsulation::Geneve), None] {
        let bed = bed();
        let mut tracker = bed.tracker();
        let message = packet(2, Encapsulation::Vxlan, Some(tenant(2)));
        tracker.record(&bed.ids, &message, (Unreachable::Port, ip(2)), SECOND);
        put(&bed.tables, 2, corrected, 2);
        tracker.expire(2 * SECOND);
        // One that takes what comes may still be sent VXLAN.
        assert_eq!(bed.problems(2 * SECOND).len(), usize::from(corrected.is_none()));
    }
    let bed = bed();
    let mut tracker = bed.tracker();
    let message = packet(2, Encapsulation::Vxlan, Some(tenant(2)));
    tracker.record(&bed.ids, &message, (Unreachable::Host, ROUTER), SECOND);
    bed.tables.neighbors.write().remove(tenant(2), 2);
    tracker.expire(2 * SECOND);
    assert_eq!(bed.problems(2 * SECOND), [""; 0]);
}

#[test]
fn ignores_messages_about_packets_that_are_not_sent() {
    let bed = bed();
    let mut tracker = bed.tracker();
    let second = &bed.ids[1..];
    for (ids, message) in [
        // No such host, another encapsulation, another host's tenant, and nobody's.
        (&[][..], packet(9, Encapsulation::Vxlan, None)),
        (second, packet(2, Encapsulation::Geneve, None)),
        (second, packet(2, Encapsulation::Geneve, Some(tenant(2)))),
        (second, packet(2, Encapsulation::Vxlan, Some(tenant(1)))),
        (second, packet(2, Encapsulation::Vxlan, Some(tenant(9)))),
    ] {
        let before = bed.ignored();
        tracker.record(ids, &message, (Unreachable::Port, ip(2)), SECOND);
        assert_eq!(
            (bed.ignored(), bed.problems(SECOND).len()),
            (before + 1, 0),
            "{message:?}"
        );
    }
    // A router that quotes eight bytes.
    tracker.record(
        second,
        &packet(2, Encapsulation::Vxlan, None),
        (Unreachable::Prohibited, ROUTER),
        SECOND,
    );
    assert_eq!((bed.ignored(), bed.problems(SECOND).len()), (5, 1));
}

#[test]
fn many_messages_take_bounded_memory_and_text() {
    let bed = bed();
    let mut tracker = bed.tracker();
    let many = MAX_ENTRIES as u64 + 50;
    for number in 0..many {
        let [.., high, low] = number.to_be_bytes();
        let ip = IpAddr::from([198, 18, high, low]);
        let host = bed.tables.hosts.intern(Host::at(ip));
        let message = Tunnelled {
            host: ip,
            ..packet(1, Encapsulation::Geneve, None)
        };
        tracker.record(&[host], &message, (Unreachable::Host, ROUTER), SECOND);
    }
    assert_eq!(bed.known.hosts(&underlay()).len(), MAX_ENTRIES);
    assert_eq!(bed.known.messages()[2], ("host-unreachable", many));
    let problems = bed.problems(SECOND);
    assert_eq!(problems.len(), MAX_PROBLEMS + 1);
    assert!(
        problems[MAX_PROBLEMS].contains("packets to 248 more hosts are lost"),
        "{problems:#?}"
    );
}
