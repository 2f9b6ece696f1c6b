use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use ringside_gateway_core::Vni;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::table::Host;
use ringside_wire::MacAddr;

use super::*;
use crate::fleet::value::Packed as _;
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
    let content = proptest::option::weighted(0.6, (1..5_u64, 1..4_u8, prop::bool::weighted(0.7)));
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
    made.extend(book.forget_unreachable_lost());
    made
}

/// Addresses of ports that are there.
fn puts<O: Object>(entries: &[Entry<O>]) -> impl Iterator<Item = &Entry<O>> {
    let is_put = |entry: &&Entry<O>| matches!(entry.statement, Statement::Put(_));
    entries.iter().filter(is_put)
}

/// What holds when a key says this after that: ports that it leaves out hold on.
fn holds(before: Option<&Item>, now: &Item) -> Item {
    let (Some(Item::Ports(_, before)), Item::Ports(block, now)) = (before, now) else {
        return now.clone();
    };
    let said: Vec<TenantAddress> = now.iter().map(|entry| entry.statement.key()).collect();
    let is_said = |entry: &Entry<Port>| said.contains(&entry.statement.key());
    let lost = puts(before).filter(|entry| !is_said(entry));
    let mut all: Vec<Entry<Port>> = now.iter().chain(lost).cloned().collect();
    all.sort_by_key(|entry| entry.statement.key());
    Item::Ports(*block, all)
}

type Items = BTreeMap<Key, Item>;

/// What is left of items after a list that had these keys alone: ports may have been deleted before
/// it, and hold where they are needed.
fn listed(items: &Items, said: &Items, keep: &HashSet<Key>) -> Items {
    let neighbors = |address: TenantAddress| match items.get(&Neighbor::place(address).0) {
        Some(item @ Item::Neighbors(_, entries)) if keep.contains(&item.key()) => {
            puts(entries).any(|entry| entry.statement.key() == address)
        }
        _ => false,
    };
    let left = items.values().filter_map(|item| match item {
        Item::Ports(block, entries) => {
            let is_listed = |entry: &&Entry<Port>| match said.get(&item.key()) {
                Some(Item::Ports(_, said)) if keep.contains(&item.key()) => said.contains(entry),
                _ => false,
            };
            let is_held = |entry: &&Entry<Port>| neighbors(entry.statement.key());
            let held: Vec<_> = puts(entries).filter(is_held).collect();
            let left = entries.iter().filter(|entry| is_listed(entry) || held.contains(entry));
            Some(Item::Ports(*block, left.cloned().collect()))
        }
        item => keep.contains(&item.key()).then(|| item.clone()),
    });
    left.map(|item| (item.key(), item)).collect()
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
        let (mut items, mut said, mut copy) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for round in rounds {
            let made = book.mirror(&round, Source::List);
            note(&mut copy, made);
            for item in round {
                let now = holds(items.get(&item.key()), &item);
                items.insert(item.key(), now);
                said.insert(item.key(), item);
            }
            prop_assert_eq!(&copy, &expected(&items));
            // The tables say that they hold it, and the data path is not told of it again.
            let all: Vec<Item> = said.values().cloned().collect();
            let before = told();
            prop_assert_eq!(book.mirror(&all, Source::List), []);
            prop_assert_eq!(told(), before);
            for key in items.keys() {
                // Ports and neighbours are told where a key cannot be read: all of them, as packets
                // go by them.
                let known = BTreeMap::from([(*key, book.known_item(*key))]);
                let there = BTreeMap::from([(*key, items[key].clone())]);
                prop_assert_eq!(expected(&known), expected(&there));
            }
        }
        let mut found = BTreeMap::new();
        book.tables.neighbors.for_each(|address, known| _ = found.insert(address, (known.version, known.mac)));
        let neighbors = copy.values().filter_map(|(change, _)| match change {
            Change::Neighbor(Statement::Put(neighbor)) => Some((neighbor.address, (neighbor.version, neighbor.mac))),
            _ => None,
        });
        prop_assert_eq!(found, neighbors.collect::<BTreeMap<_, _>>());
        // What has none of some keys is forgotten.
        let keep: HashSet<Key> = items.keys().next_back().copied().into_iter().collect();
        let made = sweep(&mut book, &keep);
        note(&mut copy, made);
        prop_assert_eq!(&copy, &expected(&listed(&items, &said, &keep)));
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
    book.mirror(&[Item::Ports(block, known)], Source::List);
    cache.policy_changes.lock().unwrap().clear();
    let made = book.mirror(&[Item::DamagedPorts(block)], Source::List);
    assert_eq!(made.len(), usize::from(ADDRESSES) - 1);
    let network = address(0, 0).vni;
    assert_eq!(*cache.policy_changes.lock().unwrap(), [[network]]);
    assert_eq!(book.ports.get(&address(0, 3)).map(|bound| bound.version), Some(5));
    assert!(book.tables.is_policed(network));
    assert_eq!(book.mirror(&[Item::DamagedPorts(block)], Source::List), []);
}

