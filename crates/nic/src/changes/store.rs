//! Where state files are kept: a directory that only its owner may write to, and a lock.
//!
//! ```text
//! /run/ringside/                      0755
//!     lock                            0600  held while files are read and settings changed or put back
//!     changes-PID-START.json          0600  one per process, replaced as a whole
//! ```
//!
//! The directory is in memory (tmpfs) and gone after a restart of the machine, like what was changed; so nothing is
//! synchronised to a disk. What is written survives the death of the process that wrote it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::record::{Sheet, VERSION};
use crate::state_dir;

/// How long another process may hold the lock. It takes milliseconds, unless that process was stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// The directory, with the lock held.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    /// Unlocks when it is closed.
    _lock: File,
}

/// A state file that is not understood.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) problem: String,
}

impl Store {
    /// Makes the directory if need be, and waits for the lock.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        state_dir::make(directory)?;
        let lock = private().create(true).open(directory.join("lock"))?;
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::other("another process keeps the lock; is it stopped?"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            _lock: lock,
        })
    }

    /// All state files, and those that are not understood.
    pub(super) fn load(&self) -> io::Result<(Vec<Sheet>, Vec<Unreadable>)> {
        let (mut sheets, mut unreadable) = (Vec::new(), Vec::new());
        for (path, pid, start) in state_files(&self.directory)? {
            match read(&path) {
                Ok(sheet) => sheets.push(sheet),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unreadable.push(Unreadable {
                    path,
                    pid,
                    start,
                    problem: error.to_string(),
                }),
            }
        }
        Ok((sheets, unreadable))
    }

    /// Replaces a process's file, or removes it if there is nothing in it any more.
    pub(super) fn save(&self, sheet: &Sheet) -> io::Result<()> {
        let path = self.directory.join(sheet.owner.file_name());
        if sheet.records.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        // Under the lock nobody else uses this name; one that a killed process left is written over.
        let new = self.directory.join("new");
        let mut file = private().create(true).truncate(true).open(&new)?;
        file.write_all(serde_json::to_string_pretty(sheet)?.as_bytes())?;
        fs::rename(&new, &path)
    }

    pub(super) fn path(&self, sheet: &Sheet) -> PathBuf {
        self.directory.join(sheet.owner.file_name())
    }
}

/// The state files of a directory, with what their names say; none if the directory does not exist.
pub(super) fn state_files(directory: &Path) -> io::Result<Vec<(PathBuf, u32, u64)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let files = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let (pid, start) = name
            .to_str()?
            .strip_prefix("changes-")?
            .strip_suffix(".json")?
            .split_once('-')?;
        Some((entry.path(), pid.parse().ok()?, start.parse().ok()?))
    });
    Ok(files.collect())
}

fn read(path: &Path) -> io::Result<Sheet> {
    let sheet: Sheet = serde_json::from_slice(&fs::read(path)?)?;
    if sheet.version == VERSION {
        return Ok(sheet);
    }
    Err(io::Error::other(format!("its format has version {}", sheet.version)))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    options.write(true).mode(0o600).custom_flags(no_follow);
    options
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
