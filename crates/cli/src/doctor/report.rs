//! What is told, for people and for programs.

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::args::Args;
use super::facts::Facts;
use super::finding::{About, Finding, Severity};
use super::rules;
use crate::output;

/// All of it, as JSON has it (schema `ringside.doctor/1`).
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    tool_version: &'static str,
    interface: Option<String>,
    /// The worst of the findings.
    pub(super) severity: Severity,
    exit_status: u8,
    findings: Vec<Finding>,
    /// What was not looked at, and what it takes.
    not_tested: Vec<String>,
    facts: Facts,
}

impl Report {
    pub(super) fn new(facts: Facts) -> Self {
        let findings = rules::judge(&facts);
        let severity = findings
            .iter()
            .map(|finding| finding.severity)
            .max()
            .unwrap_or(Severity::Ok);
        Self {
            schema: "ringside.doctor/1",
            tool_version: env!("CARGO_PKG_VERSION"),
            interface: facts.interface.as_ref().map(|nic| nic.name.clone()),
            severity,
            exit_status: severity.exit_status(),
            not_tested: rules::not_tested(&facts),
            findings,
            facts,
        }
    }

    /// Prints it and writes it, as the command line asks for.
    pub(super) fn deliver(&self, args: &Args) -> Result<()> {
        let json = || -> Result<String> {
            let json = serde_json::to_string_pretty(self).context("writing the report as JSON")?;
            Ok(json + "\n")
        };
        let printed = match args.json {
            true => output::print(&json()?),
            false => output::print(&self.text(args.verbose)),
        };
        if let Some(path) = &args.json_file {
            crate::files::write(path, json()?).with_context(|| format!("writing the result to {}", path.display()))?;
        }
        printed
    }

    /// Returns the verdict, and below it all findings, or one screen of them.
    fn text(&self, verbose: bool) -> String {
        let mut text = format!("{}\n", self.verdict());
        match verbose {
            true => self.all_findings(&mut text),
            false => self.main_findings(&mut text),
        }
        if !self.not_tested.is_empty() {
            text.push_str(if verbose { "\nNot tested\n" } else { "Not tested\n" });
            for what in &self.not_tested {
                text.push_str(&output::wrapped(what, "  "));
            }
        }
        if !verbose {
            text.push_str("All findings, and what notes mean: -v\n");
        }
        text
    }

    /// Writes all findings by what they are about.
    fn all_findings(&self, text: &mut String) {
        let mut about = None;
        for finding in &self.findings {
            if about != Some(finding.about) {
                about = Some(finding.about);
                text.push_str(&format!("\n{}\n", self.title(finding.about)));
            }
            finding.write(text, true);
        }
    }

    /// Writes errors and warnings, what was tried, and a line for each note.
    fn main_findings(&self, text: &mut String) {
        let findings = || self.findings.iter();
        let of = |severity| findings().filter(move |finding| finding.severity == severity);
        let mut title = |title: &str, findings: Vec<&Finding>| {
            if !findings.is_empty() {
                text.push_str(&format!("{title}\n"));
            }
            findings
                .iter()
                .for_each(|finding| finding.write(text, finding.severity > Severity::Note));
        };
        title("Errors", of(Severity::Error).collect());
        title("Warnings", of(Severity::Warning).collect());
        for tried in [About::Veth, About::Live] {
            let fine = of(Severity::Ok).filter(|finding| finding.about == tried);
            title(&self.title(tried), fine.collect());
        }
        // The host's interfaces, and what was asked for by `--flow`.
        let asked = |finding: &&Finding| finding.about == About::Interfaces || finding.id == "interface.flow";
        title("Interfaces", of(Severity::Ok).filter(asked).collect());
        title("Notes", of(Severity::Note).collect());
    }

    fn title(&self, about: About) -> String {
        let interface = self.interface.as_deref().unwrap_or_default();
        match about {
            About::Process => "This process".to_owned(),
            About::Kernel => "Kernel".to_owned(),
            About::Host => "Host".to_owned(),
            About::Interfaces => "Interfaces".to_owned(),
            About::Interface => format!("Interface {interface}"),
            About::Veth => match &self.facts.veth {
                Some(test) => format!("Tried on a test bed: {}", test.bed),
                None => "Tried on a test bed".to_owned(),
            },
            About::Live => format!("Tried on {interface}"),
        }
    }

    /// One line, and what a script sees of it.
    fn verdict(&self) -> String {
        let count = |severity| {
            self.findings
                .iter()
                .filter(|finding| finding.severity == severity)
                .count()
        };
        let counted = |severity: Severity| match count(severity) {
            1 => format!("1 {}", severity.name()),
            many => format!("{many} {}s", severity.name()),
        };
        let counts = [Severity::Error, Severity::Warning, Severity::Note]
            .map(counted)
            .join(", ");
        format!("{counts}: {}. Exit status {}.", self.meaning(), self.exit_status)
    }

    fn meaning(&self) -> &'static str {
        let tests = [&self.facts.veth, &self.facts.live];
        let echoed = tests
            .into_iter()
            .flatten()
            .any(|test| test.tries.iter().any(|tried| tried.works()));
        match (self.severity, echoed) {
            (Severity::Error, _) => "something does not work",
            (_, false) => "nothing was bound, so whether AF_XDP works is not known",
            (Severity::Warning, true) => "AF_XDP works here, with reservations",
            (_, true) => "AF_XDP works here",
        }
    }
}
