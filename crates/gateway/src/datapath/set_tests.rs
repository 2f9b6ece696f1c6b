//! Other settings while packets are forwarded: in a namespace, as root.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use ringside_bpf::gateway::{CachedConnection, ConnectionKey};
use ringside_gateway_core::conntrack::{Limits, State};
use ringside_gateway_core::table::{Host, Neighbor};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig, wait_until};
use ringside_nic::Interface;
use ringside_wire::MacAddr;

use super::*;

/// Taken down at the end.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        _ = unpin(&self.0);
    }
}

/// One that nobody knows, which is to be removed.
fn over() -> (ConnectionKey, CachedConnection) {
    let end = |last| IpAddr::from([10, 0, 0, last]);
    let (key, from_higher) = ConnectionKey::new(1, 17, (end(1), 1), (end(2), 2));
    let value = CachedConnection {
        generation: 0,
        seen: 0,
        idle_ms: 0,
        from_higher,
        one_way: false,
        numbers: None,
        name: 1,
    };
    (key, value)
}

fn with_path(test: impl FnOnce(&XdpPath, &PathOptions, &Tables) + Send) {
    with_options(|options, tables| {
        let path = XdpPath::start(&options, &tables).unwrap();
        test(&path, &options, &tables);
    });
}

pub(super) fn with_options(test: impl FnOnce(PathOptions, Arc<Tables>) + Send) {
    if !is_root() {
        return;
    }
    // Addresses of IPv6 come when they like.
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged("set")
    };
    let lab = Lab::veth(config).unwrap();
    static BEDS: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "ringside-set-{}-{}",
        std::process::id(),
        BEDS.fetch_add(1, Ordering::Relaxed)
    );
    let pins = Pins(Path::new("/sys/fs/bpf").join(name));
    lab.a.run(|| {
        let tables = Arc::new(Tables::new(Limits {
            connections: 10,
            ..Limits::default()
        }));
        let options = PathOptions {
            interfaces: vec![lab.a.interface.name().to_owned()],
            pins: Some(pins.0.clone()),
            cached_neighbors: 100..=100,
            cached_connections: 100,
            ..PathOptions::default()
        };
        test(options, tables);
    });
}

/// The network of the tests' neighbours.
pub(super) const NETWORK: Vni = Vni::new(7).unwrap();

/// Returns the address of a neighbour by its last byte.
pub(super) fn address(last: u8) -> TenantAddress {
    TenantAddress::new(NETWORK, [10, 0, 0, last].into())
}

/// Puts neighbours, and makes them known.
pub(super) fn put_neighbors(path: &XdpPath, tables: &Tables, numbers: RangeInclusive<u8>) {
    let host = tables.hosts.intern(Host {
        mac: Some(MacAddr([2; 6])),
        port: Some(0),
        ..Host::at([192, 0, 2, 9].into())
    });
    let addresses: Vec<_> = numbers.map(address).collect();
    // All at one time: the keeper counts them meanwhile.
    let mut neighbors = tables.neighbors.write();
    for address in &addresses {
        let neighbor = Neighbor {
            mac: MacAddr([2; 6]),
            host,
            policy: 0,
            version: 1,
        };
        neighbors.put(*address, neighbor);
    }
    drop(neighbors);
    path.changed(&addresses);
}

/// The packets' program is another one afterwards, and the next process takes over what it has.
#[test]
fn cache_of_neighbours_grows_with_them() {
    with_options(|mut options, tables| {
        options.cached_neighbors = 4..=100;
        let path = XdpPath::start(&options, &tables).unwrap();
        let interface = Interface::by_name(&options.interfaces[0]).unwrap();
        let program = || interface.state().unwrap().xdp.unwrap().prog_id;
        let has = |path: &XdpPath, entries, capacity| {
            let counters = path.counters();
            (counters.cache_entries, counters.cache_capacity) == (entries, capacity)
        };
        let wait_until_it_has = |entries, capacity| {
            let it_has = || has(&path, entries, capacity);
            assert!(wait_until(Duration::from_secs(60), it_has), "{:?}", path.counters());
        };
        put_neighbors(&path, &tables, 1..=4);
        wait_until_it_has(4, 4);
        let first = program();
        put_neighbors(&path, &tables, 1..=20);
        wait_until_it_has(20, 40);
        let second = program();
        assert_ne!(second, first);
        // As many as there may be.
        put_neighbors(&path, &tables, 1..=150);
        wait_until_it_has(100, 100);
        assert_ne!(program(), second);
        drop(path);
        let maps = attach::maps(options.pins.as_deref().unwrap());
        let kept = GatewayProgram::adopt(&maps).unwrap().unwrap();
        assert_eq!((kept.sizes().neighbors, kept.neighbors().len()), (100, 100));
        drop(kept);
        let path = XdpPath::start(&options, &tables).unwrap();
        assert!(has(&path, 100, 100), "{:?}", path.counters());
    });
}

