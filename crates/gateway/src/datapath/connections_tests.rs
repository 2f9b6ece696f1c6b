//! A cache that is full, with the program's maps, as root.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ringside_bpf::gateway::{Sizes, TcpSide};
use ringside_gateway_core::conntrack::{Limits, Said};
use ringside_netlab::testing::{MemoryGroup, is_root, join_group, skip_unsupported, wait_until};

use super::super::settling::{MAX_SETTLED, MAX_UNSETTLED};
use super::*;

const SECOND: u64 = 1_000_000_000;
const EPOCH: u64 = 7;
/// Connections that there is room for.
const ROOM: u16 = 4;
/// Of a cache that has room for brief ones, too.
const LARGE: u16 = 32;

struct Bed {
    program: GatewayProgram,
    conntrack: Conntrack,
    epochs: Epochs,
    handed: Handed,
}

impl Bed {
    /// So many connections are tracked, known by their ports from 1 on. Each had its last packet a second after the one before.
    fn new(connections: u16) -> Self {
        Self::with_room(ROOM, (1..=connections).map(|port| (port, State::UdpReplied)))
    }

    /// With room for so many, and these connections.
    fn with_room(room: u16, connections: impl IntoIterator<Item = (u16, State)>) -> Self {
        let sizes = Sizes {
            neighbors: 1,
            connections: room.into(),
            queues: 1,
            sample_bytes: 4096,
        };
        let conntrack = Conntrack::new(Limits {
            connections: u32::from(room).max(100),
            ..Limits::default()
        });
        conntrack.limit_brief(most_brief(room.into()));
        for (port, state) in connections {
            let connection = Connection {
                vni: Vni::new(5).unwrap(),
                source: Ipv4Addr::new(10, 0, 0, 1).into(),
                destination: Ipv4Addr::new(10, 0, 0, 2).into(),
                protocol: match state {
                    State::Established => Protocol::TCP,
                    _ => Protocol::UDP,
                },
                ports: [port, 53],
                state,
                seen: u64::from(port) * SECOND,
                profiles: [None, None],
                generation: 0,
                handed_over: state == State::Established,
                id: ConnectionId::from_bits(0),
            };
            assert!(conntrack.restore(10 * SECOND, &connection));
        }
        Self {
            program: GatewayProgram::load(sizes).unwrap(),
            conntrack,
            epochs: Epochs::new(EPOCH),
            handed: Handed::default(),
        }
    }

    fn named(&self, port: u16) -> ConnectionId {
        let mut found = None;
        self.conntrack.for_each(|connection| {
            if connection.ports[0] == port {
                found = Some(connection.id);
            }
        });
        found.expect("it is tracked")
    }

    /// At so many seconds. The ports of those that are in the cache afterwards.
    fn hand_over(&mut self, port: u16, second: u64) -> BTreeSet<u16> {
        let connections = [(self.named(port), EPOCH)];
        let at = (&self.epochs, second * SECOND);
        self.handed
            .hand_over(&self.program, &self.conntrack, connections, at)
            .unwrap();
        self.there()
    }

    fn there(&self) -> BTreeSet<u16> {
        let mut there = BTreeSet::new();
        let entries = self.program.connections();
        entries.for_each(|key, _| _ = there.insert(port_of(&key))).unwrap();
        there
    }

    /// The fast path has sent on a packet of it.
    fn goes(&self, port: u16, second: u64) {
        let entries = self.program.connections();
        let mut later = Vec::new();
        entries
            .for_each(|key, value| {
                if port_of(&key) == port {
                    let seen = second * SECOND;
                    later.push((key, CachedConnection { seen, ..value }));
                }
            })
            .unwrap();
        entries.put(&later).unwrap();
    }

    fn counters(&mut self) -> [u64; 4] {
        let CacheCounters {
            entries,
            capacity,
            evicted,
            refused,
            failed: _,
        } = self.handed.counters(&self.program);
        [entries, capacity, evicted, refused]
    }
}

/// The port of who has begun it.
fn port_of(key: &ConnectionKey) -> u16 {
    let [(_, port), _] = key.ends();
    port
}

