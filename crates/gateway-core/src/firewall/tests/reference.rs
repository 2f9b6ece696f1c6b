//! Compares connections with a slow table: a list, TCP in numbers that do not wrap, and limits.
//! Everything is allowed here; `model.rs` has rules. Who makes room is not predicted: it has to be
//! one of those that may go.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::bench::{error_about, packet, rule, turned, udp};
use super::*;
use crate::conntrack::{ConnectionId, Counts, Rank, Timeouts};

mod fast;
mod tcp;

use fast::Goes;
use tcp::{Becomes, Said, Tcp};

const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Where sides begin to count: some wrap soon.
const FIRST: [u32; 3] = [u32::MAX - 70_000, 5, 0x7fff_fff0];

/// Whose packet: the network's number, the client's address and port. An odd port is UDP's.
type Name = (u32, u8, u16);

/// Something that a sender may say, by what has been said before.
#[derive(Debug, Clone)]
struct Saying {
    way: usize,
    flags: Flags,
    /// Which of the bounds its first number is near, and how near; the same of what it acknowledges.
    first: (usize, i64),
    acknowledges: (usize, i64),
    payload: i64,
    window: u16,
    scale: Option<u8>,
}

#[derive(Debug, Clone)]
enum Step {
    Say(Name, Saying),
    /// An ICMP error about something that a side of it may have sent.
    Error(Name, usize, i64),
    Wait(u64),
    Sweep,
    LimitTenant(Option<u32>),
    Drain(bool),
    Fast(fast::Step),
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// Which of the two ends began it: 0 for the client.
    origin: usize,
    /// None for UDP.
    tcp: Option<Tcp>,
    state: State,
    seen: u64,
    /// It was given to the fast path, and not taken back.
    is_handed: bool,
    /// What it was called when it was handed over last.
    id: Option<ConnectionId>,
    /// It was put in by what was known elsewhere: behind others that had a packet later.
    is_restored: bool,
}

struct Reference {
    limits: Limits,
    of_second_tenant: Option<u32>,
    is_draining: bool,
    all: BTreeMap<Name, Known>,
    /// Some have ended that the fast path still has.
    is_lingering: bool,
    /// What those that were handed over were called, whether or not they are there.
    names: BTreeMap<Name, ConnectionId>,
    met: fast::Met,
}

const TENANTS: [u32; 2] = [7, 8];

impl Reference {
    fn timeout(&self, state: State) -> u64 {
        u64::try_from(self.limits.timeouts.of(state).as_nanos()).unwrap()
    }

    fn is_over(&self, known: &Known, now: u64) -> bool {
        now - known.seen > self.timeout(known.state)
    }

    /// That it is over is seen: lists are in order but for an eighth of the time-out, and who was not idle when room was looked for
    /// has gone to its end.
    fn is_found(&self, known: &Known, now: u64) -> bool {
        let established = known.state.rank() == Rank::Established;
        let idle = if established { self.limits.idle.as_nanos() } else { 0 };
        !known.is_restored && u128::from(now - known.seen) > u128::from(self.timeout(known.state) / 8 * 9 + LAG) + idle
    }

    fn limit_of(&self, tenant: u32) -> usize {
        let own = self.of_second_tenant.filter(|_| tenant == TENANTS[1]);
        own.unwrap_or(self.limits.per_tenant) as usize
    }

    /// What is to come of a packet. `gone` is who made room meanwhile.
    fn say(&mut self, now: u64, name: Name, way: usize, said: &Said, gone: &[(Name, Known)]) -> Result<Goes, Refused> {
        let known = self.all.get(&name).copied().filter(|known| !self.is_over(known, now));
        let Some(mut known) = known else {
            let over = self.all.remove(&name);
            self.is_lingering |= over.is_some_and(|over| over.is_handed && is_tcp(name));
            return self.begin(now, name, way, said, gone);
        };
        let turn = usize::from(way != known.origin);
        let becomes = match &mut known.tcp {
            Some(tcp) => tcp.see(turn, said),
            None => {
                if turn == 1 {
                    known.state = State::UdpReplied;
                }
                Becomes::Passes
            }
        };
        // Also a segment that is refused may show that the other side is there.
        if let Some(entry) = self.all.get_mut(&name) {
            entry.tcp = known.tcp;
        }
        match becomes {
            Becomes::Passes => {}
            Becomes::PassesAlone => return Ok(Goes::alone(known.is_handed)),
            Becomes::Begins => {
                let begins = Tcp::begin(said, self.limits.pick_up).is_some();
                let is_replaced = begins && !self.is_draining;
                if is_replaced {
                    self.all.remove(&name);
                }
                let goes = self.begin(now, name, way, said, gone).inspect_err(|_| {
                    self.is_lingering |= is_replaced && known.is_handed;
                })?;
                return Ok(Goes {
                    let_go: known.is_handed || goes.let_go,
                    ..goes
                });
            }
            Becomes::OutOfWindow => return Err(Refused::OutOfWindow),
            Becomes::OutOfState => return Err(Refused::OutOfState),
            Becomes::BadFlags => return Err(Refused::BadFlags),
        }
        let state = known.tcp.map_or(known.state, |tcp| tcp.state);
        // What was reset has to end.
        if (known.state, state) != (State::Closed, State::Closed) {
            known.seen = now;
        }
        known.state = state;
        let was_handed = known.is_handed;
        let is_open = matches!(state, State::Established | State::UdpReplied);
        // Where a RST came that may have been anybody's the fast path knows whether it goes on.
        known.is_handed &= is_open || state == State::ResetSeen;
        self.all.insert(name, known);
        let established = is_open || known.is_handed;
        let is_renumbered = known.tcp.is_some_and(|tcp| tcp.is_renumbered(turn, said));
        Ok(Goes {
            established,
            let_go: was_handed && (!established || is_renumbered),
        })
    }

