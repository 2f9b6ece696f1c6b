//! What a queue will ask for, and how often.

use serde::Serialize;

use super::{CHECKSUM, LAUNCH_TIME, TIMESTAMP};
use crate::error::Error;

/// What packets of a queue will ask for: [`QueueOptions::tx_metadata`](crate::QueueOptions::tx_metadata). Nothing at first.
///
/// It is looked at when the queue is opened, so that what cannot be had is told then and not packet by packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TxMetadata {
    pub(crate) stamps: Option<StampSampling>,
    pub(crate) checksum: bool,
    pub(crate) software_checksum: bool,
    pub(crate) launch_time: Option<LaunchTime>,
}

impl TxMetadata {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Times of completion ([`TxMeta::timestamp`](super::TxMeta::timestamp)).
    #[must_use]
    pub fn timestamps(mut self, sampling: StampSampling) -> Self {
        self.stamps = Some(sampling);
        self
    }

    /// Checksums ([`TxMeta::checksum`](super::TxMeta::checksum)), by the device, or on copy paths by the kernel where the
    /// device has no such offload. Between two ends of a veth nobody fills them in: the other end's kernel takes them as good,
    /// an XDP socket there sees the sum of the pseudo-header.
    #[must_use]
    pub fn checksum(mut self) -> Self {
        self.checksum = true;
        self
    }

    /// Checksums by the kernel before it hands the packet to the driver: dear, right everywhere, and for copy paths and packets
    /// in one frame only. For tests, and for devices whose offload is broken. Linux 6.8.
    #[must_use]
    #[doc(alias = "XDP_UMEM_TX_SW_CSUM")]
    pub fn software_checksum(mut self) -> Self {
        self.checksum = true;
        self.software_checksum = true;
        self
    }

    /// Launch times ([`TxMeta::launch_time`](super::TxMeta::launch_time)).
    #[must_use]
    pub fn launch_time(mut self, wanted: LaunchTime) -> Self {
        self.launch_time = Some(wanted);
        self
    }

    /// What all queues of a UMEM have to agree on.
    pub(crate) fn features(&self) -> Features {
        let bit = |yes: bool, bit: u8| if yes { bit } else { 0 };
        Features(
            bit(self.stamps.is_some(), TIMESTAMP)
                | bit(self.checksum, CHECKSUM)
                | bit(self.launch_time.is_some(), LAUNCH_TIME)
                | bit(self.software_checksum, Features::SOFTWARE_CHECKSUM),
        )
    }

    /// Refuses numbers that make no sense.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |setting, reason: &str| {
            Err(Error::Setting {
                setting,
                value: "0".into(),
                reason: reason.into(),
            })
        };
        match self.stamps {
            Some(StampSampling { one_in: 0, .. }) => wrong(
                "stamp sampling, one in",
                "every packet that asks (1), every second one (2), and so on",
            ),
            Some(StampSampling {
                outstanding: Some(0), ..
            }) => wrong(
                "stamp sampling, outstanding",
                "at least one stamp has to be awaited for any to come",
            ),
            _ => Ok(()),
        }
    }
}

/// Which of the packets that ask for a stamp get one: NICs have few registers for stamps (one to four mostly), and on copy
/// paths each stamp costs the reading of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StampSampling {
    pub(crate) one_in: u32,
    pub(crate) outstanding: Option<u32>,
}

impl StampSampling {
    /// All.
    pub fn all() -> Self {
        Self::one_in(1)
    }

    /// The first one and then every `packets`-th. 0 is refused when the queue is opened.
    pub fn one_in(packets: u32) -> Self {
        Self {
            one_in: packets,
            outstanding: None,
        }
    }

    /// No more than so many that are awaited at a time; a packet whose turn it is meanwhile leaves it to the next one. 0 is
    /// refused when the queue is opened.
    #[must_use]
    pub fn outstanding(mut self, stamps: u32) -> Self {
        self.outstanding = Some(stamps);
        self
    }
}

/// What to do where the device does not tell that it keeps to launch times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchTime {
    /// The queue is not opened.
    Required,
    /// Packets leave at once, and the report says so.
    IfAvailable,
}

/// The features of a UMEM, as bits: flags of the kernel's, and one of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(pub(crate) u8);

impl Features {
    /// `XDP_UMEM_TX_SW_CSUM`
    const SOFTWARE_CHECKSUM: u8 = 1 << 7;

    /// Nothing: no room is kept for metadata.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, flags: u8) -> bool {
        self.0 & flags == flags
    }

    pub(crate) fn software_checksum(self) -> bool {
        self.has(Self::SOFTWARE_CHECKSUM)
    }
}
