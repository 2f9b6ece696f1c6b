//! What was committed is there, damage is found and told, and files of other versions and programs are told apart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ringside_gateway_core::policy::{Direction, GroupId, Remote, Rule, RuleId, Service};
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::{MacAddr, Protocol};

use super::*;

mod damaged;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringside-store-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> PathBuf {
        self.0.join("store.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn address(number: u32) -> TenantAddress {
    let vni = Vni::new(number % 7).unwrap();
    TenantAddress::new(vni, std::net::Ipv4Addr::from(0x0a00_0000 + number).into())
}

fn neighbor(number: u32, version: u64) -> Neighbor {
    let [_, b, c, d] = number.to_be_bytes();
    Neighbor {
        address: address(number),
        mac: MacAddr([2, 0, 0, b, c, d]),
        host: Host {
            ip: [192, 0, 2, d].into(),
            mac: number.is_multiple_of(2).then_some(MacAddr([2, 1, 0, 0, 0, d])),
            port: (d != u8::MAX).then_some(d),
            encapsulation: None,
        },
        version,
    }
}

fn put<O: Object>(object: O) -> Change {
    O::into_change(Statement::Put(object))
}

fn delete(number: u32, version: u64) -> Change {
    Change::Neighbor(Statement::Delete(address(number), version))
}

fn group(id: u32, version: u64) -> Group {
    let rule = Rule {
        id: RuleId(9),
        direction: Direction::Ingress,
        family: None,
        service: Service::Ports(Protocol::TCP, 80..=443),
        remote: Remote::Prefix("10.0.0.0/8".parse().unwrap()),
    };
    Group {
        id: GroupId(id),
        name: "wéb".into(),
        rules: vec![rule],
        version,
    }
}

/// Everything in a store, as its load tells it, and what it tells to be wrong or missing.
fn load(path: &Path) -> (Vec<Change>, Loaded, Vec<String>) {
    let mut store = Store::open(path).unwrap();
    let mut all = Vec::new();
    let loaded = store.load(|changes, _| all.extend_from_slice(changes)).unwrap();
    (all, loaded, [store.problems(), &store.missing().unwrap()].concat())
}

fn may_lack_ports(path: &Path) -> bool {
    Store::open(path).unwrap().may_lack_ports().unwrap()
}

#[test]
fn what_was_committed_is_there_after_a_reopen() {
    let folder = Folder::new();
    let port = Port {
        address: address(3),
        groups: vec![GroupId(1), GroupId(2)],
        version: 4,
    };
    let v6 = Neighbor {
        address: TenantAddress::new(Vni::MAX, "2001:db8::1".parse().unwrap()),
        ..neighbor(9, 1)
    };
    let changes = vec![
        put(group(1, 7)),
        put(port),
        put(neighbor(1, 1)),
        put(neighbor(2, 1)),
        put(v6),
        delete(5, 3),
    ];
    let mut store = Store::open(&folder.store()).unwrap();
    let before = store.revision().unwrap();
    assert_eq!(store.commit(changes.iter(), 1000).unwrap(), before + 1);
    drop(store);
    let (all, loaded, problems) = load(&folder.store());
    assert_eq!((loaded.objects, loaded.tombstones, loaded.quarantined), (5, 1, 0));
    assert!(problems.is_empty(), "{problems:?}");
    for change in &changes {
        assert!(all.contains(change), "{change:?} is missing in {all:?}");
    }
}

#[test]
fn an_older_version_changes_nothing() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    let mut say = |change: Change| store.commit(std::iter::once(&change), 1).unwrap();
    let expect = |expected: &[Change]| {
        let reader = Reader::open(&folder.store()).unwrap();
        let found = reader.find::<Neighbor>(address(1)).unwrap();
        assert_eq!(found.map(Change::Neighbor).as_slice(), expected);
    };
    say(put(neighbor(1, 5)));
    say(put(Neighbor {
        mac: MacAddr([2; 6]),
        ..neighbor(1, 4)
    }));
    say(delete(1, 4));
    expect(&[put(neighbor(1, 5))]);
    // The same version: what is there stays, except that a delete counts more.
    say(put(Neighbor {
        mac: MacAddr([2; 6]),
        ..neighbor(1, 5)
    }));
    expect(&[put(neighbor(1, 5))]);
    say(delete(1, 5));
    expect(&[delete(1, 5)]);
    say(put(neighbor(1, 5)));
    expect(&[delete(1, 5)]);
    say(put(neighbor(1, 6)));
    expect(&[put(neighbor(1, 6))]);
}

