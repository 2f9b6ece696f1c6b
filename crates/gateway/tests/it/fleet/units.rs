//! The unit of hosts' agent under a real systemd: what its sandbox leaves is enough.

use std::process::Command;

use ringside_netlab::{Namespace, wait_until};

use super::Etcd;
use super::agents::{Authorities, gateway, ip};
use super::common::systemd::{Systemd, install};
use super::process::PATIENCE;

const UNIT: &str = "ringside-gateway-agent";

#[test]
fn the_agents_unit_does_under_systemd_what_it_says() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let etcd = Etcd::start();
    let authorities = Authorities::new();
    let (_gateway, address) = gateway(&etcd, &authorities);
    let host = Namespace::create("fleet-units").expect("a namespace");
    ip(
        &host,
        "link add seven type vxlan id 42 remote 192.0.2.9 dstport 4789 nolearning",
    );
    let options = format!(
        "OPTIONS=--endpoint {address} --netns {} --ca /run/test/ours.pem --certificate /run/test/host.pem --key /run/test/host.key\n",
        host.name()
    );
    let folder = install(&[("ringside-gateway-agent.env", &options)]);
    authorities.write_host(&folder);
    // Sooner than the unit says.
    Systemd::drop_in(&folder, UNIT, "RestartSec=100ms");
    let mut systemd = Systemd::start(Command::new("setpriv"), folder);
    let follows = |systemd: &Systemd| {
        let follows = wait_until(PATIENCE, || {
            ip(&host, "-d link show seven").contains("remote 192.0.2.1 ")
        });
        assert!(follows, "{}", systemd.all());
    };

    systemd.systemctl(&["start", UNIT]);
    systemd.wait_for(UNIT, "active", 0);
    follows(&systemd);
    let status = systemd.process(UNIT, "status");
    // CAP_NET_ADMIN and CAP_SYS_ADMIN.
    for line in ["Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000201000\n"] {
        assert!(status.contains(line), "not {line:?}: {status}");
    }

    let heard = |systemd: &Systemd| systemd.read("log").matches(" of the map\n").count();
    systemd.wait("it has heard", |systemd| heard(systemd) >= 1);
    let before = heard(&systemd);
    systemd.systemctl(&["reload", UNIT]);
    systemd.wait("it has connected anew", |systemd| heard(systemd) > before);
    systemd.wait_for(UNIT, "active", 0);

    // Killed, it is started again, and goes on with what others have changed.
    let pid = systemd.property(UNIT, "MainPID");
    let killed = systemd.command("kill").args(["-KILL", &pid]).status();
    assert!(killed.expect("runs").success());
    ip(&host, "link set seven type vxlan remote 192.0.2.9");
    systemd.wait_for(UNIT, "active", 1);
    follows(&systemd);

    systemd.systemctl(&["stop", UNIT]);
    systemd.wait_for(UNIT, "inactive", 0);
    assert_eq!(systemd.property(UNIT, "Result"), "success", "{}", systemd.all());
}
