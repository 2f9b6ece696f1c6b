//! What is wrong with a lab file, and what a lab lacks here, told by `check` and by what it ends with, for scripts: a program, a capability, a guest's
//! machine, and rows of which some go without, or all.

use std::process::Command;

use ringside_netlab::testing::{has_root, is_root};

use super::common::{Done, Running};
use super::{HOSTS, Scratch, cannot_be_run, probe, run, unwrapped};

/// `ringside lab check my.toml` by a command in front.
fn check(scratch: &Scratch, command: &[&str]) -> Done {
    lab(scratch, command, "check my.toml")
}

fn lab(scratch: &Scratch, command: &[&str], line: &str) -> Done {
    let own = env!("CARGO_BIN_EXE_ringside");
    let mut program = match command {
        [] => Command::new(own),
        [first, rest @ ..] => {
            let mut program = Command::new(first);
            program.args(rest).arg(own);
            program
        }
    };
    program.arg("lab").args(line.split(' ')).current_dir(&scratch.0);
    Running::new(program).end()
}

fn guest(name: &str, attachment: &str, keys: &str) -> String {
    format!(
        "[[link]]\nname = {name:?}\nends = [\"left\", \"right\"]\n\
         [[guest]]\nname = {name:?}\nhost = \"right\"\nattachment = {attachment:?}\nuplink = {name:?}\n{keys}\
         [[probe]]\nname = {name:?}\nfrom = \"left\"\nto = {name:?}\nwith = \"udp\"\n"
    )
}

#[test]
fn a_bad_file_is_refused_as_a_whole_before_anything_is_done() {
    let scratch = Scratch::new();
    let content = HOSTS.to_owned() + &probe("p", "with = \"udp\"\nmode = \"native\"\nsize = 9000");
    scratch.lab(&content);
    for command in ["check my.toml", "run my.toml"] {
        let refused = run(&scratch, command).refused();
        assert!(refused.contains("the lab file my.toml has 2 faults:"), "{refused}");
        assert!(
            refused.contains("line 13, key probe.mode: only with") && refused.contains("line 14, key probe.size"),
            "{refused}"
        );
    }
    let unknown = run(&scratch, "run nothing.toml").refused();
    assert!(
        unknown.contains(
            "reading the lab file nothing.toml, which is no study either (smoke, host-to-host, host-to-guest, host-to-guest-vhost-user, host-to-guest-xdp, schedule, steering, steering-igb)"
        ),
        "{unknown}"
    );
    scratch.lab(&format!(
        "{}{}",
        HOSTS.replace("cpu = 0", "cpu = 4000"),
        probe("p", "with = \"udp\"")
    ));
    let cpu = run(&scratch, "run my.toml").refused();
    assert!(
        cpu.contains("the host left is to be on CPU 4000, which is not online"),
        "{cpu}"
    );
    let told = cannot_be_run(&run(&scratch, "check my.toml"));
    assert!(
        told.contains("It cannot be run here: the host left is to be on CPU 4000"),
        "{told}"
    );
    let checked = run(&scratch, "check smoke");
    assert!(checked.out.contains("8 cells, 2 rounds of 200 ms each"), "{checked:#?}");
    // Who is not root is told so.
    assert_eq!(
        checked.status.code(),
        Some(if has_root() { 0 } else { 4 }),
        "{checked:#?}"
    );
    assert!(!scratch.path("ringside-lab").exists());
}

#[test]
fn what_nothing_goes_without_is_no_success() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let udp = probe("p", "with = \"udp\"");
    let plain = HOSTS.to_owned() + &udp;
    let load = "[[load]]\nname = \"l\"\nkind = \"stress-ng\"\n";
    // No program of others is in this folder.
    let path = format!("PATH={}", scratch.0.display());
    let no_programs = ["/usr/bin/env", path.as_str()];
    let less = [
        "setpriv",
        "--bounding-set=-net_admin,-sys_admin",
        "--inh-caps=-net_admin,-sys_admin",
        "--",
    ];
    let host = "[[host]]\nname = \"left\"\n[[host]]\nname = \"right\"\n";
    let vm = host.to_owned() + &guest("vm", "tap-bridge", "");
    // A kernel that was fetched before, without modules.
    let cache = format!("RINGSIDE_CACHE={}", scratch.path("cache").display());
    let cached = ["/usr/bin/env", cache.as_str()];
    let entry = scratch.path("cache/linux-image-some@here");
    let modules = entry.join("usr/lib/modules/9.9.9");
    std::fs::create_dir_all(modules.join("kernel")).expect("a folder");
    for file in [modules.join("vmlinuz"), entry.join("SHA256SUMS")] {
        std::fs::write(file, "").expect("written");
    }
    let keys = "kernel = \"linux-image-some/here\"\nmodules = [\"no-such\"]\n";
    let no_module = host.to_owned() + &guest("vm", "tap-bridge", keys);
    let told = format!(
        "the guest vm: cannot find the kernel module no_such: Linux 9.9.9 has none in {}",
        modules.display()
    );
    for (content, command, why) in [
        (
            plain.clone() + load,
            &no_programs[..],
            Some("the program stress-ng is not there: install it"),
        ),
        (
            vm,
            &no_programs,
            Some("cannot start qemu-system-x86_64: there is no such program"),
        ),
        (no_module, &cached, Some(told.as_str())),
        (
            plain.clone(),
            &less,
            Some("this process lacks CAP_SYS_ADMIN, CAP_NET_ADMIN: run it as root"),
        ),
        (plain, &no_programs, None),
    ] {
        scratch.lab(&content);
        let checked = check(&scratch, command);
        let Some(why) = why else {
            checked.good();
            continue;
        };
        let told = cannot_be_run(&checked);
        assert!(told.contains(&format!("It cannot be run here: {why}")), "{told}");
        // A run ends with the same, before it has begun.
        let run = lab(&scratch, command, "run my.toml --into run");
        assert!(run.refused().contains(&format!("the lab my.toml: {why}")), "{run:#?}");
        assert!(!scratch.path("run").exists());
    }
}

#[test]
fn a_lab_without_a_row_that_can_be_had_cannot_be_run() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let hosts = "[[host]]\nname = \"left\"\n[[host]]\nname = \"right\"\n";
    let nowhere = guest("nowhere", "vhost-user", "socket = \"/run/nowhere.sock\"\n");
    let why = "the guest nowhere: ";
    scratch.lab(&(hosts.to_owned() + &nowhere));
    let told = cannot_be_run(&check(&scratch, &[]));
    assert!(told.contains(&format!("It cannot be run here: {why}")), "{told}");
    let run = lab(&scratch, &[], "run my.toml --into run").refused();
    assert!(run.contains(&format!("the lab my.toml: {why}")), "{run}");
    assert!(!scratch.path("run").exists());
    // One that can be had, and it is run; the other is a row.
    let link = "[[link]]\nends = [\"left\", \"right\"]\n";
    scratch.lab(&[hosts, link, &nowhere, &probe("p", "with = \"udp\"")].concat());
    let told = unwrapped(&check(&scratch, &[]).good().out);
    assert!(told.contains(&format!("Not to be had here, nowhere: {why}")), "{told}");
    assert!(!told.contains("cannot be run"), "{told}");
}
