//! `ringside tune` on a veth: shown, changed for a command, until Ctrl-C or until undone, and put back in every case.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common;
use crate::common::{Done, Running, Settings, lab, ringside, settings, start};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, wait_until};
use ringside_nic::Knob;
use serde_json::Value;

/// A veth pair of two queues, and a state directory of its own: the runs of other tests put back what is left behind.
struct Bed {
    lab: Lab,
    folder: PathBuf,
}

impl Bed {
    fn new(tag: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ringside-{tag}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        Self {
            lab: lab(tag, 2),
            folder,
        }
    }

    fn command(&self, arguments: &str, behind: &[&str]) -> Command {
        let mut command = ringside(&self.lab.a, arguments);
        command.env("RINGSIDE_STATE_DIR", &self.folder).args(behind);
        command
    }

    fn start(&self, arguments: &str, behind: &[&str]) -> Running {
        Running::new(self.command(arguments, behind))
    }

    fn run(&self, arguments: &str) -> Done {
        self.start(arguments, &[]).end()
    }

    /// All that these tests change.
    fn now(&self) -> Now {
        let end = &self.lab.a;
        let knob = |knob: &Knob| end.run(|| end.interface.knob(knob).unwrap());
        Now {
            settings: settings(end),
            rps: [0, 1].map(|queue| knob(&Knob::RpsCpus { queue })),
            xps: [0, 1].map(|queue| knob(&Knob::XpsCpus { queue })),
            gro: knob(&Knob::offload("gro")),
            threaded: end.run(|| end.interface.napi().unwrap().threaded),
        }
    }

    fn state_files(&self) -> usize {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.path().extension().is_some_and(|kind| kind == "json"))
            .count()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Now {
    settings: Settings,
    rps: [String; 2],
    xps: [String; 2],
    gro: String,
    threaded: bool,
}

/// Everything that a veth has.
const ALL: &str = "tune {} --gro on --rps 0-1 --xps 1,0 --threaded-napi=0 --offload tx-tcp-segmentation=off,gso=off";

fn assert_all(now: &Now) {
    assert_eq!(now.rps, ["0-1", "0-1"]);
    assert_eq!(now.xps, ["1", "0"]);
    assert!(now.threaded);
    let on = |name: &str| now.settings.features_named(name);
    assert_eq!(
        [on("tx-tcp-segmentation"), on("tx-generic-segmentation")],
        [false, false]
    );
}

#[test]
fn what_there_is_is_shown_and_nothing_changed() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tuneshow");
    let before = bed.now();
    let text = bed.run("tune {}").good().out;
    for line in [
        "cpu_dma_latency ",
        "RPS CPUs of receive queue 1 ",
        "offload rx-gro  ",
        "coalescing                               - (the driver does not offer it)",
        "IRQ affinity                             - (the interface has no interrupts of its own)",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let json = bed.run("tune {} --json").good().json();
    assert_eq!(json["schema"], "ringside.tune/1");
    assert_eq!(json["mode"], "show");
    let setting = |name: &str| {
        let all = json["settings"].as_array().unwrap();
        all.iter()
            .find(|one| one["name"] == name)
            .unwrap_or_else(|| panic!("{name} in {json}"))
            .clone()
    };
    assert_eq!(setting("offload rx-gro")["value"], "on");
    assert_eq!(setting("coalescing")["value"], Value::Null);
    assert!(setting("coalescing")["reason"].is_string());

    // A dry run tells what would be, with what cannot be had, and touches nothing.
    let dry = bed
        .run(&format!("{ALL} --latency --dma-latency 5 --dry-run --json"))
        .good();
    let json = dry.json();
    assert_eq!(json["mode"], "dry_run");
    let change = |what: &str| {
        json["changes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["what"] == what)
            .cloned()
    };
    let gso = change("offload tx-generic-segmentation").unwrap();
    assert_eq!((&gso["before"], &gso["after"]), (&"on".into(), &"off".into()));
    assert_eq!(change("cpu_dma_latency").unwrap()["after"], "5 µs");
    let without: Vec<_> = json["unavailable"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert!(without.contains(&"coalescing".into()), "{json}");
    assert_eq!(bed.now(), before);
    assert_eq!(bed.state_files(), 0);
}

#[test]
fn changes_last_as_long_as_the_command() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tunerun");
    let before = bed.now();
    let flag = bed.folder.with_extension("flag");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done; exit 7", flag.display());
    let report = bed.folder.with_extension("report");
    let arguments = format!("{ALL} --dma-latency 7 --json-file {} --", report.display());
    let running = bed.start(&arguments, &["sh", "-c", &format!("echo begun >&2; {wait}")]);
    running.wait_for("begun");
    assert_all(&bed.now());
    assert!(ringside_nic::host::WakeUpLimit::now().unwrap() <= 7);
    fs::write(&flag, "").unwrap();
    let done = running.end();
    assert_eq!(done.status.code(), Some(7), "the command's: {done:#?}");
    assert!(
        done.err.contains("RPS CPUs of receive queue 0 (none → 0-1): restored"),
        "{done:#?}"
    );
    assert_eq!(bed.now(), before);
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let restored = json["restored"].as_array().unwrap();
    assert!(
        restored.len() >= 7 && restored.iter().all(|one| one["outcome"] != "failed"),
        "{json}"
    );
    fs::remove_file(&report).unwrap();
    fs::remove_file(&flag).unwrap();

    // A command that is not there, and one that is told to end.
    let missing = bed.start("tune {} --gro off --", &["/no/such/command"]).end().bad();
    assert!(missing.contains("/no/such/command"), "{missing}");
    assert_eq!(bed.now(), before);
    let running = bed.start("tune {} --gro off --", &["sh", "-c", "echo begun >&2; exec sleep 60"]);
    running.wait_for("begun");
    assert_eq!(bed.now().gro, "off");
    running.signal(libc::SIGTERM);
    assert_eq!(running.end().status.code(), Some(128 + libc::SIGTERM));
    assert_eq!(bed.now(), before);
    assert_eq!(bed.state_files(), 0);
}

#[test]
fn changes_are_held_until_ctrl_c() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tunehold");
    let before = bed.now();
    let held = bed.start(&format!("{ALL} --hold"), &[]);
    held.wait_for("held until Ctrl-C");
    assert_all(&bed.now());
    held.interrupt().good();
    assert_eq!(bed.now(), before);
}

#[test]
fn changes_that_stay_are_undone_when_it_is_asked_for() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tunekeep");
    let before = bed.now();
    let done = bed.run(ALL).good();
    assert!(done.out.contains("until `ringside tune --undo`"), "{done:#?}");
    assert_all(&bed.now());
    // The next run of whatever kind does not take it for left behind.
    let next = bed.run("tune {}").good();
    assert!(!next.err.contains("left changes behind"), "{next:#?}");
    assert_all(&bed.now());
    let json = bed.run("tune --undo --json").good().json();
    assert_eq!(json["mode"], "undo");
    let outcomes: Vec<_> = json["restored"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["outcome"].clone())
        .collect();
    assert!(outcomes.len() >= 7, "{json}");
    assert!(outcomes.iter().all(|outcome| *outcome != "failed"), "{json}");
    assert_eq!(bed.now(), before);
    assert_eq!(bed.state_files(), 0);
    assert!(bed.run("tune --undo").good().out.contains("nothing was left in place"));
}