/// Statements of several callers are written together.
#[test]
fn open_versions_go_by_the_store_and_not_by_older_statements() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    store.commit([put(neighbor(1, 7))].iter(), 1).unwrap();
    let open = crate::object::OPEN_VERSION;
    let mut changes = [put(neighbor(1, 3)), delete(1, open), put(neighbor(1, open))];
    store.fill_in(&mut changes.iter_mut().collect::<Vec<_>>()).unwrap();
    assert_eq!(changes, [put(neighbor(1, 3)), delete(1, 7), put(neighbor(1, 8))]);
}

#[test]
fn deleted_versions_are_remembered_for_their_time() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    store.commit([delete(1, 1)].iter(), 100).unwrap();
    store.commit([delete(2, 1), put(neighbor(3, 1))].iter(), 200).unwrap();
    assert_eq!(store.forget(200).unwrap(), 1);
    drop(store);
    let mut store = Store::open(&folder.store()).unwrap();
    let mut times = Vec::new();
    store
        .load(|changes, deleted| times.extend(changes.iter().cloned().zip(deleted.iter().copied())))
        .unwrap();
    times.sort_by_key(|(_, deleted)| *deleted);
    assert_eq!(times, [(put(neighbor(3, 1)), 0), (delete(2, 1), 200)]);
}

/// Who remembers the other half would not take what the file takes.
#[test]
fn all_is_forgotten_or_nothing() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    let gone = Group::into_change(Statement::Delete(group(1, 1).key(), 1));
    store.commit([delete(1, 1), gone].iter(), 100).unwrap();
    // The last of what is forgotten cannot be.
    let other = Connection::open(folder.store()).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE DELETE ON security_groups BEGIN SELECT RAISE(ABORT, 'no'); END";
    other.execute_batch(refuse).unwrap();
    store.forget(200).unwrap_err();
    drop((store, other));
    assert_eq!(load(&folder.store()).0.len(), 2);
}

#[test]
fn lists_are_in_order_and_in_parts() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    let mut changes: Vec<Change> = (0..100).map(|number| put(neighbor(number, 1))).collect();
    changes.push(delete(50, 2));
    store.commit(changes.iter(), 1).unwrap();
    let reader = store.reader().unwrap();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = reader.list::<Neighbor>(&Filter::default(), after, 7).unwrap();
        assert!(page.objects.len() == 7 || page.next.is_none());
        all.extend(page.objects.iter().map(Object::key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(all.is_sorted());
    assert_eq!(all.len(), 99);
    let count = |filter: Filter| reader.list::<Neighbor>(&filter, None, 1000).unwrap().objects.len();
    let vni = Vni::new(3);
    assert_eq!(
        count(Filter {
            vni,
            ..Filter::default()
        }),
        (0..100).filter(|number| number % 7 == 3).count()
    );
    let prefix = "10.0.0.16/28".parse().ok();
    assert_eq!(
        count(Filter {
            prefix,
            ..Filter::default()
        }),
        16
    );
    assert_eq!(
        count(Filter {
            prefix: "::/0".parse().ok(),
            ..Filter::default()
        }),
        0
    );
    let host = "192.0.2.8".parse().ok();
    assert_eq!(
        count(Filter {
            host,
            ..Filter::default()
        }),
        1
    );
}

#[test]
fn a_damaged_row_is_put_into_quarantine_and_told() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    let changes: Vec<Change> = (0..10).map(|number| put(neighbor(number, 1))).collect();
    store.commit(changes.iter().chain([&put(group(1, 1))]), 1).unwrap();
    drop(store);
    let other = Connection::open(folder.store()).unwrap();
    other
        .execute("UPDATE neighbors SET mac = x'020000000099' WHERE ip = x'0a000004'", [])
        .unwrap();
    other.execute("UPDATE security_groups SET rules = '[]'", []).unwrap();
    drop(other);
    let (all, loaded, problems) = load(&folder.store());
    assert_eq!((loaded.objects, loaded.quarantined), (9, 2));
    assert!(
        !all.iter()
            .any(|change| Neighbor::of(change).is_some_and(|it| it.key() == address(4)))
    );
    assert!(problems.concat().contains("2 damaged rows"), "{problems:?}");
    let other = Connection::open(folder.store()).unwrap();
    let kept: String = other
        .query_row(
            "SELECT origin || ': ' || row FROM quarantine WHERE origin = 'neighbors'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(kept.starts_with("neighbors: 4, 0a000004, 020000000099"), "{kept}");
    drop(other);
    // It is told until somebody says that they are there again.
    let (_, loaded, again) = load(&folder.store());
    assert_eq!((loaded.objects, loaded.quarantined), (9, 0));
    assert_eq!(again, problems);
    assert!(!may_lack_ports(&folder.store()));
    Store::open(&folder.store()).unwrap().repaired().unwrap();
    assert!(load(&folder.store()).2.is_empty());
}

/// An address without a port may do anything: one whose port is lost may do nothing. Whose it was may be what is damaged.
#[test]
fn a_damaged_port_closes_its_address_and_those_without_one_until_it_is_repaired() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    let port = |version| {
        Change::Port(Statement::Put(Port {
            address: address(4),
            groups: vec![GroupId(1)],
            version,
        }))
    };
    store.commit([port(7)].iter(), 1).unwrap();
    drop(store);
    let other = Connection::open(folder.store()).unwrap();
    other.execute("UPDATE ports SET security_groups = '2'", []).unwrap();
    drop(other);
    let closed = Change::Port(Statement::Put(Port {
        address: address(4),
        groups: Vec::new(),
        version: 0,
    }));
    // The second time it is nothing new.
    for quarantined in [1, 0] {
        let (all, loaded, problems) = load(&folder.store());
        assert_eq!((all, loaded.quarantined), (vec![closed.clone()], quarantined));
        let text = problems.concat();
        assert!(text.contains("may neither send nor get anything"), "{text}");
        assert!(may_lack_ports(&folder.store()));
    }
    let mut store = Store::open(&folder.store()).unwrap();
    store.commit([port(7)].iter(), 2).unwrap();
    assert!(store.may_lack_ports().unwrap(), "others may be missing");
    store.repaired().unwrap();
    drop(store);
    let (all, _, problems) = load(&folder.store());
    assert_eq!((all, problems), (vec![port(7)], vec![]));
    assert!(!may_lack_ports(&folder.store()));
}

