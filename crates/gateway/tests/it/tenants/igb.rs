//! The daemon on a NIC with zero-copy, an emulated igb, whose driver gives the NIC whole KiB of a frame: in frames of 2048 bytes packets came in
//! pieces. In a guest, on a kernel of which igb has zero-copy (Linux 6.14).
//!
//! ```text
//!  guest:  eth0 10.77.0.254, the gateway ── igb, back to back ── eth1 ─ bridge in "far" ─┬─ host 1 10.77.0.1, tenant 10.0.0.1
//!                                                                                         └─ host 2 10.77.0.2, tenant 10.0.0.2
//! ```
#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;
use std::time::Duration;

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, Model};
use ringside_netlab::testing::is_root;

use crate::common::daemon::binary;

/// An emulated CPU, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(2);

const BED: &str = "set -e
    ip netns add far; ip link set eth1 netns far
    ip addr add 10.77.0.254/24 dev eth0; ip link set eth0 up
    ip -n far link add bridge type bridge; ip -n far link set bridge up
    ip -n far link set eth1 master bridge; ip -n far link set eth1 up
    for n in 1 2; do
        ip netns add host$n
        ip -n far link add port$n type veth peer name eth0 netns host$n
        ip -n far link set port$n master bridge; ip -n far link set port$n up
        ip -n host$n addr add 10.77.0.$n/24 dev eth0; ip -n host$n link set eth0 up
        ip -n host$n link add tenant0 address 02:00:00:00:2a:0$n mtu 1450 type vxlan id 42 local 10.77.0.$n remote 10.77.0.254 dstport 4789
        ip -n host$n addr add 10.0.0.$n/24 dev tenant0; ip -n host$n link set tenant0 up
    done
    mkdir /gateway";

const CONFIGURATION: &str = r#"
    [path]
    interface = "eth0"
    mode = "zero-copy"
    fast = false
    patience-ms = 10000
    cached-neighbors = 4096
    cached-connections = 4096
    [connections]
    limit = 10000
    per-tenant = 5000
    [store]
    path = "/gateway/store.db"
    [api]
    socket = "/gateway/api.sock"
    [metrics]
    enabled = false
"#;

#[test]
#[ignore = "make test-guests runs it"]
fn workers_have_zero_copy_on_an_igb() {
    if !is_root() {
        return;
    }
    let daemon = PathBuf::from(binary().get_program());
    let kernel = Kernel::usual().expect("a kernel for guests");
    let mut config =
        GuestConfig::new("igb", kernel, Agent::test_binary().expect("this binary")).back_to_back(Model::Igb);
    config.modules = ["veth", "bridge", "vxlan"].map(str::to_owned).to_vec();
    config.programs = ["sh", "ip", "ping", "mkdir"].map(PathBuf::from).to_vec();
    config.programs.push(daemon.clone());
    let guest = Guest::start(&config).expect("a guest");
    run(&guest, BED);
    run(&guest, &format!("echo '{CONFIGURATION}' >/gateway/gateway.toml"));

    let daemon = daemon.to_str().expect("UTF-8");
    let command = guest.command(daemon).args(["--config", "/gateway/gateway.toml"]);
    let mut gateway = command.spawn().expect("starts");
    // Two queues, each with 4096 frames of 4096 bytes, and 512 for what the NIC receives for the host.
    for said in ["mode=zero-copy", "frame_bytes=4096", "memory_mib=36"] {
        gateway.wait_for(said, PATIENCE).expect("it says so");
    }
    let put = |n: u8| {
        let words = format!("ctl --socket /gateway/api.sock put neighbor 42 10.0.0.{n}");
        let place = format!("--mac 02:00:00:00:2a:0{n} --host 10.77.0.{n}");
        format!("until {daemon} {words} {place}; do :; done\n")
    };
    run(&guest, &(put(1) + &put(2)));
    // The NIC is reset when its program comes. Then long packets, whole, each way.
    run(&guest, "ip netns exec host1 ping -n -c 1 -w 100 10.0.0.2");
    let long = "ping -n -c 20 -i 0.05 -w 100 -s 1400 -M do";
    run(
        &guest,
        &format!("ip netns exec host1 {long} 10.0.0.2; ip netns exec host2 {long} 10.0.0.1"),
    );
    let statistics = run(&guest, &format!("{daemon} ctl --socket /gateway/api.sock stats --json"));
    let statistics: serde_json::Value = serde_json::from_str(&statistics).expect("JSON");
    let paths = statistics["paths"].as_array().expect("paths").iter();
    let slow = paths
        .filter(|one| one["path"] == "slow")
        .find_map(|one| one["forwarded-packets"].as_u64());
    assert!(slow.is_some_and(|packets| packets >= 80), "{statistics:#}");
    gateway.signal(libc::SIGTERM).expect("signalled");
    let done = gateway.wait(PATIENCE).expect("ends");
    assert!(done.status.success(), "{done:?}");
}

/// What a script said, which has to end well.
fn run(guest: &Guest, script: &str) -> String {
    let command = guest.command("sh").args(["-c", script]).limit(PATIENCE);
    let done = command.output().expect("runs");
    let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{script}\n{out}\n{err}");
    out
}
