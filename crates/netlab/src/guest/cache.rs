//! The folder that keeps fetched kernels and capture files.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::package::Package;
use super::prepare;
use crate::Result;

/// Environment variable that forbids fetching, unless it is empty or "0": a missing entry is then
/// an error. `.cargo/config.toml` sets it for all that cargo runs, so no test contacts a package
/// server.
pub const OFFLINE: &str = "RINGSIDE_OFFLINE";

/// Root's cache, in which other users find entries, too.
const SYSTEM: &str = "/var/cache/ringside";

/// The digests of an entry's files, as `sha256sum` writes them. An entry without it is incomplete.
const DIGESTS: &str = "SHA256SUMS";

/// Fetches an entry. `scripts/setup` runs the same file.
const FETCH: &str = include_str!("fetch.sh");

/// A folder of files that can be fetched again: removing it costs time and nothing else.
///
/// An entry is verified by the SHA-256 of each file when a process first uses it. Several processes
/// may use the folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    /// A second folder, which is only read.
    shared: Option<PathBuf>,
}

impl Cache {
    /// Returns the folder that `RINGSIDE_CACHE` names. Without it root has `/var/cache/ringside`,
    /// and others have `ringside` in `XDG_CACHE_HOME` or in `~/.cache`, and read what root has
    /// fetched.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) if none of these is set.
    pub fn usual() -> Result<Self> {
        let variable = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        if let Some(root) = variable("RINGSIDE_CACHE") {
            return Ok(Self::at(root));
        }
        if rustix::process::geteuid().is_root() {
            return Ok(Self::at(SYSTEM));
        }
        let home = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        let none = || prepare("find", "a folder for fetched kernels", "set RINGSIDE_CACHE to one");
        Ok(Self {
            root: home.ok_or_else(none)?.join("ringside"),
            shared: Some(SYSTEM.into()),
        })
    }

    /// Returns the cache in this folder, which the first fetch creates.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            shared: None,
        }
    }

    /// Returns the path of a file of this name, which need not exist.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the folder of a complete entry, without verifying it.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let entries = [Some(&self.root), self.shared.as_ref()].into_iter().flatten();
        entries
            .map(|root| root.join(name))
            .find(|entry| entry.join(DIGESTS).exists())
    }

    /// Returns the folder of an entry whose files have the recorded digests. Fetches nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`](crate::Error::Prepare) if the entry is missing or damaged.
    pub fn entry(&self, name: &str) -> Result<PathBuf> {
        let entry = self.find(name).ok_or_else(|| {
            let reason = format!(
                "it is not in {}: run scripts/setup, or scripts/setup --guests for make test-guests",
                self.root.display()
            );
            prepare("find", format_args!("{name} in the cache"), reason)
        })?;
        verify(&entry).map(|()| entry)
    }

    /// As [`entry`](Self::entry), for the kernel of a package, which is fetched if it is missing or
    /// damaged.
    pub(crate) fn kernel(&self, package: &Package) -> Result<PathBuf> {
        let name = package.file_name();
        let forbidden = std::env::var_os(OFFLINE).is_some_and(|value| !value.is_empty() && value != "0");
        match self.entry(&name) {
            Err(_) if !forbidden => {
                self.fetch(package)?;
                self.entry(&name)
            }
            found => found,
        }
    }

    fn fetch(&self, package: &Package) -> Result<()> {
        let package = package.to_string();
        let mut command = Command::new("sh");
        command
            .args(["-c", FETCH, "fetch.sh", "kernel"])
            .arg(&self.root)
            .arg(&package);
        finished(&mut command).map_err(|reason| prepare("fetch the package", package, reason))
    }
}

/// Verifies the digests of an entry that this process has not verified yet.
fn verify(entry: &Path) -> Result<()> {
    static VERIFIED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut verified = VERIFIED.lock().expect("not poisoned");
    if verified.contains(entry) {
        return Ok(());
    }
    let mut command = Command::new("sha256sum");
    // A guest has a copy with the modules that it needs. The process group keeps Ctrl-C away: a
    // verification that a signal ends looks like a damaged entry.
    command
        .args(["--check", "--quiet", "--strict", "--ignore-missing", DIGESTS])
        .current_dir(entry)
        .process_group(0);
    finished(&mut command).map_err(|reason| {
        let reason = format!("{reason}\nIt is damaged: run scripts/setup, which fetches it again");
        prepare("verify", entry.display(), reason)
    })?;
    verified.insert(entry.to_owned());
    Ok(())
}

/// Runs a program; the error is what it printed.
fn finished(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("cannot run {name}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    Err(format!("{name} failed ({}):\n{}", done.status, text.trim_end()))
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
