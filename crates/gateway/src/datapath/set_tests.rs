//! Other settings while packets are forwarded: in a namespace, as root.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ringside_bpf::gateway::{CachedConnection, ConnectionKey};
use ringside_gateway_core::conntrack::{Limits, State};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

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
    let key = ConnectionKey {
        vni: 1,
        source: IpAddr::from([10, 0, 0, 1]),
        destination: IpAddr::from([10, 0, 0, 2]),
        ports: [1, 2],
        protocol: 17,
    };
    let value = CachedConnection {
        generation: 0,
        seen: 0,
        idle_ms: 0,
        reply: false,
        name: 1,
    };
    (key, value)
}

#[test]
fn settings_that_cannot_be_had_change_nothing() {
    if !is_root() {
        return;
    }
    // Addresses of IPv6 come when they like.
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged("set")
    };
    let lab = Lab::veth(config).unwrap();
    let pins = Pins(Path::new("/sys/fs/bpf").join(format!("ringside-set-{}", std::process::id())));
    lab.a.run(|| {
        let tables = Arc::new(Tables::new(Limits {
            connections: 10,
            ..Limits::default()
        }));
        let options = PathOptions {
            interfaces: vec![lab.a.interface.name().to_owned()],
            pins: Some(pins.0.clone()),
            cached_neighbors: 100,
            cached_connections: 100,
            ..PathOptions::default()
        };
        let path = XdpPath::start(&options, &tables).unwrap();
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
        ringside_bpf::testing::freeze(&attach::maps(&pins.0), "connections").unwrap();
        path.set(&other, &shorter).unwrap_err();
        assert_eq!(now(), before);
        // It is not about time-outs then.
        path.set(&other, &timeouts).unwrap();
        let after = now();
        assert_ne!((&after.0, &after.1, after.2), (&before.0, &before.1, before.2));
        path.set(&settings, &timeouts).unwrap();
        assert_eq!(now(), before);
        drop(path);
    });
}
