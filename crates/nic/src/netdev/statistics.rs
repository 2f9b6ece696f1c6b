//! Counters of each queue that drivers tell under the same names.

use serde::Serialize;

use super::{Netdev, QueueKind};
use crate::netlink::generic::Attributes;
use crate::{Interface, Result};

// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_CMD_QSTATS_GET
const NETDEV_CMD_QSTATS_GET: u8 = 12;
// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_A_QSTATS_IFINDEX
const NETDEV_A_QSTATS_IFINDEX: u16 = 1;
const NETDEV_A_QSTATS_QUEUE_TYPE: u16 = 2;
const NETDEV_A_QSTATS_QUEUE_ID: u16 = 3;
const NETDEV_A_QSTATS_SCOPE: u16 = 4;
const NETDEV_A_QSTATS_RX_PACKETS: u16 = 8;
const NETDEV_A_QSTATS_RX_BYTES: u16 = 9;
const NETDEV_A_QSTATS_TX_PACKETS: u16 = 10;
const NETDEV_A_QSTATS_TX_BYTES: u16 = 11;
const NETDEV_A_QSTATS_RX_ALLOC_FAIL: u16 = 12;
const NETDEV_A_QSTATS_RX_HW_DROPS: u16 = 13;
const NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS: u16 = 14;
const NETDEV_A_QSTATS_TX_HW_DROPS: u16 = 24;
const NETDEV_A_QSTATS_TX_HW_DROP_ERRORS: u16 = 25;

/// One entry a queue instead of one for the device: `NETDEV_QSTATS_SCOPE_QUEUE`
const SCOPE_QUEUE: u32 = 1;

/// What a driver counts for one queue; `None` for what it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStatistics {
    /// The queue's number, from zero in each direction.
    pub id: u32,
    /// Its direction.
    pub kind: QueueKind,
    /// Packets since the interface was last configured.
    pub packets: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
    /// Packets that were lost, or late, for want of memory.
    pub alloc_failures: Option<u64>,
    /// Packets that the device dropped.
    pub hw_drops: Option<u64>,
    /// Of those, because there was no room for them; of a transmit queue, because they were malformed.
    pub hw_drops_overrun: Option<u64>,
}

impl QueueStatistics {
    fn from_attributes(attributes: Attributes<'_>) -> Option<Self> {
        let id = attributes.u32(NETDEV_A_QSTATS_QUEUE_ID)?;
        let number = |kind| attributes.number(kind);
        match attributes.u32(NETDEV_A_QSTATS_QUEUE_TYPE)? {
            0 => Some(Self {
                id,
                kind: QueueKind::Rx,
                packets: number(NETDEV_A_QSTATS_RX_PACKETS),
                bytes: number(NETDEV_A_QSTATS_RX_BYTES),
                alloc_failures: number(NETDEV_A_QSTATS_RX_ALLOC_FAIL),
                hw_drops: number(NETDEV_A_QSTATS_RX_HW_DROPS),
                hw_drops_overrun: number(NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS),
            }),
            1 => Some(Self {
                id,
                kind: QueueKind::Tx,
                packets: number(NETDEV_A_QSTATS_TX_PACKETS),
                bytes: number(NETDEV_A_QSTATS_TX_BYTES),
                alloc_failures: None,
                hw_drops: number(NETDEV_A_QSTATS_TX_HW_DROPS),
                hw_drops_overrun: number(NETDEV_A_QSTATS_TX_HW_DROP_ERRORS),
            }),
            _ => None,
        }
    }
}

impl Interface {
    /// What the driver counts for each queue; empty where the driver does not tell (veth does not), and before Linux 6.10.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`](crate::Error::Kernel) when the kernel does not answer.
    #[doc(alias = "NETDEV_CMD_QSTATS_GET")]
    pub fn queue_statistics(&self) -> Result<Vec<QueueStatistics>> {
        const OPERATION: &str = "read the queues' statistics";
        let Some(mut netdev) = Netdev::open(self, OPERATION)? else {
            return Ok(Vec::new());
        };
        let question = netdev
            .message(NETDEV_CMD_QSTATS_GET)
            .with_u32(NETDEV_A_QSTATS_IFINDEX, self.index())
            .with_u32(NETDEV_A_QSTATS_SCOPE, SCOPE_QUEUE);
        let answers = netdev.ask(OPERATION, question, true)?.unwrap_or_default();
        let known = answers
            .iter()
            .filter_map(|answer| QueueStatistics::from_attributes(answer.attributes()));
        Ok(known.collect())
    }
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
