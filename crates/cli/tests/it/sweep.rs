//! `ringside sweep` on the real kernel, and `--config` with what it wrote.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::{Done, Running, assert_clean, lab, ringside, settings, start_receiver};
use ringside_measure::schema::{Operation, Outcome, SweepResult};
use ringside_measure::sweep::{Method, Verdict};
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_netlab::{Lab, Namespace, VethConfig};

/// Each pins spinning threads to both CPUs: two at once would measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sweep(line: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.arg("sweep").args(line.split_whitespace());
    Running::new(command)
}

fn result(done: &Done) -> SweepResult {
    match done.document().result {
        Outcome::Sweep(result) => *result,
        other => panic!("not a sweep: {other:?}"),
    }
}

/// A file for a test, removed with it.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}.toml", std::process::id())))
    }

    fn with(name: &str, text: &str) -> Self {
        let file = Self::new(name);
        fs::write(&file.0, text).expect("written");
        file
    }

    fn shown(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

/// What holds of every sweep, whatever the machine did.
fn check(result: &SweepResult) {
    let names: Vec<&String> = result.knobs.iter().map(|knob| &knob.name).collect();
    for one in &result.configurations {
        assert!(names.iter().all(|name| one.settings.contains_key(*name)), "{one:#?}");
        assert_eq!(one.figure.is_none(), one.failure.is_some(), "{one:#?}");
        if let Some(figure) = one.figure {
            assert!(
                figure.min > 0.0 && figure.min <= figure.median && figure.median <= figure.max,
                "{one:#?}"
            );
            assert_eq!(
                figure.rounds_used + figure.rounds_left_out,
                one.rounds.len(),
                "{one:#?}"
            );
        }
    }
    assert_eq!(result.configurations[0].ratio_to_base, None);
    for knob in &result.knobs {
        assert!(
            knob.levels[0].verdict.is_none() && knob.levels[0].ratio_to_base.is_none(),
            "{knob:#?}"
        );
        for level in &knob.levels[1..] {
            let ratio = level.ratio_to_base;
            let has_interval = ratio.is_some_and(|ratio| ratio.low.is_some());
            assert!(has_interval || level.verdict == Some(Verdict::CannotTell), "{knob:#?}");
        }
    }
    let best = result
        .configurations
        .iter()
        .find(|one| one.settings == result.best.settings);
    assert_eq!(best.expect("one of them").figure, result.best.figure);
    assert_eq!(
        result.best.is_base,
        result.best.settings == result.configurations[0].settings
    );
}

#[test]
fn a_grid_is_swept_and_what_cannot_be_had_is_told() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let file = File::new("grid");
    let line = format!(
        "--lab veth --rounds 3 --confirm 2 --slot-ms 40 --knob batch=16,64 --knob wait=poll,spin --knob mode=native,zero-copy \
         --knob frames=1024 --json --write {}",
        file.shown()
    );
    // A turn without a CPU has no figure.
    let done = measured(|| {
        let done = sweep(&line).end();
        let has_figures = done.status.success();
        if !has_figures {
            let message = done.bad();
            assert!(message.contains("the base configuration gave no figure"), "{message}");
        }
        expect(has_figures, "the base configuration gave no figure")?;
        Ok(done)
    });
    let found = result(&done);
    check(&found);
    assert_eq!(
        (found.objective.as_str(), found.figure_of.as_str()),
        ("rx-rate", "packets_pps")
    );
    assert_eq!(
        (found.operation, found.method, found.more_is_better),
        (Operation::Rx, Method::Grid, true)
    );
    assert_eq!(
        (found.rounds, found.round_duration_ns, found.interrupted),
        (3, 40_000_000, false)
    );
    // The option's default is the base, whatever came first.
    let knobs: Vec<(&str, Vec<&str>)> = found
        .knobs
        .iter()
        .map(|knob| {
            (
                knob.name.as_str(),
                knob.levels.iter().map(|level| level.level.as_str()).collect(),
            )
        })
        .collect();
    assert_eq!(knobs, [("batch", vec!["64", "16"]), ("wait", vec!["spin", "poll"])]);
    assert_eq!(found.configurations.len(), 4);
    assert_eq!(found.unavailable.len(), 1);
    assert_eq!(
        (found.unavailable[0].knob.as_str(), found.unavailable[0].level.as_str()),
        ("mode", "zero-copy")
    );
    assert!(
        found.unavailable[0].reason.contains("Operation not supported"),
        "{found:#?}"
    );
    // What has one level holds for all, what is left of a knob included.
    for one in &found.configurations {
        assert_eq!(
            (one.settings["frames"].as_str(), one.settings["mode"].as_str()),
            ("1024", "native")
        );
    }
    for part in ["left out: mode zero-copy", "rx-rate", "x base", "Best: "] {
        assert!(done.err.contains(part), "{part} in {}", done.err);
    }
    // The file is what the result has, and an option file.
    let written = fs::read_to_string(&file.0).expect("written");
    assert_eq!(written, found.best.config);
    for line in ["frames = 1024", "mode = \"native\"", "batch = ", "wait = "] {
        assert!(written.contains(line), "{written}");
    }
    takes(&file);
}

