//! The kernel's VXLAN endpoints.

use ringside_netlab::testing::is_root;
use ringside_netlab::{Device, Namespace, VxlanConfig};

#[test]
fn frames_for_a_mac_address_go_to_a_host() {
    if !is_root() {
        return;
    }
    let ns = Namespace::create("nic-vxlan").expect("namespace");
    let config = VxlanConfig {
        name: "vxlan7".into(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1450,
        vni: 7,
        port: 4789,
        local: [192, 0, 2, 1].into(),
        remote: Some([192, 0, 2, 9].into()),
        checksum: true,
    };
    let device = Device::vxlan(&ns, &ns, &config).expect("endpoint");
    let bridge = Device::bridge(&ns, "bridge").expect("bridge");
    let interface = &device.interface;
    ns.run(|| {
        let made = interface.vxlan().expect("read").expect("one");
        assert_eq!((made.vni, made.port, made.learns), (7, 4789, false));
        assert_eq!(bridge.interface.vxlan().expect("read"), None);
        let mac = [2, 0, 0, 0, 0, 7];
        interface.stop_forwarding(mac).expect("there is none");
        for host in [[192, 0, 2, 2], [192, 0, 2, 3]] {
            interface.forward(mac, host.into()).expect("put");
            assert_eq!(interface.forwarded().expect("read"), [mac]);
            let shown = std::process::Command::new("bridge")
                .args(["fdb", "show", "dev", "vxlan7"])
                .output();
            let shown = String::from_utf8(shown.expect("bridge").stdout).expect("text");
            let line = format!("02:00:00:00:00:07 dst 192.0.2.{} self", host[3]);
            assert!(shown.contains(&line), "{shown}");
        }
        interface.stop_forwarding(mac).expect("taken back");
        assert_eq!(interface.forwarded().expect("read"), [[0; 6]; 0]);
        let error = bridge
            .interface
            .forward(mac, [192, 0, 2, 2].into())
            .expect_err("no tunnel");
        assert!(error.to_string().contains("send to a host"), "{error}");
    });
}

#[test]
fn what_has_no_entry_goes_to_another_host() {
    if !is_root() {
        return;
    }
    let (ns, home) = ["nic-vxlan-host", "nic-vxlan-tenant"]
        .map(|name| Namespace::create(name).expect("namespace"))
        .into();
    let mut config = VxlanConfig {
        name: "vxlan7".into(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1450,
        vni: 7,
        port: 4789,
        local: [192, 0, 2, 1].into(),
        remote: Some([192, 0, 2, 9].into()),
        checksum: true,
    };
    let device = Device::vxlan(&ns, &home, &config).expect("endpoint");
    let interface = &device.interface;
    home.run(|| {
        let remote = || interface.vxlan().expect("read").expect("one").remote;
        assert_eq!(remote(), Some([192, 0, 2, 9].into()));
        interface.set_vxlan_remote([192, 0, 2, 10].into()).expect("set");
        assert_eq!(remote(), Some([192, 0, 2, 10].into()));
        // As often as one likes, and not to an address of the other family.
        interface.set_vxlan_remote([192, 0, 2, 10].into()).expect("set again");
        interface
            .set_vxlan_remote("fd00::1".parse().expect("an address"))
            .expect_err("of the other family");
        let shown = std::process::Command::new("bridge")
            .args(["fdb", "show", "dev", "vxlan7"])
            .output();
        let shown = String::from_utf8(shown.expect("bridge").stdout).expect("text");
        assert_eq!(shown.matches("00:00:00:00:00:00 dst").count(), 1, "{shown}");
        assert!(shown.contains("00:00:00:00:00:00 dst 192.0.2.10 "), "{shown}");
    });
    config.name = "vxlan8".into();
    config.vni = 8;
    (config.local, config.remote) = ("fd00::1".parse().expect("an address"), "fd00::9".parse().ok());
    let device = Device::vxlan(&ns, &home, &config).expect("endpoint");
    home.run(|| {
        let to = "fd00::10".parse().expect("an address");
        device.interface.set_vxlan_remote(to).expect("set");
        assert_eq!(device.interface.vxlan().expect("read").expect("one").remote, Some(to));
    });
}
