use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use proptest::prelude::*;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use super::*;
use crate::fleet::item::Item;
use crate::fleet::key::Block;
use crate::fleet::sync::Tell;
use crate::fleet::value::Entry;
use crate::fleet::{FleetName, Status};
use crate::model::Tables;
use crate::model::applier::{Applier, Done};
use crate::model::copy::Copy;
use crate::object::{Change, Neighbor, Statement};

fn address(number: u32) -> TenantAddress {
    TenantAddress::new(Vni::new(7).unwrap(), Ipv4Addr::from(0x0a00_0000 + 16 * number).into())
}

fn key(number: u32) -> Key {
    Key::Neighbors(Block::of(address(number)).0)
}

/// The first address of a block of its own; None: it is gone.
fn item(number: u32, version: Option<u64>) -> Item {
    let entry = |version| Entry {
        statement: Statement::Put(Neighbor {
            address: address(number),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            host: Host::at(Ipv4Addr::new(192, 0, 2, 1).into()),
            version,
        }),
        deleted: 0,
    };
    Item::Neighbors(Block::of(address(number)).0, version.map(entry).into_iter().collect())
}

fn parts(copy: Copy) -> (Vec<Made>, Option<Mark>) {
    match copy {
        Copy::Made { made, mark } => (made, mark),
        other => panic!("{other:?}"),
    }
}

struct Gateway {
    applier: Applier,
    tables: Arc<Tables>,
    status: Arc<Status>,
    copies: Receiver<Copy>,
}

impl Gateway {
    fn new() -> Self {
        let limits = Limits {
            connections: 10,
            ..Limits::default()
        };
        let (tables, status) = (
            Arc::new(Tables::new(limits)),
            Arc::new(Status::new(Duration::from_secs(5))),
        );
        let (copy, copies) = std::sync::mpsc::channel();
        let book = Book::new(Arc::clone(&tables));
        let applier = Applier::of_fleet(book, Arc::clone(&status), copy);
        Self {
            applier,
            tables,
            status,
            copies,
        }
    }

    fn tell(&mut self, tell: Tell) {
        let revision = match tell {
            Tell::Revision(revision) => Some(revision),
            _ => None,
        };
        let mark = matches!(tell, Tell::Revision(_) | Tell::Begin).then(|| Mark {
            cluster: 1,
            fleet: FleetName::read(b"this one"),
            revision,
            has_unread: false,
        });
        self.applier.take(Done::Told { tell, mark });
    }

    fn items(&mut self, items: Vec<Item>) {
        self.tell(Tell::Items { items, compare: false });
    }

    fn sweep(&mut self, keep: impl IntoIterator<Item = u32>, compare: bool) {
        let keep = keep.into_iter().map(key).collect();
        self.tell(Tell::Sweep { keep, compare });
    }

    fn end(&mut self) {
        while self.applier.sweep.is_some() {
            self.applier.sweep_a_part();
        }
    }

    fn applied(&self) -> u64 {
        self.status.applied.load(Ordering::Relaxed)
    }

    fn known(&self) -> BTreeMap<TenantAddress, u64> {
        let mut known = BTreeMap::new();
        self.tables
            .neighbors
            .for_each(|address, neighbor| _ = known.insert(address, neighbor.version));
        known
    }
}

#[test]
fn what_comes_waits_for_a_part_and_not_for_all() {
    let mut gateway = Gateway::new();
    gateway.items((0..10_000).map(|number| item(number, Some(1))).collect());
    gateway.sweep(0..5000, true);
    let (mut parts, mut least) = (0, 10_000);
    while gateway.applier.sweep.is_some() {
        gateway.items(vec![item(1, Some(parts + 2))]);
        assert_eq!(
            gateway.known()[&address(1)],
            parts + 2,
            "it is there, whatever is left to sweep"
        );
        gateway.applier.sweep_a_part();
        let left = gateway.tables.neighbors.len();
        // A block's addresses are in one part here, of a 256th each.
        assert!(least - left <= 2 * 100, "{least}, then {left}");
        least = left;
        parts += 1;
    }
    assert!(parts > 100, "{parts}");
    assert_eq!(least, 5000);
    assert_eq!(gateway.status.diverged.load(Ordering::Relaxed), 5000);
}

