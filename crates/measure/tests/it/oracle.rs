//! The searches against PyPI's MLRsearch: what trials make of a load, and what is found on devices whose loss is known.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use ringside_measure::search::{
    Class, Goal, Mlr, Outcome, Range, Search as _, Trial, classify, conditional_loss_ratio,
};
use serde_json::{Value, json};

const PACKAGE: &str = "MLRsearch==1.2.1";
const SECOND: u64 = 1_000_000_000;

struct Oracle {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    fn start() -> Self {
        let mut process = Command::new(python())
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python of the virtual environment");
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self {
            process,
            questions,
            answers,
        }
    }

    fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.questions, "{question}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{question} was answered with {answer:?}: {error}"))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Ours, and ended by its standard input's end at the latest.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A virtual environment with the package, made once.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mlrsearch");
    let python = folder.join("bin/python");
    let has_it = |python: &Path| {
        Command::new(python)
            .args(["-c", "import MLRsearch"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    // One of the tests makes it, the others wait.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_it(&python) {
        let run = |command: &mut Command| {
            let output = command
                .output()
                .unwrap_or_else(|error| panic!("{command:?}: {error}; `make setup` installs it"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {said}");
        };
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]));
    }
    python
}

#[allow(clippy::cast_precision_loss, reason = "durations")]
fn described(goal: &Goal) -> Value {
    json!({
        "loss_ratio": goal.loss_ratio,
        "exceed_ratio": goal.exceed_ratio,
        "width": goal.width,
        "initial_trial": goal.initial_trial_ns as f64 / 1e9,
        "final_trial": goal.final_trial_ns as f64 / 1e9,
        "duration_sum": goal.duration_sum_ns as f64 / 1e9,
    })
}

/// Draws from a strategy, the same in each run.
struct Draws(TestRunner);

impl Draws {
    fn of<S: Strategy>(&mut self, strategy: S) -> S::Value {
        strategy.new_tree(&mut self.0).unwrap().current()
    }
}

#[test]
fn a_load_is_what_the_reference_says_it_is() {
    let mut oracle = Oracle::start();
    let mut draws = Draws(TestRunner::deterministic());
    let mut seen = [0; 3];
    for _ in 0..3_000 {
        let goal = Goal {
            loss_ratio: draws.of(prop_oneof![Just(0.0), Just(0.005), 0.0..0.1f64]),
            exceed_ratio: draws.of(prop_oneof![Just(0.0), Just(0.5), 0.0..0.9f64]),
            duration_sum_ns: draws.of(1..=20u64) * SECOND,
            ..Goal::no_drop_rate()
        };
        // Quarters of a second, so that sums are the same in whatever order they are made.
        let trial = (1..=8u64, 0..60u64);
        let trials: Vec<(Trial, Outcome)> = draws
            .of(prop::collection::vec(trial, 0..40))
            .into_iter()
            .map(|(quarters, lost)| {
                let trial = Trial {
                    load_pps: 4_000,
                    duration_ns: quarters * SECOND / 4,
                };
                let intended = trial.packets();
                (
                    trial,
                    Outcome {
                        intended,
                        sent: intended,
                        received: intended - lost,
                    },
                )
            })
            .collect();
        #[allow(clippy::cast_precision_loss, reason = "durations")]
        let told: Vec<(f64, u64, u64)> = trials
            .iter()
            .map(|(trial, outcome)| (trial.duration_ns as f64 / 1e9, outcome.intended, outcome.lost()))
            .collect();
        let answer = oracle.ask(&json!({"goal": described(&goal), "trials": told}));

        let class = classify(&goal, &trials);
        let name = match class {
            Class::Lower => "lower",
            Class::Upper => "upper",
            Class::Undecided => "undecided",
        };
        seen[class as usize] += 1;
        assert_eq!(answer["class"], name, "{goal:?} {trials:?}");
        let ours = conditional_loss_ratio(&goal, &trials);
        let theirs = answer["loss_ratio"].as_f64().unwrap_or(1.0);
        assert!(
            (ours - theirs).abs() < 1e-12,
            "{ours} and {theirs}: {goal:?} {trials:?}"
        );
    }
    assert!(seen.iter().all(|count| *count > 100), "one-sided draws: {seen:?}");
}

#[test]
fn the_same_rates_are_found_and_in_no_more_time() {
    let mut oracle = Oracle::start();
    let mut draws = Draws(TestRunner::deterministic());
    let (mut our_seconds, mut their_seconds) = (0.0, 0.0);
    for _ in 0..60 {
        let goals = [
            Goal {
                width: draws.of(prop_oneof![Just(0.005), Just(0.05)]),
                ..Goal::no_drop_rate()
            },
            Goal::partial_drop_rate(),
        ];
        let capacity = draws.of(20_000..9_000_000u64);
        let floor = draws.of(prop_oneof![Just(0.0), Just(0.001)]);
        let question = json!({
            "min": 10_000.0, "max": 1e7, "capacity": capacity, "floor": floor,
            "goals": goals.iter().map(described).collect::<Vec<_>>(),
        });
        let answer = oracle.ask(&question);
        their_seconds += answer["seconds"].as_f64().unwrap();

        let mut search = Mlr::new(Range::new(10_000, 10_000_000).unwrap(), goals.to_vec()).unwrap();
        while let Some(trial) = search.wanted() {
            #[allow(clippy::cast_precision_loss, reason = "durations")]
            let seconds = trial.duration_ns as f64 / 1e9;
            our_seconds += seconds;
            search.record(device(trial, capacity, floor));
        }
        for (index, found) in search.results().iter().enumerate() {
            let theirs = &answer["bounds"][index];
            same_bounds(found, theirs, &question);
        }
    }
    assert!(
        our_seconds <= their_seconds * 1.1,
        "{our_seconds} s of trials and {their_seconds} s"
    );
}

/// As `Device` of the oracle.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "packets"
)]
fn device(trial: Trial, capacity: u64, floor: f64) -> Outcome {
    let intended = trial.packets();
    let through = Trial {
        load_pps: trial.load_pps.min(capacity),
        ..trial
    }
    .packets();
    Outcome {
        intended,
        sent: intended,
        received: (through as f64 * (1.0 - floor)) as u64,
    }
}

/// Both brackets are around the same rate, so they overlap or touch; the throughputs are no further apart than both are wide.
#[allow(clippy::cast_precision_loss, reason = "rates")]
fn same_bounds(ours: &ringside_measure::search::GoalResult, theirs: &Value, question: &Value) {
    let lower = ours.lower.map(|bound| bound.load_pps as f64);
    let upper = ours.upper.map(|bound| bound.load_pps as f64);
    match (theirs["lower"].as_f64(), theirs["upper"].as_f64()) {
        (Some(their_lower), Some(their_upper)) => {
            let (lower, upper) = (lower.unwrap(), upper.unwrap());
            assert!(
                lower <= their_upper && their_lower <= upper,
                "{lower} to {upper}: {theirs} {question}"
            );
            let throughput = ours.throughput_pps.unwrap();
            let apart = (throughput / theirs["throughput"].as_f64().unwrap() - 1.0).abs();
            assert!(apart <= 2.0 * ours.goal.width, "{throughput}: {theirs} {question}");
        }
        (their_lower, their_upper) => {
            assert_eq!(
                (lower.is_some(), upper.is_some()),
                (their_lower.is_some(), their_upper.is_some()),
                "{question}"
            );
        }
    }
}