#[test]
fn a_full_cache_has_room_for_who_comes_when_others_are_quiet() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new(8);
    for port in 1..=ROOM {
        bed.hand_over(port, 10);
    }
    assert_eq!((bed.there(), bed.counters()), ((1..=4).collect(), [4, 4, 0, 0]));
    // The first is not the one without packets for longest any more.
    bed.goes(1, 10);
    assert_eq!(bed.hand_over(5, 11), [1, 3, 4, 5].into());
    assert_eq!(bed.counters(), [4, 4, 1, 0]);
    let second = bed.conntrack.find(bed.named(1)).unwrap();
    assert_eq!(second.seen, 10 * SECOND, "what it is looked through for is told, too");
    // Not more often than once a second; then it goes by workers.
    assert_eq!(bed.hand_over(6, 11), [1, 3, 4, 5].into());
    assert_eq!(bed.counters(), [4, 4, 1, 1]);
    assert_eq!(bed.hand_over(6, 12), [1, 4, 5, 6].into());
    assert_eq!(bed.counters(), [4, 4, 2, 1]);
}

#[test]
fn who_has_packets_stays() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new(6);
    for port in 1..=ROOM {
        bed.hand_over(port, 10);
    }
    (1..=ROOM).for_each(|port| bed.goes(port, 100));
    assert_eq!(bed.hand_over(5, 100), (1..=4).collect());
    assert_eq!(bed.counters(), [4, 4, 0, 1]);
    // What may no longer hold goes first, and is no loss.
    bed.epochs.begin([PolicySlot::of(5)]);
    let connections = [(bed.named(6), bed.epochs.latest())];
    let at = (&bed.epochs, 101 * SECOND);
    bed.handed
        .hand_over(&bed.program, &bed.conntrack, connections, at)
        .unwrap();
    assert_eq!((bed.there(), bed.counters()), ([6].into(), [1, 4, 0, 1]));
    let entries = synchronise(&bed.program, &bed.conntrack, &bed.epochs);
    assert_eq!(entries.unwrap(), 1);
}

/// Of one that is there: when its last packet went through and which epoch it was put in.
fn entries(bed: &Bed) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let entries = bed.program.connections();
    entries
        .for_each(|_, value| found.push((value.seen / SECOND, value.generation)))
        .unwrap();
    found
}

/// What the fast path has written there meanwhile is newer than what would be put.
#[test]
fn what_is_there_already_is_not_put_again() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new(1);
    bed.hand_over(1, 10);
    assert_eq!(entries(&bed), [(1, EPOCH)]);
    bed.goes(1, 10);
    bed.hand_over(1, 11);
    assert_eq!(entries(&bed), [(10, EPOCH)]);
    // Nor what the next packet would be too late for.
    bed.goes(1, 10);
    bed.hand_over(1, 10_000);
    assert_eq!(entries(&bed), [(1, EPOCH)]);
    // Nor what was judged by other rules.
    bed.goes(1, 10);
    bed.epochs.begin([PolicySlot::of(5)]);
    let (named, epoch) = (bed.named(1), bed.epochs.latest());
    let at = (&bed.epochs, 11 * SECOND);
    bed.handed
        .hand_over(&bed.program, &bed.conntrack, [(named, epoch)], at)
        .unwrap();
    assert_eq!(entries(&bed), [(1, epoch)]);
}

/// A flood that nobody answers takes a part of the cache, and nothing from those that were answered.
#[test]
fn brief_connections_have_a_part_of_the_cache() {
    if !is_root() {
        return;
    }
    let brief = (1..=8).map(|port| (port, State::UdpUnreplied));
    let mut bed = Bed::with_room(LARGE, brief.chain((11..=50).map(|port| (port, State::UdpReplied))));
    for port in 1..=8 {
        bed.hand_over(port, 10);
    }
    assert_eq!(bed.there(), (1..=4).collect(), "an eighth");
    assert_eq!(bed.conntrack.brief(), (4, 4));
    for port in 11..=38 {
        bed.hand_over(port, 50);
    }
    assert_eq!(bed.there().len(), usize::from(LARGE));
    // Brief ones make room, also those that have packets; the others stay.
    (1..=4).for_each(|port| bed.goes(port, 50));
    (11..=38).for_each(|port| bed.goes(port, 40));
    let there = bed.hand_over(39, 50);
    let answered: BTreeSet<u16> = (11..=39).collect();
    assert!(there.is_superset(&answered), "{there:?}");
    assert_eq!((there.len(), bed.conntrack.brief()), (31, (2, 4)));
    // None that is full makes room for a brief one, and what is not there counts for nothing.
    bed.hand_over(40, 50);
    let full = bed.there();
    bed.hand_over(5, 51);
    assert_eq!((bed.there(), bed.conntrack.brief()), (full, (2, 4)));
}

