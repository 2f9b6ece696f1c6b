//! NAPI settings of an interface, which sysfs has for all its queues at once.

use std::time::Duration;

use serde::Serialize;

use crate::netdev::{NapiField, Netdev, napi_id, raw_value};
use crate::setting::{InterfaceFile, Setting};
use crate::sysfs::Sysfs;
use crate::{Interface, Result};

/// When the kernel goes back from polling a queue to interrupts.
///
/// Together with busy polling these decide who runs the receive path: with deferral an application that polls often
/// enough keeps the interrupt off (<https://docs.kernel.org/networking/napi.html#irq-mitigation>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NapiSettings {
    /// How many empty polls in a row keep the interrupt off.
    pub defer_hard_irqs: u32,
    /// How long the kernel waits for the next poll by then.
    pub gro_flush_timeout: Duration,
    /// Whether each queue is polled by a kernel thread of its own instead of the software interrupt.
    pub threaded: bool,
}

impl Interface {
    /// The NAPI settings of the interface.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) if the sysfs of this network namespace cannot be had.
    pub fn napi(&self) -> Result<NapiSettings> {
        let sysfs = Sysfs::of_this_thread();
        Ok(NapiSettings {
            defer_hard_irqs: sysfs.number(self, "napi_defer_hard_irqs")?,
            gro_flush_timeout: Duration::from_nanos(sysfs.number(self, "gro_flush_timeout")?),
            threaded: sysfs.number::<u32>(self, "threaded")? != 0,
        })
    }

    /// Sets how many empty polls in a row keep the interrupt off.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File), for instance without `CAP_NET_ADMIN`.
    pub fn set_napi_defer_hard_irqs(&self, polls: u32) -> Result<()> {
        self.write("napi_defer_hard_irqs", &polls.to_string())
    }

    /// Sets how long the interrupt stays off without a poll (nanosecond resolution).
    ///
    /// # Errors
    ///
    /// As [`Interface::set_napi_defer_hard_irqs`].
    pub fn set_gro_flush_timeout(&self, timeout: Duration) -> Result<()> {
        self.write("gro_flush_timeout", &timeout.as_nanos().to_string())
    }

    /// Moves the polling of all queues into kernel threads, or back.
    ///
    /// # Errors
    ///
    /// As [`Interface::set_napi_defer_hard_irqs`]; `EOPNOTSUPP` where the interface has no NAPI instance
    /// in its present state, as a veth without a native XDP program and with GRO off.
    pub fn set_napi_threaded(&self, threaded: bool) -> Result<()> {
        self.write("threaded", if threaded { "1" } else { "0" })
    }

    /// The same as single values: each instance's, and then the interface's, which is put back first.
    pub(crate) fn plan_threaded(&self, threaded: bool) -> Result<Vec<(Setting, String)>> {
        let field = NapiField::Threaded;
        let mut settings: Vec<_> = match Netdev::open(self, "list the NAPI instances")? {
            Some(mut netdev) => netdev.napis("list the NAPI instances")?.unwrap_or_default(),
            None => Vec::new(),
        }
        .iter()
        // Before Linux 6.17 no instance can differ from the others.
        .filter(|answer| raw_value(answer, field).is_some())
        .filter_map(|answer| napi_id(answer).map(|id| Setting::Napi { id, field }))
        .collect();
        settings.push(Setting::InterfaceFile {
            file: InterfaceFile::Threaded,
        });
        let value = u8::from(threaded).to_string();
        Ok(settings.into_iter().map(|setting| (setting, value.clone())).collect())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        Sysfs::of_this_thread().write(self, file, value)
    }
}