    fn begin(
        &mut self,
        now: u64,
        name: Name,
        way: usize,
        said: &Said,
        gone: &[(Name, Known)],
    ) -> Result<Goes, Refused> {
        let tcp = match is_tcp(name) {
            true => match Tcp::begin(said, self.limits.pick_up) {
                Some(tcp) => Some(tcp),
                None if [0x12, 0x10, 0x11, 0x04, 0x14].contains(&said.flags.0) => return Err(Refused::NoConnection),
                None => return Err(Refused::BadFlags),
            },
            false => None,
        };
        if self.is_draining {
            return Err(Refused::Draining);
        }
        self.make_room(now, name.0, gone)?;
        let known = Known {
            origin: way,
            tcp,
            state: tcp.map_or(State::UdpUnreplied, |tcp| tcp.state),
            seen: now,
            is_handed: false,
            id: None,
            is_restored: false,
        };
        self.all.insert(name, known);
        Ok(Goes::alone(self.is_lingering && is_tcp(name)))
    }

    /// Nobody goes while there is room. Of a network that is full it is one of its own that is not established; in a full table one
    /// that is over, else one that is not established, else one that is idle; the oldest, as far as times are kept.
    fn make_room(&mut self, now: u64, tenant: u32, gone: &[(Name, Known)]) -> Result<(), Refused> {
        let own = |name: &Name| name.0 == tenant;
        let (count, limit) = (self.all.keys().filter(|name| own(name)).count(), self.limit_of(tenant));
        let tenant_is_full = count >= limit;
        if !tenant_is_full && self.all.len() < self.limits.connections as usize {
            assert!(gone.is_empty(), "there was room, and {gone:?} went");
            return Ok(());
        }
        let idle = u64::try_from(self.limits.idle.as_nanos()).unwrap();
        let of_rank = |rank| self.all.iter().filter(move |(_, known)| known.state.rank() == rank);
        let mut may: Vec<Name> = Vec::new();
        let mut must_be_over = false;
        if !tenant_is_full {
            may.extend(
                self.all
                    .iter()
                    .filter(|(_, known)| self.is_over(known, now))
                    .map(|(name, _)| *name),
            );
            must_be_over = self.all.values().any(|known| self.is_found(known, now));
        }
        if !must_be_over {
            let weak = [Rank::Unreplied, Rank::Closing]
                .into_iter()
                .find(|rank| of_rank(*rank).any(|(name, _)| !tenant_is_full || own(name)));
            if let Some(rank) = weak {
                let some: Vec<_> = of_rank(rank).filter(|(name, _)| !tenant_is_full || own(name)).collect();
                let in_order = some.iter().filter(|(_, known)| !known.is_restored);
                let oldest = in_order.map(|(_, known)| known.seen).min().unwrap_or(u64::MAX / 2);
                // Within an eighth of its time-out one is as old as another.
                let is_old = |known: &Known| {
                    tenant_is_full || known.is_restored || known.seen <= oldest + self.timeout(known.state) / 8 + LAG
                };
                may.extend(some.iter().filter(|(_, known)| is_old(known)).map(|(name, _)| **name));
            } else if !tenant_is_full {
                may.extend(
                    of_rank(Rank::Established)
                        .filter(|(_, known)| now - known.seen >= idle)
                        .map(|(name, _)| *name),
                );
            }
        }
        let full = if tenant_is_full {
            Refused::TenantFull
        } else {
            Refused::TableFull
        };
        match gone {
            // Who was put in behind others is not always found.
            [] => assert!(
                may.iter().all(|name| self.all[name].is_restored),
                "nobody went, of {may:?}"
            ),
            [(name, _)] => assert!(may.contains(name), "{name:?} went, not one of {may:?}"),
            more => panic!("{more:?} went"),
        }
        for (name, known) in gone {
            self.all.remove(name);
            self.is_lingering |= known.is_handed && is_tcp(*name);
        }
        // One whose limit is another since has more than that: of these goes one for each that is refused.
        let has_room = !gone.is_empty() && (!tenant_is_full || count == limit);
        if has_room { Ok(()) } else { Err(full) }
    }
}

