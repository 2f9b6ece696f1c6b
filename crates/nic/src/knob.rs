//! Settings by name, with their values as text: what an administrator turns with `ethtool` and `echo`.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::setting::Access;
use crate::{Error, Interface, Result, cpus};

/// One thing that can be set, on an interface or for it on the host.
///
/// Values are text: `on` and `off`, numbers in decimal, CPUs a list such as `0-3,8` or `none`.
/// [`Changes::set_knobs`](crate::changes::Changes::set_knobs) sets them and puts them back.
///
/// ```no_run
/// use ringside_nic::changes::Changes;
/// use ringside_nic::{Interface, Knob};
///
/// # fn main() -> Result<(), ringside_nic::Error> {
/// let eth0 = Interface::by_name("eth0")?;
/// let gro = Knob::offload("gro");
/// println!("{gro} is {}", eth0.knob(&gro)?);
/// let undo = Changes::new().set_knobs(&eth0, &[(gro, "off".to_owned())])?;
/// // … the work …
/// undo.restore();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "knob", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Knob {
    /// An offload by the kernel's name (`ethtool -K`): `on` or `off`, as it was asked for. Whether it is in force may
    /// depend on others.
    Offload {
        /// "rx-gro", "tx-tcp-segmentation", ….
        name: String,
    },
    /// The CPUs that the kernel spreads the packets of a receive queue over.
    #[doc(alias = "rps_cpus")]
    RpsCpus {
        /// The queue.
        queue: u32,
    },
    /// The CPUs whose packets the kernel's stack sends by this transmit queue.
    #[doc(alias = "xps_cpus")]
    XpsCpus {
        /// The queue.
        queue: u32,
    },
    /// For how long, or for how many packets, the NIC holds its interrupt back (`ethtool -C`).
    Coalescing {
        /// Which of them.
        field: Coalescing,
    },
    /// The CPUs that may handle an interrupt. Of the host.
    #[doc(alias = "smp_affinity")]
    IrqCpus {
        /// Its number in `/proc/interrupts`.
        irq: u32,
    },
    /// What chooses the frequency of a CPU. Of the host.
    #[doc(alias = "scaling_governor")]
    Governor {
        /// The CPU.
        cpu: u32,
    },
}

/// Fields of `struct ethtool_coalesce` (<https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_coalesce>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[doc(alias = "ethtool_coalesce")]
pub enum Coalescing {
    /// Microseconds that a received packet waits for others.
    RxUsecs,
    /// Received packets that wait for others at the most.
    RxFrames,
    /// Microseconds that a sent packet waits for its completion to be told.
    TxUsecs,
    /// Sent packets that wait for it at the most.
    TxFrames,
    /// Whether the driver chooses for receiving: `on` or `off`.
    AdaptiveRx,
    /// Whether the driver chooses for transmitting: `on` or `off`.
    AdaptiveTx,
}

impl Coalescing {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::RxUsecs,
        Self::RxFrames,
        Self::TxUsecs,
        Self::TxFrames,
        Self::AdaptiveRx,
        Self::AdaptiveTx,
    ];

    /// Where it is, in bytes; whether it is a switch; `ethtool`'s name.
    const fn layout(self) -> (usize, bool, &'static str) {
        match self {
            Self::RxUsecs => (4, false, "rx-usecs"),
            Self::RxFrames => (8, false, "rx-frames"),
            Self::TxUsecs => (20, false, "tx-usecs"),
            Self::TxFrames => (24, false, "tx-frames"),
            Self::AdaptiveRx => (40, true, "adaptive-rx"),
            Self::AdaptiveTx => (44, true, "adaptive-tx"),
        }
    }

    /// `ethtool`'s name for it: "rx-usecs".
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.layout().2
    }
}

impl FromStr for Coalescing {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|field| field.name() == text);
        found.ok_or_else(|| format!("{text:?} is none of {names}"))
    }
}

/// `ethtool -K` takes these for the kernel's. Not among them are those that stand for several, such as "tso".
const SHORT_NAMES: [(&str, &str); 5] = [
    ("gro", "rx-gro"),
    ("gso", "tx-generic-segmentation"),
    ("lro", "rx-lro"),
    ("rx", "rx-checksum"),
    ("rxhash", "rx-hashing"),
];

const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
/// Bytes of `struct ethtool_coalesce`.
const COALESCE_LEN: usize = 92;

impl Knob {
    /// An offload by the kernel's name or a short one of `ethtool`: "rx-gro", "gro".
    #[must_use]
    pub fn offload(name: &str) -> Self {
        let long = SHORT_NAMES.iter().find(|(short, _)| *short == name);
        Self::Offload {
            name: long.map_or(name, |(_, long)| *long).to_owned(),
        }
    }

    /// CPUs as a value: in order, and a word for none, so that a message shows them.
    #[must_use]
    pub fn cpu_list(cpus: &[u32]) -> String {
        if cpus.is_empty() {
            return "none".to_owned();
        }
        cpus::text(cpus)
    }

    /// A value as it is read again: "3,2" as "2-3".
    pub(crate) fn normal(&self, value: String) -> String {
        match self {
            Self::RpsCpus { .. } | Self::XpsCpus { .. } | Self::IrqCpus { .. } => Self::cpu_list(&cpus::parse(&value)),
            _ => value,
        }
    }

