//! Driver, channels, rings and statistics through `SIOCETHTOOL`.

use std::os::fd::AsFd;

use serde::Serialize;

use crate::sys::CommandBuffer;
use crate::{Error, Interface, Result};

// Commands: https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_GDRVINFO
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// `ETH_GSTRING_LEN`: <https://elixir.bootlin.com/linux/v6.18/C/ident/ETH_GSTRING_LEN>
const STRING_LEN: usize = 32;

/// Sets of strings: <https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_stringset>
#[derive(Clone, Copy)]
pub(crate) enum StringSet {
    Stats = 1,
    Features = 4,
}

/// The driver that serves an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Driver {
    /// Its name ("veth", "virtio_net", "igb", …).
    pub name: String,
    /// Its version; for most drivers today that of the kernel.
    pub version: String,
    /// The NIC's firmware version; empty where there is none.
    pub firmware: String,
    /// Where the NIC is ("0000:00:03.0"); empty for virtual links.
    pub bus: String,
}

/// Numbers of channels, now and at most.
///
/// Most NICs have combined channels, each a receive and a transmit queue; veth has separate ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Channels {
    /// Active receive-only channels.
    pub rx: u32,
    /// Active transmit-only channels.
    pub tx: u32,
    /// Channels for other purposes (link interrupts, …).
    pub other: u32,
    /// Active channels that receive and transmit.
    pub combined: u32,
    /// Largest `rx`.
    pub max_rx: u32,
    /// Largest `tx`.
    pub max_tx: u32,
    /// Largest `other`.
    pub max_other: u32,
    /// Largest `combined`.
    pub max_combined: u32,
}

impl Channels {
    /// Active receive queues.
    #[must_use]
    pub fn rx_queues(&self) -> u32 {
        self.rx.saturating_add(self.combined)
    }

    /// Active transmit queues.
    #[must_use]
    pub fn tx_queues(&self) -> u32 {
        self.tx.saturating_add(self.combined)
    }
}

/// Sizes of the NIC's descriptor rings, now and at most, in descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rings {
    /// Receive ring.
    pub rx: u32,
    /// Transmit ring.
    pub tx: u32,
    /// Largest `rx`.
    pub max_rx: u32,
    /// Largest `tx`.
    pub max_tx: u32,
}

impl Interface {
    /// The driver behind the interface.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EOPNOTSUPP` for links without a driver (loopback).
    #[doc(alias = "ETHTOOL_GDRVINFO")]
    pub fn driver(&self) -> Result<Driver> {
        // struct ethtool_drvinfo: cmd, then five texts of 32 bytes and 32 bytes of numbers.
        let buffer = self.ethtool("read the driver", ETHTOOL_GDRVINFO, 196, |_| {})?;
        let text_at = |offset| text(&buffer.bytes()[offset..offset + 32]);
        Ok(Driver {
            name: text_at(4),
            version: text_at(36),
            firmware: text_at(68),
            bus: text_at(100),
        })
    }

    /// The numbers of channels.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EOPNOTSUPP` where the driver has no channels to configure; [`Interface::rx_queues`]
    /// has an answer there too.
    #[doc(alias = "ETHTOOL_GCHANNELS")]
    pub fn channels(&self) -> Result<Channels> {
        let buffer = self.ethtool("read the channels", ETHTOOL_GCHANNELS, 36, |_| {})?;
        Ok(Channels {
            max_rx: buffer.u32_at(4),
            max_tx: buffer.u32_at(8),
            max_other: buffer.u32_at(12),
            max_combined: buffer.u32_at(16),
            rx: buffer.u32_at(20),
            tx: buffer.u32_at(24),
            other: buffer.u32_at(28),
            combined: buffer.u32_at(32),
        })
    }

    /// Sets the numbers of channels; the maxima of the argument are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` above the maxima, or where a queue that would go has an AF_XDP socket bound.
    #[doc(alias = "ETHTOOL_SCHANNELS")]
    pub fn set_channels(&self, channels: Channels) -> Result<()> {
        self.ethtool("set the channels", ETHTOOL_SCHANNELS, 36, |buffer| {
            buffer.set_u32(20, channels.rx);
            buffer.set_u32(24, channels.tx);
            buffer.set_u32(28, channels.other);
            buffer.set_u32(32, channels.combined);
        })
        .map(drop)
    }

