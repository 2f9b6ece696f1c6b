//! docs/conformance-NIC.md for each NIC (and kernel) that the list was run on in a guest, and the few lines about them in docs/conformance.md.

use std::fmt::Write as _;

use super::{Cells, MODES, WHERE, bare, directory, document, read, records, render, rows, today};

/// The NICs that guests have, with what is to be said of each. Its records and the release of the kernel are in a folder of its name.
const NICS: [(&str, &str); 3] = [
    ("virtio-net", "virtio-net has one queue here."),
    (
        "igb",
        "The emulated Intel 82576 has two queues here. For queue 0 packets are such that its hash knows nothing of; for the other one they are IPv4, and both ends'\ntables have that queue only.",
    ),
    (
        "preempt-rt",
        "This is virtio-net, which has one queue here, under a kernel with PREEMPT_RT: interrupts are threads there, and locks sleep.",
    ),
];

const SECTION: &str = "\n## On NICs, in guests\n";

const ABOUT: &str = "The list of [conformance.md](conformance.md) on two interfaces back to back in a guest under QEMU ([guests.md](guests.md)): rows that can
have the NIC's driver, with zero-copy too, the others on veth pairs of that kernel; of those, what happens when a process is killed, a link goes, the
driver lets go of the NIC, or the interface moves has a part with zero-copy on the NIC. Each runs with and without preferred busy-polling. A row
that no test has run there has a dash.";

const ABOUT_SUMMARY: &str = "What came of the rows on NICs that QEMU emulates, with zero-copy too: `make test-guests` makes these documents and this table. A
row counts as failed if one of its variants did.";

fn document_of(nic: &str) -> std::path::PathBuf {
    document().with_file_name(format!("conformance-{nic}.md"))
}

/// What made the document of a NIC.
fn begin(nic: &str) -> String {
    format!("# Conformance: {nic}\n\nMade by `make test-guests` on Linux ")
}

/// The document of each NIC that the list was run on, and their summary.
#[test]
#[ignore = "scripts/test-guests runs it, after all tests"]
fn write_guests() {
    let mut worse = Vec::new();
    let mut written = 0;
    for (nic, about) in NICS {
        let folder = directory().join(nic);
        let Ok(kernel) = std::fs::read_to_string(folder.join("kernel")) else {
            continue;
        };
        let records = records(&folder);
        let (text, cells) = render(&records, &kernel, "");
        let (_, table) = text.split_once(super::ABOUT).expect("what it is about, then the table");
        let head = format!(
            "{}{kernel}, {}. Do not edit.\n\n{ABOUT}\n{about}\n",
            begin(nic),
            today()
        );
        let (_, before) = read(&std::fs::read_to_string(document_of(nic)).unwrap_or_default());
        std::fs::write(document_of(nic), head + table).expect("written");
        written += 1;
        worse.extend(got_worse(&before, &cells).map(|cell| format!("{nic}: {cell:?}")));
    }
    assert!(written > 0, "no records in {}", directory().display());
    let text = std::fs::read_to_string(document()).expect("docs/conformance.md");
    std::fs::write(document(), with_summary(&text)).expect("written");
    // Some rows fail there, by the kernel, the driver or the emulated wire: the document says which. No other one may, and none
    // may vanish.
    assert!(worse.is_empty(), "{worse:#?}");
}

/// Cells that were written as passed, and have failed, or are of rows that did not run.
fn got_worse<'c>(before: &'c Cells, now: &'c Cells) -> impl Iterator<Item = (&'c str, &'c str, &'c str)> {
    let failed = |text: &str| text.contains("failed") || text == "–";
    before.iter().filter_map(move |((row, mode), text)| {
        let now = now.get(&(row.clone(), mode.clone())).map_or("–", String::as_str);
        (!failed(text) && failed(now)).then_some((row.as_str(), mode.as_str(), now))
    })
}