/// Times in lists are kept in ticks.
const LAG: u64 = 4_000_000;

fn is_tcp(name: Name) -> bool {
    name.2.is_multiple_of(2)
}

fn ip(last: u8) -> IpAddr {
    [10, 0, 1, last].into()
}

/// As it comes, from one of the two ends.
fn flow_of(name: Name, way: usize, said: &Said) -> Flow {
    let (_, last, port) = name;
    let mut flow = udp(port, 80);
    if is_tcp(name) {
        let number =
            |way: usize, number: i64| FIRST[(usize::from(last) + way) % 3].wrapping_add((number & 0xffff_ffff) as u32);
        flow = packet(
            Protocol::TCP,
            Upper::Tcp(Segment {
                ports: [port, 80],
                sequence: number(way, said.first),
                len: u32::try_from(said.end - said.first).unwrap(),
                acknowledgment: number(1 - way, said.acknowledges),
                flags: said.flags | said.others,
                window: u16::try_from(said.window).unwrap(),
                scale: said.scale,
            }),
        );
    }
    (flow.source, flow.destination) = (ip(last), SERVER.into());
    if way == 0 { flow } else { turned(flow) }
}

/// What is said, in the numbers of its sender and its receiver.
fn said(known: Option<&Known>, saying: &Saying) -> Said {
    let sides = known
        .and_then(|known| Some((known.tcp?, known.origin)))
        .map(|(tcp, origin)| {
            let side = usize::from(saying.way != origin);
            (tcp.sides[side], tcp.sides[1 - side], tcp.again)
        });
    let (own, other, again) = sides.unwrap_or_default();
    let known_syn = |side: tcp::Side| side.syn.filter(|first| *first > i64::MIN).unwrap_or(0);
    let near = |side: tcp::Side, (which, by): (usize, i64)| {
        by + [
            side.end,
            side.acked,
            side.limit,
            known_syn(side),
            again.unwrap_or(side.end),
        ][which]
    };
    let first = near(own, saying.first);
    let opens = saying.flags.has(Flags::SYN);
    let payload = if opens { 0 } else { saying.payload };
    const OF_STATE: u8 = 0x17;
    Said {
        flags: Flags(saying.flags.0 & OF_STATE),
        others: Flags(saying.flags.0 & !OF_STATE),
        first,
        end: first + payload + i64::from(opens) + i64::from(saying.flags.has(Flags::FIN)),
        acknowledges: near(other, saying.acknowledges),
        window: saying.window.into(),
        scale: saying.scale.filter(|_| opens),
    }
}

/// What the table has, by the names of the reference.
fn there(conntrack: &Conntrack) -> BTreeMap<Name, (State, u64, usize, bool)> {
    let mut there = BTreeMap::new();
    conntrack.for_each(|connection| {
        let way = usize::from(connection.source == IpAddr::from(SERVER));
        let (client, port) = match way {
            0 => (connection.source, connection.ports[0]),
            _ => (connection.destination, connection.ports[1]),
        };
        let IpAddr::V4(client) = client else { panic!("{client}") };
        let name = (connection.vni.number(), client.octets()[3], port);
        let told = (connection.state, connection.seen, way, connection.handed_over);
        let old = there.insert(name, told);
        assert!(old.is_none(), "{name:?} is there twice");
    });
    there
}

fn names() -> impl Strategy<Value = Name> {
    let ports = prop_oneof![3 => Just(4000), 1 => Just(4002), 2 => Just(4001)];
    (prop::sample::select(&TENANTS[..]), 1..4_u8, ports)
}

