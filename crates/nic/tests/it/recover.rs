//! What a killed process left is put back by another, and several processes do not disturb each other.
//!
//! The other processes are this very binary, started once more in the namespace of an end: the test [`child`] then
//! plays the part that the environment names.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::common::{Bed, assert_restored, deferral, outcomes};
use ringside_netlab::testing;
use ringside_nic::Interface;
use ringside_nic::changes::{Changes, Outcome, Protection, Restored, STATE_DIR};

const PART: &str = "RINGSIDE_TEST_PART";

/// Another process that plays a part and has said that it did.
fn play(bed: &Bed, part: &str) -> Player {
    let mut command = bed.end().ns.command(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "recover::child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PART, part)
        .env(STATE_DIR, &bed.directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // It dies with the thread that starts it: this one.
    let mut child = command.spawn().unwrap();
    let mut player = Player {
        input: child.stdin.take(),
        output: BufReader::new(child.stdout.take().unwrap()),
        child,
    };
    player.says("done");
    player
}

struct Player {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Player {
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.trim_end().ends_with(what) {
                return;
            }
            line.clear();
        }
        panic!("it ended without saying '{what}'");
    }

    fn kill(mut self) -> u32 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child.id()
    }

    /// Lets it end as it does by itself.
    fn finish(mut self) {
        self.input.take().unwrap().write_all(b"end\n").unwrap();
        self.says("restored");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: what the other processes do.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let part = std::env::var(PART).expect("a part");
    let interface = Interface::by_name("veth-a").expect("in the namespace");
    let changes = Changes::new();
    let undo = match part.as_str() {
        "threaded" => changes.set_napi_threaded(&interface, true).unwrap(),
        polls => {
            let deferral = deferral(polls.parse().unwrap());
            changes.set_deferral(&interface, &[0, 1], deferral).unwrap().1
        }
    };
    println!("done");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(undo);
    println!("restored");
}

#[test]
fn what_a_killed_process_left_is_put_back_by_the_next() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chkill");
    assert_eq!(bed.recover(), [], "no directory yet, and none is made");
    assert!(!bed.directory.exists());
    let player = play(&bed, "3");
    assert_eq!(bed.polls(), (3, vec![3, 3]));
    assert_eq!(bed.recover(), [], "it is alive");
    let pid = player.kill();
    assert_eq!(bed.polls(), (3, vec![3, 3]));
    // From outside the namespace, which is found again.
    let [left] = bed.recover().try_into().unwrap();
    assert_eq!((left.pid, left.problem.as_deref()), (pid, None));
    assert_restored(&left.changes);
    assert_eq!(left.changes.len(), 8);
    let told = left.to_string();
    assert!(
        told.contains(&format!("process {pid} (")) && told.contains("napi_defer_hard_irqs (0 → 3): restored"),
        "{told}"
    );
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(bed.files().is_empty());
    assert_eq!(bed.recover(), []);
}

#[test]
fn two_processes_end_in_any_order_and_the_last_restores() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chtwo");
    // First in, first out.
    let undo = bed.defer(3);
    let player = play(&bed, "7");
    assert_eq!(bed.polls(), (7, vec![7, 7]));
    assert_eq!(bed.files().len(), 2);
    let restored = undo.restore();
    let pid = player.child.id();
    assert!(
        outcomes(&restored)
            .iter()
            .all(|outcome| **outcome == Outcome::HandedOver { pid }),
        "{restored:?}"
    );
    assert_eq!(bed.polls(), (7, vec![7, 7]), "the other one still wants it");
    player.finish();
    assert_eq!(bed.polls(), (0, vec![0, 0]));

    // Last in, first out.
    let player = play(&bed, "7");
    let undo = bed.defer(3);
    assert_restored(&undo.restore());
    assert_eq!(bed.polls(), (7, vec![7, 7]));
    player.finish();
    assert_eq!(bed.polls(), (0, vec![0, 0]));

    // The first is killed while the second lives.
    let player = play(&bed, "7");
    let undo = bed.defer(3);
    player.kill();
    let [left] = bed.recover().try_into().unwrap();
    let own = Outcome::HandedOver {
        pid: std::process::id(),
    };
    assert!(left.changes.iter().all(|change| change.outcome == own), "{left}");
    assert_eq!(bed.polls(), (3, vec![3, 3]));
    assert_restored(&undo.restore());
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(bed.files().is_empty());
}

