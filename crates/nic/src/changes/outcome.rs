//! What became of a change, for people and machines.

use std::fmt;

use serde::Serialize;

use super::record::Record;
use crate::{Error, Result};

/// A change that was made on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// The interface's name when the change was made.
    pub interface: String,
    /// What was changed ("gro_flush_timeout", "defer-hard-irqs of NAPI 8193", "CPUs of thread 77").
    pub what: String,
    /// Its value before: numbers are decimal, times in nanoseconds, CPUs a list such as "0-3,8".
    pub before: String,
    /// The value it was given.
    pub after: String,
}

/// What became of a change when it was to be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The value from before was set again.
    Restored,
    /// The value was the one from before already.
    AsBefore,
    /// Another change was made on top of this one, and putting that one back restores the value from before this one.
    HandedOver {
        /// The process that made it.
        pid: u32,
    },
    /// Somebody else has set another value since, which was left alone.
    ChangedSince {
        /// That value.
        now: String,
    },
    /// What was changed no longer exists: the network namespace, the interface, the NAPI instance or the thread.
    Gone,
    /// It could not be put back now. It stays written down, and the next attempt is [`recover`](super::recover)'s.
    Failed {
        /// Why.
        error: String,
    },
}

/// A change and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Restored {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Restored {
    /// Returns whether it could not be restored and stays written down.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. })
    }
}

/// What a process left behind that ended without putting its changes back, or that could not put them back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recovered {
    /// The process's number.
    pub pid: u32,
    /// The process's name; empty if its state file is not understood.
    pub command: String,
    /// Its changes, the last one first.
    pub changes: Vec<Restored>,
    /// Why its state file is not understood; such a file stays where it is.
    pub problem: Option<String>,
}

impl From<&Record> for Change {
    fn from(record: &Record) -> Self {
        Self {
            interface: record.place.interface.clone(),
            what: record.setting.to_string(),
            before: record.before.clone(),
            after: record.after.clone(),
        }
    }
}

impl Outcome {
    /// That of an attempt: what no longer exists needs nothing.
    pub(super) fn of(attempt: Result<()>) -> Self {
        match attempt {
            Ok(()) => Self::Restored,
            Err(Error::UnknownIndex { .. } | Error::UnknownNapi { .. }) => Self::Gone,
            Err(error) if matches!(error.errno(), Some(libc::ENODEV | libc::ESRCH)) => Self::Gone,
            Err(error) => Self::Failed {
                error: error.to_string(),
            },
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({} → {})",
            self.interface, self.what, self.before, self.after
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored => f.write_str("restored"),
            Self::AsBefore => f.write_str("was as before already"),
            Self::HandedOver { pid } => write!(f, "left to process {pid}, which changed it too"),
            Self::ChangedSince { now } => write!(f, "left alone, since somebody has set it to {now}"),
            Self::Gone => f.write_str("no longer exists"),
            Self::Failed { error } => write!(f, "not restored: {error}"),
        }
    }
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.change, self.outcome)
    }
}

/// A line for the process and one for each change.
impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, command, .. } = self;
        if let Some(problem) = &self.problem {
            return write!(
                f,
                "process {pid} ended and left changes that are not understood: {problem}"
            );
        }
        write!(f, "process {pid} ({command}) left changes behind")?;
        for change in &self.changes {
            write!(f, "\n  {change}")?;
        }
        Ok(())
    }
}
