//! Which entries are marked, and when packets may go straight: with the program's maps, as root.

use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU16, NonZeroU32};

use ringside_bpf::gateway::{GatewayPort, PolicySlot, Sizes};
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::policy::ProfileId;
use ringside_gateway_core::table::Host;
use ringside_netlab::testing::is_root;

use super::super::check::Check;
use super::*;

const LOOPBACK: u32 = 1;
/// More than are looked through at a time.
const MANY: u32 = 6000;

fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

fn address(network: u32, number: u32) -> TenantAddress {
    TenantAddress::new(vni(network), Ipv4Addr::from(0x0a00_0000 + number).into())
}

struct Bed {
    tables: Tables,
    epochs: Epochs,
    cache: Cache,
    profile: ProfileId,
}

impl Bed {
    fn new() -> Self {
        Self::with_room(2 * MANY)
    }

    /// With a cache of so many neighbours.
    fn with_room(room: u32) -> Self {
        let tables = Tables::new(Limits {
            connections: 10,
            ..Limits::default()
        });
        let sizes = Sizes {
            neighbors: room,
            connections: 1,
            queues: 1,
            sample_bytes: 4096,
        };
        let program = Arc::new(GatewayProgram::load(sizes).unwrap());
        let port = GatewayPort {
            ifindex: LOOPBACK,
            mac: [2; 6],
            v4: Some(Ipv4Addr::LOCALHOST),
            v6: None,
            mtu: 1500,
        };
        let config = GatewayConfig {
            generation: 1000,
            ports: vec![Some(port)],
            ..GatewayConfig::default()
        };
        let mut policy = tables.policy.write();
        let profile = policy.profile(&[]);
        policy.publish();
        Self {
            cache: Cache::new(program, config, &tables, true),
            epochs: Epochs::new(1000),
            tables,
            profile,
        }
    }

    /// A host of this number, whose MAC address was told or is to be found out.
    fn host(&self, number: u8, mac: Option<MacAddr>) -> HostId {
        self.tables.hosts.intern(Host {
            ip: IpAddr::from([192, 0, 2, number]),
            mac,
            port: None,
            encapsulation: None,
        })
    }

    /// So many addresses of a network are known from now on.
    fn learn(&mut self, network: u32, count: u32) {
        self.learn_at(self.host(1, Some(MacAddr([2, 0, 0, 0, 0, 1]))), network, count);
    }

    fn learn_at(&mut self, host: HostId, network: u32, count: u32) {
        let addresses: Vec<_> = (0..count).map(|number| address(network, number)).collect();
        for address in &addresses {
            let neighbor = Neighbor {
                mac: MacAddr([2, 0, 0, 0, 0, 2]),
                host,
                policy: 0,
                version: 1,
            };
            self.tables.neighbors.write().put(*address, neighbor);
        }
        self.cache.refresh(&addresses, Room::Kept);
    }

    /// Rules are bound to an address from now on, or not. True if packets may go straight after that.
    fn bind(&mut self, network: u32, number: u32, is_bound: bool) -> bool {
        let profile = is_bound.then_some(self.profile);
        self.tables.bindings.set(address(network, number), profile);
        self.cache.police(&[vni(network)], &self.epochs).unwrap();
        !self.cache.config.marking
    }

    fn mark_all(&mut self) {
        while self.cache.mark().unwrap() {}
        assert!(!self.cache.config.marking);
    }

    /// Entries of a network, and those that are marked.
    fn guarded(&self, network: u32) -> (u32, u32) {
        let (mut all, mut guarded) = (0, 0);
        let neighbors = self.cache.program.neighbors();
        neighbors.for_each(|key, value| {
            all += u32::from(key.vni == network);
            guarded += u32::from(key.vni == network && value.guarded);
        });
        (all, guarded)
    }

    /// What the program goes by in a network.
    fn policy(&self, network: u32) -> PolicySince {
        let found = self.cache.program.policies().find(&PolicySlot::of(network));
        found.unwrap().expect("each network has one")
    }

