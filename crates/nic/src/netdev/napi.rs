//! NAPI instances: each one polls a queue or more.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Netdev;
use crate::netlink::generic::{Attributes, Message};
use crate::setting::Setting;
use crate::{Error, Interface, Result};

// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_CMD_NAPI_GET
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;
// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_A_NAPI_IFINDEX
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_IRQ: u16 = 3;
const NETDEV_A_NAPI_PID: u16 = 4;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT: u16 = 7;
const NETDEV_A_NAPI_THREADED: u16 = 8;

/// Who polls a NAPI instance when its interrupt says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Threaded {
    /// The software interrupt.
    Off,
    /// A kernel thread of its own.
    On,
    /// A kernel thread of its own that never stops (Linux 6.19).
    BusyPoll,
}

/// A NAPI instance of a device.
///
/// A field is `None` on a kernel that does not tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Napi {
    /// Its id, unique on the host: what `SO_INCOMING_NAPI_ID` tells of a socket.
    pub id: u32,
    /// Its interrupt; `None` also where the driver has none or does not tell.
    pub irq: Option<u32>,
    /// Process number of its kernel thread, seen from the first PID namespace; `None` without one.
    pub thread: Option<u32>,
    /// Who polls it.
    pub threaded: Threaded,
    /// How many empty polls in a row keep the interrupt off (Linux 6.13).
    pub defer_hard_irqs: Option<u32>,
    /// How long the kernel waits for the next poll by then (Linux 6.13).
    pub gro_flush_timeout: Option<Duration>,
    /// How long the interrupt stays off while an application that prefers busy polling finds packets (Linux 6.13).
    pub irq_suspend_timeout: Option<Duration>,
}

/// A setting of one NAPI instance, with its new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NapiSetting {
    /// How many empty polls in a row keep the interrupt off (Linux 6.13).
    DeferHardIrqs(u32),
    /// How long the kernel waits for the next poll by then (Linux 6.13).
    GroFlushTimeout(Duration),
    /// How long the interrupt stays off while an application that prefers busy polling finds packets (Linux 6.13).
    IrqSuspendTimeout(Duration),
    /// Whether a kernel thread of its own polls it (Linux 6.17).
    Threaded(bool),
}

/// What a [`NapiSetting`] sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NapiField {
    DeferHardIrqs,
    GroFlushTimeout,
    IrqSuspendTimeout,
    Threaded,
}

impl fmt::Display for NapiField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeferHardIrqs => "defer-hard-irqs",
            Self::GroFlushTimeout => "gro-flush-timeout",
            Self::IrqSuspendTimeout => "irq-suspend-timeout",
            Self::Threaded => "threaded",
        })
    }
}

impl NapiField {
    /// Its attribute, and the kernel that it came with.
    fn attribute(self) -> (u16, &'static str) {
        match self {
            Self::DeferHardIrqs => (NETDEV_A_NAPI_DEFER_HARD_IRQS, "6.13"),
            Self::GroFlushTimeout => (NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, "6.13"),
            Self::IrqSuspendTimeout => (NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT, "6.13"),
            Self::Threaded => (NETDEV_A_NAPI_THREADED, "6.17"),
        }
    }
}

impl NapiSetting {
    /// The field, and its value as the kernel has it: times in nanoseconds.
    pub(crate) fn raw(self) -> (NapiField, u64) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Self::DeferHardIrqs(polls) => (NapiField::DeferHardIrqs, polls.into()),
            Self::GroFlushTimeout(time) => (NapiField::GroFlushTimeout, nanoseconds(time)),
            Self::IrqSuspendTimeout(time) => (NapiField::IrqSuspendTimeout, nanoseconds(time)),
            Self::Threaded(on) => (NapiField::Threaded, on.into()),
        }
    }
}

impl Napi {
    fn from_attributes(attributes: Attributes<'_>) -> Option<Self> {
        let time = |kind| attributes.number(kind).map(Duration::from_nanos);
        let thread = attributes.u32(NETDEV_A_NAPI_PID);
        Some(Self {
            id: attributes.u32(NETDEV_A_NAPI_ID)?,
            irq: attributes.u32(NETDEV_A_NAPI_IRQ),
            thread,
            threaded: match (attributes.number(NETDEV_A_NAPI_THREADED), thread) {
                // Before Linux 6.17 the thread's number alone tells that there is one.
                (Some(0), _) | (None, None) => Threaded::Off,
                // https://elixir.bootlin.com/linux/v6.19/C/ident/NETDEV_NAPI_THREADED_BUSY_POLL
                (Some(2), _) => Threaded::BusyPoll,
                _ => Threaded::On,
            },
            defer_hard_irqs: attributes.u32(NETDEV_A_NAPI_DEFER_HARD_IRQS),
            gro_flush_timeout: time(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT),
            irq_suspend_timeout: time(NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT),
        })
    }
}

/// A field's value in the kernel's answer about a NAPI instance; `None` if the kernel does not have the field.
pub(crate) fn raw_value(answer: &Message, field: NapiField) -> Option<u64> {
    answer.attributes().number(field.attribute().0)
}

/// Which NAPI instance the kernel's answer is about.
pub(crate) fn napi_id(answer: &Message) -> Option<u32> {
    answer.attributes().u32(NETDEV_A_NAPI_ID)
}

