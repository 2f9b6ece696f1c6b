//! The queues of a device and who serves them.

use serde::Serialize;

use super::Netdev;
use crate::netlink::generic::Attributes;
use crate::{Error, Interface, Result, kernel};

// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_CMD_QUEUE_GET
const NETDEV_CMD_QUEUE_GET: u8 = 10;
// https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_A_QUEUE_ID
const NETDEV_A_QUEUE_ID: u16 = 1;
const NETDEV_A_QUEUE_IFINDEX: u16 = 2;
const NETDEV_A_QUEUE_TYPE: u16 = 3;
const NETDEV_A_QUEUE_NAPI_ID: u16 = 4;
const NETDEV_A_QUEUE_IO_URING: u16 = 6;
const NETDEV_A_QUEUE_XSK: u16 = 7;

/// The direction of a queue (`enum netdev_queue_type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// Receive queue.
    #[default]
    Rx,
    /// Transmit queue.
    Tx,
}

/// An active queue of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueDetail {
    /// Its number, from zero in each direction.
    pub id: u32,
    /// Its direction.
    pub kind: QueueKind,
    /// The NAPI instance that serves it; `None` where the driver does not tell (veth never does), or has none in its
    /// present state.
    pub napi: Option<u32>,
    /// Whether an AF_XDP socket is bound to it, in whichever mode (Linux 6.15); `None` on an older kernel.
    pub xsk: Option<bool>,
    /// Whether io_uring receives from it without a copy (Linux 6.15); `None` on an older kernel.
    pub io_uring: Option<bool>,
}

impl QueueDetail {
    /// `flags_known` says whether this kernel would have told of a socket: it only marks queues that have one.
    fn from_attributes(attributes: Attributes<'_>, flags_known: bool) -> Option<Self> {
        let mark = |kind| attributes.find(kind).is_some().then_some(true);
        Some(Self {
            id: attributes.u32(NETDEV_A_QUEUE_ID)?,
            kind: match attributes.u32(NETDEV_A_QUEUE_TYPE)? {
                0 => QueueKind::Rx,
                1 => QueueKind::Tx,
                _ => return None,
            },
            napi: attributes.u32(NETDEV_A_QUEUE_NAPI_ID),
            xsk: mark(NETDEV_A_QUEUE_XSK).or(flags_known.then_some(false)),
            io_uring: mark(NETDEV_A_QUEUE_IO_URING).or(flags_known.then_some(false)),
        })
    }
}

impl Interface {
    /// The active queues, receive queues first; empty while the interface is down (Linux 6.8).
    ///
    /// # Errors
    ///
    /// [`Error::NeedsKernel`] before Linux 6.8; [`Error::Kernel`] with `ENODEV` if the interface was removed.
    #[doc(alias = "NETDEV_CMD_QUEUE_GET")]
    pub fn queue_details(&self) -> Result<Vec<QueueDetail>> {
        const OPERATION: &str = "list the queues";
        let answers = match Netdev::open(self, OPERATION)? {
            Some(mut netdev) => {
                let question = netdev
                    .message(NETDEV_CMD_QUEUE_GET)
                    .with_u32(NETDEV_A_QUEUE_IFINDEX, self.index());
                netdev.ask(OPERATION, question, true)?
            }
            None => None,
        };
        let answers = answers.ok_or_else(|| Error::needs_kernel(OPERATION, self.name(), "6.8"))?;
        let flags_known = kernel::at_least(6, 15);
        let details = answers
            .iter()
            .filter_map(|answer| QueueDetail::from_attributes(answer.attributes(), flags_known));
        Ok(details.collect())
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
