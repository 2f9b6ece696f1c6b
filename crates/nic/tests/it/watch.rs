//! Every change of a link is told, on real veth pairs: within a second, carriers later.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ringside_netlab::{Lab, Namespace, VethConfig, testing, wait_until};
use ringside_nic::{Error, Interface, LinkEvent, LinkStatus, LinkWatch, NeighbourEvent, NeighbourWatch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The kernel may gather carriers for a second, those of all links of the machine together. A busy
/// machine takes longer.
const IN_TIME: Duration = Duration::from_secs(15);

fn lab(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        queues: 4,
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
    .unwrap()
}

fn watch(lab: &Lab) -> LinkWatch {
    lab.a.run(|| LinkWatch::open(&lab.a.interface)).unwrap()
}

/// The next event, waited for on the descriptor as a program would.
fn within(watch: &mut LinkWatch, time: Duration) -> Option<LinkEvent> {
    let end = Instant::now() + time;
    loop {
        if let Some(event) = watch.next().unwrap() {
            return Some(event);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let timeout = Timespec::try_from(left).unwrap();
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

#[track_caller]
fn expect(watch: &mut LinkWatch, events: &[LinkEvent]) {
    for event in events {
        assert_eq!(within(watch, IN_TIME).as_ref(), Some(event));
    }
}

/// The event, after no other than those on the way there, which the kernel may pass through too fast to be told.
#[track_caller]
fn expect_by_way_of(watch: &mut LinkWatch, way: &[LinkEvent], event: &LinkEvent) {
    loop {
        let told = within(watch, IN_TIME);
        if told.as_ref() == Some(event) {
            return;
        }
        assert!(
            told.as_ref().is_some_and(|told| way.contains(told)),
            "{told:?} before {event:?}"
        );
    }
}

#[track_caller]
fn quiet(watch: &mut LinkWatch) {
    assert_eq!(within(watch, Duration::from_millis(100)), None);
}

fn ip(namespace: &Namespace, arguments: &str) {
    let output = namespace.command("ip").args(arguments.split(' ')).output().unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn down_up_and_the_carrier_are_told_once_each() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchup");
    let mut watch = watch(&lab);
    assert_eq!(watch.status(), Some(LinkStatus::Up));
    quiet(&mut watch);
    for _ in 0..3 {
        lab.a.set_up(false).unwrap();
        expect(&mut watch, &[LinkEvent::Down]);
        lab.a.set_up(true).unwrap();
        // The carrier comes before the queues are active.
        expect_by_way_of(&mut watch, &[LinkEvent::NoCarrier], &LinkEvent::Up);
        lab.b.set_up(false).unwrap();
        assert_eq!(within(&mut watch, IN_TIME), Some(LinkEvent::NoCarrier));
        assert_eq!(watch.status(), Some(LinkStatus::NoCarrier));
        lab.b.set_up(true).unwrap();
        expect_by_way_of(&mut watch, &[], &LinkEvent::Up);
    }
    // What happens to another link is no event of this one.
    lab.a.run(|| Interface::by_name("lo").unwrap().set_up(false).unwrap());
    quiet(&mut watch);
    lab.a.run(|| lab.a.interface.set_mtu(1400).unwrap());
    expect(&mut watch, &[LinkEvent::MtuChanged { mtu: 1400 }]);
    quiet(&mut watch);
}

#[test]
fn a_removal_and_a_new_interface_of_the_name_are_told() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchdel");
    let old = lab.a.interface.index();
    let mut watch = watch(&lab);
    lab.delete_link().unwrap();
    expect(&mut watch, &[LinkEvent::Down, LinkEvent::Removed]);
    assert_eq!(watch.interface(), None);
    quiet(&mut watch);
    ip(&lab.a.ns, "link add veth-a type veth peer name other");
    let Some(LinkEvent::Appeared { index }) = within(&mut watch, IN_TIME) else {
        panic!("it is there again")
    };
    assert_ne!(index, old);
    // The handle is good for use in the namespace.
    let handle = watch.interface().unwrap().clone();
    assert_eq!((handle.index(), handle.name()), (index, "veth-a"));
    assert_eq!(lab.a.run(|| Interface::by_name("veth-a")).unwrap(), handle);
    ip(&lab.a.ns, "link set veth-a up");
    expect(&mut watch, &[LinkEvent::NoCarrier]);
    ip(&lab.a.ns, "link set other up");
    expect_by_way_of(&mut watch, &[], &LinkEvent::Up);
    assert_eq!(watch.status(), Some(LinkStatus::Up));
    ip(&lab.a.ns, "link del other");
    let way = [LinkEvent::NoCarrier, LinkEvent::Down];
    expect_by_way_of(&mut watch, &way, &LinkEvent::Removed);
}

#[test]
fn a_move_to_another_namespace_is_no_removal() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchmove");
    let other = Namespace::create("watchmove-other").unwrap();
    let mut watch = watch(&lab);
    let send = |from: &Namespace, to: &Namespace| {
        ip(from, &format!("link set veth-a netns {}", to.name()));
    };
    send(&lab.a.ns, &other);
    expect(&mut watch, &[LinkEvent::Down]);
    let Some(LinkEvent::Moved { namespace, index }) = within(&mut watch, IN_TIME) else {
        panic!("moved")
    };
    let there = other.run(|| Interface::by_name("veth-a")).unwrap();
    assert_eq!(index, Some(there.index()));
    // The id is the one that `ip netns list-id` shows here.
    let listed = lab.a.ns.command("ip").args(["netns", "list-id"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = format!("nsid {} (iproute2 netns name: {})", namespace.unwrap(), other.name());
    assert!(listed.contains(&line), "{listed}");

    send(&other, &lab.a.ns);
    let Some(LinkEvent::Appeared { index }) = within(&mut watch, IN_TIME) else {
        panic!("back again")
    };
    assert_eq!(lab.a.run(|| Interface::by_name("veth-a")).unwrap().index(), index);
}

#[test]
fn queue_numbers_are_told_however_they_are_changed() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchqueues");
    let mut watch = watch(&lab);
    let ethtool = |arguments: &str| {
        let output = lab.a.ns.command("ethtool").args(arguments.split(' ')).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    ethtool("-L veth-a rx 2 tx 3");
    expect(&mut watch, &[LinkEvent::QueuesChanged { rx: 2, tx: 3 }]);
    // The older system call.
    lab.a.run(|| {
        let mut channels = lab.a.interface.channels().unwrap();
        (channels.rx, channels.tx) = (4, 1);
        lab.a.interface.set_channels(channels).unwrap();
    });
    expect(&mut watch, &[LinkEvent::QueuesChanged { rx: 4, tx: 1 }]);
    // The other end's are not ours.
    lab.b.run(|| {
        let mut channels = lab.b.interface.channels().unwrap();
        channels.rx = 1;
        lab.b.interface.set_channels(channels).unwrap();
    });
    ethtool("-K veth-a gro on");
    quiet(&mut watch);
}

#[test]
fn a_renamed_interface_is_followed() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchname");
    let mut watch = lab.a.run(|| LinkWatch::by_name("veth-a")).unwrap();
    // Linux before 6.2 renames only what is down.
    ip(&lab.a.ns, "link set veth-a down");
    ip(&lab.a.ns, "link set veth-a name uplink");
    let name = "uplink".to_owned();
    expect(&mut watch, &[LinkEvent::Down, LinkEvent::Renamed { name }]);
    assert_eq!(watch.interface().unwrap().index(), lab.a.interface.index());
    ip(&lab.a.ns, "link add veth-a type bridge");
    ip(&lab.a.ns, "link set veth-a up");
    quiet(&mut watch);
    // A port that leaves a bridge is no link that is removed.
    ip(&lab.a.ns, "link set uplink master veth-a");
    ip(&lab.a.ns, "link set uplink nomaster");
    quiet(&mut watch);
    ip(&lab.a.ns, "link set uplink up");
    expect_by_way_of(&mut watch, &[LinkEvent::NoCarrier], &LinkEvent::Up);
}

#[test]
fn a_name_can_be_waited_for_from_the_start() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchwait");
    let mut watch = lab.a.run(|| LinkWatch::by_name("later0")).unwrap();
    assert_eq!((watch.interface(), watch.status()), (None, None));
    quiet(&mut watch);
    // Under another name first, as udev does it.
    ip(&lab.a.ns, "link add tmp0 type bridge");
    quiet(&mut watch);
    ip(&lab.a.ns, "link set tmp0 name later0");
    assert!(matches!(within(&mut watch, IN_TIME), Some(LinkEvent::Appeared { .. })));
    let impossible = LinkWatch::by_name("a-name-far-too-long").unwrap_err();
    assert!(matches!(impossible, Error::UnknownInterface { .. }), "{impossible}");
}

#[test]
fn what_does_not_exist_or_is_elsewhere_cannot_be_watched() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchnone");
    let elsewhere = LinkWatch::open(&lab.a.interface).unwrap_err();
    assert!(matches!(elsewhere, Error::OtherNamespace { .. }), "{elsewhere}");
    lab.delete_link().unwrap();
    let gone = lab.a.run(|| LinkWatch::open(&lab.a.interface)).unwrap_err();
    assert_eq!(gone.errno(), Some(libc::ENODEV), "{gone}");
}

/// Nobody reads while far more happens than the socket's buffer holds.
#[test]
fn after_lost_messages_the_difference_is_told() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("watchlost");
    let mut watch = watch(&lab);
    // Changes of another link of the namespace.
    let flood = || {
        lab.a.run(|| {
            let other = Interface::by_name("lo").unwrap();
            for round in 0..400 {
                other.set_mtu(1400 + round % 2).unwrap();
            }
        });
    };
    flood();
    lab.a.set_up(false).unwrap();
    ip(&lab.a.ns, "link set veth-a name late");
    let mut told = [within(&mut watch, IN_TIME), within(&mut watch, IN_TIME)];
    told.sort_by_key(|event| *event == Some(LinkEvent::Down));
    let name = "late".to_owned();
    assert_eq!(told, [Some(LinkEvent::Renamed { name }), Some(LinkEvent::Down)]);
    assert_eq!(watch.overruns(), 1);
    quiet(&mut watch);

    // It goes and comes back within the loss.
    flood();
    ip(&lab.a.ns, "link set late up");
    ip(&lab.a.ns, "link del late");
    ip(&lab.a.ns, "link add late type bridge");
    assert_eq!(within(&mut watch, IN_TIME), Some(LinkEvent::Removed));
    let Some(LinkEvent::Appeared { index }) = within(&mut watch, IN_TIME) else {
        panic!("the new one")
    };
    assert_eq!(watch.interface().map(Interface::index), Some(index));
    assert_eq!(watch.overruns(), 2);
    ip(&lab.a.ns, "link set late up");
    assert!(within(&mut watch, IN_TIME).is_some(), "messages are followed again");
}