    /// Whether it is the host's, and shared by all interfaces.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        matches!(self, Self::IrqCpus { .. } | Self::Governor { .. })
    }

    pub(crate) fn read(&self, access: &Access<'_>) -> Result<String> {
        let interface = access.interface();
        match self {
            Self::Offload { name } => Ok(on_off(interface.feature(name)?.requested)),
            Self::RpsCpus { .. } | Self::XpsCpus { .. } => {
                let file = self.queue_file();
                let mask = access.sysfs().read(interface, &file)?;
                let cpus = cpus::from_mask(&mask)
                    .ok_or_else(|| Error::malformed("read the CPUs of a queue", interface.name(), mask))?;
                Ok(Self::cpu_list(&cpus))
            }
            Self::Coalescing { field } => {
                let (offset, switch, _) = field.layout();
                let buffer = interface.ethtool(READ_COALESCING, ETHTOOL_GCOALESCE, COALESCE_LEN, |_| {})?;
                let value = buffer.u32_at(offset);
                Ok(if switch { on_off(value != 0) } else { value.to_string() })
            }
            Self::IrqCpus { .. } | Self::Governor { .. } => self.read_host(),
        }
    }

    pub(crate) fn write(&self, access: &Access<'_>, value: &str) -> Result<()> {
        let interface = access.interface();
        let senseless = || Error::malformed("set a value", interface.name(), format!("'{value}' for {self}"));
        match self {
            Self::Offload { name } => interface.request_feature(name, switch(value).ok_or_else(senseless)?),
            Self::RpsCpus { .. } | Self::XpsCpus { .. } => {
                let mask = cpus::mask(&cpus::parse(value));
                access.sysfs().write(interface, &self.queue_file(), &mask)
            }
            Self::Coalescing { field } => {
                let (offset, is_switch, _) = field.layout();
                let number = match is_switch {
                    true => switch(value).map(u32::from),
                    false => value.parse().ok(),
                };
                let number = number.ok_or_else(senseless)?;
                // The other fields stay what they are.
                let now = interface.ethtool(READ_COALESCING, ETHTOOL_GCOALESCE, COALESCE_LEN, |_| {})?;
                interface.ethtool(
                    "set the interrupt coalescing",
                    ETHTOOL_SCOALESCE,
                    COALESCE_LEN,
                    |buffer| {
                        for at in (4..COALESCE_LEN).step_by(4) {
                            buffer.set_u32(at, now.u32_at(at));
                        }
                        buffer.set_u32(offset, number);
                    },
                )?;
                Ok(())
            }
            Self::IrqCpus { .. } | Self::Governor { .. } => self.write_host(value),
        }
    }

    /// The value of a knob of the host, which needs no interface.
    pub(crate) fn read_host(&self) -> Result<String> {
        let path = self.host_file();
        let text = fs::read_to_string(&path).map_err(|source| Error::file("read", path, source))?;
        Ok(match self {
            Self::IrqCpus { .. } => Self::cpu_list(&cpus::parse(text.trim())),
            _ => text.trim().to_owned(),
        })
    }

    pub(crate) fn write_host(&self, value: &str) -> Result<()> {
        let path = self.host_file();
        fs::write(&path, value).map_err(|source| Error::file("write", path, source))
    }

    /// An offload that was asked for has to be in force, too.
    pub(crate) fn check_effect(&self, interface: &Interface, value: &str) -> Result<()> {
        let Self::Offload { name } = self else { return Ok(()) };
        let feature = interface.feature(name)?;
        let wanted = value == ON;
        if feature.active == wanted {
            return Ok(());
        }
        Err(Error::FeatureUnchanged {
            interface: interface.name().to_owned(),
            feature: name.clone(),
            wanted,
            fixed: feature.fixed,
        })
    }

    fn queue_file(&self) -> String {
        match self {
            Self::RpsCpus { queue } => format!("queues/rx-{queue}/rps_cpus"),
            Self::XpsCpus { queue } => format!("queues/tx-{queue}/xps_cpus"),
            _ => String::new(),
        }
    }

    fn host_file(&self) -> PathBuf {
        match self {
            Self::IrqCpus { irq } => format!("/proc/irq/{irq}/smp_affinity_list"),
            Self::Governor { cpu } => format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
            _ => String::new(),
        }
        .into()
    }
}

const READ_COALESCING: &str = "read the interrupt coalescing";

const ON: &str = "on";
const OFF: &str = "off";

fn on_off(on: bool) -> String {
    if on { ON } else { OFF }.to_owned()
}

fn switch(value: &str) -> Option<bool> {
    match value {
        ON => Some(true),
        OFF => Some(false),
        _ => None,
    }
}

impl Interface {
    /// The present value of a knob.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownFeature`]; [`Error::File`] with `ENOENT` where there is no such queue, interrupt or governor (and
    /// for [`Knob::XpsCpus`] on an interface with a single queue); [`Error::Kernel`] with `EOPNOTSUPP` where the driver has no
    /// coalescing.
    pub fn knob(&self, knob: &Knob) -> Result<String> {
        knob.read(&Access::new(self))
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offload { name } => write!(f, "offload {name}"),
            Self::RpsCpus { queue } => write!(f, "RPS CPUs of receive queue {queue}"),
            Self::XpsCpus { queue } => write!(f, "XPS CPUs of transmit queue {queue}"),
            Self::Coalescing { field } => write!(f, "coalescing {}", field.name()),
            Self::IrqCpus { irq } => write!(f, "CPUs of IRQ {irq}"),
            Self::Governor { cpu } => write!(f, "governor of CPU {cpu}"),
        }
    }
}

#[cfg(test)]
#[path = "knob_tests.rs"]
mod tests;
