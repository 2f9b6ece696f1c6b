//! The QEMU process of a guest: nothing of it stays, however the guest or this process ends.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{name, sys};

/// Of a console's output, how much an error tells.
const LINES: usize = 12;

/// How far back, in bytes, a console is looked at.
const LOOK_AT: u64 = 64 << 10;

/// A folder for a guest's files, which goes when this is dropped, or with the next one's coming if this process is killed.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn create(tag: &str) -> io::Result<Self> {
        Self::reap();
        let path = std::env::temp_dir().join(name::unique(tag)?);
        fs::create_dir(&path)?;
        let folder = Self(path);
        fs::write(folder.path().join(Self::MARK), "")?;
        Ok(folder)
    }

    /// Removes those of killed processes, and returns which.
    pub(crate) fn reap() -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
            return Vec::new();
        };
        let is_left = |entry: &fs::DirEntry| {
            let ours = entry.file_name().to_str().is_some_and(name::is_stale);
            ours && entry.path().join(Self::MARK).exists()
        };
        // Another process may remove the same one at the same time: it is told by one of them.
        entries
            .flatten()
            .filter(is_left)
            .map(|entry| entry.path())
            .filter(|path| fs::remove_dir_all(path).is_ok())
            .collect()
    }

    /// Tells a guest's folder from whatever else may have such a name.
    const MARK: &'static str = "guest";

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that runs, killed when this is dropped, and by the kernel when this process is.
#[derive(Debug)]
pub(crate) struct Machine {
    process: OwnedFd,
    ended: Arc<(Mutex<Option<ExitStatus>>, Condvar)>,
    keeper: Option<JoinHandle<()>>,
}

impl Machine {
    /// Starts a program that has these descriptors too, under the same numbers. The terminal's Ctrl-C is not its: who started it ends it.
    pub(crate) fn start(mut command: Command, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        sys::inherit(&mut command, descriptors);
        let ended = Arc::new((Mutex::new(None), Condvar::new()));
        let (started, outcome) = mpsc::sync_channel(1);
        let shared = Arc::clone(&ended);
        // The kernel kills the child when the **thread** that made it ends, so that thread lives as long as it.
        let keep = move || {
            sys::die_with_thread(&mut command);
            command.process_group(0);
            let spawned = command.spawn();
            // Its copies of the descriptors: the other end sees the child's end only without them.
            drop(command);
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => {
                    _ = started.send(Err(error));
                    return;
                }
            };
            // Not waited for yet, so the number is its own.
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
            if process.is_err() {
                _ = child.kill();
            }
            _ = started.send(process.map_err(Into::into));
            let status = child.wait().ok();
            let (ended, changed) = &*shared;
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = status;
            changed.notify_all();
        };
        let keeper = thread::Builder::new().name("guest".to_owned()).spawn(keep)?;
        let process = outcome.recv().map_err(|_| io::Error::other("its thread ended"))??;
        Ok(Self {
            process,
            ended,
            keeper: Some(keeper),
        })
    }

    /// Its number, by what the kernel tells of the descriptor: -1 once it has been waited for.
    pub(crate) fn pid(&self) -> io::Result<u32> {
        let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.process.as_raw_fd()))?;
        let pid = told.lines().find_map(|line| line.strip_prefix("Pid:"));
        pid.and_then(|pid| pid.trim().parse().ok())
            .ok_or_else(|| io::Error::other("the machine has ended"))
    }

    /// How it ended, if it does within this time.
    pub(crate) fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let (ended, changed) = &*self.ended;
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(ended, limit, |ended| ended.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Tells it to end, as Ctrl+C does.
    pub(crate) fn interrupt(&self) {
        _ = pidfd_send_signal(&self.process, Signal::INT);
    }

    pub(crate) fn kill(&self) {
        // It may have ended by itself.
        _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        if let Some(keeper) = self.keeper.take() {
            _ = keeper.join();
        }
    }
}

/// The last lines of a console's file, and the one in which a kernel that has died says of what.
pub(crate) fn last_lines(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOOK_AT)))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(end)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let printable = |line: &str| -> String { line.chars().filter(|sign| !sign.is_control()).collect() };
    let lines: Vec<String> = text
        .lines()
        .map(printable)
        .filter(|line| !line.trim().is_empty())
        .collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LINES));
    let is_death = |line: &&String| ["Kernel panic", "BUG:", "Oops:"].iter().any(|word| line.contains(word));
    let death = before.iter().find(is_death);
    let told: Vec<&str> = death.into_iter().chain(last).map(String::as_str).collect();
    told.join("\n")
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