#[test]
fn what_a_killed_run_left_is_put_back_by_the_next() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tunekill");
    let before = bed.now();
    let pid = bed.folder.with_extension("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60", pid.display());
    let running = bed.start(&format!("{ALL} --"), &["sh", "-c", &script]);
    assert!(wait_until(common::PATIENCE, || pid.exists()));
    running.signal(libc::SIGKILL);
    drop(running);
    assert_all(&bed.now());
    let next = bed.run("tune {} --json").good();
    assert!(next.err.contains("left changes behind"), "{next:#?}");
    assert_eq!(bed.now(), before);
    // The command has outlived it.
    let sleeper: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    // SAFETY: no memory is involved; `sleep` runs on under the number that it has told, for a minute.
    unsafe { libc::kill(sleeper, libc::SIGKILL) };
    fs::remove_file(&pid).unwrap();
}

#[test]
fn what_cannot_be_had_is_an_error_only_if_it_was_asked_for() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tunenot");
    let before = bed.now();
    let done = bed.run("tune {} --latency").good();
    assert!(
        done.out.contains("coalescing: left out: the driver does not offer it"),
        "{done:#?}"
    );
    assert!(
        done.out
            .contains("cpu_dma_latency: left out: it lasts only while it is held open"),
        "{done:#?}"
    );
    assert_eq!(bed.now().gro, "off");
    bed.run("tune {} --undo").good();
    for (arguments, words) in [
        (
            "--coalesce rx-usecs=5",
            "coalescing cannot be set here: the driver does not offer it",
        ),
        (
            "--irq-cpus 0",
            "IRQ affinity cannot be set here: the interface has no interrupts",
        ),
        ("--dma-latency 0", "give a command behind --, or --hold"),
        ("--offload tx-lockless=off", "tx-lockless cannot be set here"),
        ("--offload no-such=on", "no-such"),
        // The one is set by the time that the other fails.
        ("--gro off --threaded-napi", "NAPI instance"),
        ("--gro off --rps 4000", "--rps: CPU 4000 is not online"),
    ] {
        let message = bed.run(&format!("tune {{}} {arguments}")).bad();
        assert!(message.contains(words), "{arguments}: {message}");
        assert_eq!(bed.now(), before, "{arguments}");
        assert_eq!(bed.state_files(), 0, "{arguments}");
    }
}

#[test]
fn nonsense_is_refused() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("tunebad");
    for (arguments, words) in [
        ("tune", "which interface?"),
        ("tune no-such-0", "no interface named 'no-such-0'"),
        ("tune {} --dry-run", "nothing is to be changed"),
        ("tune {} --hold", "nothing is to be changed"),
        ("tune {} -- true", "nothing is to be changed"),
        ("tune {} --gro off --hold -- true", "--hold and a command"),
        ("tune {} --gro off --json -- true", "--json-file"),
        ("tune {} --undo --gro off", "--undo puts back"),
        ("tune {} --gro maybe", "neither on nor off"),
        ("tune {} --coalesce rx-usecs", "NAME=VALUE"),
        ("tune {} --coalesce rx-minutes=1", "rx-usecs, rx-frames"),
        ("tune {} --coalesce rx-usecs=-1", "no time of whole microseconds"),
        ("tune {} --coalesce adaptive-rx=1", "neither on nor off"),
        ("tune {} --offload rx-gro", "NAME=VALUE"),
        ("tune {} --rps 1-0", "runs backwards"),
        ("tune {} --irq-cpus none", "is no number"),
        ("tune {} --dma-latency -1", "-1"),
        ("tune {} --governor ../../x", "is no name"),
    ] {
        let message = bed.run(arguments).refused();
        assert!(message.contains(words), "{arguments}: {message}");
    }
    // As `start` does it, without a directory of its own.
    let message = start(&bed.lab.a, "tune {} --threaded-napi=x").end().refused();
    assert!(message.contains("is no number"), "{message}");
}
