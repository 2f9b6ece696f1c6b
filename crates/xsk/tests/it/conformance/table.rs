//! docs/conformance.md, made of what the variants of the rows left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[path = "table/guests.rs"]
mod guests;

/// The list: sections, and rows with what they are about.
const ROWS: &str = include_str!("rows.txt");
const MODES: [&str; 3] = ["native", "generic", "zero-copy"];
const BEGIN: &str = "Made by `scripts/conformance` on Linux ";
const WHERE: &str = "\n## Where the tests are\n";

/// A line that a variant left, in the order of its fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    row: String,
    mode: String,
    queue: String,
    polling: String,
    outcome: String,
    note: String,
    test: String,
}

impl Record {
    fn parse(line: &str) -> Self {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let [row, mode, queue, polling, outcome, note, test] = fields.try_into().expect("seven fields");
        Self {
            row,
            mode,
            queue,
            polling,
            outcome,
            note,
            test,
        }
    }
}

fn records(directory: &Path) -> Vec<Record> {
    let files = std::fs::read_dir(directory).expect("a directory of records");
    let mut records: Vec<Record> = files
        .map(|file| file.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "tsv"))
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("readable");
            text.lines().map(Record::parse).collect::<Vec<_>>()
        })
        .collect();
    records.sort();
    records
}

/// The rows of the list, without their sections.
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROWS.lines().filter_map(|line| line.split_once(": "))
}

/// What came of a row in a mode, in few words: what all variants have in common, or each outcome with its variants.
/// Reasons stand in `notes`, and here the number of theirs.
fn cell(records: &[&Record], notes: &mut Vec<String>) -> String {
    let mut outcomes: BTreeMap<(&str, &str), BTreeSet<(&str, &str)>> = BTreeMap::new();
    for record in records {
        let variant = (record.queue.as_str(), record.polling.as_str());
        outcomes
            .entry((&record.outcome, &record.note))
            .or_default()
            .insert(variant);
    }
    // A row is recorded by several tests at times: what failed in one has failed.
    let failed: BTreeSet<(&str, &str)> = outcomes
        .iter()
        .filter(|((outcome, _), _)| *outcome == "failed")
        .flat_map(|(_, variants)| variants.clone())
        .collect();
    let mut parts = Vec::new();
    for ((outcome, note), variants) in &outcomes {
        let variants: BTreeSet<_> = match *outcome {
            "failed" => variants.clone(),
            _ => variants.difference(&failed).copied().collect(),
        };
        if variants.is_empty() {
            continue;
        }
        let mut text = if *outcome == "failed" { "**failed**" } else { outcome }.to_owned();
        if !note.is_empty() {
            let number = notes.iter().position(|known| known == note).unwrap_or_else(|| {
                notes.push((*note).to_owned());
                notes.len() - 1
            });
            write!(text, "[^{}]", number + 1).expect("a string");
        }
        text.push_str(&which(&variants));
        parts.push(text);
    }
    if parts.is_empty() {
        "–".into()
    } else {
        parts.join("; ")
    }
}

/// The variants of an outcome, unless it is all of them.
fn which(variants: &BTreeSet<(&str, &str)>) -> String {
    let of = |all: [&'static str; 2], field: fn(&(&str, &str)) -> String| {
        let there: BTreeSet<String> = variants.iter().map(field).collect();
        all.into_iter().filter(|one| there.contains(*one)).collect::<Vec<_>>()
    };
    let queues = of(["0", "other"], |variant| variant.0.to_owned());
    let pollings = of(["plain", "busy-poll"], |variant| variant.1.to_owned());
    if variants.contains(&("", "")) || variants.len() == 4 {
        return String::new();
    }
    if variants.len() != queues.len() * pollings.len() {
        let each: Vec<String> = variants
            .iter()
            .map(|(queue, polling)| format!("{queue} {polling}"))
            .collect();
        return format!(" ({})", each.join(", "));
    }
    let mut words = Vec::new();
    if let [one] = queues[..] {
        words.push(if one == "0" { "queue 0" } else { "another queue" });
    }
    if let [one] = pollings[..] {
        words.push(one);
    }
    format!(" ({})", words.join(", "))
}

/// What came of each row in each mode, without the reasons.
type Cells = BTreeMap<(String, String), String>;