/// Somebody removes the key of a port past all gateways, or writes one without it: it holds until a
/// gateway deletes it, and a watch that showed that has it put back.
#[test]
fn a_port_that_is_gone_without_a_tombstone_holds() {
    let (mut book, cache) = book();
    let (block, _) = Block::of(address(0, 0));
    let at = address(0, 3);
    let put = |low, version| Entry {
        statement: Statement::Put(port(address(0, low), version, 1)),
        deleted: 0,
    };
    let policy = |book: &Book| book.tables.neighbors.reader().find(at).unwrap().policy;
    let neighbors = vec![Entry {
        statement: Statement::Put(neighbor(at, 1, 1)),
        deleted: 0,
    }];
    let both = [
        Item::Ports(block, vec![put(3, 5), put(4, 6)]),
        Item::Neighbors(block, neighbors.clone()),
    ];
    book.mirror(&both, Source::Watch);
    let before = policy(&book);
    assert_ne!(before, 0);
    cache.policy_changes.lock().unwrap().clear();
    for (item, lost) in [
        (Item::Ports(block, vec![put(4, 6)]), vec![at]),
        (Item::Ports(block, Vec::new()), vec![at, address(0, 4)]),
        // A gateway that has never known more than that has put it.
        (Item::Ports(block, vec![put(4, 7)]), vec![at]),
    ] {
        book.mirror(&[item], Source::Watch);
        assert_eq!(policy(&book), before);
        assert_eq!(book.lost(9), (lost.len(), lost));
    }
    assert_eq!(*cache.policy_changes.lock().unwrap(), Vec::<Vec<Vni>>::new());
    let back = |book: &Book| book.restoration(9);
    assert_eq!(back(&book), [Change::Port(Statement::Put(port(at, 5, 1)))]);
    // It is put back: nothing is missing, and it was never anything else.
    book.mirror(&[Item::Ports(block, vec![put(3, 5), put(4, 7)])], Source::Watch);
    assert_eq!((book.lost(9).0, back(&book)), (0, Vec::new()));
    // After a list it may have been deleted before: it holds, and is not put back.
    book.mirror_all_policy(Vec::new(), &HashSet::new());
    book.forget_unreachable_lost();
    assert_eq!((book.lost(9), back(&book)), ((1, vec![at]), Vec::new()));
    assert_eq!(policy(&book), before);
    // A gateway deletes it.
    let deleted = Entry {
        statement: Statement::Delete(at, 5),
        deleted: 1,
    };
    book.mirror(&[Item::Ports(block, vec![deleted])], Source::Watch);
    assert_eq!((policy(&book), book.lost(9).0), (0, 0));
}