    fn since(&self, network: u32) -> u64 {
        self.policy(network).since
    }
}

#[test]
fn the_first_rules_of_a_network_close_the_lane_until_its_entries_are_marked() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    bed.learn(1, MANY);
    bed.learn(2, 3);
    assert!(!bed.bind(1, 0, true), "no answer before it is closed");
    assert!(bed.cache.mark().unwrap(), "not all at once");
    assert!(bed.cache.config.marking, "nor open before all are marked");
    // What comes meanwhile has its mark, and what comes later.
    bed.learn(1, MANY + 1);
    bed.mark_all();
    assert_eq!(bed.guarded(1), (MANY + 1, MANY + 1));
    bed.learn(1, MANY + 2);
    assert_eq!(bed.guarded(1), (MANY + 2, MANY + 2));
    assert_eq!(bed.guarded(2), (3, 0), "others stay in the lane");

    // No more rules, other rules, the last ones: nothing that the lane would have to be closed for.
    assert!(bed.bind(1, 1, true) && bed.bind(1, 0, false) && bed.bind(1, 1, false));
    assert_eq!(bed.guarded(1).1, MANY + 2, "not by the one who waits for an answer");
    bed.mark_all();
    assert_eq!(bed.guarded(1), (MANY + 2, 0));
    // Again, and another network's before it is open.
    assert!(!bed.bind(1, 0, true));
    assert!(bed.cache.mark().unwrap());
    assert!(!bed.bind(2, 0, true));
    bed.mark_all();
    assert_eq!((bed.guarded(1).1, bed.guarded(2).1), (MANY + 2, 3));
}

#[test]
fn a_network_without_entries_closes_nothing() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    bed.learn(1, 3);
    assert!(bed.bind(2, 0, true));
    bed.learn(2, 3);
    assert_eq!((bed.guarded(1), bed.guarded(2)), ((3, 0), (3, 3)));
}

#[test]
fn a_change_is_of_its_own_network() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    assert_eq!((bed.since(1), bed.since(2)), (0, 0));
    bed.bind(1, 0, true);
    bed.bind(2, 0, true);
    let (one, two) = (bed.since(1), bed.since(2));
    assert!(one > 1000 && two > one);
    bed.cache.police(&[vni(1)], &bed.epochs).unwrap();
    assert!(bed.since(1) > two);
    assert_eq!((bed.since(1), bed.since(2)), (bed.epochs.latest(), two));
    // Without rules there is nothing to be known of connections. Who shares the place keeps what it has.
    let far = 1 + PolicySlot::COUNT;
    bed.bind(far, 0, true);
    bed.bind(1, 0, false);
    assert_eq!(bed.since(1), bed.epochs.latest());
    // While it had no rules, nobody followed numbers of the other one's connections.
    let followed = bed.policy(1).followed_since;
    bed.bind(far, 1, true);
    assert_eq!(bed.policy(1).followed_since, followed);
    bed.bind(1, 0, true);
    assert_eq!(bed.policy(1).followed_since, bed.epochs.latest());
    bed.bind(1, 0, false);
    for number in [0, 1] {
        bed.bind(far, number, false);
    }
    assert_eq!(bed.since(1), 0);
    assert_eq!(bed.since(2), two);
}

/// What another process has left is put right, and what it knows of connections goes on.
#[test]
fn rules_that_came_and_went_meanwhile_are_known() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    bed.learn(1, 3);
    bed.bind(1, 0, true);
    bed.bind(2, 0, true);
    bed.mark_all();
    let one = bed.since(1);
    bed.tables.bindings.set(address(2, 0), None);
    bed.tables.bindings.set(address(3, 0), Some(bed.profile));
    let config = GatewayConfig {
        generation: 5000,
        ..bed.cache.config.clone()
    };
    bed.cache = Cache::new(Arc::clone(&bed.cache.program), config, &bed.tables, true);
    bed.cache.adopt(&bed.tables).unwrap();
    bed.cache.police_all().unwrap();
    assert_eq!([1, 2, 3].map(|network| bed.since(network)), [one, 0, 5000]);
    assert_eq!(bed.guarded(1), (3, 3));
    bed.tables.bindings.set(address(1, 0), None);
    let config = bed.cache.config.clone();
    bed.cache = Cache::new(Arc::clone(&bed.cache.program), config, &bed.tables, true);
    bed.cache.adopt(&bed.tables).unwrap();
    assert_eq!(bed.guarded(1), (3, 0));
}