/// The document with what the documents of NICs say in few words, in place of what was there.
pub(super) fn with_summary(text: &str) -> String {
    let (before, behind) = text.split_once(WHERE).expect("where the tests are");
    let before = before.split_once(SECTION).map_or(before, |(before, _)| before);
    let documents = NICS.map(|(nic, _)| (nic, std::fs::read_to_string(document_of(nic)).unwrap_or_default()));
    let there = documents.iter().filter(|(_, text)| !text.is_empty());
    let summary = summary(there.map(|(nic, text)| (*nic, text.as_str())));
    format!("{before}{summary}{WHERE}{behind}")
}

fn summary<'d>(documents: impl Iterator<Item = (&'d str, &'d str)>) -> String {
    let mut lines = String::new();
    for (nic, text) in documents {
        let kernel = text
            .strip_prefix(begin(nic).as_str())
            .and_then(|rest| rest.split_once(", "));
        let kernel = kernel.map_or("?", |(kernel, _)| kernel);
        let (_, cells) = read(text);
        for mode in MODES {
            let mut counts = [0_usize; 3];
            for (row, _) in rows() {
                let cell = cells
                    .get(&(row.to_owned(), mode.to_owned()))
                    .map_or("–", String::as_str);
                let outcomes = ["passed", "failed", "skipped"];
                // What failed in one variant has failed, and what passed in one was not skipped.
                let found = [1, 0, 2].into_iter().find(|&outcome| cell.contains(outcomes[outcome]));
                if let Some(outcome) = found {
                    counts[outcome] += 1;
                }
            }
            let [passed, failed, skipped] = counts;
            let first = format!("[{nic}](conformance-{nic}.md) | {kernel}");
            writeln!(lines, "| {first} | {mode} | {passed} | {failed} | {skipped} |").expect("a string");
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let head = "| NIC | Linux | mode | passed | failed | skipped |\n|---|---|---|---|---|---|";
    format!("{SECTION}\n{ABOUT_SUMMARY}\n\n{head}\n{lines}")
}

#[test]
fn a_summary_counts_rows_and_takes_the_place_of_the_last_one() {
    let row = |cells: [&str; 3]| format!("| K1 | about | {} |\n", cells.join(" | "));
    let of = |cells| {
        let document = format!("{}7.3, 2026-01-01. Do not edit.\n{}", begin("igb"), row(cells));
        summary([("igb", document.as_str())].into_iter())
    };
    let text = of(["passed", "**failed**[^1] (plain); passed (busy-poll)", "skipped[^2]"]);
    for line in [
        "native | 1 | 0 | 0 |",
        "generic | 0 | 1 | 0 |",
        "zero-copy | 0 | 0 | 1 |",
    ] {
        assert!(
            text.contains(&format!("| [igb](conformance-igb.md) | 7.3 | {line}")),
            "{text}"
        );
    }
    assert_eq!(summary([].into_iter()), "");
    let whole = format!("a\n{SECTION}\nold\n{WHERE}b\n");
    let once = with_summary(&whole);
    assert!(
        !once.contains("old") && once.starts_with("a\n") && once.ends_with("b\n"),
        "{once}"
    );
    assert_eq!(with_summary(&once), once);
}

#[test]
fn what_failed_or_vanished_is_worse() {
    let cells = |text: &str| Cells::from([(("K1".to_owned(), "native".to_owned()), text.to_owned())]);
    let worse = |before, now| got_worse(&cells(before), &cells(now)).count();
    assert_eq!(worse("passed", "passed"), 0);
    assert_eq!(worse("passed", "skipped"), 0);
    assert_eq!(worse("**failed**", "**failed**"), 0);
    assert_eq!(worse("–", "**failed**"), 0);
    assert_eq!(worse("passed", "**failed** (plain); passed (busy-poll)"), 1);
    assert_eq!(worse("passed", "–"), 1);
    assert_eq!(got_worse(&cells("passed"), &Cells::new()).count(), 1);
    assert_eq!(bare("passed[^3]"), "passed");
}
