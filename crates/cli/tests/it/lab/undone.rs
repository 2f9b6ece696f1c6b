//! What another machine's server has done for a lab and cannot undo: who asked for it is told. The other machine is a namespace of this one.

use std::fs;
use std::process::Command;

use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab};

use super::broken::rps;
use super::common::{self, Running};
use super::{Scratch, alone, result, start_at};

const HEAD: &str = "rounds = 1\nsettle = \"10ms\"\n[[host]]\nname = \"me\"\nplace = \"here\"\n";
const STEERED: &str = "[[steering]]\nname = \"rps\"\nhost = \"far\"\nrps = [\"0=0\"]\n\
                       [[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\nsteering = [\"rps\"]\n";
/// What a server says when it has steered.
const IS_SET: &str = "put back at the end";

fn far(turn: &str, hosts: &Lab, rest: &str) -> String {
    let serve = format!("[[host]]\nname = \"far\"\nserve = \"{}\"\n", hosts.b.ipv4);
    format!("turn = {turn:?}\n{HEAD}{serve}{rest}")
}

fn lab(hosts: &Lab, scratch: &Scratch, line: &str) -> Running {
    start_at(&hosts.a, scratch, line)
}

/// Somebody else's hand.
fn set_rps(end: &End, mask: &str) {
    let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", end.interface.name());
    end.run(|| fs::write(file, mask).expect("written"));
}

/// Lets a process write to its /sys, or not. It has one of its own, as all that was started in a namespace of a test bed.
fn remount_sys(pid: u32, how: &str) {
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--target", &pid.to_string(), "mount", "-o"]);
    let done = command.args([&format!("remount,bind,{how}"), "/sys"]).output();
    let done = done.expect("nsenter runs");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn what_another_machine_cannot_undo_is_told_here() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let hosts = common::lab("lab-left", 1);
    let state = scratch.path("state");
    let there = |line: &str, program: &[&str]| {
        let mut command = hosts.b.ns.command(program[0]);
        command.args(&program[1..]).args(common::words(&hosts.b, line));
        command.env("RINGSIDE_STATE_DIR", &state);
        Running::new(command)
    };
    // Without this capability it has no other sysfs than the one at /sys.
    let own = env!("CARGO_BIN_EXE_ringside");
    let less = [
        "setpriv",
        "--bounding-set=-sys_admin",
        "--inh-caps=-sys_admin",
        "--",
        own,
    ];
    let server = there("serve {} --insecure --lab", &less);
    server.wait_for("UDP port");

    // In order, with an end that tells what landed where.
    scratch.lab(&far("5s", &hosts, STEERED));
    let run = lab(&hosts, &scratch, "run my.toml --into run --json");
    server.wait_for(IS_SET);
    remount_sys(server.pid(), "ro");
    let done = run.end().good();
    let place = format!("the host far ({}): {}", hosts.b.ipv4, hosts.b.interface.name());
    let failed = format!("{place}: RPS CPUs of receive queue 0 (none → 0): not restored: ");
    let told = result(&done.out);
    let warning = told.warnings.iter().find(|warning| warning.starts_with(&failed));
    let warning = warning.unwrap_or_else(|| panic!("{:#?}", told.warnings));
    let by_hand = "; `ringside lab clean` there tries again, or set it to none by hand; turns after that";
    assert!(warning.contains("Read-only") && warning.contains(by_hand), "{warning}");
    assert!(told.cells[0].unavailable.is_none(), "{told:#?}");
    assert!(done.err.contains(&format!("not undone: {failed}")), "{}", done.err);
    assert!(server.told().contains("not restored: "), "{}", server.told());
    let report = fs::read_to_string(scratch.path("run/report.html")).expect("a report");
    assert!(report.contains("not restored: "));
    // What is to be done by hand does it.
    assert_eq!(rps(&hosts.b), "1");
    let clean = there("lab clean", &[own]).end().good();
    assert!(clean.err.contains("(none → 0): restored"), "{clean:#?}");
    assert_eq!(rps(&hosts.b), "");

    // Somebody has set something else, and Ctrl-C ends the turn: there is no result, and what is left is kept for the one to come.
    remount_sys(server.pid(), "rw");
    let run = lab(&hosts, &scratch, "run my.toml --into cut");
    server.wait_for_times(IS_SET, 2);
    set_rps(&hosts.b, "2");
    let cut = run.interrupt();
    let alone = format!("{place}: RPS CPUs of receive queue 0 (none → 0): left alone, since somebody has set it to 1");
    assert!(cut.bad().contains("interrupted"), "{cut:#?}");
    assert!(cut.err.contains(&format!("not undone: {alone}")), "{}", cut.err);
    assert_eq!(rps(&hosts.b), "2");
    set_rps(&hosts.b, "0");
    let whole = lab(&hosts, &scratch, "run my.toml --into cut --resume --json")
        .end()
        .good();
    let warnings = result(&whole.out).warnings;
    let of = |start: &str| warnings.iter().filter(|warning| warning.starts_with(start)).count();
    assert_eq!((of(&alone), of(&failed)), (1, 0), "{warnings:#?}");
    assert_eq!(rps(&hosts.b), "");
    server.interrupt().good();
    common::assert_clean(&hosts.a);
}
