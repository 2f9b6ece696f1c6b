//! Outcomes, tables, watchers and what a restart finds, against what a few lines say that there has to be.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use ringside_gateway_core::policy::{Direction, GroupId, ProfileId, Remote, Rule, RuleId, Service};
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni, table};
use ringside_wire::MacAddr;

use ringside_gateway_core::conntrack::Timeouts;

use super::*;
use crate::object::{Group, Neighbor, Object, Port, Statement};

#[path = "closed_tests.rs"]
mod closed;

/// A file that goes with the test.
#[derive(Debug)]
struct File(PathBuf);

impl File {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ringside-model-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn open(&self) -> Store {
        Store::open(&self.0.join("store.db")).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Keeps what a cache of the data path would hold.
#[derive(Debug, Default)]
pub(super) struct Cache {
    tables: std::sync::OnceLock<Arc<Tables>>,
    neighbors: Mutex<BTreeMap<TenantAddress, table::Neighbor>>,
    /// Number of addresses in all calls of `changed`.
    pub(super) changed: AtomicUsize,
    /// The networks of each call of `policy_changed`.
    pub(super) policy_changes: Mutex<Vec<Vec<Vni>>>,
    /// Number of neighbours in the tables at each of these calls.
    pub(super) neighbors_then: Mutex<Vec<usize>>,
}

impl Cache {
    pub(super) fn of(tables: Arc<Tables>) -> Self {
        Self {
            tables: tables.into(),
            ..Self::default()
        }
    }
}

impl DataPath for Cache {
    fn changed(&self, addresses: &[TenantAddress]) {
        self.changed.fetch_add(addresses.len(), Ordering::Relaxed);
        let mut known = self.neighbors.lock().unwrap();
        let mut reader = self.tables.get().unwrap().neighbors.reader();
        for address in addresses {
            match reader.find(*address) {
                Some(neighbor) => _ = known.insert(*address, neighbor),
                None => _ = known.remove(address),
            }
        }
    }

    fn policy_changed(&self, networks: &[Vni]) {
        self.policy_changes.lock().unwrap().push(networks.to_vec());
        let tables = self.tables.get().unwrap();
        assert!(tables.has_policy() || !networks.iter().any(|vni| tables.is_policed(*vni)));
        self.neighbors_then.lock().unwrap().push(tables.neighbors.len());
    }

    fn set(&self, _: &PathSettings, _: &Timeouts) -> anyhow::Result<()> {
        Ok(())
    }

    fn drain(&self, _: bool) {}

    fn set_stale(&self, _: bool, _: Option<Duration>) {}

    fn is_alive(&self) -> bool {
        true
    }