/// Found out when somebody asks, and told without a look through the table.
#[test]
fn neighbours_are_told() {
    if !testing::is_root() {
        return;
    }
    let config = VethConfig {
        static_neighbours: false,
        ..VethConfig::tagged("heard")
    };
    let lab = Lab::veth(config).unwrap();
    lab.a.run(|| {
        let mut watch = NeighbourWatch::open().unwrap();
        for address in [lab.b.ipv4.into(), lab.b.ipv6.into()] {
            lab.a.interface.ask_for(address);
            let expected = NeighbourEvent::Known {
                index: lab.a.interface.index(),
                address,
                mac: lab.b.mac,
            };
            wait_for(&mut watch, expected);
        }
    });
}

fn wait_for(watch: &mut NeighbourWatch, expected: NeighbourEvent) {
    let end = Instant::now() + IN_TIME;
    while watch.next().unwrap() != Some(expected) {
        assert!(Instant::now() < end, "{expected:?}");
        let timeout = Timespec::try_from(IN_TIME).unwrap();
        poll(&mut [PollFd::new(&*watch, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

/// It has just answered, and the kernel would not ask again for half a minute or so.
#[test]
fn neighbours_that_stop_answering_fail_when_they_are_probed() {
    if !testing::is_root() {
        return;
    }
    let config = VethConfig {
        static_neighbours: false,
        ..VethConfig::tagged("probed")
    };
    let lab = Lab::veth(config).unwrap();
    lab.a.run(|| {
        let at = &lab.a.interface;
        let addresses = [IpAddr::from(lab.b.ipv4), lab.b.ipv6.into()];
        assert!(!at.probe_neighbour(addresses[0]).unwrap(), "it was never asked for");
        for address in addresses {
            assert_eq!(at.resolve(address, IN_TIME).unwrap(), Some(lab.b.mac));
            assert!(at.probe_neighbour(address).unwrap());
            assert_eq!(at.neighbour(address).unwrap(), Some(lab.b.mac), "known meanwhile");
        }
        for (address, family) in addresses.into_iter().zip(["-4", "-6"]) {
            // The kernel checks by its link-local address, which may not have been usable yet.
            assert_eq!(at.resolve(address, IN_TIME).unwrap(), Some(lab.b.mac));
            let flush = format!("{family} address flush dev {}", lab.b.interface.name());
            ip(&lab.b.ns, &flush);
            let mut watch = NeighbourWatch::open().unwrap();
            assert!(at.probe_neighbour(address).unwrap());
            let index = at.index();
            wait_for(&mut watch, NeighbourEvent::Failed { index, address });
            assert!(at.neighbour_entries(address).unwrap().contains(&(address, None)));
            assert!(!at.probe_neighbour(address).unwrap(), "not known any more");
        }
    });
}

/// Not by a check, nor by a request for it.
#[test]
fn neighbours_that_somebody_has_set_stay_as_they_are() {
    if !testing::is_root() {
        return;
    }
    let config = VethConfig {
        static_neighbours: false,
        ..VethConfig::tagged("set")
    };
    let lab = Lab::veth(config).unwrap();
    let address = IpAddr::from(lab.b.ipv4);
    let entry = |change: &str, more: &str| {
        let name = lab.a.interface.name();
        let command = lab
            .a
            .ns
            .command("ip")
            .args(format!("neigh {change} {address} dev {name}{more}").split(' '))
            .output();
        String::from_utf8(command.unwrap().stdout).unwrap()
    };
    lab.a.run(|| {
        let at = &lab.a.interface;
        for (more, shown) in [
            (" lladdr 02:00:00:00:00:02 nud permanent", "PERMANENT"),
            (" lladdr 02:00:00:00:00:02 nud noarp", "NOARP"),
            (" lladdr 02:00:00:00:00:02 nud reachable extern_learn", "extern_learn"),
            (" managed", "managed"),
        ] {
            entry("replace", more);
            wait_until(IN_TIME, || at.neighbour(address).unwrap().is_some());
            assert!(entry("show", " nud all").contains(shown), "{more}");
            assert!(at.probe_neighbour(address).unwrap());
            at.ask_for(address);
            let left = entry("show", " nud all");
            assert!(left.contains(shown), "{more}: {left}");
            entry("del", "");
        }
    });
}

/// Whichever link has the address by the routes, or none.
#[test]
fn neighbours_are_asked_for_on_their_own_link() {
    if !testing::is_root() {
        return;
    }
    let config = VethConfig {
        static_neighbours: false,
        ..VethConfig::tagged("asked")
    };
    let lab = Lab::veth(config).unwrap();
    let addresses = ["192.0.2.1", "fe80::77:2"].map(|ip| ip.parse::<IpAddr>().unwrap());
    ip(&lab.a.ns, "link add other type bridge");
    ip(&lab.a.ns, "link set other up");
    let own = lab.a.interface.name();
    ip(&lab.a.ns, &format!("address add fe80::77:1/64 dev {own} nodad"));
    for address in addresses {
        let name = lab.b.interface.name();
        ip(&lab.b.ns, &format!("address add {address} dev {name} nodad"));
    }
    ip(
        &lab.b.ns,
        &format!("route add fe80::/64 dev {}", lab.b.interface.name()),
    );
    lab.a.run(|| {
        for address in addresses {
            let found = lab.a.interface.resolve(address, IN_TIME).unwrap();
            assert_eq!(found, Some(lab.b.mac), "{address}");
            // It failed: the request begins again.
            let flush = format!("neigh flush dev {own}");
            ip(&lab.a.ns, &flush);
            let found = lab.a.interface.resolve(address, IN_TIME).unwrap();
            assert_eq!(found, Some(lab.b.mac), "{address}");
        }
    });
}