impl Netdev<'_> {
    /// The kernel's answers about all NAPI instances of the interface; `None` before Linux 6.8.
    pub(crate) fn napis(&mut self, operation: &'static str) -> Result<Option<Vec<Message>>> {
        let question = self
            .message(NETDEV_CMD_NAPI_GET)
            .with_u32(NETDEV_A_NAPI_IFINDEX, self.interface.index());
        self.ask(operation, question, true)
    }

    /// The kernel's answer about one NAPI instance of the interface; `None` if it has none of that id.
    pub(crate) fn napi(&mut self, operation: &'static str, id: u32) -> Result<Option<Message>> {
        let question = self.message(NETDEV_CMD_NAPI_GET).with_u32(NETDEV_A_NAPI_ID, id);
        let answers = match self.ask(operation, question, false) {
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
            other => other?.unwrap_or_default(),
        };
        let ours = |answer: &Message| answer.attributes().u32(NETDEV_A_NAPI_IFINDEX) == Some(self.interface.index());
        Ok(answers.into_iter().find(ours))
    }

    pub(crate) fn set_napi(&mut self, operation: &'static str, id: u32, values: &[(NapiField, u64)]) -> Result<()> {
        let mut message = self.message(NETDEV_CMD_NAPI_SET).with_u32(NETDEV_A_NAPI_ID, id);
        for (field, value) in values {
            let kind = field.attribute().0;
            // The kernel takes times in either width and the other two in 32 bits only:
            // https://elixir.bootlin.com/linux/v6.18/C/ident/netdev_napi_set_nl_policy
            message = match u32::try_from(*value) {
                Ok(value) => message.with_u32(kind, value),
                Err(_) => message.with_u64(kind, *value),
            };
        }
        match self.ask(operation, message, false) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Error::needs_kernel(operation, self.interface.name(), "6.13")),
            Err(error) if error.errno() == Some(libc::ENOENT) => Err(self.unknown(id)),
            Err(error) => Err(error),
        }
    }

    fn unknown(&self, id: u32) -> Error {
        Error::UnknownNapi {
            interface: self.interface.name().to_owned(),
            id,
        }
    }
}

impl Interface {
    /// The NAPI instances, newest first; none while the interface is down (Linux 6.8).
    ///
    /// A veth has them only while it has a native XDP program or GRO is on.
    ///
    /// # Errors
    ///
    /// [`Error::NeedsKernel`] before Linux 6.8; [`Error::Kernel`] with `ENODEV` if the interface was removed.
    #[doc(alias = "NETDEV_CMD_NAPI_GET")]
    pub fn napis(&self) -> Result<Vec<Napi>> {
        const OPERATION: &str = "list the NAPI instances";
        let answers = match Netdev::open(self, OPERATION)? {
            Some(mut netdev) => netdev.napis(OPERATION)?,
            None => None,
        };
        let answers = answers.ok_or_else(|| Error::needs_kernel(OPERATION, self.name(), "6.8"))?;
        let napis = answers
            .iter()
            .filter_map(|answer| Napi::from_attributes(answer.attributes()));
        Ok(napis.collect())
    }

    /// Changes settings of one NAPI instance, all of them or none (Linux 6.13).
    ///
    /// Drivers that keep a configuration for each queue (most NICs) have the settings again when the interface goes
    /// down and up. On the others (veth) the instance ends there, and with it its settings.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNapi`] if the interface has no instance of that id; [`Error::NeedsKernel`] if the kernel lacks a
    /// setting; [`Error::Kernel`] with `EPERM` without `CAP_NET_ADMIN`, or `ERANGE` for a value that is too large.
    #[doc(alias = "NETDEV_CMD_NAPI_SET")]
    pub fn set_napi(&self, id: u32, settings: &[NapiSetting]) -> Result<()> {
        let values: Vec<_> = settings.iter().map(|setting| setting.raw()).collect();
        self.check_napi(id, &values)?.set_napi(SET, id, &values)
    }

    /// The same as single values, which can be put back one by one.
    pub(crate) fn plan_napi(&self, id: u32, settings: &[NapiSetting]) -> Result<Vec<(Setting, String)>> {
        let values: Vec<_> = settings.iter().map(|setting| setting.raw()).collect();
        self.check_napi(id, &values)?;
        let each = values.iter();
        Ok(each
            .map(|(field, value)| (Setting::Napi { id, field: *field }, value.to_string()))
            .collect())
    }

    /// The kernel takes the id of any interface, and tells which fields it has by their presence.
    fn check_napi(&self, id: u32, values: &[(NapiField, u64)]) -> Result<Netdev<'_>> {
        let Some(mut netdev) = Netdev::open(self, SET)? else {
            return Err(Error::needs_kernel(SET, self.name(), "6.13"));
        };
        let Some(present) = netdev.napi(SET, id)? else {
            return Err(netdev.unknown(id));
        };
        match values.iter().find(|(field, _)| raw_value(&present, *field).is_none()) {
            Some((field, _)) => Err(Error::needs_kernel(SET, self.name(), field.attribute().1)),
            None => Ok(netdev),
        }
    }
}

const SET: &str = "change a NAPI instance";

#[cfg(test)]
#[path = "napi_tests.rs"]
mod tests;