    fn has_link(&self) -> bool {
        true
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn trace(&self, _: TraceFilter, _: mpsc::Sender<Traced>) -> Result<(), CannotTrace> {
        Err(CannotTrace::NoPath)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn limits() -> Limits {
    Limits {
        connections: 100,
        ..Limits::default()
    }
}

fn start(store: Store, cache: &Arc<Cache>) -> (Model, std::thread::JoinHandle<()>) {
    let cache = Arc::clone(cache);
    let path = |tables: &Arc<Tables>| {
        cache.tables.set(Arc::clone(tables)).unwrap();
        Ok::<_, StoreError>(cache as Arc<dyn DataPath>)
    };
    Model::start(store, limits(), ModelOptions::default(), path).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn address(number: u8) -> TenantAddress {
    TenantAddress::new(Vni::new(1).unwrap(), Ipv4Addr::new(10, 0, 0, number).into())
}

fn neighbor(number: u8, version: u64, what: u8) -> Neighbor {
    Neighbor {
        address: address(number),
        mac: MacAddr([2, 0, 0, 0, 0, what]),
        host: Host::at(Ipv4Addr::new(192, 0, 2, 1 + what).into()),
        version,
    }
}

fn port(number: u8, version: u64, what: u8) -> Port {
    Port {
        address: address(number),
        groups: (0..=what % 3).map(|group| GroupId(group.into())).collect(),
        version,
    }
}

fn group(number: u8, version: u64, what: u8) -> Group {
    let rule = Rule {
        id: RuleId(what.into()),
        direction: Direction::Ingress,
        family: None,
        service: Service::Any,
        remote: Remote::Any,
    };
    Group {
        id: GroupId(number.into()),
        name: format!("group {what}"),
        rules: vec![rule],
        version,
    }
}

/// What a few lines say that there has to be: key → version and what is there, if it is not deleted.
#[derive(Debug, Default)]
struct Reference(BTreeMap<(u8, u8), (u64, Option<u8>)>);

impl Reference {
    fn say(&mut self, key: (u8, u8), version: u64, what: Option<u8>) -> Outcome {
        let before = self.0.get(&key).copied();
        let outcome = match (before, what) {
            (Some((known, _)), _) if known > version => return Outcome::Older,
            (None | Some((_, None)), Some(_)) if before.is_some_and(|(gone, _)| gone == version) => {
                return Outcome::Older;
            }
            (Some((known, Some(there))), Some(what)) if known == version => {
                return if there == what {
                    Outcome::Unchanged
                } else {
                    Outcome::Conflict
                };
            }
            (Some((known, None)), None) if known == version => return Outcome::Unchanged,
            (None | Some((_, None)), Some(_)) => Outcome::Created,
            (Some((_, Some(_))), Some(_)) => Outcome::Replaced,
            (Some((_, Some(_))), None) => Outcome::Deleted,
            (None | Some((_, None)), None) => Outcome::NotFound,
        };
        self.0.insert(key, (version, what));
        outcome
    }
}

/// Kind, number, version, what (None: to be deleted).
type Said = (u8, u8, u64, Option<u8>);

fn change((kind, number, version, what): Said) -> Change {
    match (kind, what) {
        (0, Some(what)) => Neighbor::into_change(Statement::Put(neighbor(number, version, what))),
        (0, None) => Neighbor::into_change(Statement::Delete(address(number), version)),
        (1, Some(what)) => Port::into_change(Statement::Put(port(number, version, what))),
        (1, None) => Port::into_change(Statement::Delete(address(number), version)),
        (_, Some(what)) => Group::into_change(Statement::Put(group(number, version, what))),
        (_, None) => Group::into_change(Statement::Delete(group(number, 0, 0).key(), version)),
    }
}

fn any_said() -> impl Strategy<Value = Said> {
    (0..3_u8, 1..4_u8, 1..6_u64, proptest::option::weighted(0.7, 0..3_u8))
}

/// The tables are what the reference says, bound groups included.
fn check_tables(tables: &Tables, cache: Option<&Cache>, reference: &Reference) {
    let there = |kind: u8| {
        let of_kind = reference.0.iter().filter(move |((of, _), _)| *of == kind);
        of_kind.filter_map(|((_, number), (version, what))| Some((*number, *version, (*what)?)))
    };
    let mut known = BTreeMap::new();
    tables
        .neighbors
        .for_each(|address, neighbor| _ = known.insert(address, neighbor));
    assert_eq!(known.len(), there(0).count(), "{reference:?}");
    if let Some(cache) = cache {
        assert_eq!(*cache.neighbors.lock().unwrap(), known);
    }
    let policy = tables.policy.write();
    for (number, version, what) in there(0) {
        let found = known[&address(number)];
        assert_eq!((found.version, found.mac), (version, neighbor(number, 0, what).mac));
        let groups = ProfileId::new(found.policy).and_then(|profile| policy.groups_of(profile));
        let bound = there(1).find(|(port, ..)| *port == number);
        let bound = bound.map(|(number, version, what)| port(number, version, what).groups);
        assert_eq!(groups, bound.as_deref());
    }
    for (number, _, what) in there(2) {
        assert_eq!(
            policy.group(GroupId(number.into())),
            Some(&*group(number, 0, what).rules)
        );
    }
    assert_eq!((tables.ports(), tables.groups()), (there(1).count(), there(2).count()));
    let gone = reference.0.values().filter(|(_, what)| what.is_none()).count();
    assert_eq!(tables.tombstones(), gone);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// In any order, in batches of any size: outcomes, tables, cache, watcher and a restart agree.
    #[test]
    fn all_agree(batches in proptest::collection::vec(proptest::collection::vec(any_said(), 1..12), 1..8)) {
        let file = File::new();
        let cache = Arc::new(Cache::default());
        let (model, thread) = start(file.open(), &cache);
        let mut watcher = model.watch();
        let mut reference = Reference::default();
        runtime().block_on(async {
            for said in &batches {
                let expected: Vec<Outcome> = said.iter().map(|(kind, number, version, what)| reference.say((*kind, *number), *version, *what)).collect();
                let changes: Vec<Change> = said.iter().copied().map(change).collect();
                let outcomes = model.write(changes.clone()).await.unwrap();
                assert_eq!(outcomes, expected, "{said:?}");
                let made: Vec<Change> = changes.into_iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Created | Outcome::Replaced | Outcome::Deleted)).map(|(change, _)| change).collect();
                if !made.is_empty() {
                    watcher.next(|told| assert_eq!(told, made)).await.unwrap().unwrap();
                }
            }
        });
        check_tables(model.tables(), Some(&cache), &reference);
        drop(model);
        thread.join().unwrap();
        let (model, thread) = start(file.open(), &Arc::default());
        check_tables(model.tables(), None, &reference);
        drop(model);
        thread.join().unwrap();
    }
}

#[test]
fn a_slow_watcher_is_told_so_and_does_not_hold_up_others() {
    let file = File::new();
    let (model, thread) = start(file.open(), &Arc::default());
    let mut slow = model.watch();
    runtime().block_on(async {
        for version in 1..=watch::BATCHES as u64 + 10 {
            model.write(vec![change((0, 1, version, Some(1)))]).await.unwrap();
        }
        assert_eq!(slow.next(|_| ()).await, Err(TooSlow));
    });
    drop(model);
    thread.join().unwrap();
}

#[test]
fn many_callers_share_transactions() {
    const CALLERS: u8 = 32;
    let file = File::new();
    let cache = Arc::new(Cache::default());
    let (model, thread) = start(file.open(), &cache);
    let before = model.health().revision();
    let runtime = runtime();
    let submit = |number| {
        runtime
            .block_on(model.submit(vec![change((0, number, 1, Some(1)))]))
            .unwrap()
    };
    // The data path waits with the first one, and so some transactions later the writer, while the others come.
    let held = cache.neighbors.lock().unwrap();
    let waiting: Vec<Submitted> = (0..CALLERS).map(submit).collect();
    drop(held);
    for submitted in waiting {
        assert_eq!(runtime.block_on(submitted.outcomes()).unwrap(), [Outcome::Created]);
    }
    let transactions = model.health().revision() - before;
    // One is applied, some are ahead, one waits for its turn, and one has all the rest.
    assert!(transactions <= AHEAD as u64 + 3, "{transactions} transactions");
    assert_eq!(model.tables().neighbors.len(), usize::from(CALLERS));
    drop(model);
    thread.join().unwrap();
}

#[test]
fn the_data_path_is_told_when_others_are_bound() {
    const NOWHERE: [u32; 0] = [];
    let file = File::new();
    let cache = Arc::new(Cache::default());
    let (model, thread) = start(file.open(), &cache);
    let told = |change: Change| {
        runtime().block_on(model.write(vec![change])).unwrap();
        let told = std::mem::take(&mut *cache.policy_changes.lock().unwrap());
        told.concat().iter().map(|vni| vni.number()).collect::<Vec<_>>()
    };
    assert_eq!(told(Change::Neighbor(Statement::Put(neighbor(1, 1, 1)))), NOWHERE);
    // The first set of groups, another new one, one that is known already, none; what is so already, and the same in another version.
    let bound: [(u64, u8, &[u32]); 5] = [(1, 0, &[1]), (2, 1, &[1]), (3, 0, &[1]), (3, 0, &[]), (4, 0, &[])];
    for (version, what, expected) in bound {
        let change = Change::Port(Statement::Put(port(1, version, what)));
        assert_eq!(told(change), expected, "version {version}");
    }
    // Rules of groups that are bound nowhere, in this network, in another one, in both.
    let elsewhere = |number, version, what| {
        let address = TenantAddress::new(Vni::new(2).unwrap(), address(number).ip);
        let port = port(number, version, what);
        Change::Port(Statement::Put(Port { address, ..port }))
    };
    assert_eq!(told(elsewhere(1, 1, 1)), [2]);
    let rules = |number, version, what| Group::into_change(Statement::Put(group(number, version, what)));
    assert_eq!(told(rules(3, 1, 1)), NOWHERE);
    assert_eq!(told(rules(1, 1, 1)), [2]);
    assert_eq!(told(rules(0, 1, 1)), [1, 2]);
    assert_eq!(told(rules(0, 2, 1)), NOWHERE, "the same in another version");
    assert_eq!(told(Change::Port(Statement::Delete(address(1), 5))), [1]);
    assert_eq!(told(rules(0, 3, 2)), [2]);
    drop(model);
    thread.join().unwrap();
}
