//! The kernel's messages about links, as it sends them to all who subscribed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::LinkState;

/// <https://elixir.bootlin.com/linux/v6.18/C/ident/RTNLGRP_LINK>
const RTNLGRP_LINK: u32 = 1;

/// A message about a link. Links have a few hundred attributes at the most; a longer message is as good as lost.
const BUFFER_LEN: usize = 32 * 1024;

/// A change of some link.
#[derive(Debug)]
pub(super) enum Message {
    /// The link is like this now.
    Link(Box<LinkState>),
    /// The link is no longer in this namespace; it went to another one if that is told.
    Gone { index: u32, moved: Option<Moved> },
    /// Messages are missing.
    Lost,
}

/// Where a link went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) namespace: Option<u32>,
    pub(super) index: Option<u32>,
}

/// A subscription to the changes of all links of a network namespace.
#[derive(Debug)]
pub(super) struct Links {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Links {
    pub(super) fn subscribe() -> io::Result<Self> {
        Ok(Self {
            socket: subscription(NETLINK_ROUTE, RTNLGRP_LINK)?,
            buffer: vec![0; BUFFER_LEN],
        })
    }

    /// All that has arrived by now, in the kernel's order.
    ///
    /// After a loss everything that is still in the queue is thrown away, since all of it happened before the state that
    /// the caller is going to read.
    pub(super) fn receive(&mut self) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        let mut lost = false;
        loop {
            match datagram(self.socket.as_fd(), &mut self.buffer)? {
                Datagram::None => break,
                Datagram::Lost => lost = true,
                Datagram::Some(_) if lost => {}
                Datagram::Some(datagram) => match decode(datagram) {
                    Ok(message) => messages.extend(message),
                    Err(Incomprehensible) => lost = true,
                },
            }
        }
        if lost {
            messages.push(Message::Lost);
        }
        Ok(messages)
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket in the calling thread's network namespace that gets what the kernel sends to a group.
pub(crate) fn subscription(protocol: isize, group: u32) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    // Connected to the kernel, so that no other process can send to it.
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.add_membership(group)?;
    Ok(socket)
}

/// What a read of a subscription gives.
#[derive(Debug)]
pub(crate) enum Datagram<'a> {
    Some(&'a [u8]),
    None,
    /// The kernel dropped messages (`ENOBUFS`), or this one is longer than the buffer.
    Lost,
}

pub(crate) fn datagram<'a>(socket: BorrowedFd<'_>, buffer: &'a mut [u8]) -> io::Result<Datagram<'a>> {
    match recv(socket, &mut *buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
        Ok((length, whole)) if length == whole => Ok(Datagram::Some(&buffer[..length])),
        // https://elixir.bootlin.com/linux/v6.18/C/ident/netlink_overrun
        Ok(_) | Err(Errno::NOBUFS) => Ok(Datagram::Lost),
        Err(Errno::AGAIN) => Ok(Datagram::None),
        Err(error) => Err(error.into()),
    }
}

/// A message that should be understood and is not.
#[derive(Debug)]
struct Incomprehensible;

/// What a datagram, which is one message, says about a link; `None` if it is about something else.
fn decode(datagram: &[u8]) -> Result<Option<Message>, Incomprehensible> {
    let message: NetlinkMessage<RouteNetlinkMessage> =
        NetlinkMessage::deserialize(datagram).map_err(|_| Incomprehensible)?;
    let NetlinkPayload::InnerMessage(message) = message.payload else {
        return Ok(None);
    };
    match message {
        // A bridge tells of its ports with the same messages, a port that leaves it looks like a link that is removed:
        // https://elixir.bootlin.com/linux/v6.18/C/ident/br_ifinfo_notify
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)
            if link.header.interface_family != AddressFamily::Unspec =>
        {
            Ok(None)
        }
        RouteNetlinkMessage::NewLink(link) => LinkState::from_message(link)
            .map(|state| Some(Message::Link(Box::new(state))))
            .ok_or(Incomprehensible),
        RouteNetlinkMessage::DelLink(link) => Ok(Some(Message::Gone {
            index: link.header.index,
            moved: moved(&link),
        })),
        _ => Ok(None),
    }
}

/// A link that leaves is reported with the namespace's id:
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/__dev_change_net_namespace>
fn moved(link: &LinkMessage) -> Option<Moved> {
    let mut moved = None;
    let mut index = None;
    for attribute in &link.attributes {
        match attribute {
            // Negative: the other namespace has no id here.
            LinkAttribute::NewNetnsId(id) => moved = Some(u32::try_from(*id).ok()),
            LinkAttribute::NewIfIndex(new) => index = u32::try_from(*new).ok(),
            _ => {}
        }
    }
    moved.map(|namespace| Moved { namespace, index })
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
