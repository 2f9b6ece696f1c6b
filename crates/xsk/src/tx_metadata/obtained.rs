//! What of it can be had: from this kernel, this device, on this path.

use std::fmt;
use std::sync::OnceLock;

use ringside_nic::XskFeatures;
use serde::Serialize;

use super::{CHECKSUM, LAUNCH_TIME, LaunchTime, StampSampling, Stamps, TIMESTAMP, TxMetadata};
use crate::error::Error;
use crate::hints::Btf;
use crate::mode::Path;
use crate::options::Direction;
use crate::socket::{Failure, Request};

/// What a queue got of the TX metadata that it was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TxMetadataReport {
    /// Times of completion.
    pub stamps: Option<ObtainedStamps>,
    /// Who fills in checksums.
    pub checksum: Option<ChecksumBy>,
    /// Who keeps to launch times.
    pub launch_time: Option<LaunchBy>,
}

/// The clock of the stamps, who reads it, and how many of them there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ObtainedStamps {
    /// `CLOCK_TAI`, or `PHC`: the NIC's own.
    pub clock: &'static str,
    /// `software`: the kernel, when the driver lets go of the packet; or `hardware`.
    pub source: &'static str,
    /// Of so many packets that ask for a stamp one gets it.
    pub one_in: u32,
    /// Stamps that are awaited at a time at the most; `None`: as many as there are frames.
    pub outstanding: Option<u32>,
}

/// Who fills in a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChecksumBy {
    /// The device (zero-copy).
    Device,
    /// The device where it has this offload switched on (`ethtool -k`), otherwise the kernel (copy paths).
    DeviceOrKernel,
    /// The kernel, in any case ([`TxMetadata::software_checksum`]).
    Kernel,
}

/// Who keeps to a launch time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LaunchBy {
    /// The device, where the offload of this queue is switched on: by a queueing discipline etf with `offload`.
    Device,
    /// Nobody that says so: the time goes along with the packet to a driver that does not tell that it looks at it. Most do
    /// not (veth, virtio-net), and send at once.
    Unknown,
    /// Nobody: packets leave at once. With zero-copy where the device does not offer it, and before Linux 6.15.
    Nobody,
}

impl fmt::Display for TxMetadataReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        if let Some(stamps) = &self.stamps {
            write!(f, "stamps of {} in {}", stamps.clock, stamps.source)?;
            if stamps.one_in > 1 {
                write!(f, " for one packet in {}", stamps.one_in)?;
            }
            if let Some(most) = stamps.outstanding {
                write!(f, ", {most} at a time")?;
            }
            between = "; ";
        }
        if let Some(checksum) = self.checksum {
            let by = match checksum {
                ChecksumBy::Device => "the device",
                ChecksumBy::DeviceOrKernel => "the device, or the kernel where it has no such offload",
                ChecksumBy::Kernel => "the kernel",
            };
            write!(f, "{between}checksums by {by}")?;
            between = "; ";
        }
        if let Some(launch) = self.launch_time {
            let by = match launch {
                LaunchBy::Device => "kept by the device, if tc-etf has switched its offload on",
                LaunchBy::Unknown => {
                    "handed to a driver that does not tell that it keeps them: most likely packets leave at once"
                }
                LaunchBy::Nobody => "ignored: packets leave at once",
            };
            write!(f, "{between}launch times {by}")?;
        }
        Ok(())
    }
}

/// What the packets of a pair of rings may ask for, and what becomes of it.
pub(crate) struct Obtained {
    pub(crate) report: TxMetadataReport,
    /// Flags that packets may have.
    pub(crate) allowed: u8,
    /// Those that are passed on: a kernel before 6.15 would send no packet with a launch time, nor anything behind it.
    pub(crate) passed: u8,
    pub(crate) stamps: Option<Stamps>,
}

