//! Which processes hold an XDP program, an AF_XDP socket or a map of them.
//!
//! When an interface is taken, the useful answer is not "busy" but by whom. A BPF link belongs to whoever holds its
//! file descriptor, and procfs shows those together with the interface they are for.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Interface;

/// A process that holds an XDP link on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Owner {
    /// Process number.
    pub pid: u32,
    /// The process's command name, as `ps` shows it.
    pub comm: String,
    /// The BPF link's id, as `bpftool link show id` takes it.
    pub link_id: u32,
    /// The attached program's id; `None` on a kernel that does not show it.
    pub prog_id: Option<u32>,
    /// Whether the process is in the calling thread's network namespace. Interface indexes repeat from one namespace to
    /// the next, so an owner in another one may hold somebody else's interface.
    pub same_namespace: bool,
}

/// A process that holds an XSKMAP, and so may redirect packets into AF_XDP sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MapOwner {
    /// Process number.
    pub pid: u32,
    /// The process's command name.
    pub comm: String,
    /// The map's id, as `bpftool map show id` takes it.
    pub map_id: u32,
}

/// A process that has AF_XDP sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SocketOwner {
    /// Process number.
    pub pid: u32,
    /// The process's command name.
    pub comm: String,
    /// Whether the process is in the calling thread's network namespace; its sockets may be of another one all the same.
    pub same_namespace: bool,
}

impl Interface {
    /// The processes that hold an XDP link with this interface's index, those of this network namespace first.
    ///
    /// Other users' processes are only seen by root. A program that was attached by netlink (`ip link set … xdp`) has
    /// no owner, and neither has a link that is only pinned.
    #[must_use]
    pub fn xdp_owners(&self) -> Vec<Owner> {
        let index = self.index();
        let mut owners = scan(Path::new("/proc"), "anon_inode:bpf_link", |process, info| {
            let ours = info.text("link_type") == Some("xdp") && info.number("ifindex") == Some(index);
            ours.then(|| {
                Some(Owner {
                    pid: process.pid,
                    comm: process.comm(),
                    link_id: info.number("link_id")?,
                    prog_id: info.number("prog_id"),
                    same_namespace: process.shares_namespace(),
                })
            })?
        });
        owners.sort_by_key(|owner| (!owner.same_namespace, owner.pid, owner.link_id));
        // One process may hold several descriptors of one link.
        owners.dedup();
        owners
    }
}

/// The processes that hold an XSKMAP. The kernel does not tell which interface a map serves.
#[must_use]
pub fn xskmap_owners() -> Vec<MapOwner> {
    let mut owners = scan(Path::new("/proc"), "anon_inode:bpf-map", |process, info| {
        (info.number("map_type") == Some(BPF_MAP_TYPE_XSKMAP)).then(|| {
            Some(MapOwner {
                pid: process.pid,
                comm: process.comm(),
                map_id: info.number("map_id")?,
            })
        })?
    });
    owners.sort_by_key(|owner| (owner.pid, owner.map_id));
    owners.dedup();
    owners
}

/// The processes that have AF_XDP sockets, those of this network namespace first.
///
/// The kernel does not tell everybody which queue a socket is bound to. Other users' processes are only seen by root.
#[must_use]
pub fn xdp_socket_owners() -> Vec<SocketOwner> {
    let mut owners = Vec::new();
    for ((pid, directory), descriptors) in processes(Path::new("/proc")) {
        let has_one = descriptors.iter().any(|fd| {
            let is_socket = fs::read_link(fd).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
            is_socket && protocol(fd).as_deref() == Some(b"XDP")
        });
        if has_one {
            let process = Process {
                pid,
                directory: &directory,
            };
            owners.push(SocketOwner {
                pid: process.pid,
                comm: process.comm(),
                same_namespace: process.shares_namespace(),
            });
        }
    }
    owners.sort_by_key(|owner| (!owner.same_namespace, owner.pid));
    owners
}

/// The protocol of a socket, as lsof shows it: <https://elixir.bootlin.com/linux/v6.18/C/ident/sockfs_xattr_get>
fn protocol(fd: &Path) -> Option<Vec<u8>> {
    let mut name = [0; 32];
    let length = rustix::fs::getxattr(fd, c"system.sockprotoname", &mut name).ok()?;
    // With the NUL behind it.
    Some(name.get(..length)?.split(|byte| *byte == 0).next()?.to_vec())
}

/// <https://elixir.bootlin.com/linux/v6.18/C/ident/BPF_MAP_TYPE_XSKMAP>
const BPF_MAP_TYPE_XSKMAP: u32 = 17;

pub(crate) struct Process<'a> {
    pub(crate) pid: u32,
    pub(crate) directory: &'a Path,
}

impl Process<'_> {
    pub(crate) fn comm(&self) -> String {
        fs::read_to_string(self.directory.join("comm"))
            .map(|text| text.trim_end().to_owned())
            .unwrap_or_default()
    }

    pub(crate) fn shares_namespace(&self) -> bool {
        let theirs = rustix::fs::stat(self.directory.join("ns/net"))
            .ok()
            .map(|stat| stat.st_ino);
        theirs.is_some() && theirs == crate::interface::current_namespace()
    }
}

/// The "name:\tvalue" lines of a descriptor's fdinfo:
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_link_show_fdinfo>
struct Info(String);

impl Info {
    fn text(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }
}

/// Looks at every descriptor of that kind of every process. What cannot be read (a process that ended meanwhile, one of
/// another user) is passed over.
fn scan<T>(proc: &Path, kind: &str, mut look: impl FnMut(&Process<'_>, &Info) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for ((pid, directory), descriptors) in processes(proc) {
        let process = Process {
            pid,
            directory: &directory,
        };
        for fd in descriptors {
            let name = fd.file_name().unwrap_or_default();
            if fs::read_link(&fd).is_ok_and(|target| target == Path::new(kind))
                && let Ok(info) = fs::read_to_string(directory.join("fdinfo").join(name))
            {
                found.extend(look(&process, &Info(info)));
            }
        }
    }
    found
}

/// All processes with their directories and the paths of their descriptors.
fn processes(proc: &Path) -> impl Iterator<Item = ((u32, PathBuf), Vec<PathBuf>)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let descriptors = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let descriptors = descriptors.map(|fd| fd.path()).collect();
        Some(((pid, entry.path()), descriptors))
    })
}

#[cfg(test)]
#[path = "owners_tests.rs"]
mod tests;
