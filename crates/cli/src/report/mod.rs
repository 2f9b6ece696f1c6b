//! `ringside report`: results as one page to read, pass on and print.

mod charts;
mod entry;
mod fail_if;
mod far;
mod figure;
mod figures;
mod foreign;
mod lab;
pub(crate) mod lab_stages;
pub(crate) mod lab_words;
mod loaded;
mod metrics;
mod page;
mod plain;
mod rates;
mod section;
mod settings;
mod stacked;
mod stages;
mod steer;
pub(crate) mod units;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use ringside_measure::schema::Document;

use crate::args::bad_value;
use crate::output;
use fail_if::Condition;

const EXAMPLES: &str = "\
Examples:
  ringside report ping.json                        ringside-report.html, one file without anything around it
  ringside report before.json after.json -o diff.html   side by side, with the differences
  ringside report ours.json iperf3.json sockperf.log    beside iperf3 --json and sockperf --full-log
  ringside report compare.json -o compare.md       Markdown; .csv for a spreadsheet
  ringside report before.json after.json --fail-if 'rtt.p50>+50%'   for CI: exit status 3 if that holds
  ringside ping eth0 --to 192.0.2.7 -t 5 --json | ringside report - --format markdown -o -";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Results: JSON of `ringside … --json`, of `iperf3 --json`, or logs of `sockperf --full-log`; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to write it; - for standard output [default: ringside-report with the format's ending]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to write [default: by the ending of --output, or html]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Title of the page
    #[arg(long, default_value = "Ringside report")]
    title: String,
    /// Exit with status 3 if this holds: a figure, <, <=, > or >=, and a bound. `rtt.p99>50us`
    /// compares with a value, `rtt.p99>+10%` with the first result, which is the baseline then.
    /// Figures are those of the CSV, in small letters with dots; `*` stands for any text. Several
    /// times for several conditions. Status 4: none holds, and one could not be judged
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// With --fail-if, judge also results that are marked invalid
    #[arg(long, requires = "fail_if")]
    allow_invalid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One page, with plots
    Html,
    /// Summary and figures for an issue or a wiki
    Markdown,
    /// One line a figure: result, figure, value, unit
    Csv,
}

impl Format {
    /// Returns the format that a file's ending stands for; `None` for a name without one.
    fn of(path: &Path) -> Result<Option<Self>> {
        let ending = path
            .extension()
            .map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        Ok(match ending.as_deref() {
            None => None,
            Some("html" | "htm") => Some(Self::Html),
            Some("md" | "markdown") => Some(Self::Markdown),
            Some("csv") => Some(Self::Csv),
            Some(other) => bad_value!(
                "{}: a report cannot be written as .{other}: use .html, .md or .csv",
                path.display()
            ),
        })
    }

    fn file(self) -> &'static str {
        match self {
            Self::Html => "ringside-report.html",
            Self::Markdown => "ringside-report.md",
            Self::Csv => "ringside-report.csv",
        }
    }
}

/// Writes the report, and judges the results by the conditions.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let format = match (args.format, &args.output) {
        (Some(format), _) => format,
        (None, Some(path)) => Format::of(path)?.unwrap_or(Format::Html),
        (None, None) => Format::Html,
    };
    let entries = entry::Entry::read_all(&args.files)?;
    let verdict = fail_if::judge(&args.fail_if, &entries, args.allow_invalid)?;
    let text = match format {
        Format::Html => page::render(&args.title, &entries),
        Format::Markdown => plain::markdown(&args.title, &entries),
        Format::Csv => plain::csv(&entries),
    };
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format.file()));
    if path == Path::new("-") {
        output::print(&text)?;
    } else {
        let written = crate::files::write(&path, text);
        written.with_context(|| format!("writing the report to {}", path.display()))?;
        output::print(&format!("{}{}\n", summary(&entries), path.display()))?;
    }
    for sentence in &verdict.sentences {
        output::note(sentence);
    }
    Ok(ExitCode::from(verdict.exit_status()))
}

/// The page of one result.
pub(crate) fn html(title: &str, name: &str, document: Document) -> String {
    page::render(title, &[entry::Entry::of(name, document)])
}

/// One result in the format that a file's ending says: Markdown for standard output, a page for none.
///
/// # Errors
/// For an ending that no report has.
pub(crate) fn render(path: &Path, title: &str, name: &str, document: Document) -> Result<String> {
    let is_output = path == Path::new("-");
    let usual = if is_output { Format::Markdown } else { Format::Html };
    Ok(match Format::of(path)?.unwrap_or(usual) {
        Format::Html => html(title, name, document),
        Format::Markdown => plain::markdown(title, &[entry::Entry::of(name, document)]),
        Format::Csv => plain::csv(&[entry::Entry::of(name, document)]),
    })
}

/// One screen: what came out, and where to read more.
fn summary(entries: &[entry::Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        if entries.len() > 1 {
            text += &format!("{} · {}\n", entry.name, section::kind(entry));
        }
        for sentence in words::of(entry) {
            let mark = if sentence.is_warning { "! " } else { "- " };
            text += &output::wrapped(&format!("{mark}{}", sentence.text), "  ");
        }
    }
    text + "\n"
}
