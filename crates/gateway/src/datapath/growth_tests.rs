//! The cache grows while other things happen: in a namespace, as root.

use ringside_bpf::gateway::CachedNeighbor;
use ringside_gateway_core::Vni;
use ringside_gateway_core::table::Neighbor;
use ringside_netlab::wait_until;
use ringside_nic::Interface;
use ringside_wire::MacAddr;

use super::super::supervisor::Supervisor;
use super::super::tests::{NETWORK, address, put_neighbors, with_options};
use super::super::worker::Tell;
use super::*;
use crate::model::DataPath as _;

const LIMIT: Duration = Duration::from_secs(60);
/// Time after which an operation that has not finished counts as waiting.
const SHORT: Duration = Duration::from_millis(500);

/// What a path needs to grow, up to this size, when a test says so. Its own keeper must not.
fn growth(path: &XdpPath, options: &PathOptions, max_neighbors: u32) -> Growth {
    assert_eq!(options.cached_neighbors.start(), options.cached_neighbors.end());
    Growth {
        max_neighbors,
        ..Growth::of(path, options)
    }
}

fn entries(path: &XdpPath) -> Vec<(TenantAddress, CachedNeighbor)> {
    let mut entries = Vec::new();
    let program = Arc::clone(&path.cache().program);
    program.neighbors().for_each(|key, value| {
        let address = TenantAddress::new(Vni::new(key.vni).unwrap(), key.ip);
        entries.push((address, value));
    });
    entries
}

#[test]
fn keeper_and_changes_do_not_wait_for_growth() {
    with_options(|mut options, tables| {
        options.cached_neighbors = 4..=100;
        let path = XdpPath::start(&options, &tables).unwrap();
        let program = Arc::clone(&path.cache().program);
        let smaller = Arc::downgrade(&program);
        // As a driver that takes its time to replace the program.
        let attached = path.attached.lock().unwrap();
        put_neighbors(&path, &tables, 1..=20);
        let is_filled = || {
            let larger = path.cache().other.clone();
            larger.is_some_and(|larger| larger.neighbors().len() == 20)
        };
        assert!(wait_until(LIMIT, is_filled));
        for _ in 0..3 {
            let until = program.leased().unwrap().until;
            let is_renewed = || program.leased().unwrap().until > until;
            assert!(wait_until(LIMIT, is_renewed), "the keeper waits");
        }
        let is_free = || path.cache.try_lock().is_ok();
        assert!(wait_until(LIMIT, is_free), "changes wait");
        drop(attached);
        let has_grown = || path.counters().cache_capacity == 40;
        assert!(wait_until(LIMIT, has_grown), "{:?}", path.counters());
        drop(program);
        let is_free = || smaller.strong_count() == 0;
        assert!(wait_until(LIMIT, is_free), "its table takes memory on");
    });
}

#[test]
fn grows_to_its_limit_with_what_packets_asked_for() {
    with_options(|mut options, tables| {
        options.cached_neighbors = 4..=10;
        let path = XdpPath::start(&options, &tables).unwrap();
        put_neighbors(&path, &tables, 101..=104);
        put_neighbors(&path, &tables, 1..=200);
        let has_grown = || path.counters().cache_capacity == 10;
        assert!(wait_until(LIMIT, has_grown), "{:?}", path.counters());
        let entries = entries(&path);
        let kept = (101..=104).filter(|last| entries.iter().any(|(found, _)| *found == address(*last)));
        assert_eq!((kept.count(), entries.len()), (4, 10));
    });
}

/// Rules and neighbours change before the larger table is filled, or after that.
#[test]
fn changes_during_growth_reach_both_tables() {
    for is_filled in [false, true] {
        with_options(|mut options, tables| {
            options.cached_neighbors = 100..=100;
            let path = XdpPath::start(&options, &tables).unwrap();
            put_neighbors(&path, &tables, 1..=120);
            let growth = growth(&path, &options, 200);
            let larger = growth.begin().unwrap();
            if is_filled {
                assert!(growth.fill(&larger));
                assert_eq!(larger.neighbors().len(), 120);
            }
            // Some that both tables have, and some that only the larger one has.
            let gone: Vec<_> = [1, 101]
                .into_iter()
                .chain((2..=100).rev())
                .take(40)
                .map(address)
                .collect();
            let mut neighbors = tables.neighbors.write();
            gone.iter().for_each(|address| _ = neighbors.remove(*address, 2));
            let moved = [2, 102].map(address);
            for address in moved {
                let neighbor = tables.neighbors.reader().find(address).unwrap();
                let mac = MacAddr([4; 6]);
                neighbors.put(
                    address,
                    Neighbor {
                        mac,
                        version: 2,
                        ..neighbor
                    },
                );
            }
            drop(neighbors);
            path.changed(&gone);
            path.changed(&moved);
            put_neighbors(&path, &tables, 121..=140);
            let mut policy = tables.policy.write();
            let profile = policy.profile(&[]);
            policy.publish();
            tables.bindings.set(address(103), Some(profile));
            path.policy_changed(&[NETWORK]);
            for _ in 0..10 {
                path.cache().mark().unwrap();
                assert!(
                    path.cache().config.marking,
                    "packets could pass the rules in the larger table"
                );
            }
            if !is_filled {
                assert!(growth.fill(&larger));
            }
            assert!(growth.replace(&larger).unwrap());
            let is_marked = || !path.cache().config.marking;
            assert!(wait_until(LIMIT, is_marked));
            let entries = entries(&path);
            assert_eq!(entries.len(), tables.neighbors.len());
            for (address, value) in entries {
                assert!(value.guarded, "{address:?}");
                assert_eq!(path.cache().known(address), Some(value));
            }
        });
    }
}

