//! The program at the other end of a veth.

use std::process::{Command, Output};

use ringside_bpf::XdpMode;
use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

use crate::common::daemon::binary;

fn attach_pass(interface: &str) -> Command {
    let mut command = binary();
    command.args(["attach-pass", interface]);
    command
}

fn gateway_program() -> GatewayProgram {
    let sizes = Sizes {
        neighbors: 1,
        connections: 1,
        queues: 1,
        sample_bytes: 4096,
    };
    GatewayProgram::load(sizes).expect("loaded")
}

#[test]
fn another_program_is_named_and_not_taken_for_one_that_passes_every_packet() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::named("near", "far")).expect("veth");
    let attach = || -> Output { lab.b.run(|| attach_pass("far").output()).expect("it runs") };
    for said in [
        "far has a program that passes every packet",
        "far has a program already that passes",
    ] {
        let Output { status, stdout, .. } = attach();
        let stdout = String::from_utf8_lossy(&stdout);
        assert!(status.success() && stdout.starts_with(said), "{stdout}");
    }
    let removed = lab.b.run(|| {
        let mut ip = Command::new("ip");
        ip.args(["link", "set", "dev", "far", "xdp", "off"]).status()
    });
    assert!(removed.expect("ip runs").success());
    let program = gateway_program();
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

/// The kernel has one mode at a time. `health` advises this command where the other end has a
/// program in generic mode.
#[test]
fn a_program_in_generic_mode_is_named_with_the_command_that_removes_it() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::named("near", "far")).expect("veth");
    let in_b = |mut command: Command| lab.b.run(|| command.output()).expect("it runs");
    let program = gateway_program();
    let index = lab.b.interface.index();
    let link = lab.b.run(|| program.attach(index, XdpMode::Generic)).expect("attached");
    let Output { status, stderr, .. } = in_b(attach_pass("far"));
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{stderr}");
    for part in [
        "far has an XDP program in generic mode (\"ringside_gatewa\", id ",
        "ip link set dev far xdpgeneric off",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert!(!stderr.contains("libbpf"), "{stderr}");
    drop(link);
    assert!(in_b(attach_pass("far")).status.success());
}

#[test]
fn a_driver_without_native_xdp_is_not_taken_for_an_old_kernel() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::named("near", "far")).expect("veth");
    let mut bridge = Command::new("ip");
    bridge.args(["link", "add", "br0", "type", "bridge"]);
    assert!(lab.b.run(|| bridge.status()).expect("ip runs").success());
    for name in ["lo", "br0"] {
        let output = lab.b.run(|| attach_pass(name).output());
        let Output { status, stderr, .. } = output.expect("it runs");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(!status.success(), "{stderr}");
        assert!(
            stderr.contains(&format!("the driver of {name} has no native XDP")),
            "{stderr}"
        );
        assert!(!stderr.contains("kernel lacks"), "{stderr}");
    }
}

/// `bpf_prog_get_fd_by_id` of the kernel takes CAP_SYS_ADMIN.
#[test]
fn a_program_that_may_not_be_looked_at_is_not_taken_for_another_one() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::named("near", "far")).expect("veth");
    let in_b = |mut command: Command| lab.b.run(|| command.output()).expect("it runs");
    assert!(in_b(attach_pass("far")).status.success());
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    without
        .arg(attach_pass("far").get_program())
        .args(["attach-pass", "far"]);
    let Output { status, stderr, .. } = in_b(without);
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{stderr}");
    assert!(
        stderr.contains("CAP_SYS_ADMIN") && !stderr.contains("another XDP program"),
        "{stderr}"
    );
}
