//! Bridges, tunnels and TAP devices carry packets, and go with their handles.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ringside_netlab::{Device, Lab, Namespace, Tap, VethConfig, VxlanConfig, testing};
use ringside_nic::Interface;

fn names(ns: &Arc<Namespace>) -> Vec<String> {
    let all = ns.run(Interface::all).unwrap();
    all.iter().map(|interface| interface.name().to_owned()).collect()
}

/// Hosts of one network, at a bridge.
fn hosts(tag: &str, switch: &Arc<Namespace>, bridge: &Device) -> [Lab; 2] {
    [1, 2].map(|host| {
        let ns = Namespace::create(&format!("{tag}-{host}")).unwrap();
        let config = VethConfig {
            hosts: [host, 0],
            ..VethConfig::named("eth0", format!("port-{host}"))
        };
        let wire = Lab::join(&ns, switch, config).unwrap();
        bridge.attach(&wire.b.interface).unwrap();
        wire
    })
}

/// Sends a datagram from an address of one namespace to one of another.
fn exchange(from: (&Arc<Namespace>, IpAddr), to: (&Arc<Namespace>, IpAddr)) {
    let receiver = to.0.run(|| testing::bound(|| UdpSocket::bind((to.1, 7))));
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sender = from.0.run(|| UdpSocket::bind((from.1, 0))).unwrap();
    sender.send_to(b"hello", (to.1, 7)).unwrap();
    let mut data = [0; 16];
    let (length, sender) = receiver.recv_from(&mut data).unwrap();
    assert_eq!((&data[..length], sender.ip()), (b"hello".as_slice(), from.1));
}

#[test]
fn hosts_at_a_bridge_are_one_network() {
    if !testing::is_root() {
        return;
    }
    let switch = Namespace::create("devices-switch").unwrap();
    let bridge = Device::bridge(&switch, "bridge").unwrap();
    let [a, b] = hosts("devices", &switch, &bridge);
    for (from, to) in [(&a.a, &b.a), (&b.a, &a.a)] {
        exchange((&from.ns, from.ipv4.into()), (&to.ns, to.ipv4.into()));
        exchange((&from.ns, from.ipv6.into()), (&to.ns, to.ipv6.into()));
    }
    assert_eq!(a.b.ipv4, std::net::Ipv4Addr::UNSPECIFIED);
    assert_ne!(a.b.mac, b.b.mac);
    drop(bridge);
    assert!(!names(&switch).iter().any(|name| name == "bridge"));
}

#[test]
fn a_tunnel_joins_guests_of_two_hosts() {
    if !testing::is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("devices-tunnel")).unwrap();
    for (local, remote) in [
        (lab.a.ipv4.into(), lab.b.ipv4.into()),
        (IpAddr::from(lab.a.ipv6), IpAddr::from(lab.b.ipv6)),
    ] {
        let guests = ["ga", "gb"].map(|tag| Namespace::create(tag).unwrap());
        let config = |own: IpAddr, other: IpAddr, last| VxlanConfig {
            name: "tunnel".to_owned(),
            mac: [2, 0, 0, 0, 0, last],
            mtu: 1430,
            vni: 0xff_fffe,
            port: 4789,
            local: own,
            remote: Some(other),
            checksum: true,
        };
        let a = Device::vxlan(&lab.a.ns, &guests[0], &config(local, remote, 1)).unwrap();
        let b = Device::vxlan(&lab.b.ns, &guests[1], &config(remote, local, 2)).unwrap();
        let addresses: [IpAddr; 2] = ["10.1.0.1".parse().unwrap(), "10.1.0.2".parse().unwrap()];
        a.add_address(addresses[0], 24).unwrap();
        b.add_address(addresses[1], 24).unwrap();
        exchange((&guests[0], addresses[0]), (&guests[1], addresses[1]));
        let seen = guests[0].run(|| a.interface.neighbour(addresses[1])).unwrap();
        assert_eq!(seen, Some([2, 0, 0, 0, 0, 2]));
        let again = Device::vxlan(&lab.a.ns, &guests[0], &config(local, remote, 3)).unwrap_err();
        assert!(again.to_string().contains("give the link another"), "{again}");
        drop((a, b));
        assert_eq!(names(&guests[0]), ["lo"]);
    }
}

#[test]
fn frames_of_a_tap_device_come_and_go() {
    if !testing::is_root() {
        return;
    }
    let ns = Namespace::create("devices-tap").unwrap();
    let tap = Tap::create(&ns, "tap", [2, 0, 0, 0, 0, 1], 1400).unwrap();
    let (own, other): (IpAddr, IpAddr) = ("10.1.0.1".parse().unwrap(), "10.1.0.2".parse().unwrap());
    tap.device.add_address(own, 24).unwrap();
    tap.device.add_neighbour(other, [2, 0, 0, 0, 0, 2]).unwrap();
    let socket = ns.run(|| UdpSocket::bind((own, 7))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.send_to(b"hello", (other, 7)).unwrap();
    let mut frame = [0; 2048];
    let length = loop {
        let length = tap
            .receive(&mut frame, Duration::from_secs(10))
            .unwrap()
            .expect("a frame");
        // Multicast listener reports come, too.
        if frame[..6] == [2, 0, 0, 0, 0, 2] {
            break length;
        }
    };
    assert!(frame[..length].ends_with(b"hello"));
    // The same backwards, with the checksum it has: the sums of the addresses and ports are the same.
    let frame = &mut frame[..length];
    for (at, half) in [(0, 6), (26, 4), (34, 2)] {
        let (a, b) = frame[at..at + 2 * half].split_at_mut(half);
        a.swap_with_slice(b);
    }
    tap.send(frame).unwrap();
    let mut data = [0; 16];
    assert_eq!(socket.recv_from(&mut data).unwrap(), (5, (other, 7).into()));
    assert_eq!(ns.run(|| tap.device.interface.state()).unwrap().mtu, 1400);
    assert!(tap.send(&[0; 3]).is_err());
    assert_eq!(tap.receive(&mut [0; 64], Duration::ZERO).ok().flatten(), None);
    drop(tap);
    assert_eq!(names(&ns), ["lo"]);
    assert!(Tap::create(&ns, "a-name-that-is-too-long", [2; 6], 1400).is_err());
}
