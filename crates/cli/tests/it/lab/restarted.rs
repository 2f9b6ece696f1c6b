//! A guest that ends in the middle of a run: it is started again, the turn is repeated, and that is reported.

use std::fs;
use std::time::Duration;

use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;

use super::broken::State;
use super::common::Running;
use super::guests::{PATIENCE, all_children_of, machine_of};
use super::{Scratch, alone, kill, result, turns, unwrapped};

const HEAD: &str = "turn = \"2s\"\nsettle = \"20ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                    [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
                    [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n\
                    [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nrate = 100\n";

/// Its process is killed in a turn beside loads, with its virtual CPUs pinned.
#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_that_is_killed_is_started_again_and_its_turn_repeated() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let rest = "steering = [\"pinned\"]\n\
                [[load]]\nname = \"own\"\nkind = \"tcp\"\nbitrate = \"1M\"\n\
                [[steering]]\nname = \"pinned\"\nguest = \"vm\"\nvcpus = [0, 1]\n";
    scratch.lab(&["rounds = 2\n", HEAD, rest].concat());
    let mut running = state.start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let mut wait_for = |condition: &dyn Fn(&Running) -> bool| {
        wait_until(PATIENCE, || condition(&running) || running.is_over());
        assert!(condition(&running), "{}", running.told());
    };
    wait_for(&|running| running.told().contains("round 1: p, round trip, loaded"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(turns(&scratch.path("run")), 1);
    let first = machine_of(pid).expect("a machine");
    kill(first);
    wait_for(&|_| machine_of(pid).is_some_and(|now| now != first));
    let children = all_children_of(pid);
    let done = running.end_within(PATIENCE).good();

    let lab = result(&done.out);
    assert!(!lab.interrupted, "{lab:#?}");
    assert_eq!(lab.cells.len(), 2);
    for cell in &lab.cells {
        assert_eq!(
            (&cell.unavailable, cell.failed_turns, cell.rounds.len()),
            (&None, 0, 2),
            "{cell:#?}"
        );
        assert!(cell.probes.received > 100, "{cell:#?}");
    }
    let [restart] = lab.restarts.as_slice() else {
        panic!("{:#?}", lab.restarts)
    };
    assert_eq!(
        (restart.guest.as_str(), restart.turn.as_str()),
        ("vm", "p, round trip, loaded")
    );
    assert!(restart.reason.contains("the last that its console said"), "{restart:?}");
    let told = "urns repeated, because a guest ended in them and was started again: 1 (vm in p, round trip, loaded: ";
    let text = unwrapped(&done.err);
    assert!(text.contains(told), "{text}");
    assert!(
        text.contains("p, round trip, loaded: the guest vm has ended and is started again"),
        "{text}"
    );
    let page = fs::read_to_string(scratch.path("run/report.html")).expect("a report");
    assert!(page.contains(told), "{page}");
    assert_eq!(done.err.matches("ringside: ").count(), 0, "{}", done.err);
    // What each boot said is kept.
    for console in ["console-vm.log", "console-vm-2.log"] {
        assert!(scratch.path("run").join(console).is_file(), "{console}");
    }
    state.assert_nothing_is_left_of(pid, &children);
}

/// Its own kernel panics in each loaded turn: that cell has no times, and all else is measured.
#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_that_panics_each_time_costs_its_cell_only() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let panics = "[[load]]\nname = \"panics\"\nkind = \"program\"\nguest = \"vm\"\n\
                  command = [\"sh\", \"-c\", \"sleep 1; echo c >/proc/sysrq-trigger; sleep 60\"]\n";
    scratch.lab(&["rounds = 1\n", HEAD, panics].concat());
    let running = state.start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let done = running.end_within(PATIENCE).good();
    let lab = result(&done.out);
    let [idle, loaded] = lab.cells.as_slice() else {
        panic!("{lab:#?}")
    };
    assert_eq!((&idle.unavailable, idle.failed_turns), (&None, 0), "{idle:#?}");
    let why = loaded.unavailable.as_ref().expect("it is told");
    assert!(why.contains("the guest vm ended in each of 3 tries; "), "{why}");
    assert!(why.contains("sysrq"), "the kernel's own words: {why}");
    assert_eq!(lab.restarts.len(), 3, "{:#?}", lab.restarts);
    assert!(
        lab.restarts
            .iter()
            .all(|restart| restart.reason.contains("Kernel panic")),
        "{lab:#?}"
    );
    assert!(!lab.interrupted);
    state.assert_nothing_is_left_of(pid, &[]);
}