/// A run with the file's options: they are in its result, and in the command line that repeats it.
fn takes(file: &File) {
    let lab = lab("sweep-takes", 1);
    let line = format!(
        "tx {{}} --to-mac 02:00:00:00:00:01 --count 1000 --json --config {} --batch 32",
        file.shown()
    );
    let done = Running::new(ringside(&lab.a, &line)).end().good();
    let document = done.document();
    let words: Vec<&str> = document.command_line.iter().map(String::as_str).collect();
    assert!(
        words.contains(&"--frames=1024") && words.contains(&"--mode=native") && words.contains(&"--batch"),
        "{words:?}"
    );
    assert!(
        !words
            .iter()
            .any(|word| word.starts_with("--config") || *word == "--batch=64"),
        "{words:?}"
    );
    assert_eq!(document.interfaces[0].queues[0].frames, Some(1024));
    // It repeats the run.
    let mut again = lab.a.ns.command(words[0]);
    again.args(&words[1..]);
    let again = Running::new(again).end().good().document();
    assert_eq!(again.command_line, document.command_line);
    assert_eq!(
        again.interfaces[0].queues,
        document.interfaces[0]
            .queues
            .iter()
            .cloned()
            .map(|mut queue| {
                queue.umem = again.interfaces[0].queues[0].umem;
                queue
            })
            .collect::<Vec<_>>()
    );
}

/// Each objective gives a figure, by halves too.
#[test]
fn each_objective_has_figures() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    for (objective, field, operation) in [
        ("tx-rate", "packets_pps", Operation::Tx),
        ("fwd-rate", "packets_pps", Operation::Fwd),
        ("rtt-p50", "rtt_p50_ns", Operation::Ping),
        ("cpu-per-packet", "cpu_ns", Operation::Rx),
    ] {
        // A turn without a CPU has no figure. Turns are longer than most such times.
        measured(|| {
            let line = format!(
                "--lab veth --for {objective} --rounds 1 --confirm 1 --slot-ms 160 --halving --knob batch=8,64 --knob frames=512,2048 --json"
            );
            let done = sweep(&line).end();
            if !done.status.success() {
                let message = done.bad();
                assert!(message.contains("the base configuration gave no figure"), "{message}");
                return expect(false, format_args!("{objective}: {message}"));
            }
            let found = result(&done);
            check(&found);
            assert_eq!(
                (found.figure_of.as_str(), found.operation, found.method),
                (field, operation, Method::Halving)
            );
            assert_eq!(found.more_is_better, field == "packets_pps");
            assert_eq!(found.frame_bytes, if operation == Operation::Ping { 82 } else { 64 });
            let figures = found.configurations.iter().filter(|one| one.figure.is_some()).count();
            expect(
                figures > 2,
                format_args!("{objective}: {figures} configurations with figures"),
            )
        });
    }
}

#[test]
fn interfaces_are_left_as_they_were() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let host = Namespace::create("sweep-host").expect("a namespace");
    let lab = Lab::join(
        &host,
        &host,
        VethConfig {
            ipv6: false,
            ..VethConfig::tagged("sweep")
        },
    )
    .expect("a pair");
    for end in lab.ends() {
        end.run(|| end.interface.set_feature("rx-gro", true)).expect("GRO");
    }
    let before = lab.ends().map(settings);
    let deferral = || host.run(|| fs::read_to_string("/sys/class/net/veth-b/napi_defer_hard_irqs").ok());
    let deferred = deferral();
    let mut command = host.command(env!("CARGO_BIN_EXE_ringside"));
    let line =
        "sweep --interface veth-a,veth-b --rounds 1 --confirm 1 --slot-ms 160 --knob napi-defer=default,2:200 --json";
    command.args(line.split_whitespace());
    let found = result(&Running::new(command).end().good());
    check(&found);
    assert_eq!(before, lab.ends().map(settings));
    assert_eq!(deferred, deferral());
    lab.ends().into_iter().for_each(assert_clean);
}

