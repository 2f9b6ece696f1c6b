//! The C API as a C program uses and misuses it.

use std::process::Command;

use crate::common::{built, compile, scratch, succeeded, valgrind};
use ringside_bpf::testing::{LAYOUTS_FILE, NIC_EXAMPLE_FILE};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, Namespace, VethConfig};

/// Runs a program that needs no privileges, by itself and under valgrind.
fn runs(name: &str) {
    let folder = scratch(name);
    let program = compile(name, &folder);
    let by_itself = Command::new(&program).arg(LAYOUTS_FILE).output().expect("it starts");
    assert_eq!(succeeded(&by_itself), format!("{name}: ok\n"));
    let watched = valgrind(Command::new("valgrind"), &program)
        .args([LAYOUTS_FILE, "short"])
        .output();
    assert_eq!(
        succeeded(&watched.expect("valgrind: make setup installs it")),
        format!("{name}: ok\n")
    );
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn misuse_of_handles_and_arguments_is_an_error() {
    runs("handles");
}

#[test]
fn hints_of_any_packet_are_read() {
    runs("hints");
}

/// Two interfaces in one namespace, joined.
fn loop_of_veth(tag: &str, mtu: u32) -> Lab {
    let host = Namespace::create(tag).expect("a namespace");
    let config = VethConfig {
        tx_checksum: false,
        ipv6: false,
        gro: true,
        mtu,
        ..VethConfig::tagged(tag)
    };
    Lab::join(&host, &host, config).expect("test bed")
}

/// Native and generic, as enum rsd_mode has them.
const MODES: [&str; 2] = ["2", "3"];

/// Runs a program on both ends, by itself or under valgrind.
fn runs_on_veth(name: &str, mode: &str, mtu: u32, watched: bool) {
    if !is_root() {
        return;
    }
    let folder = scratch(&format!("{name}-{mode}-{watched}"));
    let program = compile(name, &folder);
    let lab = loop_of_veth(&format!("capi-{name}"), mtu);
    let mut command = match watched {
        true => valgrind(lab.a.ns.command("valgrind"), &program),
        false => lab.a.ns.command(&program),
    };
    command.args([lab.a.interface.name(), lab.b.interface.name(), mode]);
    command.args([LAYOUTS_FILE, NIC_EXAMPLE_FILE]);
    let output = command.output().expect("it starts");
    assert_eq!(succeeded(&output), format!("{name}: ok\n"), "mode {mode}");
    for end in lab.ends() {
        assert_eq!(end.state().expect("there").xdp, None, "an XDP program is left");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn every_call_and_every_misuse_of_it_on_a_port() {
    for mode in MODES {
        runs_on_veth("port", mode, 1700, false);
    }
}

#[test]
fn a_child_or_daemon_is_refused_a_port_of_its_parent_which_goes_on() {
    runs_on_veth("fork", MODES[0], 1500, false);
}

#[test]
fn packets_in_several_frames() {
    for mode in MODES {
        runs_on_veth("jumbo", mode, 5000, false);
    }
}

#[test]
fn valgrind_finds_nothing_on_a_port() {
    runs_on_veth("port", MODES[0], 1700, true);
}

#[test]
fn errors_are_in_words_of_c() {
    if !is_root() {
        return;
    }
    let folder = scratch("errors");
    let program = compile("errors", &folder);
    let lab = loop_of_veth("capi-errors", 1500);
    let mut ip = lab.a.ns.command("ip");
    ip.args(["tuntap", "add", "dev", "tun0", "mode", "tun"]);
    succeeded(&ip.output().expect("ip: iproute2"));
    let mut up = lab.a.ns.command("ip");
    succeeded(
        &up.args(["link", "set", "dev", "tun0", "up"])
            .output()
            .expect("ip: iproute2"),
    );
    let mut command = lab.a.ns.command(&program);
    command.args([lab.a.interface.name(), lab.b.interface.name(), "tun0", NIC_EXAMPLE_FILE]);
    assert_eq!(succeeded(&command.output().expect("it starts")), "errors: ok\n");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// What else is in the library, libbpf above all, is nobody's business.
#[test]
fn only_our_own_symbols_are_exported() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(built().join("libringside.so"))
        .output()
        .expect("nm: binutils");
    let symbols = succeeded(&output);
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/ringside/ringside.h"));
    let header = header.expect("the header");
    for name in &names {
        assert!(name.starts_with("rsd_"), "{name} is exported");
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
    assert!(names.len() > 40, "{names:?}");
}
