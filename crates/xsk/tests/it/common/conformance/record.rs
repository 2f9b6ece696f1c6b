//! What came of a row's variants: run, told and written down.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::within;
use super::{Case, LIMIT, Lacks, NOTE, Outcome, WIRED_LIMIT, device};

pub(super) struct Row {
    pub(super) names: Vec<String>,
    /// The test that it is, as in `cargo test`.
    test: String,
}

impl Row {
    /// `closure`: the name of the type of the closure that the test passes, which begins with the name of the test.
    pub(super) fn new(names: &str, closure: &str) -> Self {
        let names: Vec<String> = names.split(", ").map(str::to_owned).collect();
        let test = closure.split("::{{closure}}").next().unwrap_or(closure);
        if let Some(test) = test.strip_prefix("conformance::") {
            let function = test.rsplit("::").next().unwrap_or(test).to_uppercase();
            assert!(names.contains(&function), "the test {test} is the row {names:?}");
        }
        Self {
            names,
            test: test.to_owned(),
        }
    }

    /// Runs one variant, or all there is; tells what failed.
    pub(super) fn attempt(&self, case: Option<Case>, run: impl FnOnce() -> Outcome + Send + 'static) -> Option<String> {
        let variant = case.map_or("any".into(), |case| case.to_string());
        // Rows on veth pairs, too, wait for the lock of all interfaces while a driver beside them resets its NIC.
        let limit = if device().is_some() { WIRED_LIMIT } else { LIMIT };
        match catch_unwind(AssertUnwindSafe(|| within(limit, run))) {
            Ok(Outcome::Passed { remark }) => self.record(case, "passed", &remark),
            Ok(Outcome::Skipped { reason }) => {
                eprintln!("{} ({variant}): skipped: {reason}", self.test);
                self.record(case, "skipped", &reason);
            }
            Err(panic) if panic.is::<Lacks>() => {
                let reason = panic.downcast_ref::<Lacks>().map_or("", |lacks| lacks.0.as_str());
                eprintln!("{} ({variant}): skipped: {reason}", self.test);
                self.record(case, "skipped", reason);
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("it panicked");
                self.record(case, "failed", text);
                return Some(format!("{variant}: {text}"));
            }
        }
        None
    }

    pub(super) fn record(&self, case: Option<Case>, outcome: &str, note: &str) {
        self.write(fields(case), outcome, note);
    }

    pub(super) fn write(&self, [mode, queue, polling]: [&str; 3], outcome: &str, note: &str) {
        let Some(directory) = std::env::var_os("RINGSIDE_CONFORMANCE").filter(|value| !value.is_empty()) else {
            return;
        };
        // One file for each process and one write for each line: nothing is torn, whoever else writes.
        let path = std::path::Path::new(&directory).join(format!("{}.tsv", std::process::id()));
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("a record");
        // What a packet was is of no use in a table.
        let note: String = note
            .lines()
            .next()
            .unwrap_or("")
            .replace('\t', " ")
            .chars()
            .take(NOTE)
            .collect();
        for name in &self.names {
            let line = [name, mode, queue, polling, outcome, &note, &self.test].join("\t");
            file.write_all(format!("{line}\n").as_bytes()).expect("recorded");
        }
    }

    pub(super) fn end(&self, failed: &[String]) {
        assert!(
            failed.is_empty(),
            "{} failed in:\n  {}",
            self.names.join(", "),
            failed.join("\n  ")
        );
    }
}

/// Mode, queue and polling, as a record has them; of a row without any of these its mode is "any".
fn fields(case: Option<Case>) -> [&'static str; 3] {
    let Some(case) = case else { return ["any", "", ""] };
    [
        case.path.name(),
        if case.queue == 0 { "0" } else { "other" },
        if case.busy_poll { "busy-poll" } else { "plain" },
    ]
}