/// Whoever could not read a port closes its address, and it stays so when the key is removed
/// instead of put.
#[test]
fn an_address_whose_port_could_not_be_read_stays_closed() {
    let (mut book, _) = book();
    let (block, _) = Block::of(address(0, 0));
    let entry = Entry {
        statement: Statement::Put(neighbor(address(0, 3), 1, 1)),
        deleted: 0,
    };
    book.mirror(
        &[Item::DamagedPorts(block), Item::Neighbors(block, vec![entry])],
        Source::List,
    );
    let closed = |book: &Book| book.ports.keys().copied().collect::<BTreeSet<_>>();
    assert_eq!(closed(&book).len(), usize::from(ADDRESSES));
    book.mirror(&[Item::Ports(block, Vec::new())], Source::Watch);
    assert_eq!(
        closed(&book),
        [address(0, 3)].into(),
        "the only one that can be reached"
    );
    // Another gateway has known it, and puts it back.
    let known = Entry {
        statement: Statement::Put(port(address(0, 3), 5, 1)),
        deleted: 0,
    };
    let there = Item::Ports(block, vec![known]);
    book.mirror(std::slice::from_ref(&there), Source::Watch);
    assert_eq!(book.known_item(Key::Ports(block)), there);
    // One that has not puts what closes it: that is not what is known here.
    let closing = Entry {
        statement: Statement::Put(Port {
            address: address(0, 3),
            groups: Vec::new(),
            version: 0,
        }),
        deleted: 0,
    };
    book.mirror(&[Item::Ports(block, vec![closing])], Source::Watch);
    assert_eq!(book.known_item(Key::Ports(block)), there);
    assert_eq!(
        book.restoration(9),
        [Change::Port(Statement::Put(port(address(0, 3), 5, 1)))]
    );
}

/// A gateway that has never known a damaged key closes its addresses, and says nothing of them to
/// others: most of them never had a port.
#[test]
fn writes_no_placeholders_of_a_damaged_key() {
    let (mut book, _) = book();
    let (block, _) = Block::of(address(0, 0));
    let entry = Entry {
        statement: Statement::Put(neighbor(address(0, 3), 1, 1)),
        deleted: 0,
    };
    book.mirror(
        &[Item::DamagedPorts(block), Item::Neighbors(block, vec![entry])],
        Source::List,
    );
    // `put` and `repaired` write what is known.
    let nothing = Item::Ports(block, Vec::new());
    assert_eq!(book.known_item(Key::Ports(block)), nothing);
    // Somebody removes the key.
    book.mirror(&[nothing], Source::Watch);
    assert_eq!(book.lost(9), (1, vec![address(0, 3)]), "it stays closed here");
    assert_eq!(book.restoration(9), []);
}

/// Version 0 is what a caller gives who knows of no versions.
#[test]
fn a_port_of_version_0_with_groups_is_no_placeholder() {
    let (mut book, _) = book();
    let (block, _) = Block::of(address(0, 0));
    let known = port(address(0, 3), 0, 1);
    let entry = Entry {
        statement: Statement::Put(known.clone()),
        deleted: 0,
    };
    book.mirror(&[Item::Ports(block, vec![entry])], Source::Watch);
    book.mirror(&[Item::Ports(block, Vec::new())], Source::Watch);
    assert_eq!(
        book.lost(9),
        (1, vec![address(0, 3)]),
        "it holds without a neighbour, too"
    );
    assert_eq!(book.restoration(9), [Change::Port(Statement::Put(known))]);
}

/// A port without groups allows nothing. Forgotten, it would let everything through to a neighbour
/// that comes later.
#[test]
fn a_port_of_version_0_without_groups_is_no_placeholder_if_etcd_has_it() {
    let (mut book, _) = book();
    let (block, _) = Block::of(address(0, 0));
    let known = Port {
        address: address(0, 3),
        groups: Vec::new(),
        version: 0,
    };
    let there = Item::Ports(
        block,
        vec![Entry {
            statement: Statement::Put(known.clone()),
            deleted: 0,
        }],
    );
    // Also if it was closed before because the key could not be read.
    book.mirror(&[Item::DamagedPorts(block)], Source::List);
    for _ in 0..2 {
        book.mirror(std::slice::from_ref(&there), Source::Watch);
        assert_eq!(
            (book.lost(9), book.known_item(Key::Ports(block))),
            ((0, vec![]), there.clone())
        );
    }
    book.mirror(&[Item::Ports(block, Vec::new())], Source::Watch);
    assert_eq!(book.lost(9), (1, vec![address(0, 3)]));
    assert_eq!(book.restoration(9), [Change::Port(Statement::Put(known))]);
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
        book.mirror(&items, Source::List);
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