#[test]
fn replaces_no_program_when_the_gateway_ends() {
    with_options(|mut options, tables| {
        options.cached_neighbors = 100..=100;
        let path = XdpPath::start(&options, &tables).unwrap();
        put_neighbors(&path, &tables, 1..=120);
        let interface = Interface::by_name(&options.interfaces[0]).unwrap();
        let program = || interface.state().unwrap().xdp.unwrap().prog_id;
        let before = program();
        let growth = growth(&path, &options, 200);
        let larger = growth.begin().unwrap();
        assert!(growth.fill(&larger));
        drop(path);
        assert!(!growth.replace(&larger).unwrap());
        assert!(!growth.fill(&larger), "it takes no more time");
        assert_eq!(program(), before);
        let maps = attach::maps(options.pins.as_deref().unwrap());
        let kept = GatewayProgram::adopt(&maps).unwrap().unwrap();
        assert_eq!((kept.sizes().neighbors, kept.neighbors().len()), (100, 100));
    });
}

/// Returns what attaches interfaces of a path beside its own supervisor.
fn supervisor(path: &XdpPath, options: &PathOptions) -> Supervisor {
    Supervisor {
        options: options.clone(),
        tables: Arc::clone(&path.tables),
        shared: Arc::clone(&path.shared),
        cache: Arc::clone(&path.cache),
        workers: Arc::clone(&path.workers),
        tell: Tell {
            unresolved: crossbeam_channel::bounded(1).0,
            cacheable: crossbeam_channel::bounded(1).0,
            fast: true,
            one_in: 0,
            flows: crossbeam_channel::bounded(1).0,
        },
        attached: Arc::clone(&path.attached),
    }
}

#[test]
fn changes_do_not_wait_for_an_interface_to_be_attached() {
    with_options(|mut options, tables| {
        options.pins = None;
        let path = XdpPath::start(&options, &tables).unwrap();
        let supervisor = supervisor(&path, &options);
        let name = &options.interfaces[0];
        let interface = Interface::by_name(name).unwrap();
        let has_program = || interface.state().unwrap().xdp.is_some();
        let mut attached = path.attached.lock().unwrap();
        attached[0] = None;
        assert!(!has_program());
        std::thread::scope(|scope| {
            // The test's network namespace is that of its thread, which new ones inherit.
            let attaching = scope.spawn(|| supervisor.attach((0, name)));
            assert!(wait_until(LIMIT, has_program));
            let is_free = || path.cache.try_lock().is_ok();
            let was_free = wait_until(Duration::from_secs(10), is_free);
            drop(attached);
            assert!(attaching.join().unwrap());
            assert!(was_free, "changes wait");
        });
    });
}

/// A driver may take seconds for either. An interface that got its program from before would
/// forward by a table that nobody changes any more.
#[test]
fn no_interface_is_attached_while_the_program_is_replaced() {
    with_options(|mut options, tables| {
        options.pins = None;
        let path = XdpPath::start(&options, &tables).unwrap();
        put_neighbors(&path, &tables, 1..=120);
        let (growth, supervisor) = (growth(&path, &options, 200), supervisor(&path, &options));
        let larger = growth.begin().unwrap();
        assert!(growth.fill(&larger));
        let name = &options.interfaces[0];
        let interface = Interface::by_name(name).unwrap();
        let program = || interface.state().unwrap().xdp.map(|xdp| xdp.prog_id);
        let first = program().unwrap();
        let has_replaced = || Arc::ptr_eq(&path.cache().program, &larger);
        std::thread::scope(|scope| {
            let attaching_guard = path.shared.attaching.lock().unwrap();
            let replacing = scope.spawn(|| growth.replace(&larger));
            assert!(!wait_until(SHORT, has_replaced), "it is attached meanwhile");
            drop(attaching_guard);
            assert!(replacing.join().unwrap().unwrap());
            let larger = program().unwrap();
            assert_ne!(larger, first);

            let attaching_guard = path.shared.attaching.lock().unwrap();
            path.attached.lock().unwrap()[0] = None;
            let attaching = scope.spawn(|| supervisor.attach((0, name)));
            let has_program = || program().is_some();
            assert!(!wait_until(SHORT, has_program), "it is replaced meanwhile");
            drop(attaching_guard);
            assert!(attaching.join().unwrap());
            assert_eq!(program(), Some(larger));
        });
    });
}
