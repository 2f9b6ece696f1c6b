use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use ringside_gateway_core::Vni;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::table::Host;
use ringside_wire::MacAddr;

use super::*;
use crate::model::Tables;
use crate::model::tests::Cache;

/// Of two blocks.
fn address(block: u8, low: u8) -> TenantAddress {
    TenantAddress::new(Vni::new(7).unwrap(), [10, 0, block, low].into())
}

fn neighbor(address: TenantAddress, version: u64, content: u8) -> Neighbor {
    Neighbor {
        address,
        mac: MacAddr([2, 0, 0, 0, 0, content]),
        host: Host::at([192, 0, 2, content].into()),
        version,
    }
}

/// None: nothing is said; then version and content, or version and time of a delete.
type Content = Option<(u64, u8, bool)>;

fn contents() -> impl Strategy<Value = Vec<Content>> {
    let content = proptest::option::weighted(0.6, (0..4_u64, 1..4_u8, prop::bool::weighted(0.7)));
    proptest::collection::vec(content, 5)
}

fn entries<O: Object<Key = TenantAddress>>(
    block: u8,
    contents: &[Content],
    object: impl Fn(TenantAddress, u64, u8) -> O,
) -> Vec<Entry<O>> {
    let entry = |(low, content): (u8, &Content)| {
        let (version, content, is_there) = (*content)?;
        let address = address(block, low);
        Some(match is_there {
            true => Entry {
                statement: Statement::Put(object(address, version, content)),
                deleted: 0,
            },
            false => Entry {
                statement: Statement::Delete(address, version),
                deleted: content.into(),
            },
        })
    };
    (0..).zip(contents).filter_map(entry).collect()
}

fn port(address: TenantAddress, version: u64, content: u8) -> Port {
    Port {
        address,
        groups: vec![GroupId(content.into())],
        version,
    }
}

fn item() -> impl Strategy<Value = Item> {
    (0..3_u8, 0..2_u8, contents()).prop_map(|(kind, block, contents)| {
        let of = Block::of(address(block, 0)).0;
        match kind {
            0 => Item::Neighbors(of, entries(block, &contents, neighbor)),
            1 => Item::Ports(of, entries(block, &contents, port)),
            _ => {
                let id = GroupId(block.into());
                let entry = contents[0].map(|(version, content, is_there)| Entry {
                    statement: match is_there {
                        true => Statement::Put(Group {
                            id,
                            name: content.to_string(),
                            rules: Vec::new(),
                            version,
                        }),
                        false => Statement::Delete(GroupKey(id), version),
                    },
                    deleted: if is_there { 0 } else { content.into() },
                });
                Item::Group(id, entry)
            }
        }
    })
}

/// What changes make of what was: as the copy on the disk does it.
fn note(copy: &mut BTreeMap<String, (Change, i64)>, made: Vec<Made>) {
    fn key(change: &Change) -> String {
        match change {
            Change::Neighbor(statement) => format!("neighbor {}", statement.key()),
            Change::Port(statement) => format!("port {}", statement.key()),
            Change::Group(statement) => format!("group {}", statement.key()),
        }
    }
    for made in made {
        match made {
            Made::Said(change, when) => _ = copy.insert(key(&change), (change, when)),
            Made::Forgotten(change, _) => {
                assert!(copy.remove(&key(&change)).is_some(), "nothing was known: {change:?}")
            }
        }
    }
}

/// What items say, the same way.
fn expected(items: &BTreeMap<Key, Item>) -> BTreeMap<String, (Change, i64)> {
    let mut all = BTreeMap::new();
    for item in items.values() {
        let made = match item.clone() {
            Item::Neighbors(_, entries) => entries.into_iter().map(said).collect(),
            Item::Ports(_, entries) => entries.into_iter().map(said).collect(),
            Item::Group(_, entry) => entry.into_iter().map(said).collect(),
            Item::DamagedPorts(_) => Vec::new(),
        };
        note(&mut all, made);
    }
    all
}

fn said<O: Object>(entry: Entry<O>) -> Made {
    Made::Said(O::into_change(entry.statement), entry.deleted)
}

/// All parts of a sweep.
fn sweep(book: &mut Book, keep: &HashSet<Key>) -> Vec<Made> {
    let mut made = book.sweep_policy(keep);
    let parts = 0..table::Neighbors::PARTS;
    made.extend(parts.flat_map(|part| book.sweep_neighbors(part, keep)));
    made
}

fn book() -> (Book, Arc<Cache>) {
    let limits = Limits {
        connections: 10,
        ..Limits::default()
    };
    let tables = Arc::new(Tables::new(limits));
    let cache = Arc::new(Cache::of(Arc::clone(&tables)));
    let mut book = Book::new(tables);
    book.set_path(cache.clone());
    (book, cache)
}