#[test]
fn brief_connections_that_are_quiet_make_room_for_others() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::with_room(LARGE, (1..=8).map(|port| (port, State::UdpUnreplied)));
    for port in 1..=5 {
        bed.hand_over(port, 10);
    }
    bed.goes(2, 12);
    bed.handed
        .relieve(&bed.program, &bed.conntrack, (&bed.epochs, 12 * SECOND))
        .unwrap();
    assert_eq!((bed.there(), bed.conntrack.brief()), ([2].into(), (1, 4)));
    assert_eq!(bed.hand_over(5, 12), [2, 5].into());
}

/// The fast path has numbers of these connections, which have not settled, and workers know none.
fn put_unsettled(bed: &Bed, ports: std::ops::RangeInclusive<u16>) -> Vec<Followed> {
    let said = Said {
        end: 1,
        limit: 2,
        window: 3,
        scale: 4,
    };
    let put = |port| {
        let id = bed.named(port);
        let (key, from_higher) = key(&bed.conntrack.find(id).unwrap());
        let value = CachedConnection {
            generation: EPOCH,
            seen: 0,
            idle_ms: 1,
            from_higher,
            one_way: false,
            numbers: Some(TcpNumbers {
                since: EPOCH,
                settled: false,
                sides: sides([said; 2], from_higher),
            }),
            name: id.to_bits(),
        };
        assert_eq!(bed.program.connections().put(&[(key, value)]).unwrap(), 1);
        Followed {
            key,
            id,
            from_higher,
            said: [said; 2],
        }
    };
    ports.map(put).collect()
}

/// Returns of how many connections the program has numbers.
fn numbered(bed: &Bed) -> usize {
    let mut numbered = 0;
    let entries = bed.program.connections();
    entries
        .for_each(|_, value| numbered += usize::from(value.numbers.is_some()))
        .unwrap();
    numbered
}

/// Others want the cache meanwhile, and a worker that is held up makes no queue without an end.
#[test]
fn few_connections_settle_at_a_time() {
    if !is_root() {
        return;
    }
    let ports = 1..=u16::try_from(MAX_SETTLED + 1).unwrap();
    let established = ports.clone().map(|port| (port, State::Established));
    let mut bed = Bed::with_room(2 * ports.end(), established);
    let connections = put_unsettled(&bed, ports);
    let settling = &mut bed.handed.settling;
    connections
        .iter()
        .for_each(|connection| settling.follow(SECOND, *connection));
    for (now, left) in [(SECOND - 1, MAX_SETTLED + 1), (SECOND, 1), (SECOND, 0)] {
        let settling = &mut bed.handed.settling;
        let is_more = settling.settle(&bed.program, &bed.conntrack, now).unwrap();
        assert_eq!((is_more, numbered(&bed)), (left == 1, left));
    }
    let settling = &mut bed.handed.settling;
    assert!(settling.has_room());
    (0..MAX_UNSETTLED).for_each(|_| settling.follow(SECOND, connections[0]));
    assert!(!settling.has_room(), "there are as many as may be");
}

/// A server that has lost a connection answers a SYN of it: the name stays, the numbers are others.
#[test]
fn a_connection_that_begins_again_settles_in_its_own_time() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::with_room(ROOM, [(1, State::Established)]);
    let connection = put_unsettled(&bed, 1..=1)[0];
    let settling = &mut bed.handed.settling;
    settling.follow(SECOND, connection);
    settling.follow(2 * SECOND, connection);
    for (now, left) in [(SECOND, 1), (2 * SECOND, 0)] {
        let settling = &mut bed.handed.settling;
        settling.settle(&bed.program, &bed.conntrack, now).unwrap();
        assert_eq!(numbered(&bed), left);
    }
}

/// The kernel refuses a change for a moment.
#[test]
fn numbers_settle_after_an_error() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::with_room(ROOM, [(1, State::Established), (2, State::Established)]);
    let settling = &mut bed.handed.settling;
    let refused = |_: &Followed, _| anyhow::bail!("refused");
    assert!(!settling.settle_with(&bed.conntrack, SECOND, refused).unwrap());
    for connection in put_unsettled(&bed, 1..=2) {
        bed.handed.settling.follow(SECOND, connection);
    }
    let settling = &mut bed.handed.settling;
    settling.settle_with(&bed.conntrack, SECOND, refused).unwrap_err();
    settling.settle(&bed.program, &bed.conntrack, SECOND).unwrap();
    assert_eq!(numbered(&bed), 0);
}