/// Writes so many neighbours that the file has hundreds of pages, and closes it.
fn large(folder: &Folder) -> usize {
    let mut store = Store::open(&folder.store()).unwrap();
    let changes: Vec<Change> = (0..20_000).map(|number| put(neighbor(number, 1))).collect();
    store.commit(changes.iter(), 1).unwrap();
    changes.len()
}

#[test]
fn a_damaged_file_is_set_aside_and_what_can_be_read_is_kept() {
    let folder = Folder::new();
    let written = large(&folder);
    let mut bytes = std::fs::read(folder.store()).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 8192].fill(0xa5);
    std::fs::write(folder.store(), &bytes).unwrap();
    let (all, loaded, problems) = load(&folder.store());
    assert!(all.len() > written / 10 && all.len() < written, "{loaded:?}");
    assert_eq!(loaded.quarantined, 0);
    let text = problems.concat();
    assert!(text.contains(&format!("{} objects could be read", all.len())), "{text}");
    let aside = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<PathBuf> = aside
        .filter(|path| path.to_string_lossy().contains(".damaged-"))
        .collect();
    assert_eq!(std::fs::read(&aside[0]).unwrap(), bytes, "{aside:?}");
    // A restart mends nothing; and no port was lost.
    assert_eq!(load(&folder.store()).2, problems);
    assert!(!may_lack_ports(&folder.store()));
    Store::open(&folder.store()).unwrap().repaired().unwrap();
    assert!(load(&folder.store()).2.is_empty());
}

#[test]
fn a_file_that_is_no_database_is_set_aside() {
    let folder = Folder::new();
    std::fs::write(
        folder.store(),
        "no database, though long enough to have a header of one. ".repeat(100),
    )
    .unwrap();
    let (all, _, problems) = load(&folder.store());
    assert!(
        all.is_empty() && problems.concat().contains("0 objects could be read"),
        "{problems:?}"
    );
    assert!(may_lack_ports(&folder.store()), "who knows what was in it");
}

/// Any bytes anywhere: it opens with what is sound, or says what is wrong, and never takes a row that was not written.
#[test]
fn no_damage_makes_it_believe_what_was_not_written() {
    let folder = Folder::new();
    large(&folder);
    let sound = std::fs::read(folder.store()).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..12 {
        let mut bytes = sound.clone();
        for _ in 0..=round {
            random = random
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            let at = usize::try_from(random >> 20).unwrap() % bytes.len();
            bytes[at] ^= 1 << (random >> 61);
        }
        for suffix in ["-wal", "-shm"] {
            _ = std::fs::remove_file(with_suffix(&folder.store(), suffix));
        }
        std::fs::write(folder.store(), &bytes).unwrap();
        let Ok(mut store) = Store::open(&folder.store()) else {
            continue;
        };
        let check = |changes: &[Change]| {
            for statement in changes.iter().filter_map(Neighbor::of) {
                let IpNumber(number) = statement.key().into();
                assert_eq!(*statement, Statement::Put(neighbor(number, 1)), "round {round}");
            }
        };
        _ = store.load(|changes, _| check(changes));
    }
}

