//! What the command line changes of a lab, and what a lab is said to do.

use std::fs;

use ringside_measure::schema::LatencyKind;
use ringside_netlab::testing::is_root;

use super::{HOSTS, PATIENCE, Scratch, alone, probe, result, rows, run, start, turns};
use crate::common::unwrapped;

/// Two probes; far longer than a test may take, unless it is shortened.
fn content() -> String {
    let head = "rounds = 50\nturn = \"60s\"\nsettle = \"1ms\"\n";
    let rtt = "measure = [\"rtt\"]";
    let probes = ["first", "second"].map(|name| probe(name, &format!("with = \"udp\"\n{rtt}")));
    [head, HOSTS, &probes[0], &probes[1]].concat()
}

#[test]
fn rounds_turns_and_probes_are_those_of_the_command_line() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&content());
    let options = "--rounds 3 --turn 30ms --only second";
    let line = format!("run my.toml {options} --into run --json");
    let done = start(&scratch, &line).end_within(PATIENCE).good();
    let lab = result(&done.out);
    assert_eq!((lab.rounds, lab.turn_ns, lab.interrupted), (3, 30_000_000, false));
    assert_eq!(rows(&lab.cells), [("second", LatencyKind::RoundTrip, false)]);
    assert_eq!(lab.base, "second");
    assert!(done.err.contains("1 cell, 3 rounds of 30.0 ms each"), "{}", done.err);
    let repeat = unwrapped(&fs::read_to_string(scratch.path("run/report.html")).unwrap());
    assert!(repeat.contains(options), "how to repeat it: {repeat}");

    // What is there of it is reported as it was measured, and goes on so.
    fs::remove_file(scratch.path("run/result.json")).unwrap();
    fs::remove_file(scratch.path("run/turns/0002-001.json")).unwrap();
    let again = run(&scratch, "run my.toml --into run --resume --json").good();
    assert_eq!(result(&again.out).rounds, 3);
    assert_eq!(turns(&scratch.path("run")), 3);
    let list = run(&scratch, "report run -o - ").good().out;
    assert!(list.contains("second, round trip, idle"), "{list}");
    fs::remove_file(scratch.path("run/result.json")).unwrap();
    let told = run(&scratch, "run my.toml --into run --resume --rounds 4").bad();
    assert!(
        told.contains("was begun with --rounds 3 --turn 30000us --only second, and this is --rounds"),
        "{told}"
    );
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    let scratch = Scratch::new();
    scratch.lab(&content());
    for (options, part) in [
        ("--rounds 0", "is no number from 1 to 10000"),
        ("--rounds many", "is no number from 1 to 10000"),
        ("--turn 5", "is no time with a unit"),
        ("--turn 2h", "is out of range: 1us to 60min"),
        (
            "--only third",
            "the lab my.toml has no probe or schedule of that name; it has first, second",
        ),
        (
            "--only first,",
            "--only : the lab my.toml has no probe or schedule of that name",
        ),
    ] {
        for command in ["run", "check", "show"] {
            let done = run(&scratch, &format!("{command} my.toml {options}"));
            assert_eq!(done.status.code(), Some(2), "{command} {options}: {done:#?}");
            assert!(unwrapped(&done.err).contains(part), "{command} {options}: {done:#?}");
        }
    }
    assert!(!scratch.path("ringside-lab").exists());
}

#[test]
fn a_lab_is_shown_wherever_it_can_run() {
    let scratch = Scratch::new();
    let shown = unwrapped(&run(&scratch, "show host-to-guest").good().out);
    for part in [
        "Host to guest: eight ways to attach it",
        "guest tap-bridge of ",
        "tap-bridge, 2 CPUs (1 if emulated), 768 MiB",
        "link ",
        "probe tap-bridge: ",
        "rounds of ",
        " min at least",
        "It needs:",
        "- root (CAP_SYS_ADMIN, CAP_NET_ADMIN)",
        "- QEMU for 1 guest with 2 CPUs",
        "with KVM they are fast",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    // Of NICs, servers and programs that are not here nobody asks.
    scratch.lab(
        "[[host]]\nname = \"me\"\nplace = \"here\"\n\
         [[host]]\nname = \"far\"\nserve = \"192.0.2.7\"\n\
         [[host]]\nname = \"a\"\ncpu = 3\n[[host]]\nname = \"b\"\n\
         [[link]]\nends = [\"a\", \"b\"]\ninterfaces = [\"nic0\", \"nic1\"]\n\
         [[load]]\nname = \"l\"\nkind = \"program\"\ncommand = [\"nowhere-to-be-found\"]\n\
         [[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\n\
         [[probe]]\nname = \"q\"\nfrom = \"a\"\nto = \"b\"\nwith = \"xsk\"\nloads = []\n",
    );
    let shown = unwrapped(&run(&scratch, "show my.toml").good().out);
    for part in [
        "- programs: nowhere-to-be-found",
        "- the interfaces nic0, nic1",
        "- `ringside serve` at 192.0.2.7",
        "- CPUs 3",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    // What is left out is not needed; and the time is that of the rest.
    let part = unwrapped(&run(&scratch, "show my.toml --only q --rounds 2 --turn 10s").good().out);
    assert!(!part.contains("192.0.2.7") && !part.contains("nowhere"), "{part}");
    assert!(
        part.contains("2 cells, 2 rounds of 10.0 s each: about 40 s at least"),
        "{part}"
    );
    let toml = run(&scratch, "show smoke --toml").good().out;
    assert_eq!(toml, include_str!("../../../../../lab/smoke.toml"));
    let told = run(&scratch, "show nothing").bad();
    assert!(told.contains("reading the lab file nothing"), "{told}");
}
