//! Labs on real veth pairs, checked against `ip` and `ethtool`.

use std::net::{IpAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::Duration;

use ringside_netlab::{End, Lab, Namespace, VethConfig, testing, wait_until};
use ringside_nic::{Interface, OperState};

/// What a program says inside an end's namespace.
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

/// Sends a datagram each way and checks content and sender.
fn exchange(a: (&End, IpAddr), b: (&End, IpAddr)) {
    let open = |(end, address): (&End, IpAddr)| {
        let socket = end.run(|| UdpSocket::bind((address, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    let (left, right) = (open(a), open(b));
    for (from, to) in [(&left, &right), (&right, &left)] {
        from.send_to(b"across", to.local_addr().unwrap()).unwrap();
        let mut data = [0; 16];
        assert_eq!(to.recv_from(&mut data).unwrap(), (6, from.local_addr().unwrap()));
        assert_eq!(&data[..6], b"across");
    }
}

#[test]
fn datagrams_cross_by_ipv4_and_ipv6() {
    if !testing::is_root() {
        return;
    }
    for static_neighbours in [true, false] {
        let lab = Lab::veth(VethConfig {
            static_neighbours,
            ..VethConfig::tagged("cross")
        })
        .unwrap();
        exchange((&lab.a, lab.a.ipv4.into()), (&lab.b, lab.b.ipv4.into()));
        exchange((&lab.a, lab.a.ipv6.into()), (&lab.b, lab.b.ipv6.into()));
        let neighbours = ask(&lab.a, "ip", &["neigh", "show", "dev"]);
        assert_eq!(
            neighbours.matches("PERMANENT").count(),
            if static_neighbours { 2 } else { 0 },
            "{neighbours}"
        );
    }
}

#[test]
fn it_is_what_the_configuration_says() {
    if !testing::is_root() {
        return;
    }
    let config = VethConfig {
        queues: 4,
        mtu: 3000,
        subnet: 9,
        ..VethConfig::tagged("config")
    };
    let lab = Lab::veth(config).unwrap();
    for (end, host) in lab.ends().into_iter().zip(1..) {
        let state = end.state().unwrap();
        assert_eq!(
            (state.kind.as_deref(), state.mtu, state.mac),
            (Some("veth"), 3000, [2, b'r', b's', 0, 9, host])
        );
        assert!(state.admin_up && state.carrier && state.operstate == OperState::Up);
        assert_eq!((state.num_rx_queues, state.num_tx_queues, state.xdp), (4, 4, None));
        assert_eq!(
            end.run(|| (end.interface.rx_queues().unwrap(), end.interface.tx_queues().unwrap())),
            (4, 4)
        );
        let addresses: Vec<_> = end
            .run(|| end.interface.addresses().unwrap())
            .iter()
            .map(|a| (a.address, a.prefix_len))
            .collect();
        assert_eq!(
            addresses,
            [(end.ipv4.into(), 24), (end.ipv6.into(), 64)],
            "and no link-local one"
        );
        // The kernel's own tools agree.
        let channels = ask(end, "ethtool", &["-l"]);
        let current = channels.split("Current hardware settings").nth(1).unwrap();
        assert!(
            current.contains("RX:\t\t4") && current.contains("TX:\t\t4"),
            "{channels}"
        );
        let shown = ask(end, "ip", &["-d", "addr", "show", "dev"]);
        for wanted in [
            "mtu 3000",
            &format!("02:72:73:00:09:0{host}"),
            &format!("10.77.9.{host}/24"),
            &format!("fd77:0:0:9::{host}/64"),
        ] {
            assert!(shown.contains(wanted), "{wanted} in {shown}");
        }
        assert!(!shown.contains("tentative"), "{shown}");
    }
}

#[test]
fn offloads_are_set_on_both_ends_and_ethtool_agrees() {
    if !testing::is_root() {
        return;
    }
    for (tx_checksum, gro) in [(true, false), (false, true)] {
        let lab = Lab::veth(VethConfig {
            tx_checksum,
            gro,
            ..VethConfig::tagged("offload")
        })
        .unwrap();
        for end in lab.ends() {
            let shown = ask(end, "ethtool", &["-k"]);
            let on = |name: &str| {
                let line = shown
                    .lines()
                    .find(|line| line.trim_start().starts_with(&format!("{name}:")))
                    .unwrap();
                line.contains(": on")
            };
            assert_eq!(on("tx-checksumming"), tx_checksum, "{shown}");
            assert_eq!(on("tx-checksum-ip-generic"), tx_checksum);
            assert_eq!(on("generic-receive-offload"), gro);
        }
    }
}

#[test]
fn without_ipv6_not_a_packet_is_sent_unasked() {
    if !testing::is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig {
        ipv6: false,
        ..VethConfig::tagged("quiet")
    })
    .unwrap();
    // Long enough for router solicitations, MLD reports and duplicate detection, had they been left on.
    sleep(Duration::from_millis(1500));
    for end in lab.ends() {
        assert_eq!(end.state().unwrap().stats.rx_packets, 0);
    }
    exchange((&lab.a, lab.a.ipv4.into()), (&lab.b, lab.b.ipv4.into()));
    for end in lab.ends() {
        let stats = end.state().unwrap().stats;
        assert_eq!((stats.rx_packets, stats.tx_packets), (1, 1), "the datagrams and no ARP");
    }
}

#[test]
fn a_link_goes_down_up_and_away() {
    if !testing::is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("updown")).unwrap();
    let within = Duration::from_secs(5);
    lab.b.set_up(false).unwrap();
    assert!(!lab.b.state().unwrap().admin_up);
    assert!(
        wait_until(within, || !lab.a.state().unwrap().carrier),
        "the other end loses its carrier"
    );
    assert!(lab.a.state().unwrap().admin_up);
    lab.b.set_up(true).unwrap();
    for end in lab.ends() {
        end.wait_ready().unwrap();
    }
    exchange((&lab.a, lab.a.ipv4.into()), (&lab.b, lab.b.ipv4.into()));
    exchange((&lab.a, lab.a.ipv6.into()), (&lab.b, lab.b.ipv6.into()));
    let neighbours = ask(&lab.b, "ip", &["neigh", "show", "dev"]);
    assert_eq!(neighbours.matches("PERMANENT").count(), 2, "{neighbours}");
    lab.delete_link().unwrap();
    let error = lab.b.state().unwrap_err();
    assert!(error.to_string().contains("No such device"), "{error}");
    assert!(lab.delete_link().is_err());
}

#[test]
fn three_hosts_share_the_one_in_the_middle() {
    if !testing::is_root() {
        return;
    }
    let hosts = ["client", "router", "server"].map(|tag| Namespace::create(tag).unwrap());
    let left = VethConfig {
        subnet: 1,
        ..VethConfig::named("up", "left")
    };
    let left = Lab::join(&hosts[0], &hosts[1], left).unwrap();
    let right = Lab::join(
        &hosts[1],
        &hosts[2],
        VethConfig {
            subnet: 2,
            ..VethConfig::named("right", "up")
        },
    )
    .unwrap();
    exchange((&left.a, left.a.ipv4.into()), (&left.b, left.b.ipv4.into()));
    exchange((&right.a, right.a.ipv6.into()), (&right.b, right.b.ipv6.into()));
    // A name that is taken is told as such, and the first pair is unharmed.
    let error = Lab::join(
        &hosts[0],
        &hosts[1],
        VethConfig {
            subnet: 3,
            ..VethConfig::named("up", "x")
        },
    )
    .unwrap_err();
    assert!(error.to_string().contains("the name is taken"), "{error}");
    exchange((&left.a, left.a.ipv4.into()), (&left.b, left.b.ipv4.into()));
    // Dropping a pair takes its link away while the host lives on.
    drop(left);
    let names = hosts[1].run(|| Interface::all().unwrap());
    assert_eq!(names.iter().map(Interface::name).collect::<Vec<_>>(), ["lo", "right"]);
}

#[test]
fn one_namespace_can_hold_both_ends() {
    if !testing::is_root() {
        return;
    }
    let ns = Namespace::create("both").unwrap();
    let lab = Lab::join(&ns, &ns, VethConfig::default()).unwrap();
    assert_eq!(lab.a.ns.name(), lab.b.ns.name());
    assert!(lab.ends().into_iter().all(|end| end.state().unwrap().carrier));
}

#[test]
fn a_panic_removes_the_lab() {
    if !testing::is_root() {
        return;
    }
    let mut paths = Vec::new();
    catch_unwind(AssertUnwindSafe(|| {
        let lab = Lab::veth(VethConfig::tagged("panic")).unwrap();
        paths.extend(lab.ends().map(|end| end.ns.path().to_owned()));
        assert!(paths.iter().all(|path| path.exists()));
        lab.a.run(|| panic!("on purpose"));
    }))
    .unwrap_err();
    assert!(paths.len() == 2 && paths.iter().all(|path| !path.exists()));
}

#[test]
fn the_machines_own_interfaces_are_left_alone() {
    if !testing::is_root() {
        return;
    }
    let settings = || {
        let mut all = Vec::new();
        for interface in Interface::all().unwrap() {
            let state = interface.state().unwrap();
            let features = interface.features().unwrap();
            all.push((
                state.name,
                state.mac,
                state.mtu,
                state.admin_up,
                state.xdp,
                interface.addresses().unwrap(),
                features,
            ));
        }
        all
    };
    let before = settings();
    drop(
        Lab::veth(VethConfig {
            queues: 2,
            mtu: 9000,
            tx_checksum: false,
            gro: true,
            ..VethConfig::tagged("alone")
        })
        .unwrap(),
    );
    assert_eq!(settings(), before);
}

#[test]
fn napi_settings_are_applied_to_both_ends() {
    if !testing::is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig {
        gro: true,
        napi_defer_hard_irqs: 3,
        gro_flush_timeout: Duration::from_micros(150),
        ..VethConfig::tagged("napi")
    })
    .unwrap();
    for end in lab.ends() {
        let napi = end.run(|| end.interface.napi().unwrap());
        assert_eq!(napi.defer_hard_irqs, 3);
        assert_eq!(napi.gro_flush_timeout, Duration::from_micros(150));
        assert!(end.run(|| end.interface.feature("rx-gro").unwrap().active));
    }
}

#[test]
fn tcp_crosses_in_packets_where_that_is_wanted() {
    if !testing::is_root() {
        return;
    }
    for tso in [true, false] {
        let lab = Lab::veth(VethConfig {
            tso,
            ..VethConfig::tagged("tso")
        })
        .unwrap();
        for end in lab.ends() {
            for name in ["tx-tcp-segmentation", "tx-tcp6-segmentation"] {
                let feature = end.run(|| end.interface.feature(name).unwrap());
                assert_eq!(feature.active, tso, "{name}");
            }
        }
    }
}

#[test]
fn a_wire_that_is_there_is_taken_and_left() {
    if !testing::is_root() {
        return;
    }
    let made = Namespace::create("wired").unwrap();
    let pair = Lab::join(&made, &made, VethConfig::named("left", "right")).unwrap();
    let macs = made.run(|| {
        let lab = Lab::wired("left", "right").unwrap();
        assert_eq!(lab.a.run(|| lab.a.interface.rx_queues()).unwrap(), 1);
        assert!(Lab::wired("left", "nowhere").is_err());
        (lab.a.mac, lab.b.mac)
    });
    assert_eq!(macs, (pair.a.mac, pair.b.mac));
    assert_eq!(pair.b.state().unwrap().operstate, OperState::Up, "not removed");
}
