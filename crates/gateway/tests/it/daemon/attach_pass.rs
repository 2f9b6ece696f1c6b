//! The program at the other end of a veth.

use std::process::Output;

use ringside_bpf::XdpMode;
use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

use crate::common::daemon::binary;

#[test]
fn another_program_is_named_and_not_taken_for_one_that_passes_every_packet() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::named("near", "far")).expect("veth");
    let attach = || -> Output {
        let run = || binary().args(["attach-pass", "far"]).output();
        lab.b.run(run).expect("it runs")
    };
    for said in [
        "far has a program that passes every packet",
        "far has a program already that passes",
    ] {
        let Output { status, stdout, .. } = attach();
        let stdout = String::from_utf8_lossy(&stdout);
        assert!(status.success() && stdout.starts_with(said), "{stdout}");
    }
    let removed = lab.b.run(|| {
        let mut ip = std::process::Command::new("ip");
        ip.args(["link", "set", "dev", "far", "xdp", "off"]).status()
    });
    assert!(removed.expect("ip runs").success());
    let sizes = Sizes {
        neighbors: 1,
        connections: 1,
        queues: 1,
        sample_bytes: 4096,
    };
    let program = GatewayProgram::load(sizes).expect("loaded");
    let index = lab.b.interface.index();
    let link = lab.b.run(|| program.attach(index, XdpMode::Native)).expect("attached");
    let Output { status, stderr, .. } = attach();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(
        !status.success() && stderr.contains("another XDP program in native mode (\"ringside_gatewa\", id "),
        "{stderr}"
    );
    drop(link);
    assert!(attach().status.success());
}