fn limit(mtu: u16, until: Option<u32>) -> Limit {
    Limit {
        until: until.and_then(NonZeroU32::new),
        ..Limit::of(NonZeroU16::new(mtu))
    }
}

/// A router is believed across a restart until its time is over, and a route's word holds where it is asked for again.
#[test]
fn what_ways_take_is_taken_over_with_what_it_is_known_from() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let soon = seconds_of(now()) + 100;
    let given = Some(MacAddr([2; 6]));
    let cases = [
        (2, None, limit(1400, Some(soon)), limit(1400, Some(soon))),
        (3, None, limit(1300, None), limit(1300, None)),
        (4, None, limit(1300, Some(seconds_of(now()))), Limit::default()),
        (5, given, limit(1400, Some(soon)), limit(1400, Some(soon))),
        (6, given, limit(1300, None), Limit::default()),
    ];
    for (number, mac, before, _) in cases {
        let host = bed.host(number, mac);
        bed.tables.hosts.resolve(host, Some((MacAddr([2; 6]), 0)));
        bed.tables.hosts.limit(host, before);
        bed.learn_at(host, number.into(), 3);
        // As it is known to a process that has just begun.
        bed.tables.hosts.resolve(host, None);
        bed.tables.hosts.limit(host, Limit::default());
    }
    let config = bed.cache.config.clone();
    bed.cache = Cache::new(Arc::clone(&bed.cache.program), config, &bed.tables, true);
    let resolved = bed.cache.adopt(&bed.tables).unwrap();
    assert_eq!(resolved.len(), 3);
    for (number, mac, _, after) in cases {
        let host = bed.host(number, mac);
        assert_eq!(bed.tables.hosts.reader().limit(host), after, "{number}");
    }
}

/// Of those in a network: as many as have each of these MAC addresses of hosts.
fn by_host(bed: &Bed, network: u32, macs: [u8; 2]) -> [u32; 2] {
    let mut found = [0; 2];
    bed.cache.program.neighbors().for_each(|key, value| {
        for (found, mac) in found.iter_mut().zip(macs) {
            *found += u32::from(key.vni == network && value.host_mac == [mac; 6]);
        }
    });
    found
}

/// A part at a time, so that nobody waits for all; and then none of them is what it was.
#[test]
fn neighbors_follow_their_host() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let [open, other] = [bed.host(2, None), bed.host(3, None)];
    let found = |mac| Some((MacAddr([mac; 6]), 0));
    bed.tables.hosts.resolve(other, found(3));
    bed.learn_at(open, 1, MANY);
    bed.learn_at(other, 2, 3);
    assert_eq!(by_host(&bed, 1, [4, 6]), [0, 0], "nobody knows where they are");
    let follow = |bed: &mut Bed, mac, parts| {
        bed.tables.hosts.resolve(open, found(mac));
        let mut moved = Moved::new([open, open].into_iter());
        for _ in 0..parts {
            assert!(!moved.is_done());
            let addresses = moved.next(&bed.tables.neighbors);
            assert!(addresses.len() <= FOLLOWED, "who waits for the cache waits for no more");
            bed.cache.refresh(&addresses, Room::Kept);
        }
        moved.is_done()
    };
    assert!(!follow(&mut bed, 4, 1));
    let [some, _] = by_host(&bed, 1, [4, 6]);
    assert!(some > 0 && some < MANY / 100, "{some} of {MANY} at once");
    assert!(follow(&mut bed, 4, Neighbors::PARTS));
    assert_eq!(by_host(&bed, 1, [4, 6]), [MANY, 0]);
    assert!(follow(&mut bed, 6, Neighbors::PARTS));
    assert_eq!(by_host(&bed, 1, [4, 6]), [0, MANY], "none is what it was");
    assert_eq!(by_host(&bed, 2, [3, 6]), [3, 0], "nor are others");
}

