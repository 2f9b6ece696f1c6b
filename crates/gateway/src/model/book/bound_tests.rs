//! What packets go by while what is bound to both ends of them becomes otherwise, and the rules of it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::policy::{
    Denied, Direction, GroupId, Policy, PolicyReader, Remote, Rule, RuleId, Service, Subject,
};
use ringside_gateway_core::table::{BindingReader, Host, NeighborReader};
use ringside_wire::{MacAddr, Protocol};

use super::*;
use crate::fleet::item::Item;
use crate::fleet::key::Block;
use crate::fleet::sync::tests::etcd::Etcd;
use crate::fleet::sync::{Action, Failed, Input, Pulse, Sync, Timing};
use crate::fleet::value::Entry;
use crate::fleet::{FleetName, Status};
use crate::model::Tables;
use crate::model::applier::{Applier, Done};
use crate::model::book::Source;
use crate::object::{Change, Group, GroupKey, Neighbor, Object, Port, Statement};

/// What packets go to that are always allowed, and what those go to that never are.
const ALLOWED: u16 = 9;
const DENIED: u16 = 7;
const STATES: u64 = 3;

/// Who sends is a neighbour; their ports have keys of their own.
fn ends() -> [TenantAddress; 2] {
    [0, 1].map(|block| TenantAddress::new(Vni::new(7).unwrap(), Ipv4Addr::new(10, 0, block, 1).into()))
}

/// What is bound to both ends (none is no port), and the rules of all groups, one each: a direction, a port or any, and a group of whom they are about.
/// Whatever is bound to nobody would let everything through, or nothing.
type State = ([Option<u32>; 2], [Option<(Direction, Option<u16>, Option<u32>)>; 5]);

fn state(number: u64) -> State {
    let everything = |direction| Some((direction, None, None));
    let [any, out] = [everything(Direction::Ingress), everything(Direction::Egress)];
    let from = |group| Some((Direction::Ingress, Some(ALLOWED), group));
    match number % STATES {
        0 => ([Some(1), Some(2)], [out, from(Some(1)), None, any, any]),
        1 => ([Some(3), Some(4)], [None, any, out, from(Some(3)), None]),
        _ => ([None, Some(5)], [None, None, out, any, from(None)]),
    }
}

/// All that a state says, in a version.
fn said(number: u64, version: u64) -> Vec<Change> {
    fn said<O: Object>(key: O::Key, version: u64, object: Option<O>) -> Change {
        O::into_change(object.map_or(Statement::Delete(key, version), Statement::Put))
    }
    let (bound, groups) = state(number);
    let groups = (1..).zip(groups).map(|(id, rule)| {
        let id = GroupId(id);
        let rule = rule.map(|(direction, port, group)| Rule {
            id: RuleId(1),
            direction,
            family: None,
            service: port.map_or(Service::Any, |port| Service::Ports(Protocol::UDP, port..=port)),
            remote: group.map_or(Remote::Any, |group| Remote::Group(GroupId(group))),
        });
        let group = rule.map(|rule| Group {
            id,
            name: String::new(),
            rules: vec![rule],
            version,
        });
        said(GroupKey(id), version, group)
    });
    let ports = ends().into_iter().zip(bound).map(|(address, group)| {
        let port = group.map(|group| Port {
            address,
            groups: vec![GroupId(group)],
            version,
        });
        said(address, version, port)
    });
    groups.chain(ports).collect()
}

/// The same as what keys hold: a port that is gone leaves a tombstone, a group may be forgotten.
fn items(number: u64, version: u64) -> Vec<Item> {
    fn entry<O: Object>(statement: Statement<O>) -> Entry<O> {
        let deleted = i64::from(matches!(statement, Statement::Delete(..)));
        Entry { statement, deleted }
    }
    let item = |change| match change {
        Change::Group(statement) => {
            let is_put = |entry: &Entry<Group>| matches!(entry.statement, Statement::Put(_));
            Item::Group(statement.key().0, Some(entry(*statement)).filter(is_put))
        }
        Change::Port(statement) => {
            let (block, _) = Block::of(statement.key());
            Item::Ports(block, vec![entry(statement)])
        }
        Change::Neighbor(_) => unreachable!("a state has none"),
    };
    said(number, version).into_iter().map(item).collect()
}

fn tables() -> Arc<Tables> {
    Arc::new(Tables::new(Limits {
        connections: 10,
        ..Limits::default()
    }))
}

fn sender() -> Change {
    Change::Neighbor(Statement::Put(Neighbor {
        address: ends()[0],
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        host: Host::at(Ipv4Addr::new(192, 0, 2, 1).into()),
        version: 1,
    }))
}

/// A worker, as far as it judges first packets.
struct Judge {
    policy: PolicyReader,
    neighbors: NeighborReader,
    bindings: BindingReader,
}

impl Judge {
    fn new(tables: &Tables) -> Self {
        Self {
            policy: tables.policy.reader(),
            neighbors: tables.neighbors.reader(),
            bindings: tables.bindings.reader(),
        }
    }

