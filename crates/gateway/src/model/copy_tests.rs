use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Instant;

use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use super::*;
use crate::fleet::FleetName;
use crate::fleet::backlog::Backlog;
use crate::fleet::item::Item;
use crate::fleet::key::Block;
use crate::fleet::sync::Tell;
use crate::fleet::value::Entry;
use crate::model::Tables;
use crate::model::applier::{Applier, Done};
use crate::model::book::Book;
use crate::object::{Change, Group, GroupKey, Neighbor, Port, Statement};

/// Bytes that may wait: some tens of neighbours.
const ROOM: usize = 10_000;

fn address(number: u32) -> TenantAddress {
    TenantAddress::new(Vni::new(7).unwrap(), (0x0a00_0000 + 16 * number).to_be_bytes().into())
}

fn said<O: crate::object::Object>(statement: Statement<O>) -> Entry<O> {
    let deleted = if matches!(statement, Statement::Delete(..)) {
        77
    } else {
        0
    };
    Entry { statement, deleted }
}

fn neighbor(number: u32, version: u64) -> Item {
    let neighbor = Neighbor {
        address: address(number),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        host: Host {
            ip: [192, 0, 2, 1].into(),
            mac: Some(MacAddr([2, 0, 0, 0, 1, 0])),
            port: None,
            encapsulation: None,
        },
        version,
    };
    Item::Neighbors(Block::of(address(number)).0, vec![said(Statement::Put(neighbor))])
}

fn nobody(number: u32) -> Item {
    Item::Neighbors(
        Block::of(address(number)).0,
        vec![said(Statement::Delete(address(number), 9))],
    )
}

fn port(number: u32, groups: Vec<GroupId>) -> Item {
    let port = Port {
        address: address(number),
        groups,
        version: 3,
    };
    Item::Ports(Block::of(address(number)).0, vec![said(Statement::Put(port))])
}

fn group(id: u32, name: Option<&str>) -> Item {
    let statement = match name {
        Some(name) => Statement::Put(Group {
            id: GroupId(id),
            name: name.to_owned(),
            rules: Vec::new(),
            version: 4,
        }),
        None => Statement::Delete(GroupKey(GroupId(id)), 5),
    };
    Item::Group(GroupId(id), Some(said(statement)))
}

fn mark(revision: u64) -> Mark {
    Mark {
        cluster: 1,
        fleet: FleetName::read(b"this"),
        revision: Some(revision),
        has_unread: false,
    }
}

struct Gateway {
    applier: Applier,
    status: Arc<Status>,
    path: PathBuf,
    waiting: Option<Receiver<Copy>>,
    copied: watch::Sender<u64>,
}