fn sayings() -> impl Strategy<Value = Saying> {
    let flags = prop_oneof![
        4 => Just(0x10), 2 => Just(0x18), 4 => Just(0x02), 3 => Just(0x12), 2 => Just(0x11), 1 => Just(0x04), 1 => Just(0x14),
        1 => prop::sample::select(vec![0, 0x01, 0x03, 0x06, 0x3f]),
    ];
    let by = || {
        prop_oneof![
            6 => Just(0),
            2 => Just(1),
            1 => Just(-1),
            1 => -3000..3000_i64,
            1 => -140_000..140_000_i64,
        ]
    };
    let near = || (prop_oneof![6 => Just(0_usize), 1 => 1..5_usize], by());
    let payload = prop_oneof![2 => Just(0), 2 => 1..1500_i64, 1 => Just(60_000)];
    let window = prop_oneof![2 => Just(1000_u16), 1 => Just(0), 1 => Just(u16::MAX), 1 => any::<u16>()];
    let scale = prop_oneof![1 => Just(None), 2 => prop::sample::select(vec![0, 2, 7, 14]).prop_map(Some)];
    (0..2_usize, flags, near(), near(), payload, window, scale).prop_map(
        |(way, flags, first, acknowledges, payload, window, scale)| Saying {
            way,
            flags: Flags(flags),
            first,
            acknowledges,
            payload,
            window,
            scale,
        },
    )
}

/// Some connections open, and close, as they should: by chance alone few would.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (names(), sayings()).prop_map(|(name, saying)| Step::Say(name, saying)),
        2 => (names(), 0..2_usize, -70_000..10_i64).prop_map(|(name, way, by)| Step::Error(name, way, by)),
        3 => prop::sample::select(vec![1, 4, 9, 11, 29, 31, 61, 119, 121, 301]).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
        1 => prop::option::of(0..4_u32).prop_map(Step::LimitTenant),
        1 => prop::bool::weighted(0.2).prop_map(Step::Drain),
        12 => fast::steps().prop_map(Step::Fast),
    ];
    let opened = (names(), 0..3).prop_map(|(name, then)| {
        let say = |way, flags, first, acknowledges| {
            let saying = Saying {
                way,
                flags: Flags(flags),
                first,
                acknowledges,
                payload: 0,
                window: 2000,
                scale: Some(3),
            };
            Step::Say(name, saying)
        };
        let end = (0, 0);
        let (opening, closing) = ([(0, 0x02), (1, 0x12), (0, 0x10)], [(0, 0x11), (1, 0x11), (0, 0x10)]);
        let say = |(way, flags)| say(way, flags, end, end);
        let mut all: Vec<_> = opening.into_iter().map(say).collect();
        match then {
            0 => {}
            1 => all.extend(closing.into_iter().map(say)),
            _ => all.extend(fast::reset_for_nothing(name, say((0, 0x04)))),
        }
        all
    });
    let some = prop_oneof![1 => opened, 6 => step.prop_map(|step| vec![step])];
    prop::collection::vec(some, 0..200).prop_map(|all| all.concat())
}

fn limits() -> impl Strategy<Value = Limits> {
    let connections = prop::sample::select(vec![3_u32, 5, 100]);
    let per_tenant = prop::sample::select(vec![2_u32, 4, 100]);
    (connections, per_tenant, any::<bool>()).prop_map(|(connections, per_tenant, pick_up)| {
        let mut timeouts = Timeouts::default();
        // Or else nobody would live to see it.
        timeouts.set(State::Established, Duration::from_secs(300));
        Limits {
            connections,
            per_tenant,
            idle: Duration::from_secs(60),
            pick_up,
            timeouts,
        }
    })
}

/// Everything is allowed, and nobody is connected. No earlier than `now`.
fn open(limits: &Limits, now: u64) -> Bench {
    let mut bench = Bench::open(limits.clone());
    bench.put_group(
        super::bench::CLIENT,
        [Direction::Ingress, Direction::Egress]
            .map(|way| rule(way, Service::Any, Remote::Any))
            .into(),
    );
    bench.now = bench.now.max(now);
    bench
}

