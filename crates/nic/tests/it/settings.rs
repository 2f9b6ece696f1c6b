//! Facts and settings of veth interfaces in namespaces, checked against `ip` and `ethtool`.

use std::time::Duration;

use ringside_netlab::{End, Lab, VethConfig, testing};
use ringside_nic::clock::PhcDevice;
use ringside_nic::{Error, Interface, Rings};

fn ask(end: &End, program: &str, arguments: &[&str]) -> String {
    let output = end
        .ns
        .command(program)
        .args(arguments)
        .arg(end.interface.name())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn lab(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        queues: 4,
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
    .unwrap()
}

/// `ethtool -T` shows the same number; a veth has no hardware clock.
#[test]
fn hardware_clocks_are_those_that_ethtool_shows() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("phc");
    let shown = ask(&lab.a, "ethtool", &["-T"]);
    let shown = shown.lines().find_map(|line| {
        // "PTP Hardware Clock: none", or since ethtool 6.14 "Hardware timestamp provider index: none".
        let (name, value) = line.split_once(": ")?;
        (name.contains("Hardware") && (name.contains("Clock") || name.contains("index")))
            .then(|| value.trim().to_owned())
    });
    let found = lab.a.run(|| lab.a.interface.phc_index()).unwrap();
    assert_eq!(
        found.map_or("none".to_owned(), |index| index.to_string()),
        shown.expect("a line")
    );
    assert!(lab.a.run(|| PhcDevice::of(&lab.a.interface)).unwrap().is_none());
}

#[test]
fn unknown_interfaces_are_answered_with_those_that_exist() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("unknown");
    for name in [
        "nosuch0",
        "",
        "a-name-far-too-long",
        "veth-a\0",
        "veth-a-and-more-than-it",
    ] {
        let error = lab.a.run(|| Interface::by_name(name)).unwrap_err();
        let Error::UnknownInterface { existing, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*existing, ["lo", "veth-a"]);
        assert!(error.to_string().contains("lo, veth-a"), "{error}");
    }
    for index in [0, 9999, u32::MAX] {
        let error = lab.a.run(|| Interface::by_index(index)).unwrap_err();
        assert!(matches!(error, Error::UnknownIndex { .. }), "{error}");
    }
    let found = lab.a.run(|| Interface::by_index(lab.a.interface.index())).unwrap();
    assert_eq!(found.name(), "veth-a");
    assert_eq!(lab.a.run(|| Interface::by_name("veth-a")).unwrap(), found);
}

#[test]
fn link_settings_change_and_ip_agrees() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("link");
    let mac = [2, 0, 0, 0xaa, 0xbb, 0xcc];
    lab.a.run(|| {
        lab.a.interface.set_mtu(1400).unwrap();
        lab.a.interface.set_mac(mac).unwrap();
        lab.a.interface.set_up(false).unwrap();
    });
    let state = lab.a.state().unwrap();
    assert_eq!((state.mtu, state.mac, state.admin_up), (1400, mac, false));
    let shown = ask(&lab.a, "ip", &["link", "show", "dev"]);
    assert!(
        shown.contains("mtu 1400") && shown.contains("02:00:00:aa:bb:cc") && !shown.contains("UP"),
        "{shown}"
    );
    // Outside the limits the kernel says why.
    let error = lab.a.run(|| lab.a.interface.set_mtu(1)).unwrap_err();
    assert!(
        matches!(&error, Error::Kernel { message: Some(words), .. } if words.contains("mtu")),
        "{error}"
    );
    let error = lab.a.run(|| lab.a.interface.set_mac([1; 6])).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EADDRNOTAVAIL), "{error}");
}

