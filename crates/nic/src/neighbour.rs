//! Which hardware address an IP address of the link has.

mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
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
        let entries = self.neighbour_entries(like)?.into_iter();
        Ok(entries.filter_map(|(ip, mac)| Some((ip, mac?))).collect())
    }

    /// Returns all entries of the kernel's neighbour table for this interface, of the family of
    /// `like`. One without a hardware address is of a neighbour that the kernel is asking for, or
    /// that did not answer.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the table cannot be read.
    #[doc(alias = "NUD_FAILED")]
    pub fn neighbour_entries(&self, like: IpAddr) -> Result<Vec<(IpAddr, Option<[u8; 6]>)>> {
        const OPERATION: &str = "read the neighbours";
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(like);
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.dump(RouteNetlinkMessage::GetNeighbour(message)))
            .map_err(|error| Error::netlink(OPERATION, self.name(), error))?;
        let entries = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(entry) if entry.header.ifindex == self.index() => read(&entry),
            _ => None,
        });
        Ok(entries.collect())
    }

    /// Makes the kernel check at once whether a neighbour still answers, however lately it did: by
    /// unicast requests, three within three seconds unless `sysctl` says otherwise. Its hardware
    /// address stays known until they have failed ([`NeighbourEvent::Failed`]).
    ///
    /// Returns false if the kernel does not know the hardware address. An entry that somebody has
    /// set (`permanent`, `noarp`, `extern_learn`, `extern_valid`, `managed`) stays as it is.
    ///
    /// The kernel sends requests to IPv6 neighbours from a link-local address of the interface
    /// (`ndisc_send_ns`). Without one it sends none, and the check fails.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] without `CAP_NET_ADMIN`, or if the kernel does not answer.
    #[doc(alias = "NUD_PROBE")]
    pub fn probe_neighbour(&self, address: IpAddr) -> Result<bool> {
        let failed = |error| Error::netlink("check a neighbour", self.name(), error);
        let mut socket = Socket::route().map_err(|error| failed(NetlinkError::Io(error)))?;
        let entry = self.neighbour_entry(&mut socket, address).map_err(failed)?;
        let Some(entry) = entry.filter(|entry| known(entry).is_some()) else {
            return Ok(false);
        };
        // Probing an entry again resets its probe count, so it might never fail.
        let is_open = matches!(
            entry.header.state,
            NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Delay
        );
        if is_open && !is_set(&entry) {
            let mut message = self.neighbour_message(address);
            message.header.state = NeighbourState::Probe;
            match socket.request(RouteNetlinkMessage::NewNeighbour(message), 0) {
                Err(error) if is_unknown(&error) => return Ok(false),
                done => _ = done.map_err(failed)?,
            }
        }
        Ok(true)
    }

    /// Returns the kernel's entry of a neighbour, if it has one.
    fn neighbour_entry(
        &self,
        socket: &mut Socket,
        address: IpAddr,
    ) -> std::result::Result<Option<NeighbourMessage>, NetlinkError> {
        let message = self.neighbour_message(address);
        let answers = match socket.request(RouteNetlinkMessage::GetNeighbour(message), 0) {
            Err(error) if is_unknown(&error) => return Ok(None),
            answers => answers?,
        };
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(entry) => Some(entry),
            _ => None,
        }))
    }

    fn neighbour_message(&self, address: IpAddr) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(address);
        message.header.ifindex = self.index();
        message.attributes.push(NeighbourAttribute::Destination(address.into()));
        message
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
    ///
    /// The request goes out on this interface, whatever routes there are. Without `CAP_NET_ADMIN`
    /// it takes a route to the address by this interface.
    #[doc(alias = "NTF_USE")]
    pub fn ask_for(&self, address: IpAddr) {
        // The kernel asks from the datagram's address. Without one it needs a link-local address.
        self.send_datagram(address);
        let _ = self.use_neighbour(address);
    }

    /// Has the kernel resolve an address as if it had a packet for it, unless it does already.
    fn use_neighbour(&self, address: IpAddr) -> std::result::Result<(), NetlinkError> {
        let mut socket = Socket::route()?;
        let entry = self.neighbour_entry(&mut socket, address)?;
        // NTF_USE clears flags, and makes a permanent entry expire.
        let is_asked = |entry: &NeighbourMessage| entry.header.state == NeighbourState::Incomplete;
        if entry.is_some_and(|entry| is_set(&entry) || is_asked(&entry)) {
            return Ok(());
        }
        let mut message = self.neighbour_message(address);
        message.header.flags = NeighbourFlags::Use;
        let request = RouteNetlinkMessage::NewNeighbour(message);
        socket.request(request, NLM_F_CREATE).map(drop)
    }

    fn send_datagram(&self, address: IpAddr) {
        let (any, to) = match address {
            IpAddr::V4(to) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), (to, DISCARD).into()),
            IpAddr::V6(to) => (
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                SocketAddr::V6(SocketAddrV6::new(to, DISCARD, 0, self.index())),
            ),
        };
        // No route is no error here: the address may then not be found, and the caller says so.
        if let Ok(socket) = UdpSocket::bind((any, 0)) {
            let _ = socket.send_to(&[], to);
        }
    }
}

fn is_unknown(error: &NetlinkError) -> bool {
    match error {
        NetlinkError::Refused { source, .. } => source.raw_os_error() == Some(libc::ENOENT),
        _ => false,
    }
}

/// Returns whether somebody has set an entry, or has the kernel keep it (`managed`).
fn is_set(entry: &NeighbourMessage) -> bool {
    use netlink_packet_route::neighbour::NeighbourExtFlags;
    let kept = NeighbourExtFlags::Managed | NeighbourExtFlags::ExtValidated;
    let is_kept = |attribute: &NeighbourAttribute| match attribute {
        NeighbourAttribute::ExtFlags(flags) => flags.intersects(kept),
        _ => false,
    };
    matches!(entry.header.state, NeighbourState::Permanent | NeighbourState::Noarp)
        || entry.header.flags.contains(NeighbourFlags::ExtLearned)
        || entry.attributes.iter().any(is_kept)
}

fn family_of(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn known(entry: &NeighbourMessage) -> Option<(IpAddr, [u8; 6])> {
    read(entry).and_then(|(ip, mac)| Some((ip, mac?)))
}

fn read(entry: &NeighbourMessage) -> Option<(IpAddr, Option<[u8; 6]>)> {
    let (mut ip, mut mac) = (None, None);
    for attribute in &entry.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    Some((ip?, mac))
}