/// What the program has of a connection that the process before had handed over.
#[test]
fn numbers_of_the_process_before_go_on() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::with_room(ROOM, [(1, State::Established)]);
    bed.handed.check_windows = true;
    bed.handed.first_epoch = EPOCH;
    let id = bed.named(1);
    let (key, from_higher) = key(&bed.conntrack.find(id).unwrap());
    let side = TcpSide {
        end: 1,
        limit: 2,
        window: 3,
        scale: 4,
    };
    let numbers = |settled| TcpNumbers {
        since: EPOCH - 1,
        settled,
        sides: [side; 2],
    };
    let before = |generation, settled| CachedConnection {
        generation,
        seen: 0,
        idle_ms: 1,
        from_higher,
        one_way: false,
        numbers: Some(numbers(settled)),
        name: !id.to_bits(),
    };
    let put = |bed: &Bed, value| {
        let put = bed.program.connections().put(&[(key, value)]);
        assert_eq!(put.unwrap(), 1);
    };
    let found = |bed: &Bed| bed.program.connections().find(&key).unwrap().unwrap();
    put(&bed, before(EPOCH - 1, true));
    bed.hand_over(1, 10);
    let now = found(&bed);
    assert_eq!((now.generation, now.name), (EPOCH, id.to_bits()));
    assert_eq!(now.numbers, Some(numbers(true)));
    // Of another connection, which has ended.
    put(&bed, before(EPOCH, true));
    bed.hand_over(1, 10);
    assert_eq!((found(&bed).name, found(&bed).numbers), (id.to_bits(), None));
    // What workers of the process before knew is not known.
    let cases = [(true, true, true), (false, true, false), (true, false, false)];
    for (settled, unsettled_only, is_kept) in cases {
        put(&bed, before(EPOCH - 1, settled));
        forget_numbers(&bed.program, unsettled_only).unwrap();
        assert_eq!(found(&bed).numbers.is_some(), is_kept);
    }
}

/// Not a test by itself: what another process does.
#[test]
#[ignore = "another test runs it in a process of its own"]
fn child() {
    const MANY: u16 = 30_000;
    let Some(group) = MemoryGroup::with_limit(1 << 30) else {
        return println!("unsupported");
    };
    let outside = group.path().parent().unwrap();
    // The kernel takes memory for entries from the group of who made the map.
    join_group(group.path());
    let mut bed = Bed::with_room(MANY, (1..=MANY).map(|port| (port, State::Established)));
    join_group(outside);
    group.set_limit(group.usage().unwrap()).unwrap();
    let mut known = Vec::new();
    bed.conntrack.for_each(|connection| known.push((connection.id, EPOCH)));
    let at = (&bed.epochs, (u64::from(MANY) + 10) * SECOND);
    let error = bed
        .handed
        .hand_over(&bed.program, &bed.conntrack, known, at)
        .unwrap_err();
    let error = error.downcast::<ringside_bpf::Error>().unwrap();
    let (there, entries) = (bed.there().len(), bed.handed.entries);
    let [.., evicted, refused] = bed.counters();
    println!(
        "errno {:?}, {evicted} {refused}, {}, {there}",
        error.errno(),
        bed.handed.failed
    );
    assert_eq!((error.errno(), evicted, refused), (Some(12), 0, 0));
    assert!(there > 0 && there < usize::from(MANY));
    assert_eq!(entries, there as u64);
    // An error holds up none of the others.
    let failed = usize::try_from(bed.handed.failed).unwrap();
    assert_eq!(there + failed, usize::from(MANY));
    // With memory again, who was left out comes with its next packet.
    group.set_limit(1 << 30).unwrap();
    let mut known = Vec::new();
    bed.conntrack.for_each(|connection| known.push((connection.id, EPOCH)));
    let at = (&bed.epochs, (u64::from(MANY) + 11) * SECOND);
    // The kernel takes it for the next entries a little later.
    let is_done = || {
        let put = bed.handed.hand_over(&bed.program, &bed.conntrack, known.clone(), at);
        put.is_ok()
    };
    assert!(wait_until(Duration::from_secs(10), is_done));
    assert_eq!(bed.there().len(), usize::from(MANY));
    println!("done");
}

#[test]
fn no_connection_makes_room_for_another_where_the_kernel_lacks_memory() {
    if !is_root() {
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "datapath::connections::tests::child",
        "--ignored",
        "--nocapture",
    ]);
    let done = again.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    if done.status.success() && text.lines().any(|line| line == "unsupported") {
        return skip_unsupported("a control group below which one with a memory limit can be made");
    }
    assert!(text.contains("done") && done.status.success(), "{done:?}");
}
