use std::net::Ipv4Addr;

use ringside_gateway_core::Underlay;
use ringside_gateway_core::decide::PortSettings;
use ringside_gateway_core::table::Host;
use ringside_wire::MacAddr;

use super::*;

const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn ip(last: u8) -> IpAddr {
    [198, 51, 100, last].into()
}

fn settings() -> Settings {
    Settings {
        underlay: Underlay::at(&[OURS.into()]),
        ports: vec![PortSettings {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            v4: Some(OURS),
            v6: None,
            mtu: 1500,
        }],
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 1000,
    }
}

struct Bed {
    table: Hosts,
    counters: Arc<LimitCounters>,
    limits: Limits,
    now: u64,
}

/// Three hosts; the last two have one address.
fn bed() -> Bed {
    let table = Hosts::new();
    for (last, port) in [(1, None), (2, None), (2, Some(0))] {
        table.intern(host(last, port));
    }
    Bed::of(table, 5 * BELIEVED)
}

fn host(last: u8, port: Option<u8>) -> Host {
    Host {
        port,
        ..Host::at(ip(last))
    }
}

impl Bed {
    /// With the hosts of a table, and what is known of the ways to them.
    fn of(table: Hosts, now: u64) -> Self {
        let limits = Limits::new(&table, Arc::default());
        Self {
            counters: Arc::clone(&limits.counters),
            table,
            limits,
            now,
        }
    }

    fn hear(&mut self, host: IpAddr, mtu: u16) {
        let mtu = NonZeroU16::new(mtu).expect("more than nothing");
        self.limits.hear(&self.table, (host, mtu), &settings(), self.now);
    }

    fn route(&mut self, id: u32, mtu: u16) {
        self.limits
            .route(&self.table, HostId(id), NonZeroU16::new(mtu), self.now);
    }

    /// What the table has, 0 for nothing.
    fn all(&self) -> Vec<u16> {
        let mut hosts = self.table.reader();
        let count = u32::try_from(self.table.len()).expect("few");
        let of = |id| hosts.mtu(HostId(id)).map_or(0, NonZeroU16::get);
        (0..count).map(of).collect()
    }

    /// Those that the fast path is told of, a second later.
    fn told(&mut self) -> Vec<u32> {
        self.told_after(SECOND)
    }

    fn told_after(&mut self, pause: u64) -> Vec<u32> {
        self.now += pause;
        self.limits.forget(&self.table, self.now);
        let changed = self.limits.changed(&self.table, self.now);
        let mut told: Vec<u32> = changed.into_iter().map(|id| id.0).collect();
        told.sort_unstable();
        told
    }

    /// What entries of the cache are told of a host, 0 for nothing.
    fn to_entries(&self, id: u32) -> u16 {
        let told = self.table.reader().limit(HostId(id)).told;
        told.map_or(0, NonZeroU16::get)
    }
}

#[test]
fn what_is_heard_holds_for_a_while() {
    let mut bed = bed();
    bed.hear(ip(2), 1400);
    assert_eq!(bed.all(), [0, 1400, 1400]);
    assert_eq!((bed.told(), bed.counters.limited()), (vec![1, 2], 2));
    // Not about the host, nor less than what is known, nor than the port.
    bed.hear(ip(9), 1300);
    bed.hear(ip(2), 1400);
    bed.hear(ip(2), 1450);
    bed.hear(ip(1), 1500);
    assert_eq!((bed.all(), bed.told()), (vec![0, 1400, 1400], vec![]));
    bed.hear(ip(2), 1380);
    assert_eq!((bed.all(), bed.told()), (vec![0, 1380, 1380], vec![1, 2]));
    bed.hear(ip(2), 1350);
    assert_eq!(bed.all(), [0, 1350, 1350]);
    assert_eq!(bed.limits.changed(&bed.table, bed.now), [], "not twice in a second");
    assert_eq!(bed.told(), [1, 2]);
    // A neighbour comes whose host is written in another way.
    bed.table.intern(host(2, Some(1)));
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!((bed.all(), bed.told()), (vec![0, 1350, 1350, 1350], vec![3]));

    bed.now += BELIEVED;
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!((bed.all(), bed.told()), (vec![0; 4], vec![1, 2, 3]));
    let counted = [("heard", 7), ("taken", 3), ("forgotten", 1)];
    assert_eq!((bed.counters.events(), bed.counters.limited()), (counted.to_vec(), 0));
}

