//! The guard that puts changes back.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::book::Book;
use super::outcome::{Change, Restored};
use super::record::Record;
use crate::{Error, Result};

/// Whether changes are put back even if the process is killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Protection {
    /// They are written down in this file, and the next [`recover`](super::recover) puts them back.
    StateFile(PathBuf),
    /// They are not: a process that is killed leaves them.
    None {
        /// Why they could not be written down.
        reason: String,
    },
}

/// Changes that are put back when this is dropped, also while a panic unwinds the thread.
///
/// It may be dropped in any thread, whichever network namespace that is in. In a child that a process forked, dropping it
/// does nothing: the changes are the parent's.
///
/// Several guards, of one process or of several, may have changed the same thing. Each can go in any order: the last one
/// restores what was before all of them.
#[derive(Debug)]
#[must_use = "the changes are put back as soon as this is dropped"]
pub struct Undo {
    /// Where they are written down; `None` in this process's memory.
    pub(super) directory: Option<PathBuf>,
    pub(super) records: Vec<Record>,
    pub(super) protection: Protection,
    pub(super) pid: u32,
}

impl Undo {
    /// Whether the changes are put back even if this process is killed.
    #[must_use]
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// What was changed, in the order in which it was.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        self.records.iter().map(Change::from).collect()
    }

    /// Puts the changes back now and tells what became of each, the last one first.
    ///
    /// Dropping does the same without telling.
    pub fn restore(mut self) -> Vec<Restored> {
        self.finish()
    }

    /// Has the changes stay when this process ends, until [`Changes::undo_kept`](super::Changes::undo_kept).
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) where they cannot be written down; they are put back then.
    pub fn keep(mut self) -> Result<Vec<Change>> {
        let failed = |error| Error::file("write", self.directory.clone().unwrap_or_default(), error);
        let Some(directory) = &self.directory else {
            let reason = match &self.protection {
                Protection::None { reason } => reason.clone(),
                Protection::StateFile(_) => String::new(),
            };
            return Err(failed(io::Error::other(reason)));
        };
        let mut book = Book::open(directory).map_err(failed)?;
        if !book.keep(&self.records) {
            let gone = "somebody has removed what was written down there";
            drop(book);
            return Err(failed(io::Error::other(gone)));
        }
        book.save().map_err(failed)?;
        let changes = self.changes();
        self.records.clear();
        Ok(changes)
    }

    fn finish(&mut self) -> Vec<Restored> {
        let records = std::mem::take(&mut self.records);
        if records.is_empty() || std::process::id() != self.pid {
            return Vec::new();
        }
        // The directory may have gone since: what this process remembers has to do then.
        let directory = self.directory.as_deref();
        let mut book = directory
            .and_then(|directory| Book::open(directory).ok())
            .unwrap_or_else(Book::in_memory);
        let restored = book.take_back(&records);
        // What cannot be written down any more is found to be as before by whoever reads it.
        let _ = book.save();
        restored
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.finish();
    }
}
