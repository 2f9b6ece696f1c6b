//! The changes of all processes together, and how one is taken out of them.
//!
//! The changes of one thing form a chain, each with the value before and after it:
//!
//! ```text
//! P1: 0 → 2      P2: 2 → 8      P3: 8 → 9      the machine: 9
//! ```
//!
//! The last one is put back on the machine (P3: 8 again). One before it is taken out of the chain, and the next
//! restores what it would have restored (P1: P2 becomes 0 → 8). If the ends do not meet, or the machine has another
//! value than the last one's, somebody else has changed it, and it is left alone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::outcome::{Outcome, Restored};
use super::put_back::{Work, put_back};
use super::record::{Fate, Owner, Place, Record, Sheet, VERSION};
use super::store::{Store, Unreadable};
use crate::setting::Setting;

/// The changes of this process where no directory can be had.
static MEMORY: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// The changes, locked against everybody else.
#[derive(Debug)]
pub(super) struct Book {
    keeping: Keeping,
    this: Owner,
    sheets: Vec<Sheet>,
    /// As they are on disk.
    saved: Vec<Sheet>,
    pub(super) unreadable: Vec<Unreadable>,
}

#[derive(Debug)]
enum Keeping {
    Directory(Store),
    Memory(MutexGuard<'static, Vec<Record>>),
}

impl Book {
    /// The book in a directory.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let this = Owner::this()?;
        let store = Store::open(directory)?;
        let (sheets, unreadable) = store.load()?;
        let mut book = Self {
            keeping: Keeping::Directory(store),
            this,
            saved: sheets.clone(),
            sheets,
            unreadable,
        };
        book.forget_other_boots();
        Ok(book)
    }