impl Request<'_> {
    /// What can be had of the TX metadata that the options ask for; none where they ask for nothing.
    pub(crate) fn tx_metadata(&self) -> Result<Option<Obtained>, Failure> {
        let Some(wanted) = &self.options.tx_metadata else {
            return Ok(None);
        };
        if self.options.direction == Direction::Receive {
            return Err(Error::Setting {
                setting: "tx_metadata",
                value: format!("{wanted:?}"),
                reason: format!(
                    "{} queue {} is to receive only, and only what is sent has TX metadata",
                    self.interface.name(),
                    self.queue
                ),
            }
            .into());
        }
        if wanted.features().is_empty() {
            return Ok(None);
        }
        let device = self.interface.device_capabilities().map_err(Error::from)?.xsk_features;
        let offers = |feature| device.is_some_and(|device| device.contains(feature));
        let zero_copy = self.path == Path::ZeroCopy;
        if zero_copy {
            self.all_offered(wanted, offers)?;
        }
        let launch_time = match wanted.launch_time {
            None => None,
            Some(_) if offers(XskFeatures::TX_LAUNCH_TIME_FIFO) => Some(LaunchBy::Device),
            Some(LaunchTime::Required) => return Err(self.no_launch_time().into()),
            Some(LaunchTime::IfAvailable) if !zero_copy && kernel_knows_launch_times() => Some(LaunchBy::Unknown),
            Some(LaunchTime::IfAvailable) => Some(LaunchBy::Nobody),
        };
        let allowed = wanted.features().0 & (TIMESTAMP | CHECKSUM | LAUNCH_TIME);
        let passed = match launch_time {
            Some(LaunchBy::Nobody) => allowed & !LAUNCH_TIME,
            _ => allowed,
        };
        let obtained_stamps = |StampSampling { one_in, outstanding }: StampSampling| ObtainedStamps {
            clock: if zero_copy { "PHC" } else { "CLOCK_TAI" },
            source: if zero_copy { "hardware" } else { "software" },
            one_in,
            outstanding,
        };
        let frames = self.sizes.geometry.frames();
        Ok(Some(Obtained {
            report: TxMetadataReport {
                stamps: wanted.stamps.map(obtained_stamps),
                checksum: wanted.checksum.then_some(match (zero_copy, wanted.software_checksum) {
                    (true, _) => ChecksumBy::Device,
                    (false, true) => ChecksumBy::Kernel,
                    (false, false) => ChecksumBy::DeviceOrKernel,
                }),
                launch_time,
            },
            allowed,
            passed,
            stamps: wanted.stamps.map(|sampling| Stamps::new(sampling, frames, zero_copy)),
        }))
    }

    /// With zero-copy what the device does not offer is not done by anybody, silently.
    fn all_offered(&self, wanted: &TxMetadata, offers: impl Fn(XskFeatures) -> bool) -> Result<(), Failure> {
        if wanted.software_checksum {
            return Err(Failure::Lacks(
                "the kernel fills in checksums on copy paths only".into(),
            ));
        }
        let lacking: Vec<&str> = [
            (wanted.stamps.is_some(), XskFeatures::TX_TIMESTAMP, "tx-timestamp"),
            (wanted.checksum, XskFeatures::TX_CHECKSUM, "tx-checksum"),
        ]
        .into_iter()
        .filter(|&(wanted, feature, _)| wanted && !offers(feature))
        .map(|(_, _, name)| name)
        .collect();
        if lacking.is_empty() {
            return Ok(());
        }
        Err(Failure::Lacks(format!(
            "the driver of {} does not offer {} with zero-copy; on a copy path the kernel does it",
            self.interface.name(),
            lacking.join(" nor ")
        )))
    }

    fn no_launch_time(&self) -> Error {
        Error::Setting {
            setting: "launch_time",
            value: "required".into(),
            reason: format!(
                "the driver of {} does not offer tx-launch-time-fifo (Linux 6.15; igc and stmmac have it): LaunchTime::IfAvailable sends at once and says so",
                self.interface.name()
            ),
        }
    }
}

/// Whether the kernel's `struct xsk_tx_metadata` has a launch time; without, it refuses to send packets with that flag, again
/// and again. It has no way to ask but its type information; the release decides where that is missing.
fn kernel_knows_launch_times() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let size = Btf::vmlinux().ok().and_then(|btf| btf.size_of("xsk_tx_metadata"));
        match size {
            Some(size) => size >= super::METADATA_LEN,
            None => release_is_at_least(&rustix::system::uname().release().to_string_lossy(), (6, 15)),
        }
    })
}

fn release_is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|letter: char| !letter.is_ascii_digit())
        .map_while(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= wanted,
        _ => false,
    }
}

#[cfg(test)]
#[path = "obtained_tests.rs"]
mod tests;
