//! What the process may do and how much memory it may lock.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::{Error, Result};

/// A capability that AF_XDP and BPF programs need: capabilities(7).
///
/// The numbers: <https://elixir.bootlin.com/linux/v6.18/C/ident/CAP_NET_ADMIN>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum Cap {
    /// Change interfaces; attach XDP programs.
    NetAdmin = 12,
    /// Open AF_XDP and AF_PACKET sockets.
    NetRaw = 13,
    /// Lock memory beyond the limit.
    IpcLock = 14,
    /// See other users' processes.
    SysPtrace = 19,
    /// Mount, enter namespaces.
    SysAdmin = 21,
    /// Real-time scheduling.
    SysNice = 23,
    /// Raise limits.
    SysResource = 24,
    /// Tracing programs.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

impl Cap {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NetAdmin,
        Self::NetRaw,
        Self::IpcLock,
        Self::SysPtrace,
        Self::SysAdmin,
        Self::SysNice,
        Self::SysResource,
        Self::Perfmon,
        Self::Bpf,
    ];
}

/// The kernel's name, "CAP_NET_ADMIN".
impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        })
    }
}

/// A set of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The effective set of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::File`] without a mounted procfs.
    #[doc(alias = "capget")]
    pub fn effective() -> Result<Self> {
        let path = "/proc/thread-self/status";
        let status = fs::read_to_string(path).map_err(|source| Error::file("read", path, source))?;
        Self::parse(&status).ok_or_else(|| Error::file("understand", path, std::io::Error::other("no CapEff in it")))
    }

    /// Whether the set contains a capability.
    ///
    /// Since Linux 5.8 [`Cap::SysAdmin`] stands for [`Cap::Bpf`] and [`Cap::Perfmon`] too; this looks at the bit alone.
    #[must_use]
    pub fn has(self, cap: Cap) -> bool {
        self.0 & (1 << cap as u32) != 0
    }

    fn parse(status: &str) -> Option<Self> {
        let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(hex.trim(), 16).ok().map(Self)
    }
}

/// How much memory the process may lock, in bytes; `None` for no limit.
///
/// The kernel counts UMEM against it, per user, unless the process has [`Cap::IpcLock`].
#[doc(alias = "RLIMIT_MEMLOCK")]
#[must_use]
pub fn memlock_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Memory of the control group that leaves the process the least.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CgroupMemory {
    /// The group's directory.
    pub path: PathBuf,
    /// Its limit in bytes; `None` if no group on the way up has one.
    pub limit: Option<u64>,
    /// What the group uses, in bytes.
    pub used: u64,
}

impl CgroupMemory {
    /// What is left, in bytes; `None` without a limit.
    ///
    /// Page cache counts as used although the kernel gives it back under pressure, so more may be had than this says.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

/// The memory of the process's control group (version 1 or 2); `None` if there is none to be seen.
///
/// Groups are nested and each has its own limit: the one that leaves the least counts.
#[must_use]
pub fn cgroup_memory() -> Option<CgroupMemory> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    // With both versions mounted the memory controller belongs to the one that lists it.
    [Version::One, Version::Two].into_iter().find_map(|version| {
        let (root, group) = locate(version, &groups, &mounts)?;
        tightest(version, &root, &group)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where the hierarchy of the memory controller is mounted and what the process's group in it is called.
fn locate(version: Version, groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    // "ID:controllers:path"; version 2 has the id 0 and no controllers.
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match version {
            Version::One => controllers.split(',').any(|controller| controller == "memory"),
            Version::Two => controllers.is_empty(),
        };
        ours.then_some(path)
    })?;
    // "id parent dev root mountpoint options … - type source superoptions"
    let (root, mount) = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let ours = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::Two => kind == "cgroup2",
        };
        ours.then_some((root, mount))
    })?;
    // In a container the mount may show only the subtree from `root` on.
    let below = Path::new(group)
        .strip_prefix(root)
        .or_else(|_| Path::new(group).strip_prefix("/"))
        .ok()?;
    Some((PathBuf::from(mount), below.to_owned()))
}

fn tightest(version: Version, mount: &Path, group: &Path) -> Option<CgroupMemory> {
    let (limit_file, used_file) = match version {
        Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        Version::Two => ("memory.max", "memory.current"),
    };
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let levels = group.ancestors().map(|below| mount.join(below)).filter_map(|path| {
        let used = number(path.join(used_file))?;
        let limit = number(path.join(limit_file)).filter(|limit| *limit < UNLIMITED);
        Some(CgroupMemory { path, limit, used })
    });
    // The first of equals is the innermost; no limit at all comes last.
    levels.min_by_key(|level| level.available().unwrap_or(u64::MAX))
}

/// Version 1 writes "no limit" as the largest multiple of the page size below 2⁶³; version 2 as a word.
const UNLIMITED: u64 = 1 << 62;

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
