//! A guest that stands still in the middle of a turn: noticed while the turn goes on, told by name with what was tried, and nothing is left. A boot each.

use std::thread;
use std::time::{Duration, Instant};

use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use super::broken::State;
use super::guests::{PATIENCE, all_children_of, machine_of};
use super::{Scratch, alone, unwrapped};

/// Far longer than it may take until it is noticed.
const TURN: Duration = Duration::from_secs(90);
/// The 10 s of docs/lab.md, two until its agent is given up, and what a busy machine needs to take everything down.
const NOTICED: Duration = Duration::from_secs(30);

const HEAD: &str = "rounds = 1\nturn = \"90s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                    [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
                    [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n";

/// Stops the guest's machine in the turn of this name, and returns what the run said.
fn hangs(rest: &str, turn: &str) {
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    scratch.lab(&(HEAD.to_owned() + rest));
    let running = state.start(&scratch, "run my.toml --into run");
    let pid = running.pid();
    assert!(
        wait_until(PATIENCE, || running.told().contains(turn)),
        "{}",
        running.told()
    );
    // Until all of it flows.
    thread::sleep(Duration::from_secs(5));
    let (children, machine) = (all_children_of(pid), machine_of(pid).expect("a machine"));
    let number = Pid::from_raw(i32::try_from(machine).expect("a number")).expect("a process");
    kill_process(number, Signal::STOP).expect("stopped");
    let begun = Instant::now();
    let done = running.end_within(TURN);
    assert!(begun.elapsed() < NOTICED, "after {:?}: {}", begun.elapsed(), done.err);
    eprintln!("noticed after {:?}", begun.elapsed());
    let told = unwrapped(&done.bad());
    assert!(told.contains("ringside: the guest vm hangs: "), "{told}");
    for words in [
        "nor has its agent answered over its serial port within 2s",
        &format!("its machine, process {machine}, is stopped: somebody has sent it SIGSTOP"),
        "the last that its console said, which is in ",
        "--resume` goes on",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(done.err.matches("ringside: ").count(), 1, "one error: {}", done.err);
    assert!(children.contains(&machine), "{children:?}");
    state.assert_nothing_is_left_of(pid, &children);
}

/// Also beside streams to it, which only get slower, and with its virtual CPUs pinned, which is to be put back.
#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_that_stands_still_ends_a_turn_of_probes() {
    if !is_root() {
        return;
    }
    hangs(
        "[[load]]\nname = \"own\"\nkind = \"tcp\"\nbitrate = \"5M\"\nstreams = 2\n\
         [[steering]]\nname = \"pinned\"\nguest = \"vm\"\nvcpus = [0, 1]\n\
         [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nrate = 100\nidle = false\nsteering = [\"pinned\"]\n",
        "p, round trip, loaded",
    );
}

/// Its program says nothing while it runs, here or there.
#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_that_stands_still_ends_a_turn_of_a_schedule() {
    if !is_root() {
        return;
    }
    hangs(
        "[[schedule]]\nname = \"s\"\nfrom = \"a\"\nto = \"vm\"\ncycle = \"50ms\"\nclass = [\"5:0ms:20ms\"]\nuncertainty = \"10ms\"\n",
        "s PCP 5, one way, idle",
    );
}