impl Gateway {
    fn new(name: &str, room: usize) -> Self {
        let limits = Limits {
            connections: 10,
            ..Limits::default()
        };
        let mut status = Status::new(Duration::from_secs(5));
        status.backlog = Backlog::with_room(room);
        let status = Arc::new(status);
        let (copy, waiting): (Sender<Copy>, _) = std::sync::mpsc::channel();
        let book = Book::new(Arc::new(Tables::new(limits)));
        let applier = Applier::of_fleet(book, Arc::clone(&status), copy);
        let folder = std::env::temp_dir().join(format!("ringside-copy-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        Self {
            applier,
            status,
            path: folder.join("store.db"),
            waiting: Some(waiting),
            copied: watch::channel(0).0,
        }
    }

    fn tell(&mut self, items: Vec<Item>, revision: u64) {
        let tell = Tell::Items { items, compare: false };
        self.applier.take(Done::Told { tell, mark: None });
        let (tell, mark) = (Tell::Revision(revision), Some(mark(revision)));
        self.applier.take(Done::Told { tell, mark });
    }

    /// The disk does something from now on.
    fn start(&mut self) -> JoinHandle<()> {
        let store = Store::open_mirror(&self.path).unwrap();
        let health = Arc::new(Health::new(Vec::new(), 0, 0));
        let copier = Copier::new(store, health, Arc::clone(&self.status), self.copied.clone());
        let waiting = self.waiting.take().unwrap();
        std::thread::spawn(move || copier.run(&waiting))
    }

    /// Waits, as the daemon does with its ticks, until this is so.
    fn wait(&mut self, what: &str, is_so: impl Fn(&Backlog) -> bool) {
        let began = Instant::now();
        while !is_so(&self.status.backlog) {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{what}: {:?}",
                self.status.backlog
            );
            self.applier.take(Done::Tick(Vec::new()));
            // As where nothing else is to be done.
            if self.applier.may_tell_a_part() {
                self.applier.tell_a_part();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it; what the copy holds then.
    fn end(self, copier: JoinHandle<()>) -> (Option<Mark>, BTreeMap<String, i64>) {
        drop(self.applier);
        copier.join().unwrap();
        let held = held(&self.path);
        std::fs::remove_dir_all(self.path.parent().unwrap()).unwrap();
        held
    }
}

fn held(path: &Path) -> (Option<Mark>, BTreeMap<String, i64>) {
    let mut store = Store::open_mirror(path).unwrap();
    let mark = store.mark().unwrap();
    let mut held = BTreeMap::new();
    let read = |changes: &[Change], deleted: &[i64]| {
        let all = changes.iter().map(|change| format!("{change:?}"));
        held.extend(all.zip(deleted.iter().copied()));
    };
    store.load(read).unwrap();
    (mark, held)
}

/// What a gateway's copy holds that was never given up.
fn expected(tell: impl FnOnce(&mut Gateway)) -> (Option<Mark>, BTreeMap<String, i64>) {
    let mut gateway = Gateway::new("expected", usize::MAX);
    let copier = gateway.start();
    tell(&mut gateway);
    gateway.end(copier)
}

/// What was there before, and what changes while too much waits: some is new, some other, some gone, and some was deleted.
fn before(gateway: &mut Gateway) {
    gateway.tell(vec![group(1, Some("web")), group(2, Some("gone"))], 1);
    gateway.tell((0..30).map(|number| neighbor(number, 1)).collect(), 2);
}

fn while_it_hangs(gateway: &mut Gateway) {
    gateway.tell((20..300).map(|number| neighbor(number, 2)).collect(), 3);
    gateway.tell(
        vec![group(2, None), port(3, vec![GroupId(1)]), nobody(4), nobody(1000)],
        4,
    );
    gateway.tell(vec![Item::Neighbors(Block::of(address(5)).0, Vec::new())], 5);
}

fn meanwhile(gateway: &mut Gateway) {
    gateway.tell(vec![neighbor(7, 8), nobody(8), neighbor(2000, 1)], 6);
}

#[test]
fn a_copy_that_was_given_up_is_made_anew() {
    let mut gateway = Gateway::new("anew", ROOM);
    before(&mut gateway);
    while_it_hangs(&mut gateway);
    gateway.tell(vec![neighbor(6, 2)], 5);
    assert!(gateway.status.backlog.is_given_up());
    assert!(
        gateway.status.backlog.counts().1 < 10 * ROOM,
        "{:?}",
        gateway.status.backlog
    );
    let copier = gateway.start();
    gateway.wait("it is begun anew", |backlog| backlog.has_room().is_some());
    // What changes while it is told all parts.
    meanwhile(&mut gateway);
    gateway.wait("it is up to date", |backlog| backlog.problem().is_none());
    assert_eq!(gateway.status.backlog.counts(), (1, 0));
    assert_eq!(*gateway.copied.borrow(), 6);
    let held = gateway.end(copier);
    let expected = expected(|gateway| {
        before(gateway);
        while_it_hangs(gateway);
        gateway.tell(vec![neighbor(6, 2)], 5);
        meanwhile(gateway);
    });
    assert_eq!(held, expected);
    assert_eq!(held.0, Some(mark(6)));
}

/// Security groups and ports that take more memory than may wait, while others change.
#[test]
fn more_policy_than_may_wait_is_told_in_parts() {
    let mut gateway = Gateway::new("policy", ROOM);
    gateway.tell((0..400).map(|number| port(number, vec![GroupId(1)])).collect(), 1);
    gateway.tell(vec![neighbor(1, 1)], 2);
    assert!(gateway.status.backlog.is_given_up() && gateway.status.backlog.counts().1 > 2 * ROOM);
    let copier = gateway.start();
    let (began, mut revision) = (Instant::now(), 2);
    while gateway.status.backlog.problem().is_some() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            gateway.status.backlog
        );
        let before = gateway.status.backlog.counts().1;
        gateway.applier.take(Done::Tick(Vec::new()));
        if gateway.applier.may_tell_a_part() {
            gateway.applier.tell_a_part();
        }
        // With something of that on its way.
        if gateway.status.backlog.counts().1 > before {
            revision += 1;
            gateway.tell(vec![neighbor(1, revision)], revision);
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(gateway.status.backlog.counts().0, 1, "it was given up once");
    let (has, held) = gateway.end(copier);
    assert_eq!(has, Some(mark(revision)));
    // With the neighbour, in its last version.
    assert_eq!(held.len(), 401);
    let last = format!("version: {revision}");
    assert!(held.keys().any(|said| said.contains(&last)), "{last}");
}

/// It is given up while all that waits is being written: nothing more comes to who writes.
#[test]
fn a_copy_that_is_given_up_at_its_last_write_is_made_anew() {
    let mut gateway = Gateway::new("last", ROOM);
    gateway.tell((0..300).map(|number| neighbor(number, 1)).collect(), 1);
    let store = Store::open_mirror(&gateway.path).unwrap();
    let health = Arc::new(Health::new(Vec::new(), 0, 0));
    let status = Arc::clone(&gateway.status);
    let mut copier = Copier::new(store, health, Arc::clone(&status), gateway.copied.clone());
    let waiting = gateway.waiting.take().unwrap();
    waiting.try_iter().for_each(|copy| copier.take(copy));
    gateway.tell(vec![neighbor(1, 2)], 2);
    assert!(status.backlog.is_given_up());
    copier.keep();
    assert_eq!(status.backlog.counts(), (1, 0));
    let copier = std::thread::spawn(move || copier.run(&waiting));
    gateway.wait("it is up to date", |backlog| backlog.problem().is_none());
    let (has, held) = gateway.end(copier);
    assert_eq!((has, held.len()), (Some(mark(2)), 300));
}

/// Killed in the middle of it, it begins with what it had before.
#[test]
fn what_is_not_whole_is_as_it_was() {
    let mut gateway = Gateway::new("half", ROOM);
    let path = gateway.path.clone();
    let mut store = Store::open_mirror(&path).unwrap();
    before(&mut gateway);
    let waiting = gateway.waiting.take().unwrap();
    for copy in waiting.try_iter() {
        let Copy::Made { made, mark } = copy else {
            panic!("{copy:?}")
        };
        store.mirror(&made, mark.as_ref()).unwrap();
    }
    drop(store);
    let held_before = held(&path);
    let store = Store::open_mirror(&path).unwrap();
    store.begin_anew().unwrap();
    let mut others = gateway.applier.book.others();
    store
        .go_on_anew(&gateway.applier.book.known_of(&mut others, usize::MAX))
        .unwrap();
    let listed = store
        .reader()
        .unwrap()
        .list::<Neighbor>(&crate::store::Filter::default(), None, 100);
    assert_eq!(listed.unwrap().objects.len(), 30, "who reads sees no half of it");
    drop(store);
    assert_eq!(held(&path), held_before);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}