/// The document, and its cells.
fn render(records: &[Record], kernel: &str, date: &str) -> (String, Cells) {
    let (mut table, mut notes, mut cells) = (String::new(), Vec::new(), Cells::new());
    for line in ROWS.lines() {
        if let Some(section) = line.strip_prefix("# ") {
            let head = "| row | checks | native | generic | zero-copy |\n|---|---|---|---|---|";
            writeln!(table, "\n## {section}\n\n{head}").expect("a string");
        }
        let Some((row, about)) = line.split_once(": ") else {
            continue;
        };
        write!(table, "| {row} | {} |", about.replace('|', "\\|")).expect("a string");
        for mode in MODES {
            let of_mode = |wanted: &str| -> Vec<&Record> {
                records
                    .iter()
                    .filter(|record| record.row == row && record.mode == wanted)
                    .collect()
            };
            let any = of_mode("any");
            let text = match (any.is_empty(), mode) {
                (true, _) => cell(&of_mode(mode), &mut notes),
                (false, "native") => format!("{} in any mode", cell(&any, &mut notes)),
                (false, _) => String::new(),
            };
            write!(table, " {text} |").expect("a string");
            cells.insert((row.into(), mode.into()), bare(&text));
        }
        table.push('\n');
    }
    let mut text = format!(
        "# Conformance\n\n{BEGIN}{kernel}, {date}. Do not edit: `crates/xsk/tests/it/conformance/rows.txt` is the list.\n\n"
    );
    text.push_str(ABOUT);
    text.push_str(&table);
    text.push_str(WHERE);
    text.push_str("\nA row that is not in this list is the test of its name, in `crates/xsk/tests/it/conformance` or\n`crates/xsk/src/queue`.\n\n| row | test |\n|---|---|\n");
    for (row, _) in rows() {
        let tests: BTreeSet<&str> = records
            .iter()
            .filter(|record| record.row == row)
            .map(|record| record.test.as_str())
            .collect();
        if tests
            .iter()
            .any(|test| !test.ends_with(&format!("::{}", row.to_lowercase())))
        {
            let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
            writeln!(text, "| {row} | {} |", tests.join(", ")).expect("a string");
        }
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for (number, note) in (1..).zip(&notes) {
        writeln!(text, "[^{number}]: {note}").expect("a string");
    }
    (text, cells)
}

const ABOUT: &str = "What an AF_XDP library must pass, after the kernel's own suites and beyond them, and what came of it on two ends of a
veth pair. Each row runs in native and in generic mode, with and without preferred busy-polling, on queue 0 and on
another queue; \"passed\" alone means all four variants of a mode. Every packet is checked for order, length, each of its
bytes, and where it lies in its frame. Where something could not run, the note says what the machine answered.
Since Linux 6.14 a turn of busy-polling does nothing on a copy path (`Queue::busy_polling` tells): with such a kernel
these variants show that its options, and interrupts that are deferred for it, do no harm.

To run it: `make test` does, as root, and fails where this table is no longer true; `scripts/conformance` makes it
anew. On a NIC: `RINGSIDE_TEST_IFACE=eth1 RINGSIDE_TEST_PEER=eth2 scripts/conformance`, where the two interfaces are
wired to each other, have no other use, and are in this network namespace; with a driver that offers it, zero-copy runs too.
Where both have several queues rows run on queue 1, too: their RSS tables have that one only meanwhile, and are put back.
";

/// A cell without the numbers of its notes.
fn bare(text: &str) -> String {
    let mut pieces = text.split("[^");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        text + piece.split_once(']').map_or(piece, |(_, rest)| rest)
    })
}

/// The kernel and the cells of a document made by [`render`].
fn read(document: &str) -> (String, Cells) {
    let kernel = document.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(", "));
    let known: BTreeSet<&str> = rows().map(|(row, _)| row).collect();
    let mut cells = Cells::new();
    for line in document.lines() {
        let fields: Vec<&str> = line.split(" |").collect();
        let row = fields[0].trim_start_matches("| ");
        if known.contains(row) && fields.len() == 6 {
            for (mode, text) in MODES.into_iter().zip(&fields[2..]) {
                cells.insert((row.into(), mode.into()), bare(text.trim()));
            }
        }
    }
    (kernel.map_or(String::new(), |(kernel, _)| kernel.to_owned()), cells)
}

/// What is wrong with a run, and with the document beside it.
fn complaints(records: &[Record], kernel: &str, document: &str) -> Vec<String> {
    let (_, ran) = render(records, kernel, "");
    let (written_on, written) = read(document);
    let names: BTreeSet<&str> = rows().map(|(row, _)| row).collect();
    let mut complaints = Vec::new();
    for record in records {
        if !names.contains(record.row.as_str()) {
            complaints.push(format!(
                "{}: recorded by {}, and not in rows.txt",
                record.row, record.test
            ));
        }
        if record.outcome == "failed" {
            complaints.push(format!("{}: failed in {}", record.row, record.test));
        }
    }
    for name in names {
        let cells = |of: &Cells| MODES.map(|mode| of.get(&(name.into(), mode.into())).cloned().unwrap_or_default());
        let (ran, written) = (cells(&ran), cells(&written));
        if !records.iter().any(|record| record.row == name) {
            complaints.push(format!("{name}: no test of it ran"));
        } else if written.iter().all(String::is_empty) {
            complaints.push(format!("{name}: not in the document"));
        } else if written_on == kernel && ran != written {
            // Another kernel may well answer otherwise.
            complaints.push(format!("{name}: {ran:?}, and the document has {written:?}"));
        }
    }
    complaints.dedup();
    complaints
}