    /// The number of active receive queues, at least one: AF_XDP sockets bind to 0 up to this number.
    ///
    /// Drivers without channels to configure are taken at the number their link was created with.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    pub fn rx_queues(&self) -> Result<u32> {
        self.queues(|channels| channels.rx_queues(), |state| state.num_rx_queues)
    }

    /// The number of active transmit queues, at least one.
    ///
    /// # Errors
    ///
    /// As [`Interface::rx_queues`].
    pub fn tx_queues(&self) -> Result<u32> {
        self.queues(|channels| channels.tx_queues(), |state| state.num_tx_queues)
    }

    /// The sizes of the NIC's descriptor rings.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EOPNOTSUPP` for links without rings (veth).
    #[doc(alias = "ETHTOOL_GRINGPARAM")]
    pub fn rings(&self) -> Result<Rings> {
        let buffer = self.ethtool("read the ring sizes", ETHTOOL_GRINGPARAM, 36, |_| {})?;
        Ok(Rings {
            max_rx: buffer.u32_at(4),
            max_tx: buffer.u32_at(16),
            rx: buffer.u32_at(20),
            tx: buffer.u32_at(32),
        })
    }

    /// Sets the sizes of the NIC's descriptor rings; the maxima of the argument are ignored. Most drivers take the link down for
    /// a moment.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` above the maxima, `EOPNOTSUPP` for links whose rings cannot be set (veth).
    #[doc(alias = "ETHTOOL_SRINGPARAM")]
    pub fn set_rings(&self, rings: Rings) -> Result<()> {
        // The sizes that are not ours to set stay what they are.
        let now = self.ethtool("read the ring sizes", ETHTOOL_GRINGPARAM, 36, |_| {})?;
        self.ethtool("set the ring sizes", ETHTOOL_SRINGPARAM, 36, |buffer| {
            buffer.set_u32(20, rings.rx);
            buffer.set_u32(24, now.u32_at(24));
            buffer.set_u32(28, now.u32_at(28));
            buffer.set_u32(32, rings.tx);
        })
        .map(drop)
    }

    /// The number of the NIC's hardware clock, N in `/dev/ptpN`; `None` if it has none.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    #[doc(alias = "ETHTOOL_GET_TS_INFO")]
    pub fn phc_index(&self) -> Result<Option<u32>> {
        // struct ethtool_ts_info: cmd, so_timestamping, phc_index (below zero: none), then what can be stamped.
        // https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_ts_info
        let buffer = self.ethtool("read the hardware clock", ETHTOOL_GET_TS_INFO, 44, |_| {})?;
        Ok(u32::try_from(buffer.u32_at(8).cast_signed()).ok())
    }

    /// The driver's own counters, in its order and under its names; empty if it has none.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    #[doc(alias = "ETHTOOL_GSTATS")]
    pub fn statistics(&self) -> Result<Vec<(String, u64)>> {
        let operation = "read the driver's statistics";
        // Names and values come by two calls. The number of queues may change in between, and with it the meaning of
        // the positions: take a pair only if both calls agree on the number.
        for _ in 0..ATTEMPTS {
            let names = match self.strings(operation, StringSet::Stats) {
                Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
                other => other?,
            };
            if names.is_empty() {
                return Ok(Vec::new());
            }
            let count = names.len();
            let values = match self.ethtool(operation, ETHTOOL_GSTATS, 8 + count * 8, |buffer| {
                buffer.set_u32(4, u32::try_from(count).unwrap_or(u32::MAX));
            }) {
                Err(error) if error.errno() == Some(libc::EFAULT) => continue,
                other => other?,
            };
            if usize::try_from(values.u32_at(4)) == Ok(count) {
                return Ok(names
                    .into_iter()
                    .enumerate()
                    .map(|(i, name)| (name, values.u64_at(8 + i * 8)))
                    .collect());
            }
        }
        Err(Error::malformed(
            operation,
            self.name(),
            "the number of counters keeps changing",
        ))
    }

    fn queues(&self, active: fn(&crate::Channels) -> u32, created: fn(&crate::LinkState) -> u32) -> Result<u32> {
        match self.channels() {
            Ok(channels) if active(&channels) > 0 => Ok(active(&channels)),
            Err(error) if error.errno() != Some(libc::EOPNOTSUPP) => Err(error),
            _ => Ok(created(&self.state()?).max(1)),
        }
    }

    /// Runs one command with a buffer of `len` bytes that `fill` prepares.
    pub(crate) fn ethtool(
        &self,
        operation: &'static str,
        command: u32,
        len: usize,
        fill: impl FnOnce(&mut CommandBuffer),
    ) -> Result<CommandBuffer> {
        let failed = |source| Error::kernel(operation, self.name(), source);
        let socket = self.ioctl_socket(operation)?;
        let mut buffer = CommandBuffer::new(command, len).map_err(failed)?;
        fill(&mut buffer);
        buffer.run(socket.as_fd(), self.name()).map_err(failed)?;
        Ok(buffer)
    }

    /// The strings of a set, in the kernel's order.
    pub(crate) fn strings(&self, operation: &'static str, set: StringSet) -> Result<Vec<String>> {
        for _ in 0..ATTEMPTS {
            // struct ethtool_sset_info: cmd, reserved, a 64-bit mask of sets, a count for each set in the mask.
            let info = self.ethtool(operation, ETHTOOL_GSSET_INFO, 20, |buffer| {
                buffer.set_u64(8, 1 << set as u32)
            })?;
            if info.u64_at(8) == 0 {
                return Ok(Vec::new());
            }
            let count = index(info.u32_at(16));
            // struct ethtool_gstrings: cmd, set, length, then the strings.
            let strings = match self.ethtool(operation, ETHTOOL_GSTRINGS, 12 + count * STRING_LEN, |buffer| {
                buffer.set_u32(4, set as u32);
                buffer.set_u32(8, info.u32_at(16));
            }) {
                // More strings than a moment ago: see the module `sys`.
                Err(error) if error.errno() == Some(libc::EFAULT) => continue,
                other => other?,
            };
            let count = index(strings.u32_at(8));
            return strings.bytes()[12..]
                .chunks_exact(STRING_LEN)
                .take(count)
                .map(|bytes| Some(text(bytes)))
                .collect::<Option<Vec<_>>>()
                .filter(|names| names.len() == count)
                .ok_or_else(|| Error::malformed(operation, self.name(), "fewer names than announced"));
        }
        Err(Error::malformed(
            operation,
            self.name(),
            "the number of names keeps changing",
        ))
    }
}

/// How often an answer that changed while it was read is asked for again.
const ATTEMPTS: u32 = 5;

fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A NUL-terminated text in a field of fixed length.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
