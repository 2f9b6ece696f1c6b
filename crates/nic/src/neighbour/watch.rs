//! Hardware addresses, told as the kernel finds them out.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::NeighbourState;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::read;
use crate::watch::{Datagram, datagram, subscription};
use crate::{Error, Result};

const OPERATION: &str = "watch the neighbours";
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/RTNLGRP_NEIGH>
const RTNLGRP_NEIGH: u32 = 3;
/// A message about a neighbour has a few attributes.
const BUFFER_LEN: usize = 4096;

/// What a [`NeighbourWatch`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeighbourEvent {
    /// A neighbour of the interface of this index has this hardware address: the kernel has just found out, or has heard of it
    /// again.
    Known {
        /// The interface's index.
        index: u32,
        /// The neighbour.
        address: IpAddr,
        /// Its hardware address.
        mac: [u8; 6],
    },
    /// A neighbour of the interface of this index has not answered the kernel's requests, or its
    /// entry was removed (`ip neighbour flush`).
    Failed {
        /// The interface's index.
        index: u32,
        /// The neighbour.
        address: IpAddr,
    },
    /// Nobody read in time, and some were lost: [`Interface::neighbours`](crate::Interface::neighbours) has all.
    Lost,
}

/// Tells which hardware addresses the kernel finds out, of all interfaces of a network namespace, without a look through its tables.
///
/// It stays in the namespace of the thread that opened it and may be used from any other. It needs no privileges. What the kernel knew
/// already is not told. The descriptor ([`AsFd`]) is readable when there may be something.
#[derive(Debug)]
pub struct NeighbourWatch {
    socket: Socket,
    buffer: Vec<u8>,
}

impl NeighbourWatch {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the process may open no more files.
    #[doc(alias = "RTNLGRP_NEIGH")]
    #[doc(alias = "RTM_NEWNEIGH")]
    pub fn open() -> Result<Self> {
        let socket = subscription(NETLINK_ROUTE, RTNLGRP_NEIGH).map_err(failed)?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// The next one; `None` if there is none by now. It never waits.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the kernel does not answer.
    #[allow(
        clippy::should_implement_trait,
        reason = "None means that nothing happened yet, which ends no iteration"
    )]
    pub fn next(&mut self) -> Result<Option<NeighbourEvent>> {
        loop {
            match datagram(self.socket.as_fd(), &mut self.buffer).map_err(failed)? {
                Datagram::None => return Ok(None),
                Datagram::Lost => return Ok(Some(NeighbourEvent::Lost)),
                Datagram::Some(datagram) => {
                    if let Some(event) = decode(datagram) {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }
}

impl AsFd for NeighbourWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::kernel(OPERATION, "", source)
}

fn decode(datagram: &[u8]) -> Option<NeighbourEvent> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram).ok()?;
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(entry)) = message.payload else {
        return None;
    };
    // Bridges and vxlan devices tell of their forwarding tables with the same messages.
    if !matches!(entry.header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return None;
    }
    let index = entry.header.ifindex;
    match read(&entry)? {
        (address, Some(mac)) => Some(NeighbourEvent::Known { index, address, mac }),
        (address, None) => {
            let is_failed = entry.header.state == NeighbourState::Failed;
            is_failed.then_some(NeighbourEvent::Failed { index, address })
        }
    }
}
