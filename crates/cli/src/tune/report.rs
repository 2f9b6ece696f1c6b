//! What is told, for people and for programs.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use ringside_nic::Interface;
use ringside_nic::changes::Restored;
use serde::Serialize;

use super::args::Args;
use crate::output;

/// All of it, as JSON has it (schema `ringside.tune/1`).
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    tool_version: &'static str,
    interface: Option<String>,
    mode: Mode,
    /// How everything is set, where that was asked for.
    pub(super) settings: Vec<Setting>,
    /// What is changed, or would be.
    pub(super) changes: Vec<Row>,
    /// What would have been changed and cannot be had here.
    pub(super) unavailable: Vec<Unavailable>,
    /// What was put back.
    pub(super) restored: Vec<Restored>,
}

/// For how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Show,
    DryRun,
    /// Until `--undo`.
    Kept,
    Command,
    Hold,
    Undo,
}

/// One thing as it is now; without a value there is a reason.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    name: String,
    value: Option<String>,
    reason: Option<String>,
}

/// One change.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    what: String,
    before: String,
    after: String,
}

/// Something that cannot be had here, and why.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Unavailable {
    pub(super) name: String,
    pub(super) reason: String,
}

impl Setting {
    pub(super) fn new(name: &str, value: Result<String, String>) -> Self {
        let (value, reason) = match value {
            Ok(value) => (Some(value), None),
            Err(reason) => (None, Some(reason)),
        };
        Self {
            name: name.to_owned(),
            value,
            reason,
        }
    }
}

impl Row {
    pub(super) fn new(what: &str, before: impl Into<String>, after: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            before: before.into(),
            after: after.into(),
        }
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }
}

impl Report {
    pub(super) fn new(interface: Option<&Interface>, mode: Mode) -> Self {
        Self {
            schema: "ringside.tune/1",
            tool_version: env!("CARGO_PKG_VERSION"),
            interface: interface.map(|interface| interface.name().to_owned()),
            mode,
            settings: Vec::new(),
            changes: Vec::new(),
            unavailable: Vec::new(),
            restored: Vec::new(),
        }
    }

    /// Prints it and writes it, as the command line asks for.
    pub(super) fn deliver(&self, args: &Args) -> Result<ExitCode> {
        let printed = match args.json {
            true => output::print(&self.json()?),
            false => output::print(&self.text()),
        };
        self.write_file(args)?;
        printed.map(|()| ExitCode::SUCCESS)
    }

    pub(super) fn write_file(&self, args: &Args) -> Result<()> {
        let Some(path) = &args.json_file else {
            return Ok(());
        };
        crate::files::write(path, self.json()?).with_context(|| format!("writing the result to {}", path.display()))
    }

    fn json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self).context("writing the report as JSON")?;
        Ok(json + "\n")
    }

    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for setting in &self.settings {
            let value = match (&setting.value, &setting.reason) {
                (Some(value), _) => value.clone(),
                (None, reason) => format!("- ({})", reason.as_deref().unwrap_or("unknown")),
            };
            lines.push(format!("{:<40} {value}", setting.name));
        }
        let doing = if self.mode == Mode::DryRun {
            "would be set"
        } else {
            "set"
        };
        for Row { what, before, after } in &self.changes {
            lines.push(match before == after {
                true => format!("{what}: {after} already"),
                false => format!("{what}: {doing} ({before} → {after})"),
            });
        }
        for Unavailable { name, reason } in &self.unavailable {
            lines.push(format!("{name}: left out: {reason}"));
        }
        lines.extend(self.restored.iter().map(ToString::to_string));
        match self.mode {
            Mode::Kept if !self.changes.is_empty() => {
                lines.push("until `ringside tune --undo`, or a restart".to_owned())
            }
            Mode::Undo if self.restored.is_empty() => lines.push("nothing was left in place".to_owned()),
            _ => {}
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}