#[test]
fn a_list_is_not_known_before_its_end_and_a_comparison_holds_nothing_up() {
    let mut gateway = Gateway::new();
    gateway.items((0..1000).map(|number| item(number, Some(1))).collect());
    gateway.tell(Tell::Revision(5));
    gateway.sweep(0..500, true);
    gateway.tell(Tell::Revision(6));
    assert!(gateway.applier.sweep.is_some());
    assert_eq!(gateway.applied(), 6);
    gateway.end();
    gateway.tell(Tell::Begin);
    gateway.sweep(0..100, false);
    gateway.tell(Tell::Revision(7));
    gateway.tell(Tell::Revision(8));
    assert_eq!(gateway.applied(), 6, "there is still something that was not listed");
    _ = gateway.copies.try_iter().count();
    gateway.end();
    assert_eq!((gateway.applied(), gateway.known().len()), (8, 100));
    // On the disk nothing is said to be whole before it is.
    let copies: Vec<(Vec<Made>, Option<Mark>)> = gateway.copies.try_iter().map(parts).collect();
    let marks: Vec<usize> = (0..copies.len()).filter(|at| copies[*at].1.is_some()).collect();
    assert_eq!(marks, [copies.len() - 1]);
    let forgotten: usize = copies.iter().map(|(made, _)| made.len()).sum();
    assert!(forgotten > 0);
    // Another list takes the place of one that has not ended.
    gateway.tell(Tell::Begin);
    gateway.sweep(0..50, false);
    gateway.tell(Tell::Revision(9));
    gateway.tell(Tell::Begin);
    assert!(gateway.applier.sweep.is_none());
    assert_eq!(gateway.applied(), 8);
}

#[derive(Debug, Clone)]
enum Step {
    Say(u32, Option<u64>),
    Part,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..60_u32, proptest::option::weighted(0.7, 2..1000_u64)).prop_map(|(number, version)| Step::Say(number, version)),
        3 => Just(Step::Part),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is told between which parts, in the end there is what was listed and what was told since.
    #[test]
    fn tables_hold_what_was_listed_and_told_since(
        before in proptest::collection::btree_set(0..60_u32, 0..60),
        listed in proptest::collection::btree_set(0..60_u32, 0..60),
        steps in proptest::collection::vec(step(), 0..400),
        compare: bool,
    ) {
        let mut gateway = Gateway::new();
        gateway.items(before.iter().map(|number| item(*number, Some(1))).collect());
        gateway.items(listed.iter().map(|number| item(*number, Some(1))).collect());
        let mut expected: BTreeMap<TenantAddress, u64> = listed.iter().map(|number| (address(*number), 1)).collect();
        gateway.sweep(listed.iter().copied(), compare);
        gateway.tell(Tell::Revision(2));
        for (revision, step) in (3..).zip(steps) {
            match step {
                Step::Say(number, version) => {
                    gateway.items(vec![item(number, version)]);
                    gateway.tell(Tell::Revision(revision));
                    match version {
                        Some(version) => _ = expected.insert(address(number), version),
                        None => _ = expected.remove(&address(number)),
                    }
                }
                Step::Part => gateway.applier.sweep_a_part(),
            }
        }
        gateway.end();
        prop_assert_eq!(gateway.known(), expected.clone());
        // So does the copy, by what it was told.
        let mut copy = BTreeMap::new();
        for made in gateway.copies.try_iter().flat_map(|copy| parts(copy).0) {
            match made {
                Made::Said(Change::Neighbor(Statement::Put(neighbor)), _) => {
                    copy.insert(neighbor.address, neighbor.version);
                }
                Made::Said(Change::Neighbor(Statement::Delete(address, _)), _)
                | Made::Forgotten(Change::Neighbor(Statement::Delete(address, _)), _) => _ = copy.remove(&address),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(copy, expected);
    }
}

/// A list of a gateway that knew nothing has nothing to sweep; one that begins anew has, for what was listed first may be gone by now.
#[test]
fn what_was_listed_first_is_not_swept() {
    let mut gateway = Gateway::new();
    gateway.tell(Tell::Begin);
    gateway.items(vec![item(1, Some(1)), item(2, Some(1))]);
    gateway.tell(Tell::Begin);
    gateway.items(vec![item(2, Some(1))]);
    gateway.sweep([2], false);
    gateway.tell(Tell::Revision(3));
    gateway.end();
    assert_eq!((gateway.applied(), gateway.known().len()), (3, 1));
    let mut gateway = Gateway::new();
    gateway.tell(Tell::Begin);
    gateway.items(vec![item(1, Some(1))]);
    gateway.sweep([1], false);
    assert!(gateway.applier.sweep.is_none());
    gateway.tell(Tell::Revision(3));
    assert_eq!((gateway.applied(), gateway.known().len()), (3, 1));
    gateway.sweep([], true);
    assert!(gateway.applier.sweep.is_some(), "a comparison looks at all of it");
}