#[test]
fn an_interrupt_ends_it_with_what_is_known() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let running = sweep("--lab veth --rounds 500 --slot-ms 30 --knob batch=16,64 --json");
    running.wait_for("configurations of batch");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let done = running.interrupt();
    if !done.status.success() {
        assert!(done.bad().contains("no figure"), "{done:#?}");
        return;
    }
    let found = result(&done);
    assert!(found.interrupted && found.rounds < 500, "{found:#?}");
    assert!(done.err.contains("ended early"), "{}", done.err);
}

#[test]
fn nonsense_is_refused_before_anything_is_built() {
    for (line, words) in [
        ("", "required"),
        ("--lab veth", "--knob"),
        ("--lab veth --knob batch", "NAME=LEVEL"),
        ("--lab veth --knob batch=64", "there is no knob to turn"),
        ("--lab veth --knob bacth=1,2", "no knob; there are mode, wait"),
        ("--lab veth --knob batch=one,two", "invalid value 'one'"),
        ("--lab veth --knob batch=1,1", "level 1 twice"),
        ("--lab veth --knob batch=1,2 --knob batch=3,4", "is there twice"),
        ("--lab veth --knob frame-size=2048,3000", "--unaligned"),
        ("--lab veth --for speed --knob batch=1,2", "possible values: rx-rate"),
        ("--lab veth --knob batch=1,2 --rounds 0", "no number from 1 to"),
        ("--lab veth --knob batch=1,2 --rounds 3 --time 9", "cannot be used with"),
        (
            "--lab veth --knob batch=1,2 --margin 100",
            "no percentage from 0 to 100",
        ),
        ("--lab veth --knob batch=1,2 --until-ci 0%", "between 0 and 100 %"),
        ("--lab veth --knob batch=1,2 --until-ci narrow", "no percentage"),
        ("--lab veth --knob batch=1,2 --cpus 0,100000", "not online"),
        (
            "--lab veth --knob batch=1,2 --write /nonexistent/x.toml",
            "--write /nonexistent/x.toml: opening it",
        ),
    ] {
        let message = sweep(line).end().refused();
        assert!(message.contains(words), "{line}: {message}");
    }
    if !is_root() {
        return;
    }
    // What all share cannot be had, and a knob of which nothing is left.
    let message = sweep("--lab veth --knob mode=zero-copy --knob batch=1,64").end().bad();
    assert!(message.contains("zero-copy was required"), "{message}");
    let message = sweep("--lab veth --knob mode=native,zero-copy").end().bad();
    assert!(
        message.contains("no knob has two levels that can be had here"),
        "{message}"
    );
}

#[test]
fn an_option_file_is_checked_as_the_command_line_is() {
    let run = |text: &str, line: &str| {
        let file = File::with("wrong", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(line.split_whitespace()).args(["--config", &file.shown()]);
        (file.shown(), Running::new(command).end().refused())
    };
    for (text, line, words) in [
        (
            "wait = \"spin\"\nbacth = 1\n",
            "rx eth0",
            "line 2: `bacth` is no option of `ringside rx`",
        ),
        (
            "batch = \"many\"\n",
            "fwd eth0",
            "line 1: invalid value 'many' for '--batch <BATCH>'",
        ),
        (
            "operations = \"rx,swim\"\n",
            "compare --lab veth",
            "line 1: invalid value 'swim'",
        ),
        (
            "batch = 1\n",
            "compare --lab veth",
            "line 1: `batch` is no option of `ringside compare`",
        ),
        ("rate = 1 2\n", "ping eth0", "line 1: "),
        ("port = 0\n", "echo eth0", "line 1: invalid value '0'"),
    ] {
        let (file, message) = run(text, line);
        assert!(message.contains(words) && message.contains(&file), "{line}: {message}");
    }
    // What does not go together is the parser's own business, wherever it stands.
    let (_, message) = run("cycle = \"1ms\"\nrate = 5\n", "tx eth0");
    assert!(message.contains("cannot be used with"), "{message}");
    // A command that has no such option.
    let (_, message) = run("batch = 1\n", "caps eth0");
    assert!(message.contains("unexpected argument '--config'"), "{message}");
}

#[test]
fn options_of_a_file_reach_a_receiver() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("sweep-config", 1);
    let file = File::with(
        "rx",
        "wait = \"poll\"\nframes = 2048\nfilter = \"udp:29620\"\ncount = 100\njson = true\n",
    );
    let receiver = start_receiver(&lab.b, &format!("rx {{}} --config {}", file.shown()));
    let sender = Running::new(ringside(&lab.a, "tx {} --to-mac 02:00:00:00:00:01 --rate 2000 -t 15"));
    let done = receiver.end().good();
    drop(sender);
    let document = done.document();
    assert_eq!(document.interfaces[0].queues[0].frames, Some(2048));
    assert!(
        document.command_line.contains(&"--filter=udp:29620".to_owned()),
        "{:?}",
        document.command_line
    );
}
