//! Network namespaces: which one a thread is in, and how to get back into one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Returns the cookie of the calling thread's network namespace. No other namespace gets the same
/// one until the machine restarts.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 5.14.
pub fn namespace_cookie() -> io::Result<u64> {
    sys::namespace_cookie(sys::ioctl_socket()?.as_fd())
}

/// What tells a network namespace from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct NamespaceId {
    /// The inode that `/proc/PID/ns/net` links to. A later namespace may get the same one.
    inode: u64,
    /// Unique until the machine restarts; `None` before Linux 5.14.
    cookie: Option<u64>,
}

impl NamespaceId {
    /// The one that the calling thread is in.
    pub(crate) fn current() -> io::Result<Self> {
        Ok(Self {
            inode: rustix::fs::stat("/proc/thread-self/ns/net")?.st_ino,
            cookie: namespace_cookie().ok(),
        })
    }

    /// Runs a closure inside, on a thread of its own unless the calling one is there already; `None` if the namespace
    /// no longer exists.
    ///
    /// One that lives on without a process of its own and without a name (only held by a descriptor) is not found.
    pub(crate) fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> io::Result<Option<T>> {
        if Self::current()? == *self {
            return Ok(Some(closure()));
        }
        let Some(file) = candidates(self.inode).find_map(|path| self.open(&path)) else {
            return Ok(None);
        };
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            // The inode may have been used again.
            Ok((Self::current()? == *self).then(closure))
        };
        thread::scope(|scope| {
            let running = thread::Builder::new()
                .name("namespace".to_owned())
                .spawn_scoped(scope, inside)?;
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn open(&self, path: &Path) -> Option<File> {
        let file = File::open(path).ok()?;
        let inode = rustix::fs::fstat(&file).ok()?.st_ino;
        (inode == self.inode).then_some(file)
    }
}

/// Where a namespace may be had: mounted somewhere (`ip netns`, container engines), or in use by a process.
fn candidates(inode: u64) -> impl Iterator<Item = PathBuf> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let numbers = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| entry.path().join("ns/net");
    mounted(&mounts, inode)
        .into_iter()
        .chain(numbers("/proc/self/task").map(of))
        .chain(numbers("/proc").map(of))
}

/// Fields 4 and 5 of proc_pid_mountinfo(5): what is mounted ("net:[4026532281]") and where.
fn mounted(mountinfo: &str, inode: u64) -> Vec<PathBuf> {
    let wanted = format!("net:[{inode}]");
    let mounts = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        (fields.next()? == wanted).then(|| fields.next().map(PathBuf::from))?
    });
    mounts.collect()
}

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