#[test]
fn a_process_with_the_number_of_the_killed_one_is_not_taken_for_it() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chreuse");
    play(&bed, "3").kill();
    let [file] = bed.files().try_into().unwrap();
    let mut sheet: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    // This process has the number now, and started at another time.
    let pid = std::process::id();
    sheet["owner"]["pid"] = pid.into();
    fs::remove_file(&file).unwrap();
    let renamed = bed
        .directory
        .join(format!("changes-{pid}-{}.json", sheet["owner"]["start"]));
    fs::write(&renamed, sheet.to_string()).unwrap();
    let [left] = bed.recover().try_into().unwrap();
    assert_restored(&left.changes);
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(!renamed.exists());

    // The same before a restart of the machine: nothing of it is left to be put back.
    bed.run(|interface| interface.set_napi_defer_hard_irqs(3)).unwrap();
    sheet["owner"]["boot"] = "00000000-0000-0000-0000-000000000000".into();
    fs::write(&renamed, sheet.to_string()).unwrap();
    assert_eq!(bed.recover(), []);
    assert_eq!(bed.polls(), (3, vec![3, 3]));
    assert!(!renamed.exists(), "of no use any more");

    // Not understood: told and left.
    fs::write(&renamed, "{").unwrap();
    let [left] = bed.recover().try_into().unwrap();
    let told = left.to_string();
    assert!(told.contains("not understood") && told.contains("changes-"), "{told}");
    assert!(renamed.exists());
}

#[test]
fn what_no_longer_exists_needs_nothing() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chgone");
    // The instances end and new ones begin with what the interface has: they follow it back.
    let undo = bed.defer(3);
    bed.end().set_up(false).unwrap();
    bed.end().set_up(true).unwrap();
    assert_eq!(bed.polls(), (3, vec![3, 3]));
    let restored = undo.restore();
    let gone = outcomes(&restored).iter().filter(|one| ***one == Outcome::Gone).count();
    assert_eq!(gone, 6, "{restored:?}");
    assert_eq!(bed.polls(), (0, vec![0, 0]));

    play(&bed, "3").kill();
    bed.lab.delete_link().unwrap();
    let [left] = bed.recover().try_into().unwrap();
    assert!(left.changes.iter().all(|one| one.outcome == Outcome::Gone), "{left}");
    assert!(bed.files().is_empty());

    // And with the namespace.
    let bed = Bed::new("chgone2");
    let undo = bed.defer(3);
    let directory = bed.directory.clone();
    drop(bed);
    fs::create_dir(&directory).unwrap();
    let restored = undo.restore();
    assert!(restored.iter().all(|one| one.outcome == Outcome::Gone), "{restored:?}");
    let _ = fs::remove_dir_all(&directory);
}

/// Most drivers give an instance its settings again when the interface comes up: so it is not gone while that is down.
#[test]
fn an_instance_that_is_away_is_waited_for() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chaway");
    let undo = bed.defer(3);
    bed.end().set_up(false).unwrap();
    let restored = undo.restore();
    let failed = |one: &&Restored| matches!(&one.outcome, Outcome::Failed { error } if error.contains("is down"));
    assert_eq!(restored.iter().filter(failed).count(), 6, "{restored:?}");
    assert_eq!(bed.files().len(), 1);
    // It is left behind, although this process lives. A veth's instances are new ones.
    bed.end().set_up(true).unwrap();
    let [left] = bed.recover().try_into().unwrap();
    assert_eq!((left.pid, left.changes.len()), (std::process::id(), 6));
    assert!(left.changes.iter().all(|one| one.outcome == Outcome::Gone), "{left}");
    assert!(bed.files().is_empty());
    assert_eq!(bed.polls(), (0, vec![0, 0]));
}

/// Threaded polling cannot be switched off without instances: it stays written down until it can.
#[test]
fn what_cannot_be_put_back_now_is_put_back_later() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chlater");
    let gro = |on| bed.run(|interface| interface.set_feature("rx-gro", on)).unwrap();
    let threaded = || bed.run(|interface| interface.napi()).unwrap().threaded;
    let killed_without_instances = || {
        play(&bed, "threaded").kill();
        gro(false);
        let [left] = bed.recover().try_into().unwrap();
        let failed = left
            .changes
            .iter()
            .any(|one| matches!(&one.outcome, Outcome::Failed { error } if error.contains("no NAPI instance")));
        assert!(failed && threaded(), "{left}");
        assert_eq!(bed.files().len(), 1);
        gro(true);
    };
    killed_without_instances();
    let [left] = bed.recover().try_into().unwrap();
    assert_restored(&left.changes);
    assert!(!threaded());

    // Or by the end of the next one that sets the same.
    killed_without_instances();
    let undo = bed
        .run(|interface| bed.changes.set_napi_threaded(interface, true))
        .unwrap();
    drop(undo);
    assert!(!threaded());
    assert_eq!(bed.recover(), []);
}

/// Two processes and four threads of this one, each with changes of its own.
#[test]
fn many_at_once_do_not_disturb_each_other() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chmany");
    let players: Vec<_> = ["11", "12"].map(|polls| play(&bed, polls)).into();
    std::thread::scope(|scope| {
        for n in 1..=4 {
            let bed = &bed;
            scope.spawn(move || {
                for round in 0..5 {
                    let undo = bed.defer(n * 10 + round);
                    assert!(matches!(undo.protection(), Protection::StateFile(_)));
                    drop(undo);
                }
            });
        }
    });
    for player in players {
        player.finish();
    }
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(bed.files().is_empty());
}
