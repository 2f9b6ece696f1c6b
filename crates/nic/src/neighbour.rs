//! Which hardware address an IP address of the link has.

mod watch;

use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, Result};

pub use watch::{NeighbourEvent, NeighbourWatch};

/// The discard service (RFC 863): a datagram to it makes the kernel resolve the address, and nobody answers it.
const DISCARD: u16 = 9;

impl Interface {
    /// The neighbours of this interface whose hardware address the kernel knows now, of the family of `like`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the table cannot be read.
    #[doc(alias = "RTM_GETNEIGH")]
    pub fn neighbours(&self, like: IpAddr) -> Result<Vec<(IpAddr, [u8; 6])>> {
        const OPERATION: &str = "read the neighbours";
        let mut message = NeighbourMessage::default();
        message.header.family = match like {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.dump(RouteNetlinkMessage::GetNeighbour(message)))
            .map_err(|error| Error::netlink(OPERATION, self.name(), error))?;
        let known = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(entry) if entry.header.ifindex == self.index() => known(&entry),
            _ => None,
        });
        Ok(known.collect())
    }

    /// The hardware address of a neighbour, as the kernel knows it now.
    ///
    /// # Errors
    ///
    /// As [`Interface::neighbours`].
    pub fn neighbour(&self, address: IpAddr) -> Result<Option<[u8; 6]>> {
        let known = self.neighbours(address)?;
        Ok(known.into_iter().find_map(|(ip, mac)| (ip == address).then_some(mac)))
    }

    /// The hardware address of a neighbour; where the kernel does not know it yet it is made to ask (ARP or neighbour
    /// discovery), which takes up to `timeout`. `None` if nobody answers.
    ///
    /// # Errors
    ///
    /// As [`Interface::neighbours`].
    pub fn resolve(&self, address: IpAddr, timeout: Duration) -> Result<Option<[u8; 6]>> {
        let deadline = Instant::now() + timeout;
        let mut asked = false;
        loop {
            let known = self.neighbour(address)?;
            if known.is_some() || Instant::now() >= deadline {
                return Ok(known);
            }
            if !asked {
                asked = true;
                self.ask_for(address);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes the kernel find out the hardware address of a neighbour, or whether it still is what it was, without waiting for
    /// the answer: [`Interface::neighbours`] has it later.
    pub fn ask_for(&self, address: IpAddr) {
        let any: IpAddr = match address {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        // No route is no error here: the address is then not found, and the caller says so.
        if let Ok(socket) = UdpSocket::bind((any, 0)) {
            let _ = socket.send_to(&[], (address, DISCARD));
        }
    }
}

fn known(entry: &NeighbourMessage) -> Option<(IpAddr, [u8; 6])> {
    let (mut ip, mut mac) = (None, None);
    for attribute in &entry.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    Some((ip?, mac?))
}
