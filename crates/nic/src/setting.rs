//! One thing on the machine that this crate changes, read and written as text.
//!
//! Text, because that is what sysfs has, what a state file holds and what a message shows; numbers are decimal, times
//! in nanoseconds, CPUs a list such as "0-3,8".

use std::cell::OnceCell;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::netdev::{NapiField, Netdev};
use crate::sysfs::Sysfs;
use crate::{Error, Interface, Result, cpus};

/// What is set, apart from its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Setting {
    /// A file of the interface in sysfs.
    InterfaceFile { file: InterfaceFile },
    /// A field of one NAPI instance.
    Napi { id: u32, field: NapiField },
    /// The CPUs of a thread, which started at that many clock ticks since boot.
    Affinity { thread: u32, start: u64 },
}

/// The files of an interface that this crate writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InterfaceFile {
    NapiDeferHardIrqs,
    GroFlushTimeout,
    Threaded,
}

impl InterfaceFile {
    fn name(self) -> &'static str {
        match self {
            Self::NapiDeferHardIrqs => "napi_defer_hard_irqs",
            Self::GroFlushTimeout => "gro_flush_timeout",
            Self::Threaded => "threaded",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InterfaceFile { file } => f.write_str(file.name()),
            Self::Napi { id, field } => write!(f, "{field} of NAPI {id}"),
            Self::Affinity { thread, .. } => write!(f, "CPUs of thread {thread}"),
        }
    }
}

/// Reads and writes the settings of one interface, from a thread in its network namespace.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    interface: &'a Interface,
    sysfs: OnceCell<Sysfs>,
}

const OPERATION: &str = "change a setting";

impl<'a> Access<'a> {
    pub(crate) fn new(interface: &'a Interface) -> Self {
        Self {
            interface,
            sysfs: OnceCell::new(),
        }
    }

    pub(crate) fn write(&self, setting: &Setting, value: &str) -> Result<()> {
        match setting {
            Setting::InterfaceFile { file } => self.sysfs().write(self.interface, file.name(), value),
            Setting::Napi { id, field } => {
                let number = value
                    .parse()
                    .map_err(|_| Error::malformed(OPERATION, self.interface.name(), format!("the value '{value}'")))?;
                Netdev::open(self.interface, OPERATION)?
                    .ok_or_else(|| Error::needs_kernel(OPERATION, self.interface.name(), "6.13"))?
                    .set_napi(OPERATION, *id, &[(*field, number)])
            }
            Setting::Affinity { thread, .. } => cpus::pin_thread(*thread, &cpus::parse(value))
                .map_err(|source| self.affinity_error(*thread, value, source)),
        }
    }

    fn sysfs(&self) -> &Sysfs {
        self.sysfs.get_or_init(Sysfs::of_this_thread)
    }

    fn affinity_error(&self, thread: u32, cpus: &str, source: std::io::Error) -> Error {
        Error::Affinity {
            interface: self.interface.name().to_owned(),
            thread,
            cpus: cpus.to_owned(),
            source,
        }
    }
}
