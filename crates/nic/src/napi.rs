//! NAPI settings of an interface, which sysfs has for all its queues at once.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::{Error, Interface, Result};

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
    /// [`Error::File`] if the sysfs at `/sys` is not the one of this network namespace.
    pub fn napi(&self) -> Result<NapiSettings> {
        Ok(NapiSettings {
            defer_hard_irqs: self.read_number("napi_defer_hard_irqs")?,
            gro_flush_timeout: Duration::from_nanos(self.read_number("gro_flush_timeout")?),
            threaded: self.read_number::<u32>("threaded")? != 0,
        })
    }

    /// Sets how many empty polls in a row keep the interrupt off.
    ///
    /// # Errors
    ///
    /// [`Error::File`], for instance without `CAP_NET_ADMIN`.
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
    /// As [`Interface::set_napi_defer_hard_irqs`]; `EOPNOTSUPP` where the driver uses no NAPI.
    pub fn set_napi_threaded(&self, threaded: bool) -> Result<()> {
        self.write("threaded", if threaded { "1" } else { "0" })
    }

    fn read_number<N: std::str::FromStr>(&self, file: &str) -> Result<N> {
        let path = self.sysfs(file)?;
        let text = fs::read_to_string(&path).map_err(|source| Error::file("read", &path, source))?;
        text.trim()
            .parse()
            .map_err(|_| Error::file("understand", path, io::Error::other(format!("'{}'", text.trim()))))
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.sysfs(file)?;
        fs::write(&path, value).map_err(|source| Error::file("write", path, source))
    }

    /// The path of a setting, once it is sure that the directory is that of this very interface: a sysfs of another
    /// network namespace may have one of the same name.
    fn sysfs(&self, file: &str) -> Result<PathBuf> {
        self.check_namespace("use the NAPI settings of")?;
        let directory = PathBuf::from("/sys/class/net").join(self.name());
        let path = directory.join("ifindex");
        let index = fs::read_to_string(&path).map_err(|source| Error::file("read", &path, source))?;
        if index.trim().parse() != Ok(self.index()) {
            return Err(Error::file("read", directory, io::ErrorKind::NotFound.into()));
        }
        Ok(directory.join(file))
    }
}