/// This machine's.
fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .expect("a Linux")
        .trim()
        .to_owned()
}

fn today() -> String {
    let date = std::process::Command::new("date").arg("-I").output();
    let date = String::from_utf8(date.expect("date runs").stdout).expect("text");
    date.trim().to_owned()
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md")
}

fn directory() -> PathBuf {
    std::env::var_os("RINGSIDE_CONFORMANCE")
        .expect("RINGSIDE_CONFORMANCE names the directory of records")
        .into()
}

#[test]
#[ignore = "scripts/conformance runs it, after all tests"]
fn write() {
    let records = records(&directory());
    let (text, _) = render(&records, &kernel(), &today());
    let text = guests::with_summary(&text);
    std::fs::write(document(), &text).expect("written");
    let complaints = complaints(&records, &kernel(), &text);
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
#[ignore = "scripts/test runs it, after all tests"]
fn check() {
    let text = std::fs::read_to_string(document()).expect("docs/conformance.md");
    let complaints = complaints(&records(&directory()), &kernel(), &text);
    assert!(
        complaints.is_empty(),
        "\n{}\nscripts/conformance makes docs/conformance.md anew",
        complaints.join("\n")
    );
}

#[cfg(test)]
fn variants(row: &str, mode: &str, outcome: &str, note: &str) -> Vec<Record> {
    let line = |queue, polling| Record::parse(&[row, mode, queue, polling, outcome, note, "a::test"].join("\t"));
    ["0", "other"]
        .into_iter()
        .flat_map(|queue| ["plain", "busy-poll"].map(|polling| line(queue, polling)))
        .collect()
}

#[test]
fn a_cell_tells_what_variants_have_in_common() {
    let mut notes = Vec::new();
    let mut text = |records: &[Record]| cell(&records.iter().collect::<Vec<_>>(), &mut notes);
    let mut all = variants("K1", "native", "passed", "");
    assert_eq!(text(&all), "passed");
    assert_eq!(text(&all[..2]), "passed (queue 0)");
    assert_eq!(text(&all[1..2]), "passed (queue 0, busy-poll)");
    assert_eq!(text(&all[..3]), "passed (0 busy-poll, 0 plain, other plain)");
    assert_eq!(text(&[]), "–");
    for record in all.iter_mut().filter(|record| record.polling == "busy-poll") {
        (record.outcome, record.note) = ("skipped".into(), "no".into());
    }
    assert_eq!(text(&all), "passed (plain); skipped[^1] (busy-poll)");
    // A second test of the same row that failed in one of them.
    let mut failed = all[0].clone();
    (failed.outcome, failed.note) = ("failed".into(), "why".into());
    all.push(failed);
    assert_eq!(
        text(&all),
        "**failed**[^2] (queue 0, plain); passed (another queue, plain); skipped[^1] (busy-poll)"
    );
    assert_eq!(notes, ["no", "why"]);
}

#[test]
fn a_document_is_read_as_it_was_written() {
    let mut records: Vec<Record> = rows()
        .flat_map(|(row, _)| MODES.map(|mode| variants(row, mode, "passed", "")))
        .flatten()
        .collect();
    let (text, cells) = render(&records, "6.18", "2026-01-01");
    assert_eq!(read(&text), ("6.18".to_owned(), cells.clone()));
    assert_eq!(complaints(&records, "6.18", &text), [""; 0]);

    // A row that did not run, one that failed, one that is in no list, and one that the document does not have.
    records.retain(|record| record.row != "K2");
    assert_eq!(complaints(&records, "6.19", &text), ["K2: no test of it ran"]);
    let mut more = records.clone();
    more.extend(variants("K99", "native", "passed", ""));
    more.extend(variants("K3", "native", "failed", "no"));
    let found = complaints(&more, "6.19", &text);
    assert!(
        found.contains(&"K99: recorded by a::test, and not in rows.txt".to_owned()),
        "{found:?}"
    );
    assert!(found.contains(&"K3: failed in a::test".to_owned()), "{found:?}");
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("| K4 |"))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(complaints(&records, "6.19", &without).contains(&"K4: not in the document".to_owned()));
}
