//! Where kernels for guests are kept from one run to the next.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::prepare;
use crate::{Result, name, wait_until};

/// File of an entry with the SHA-256 of each of its other files, as `sha256sum` writes it.
const DIGESTS: &str = "SHA256SUMS";

/// How long another process that fetches the same is waited for.
const PATIENCE: Duration = Duration::from_mins(10);

/// A folder of things that can be fetched again: whoever removes it loses time and nothing else.
///
/// An entry is there whole or not at all, whatever happens meanwhile, and several processes may use the folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The folder that `RINGSIDE_CACHE` names; else for root `/var/cache/ringside`, and for others `ringside` in
    /// `XDG_CACHE_HOME` or in `~/.cache`.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) where none of these is set.
    pub fn usual() -> Result<Self> {
        let variable = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let root = variable("RINGSIDE_CACHE")
            .or_else(|| {
                rustix::process::geteuid()
                    .is_root()
                    .then(|| "/var/cache/ringside".into())
            })
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("ringside")))
            .or_else(|| Some(variable("HOME")?.join(".cache/ringside")));
        let none = || prepare("find", "a folder for fetched kernels", "set RINGSIDE_CACHE to one");
        root.map(|root| Self { root }).ok_or_else(none)
    }

    /// This folder, which is made when it is needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where something of this name is, or would be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The path of an entry. One that is not there is made first: `make` gets an empty folder to fill.
    pub(crate) fn entry(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let entry = self.root.join(name);
        if entry.exists() {
            return Ok(entry);
        }
        let failed = |source: io::Error| prepare("write into the cache", self.root.display(), source);
        fs::create_dir_all(&self.root).map_err(failed)?;
        let lock = File::create(self.root.join("lock")).map_err(failed)?;
        let mut refused = None;
        let locked = wait_until(PATIENCE, || match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => entry.exists(),
            Err(TryLockError::Error(error)) => refused.insert(error).raw_os_error().is_some(),
        });
        if let Some(error) = refused {
            return Err(failed(error));
        }
        if !locked {
            let reason = "another process has had its lock for ten minutes";
            return Err(prepare("write into the cache", self.root.display(), reason));
        }
        if entry.exists() {
            return Ok(entry);
        }
        self.remove_stale();
        let made = self.root.join(name::unique("fetch").map_err(failed)?);
        fs::create_dir(&made).map_err(failed)?;
        make(&made)
            .and_then(|()| write_digests(&made).map_err(failed))
            .and_then(|()| fs::rename(&made, &entry).map_err(failed))
            .inspect_err(|_| _ = fs::remove_dir_all(&made))?;
        Ok(entry)
    }

    /// Removes an entry with a file that is missing or differs from what was fetched.
    pub(crate) fn remove_damaged(&self, name: &str) -> Result<()> {
        let entry = self.root.join(name);
        if !entry.exists() {
            return Ok(());
        }
        let failed = |source: io::Error| prepare("verify", entry.display(), source);
        let is_sound = Command::new("sha256sum")
            .args(["--check", "--status", "--strict", DIGESTS])
            .current_dir(&entry)
            .stderr(Stdio::null())
            .status()
            .map_err(failed)?
            .success();
        if is_sound {
            return Ok(());
        }
        fs::remove_dir_all(&entry).map_err(failed)
    }

    /// What killed processes left half made.
    fn remove_stale(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(name::is_stale) {
                _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Writes the digests of all files below a folder.
fn write_digests(folder: &Path) -> io::Result<()> {
    let digests = File::create(folder.join(DIGESTS))?;
    let status = Command::new("find")
        .args([
            ".",
            "-type",
            "f",
            "-not",
            "-name",
            DIGESTS,
            "-exec",
            "sha256sum",
            "{}",
            "+",
        ])
        .current_dir(folder)
        .stdout(digests)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("sha256sum failed ({status})"))),
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