#[test]
fn the_narrower_of_route_and_router_holds() {
    let mut bed = bed();
    bed.route(1, 1400);
    assert_eq!((bed.all(), bed.counters.limited()), (vec![0, 1400, 0], 1));
    bed.hear(ip(2), 1300);
    assert_eq!((bed.all(), bed.counters.limited()), (vec![0, 1300, 1300], 2));
    bed.route(1, 1280);
    assert_eq!(bed.all(), [0, 1280, 1300]);
    bed.now += BELIEVED;
    bed.limits.forget(&bed.table, bed.now);
    assert_eq!(bed.all(), [0, 1280, 0]);
    bed.route(1, 0);
    assert_eq!((bed.all(), bed.counters.limited()), (vec![0; 3], 0));
}

fn word(mtu: u16, until: u64) -> Limit {
    let until = NonZeroU32::new(seconds_of(until));
    Limit {
        until,
        ..Limit::of(NonZeroU16::new(mtu))
    }
}

#[test]
fn what_the_process_before_knew_is_believed_for_as_long_as_by_that() {
    let table = Hosts::new();
    let now = 5 * BELIEVED;
    for last in 1..=4 {
        table.intern(host(last, None));
    }
    table.intern(host(1, Some(1)));
    // One that a router has spoken of, and three of which a route said something.
    table.limit(HostId(0), word(1400, now + 100 * SECOND));
    for id in 1..=3 {
        table.limit(HostId(id), word(1300, 0));
    }
    let mut bed = Bed::of(table, now);
    let all = [1400, 1300, 1300, 1300, 1400];
    assert_eq!((bed.all(), bed.counters.limited()), (all.to_vec(), 5));
    // As before, other than before, and not at all.
    for (id, mtu) in [(1, 1300), (2, 1450), (3, 0)] {
        bed.route(id, mtu);
    }
    let all = [1400, 1300, 1450, 0, 1400];
    assert_eq!((bed.all(), bed.counters.limited()), (all.to_vec(), 4));
    assert_eq!(bed.told(), [0, 1, 2, 3, 4], "the other one may not have told all");
    assert_eq!(bed.told_after(100 * SECOND), [0, 4]);
    assert_eq!(bed.all(), [0, 1300, 1450, 0, 0]);
}

/// What gets to it becomes less again and again, or more and less: it is obeyed, and costs a few looks.
#[test]
fn a_way_that_becomes_narrower_again_and_again_costs_a_few_looks() {
    let mut bed = bed();
    for mtu in [1400, 1399, 1398] {
        bed.hear(ip(1), mtu);
        assert_eq!(bed.told(), [0]);
        assert_eq!((bed.all()[0], bed.to_entries(0)), (mtu, mtu));
    }
    for mtu in (600..1398).rev() {
        bed.hear(ip(1), mtu);
        assert_eq!(bed.all()[0], mtu, "it is obeyed at once");
        let looked: &[u32] = if mtu == 1397 { &[0] } else { &[] };
        assert_eq!((bed.told(), bed.to_entries(0)), (looked.to_vec(), 576), "{mtu}");
    }
    // Forgotten, and as exact as at first.
    assert_eq!(bed.told_after(BELIEVED), [0]);
    assert_eq!((bed.all()[0], bed.to_entries(0)), (0, 0));
    bed.hear(ip(1), 1400);
    assert_eq!((bed.told(), bed.to_entries(0)), (vec![0], 1400));
}

#[test]
fn a_route_that_comes_and_goes_costs_a_few_looks() {
    let mut bed = bed();
    let mut looks = 0;
    for turn in 0..100 {
        let mtu = if turn % 2 == 0 { 1300 } else { 0 };
        bed.route(2, mtu);
        looks += bed.told_after(10 * SECOND).len();
        assert_eq!(bed.all()[2], mtu);
    }
    assert_eq!((looks, bed.to_entries(2)), (7, 576));
    assert_eq!(bed.told_after(BELIEVED), [2]);
    assert_eq!(bed.to_entries(2), 0);
}

/// However many hosts there are: a few looks soon, and then one in ten seconds, after which the cache has what workers had at once.
#[test]
fn many_ways_that_become_narrower_do_not_keep_the_cache_busy() {
    let (table, now) = (Hosts::new(), 5 * BELIEVED);
    for last in 1..=200 {
        table.intern(host(last, None));
    }
    let mut bed = Bed::of(table, now);
    let (mut looks, mut told) = (0, 0);
    for last in 1..=200 {
        bed.hear(ip(last), 1400);
        assert_eq!(bed.all()[usize::from(last) - 1], 1400);
        let now = bed.told().len();
        (looks, told) = (looks + usize::from(now != 0), told + now);
    }
    assert_eq!(looks, 10 + 200 / 10 - 1);
    told += bed.told_after(10 * SECOND).len();
    assert_eq!(told, 200);
    assert!(bed.limits.unsaid > 5, "lines of the log are spared, too");
}
