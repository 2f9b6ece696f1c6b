//! Two labs with guests at the same time: one loses its link, and is killed when it goes on; the other one does not notice. Three boots.

use std::fs;
use std::time::Duration;

use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;

use super::broken::{State, remove_link};
use super::common::Running;
use super::guests::{PATIENCE, all_children_of, machine_of};
use super::{Scratch, alone, assert_nothing_is_left_of, has_ended, namespaces_of, result, turns};

/// A guest whose virtual CPUs are pinned, and the end of its link that spreads what it receives.
fn content(rounds: u32) -> String {
    format!(
        "rounds = {rounds}\nturn = \"500ms\"\nsettle = \"1ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
         [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n\
         [[steering]]\nname = \"threads\"\nguest = \"vm\"\nvcpus = [0, 1]\n\
         [[steering]]\nname = \"near\"\nhost = \"a\"\nrps = [\"0=1\"]\n\
         [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nrate = 100\nmeasure = [\"rtt\"]\n\
         steering = [\"threads\", \"near\"]\n"
    )
}

/// Files of a process's guests.
pub(super) fn folders_of(pid: u32) -> Vec<String> {
    let names = fs::read_dir(std::env::temp_dir()).expect("readable").flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&format!("rs-{pid}-")))
        .collect()
}

/// Waits until so many turns are on the disk and the next one is steered.
fn is_at_it(scratch: &Scratch, state: &State, name: &str, wanted: usize, running: &mut Running) {
    let is_so = || turns(&scratch.path(name)) >= wanted && !state.changes().is_empty();
    assert!(
        wait_until(PATIENCE, || is_so() || running.is_over()) && is_so(),
        "{name}: {}",
        running.told()
    );
}

#[test]
#[ignore = "make test-guests runs it"]
fn labs_with_guests_do_not_disturb_each_other() {
    /// Enough for one to go on while the other one breaks.
    const ROUNDS: u32 = 60;
    if !is_root() {
        return;
    }
    let _alone = alone();
    let (first, second) = (Scratch::new(), Scratch::new());
    let states = [State::new(&first), State::new(&second)];
    first.lab(&content(ROUNDS));
    second.lab(&content(500));
    let mut goes_on = states[0].start(&first, "run my.toml --into run --json");
    let mut breaks = states[1].start(&second, "run my.toml --into run");
    let pids = [goes_on.pid(), breaks.pid()];
    is_at_it(&second, &states[1], "run", 2, &mut breaks);
    is_at_it(&first, &states[0], "run", 2, &mut goes_on);

    // Its link goes while it is steered.
    let names = namespaces_of(pids[1]);
    let near = names.iter().find(|name| name.ends_with("lab-a")).expect("a host");
    let children = all_children_of(pids[1]);
    remove_link(near, "eth0");
    let done = breaks.end_within(Duration::from_secs(60));
    let told = done.bad();
    assert!(
        told.contains("the link at eth0 of the host a is gone: somebody removed it")
            && told.contains("--resume` goes on"),
        "{told}"
    );
    assert_eq!(done.err.matches("ringside: ").count(), 1, "one error: {}", done.err);
    assert_nothing_is_left_of(pids[1]);
    assert_eq!((folders_of(pids[1]), states[1].changes()), (Vec::new(), Vec::new()));
    assert!(
        !children.is_empty() && children.iter().all(|pid| has_ended(*pid)),
        "{children:?}"
    );

    assert!(!goes_on.is_over(), "{}", goes_on.told());
    assert_eq!(namespaces_of(pids[0]).len(), 2);

    // What was measured stays, and it goes on behind that; then it is killed.
    let kept = turns(&second.path("run"));
    let mut breaks = states[1].start(&second, "run my.toml --into run --resume");
    let killed = breaks.pid();
    is_at_it(&second, &states[1], "run", kept + 1, &mut breaks);
    let machine = machine_of(killed).expect("a machine");
    breaks.signal(libc::SIGKILL);
    assert!(!breaks.end().status.success());
    assert!(wait_until(Duration::from_secs(60), || has_ended(machine)), "{machine}");
    assert_eq!(namespaces_of(killed).len(), 2);
    let clean = states[1].start(&second, "clean run").end().good();
    assert_nothing_is_left_of(killed);
    assert_eq!(
        (folders_of(killed), states[1].changes()),
        (Vec::new(), Vec::new()),
        "{clean:#?}"
    );

    // The other one has seen nothing of that.
    let done = goes_on.end_within(PATIENCE).good();
    let result = result(&done.out);
    assert_eq!((result.rounds, result.interrupted), (ROUNDS, false));
    let [cell] = &result.cells[..] else {
        panic!("{result:#?}")
    };
    assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
    assert_eq!(cell.steering.len(), 2, "{cell:#?}");
    assert!(cell.probes.received * 2 > cell.probes.sent, "{cell:#?}");
    assert_nothing_is_left_of(pids[0]);
    assert_eq!((folders_of(pids[0]), states[0].changes()), (Vec::new(), Vec::new()));
}