fn run(limits: &Limits, steps: Vec<Step>) -> (Counts, fast::Met) {
    let mut bench = open(limits, 0);
    let mut reference = Reference {
        limits: limits.clone(),
        of_second_tenant: None,
        is_draining: false,
        all: BTreeMap::new(),
        is_lingering: false,
        names: BTreeMap::new(),
        met: fast::Met::default(),
    };
    for (at, step) in steps.into_iter().enumerate() {
        let (now, any) = (bench.now, bench.client);
        let told = format!("step {at}: {step:?}");
        match step {
            Step::Say(name, saying) => {
                let known = reference.all.get(&name).copied();
                let said = said(known.as_ref(), &saying);
                let flow = flow_of(name, saying.way, &said);
                let judged = bench.firewall.judge(now, Vni::new(name.0).unwrap(), &flow, any, any);
                let there = there(bench.firewall.conntrack());
                let gone = reference
                    .all
                    .iter()
                    .filter(|(other, _)| **other != name && !there.contains_key(other));
                let gone: Vec<_> = gone.map(|(name, known)| (*name, *known)).collect();
                let expected = reference.say(now, name, saying.way, &said, &gone);
                reference.met.let_go += u32::from(expected.is_ok_and(|goes| goes.let_go));
                assert_eq!(judged.map(Goes::from), expected, "{told} {said:?} {known:?}");
            }
            Step::Error(name, way, by) => {
                if !is_tcp(name) {
                    continue;
                }
                let known = reference.all.get(&name).copied();
                let side = known.map(|known| usize::from(way != known.origin)).unwrap_or(way);
                let tcp = known.and_then(|known| known.tcp);
                let number = by + tcp.map_or(0, |tcp| tcp.sides[side].end);
                let quoted = Said {
                    flags: Flags::ACK,
                    others: Flags(0),
                    first: number,
                    end: number,
                    acknowledges: 0,
                    window: 0,
                    scale: None,
                };
                let error = error_about(&flow_of(name, way, &quoted));
                let judged = bench.firewall.judge(now, Vni::new(name.0).unwrap(), &error, None, any);
                let is_about = known.is_some_and(|known| {
                    !reference.is_over(&known, now) && tcp.is_some_and(|tcp| tcp.may_have_sent(side, number))
                });
                let expected = if is_about { Ok(false) } else { Err(Refused::Unrelated) };
                assert_eq!(judged.map(|passed| passed.established), expected, "{told} {number}");
            }
            Step::Fast(step) => reference.fast(&mut bench, step, &told),
            Step::Wait(seconds) => bench.wait(seconds),
            Step::Sweep => {
                bench.firewall.conntrack().sweep(now);
                let there = there(bench.firewall.conntrack());
                let all = std::mem::take(&mut reference.all);
                for (name, known) in all {
                    let is_found = reference.is_found(&known, now);
                    assert!(
                        reference.is_over(&known, now) || there.contains_key(&name),
                        "{told}: {name:?} is gone"
                    );
                    assert!(
                        !is_found || !there.contains_key(&name),
                        "{told}: {name:?} is still there"
                    );
                    if there.contains_key(&name) {
                        reference.all.insert(name, known);
                    } else {
                        reference.is_lingering |= known.is_handed && is_tcp(name);
                    }
                }
            }
            Step::LimitTenant(limit) => {
                let tenant = Vni::new(TENANTS[1]).unwrap();
                bench.firewall.conntrack().limit_tenant(tenant, limit);
                reference.of_second_tenant = limit;
            }
            Step::Drain(drain) => {
                bench.firewall.conntrack().drain(drain);
                reference.is_draining = drain;
            }
        }
        let conntrack = bench.firewall.conntrack();
        let expected: BTreeMap<_, _> = reference
            .all
            .iter()
            .map(|(name, known)| (*name, (known.state, known.seen, known.origin, known.is_handed)))
            .collect();
        assert_eq!(there(conntrack), expected, "{told}");
        for tenant in TENANTS {
            let count = reference.all.keys().filter(|name| name.0 == tenant).count();
            assert_eq!(conntrack.tenant_len(Vni::new(tenant).unwrap()), count, "{told}");
        }
        assert_eq!(conntrack.len(), reference.all.len(), "{told}");
    }
    (bench.firewall.conntrack().counts(), reference.met)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn it_knows_what_the_slow_one_knows((limits, steps) in (limits(), steps())) {
        run(&limits, steps);
    }
}

/// The histories are worth something: in them is all that there is.
#[test]
fn the_histories_get_everywhere() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut sum, mut met) = (Counts::default(), fast::Met::default());
    for _ in 0..400 {
        let (limits, steps) = (limits(), steps()).new_tree(&mut runner).unwrap().current();
        let (counts, more) = run(&limits, steps);
        met.add(more);
        for (sum, count) in sum.states.iter_mut().zip(counts.states) {
            *sum += count;
        }
        for (sum, count) in sum.evicted.iter_mut().zip(counts.evicted) {
            *sum += count;
        }
        sum.replaced += counts.replaced;
        sum.timed_out += counts.timed_out;
    }
    assert!(
        sum.evicted.iter().all(|count| *count > 0) && sum.replaced > 0 && sum.timed_out > 0,
        "{sum:?}"
    );
    assert!(met.has_all(), "{met:?}");
    let tcp = State::ALL.iter().take_while(|state| **state != State::UdpUnreplied);
    for state in tcp {
        assert!(sum.of(*state) > 0, "none ended as {state}: {sum:?}");
    }
}
