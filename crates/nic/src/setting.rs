//! One thing on the machine that this crate changes, read and written as text.
//!
//! Text, because that is what sysfs has, what a state file holds and what a message shows; numbers are decimal, times
//! in nanoseconds, CPUs a list such as "0-3,8".

use std::cell::OnceCell;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::knob::Knob;
use crate::netdev::{NapiField, Netdev, napi_id, raw_value};
use crate::sysfs::Sysfs;
use crate::{Error, Interface, Result, cpus, process};

/// What is set, apart from its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Setting {
    /// A file of the interface in sysfs.
    InterfaceFile { file: InterfaceFile },
    /// A field of one NAPI instance.
    Napi { id: u32, field: NapiField },
    /// The CPUs of a thread, which started at that many clock ticks since boot.
    Affinity { thread: u32, start: u64 },
    /// One of the things that are set by name.
    Knob { knob: Knob },
    /// What hangs at the interface's root of queueing disciplines.
    RootQdisc,
    /// The NIC's rule at a location.
    Ntuple { location: u32 },
    /// The table of receive queues that hashes choose from.
    RssTable,
    /// The priority that a VLAN device's tags have for a priority of packets.
    EgressQos { priority: u32 },
}

impl Setting {
    /// Whether it is of the interface as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::InterfaceFile { .. })
    }

    /// Whether a value that is there now is the one that was set: of queueing disciplines also a part of it, as a process leaves it
    /// that is killed while it installs them.
    pub(crate) fn is_set(&self, now: &str, after: &str) -> bool {
        now == after || (matches!(self, Self::RootQdisc) && Interface::is_our_qdisc(now))
    }

    /// The knob if it is of the host, whichever interface it was turned for.
    pub(crate) fn of_host(&self) -> Option<&Knob> {
        match self {
            Self::Knob { knob } if knob.is_of_host() => Some(knob),
            _ => None,
        }
    }
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

    /// The field that the file sets in every NAPI instance of the interface too.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/netdev_set_gro_flush_timeout>
    pub(crate) fn field(self) -> NapiField {
        match self {
            Self::NapiDeferHardIrqs => NapiField::DeferHardIrqs,
            Self::GroFlushTimeout => NapiField::GroFlushTimeout,
            Self::Threaded => NapiField::Threaded,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InterfaceFile { file } => f.write_str(file.name()),
            Self::Napi { id, field } => write!(f, "{field} of NAPI {id}"),
            Self::Affinity { thread, .. } => write!(f, "CPUs of thread {thread}"),
            Self::Knob { knob } => knob.fmt(f),
            Self::RootQdisc => f.write_str("root queueing discipline"),
            Self::Ntuple { location } => write!(f, "rule {location} for receive queues"),
            Self::RssTable => f.write_str("RSS table"),
            Self::EgressQos { priority } => write!(f, "PCP for priority {priority}"),
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

    pub(crate) fn interface(&self) -> &Interface {
        self.interface
    }

    /// The present value; `None` if what it belongs to is gone, or this kernel does not have it.
    pub(crate) fn read(&self, setting: &Setting) -> Result<Option<String>> {
        match setting {
            Setting::InterfaceFile { file } => self.sysfs().read(self.interface, file.name()).map(Some),
            Setting::Napi { id, field } => {
                let Some(mut netdev) = Netdev::open(self.interface, OPERATION)? else {
                    return Ok(None);
                };
                let present = netdev.napi(OPERATION, *id)?;
                Ok(present
                    .and_then(|answer| raw_value(&answer, *field))
                    .map(|value| value.to_string()))
            }
            Setting::Affinity { thread, start } => {
                if process::start_time(*thread) != Some(*start) {
                    return Ok(None);
                }
                cpus::of_thread(*thread)
                    .map(|list| Some(cpus::text(&list)))
                    .map_err(|source| self.affinity_error(*thread, "", source))
            }
            Setting::Knob { knob } => knob.read(self).map(Some),
            Setting::RootQdisc => self.interface.root_qdisc().map(Some),
            Setting::Ntuple { location } => self.interface.ntuple_at(*location).map(Some),
            Setting::RssTable => self.interface.rss_table().map(Some),
            Setting::EgressQos { priority } => self.interface.egress_of(*priority).map(Some),
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
            Setting::Knob { knob } => knob.write(self, value),
            Setting::RootQdisc => self.interface.set_root_qdisc(value),
            Setting::Ntuple { location } => self.interface.set_ntuple(*location, value),
            Setting::RssTable => self.interface.set_rss_table(value),
            Setting::EgressQos { priority } => self.interface.set_egress(*priority, value),
        }
    }

    /// Writes one after the other. If the interface as a whole is among them, a NAPI instance that has ended since needs
    /// nothing: its successor starts with what the interface has.
    pub(crate) fn write_all<'v>(&self, values: impl Iterator<Item = (&'v Setting, &'v str)> + Clone) -> Result<()> {
        let whole = values.clone().any(|(setting, _)| setting.is_whole());
        for (setting, value) in values {
            match self.write(setting, value) {
                Err(Error::UnknownNapi { .. }) if whole => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Writes a file of the interface without changing the NAPI instances in `spare`, nor those that have another value
    /// than `common`, which they got from somebody else.
    pub(crate) fn write_sparing(&self, file: InterfaceFile, value: &str, common: &str, spare: &[u32]) -> Result<()> {
        let mut netdev = Netdev::open(self.interface, OPERATION)?;
        let answers = match &mut netdev {
            Some(netdev) => netdev.napis(OPERATION)?.unwrap_or_default(),
            None => Vec::new(),
        };
        self.write(&Setting::InterfaceFile { file }, value)?;
        for answer in &answers {
            let (Some(id), Some(own)) = (napi_id(answer), raw_value(answer, file.field())) else {
                continue;
            };
            let text = own.to_string();
            if (text != common || spare.contains(&id)) && text != value {
                let field = file.field();
                match self.write(&Setting::Napi { id, field }, &text) {
                    Err(Error::UnknownNapi { .. }) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    pub(crate) fn sysfs(&self) -> &Sysfs {
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