#[test]
fn channels_are_read_set_and_refused() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("channels");
    lab.a.run(|| {
        let interface = &lab.a.interface;
        let mut channels = interface.channels().unwrap();
        assert_eq!((channels.rx, channels.tx, channels.combined), (4, 4, 0));
        assert_eq!((channels.max_rx, channels.max_tx, channels.max_combined), (4, 4, 0));
        channels.rx = 2;
        interface.set_channels(channels).unwrap();
        assert_eq!((interface.rx_queues().unwrap(), interface.tx_queues().unwrap()), (2, 4));
        assert_eq!(interface.state().unwrap().num_rx_queues, 4, "an upper bound");
        channels.rx = 5;
        let error = interface.set_channels(channels).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert_eq!(interface.rx_queues().unwrap(), 2);
        // Loopback has no channels to configure, but a queue.
        let lo = Interface::by_name("lo").unwrap();
        assert_eq!(lo.channels().unwrap_err().errno(), Some(libc::EOPNOTSUPP));
        assert_eq!((lo.rx_queues().unwrap(), lo.tx_queues().unwrap()), (1, 1));
    });
    assert!(
        ask(&lab.a, "ethtool", &["-l"])
            .split("Current")
            .nth(1)
            .unwrap()
            .contains("RX:\t\t2")
    );
}

#[test]
fn the_driver_and_its_missing_rings_are_told() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("driver");
    lab.a.run(|| {
        let driver = lab.a.interface.driver().unwrap();
        assert_eq!((driver.name.as_str(), driver.bus.as_str()), ("veth", ""));
        let error = lab.a.interface.rings().unwrap_err();
        assert!(
            error.errno() == Some(libc::EOPNOTSUPP) && error.to_string().contains("driver"),
            "{error}"
        );
        let error = lab.a.interface.set_rings(Rings::default()).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
    });
}

#[test]
fn every_offload_is_as_ethtool_shows_it() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("features");
    lab.a
        .run(|| lab.a.interface.set_feature("rx-udp-gro-forwarding", true))
        .unwrap();
    let shown = ask(&lab.a, "ethtool", &["-k"]);
    let features = lab.a.run(|| lab.a.interface.features()).unwrap();
    assert!(features.len() > 40, "{}", features.len());
    let mut compared = 0;
    // ethtool shows some under older names of its own; those that it shows under the kernel's have to agree.
    for line in shown.lines().skip(1) {
        let (name, value) = line.trim().split_once(": ").unwrap();
        if let Some(feature) = features.iter().find(|feature| feature.name == name) {
            assert_eq!(
                (feature.active, feature.fixed),
                (value.starts_with("on"), value.ends_with("[fixed]")),
                "{line}"
            );
            compared += 1;
        }
    }
    assert!(compared > 40, "only {compared} compared");
}

#[test]
fn offloads_that_cannot_change_say_why() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("refused");
    lab.a.run(|| {
        let interface = &lab.a.interface;
        assert!(matches!(
            interface.set_feature("no-such", true),
            Err(Error::UnknownFeature { .. })
        ));
        assert!(matches!(
            interface.feature("no-such"),
            Err(Error::UnknownFeature { .. })
        ));
        let fixed = interface
            .features()
            .unwrap()
            .into_iter()
            .find(|f| f.fixed && !f.active)
            .unwrap();
        let error = interface.set_feature(&fixed.name, true).unwrap_err();
        assert!(matches!(error, Error::FeatureUnchanged { fixed: true, .. }), "{error}");
        // Segmentation needs the checksum: it goes with it, cannot come back alone, and comes back with it.
        interface.set_tx_checksum(false).unwrap();
        let segmentation = interface.feature("tx-tcp-segmentation").unwrap();
        assert_eq!((segmentation.active, segmentation.requested), (false, true));
        let error = interface.set_feature("tx-tcp-segmentation", true).unwrap_err();
        assert!(matches!(error, Error::FeatureUnchanged { fixed: false, .. }), "{error}");
        interface.set_tx_checksum(true).unwrap();
        assert!(interface.feature("tx-tcp-segmentation").unwrap().active);
    });
}