/// Of one host as well, which may have all of them: each once, and few at a time.
#[test]
fn a_hosts_neighbors_are_found_few_at_a_time() {
    let (neighbors, host) = (Neighbors::new(), HostId(7));
    let count = 3 * u32::try_from(FOLLOWED * Neighbors::PARTS / 2).unwrap();
    let mut writer = neighbors.write();
    for number in 0..count {
        let neighbor = Neighbor {
            mac: MacAddr([2; 6]),
            host: if number % 100 == 0 { HostId(8) } else { host },
            policy: 0,
            version: 1,
        };
        writer.put(address(1, number), neighbor);
    }
    drop(writer);
    let mut moved = Moved::new([host].into_iter());
    let (mut found, mut most) = (HashSet::new(), 0);
    while !moved.is_done() {
        let some = moved.next(&neighbors);
        most = most.max(some.len());
        found.extend(some);
    }
    assert_eq!((found.len(), most), ((count - count.div_ceil(100)) as usize, FOLLOWED));
}

/// Somebody has changed the map behind the gateway's back. It is so full that to put an entry right moves others, of which some come twice then.
#[test]
fn what_is_other_than_the_tables_is_found_and_put_right() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::with_room(MANY + 1);
    bed.learn(7, MANY);
    let begin = Instant::now();
    let mut now = begin;
    // Once through all of it, and back here.
    let mut round = |bed: &mut Bed, meanwhile: &mut dyn FnMut(&mut Bed, usize)| {
        let mut check = Check::new(begin);
        let mut part = 0;
        now += Duration::from_secs(3600);
        while check.is_due(now) {
            bed.cache.check(&mut check, now);
            meanwhile(bed, part);
            part += 1;
            now += Duration::from_secs(3);
        }
        bed.cache.diverged
    };
    assert_eq!(round(&mut bed, &mut |_, _| ()), 0);
    let entries = |bed: &Bed| {
        let mut all = Vec::new();
        bed.cache
            .program
            .neighbors()
            .for_each(|key, value| all.push((key, value)));
        all.sort_by_key(|(key, _)| (key.vni, key.ip));
        all
    };
    let right = entries(&bed);
    let (moved, mut value) = right[17];
    value.host = IpAddr::from([192, 0, 2, 66]);
    let (of_nobody, other) = (key_of(address(8, 1)), right[18].1);
    let neighbors = |bed: &Bed| Arc::clone(&bed.cache.program);
    neighbors(&bed).neighbors().put(&[(moved, value), (of_nobody, other)]);
    // One that changes while it is looked at is no fault: the next look finds it as it is to be.
    let late = key_of(address(7, 99));
    let mut late_value = right[99].1;
    late_value.mac = [9; 6];
    neighbors(&bed).neighbors().put(&[(late, late_value)]);
    let found = round(&mut bed, &mut |bed, part| {
        if part == 1 {
            bed.cache.refresh(&[address(7, 99)], Room::Kept);
        }
    });
    assert_eq!(found, 2);
    assert_eq!(entries(&bed), right);
    assert_eq!(round(&mut bed, &mut |_, _| ()), 2);
    // Nor is that which entries are told in their turn.
    let host = bed.host(1, Some(MacAddr([2, 0, 0, 0, 0, 1])));
    let narrow = Limit {
        told: None,
        ..limit(1400, None)
    };
    bed.tables.hosts.limit(host, narrow);
    assert_eq!(round(&mut bed, &mut |_, _| ()), 2);
    bed.tables.hosts.limit(host, limit(1400, None));
    assert_eq!(
        round(&mut bed, &mut |_, _| ()),
        2 + u64::from(MANY),
        "what they should have been told is missing"
    );
}
