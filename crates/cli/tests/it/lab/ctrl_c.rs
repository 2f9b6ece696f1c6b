//! Ctrl-C on a terminal: the kernel sends the signal to all programs of the foreground, those that a lab has started, too. It is the lab that ends them. Two
//! boots, one of which is not waited for.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use rustix::process::{Pid, Signal, kill_process_group};

use super::common::{Done, Running};
use super::guests::{PATIENCE, machine_of};
use super::together::folders_of;
use super::{Scratch, alone, assert_nothing_is_left_of, has_ended, turns};

const LAB: &str = "rounds = 100\nturn = \"500ms\"\nsettle = \"1ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                   [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
                   [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n\
                   [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nrate = 100\nmeasure = [\"rtt\"]\n";

/// A run in a group of its own, as a shell starts one.
fn start(scratch: &Scratch, line: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.arg("lab").args(line.split(' ')).current_dir(&scratch.0);
    command.process_group(0);
    Running::new(command)
}

fn press(running: Running) -> Done {
    let pid = running.pid();
    let machine = machine_of(pid).expect("a machine");
    let group = Pid::from_raw(i32::try_from(pid).expect("small")).expect("a group");
    kill_process_group(group, Signal::INT).expect("it runs");
    let done = running.end_within(Duration::from_secs(30));
    assert_nothing_is_left_of(pid);
    assert_eq!(folders_of(pid), [""; 0]);
    assert!(has_ended(machine), "{done:#?}");
    done
}

#[test]
#[ignore = "make test-guests runs it"]
fn ctrl_c_is_the_labs_and_not_its_guests() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(LAB);
    // A guest that boots is not waited for.
    let mut running = start(&scratch, "run my.toml --into run");
    let boots = wait_until(PATIENCE, || machine_of(running.pid()).is_some() || running.is_over());
    assert!(boots, "{}", running.told());
    let told = press(running).bad();
    let goes_on = "`ringside lab run my.toml --into run --resume` goes on";
    assert!(
        told.contains("ringside: interrupted; kept 0 turns") && told.ends_with(goes_on),
        "{told}"
    );
    // Nor does one end in the middle of a turn, as if somebody had killed it.
    let mut running = start(&scratch, "run my.toml --into run --resume");
    let is_at_it = || turns(&scratch.path("run")) >= 1;
    assert!(
        wait_until(PATIENCE, || is_at_it() || running.is_over()) && is_at_it(),
        "{}",
        running.told()
    );
    let told = press(running).bad();
    assert!(
        told.contains("ringside: interrupted; ") && told.ends_with(goes_on),
        "{told}"
    );
}
