//! What the kernel is asked, in a namespace, as root.

use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::{ArcSwap, ArcSwapOption};
use ringside_gateway_core::Underlay;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::decide::Settings;
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

use super::*;
use crate::datapath::epochs::Epochs;
use crate::datapath::notices::Notices;

fn shared(tables: &Tables, interface: &str) -> Shared {
    let settings = Settings {
        underlay: Underlay::at(&[]),
        ports: Vec::new(),
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 0,
    };
    Shared {
        stop: AtomicBool::new(false),
        has_policy: AtomicBool::new(false),
        settings: ArcSwap::from_pointee(settings),
        patience: AtomicU64::new(0),
        unowned: AtomicU64::new(0),
        epochs: Epochs::new(1),
        trace: ArcSwapOption::empty(),
        ports: ArcSwap::from_pointee(Ports::by_name(&[interface.to_owned()]).unwrap()),
        notices: Notices::default(),
        foreign: Arc::clone(&tables.foreign),
    }
}

/// Tenants send to it all the while.
#[test]
fn who_does_not_answer_costs_few_looks_and_is_found_when_it_does() {
    if !is_root() {
        return;
    }
    let config = VethConfig {
        ipv6: false,
        static_neighbours: false,
        ..VethConfig::tagged("resolver")
    };
    let lab = Lab::veth(config).unwrap();
    lab.a.run(|| {
        let tables = Arc::new(Tables::new(Limits {
            connections: 1,
            ..Limits::default()
        }));
        let host = |last| {
            tables.hosts.intern(Host {
                ip: IpAddr::from([10, 77, 0, last]),
                mac: None,
                port: None,
                encapsulation: None,
            })
        };
        let [nobody, b] = [host(9), host(2)];
        let (want, wanted) = crossbeam_channel::unbounded();
        let (found, _hosts) = crossbeam_channel::unbounded();
        let resolver = Resolver {
            shared: Arc::new(shared(&tables, lab.a.interface.name())),
            tables: Arc::clone(&tables),
            resolved: Vec::new(),
            wanted,
            found,
            limits: Arc::default(),
        };
        let mut ways = resolver.begin();
        // Until it is known, or that long. How long it took, and how often the table was looked through.
        let mut send = |id, longest: Duration| {
            let (begun, mut looks) = (Instant::now(), 0);
            let mut reader = tables.hosts.reader();
            while begun.elapsed() < longest && reader.find(id).unwrap().mac.is_none() {
                want.send(id).unwrap();
                looks += u64::from(resolver.turn(&mut ways) == Turn::LookedThrough);
                std::thread::sleep(Duration::from_millis(1));
            }
            (begun.elapsed(), looks, reader.find(id).unwrap().mac)
        };
        let (took, looks, mac) = send(nobody, Duration::from_secs(2));
        assert_eq!(mac, None);
        // When it was asked for first, and once a second.
        assert!(looks <= 2 + took.as_secs(), "{looks} in {took:?}");
        let (took, looks, mac) = send(b, Duration::from_secs(20));
        assert_eq!(mac, Some(MacAddr(lab.b.mac)), "beside one that does not answer");
        assert!(looks <= 2 + took.as_secs(), "{looks} in {took:?}");
        let words = ["address", "add", "10.77.0.9/24", "dev", lab.b.interface.name()];
        assert!(lab.b.ns.command("ip").args(words).status().unwrap().success());
        let (_, _, mac) = send(nobody, Duration::from_secs(20));
        assert_eq!(mac, Some(MacAddr(lab.b.mac)), "there at last");
    });
}