struct IpNumber(u32);

impl From<TenantAddress> for IpNumber {
    fn from(address: TenantAddress) -> Self {
        match address.ip {
            std::net::IpAddr::V4(ip) => Self(u32::from(ip) - 0x0a00_0000),
            std::net::IpAddr::V6(ip) => panic!("{ip} was never written"),
        }
    }
}

#[test]
fn a_store_of_version_1_is_brought_up_to_date() {
    let folder = Folder::new();
    let old = Connection::open(folder.store()).unwrap();
    old.execute_batch(include_str!("../../tests/fixtures/store-v1.sql"))
        .unwrap();
    drop(old);
    let (all, loaded, problems) = load(&folder.store());
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(
        (loaded.objects, loaded.tombstones, loaded.quarantined),
        (4, 1, 0),
        "{all:?}"
    );
    let mut expected = vec![put(group(1, 7)), put(neighbor(1, 1)), put(neighbor(2, 3)), delete(5, 3)];
    expected.push(put(Port {
        address: address(3),
        groups: vec![GroupId(1), GroupId(2)],
        version: 4,
    }));
    for change in expected {
        assert!(all.contains(&change), "{change:?} is missing in {all:?}");
    }
    let version: i64 = Connection::open(folder.store())
        .and_then(|connection| connection.query_row("PRAGMA user_version", [], |row| row.get(0)))
        .unwrap();
    assert_eq!(version, 2);
}

#[test]
fn stores_of_newer_programs_and_of_others_are_left_alone() {
    let folder = Folder::new();
    drop(Store::open(&folder.store()).unwrap());
    let other = Connection::open(folder.store()).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    drop(other);
    let before = std::fs::read(folder.store()).unwrap();
    let error = Store::open(&folder.store()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("has version 99, this program knows versions up to 2"),
        "{error}"
    );
    assert_eq!(std::fs::read(folder.store()).unwrap(), before);

    let foreign = folder.0.join("foreign.db");
    let other = Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(other);
    let error = Store::open(&foreign).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

#[test]
fn one_process_has_it_at_a_time() {
    let folder = Folder::new();
    let store = Store::open(&folder.store()).unwrap();
    let error = Store::open(&folder.store()).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(store);
    Store::open(&folder.store()).unwrap();
    let error = Store::open(Path::new("/nonexistent/store.db")).unwrap_err().to_string();
    assert!(
        error.starts_with("the store /nonexistent/store.db: opening its lock file"),
        "{error}"
    );
}

#[test]
fn time_goes_on_where_it_was_noted() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.store()).unwrap();
    assert_eq!(store.clock().unwrap(), None);
    store.set_clock(50).unwrap();
    assert_eq!(store.clock().unwrap(), None, "nothing grows old");
    let said = [put(neighbor(1, 1)), delete(1, 2)];
    store.commit(said.iter(), 100).unwrap();
    assert_eq!(store.clock().unwrap(), Some(100));
    store.set_clock(150).unwrap();
    drop(store);
    let mut store = Store::open(&folder.store()).unwrap();
    assert_eq!(store.clock().unwrap(), Some(150));
    store.commit([delete(2, 1)].iter(), 170).unwrap();
    assert_eq!(store.clock().unwrap(), Some(170));
    store.forget(171).unwrap();
    store.set_clock(180).unwrap();
    assert_eq!(store.clock().unwrap(), Some(150), "nothing grows old any more");
}

/// A large one takes minutes to be looked through, and somebody waits for a sign meanwhile.
#[test]
fn who_opens_a_large_store_sees_that_it_goes_on() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    let folder = Folder::new();
    let signs = Arc::new(AtomicU64::new(0));
    let open = || {
        let before = signs.load(Ordering::Relaxed);
        let counted = Arc::clone(&signs);
        let working = Working::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        let store = Store::open_with(&folder.store(), &working).unwrap();
        (store, signs.load(Ordering::Relaxed) - before)
    };
    let (mut store, of_none) = open();
    let changes: Vec<Change> = (0..20_000).map(|number| put(neighbor(number, 1))).collect();
    store.commit(changes.iter(), 1).unwrap();
    drop(store);
    let (store, of_many) = open();
    assert!(of_many > of_none + 3, "{of_none} {of_many}");
    let after = signs.load(Ordering::Relaxed);
    store.may_lack_ports().unwrap();
    assert_eq!(signs.load(Ordering::Relaxed), after, "it is open");
}
