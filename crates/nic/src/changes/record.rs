//! What is written down about a change before it is made.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::namespace::NamespaceId;
use crate::setting::{InterfaceFile, Setting};
use crate::{Error, Interface, Result, process};

/// The format of a state file. A file of another version is left alone.
pub(super) const VERSION: u32 = 1;

/// All that one process has changed and not put back yet: the content of its state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sheet {
    pub(super) version: u32,
    pub(super) owner: Owner,
    /// In the order in which they were made.
    pub(super) records: Vec<Record>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// A later change has a larger number, also in another process.
    pub(super) order: u64,
    pub(super) place: Place,
    pub(super) setting: Setting,
    /// The value that it had.
    pub(super) before: String,
    /// The value that it was given.
    pub(super) after: String,
    /// Whether its end has come, and it could not be put back: whoever can may.
    #[serde(default)]
    pub(super) abandoned: bool,
    /// Whether it is to stay when its process ends, until somebody asks for it to be put back.
    #[serde(default)]
    pub(super) kept: bool,
}

/// Where a change was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) namespace: NamespaceId,
    pub(super) index: u32,
    /// The interface's name when the change was made.
    pub(super) interface: String,
}

impl Record {
    /// Whether two changes are of the same thing.
    pub(super) fn same_thing(&self, other: &Self) -> bool {
        self.setting == other.setting && (self.setting.of_host().is_some() || self.place.same(&other.place))
    }

    /// Whether it is there to be put back by whoever finds it, given whether its process has ended.
    pub(super) fn is_left(&self, dead: bool) -> bool {
        self.abandoned || (dead && !self.kept)
    }

    /// The id of the NAPI instance if this is a change of the field that `file` sets too, on an interface.
    pub(super) fn napi_under(&self, file: InterfaceFile, place: &Place) -> Option<u32> {
        match self.setting {
            Setting::Napi { id, field } if field == file.field() && self.place.same(place) => Some(id),
            _ => None,
        }
    }
}

impl Place {
    /// That of an interface in the calling thread's namespace.
    pub(super) fn of(interface: &Interface) -> Result<Self> {
        let namespace =
            NamespaceId::current().map_err(|error| Error::file("read", "/proc/thread-self/ns/net", error))?;
        Ok(Self {
            namespace,
            index: interface.index(),
            interface: interface.name().to_owned(),
        })
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.namespace == other.namespace && self.index == other.index
    }
}

/// A process, told from all others that ever ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) pid: u32,
    /// Clock ticks from boot until it started: a later process may have the same number, but not the same start.
    pub(super) start: u64,
    /// Which boot that was.
    pub(super) boot: String,
    /// The PID namespace in which `pid` means something.
    pub(super) pid_namespace: u64,
    /// Its name, for the message to whoever finds what it left.
    pub(super) command: String,
}

/// What has become of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Alive,
    /// It ended, or the number is another process's now.
    Dead,
    /// The machine has been restarted since, and everything is as it comes up.
    OtherBoot,
    /// It belongs to another PID namespace, and its number tells nothing here.
    Unknown,
}

impl Owner {
    /// The calling process.
    pub(super) fn this() -> io::Result<Self> {
        let pid = std::process::id();
        let start = process::start_time(pid).ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        Ok(Self {
            pid,
            start,
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            pid_namespace: rustix::fs::stat("/proc/self/ns/pid")?.st_ino,
            command: process::command(pid).unwrap_or_default(),
        })
    }

    /// What has become of it, as `this` process can see it.
    pub(super) fn fate(&self, this: &Self) -> Fate {
        if self.boot != this.boot {
            Fate::OtherBoot
        } else if self.pid_namespace != this.pid_namespace {
            Fate::Unknown
        } else if process::start_time(self.pid) == Some(self.start) {
            Fate::Alive
        } else {
            Fate::Dead
        }
    }

    /// Whether the two are one process, whatever it called itself at the time.
    pub(super) fn is(&self, other: &Self) -> bool {
        let identity = |owner: &Self| (owner.pid, owner.start, owner.pid_namespace, owner.boot.clone());
        identity(self) == identity(other)
    }

    pub(super) fn file_name(&self) -> String {
        format!("changes-{}-{}.json", self.pid, self.start)
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
