//! The generic netlink family "netdev": what a device can do for XDP, its queues and its NAPI instances.
//!
//! Numbers: <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/netdev.h>, specification:
//! <https://docs.kernel.org/networking/netlink_spec/netdev.html>.

mod capabilities;
mod napi;
mod queues;
mod statistics;

pub use capabilities::{DeviceCapabilities, RxMetadata, XdpFeatures, XskFeatures};
pub use napi::{Napi, NapiSetting, Threaded};
pub use queues::{QueueDetail, QueueKind};
pub use statistics::QueueStatistics;

pub(crate) use napi::{NapiField, napi_id, raw_value};

use crate::netlink::generic::Message;
use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, Result};

/// <https://elixir.bootlin.com/linux/v6.18/C/ident/NETDEV_FAMILY_NAME>
const FAMILY: &str = "netdev";

/// A socket that talks to the family, for one interface.
#[derive(Debug)]
pub(crate) struct Netdev<'a> {
    interface: &'a Interface,
    socket: Socket<Message>,
    family: u16,
}

impl<'a> Netdev<'a> {
    /// `None` on a kernel without the family, which came with Linux 6.3.
    pub(crate) fn open(interface: &'a Interface, operation: &'static str) -> Result<Option<Self>> {
        interface.check_namespace(operation)?;
        let open = || {
            let mut socket = Socket::generic()?;
            let family = socket.family(FAMILY)?;
            Ok(family.map(|family| (socket, family.id)))
        };
        let opened = open().map_err(|error| Error::netlink(operation, interface.name(), error))?;
        Ok(opened.map(|(socket, family)| Self {
            interface,
            socket,
            family,
        }))
    }

    fn message(&self, command: u8) -> Message {
        Message::new(self.family, command)
    }

    /// Sends a request; `None` if the kernel does not know the command yet.
    fn ask(&mut self, operation: &'static str, message: Message, all: bool) -> Result<Option<Vec<Message>>> {
        let answers = if all {
            self.socket.dump(message)
        } else {
            self.socket.request(message, 0)
        };
        match answers {
            // https://elixir.bootlin.com/linux/v6.18/C/ident/genl_family_rcv_msg
            Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            other => other
                .map(Some)
                .map_err(|error| Error::netlink(operation, self.interface.name(), error)),
        }
    }
}