    /// Of packets to both services. None: the rules are others than when the ends were looked up.
    fn look(&mut self) -> Option<[Result<(), Denied>; 2]> {
        let generation = self.policy.load().generation();
        let [from, to] = ends();
        let sender = self.neighbors.find(from).expect("it is a neighbour");
        let sender = ProfileId::new(sender.policy);
        let receiver = self.bindings.profile(to);
        let rules = self.policy.load();
        let judged = [ALLOWED, DENIED].map(|service| {
            let subject = Subject {
                source: from.ip,
                destination: to.ip,
                protocol: Protocol::UDP,
                service,
            };
            rules.judge(&subject, sender, receiver)
        });
        (rules.generation() == generation).then_some(judged)
    }
}

fn assert_right(judged: [Result<(), Denied>; 2], when: &str) {
    assert_eq!(judged, [Ok(()), Err(Denied::Ingress)], "{when}");
}

/// Says a state, in a version.
type Way = dyn Fn(&mut Book, u64, u64);

/// Whoever looks while one state takes the place of the other finds one of both, in whatever way and order it is said.
#[test]
fn what_is_said_together_is_seen_together() {
    const ROUNDS: u64 = 1000;
    let mirror = |book: &mut Book, number, version| {
        book.mirror(&items(number, version), Source::List);
    };
    let backwards = |book: &mut Book, number, version| {
        let mut items = items(number, version);
        items.reverse();
        book.mirror(&items, Source::List);
    };
    let apply = |book: &mut Book, number, version| _ = book.apply(&said(number, version));
    let ways: [(&str, &Way); 3] = [
        ("told by etcd", &mirror),
        ("backwards", &backwards),
        ("asked for", &apply),
    ];
    for (name, way) in ways {
        let tables = tables();
        let mut book = Book::new(Arc::clone(&tables));
        book.apply(&[sender()]);
        way(&mut book, 0, 1);
        let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut judge = Judge::new(&tables);
                while !over.load(Ordering::Relaxed) {
                    if let Some(judged) = judge.look() {
                        assert_right(judged, name);
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            for version in 2..ROUNDS {
                way(&mut book, version, version);
                if looking.is_finished() {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
            looking.join().unwrap();
        });
        assert!(looks.load(Ordering::Relaxed) > 0);
        // Nothing of what stood for one of them meanwhile is left.
        let profiles = |tables: &Tables| Policy::memory(&tables.policy);
        let before = profiles(&tables);
        for version in ROUNDS..ROUNDS + 2 * STATES {
            way(&mut book, version, version);
        }
        assert_eq!((ROUNDS + 2 * STATES - 1) % STATES, (ROUNDS - 1) % STATES);
        assert_eq!(profiles(&tables), before, "{name}");
    }
}

/// What had to be watched was compacted, and all of it is listed, page after page: packets go by what was, until they go by what is.
#[test]
fn what_is_listed_anew_is_seen_at_once() {
    let tables = tables();
    let (copy, _copies) = std::sync::mpsc::channel();
    let status = Arc::new(Status::new(Duration::from_secs(5)));
    let mut applier = Applier::of_fleet(Book::new(Arc::clone(&tables)), status, copy);
    let mut etcd = Etcd::new();
    let Change::Neighbor(statement) = sender() else {
        unreachable!()
    };
    let entry = Entry { statement, deleted: 0 };
    etcd.hold(vec![Item::Neighbors(Block::of(ends()[0]).0, vec![entry])]);
    let mut sync = Sync::new(Timing::default(), 1, None, Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut judge = Judge::new(&tables);
    for number in 0..3 * STATES {
        etcd.hold(items(number, number + 1));
        let (mut pages, mut tells) = (0, 0);
        // Until it watches.
        loop {
            now += Duration::from_millis(1);
            match sync.poll(now) {
                Some(Action::Pulse) => sync.handle(
                    now,
                    Input::Pulse(Ok(Pulse {
                        revision: etcd.revision,
                        cluster: etcd.cluster,
                        fleet: etcd.fleet.as_deref().map(FleetName::read),
                    })),
                ),
                Some(Action::List(asked)) => {
                    pages += 1;
                    sync.handle(now, Input::Listed(etcd.list(&asked, 1)));
                }
                Some(Action::Tell(tell)) => {
                    applier.take(Done::Told { tell, mark: None });
                    tells += 1;
                    if number > 0 {
                        assert_right(judge.look().unwrap(), &format!("state {number}, told {tells}"));
                    }
                }
                Some(Action::Watch(_)) => break,
                Some(Action::Unwatch | Action::Progress) | None => {}
            }
        }
        while applier.sweep.is_some() {
            applier.sweep_a_part();
        }
        assert_right(judge.look().unwrap(), &format!("state {number}"));
        assert!(pages > 5, "{pages}");
        // No group or port of another state is left.
        let (bound, groups) = state(number);
        let there = [bound.iter().flatten().count(), groups.iter().flatten().count()];
        assert_eq!([tables.ports(), tables.groups()], there);
        sync.handle(now, Input::Ended(Failed::Compacted));
    }
}