#[test]
fn statistics_are_those_of_ethtool() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("statistics");
    let own = lab.a.run(|| lab.a.interface.statistics()).unwrap();
    let shown: Vec<_> = ask(&lab.a, "ethtool", &["-S"])
        .lines()
        .skip(1)
        .map(|line| {
            let (name, value) = line.trim().split_once(": ").unwrap();
            (name.to_owned(), value.parse::<u64>().unwrap())
        })
        .collect();
    assert_eq!(own, shown);
    assert!(own.contains(&("peer_ifindex".to_owned(), lab.b.interface.index().into())));
    // Of a veth all but the peer's index are of a queue; and it tells netdev netlink nothing of them.
    let (of_queues, told) = lab
        .a
        .run(|| (lab.a.interface.queue_counters(), lab.a.interface.queue_statistics()));
    let of_queues = of_queues.unwrap();
    assert_eq!(of_queues.len(), own.len() - 1, "{own:?}");
    assert!(
        of_queues.iter().any(|(counter, _)| counter.name == "xdp_packets"),
        "{of_queues:?}"
    );
    assert_eq!(told.unwrap(), []);
    let lo = lab.a.run(|| Interface::by_name("lo").unwrap().statistics()).unwrap();
    assert!(lo.is_empty());
}

#[test]
fn napi_settings_are_those_of_the_namespace() {
    if !testing::is_root() {
        return;
    }
    // veth has NAPI while GRO is on.
    let lab = Lab::veth(VethConfig {
        gro: true,
        ..VethConfig::tagged("napi")
    })
    .unwrap();
    let (before, after) = lab.a.run(|| {
        let interface = &lab.a.interface;
        let before = interface.napi().unwrap();
        interface.set_napi_defer_hard_irqs(2).unwrap();
        interface.set_gro_flush_timeout(Duration::from_micros(200)).unwrap();
        interface.set_napi_threaded(true).unwrap();
        (before, interface.napi().unwrap())
    });
    assert_eq!(
        (before.defer_hard_irqs, before.gro_flush_timeout, before.threaded),
        (0, Duration::ZERO, false)
    );
    assert_eq!(
        (after.defer_hard_irqs, after.gro_flush_timeout, after.threaded),
        (2, Duration::from_micros(200), true)
    );
    assert_eq!(
        lab.b.run(|| lab.b.interface.napi()).unwrap(),
        before,
        "the other end is untouched"
    );
    // From outside it is refused, and no file of a namesake is touched.
    assert!(matches!(lab.a.interface.napi(), Err(Error::OtherNamespace { .. })));
}

#[test]
fn without_privileges_changes_are_refused_with_advice() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("denied");
    // Capabilities are per thread, and this one ends with the closure.
    let errors = lab.a.run(|| {
        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )
        .unwrap();
        let interface = &lab.a.interface;
        interface.state().unwrap();
        [
            interface.set_up(false).unwrap_err(),
            interface.set_tx_checksum(false).unwrap_err(),
        ]
    });
    for error in errors {
        assert!(
            error.is_permission_denied() && error.to_string().contains("run as root"),
            "{error}"
        );
    }
}

/// What packets of the stack wait in: a veth has nothing, until somebody gives it something.
#[test]
fn queueing_disciplines_are_told() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("qdiscs");
    let qdiscs = || lab.a.run(|| lab.a.interface.qdiscs()).unwrap();
    let before = qdiscs();
    assert!(before.iter().all(|qdisc| qdisc.kind == "noqueue"), "{before:?}");
    let add = [
        "qdisc",
        "add",
        "dev",
        lab.a.interface.name(),
        "root",
        "handle",
        "8001:",
        "tbf",
        "rate",
        "1gbit",
        "burst",
        "64kb",
        "latency",
        "50ms",
    ];
    let status = lab.a.ns.command("tc").args(add).status().unwrap();
    assert!(status.success(), "tc");
    let after = qdiscs();
    let tbf = after.iter().find(|qdisc| qdisc.kind == "tbf").unwrap();
    assert_eq!((tbf.handle.as_str(), tbf.parent.as_str()), ("8001:", "root"));
    // Another namespace's interface of the same number is not taken for it.
    assert!(lab.a.interface.qdiscs().is_err());
}