proptest! {
    /// Whatever is said of keys, in whatever versions: tables and copy hold the last of it, and nothing is done twice.
    #[test]
    fn tables_and_copy_hold_what_was_said(rounds in proptest::collection::vec(proptest::collection::vec(item(), 1..4), 1..20)) {
        let (mut book, cache) = book();
        let told = || (cache.changed.load(Ordering::Relaxed), cache.policy_changes.lock().unwrap().len());
        let (mut items, mut copy) = (BTreeMap::new(), BTreeMap::new());
        for round in rounds {
            let made = book.mirror(&round);
            note(&mut copy, made);
            items.extend(round.into_iter().map(|item| (item.key(), item)));
            prop_assert_eq!(&copy, &expected(&items));
            // The tables say that they hold it, and the data path is not told of it again.
            let all: Vec<Item> = items.values().cloned().collect();
            let before = told();
            prop_assert_eq!(book.mirror(&all), []);
            prop_assert_eq!(told(), before);
        }
        let mut found = BTreeMap::new();
        book.tables.neighbors.for_each(|address, known| _ = found.insert(address, (known.version, known.mac)));
        let neighbors = copy.values().filter_map(|(change, _)| match change {
            Change::Neighbor(Statement::Put(neighbor)) => Some((neighbor.address, (neighbor.version, neighbor.mac))),
            _ => None,
        });
        prop_assert_eq!(found, neighbors.collect::<BTreeMap<_, _>>());
        // What has none of some keys is forgotten.
        let keep = items.keys().next().copied();
        let made = sweep(&mut book, &keep.into_iter().collect());
        note(&mut copy, made);
        items.retain(|key, _| Some(*key) == keep);
        prop_assert_eq!(&copy, &expected(&items));
        let made = sweep(&mut book, &HashSet::new());
        note(&mut copy, made);
        prop_assert!(copy.is_empty());
        prop_assert_eq!((book.tables.neighbors.len(), book.tables.ports(), book.tables.groups(), book.tables.tombstones()), (0, 0, 0, 0));
    }
}

#[test]
fn where_ports_cannot_be_read_nothing_is_allowed_unless_something_is_known() {
    let (mut book, cache) = book();
    let (block, _) = Block::of(address(0, 0));
    let known = vec![Entry {
        statement: Statement::Put(port(address(0, 3), 5, 1)),
        deleted: 0,
    }];
    book.mirror(&[Item::Ports(block, known)]);
    cache.policy_changes.lock().unwrap().clear();
    let made = book.mirror(&[Item::DamagedPorts(block)]);
    assert_eq!(made.len(), usize::from(ADDRESSES) - 1);
    let network = address(0, 0).vni;
    assert_eq!(*cache.policy_changes.lock().unwrap(), [[network]]);
    assert_eq!(book.ports.get(&address(0, 3)).map(|bound| bound.version), Some(5));
    assert!(book.tables.is_policed(network));
    assert_eq!(book.mirror(&[Item::DamagedPorts(block)]), []);
}

/// Otherwise workers forward packets to the neighbour while the fast path applies old rules to
/// others.
#[test]
fn the_data_path_knows_new_rules_before_the_neighbours_that_come_with_them() {
    let neighbor = Statement::Put(neighbor(address(0, 1), 1, 1));
    let port = Statement::Put(port(address(0, 2), 1, 1));
    fn only<O: Object + Clone>(statement: &Statement<O>) -> Vec<Entry<O>> {
        let statement = statement.clone();
        vec![Entry { statement, deleted: 0 }]
    }
    let by_etcd = |book: &mut Book| {
        let (of, _) = Block::of(address(0, 0));
        let items = [Item::Neighbors(of, only(&neighbor)), Item::Ports(of, only(&port))];
        book.mirror(&items);
    };
    let by_a_caller = |book: &mut Book| {
        book.apply(&[Change::Neighbor(neighbor.clone()), Change::Port(port.clone())]);
    };
    type Way<'a> = &'a dyn Fn(&mut Book);
    for (name, way) in [("told by etcd", &by_etcd as Way<'_>), ("asked for", &by_a_caller)] {
        let (mut book, cache) = book();
        way(&mut book);
        assert_eq!(*cache.policy_changes.lock().unwrap(), [[address(0, 0).vni]], "{name}");
        assert_eq!(*cache.neighbors_then.lock().unwrap(), [0], "{name}");
        assert_eq!(book.tables.neighbors.len(), 1, "{name}");
    }
}
