//! Whether a guest comes up on the CPU's virtualisation. That `/dev/kvm` is there does not say so: on a virtual machine it may be a
//! device on which guests hang, and only a try tells.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cache::Cache;
use crate::Error;

/// How long a guest may take on it until its kernel says something. A working one takes a fraction of a second.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(5);

/// How long one may take until it is ready. A working one takes a few seconds, also where this machine is a guest itself.
pub(crate) const BOOT: Duration = Duration::from_mins(1);

/// What a failed try may cost again and again; one that costs more is remembered.
pub(crate) const DEAR: Duration = Duration::from_secs(1);

/// Beginning of the name of the note in the cache that it failed since this machine was started.
const NOTE: &str = "no-kvm-";

static FAILED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_worth_a_try() -> bool {
    let usable = || OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    let failed = || Note::usual().is_some_and(|note| note.is_there());
    !FAILED.load(Ordering::Relaxed) && usable() && !failed()
}

/// Remembers it until this machine is started anew, for other processes as well: each try takes its time.
pub(crate) fn failed(error: &Error) {
    FAILED.store(true, Ordering::Relaxed);
    // Without a note the next process tries it once more.
    if let Some(note) = Note::usual() {
        note.write(&error.to_string());
    }
}

/// A file of the cache that is worth something until the machine is started anew.
struct Note {
    folder: PathBuf,
    boot: String,
}

impl Note {
    fn usual() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self {
            folder: Cache::usual().ok()?.path(""),
            boot: boot.trim().to_owned(),
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{NOTE}{}", self.boot))
    }

    fn is_there(&self) -> bool {
        self.path().exists()
    }

    fn write(&self, text: &str) {
        _ = fs::create_dir_all(&self.folder);
        // Those of earlier boots.
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(NOTE) {
                _ = fs::remove_file(entry.path());
            }
        }
        _ = fs::write(self.path(), text);
    }
}

#[cfg(test)]
#[path = "kvm_tests.rs"]
mod tests;
