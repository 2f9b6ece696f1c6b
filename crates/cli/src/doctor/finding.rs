//! Findings: one line each if all is well, and otherwise what it means and how to fix it.

use serde::Serialize;

use crate::output;

/// How bad it is. The worst of a report decides about the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Works; worth knowing, or could be better.
    Note,
    /// Works, but will cost packets, time or trust in results.
    Warning,
    /// Does not work.
    Error,
}

impl Severity {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// 1 is that of a command that could not do what was asked for, 2 that of a wrong command line.
    pub(super) fn exit_status(self) -> u8 {
        match self {
            Self::Ok | Self::Note => 0,
            Self::Warning => 3,
            Self::Error => 4,
        }
    }
}

/// What a finding is about, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum About {
    Process,
    Kernel,
    Host,
    /// Those of the host, in brief.
    Interfaces,
    Interface,
    /// The test on a veth pair of its own.
    Veth,
    /// The test on the interface itself.
    Live,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) about: About,
    /// Stays the same from one version to the next: "host.huge-pages".
    pub(super) id: &'static str,
    pub(super) severity: Severity,
    pub(super) what: String,
    /// Why it matters; empty where all is well.
    pub(super) why: String,
    /// The command that fixes it, if there is one.
    pub(super) mend: Option<String>,
}

/// Collects the findings about one thing.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    about: About,
    into: &'a mut Vec<Finding>,
}

impl<'a> Findings<'a> {
    pub(super) fn about(about: About, into: &'a mut Vec<Finding>) -> Self {
        Self { about, into }
    }

    pub(super) fn ok(&mut self, id: &'static str, what: impl Into<String>) {
        self.add(Severity::Ok, id, what, "");
    }

    pub(super) fn note(&mut self, id: &'static str, what: impl Into<String>, why: impl Into<String>) -> &mut Finding {
        self.add(Severity::Note, id, what, why)
    }

    pub(super) fn warning(
        &mut self,
        id: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> &mut Finding {
        self.add(Severity::Warning, id, what, why)
    }

    pub(super) fn error(&mut self, id: &'static str, what: impl Into<String>, why: impl Into<String>) -> &mut Finding {
        self.add(Severity::Error, id, what, why)
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        id: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> &mut Finding {
        self.into.push(Finding {
            about: self.about,
            id,
            severity,
            what: what.into(),
            why: why.into(),
            mend: None,
        });
        self.into.last_mut().expect("just added")
    }
}

impl Finding {
    /// Writes what was found, and with `details` why it matters and how to fix it.
    pub(super) fn write(&self, text: &mut String, details: bool) {
        const WIDTH: usize = 8;
        // Lines behind the first are indented as far as it is.
        let indent = " ".repeat(WIDTH + 2);
        let what = output::wrapped(&self.what, &indent);
        text.push_str(&format!("  {:<WIDTH$}{}", self.severity.name(), what.trim_start()));
        if !details {
            return;
        }
        if !self.why.is_empty() {
            text.push_str(&output::wrapped(&self.why, &format!("{indent}  ")));
        }
        if let Some(mend) = &self.mend {
            // Whole, to be copied.
            text.push_str(&format!("{indent}  → {mend}\n"));
        }
    }

    pub(super) fn mend(&mut self, command: impl Into<String>) {
        self.mend = Some(command.into());
    }
}
