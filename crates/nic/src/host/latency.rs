//! The limit that somebody has set on how long CPUs may take to wake up.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};

use crate::{Error, Result};

/// <https://docs.kernel.org/power/pm_qos_interface.html#pm-qos-framework>
const DEVICE: &str = "/dev/cpu_dma_latency";

/// A limit on how long an idle CPU may take to wake up, for as long as this is held: the kernel keeps all CPUs out of idle
/// states that take longer to leave. Needs root, or to be let write to `/dev/cpu_dma_latency`.
///
/// The kernel drops it with the process, however that ends.
#[derive(Debug)]
#[must_use = "the limit holds only as long as this is held"]
#[doc(alias = "cpu_dma_latency")]
pub struct WakeUpLimit {
    _device: File,
}

impl WakeUpLimit {
    /// Holds the limit, in microseconds; 0 lets CPUs only poll.
    ///
    /// # Errors
    ///
    /// [`Error::File`] where the device is not there, or not for the caller.
    pub fn hold(micros: u32) -> Result<Self> {
        let failed = |source| Error::file("write", DEVICE, source);
        let micros = i32::try_from(micros).map_err(|_| failed(std::io::ErrorKind::InvalidInput.into()))?;
        let mut device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(failed)?;
        // Four bytes are the number itself; other lengths would be taken as text.
        device.write_all(&micros.to_ne_bytes()).map_err(failed)?;
        Ok(Self { _device: device })
    }

    /// The smallest limit that anybody holds now, in microseconds. Without any it is 2 000 seconds.
    ///
    /// # Errors
    ///
    /// As [`WakeUpLimit::hold`].
    pub fn now() -> Result<u32> {
        let failed = |source| Error::file("read", DEVICE, source);
        let mut bytes = [0; 4];
        // A reader asks for no limit of its own.
        let mut device = OpenOptions::new().read(true).open(DEVICE).map_err(failed)?;
        device.read_exact(&mut bytes).map_err(failed)?;
        u32::try_from(i32::from_ne_bytes(bytes)).map_err(|_| failed(std::io::ErrorKind::InvalidData.into()))
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