/// What starts after this process has that go on for no longer than was said last, and the map tells it.
#[test]
fn how_long_it_may_go_on_is_what_was_said_last() {
    with_path(|path, options, _| {
        let longest = || path.shared.longest.load(Ordering::Relaxed);
        let most = nanoseconds(options.settings.unowned) * STARTS;
        let begun = now();
        path.set_stale(false, Some(Duration::MAX));
        assert!((begun + most..=now() + most).contains(&longest()));
        let (begun, more) = (now(), 5_000_000_000);
        path.set_stale(false, Some(Duration::from_nanos(more)));
        assert!((begun + more..=now() + more).contains(&longest()));
        let said = longest();
        path.set_stale(true, None);
        assert_eq!(longest(), said);
        let (program, begun) = (Arc::clone(&path.cache().program), Instant::now());
        while program.leased().unwrap().longest != said {
            assert!(begun.elapsed() < Duration::from_secs(30), "the map does not tell it");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(program.leased().unwrap().until > said, "who runs has the usual time");
    });
}

#[test]
fn settings_that_cannot_be_had_change_nothing() {
    with_path(|path, options, tables| {
        let (settings, timeouts) = (options.settings.clone(), tables.conntrack.timeouts());
        let other = PathSettings {
            unowned: Duration::from_secs(7),
            known_options: vec![(1, 2)],
            source_check: true,
            derive_source_port: true,
            errors_per_second: 1,
            patience: Duration::from_millis(3),
        };
        let mut shorter = timeouts.clone();
        shorter.set(State::Established, Duration::from_secs(60));
        let now = || {
            let shared = &path.shared;
            let settings = Settings::clone(&shared.settings.load());
            let times = [&shared.patience, &shared.unowned].map(|time| time.load(Ordering::Relaxed));
            (
                path.cache().config.clone(),
                settings,
                times,
                tables.conntrack.timeouts(),
            )
        };
        let before = now();
        let program = Arc::clone(&path.cache().program);
        program.connections().put(&[over()]).unwrap();
        ringside_bpf::testing::freeze(&attach::maps(options.pins.as_deref().unwrap()), "connections").unwrap();
        path.set(&other, &shorter).unwrap_err();
        assert_eq!(now(), before);
        // It is not about time-outs then.
        path.set(&other, &timeouts).unwrap();
        let after = now();
        assert_ne!((&after.0, &after.1, after.2), (&before.0, &before.1, before.2));
        path.set(&settings, &timeouts).unwrap();
        assert_eq!(now(), before);
    });
}

#[test]
fn address_of_the_fleet_that_no_interface_has_is_a_problem() {
    with_options(|mut options, tables| {
        let ip = |words: &str| {
            let status = std::process::Command::new("ip").args(words.split(' ')).status();
            assert!(status.unwrap().success(), "ip {words}");
        };
        let interface = options.interfaces[0].clone();
        let has = Interface::by_name(&interface).unwrap().addresses().unwrap();
        options.fleet_addresses = vec![has[0].address, "192.0.2.77".parse().unwrap()];
        let path = XdpPath::start(&options, &tables).unwrap();
        let says = |expected: &str| {
            let problems = || path.problems().join("; ");
            let is_said = || match expected {
                "" => !problems().contains("fleet.addresses"),
                _ => problems().contains(expected),
            };
            assert!(
                wait_until(Duration::from_secs(60), is_said),
                "{expected}: {}",
                problems()
            );
        };
        says("has 192.0.2.77 of fleet.addresses");
        ip(&format!("address add 192.0.2.77/24 dev {interface}"));
        says("");
        // It goes while the gateway runs.
        ip(&format!("address del 192.0.2.77/24 dev {interface}"));
        says("has 192.0.2.77 of fleet.addresses");
    });
}
