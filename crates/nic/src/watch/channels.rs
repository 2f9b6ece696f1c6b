//! The numbers of queues, and that somebody changed them through ethtool.
//!
//! `IFLA_NUM_RX_QUEUES` is how many queues a link was created with and never changes. The numbers of active queues are
//! ethtool's channels, which the generic netlink family "ethtool" tells by index, from any thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkMessage;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::messages::{Datagram, datagram, subscription};
use crate::netlink::generic::{Attributes, Message};
use crate::netlink::{NetlinkError, Socket};

/// <https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_GENL_NAME>
const FAMILY: &str = "ethtool";
const GROUP: &str = "monitor";
// https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_MSG_CHANNELS_GET
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_MSG_CHANNELS_NTF: u8 = 19;
// https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_A_CHANNELS_HEADER
const ETHTOOL_A_CHANNELS_HEADER: u16 = 1;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/ETHTOOL_A_HEADER_DEV_INDEX>
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;

/// A subscription to what is changed through ethtool, and a socket to ask on.
#[derive(Debug)]
pub(super) struct Channels {
    notifications: netlink_sys::Socket,
    query: Socket<Message>,
    family: u16,
    buffer: Vec<u8>,
}

impl Channels {
    /// `None` on a kernel without the family (before Linux 5.6).
    pub(super) fn subscribe() -> Result<Option<Self>, NetlinkError> {
        let mut query = Socket::generic()?;
        let Some(family) = query.family(FAMILY)? else {
            return Ok(None);
        };
        let Some(group) = family.group(GROUP) else {
            return Ok(None);
        };
        Ok(Some(Self {
            notifications: subscription(NETLINK_GENERIC, group)?,
            query,
            family: family.id,
            buffer: vec![0; 4096],
        }))
    }

    /// Takes all notifications that have arrived and says whether one was about channels, of whichever link. Lost ones
    /// may have been.
    pub(super) fn drain(&mut self) -> io::Result<bool> {
        let mut changed = false;
        loop {
            match datagram(self.notifications.as_fd(), &mut self.buffer)? {
                Datagram::None => return Ok(changed),
                Datagram::Lost => changed = true,
                Datagram::Some(bytes) => {
                    changed |= NetlinkMessage::<Message>::deserialize(bytes).map_or(true, |message| {
                        matches!(message.payload,
                            netlink_packet_core::NetlinkPayload::InnerMessage(inner)
                                if inner.command == ETHTOOL_MSG_CHANNELS_NTF)
                    });
                }
            }
        }
    }

    /// The numbers of active receive and transmit queues; `None` if the driver has no channels to configure, or the
    /// link is gone.
    pub(super) fn numbers(&mut self, index: u32) -> Option<(u32, u32)> {
        let header = Message::new(0, 0).with_u32(ETHTOOL_A_HEADER_DEV_INDEX, index);
        let question =
            Message::new(self.family, ETHTOOL_MSG_CHANNELS_GET).with_nested(ETHTOOL_A_CHANNELS_HEADER, &header);
        let answers = self.query.request(question, 0).ok()?;
        numbers(answers.first()?.attributes())
    }
}

impl AsFd for Channels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

/// A kind of channel that the driver does not have is left out.
fn numbers(attributes: Attributes<'_>) -> Option<(u32, u32)> {
    let count = |kind| attributes.u32(kind);
    let combined = count(ETHTOOL_A_CHANNELS_COMBINED_COUNT);
    let (rx, tx) = (count(ETHTOOL_A_CHANNELS_RX_COUNT), count(ETHTOOL_A_CHANNELS_TX_COUNT));
    combined.or(rx).or(tx)?;
    let sum = |of: Option<u32>| of.unwrap_or(0).saturating_add(combined.unwrap_or(0));
    Some((sum(rx), sum(tx)))
}
