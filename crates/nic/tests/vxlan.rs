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
