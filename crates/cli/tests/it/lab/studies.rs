//! The studies of `lab/`, each of them as it comes, and run with short turns: by `make test`, or by `make test-guests` where it has guests or many turns. Of
//! `steering-igb`, which takes two NICs, tests/guest/steering.rs does that.

use std::fs;
use std::path::Path;

use ringside_netlab::testing::is_root;

use super::guests::PATIENCE;
use super::{Scratch, alone, cannot_be_run, result, run, start};

const SHORT: [&str; 3] = ["smoke", "schedule", "steering"];
const LONG: [&str; 4] = [
    "host-to-host",
    "host-to-guest",
    "host-to-guest-vhost-user",
    "host-to-guest-xdp",
];
const NICS: [&str; 1] = ["steering-igb"];

fn read(study: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../lab/{study}.toml"));
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// One round, of such turns.
fn shortened(study: &str, turn: &str) -> String {
    let short = |line: &str| match line.split_once('=').map(|(key, _)| key.trim()) {
        Some("rounds") => "rounds = 1".to_owned(),
        Some("turn") => format!("turn = {turn:?}"),
        _ => line.to_owned(),
    };
    let text = read(study);
    text.lines().map(|line| short(line) + "\n").collect()
}

#[test]
fn all_are_right_and_tried_somewhere() {
    let scratch = Scratch::new();
    let folder = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab")).expect("studies");
    let mut names: Vec<String> = folder
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut tried = [&SHORT[..], &LONG, &NICS].concat();
    tried.sort_unstable();
    assert_eq!(names, tried);
    for name in &names {
        scratch.lab(&read(name));
        let file = run(&scratch, "check my.toml");
        // The same comes with the program.
        assert_eq!(run(&scratch, &format!("check {name}")).out, file.out);
        assert!(file.out.contains("rounds of"), "{file:#?}");
        // Right it is; whether it can be run here is the machine's business.
        if !file.status.success() {
            cannot_be_run(&file);
        }
    }
}

#[test]
fn the_short_ones_run() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    for study in SHORT {
        let scratch = Scratch::new();
        // Longer than a busy host takes the machine away for.
        scratch.lab(&shortened(study, "500ms"));
        let result = result(&run(&scratch, "run my.toml --into run --json").good().out);
        assert!(!result.cells.is_empty(), "{study}");
        for cell in &result.cells {
            // What the hypervisor took the machine away from is not there.
            let is_had = cell.unavailable.is_none() && cell.probes.received > 0;
            assert!(is_had || cell.turns_left_out > 0, "{study}: {cell:#?}");
        }
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn the_long_ones_run() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    for study in LONG {
        let scratch = Scratch::new();
        scratch.lab(&shortened(study, "1s"));
        let done = start(&scratch, "run my.toml --into run --json")
            .end_within(PATIENCE * 4)
            .good();
        let result = result(&done.out);
        for cell in &result.cells {
            // What this machine cannot have says so; these are everywhere.
            let is_had = cell.unavailable.is_none() && cell.probes.received > 0;
            let may_lack = study != "host-to-host" && !cell.path.starts_with("tap-bridge");
            assert!(is_had || may_lack, "{study}: {cell:#?}");
            eprintln!("{study}: {}: {:?}", cell.path, cell.unavailable);
        }
    }
}