    /// The book of this process alone, which ends with it.
    pub(super) fn in_memory() -> Self {
        let records = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        let this = Owner::this().unwrap_or_else(|_| Owner {
            pid: std::process::id(),
            start: 0,
            boot: String::new(),
            pid_namespace: 0,
            command: String::new(),
        });
        let own = Sheet {
            version: VERSION,
            owner: this.clone(),
            records: records.clone(),
        };
        Self {
            keeping: Keeping::Memory(records),
            this,
            sheets: vec![own],
            saved: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// Writes down what is different from what is written down.
    pub(super) fn save(&mut self) -> io::Result<()> {
        match &mut self.keeping {
            Keeping::Directory(store) => {
                for sheet in self.sheets.iter().filter(|sheet| !self.saved.contains(sheet)) {
                    store.save(sheet)?;
                }
                self.saved.clone_from(&self.sheets);
                Ok(())
            }
            Keeping::Memory(records) => {
                **records = self.sheets.iter().flat_map(|sheet| sheet.records.clone()).collect();
                Ok(())
            }
        }
    }

    /// This process's state file; `None` without a directory.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let own = self.sheets.iter().find(|sheet| sheet.owner.is(&self.this))?;
        match &self.keeping {
            Keeping::Directory(store) => Some(store.path(own)),
            Keeping::Memory(_) => None,
        }
    }

    /// Adds changes of this process, and returns them with their numbers.
    ///
    /// What was left behind and one of them is made on is taken over: whatever kept it from being put back, this one's
    /// end is the next chance.
    pub(super) fn add(&mut self, records: Vec<Record>) -> Vec<Record> {
        let largest = self.records().map(|record| record.order).max().unwrap_or(0);
        let mut order = now().max(largest);
        let mut added = Vec::new();
        for mut record in records {
            while let Some(earlier) = self.take_over(&record) {
                record.before = earlier.before;
            }
            order += 1;
            record.order = order;
            added.push(record);
        }
        self.own().records.extend(added.iter().cloned());
        added
    }

    /// Takes changes of this process out, the last one first; they are put back or not, as the chains have it.
    ///
    /// `kept` are the same changes in the process's memory, for the case that somebody has removed the file.
    pub(super) fn take_back(&mut self, kept: &[Record]) -> Vec<Restored> {
        let owner = self.this.clone();
        self.take(&owner, kept)
    }

    /// What processes left that ended without putting it back, or that could not.
    pub(super) fn left_behind(&self) -> Vec<(Owner, Vec<Record>)> {
        let left = self.sheets.iter().map(|sheet| {
            let dead = sheet.owner.fate(&self.this) == Fate::Dead;
            let records = sheet.records.iter().filter(|record| record.is_left(dead));
            (sheet.owner.clone(), records.cloned().collect::<Vec<_>>())
        });
        left.filter(|(_, records)| !records.is_empty()).collect()
    }

    /// Has changes of this process stay when it ends. False if they are not written down.
    pub(super) fn keep(&mut self, kept: &[Record]) -> bool {
        let mut found = 0;
        for record in &mut self.own().records {
            if kept.iter().any(|one| one.order == record.order) {
                record.kept = true;
                found += 1;
            }
        }
        found == kept.len()
    }

    /// What processes had stay: all of it, or that of one place.
    pub(super) fn kept(&self, place: Option<&Place>) -> Vec<(Owner, Vec<Record>)> {
        let here = |record: &&Record| record.kept && place.is_none_or(|place| record.place.same(place));
        let kept = self.sheets.iter().map(|sheet| {
            let records = sheet.records.iter().filter(here);
            (sheet.owner.clone(), records.cloned().collect::<Vec<_>>())
        });
        let mut kept: Vec<_> = kept.filter(|(_, records)| !records.is_empty()).collect();
        // The last one first, so that each finds the value that it set.
        kept.sort_by_key(|(_, records)| std::cmp::Reverse(records.last().map(|record| record.order)));
        kept
    }

    /// A restart of the machine has put everything back.
    fn forget_other_boots(&mut self) {
        for sheet in &mut self.sheets {
            if sheet.owner.fate(&self.this) == Fate::OtherBoot {
                sheet.records.clear();
            }
        }
    }

    /// Takes changes of a process out.
    pub(super) fn take(&mut self, owner: &Owner, records: &[Record]) -> Vec<Restored> {
        // What somebody removed from the directory is in it again, so that the chains are whole.
        let written = &mut self.sheet(owner).records;
        for kept in records {
            if !written.iter().any(|record| record.order == kept.order) {
                written.push(kept.clone());
            }
        }
        let mut work = Vec::new();
        for kept in records.iter().rev() {
            let written = &mut self.sheet(owner).records;
            if let Some(position) = written.iter().position(|record| record.order == kept.order) {
                let record = written.remove(position);
                work.push(self.leave(record));
            }
        }
        let done = put_back(work);
        for (record, restored) in &done {
            if restored.has_failed() {
                let records = &mut self.sheet(owner).records;
                records.push(Record {
                    abandoned: true,
                    ..record.clone()
                });
                records.sort_by_key(|record| record.order);
            }
        }
        done.into_iter().map(|(_, restored)| restored).collect()
    }

    /// What is to be done about a change that was taken out.
    fn leave(&mut self, record: Record) -> Work {
        let sheets = self.sheets.iter_mut();
        let next = sheets
            .flat_map(|sheet| {
                let pid = sheet.owner.pid;
                sheet.records.iter_mut().map(move |later| (pid, later))
            })
            .filter(|(_, later)| later.order > record.order && later.same_thing(&record))
            .min_by_key(|(_, later)| later.order);
        match next {
            Some((pid, later)) if later.before == record.after => {
                later.before.clone_from(&record.before);
                Work::Told(record, Outcome::HandedOver { pid })
            }
            Some((_, later)) => {
                let now = later.before.clone();
                Work::Told(record, Outcome::ChangedSince { now })
            }
            None => {
                let spare = match record.setting {
                    Setting::InterfaceFile { file } => self
                        .records()
                        .filter_map(|other| other.napi_under(file, &record.place))
                        .collect(),
                    _ => Vec::new(),
                };
                Work::PutBack { record, spare }
            }
        }
    }

    fn take_over(&mut self, record: &Record) -> Option<Record> {
        for sheet in &mut self.sheets {
            let dead = sheet.owner.fate(&self.this) == Fate::Dead;
            let matches = |earlier: &Record| {
                earlier.is_left(dead) && earlier.same_thing(record) && earlier.after == record.before
            };
            if let Some(position) = sheet.records.iter().rposition(matches) {
                return Some(sheet.records.remove(position));
            }
        }
        None
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.sheets.iter().flat_map(|sheet| &sheet.records)
    }

    fn own(&mut self) -> &mut Sheet {
        let this = self.this.clone();
        self.sheet(&this)
    }

    /// A process's sheet, a new one if it has none.
    fn sheet(&mut self, owner: &Owner) -> &mut Sheet {
        let position = self.sheets.iter().position(|sheet| sheet.owner.is(owner));
        let position = position.unwrap_or_else(|| {
            self.sheets.push(Sheet {
                version: VERSION,
                owner: owner.clone(),
                records: Vec::new(),
            });
            self.sheets.len() - 1
        });
        &mut self.sheets[position]
    }
}

/// Nanoseconds since boot, so that a number is not used twice even when all files have been removed in between.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
