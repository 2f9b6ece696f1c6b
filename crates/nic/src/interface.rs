//! The handle to an interface.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use serde::Serialize;

use crate::netlink::{NetlinkError, Socket};
use crate::{Error, LinkState, Result, sys};

/// An interface: a name and an index that belong together, in one network namespace.
///
/// Both are fixed at look-up. An interface that is removed or renamed afterwards makes the operations fail; one that
/// is created again under the same name has another index and has to be looked up again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Interface {
    index: u32,
    name: String,
    namespace: Option<u64>,
}

/// An IP address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of the network's prefix in bits.
    pub prefix_len: u8,
}

impl Interface {
    /// Looks an interface up by name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownInterface`], which lists the interfaces of the calling thread's network namespace.
    #[doc(alias = "if_nametoindex")]
    pub fn by_name(name: &str) -> Result<Self> {
        if !valid_name(name) {
            return Err(Error::unknown_interface(name));
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match query("look up", name, message) {
            Err(error) if error.errno() == Some(libc::ENODEV) => Err(Error::unknown_interface(name)),
            other => other.map(Self::from_state),
        }
    }

    /// Looks an interface up by index.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownIndex`], which lists the interfaces of the calling thread's network namespace.
    #[doc(alias = "if_indextoname")]
    pub fn by_index(index: u32) -> Result<Self> {
        let unknown = || Error::UnknownIndex {
            index,
            existing: names(),
        };
        // The kernel's index is signed and positive; zero would mean "by name".
        if index == 0 || i32::try_from(index).is_err() {
            return Err(unknown());
        }
        let mut message = LinkMessage::default();
        message.header.index = index;
        match query("look up", &format!("#{index}"), message) {
            Err(error) if error.errno() == Some(libc::ENODEV) => Err(unknown()),
            other => other.map(Self::from_state),
        }
    }

    /// All interfaces of the calling thread's network namespace, by index.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub fn all() -> Result<Vec<Self>> {
        let operation = "list the interfaces";
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.dump(RouteNetlinkMessage::GetLink(LinkMessage::default())))
            .map_err(|error| Error::netlink(operation, "*", error))?;
        let mut all: Vec<_> = answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => LinkState::from_message(link).map(Self::from_state),
                _ => None,
            })
            .collect();
        all.sort_by_key(Self::index);
        Ok(all)
    }

    /// Index in its network namespace, never zero.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Name at look-up.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The link's present state and counters.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `ENODEV` if the interface was removed.
    #[doc(alias = "RTM_GETLINK")]
    pub fn state(&self) -> Result<LinkState> {
        let operation = "read the link state";
        self.check_namespace(operation)?;
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        query(operation, &self.name, message)
    }

    /// Switches the interface on or off.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], for instance `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_up(&self, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.change_mask = LinkFlags::Up;
        if up {
            message.header.flags = LinkFlags::Up;
        }
        self.change(
            if up {
                "switch on the link"
            } else {
                "switch off the link"
            },
            message,
        )
    }

    /// Sets the largest packet in bytes, without the Ethernet header.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EINVAL` outside the driver's limits, which an attached XDP program narrows (on veth it
    /// narrows the peer's).
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change("set the MTU", message)
    }

    /// Sets the hardware address. Some drivers want the interface to be down.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EADDRNOTAVAIL` for a multicast or all-zero address.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        self.change("set the MAC address", message)
    }

    /// Removes a virtual link; the other end of a veth pair goes with it.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EOPNOTSUPP` for hardware.
    #[doc(alias = "RTM_DELLINK")]
    pub fn delete(&self) -> Result<()> {
        let operation = "delete the link";
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        self.request(operation, RouteNetlinkMessage::DelLink(message), 0)
            .map(drop)
    }

    /// The interface's IP addresses, IPv4 first.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    #[doc(alias = "RTM_GETADDR")]
    pub fn addresses(&self) -> Result<Vec<InterfaceAddress>> {
        let mut addresses = self.host_addresses()?;
        addresses.retain(|(index, _)| *index == self.index);
        Ok(addresses.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The IP addresses of all interfaces in this one's network namespace, IPv4 first, each with
    /// its interface's index.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    #[doc(alias = "RTM_GETADDR")]
    pub fn host_addresses(&self) -> Result<Vec<(u32, InterfaceAddress)>> {
        let operation = "read the addresses";
        self.check_namespace(operation)?;
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default())))
            .map_err(|error| Error::netlink(operation, &self.name, error))?;
        let mut addresses: Vec<_> = answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => {
                    let entry = InterfaceAddress {
                        address: own_address(&message)?,
                        prefix_len: message.header.prefix_len,
                    };
                    Some((message.header.index, entry))
                }
                _ => None,
            })
            .collect();
        addresses.sort_by_key(|(_, entry)| entry.address);
        Ok(addresses)
    }

    /// Sends an rtnetlink request about this interface and returns the answers before the acknowledgement.
    ///
    /// For settings that this crate has no function for. `operation` completes "cannot … on 'eth0'" in the error.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with the kernel's explanation.
    pub fn request(
        &self,
        operation: &'static str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.check_namespace(operation)?;
        Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.request(message, flags))
            .map_err(|error| Error::netlink(operation, &self.name, error))
    }

    fn change(&self, operation: &'static str, mut message: LinkMessage) -> Result<()> {
        message.header.index = self.index;
        self.request(operation, RouteNetlinkMessage::SetLink(message), 0)
            .map(drop)
    }

    fn from_state(state: LinkState) -> Self {
        Self::of(&state, current_namespace())
    }

    /// The handle to a link of that namespace.
    pub(crate) fn of(state: &LinkState, namespace: Option<u64>) -> Self {
        Self {
            index: state.index,
            name: state.name.clone(),
            namespace,
        }
    }

    /// Refuses to act from another namespace, where the same index may be somebody else's interface.
    pub(crate) fn check_namespace(&self, operation: &'static str) -> Result<()> {
        match (self.namespace, current_namespace()) {
            (Some(then), Some(now)) if then != now => Err(Error::OtherNamespace {
                operation,
                interface: self.name.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// A socket for `ioctl` calls in the interface's namespace.
    pub(crate) fn ioctl_socket(&self, operation: &'static str) -> Result<OwnedFd> {
        self.check_namespace(operation)?;
        sys::ioctl_socket().map_err(|source| Error::kernel(operation, &self.name, source))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn query(operation: &'static str, interface: &str, message: LinkMessage) -> Result<LinkState> {
    let answers = Socket::route()
        .map_err(NetlinkError::Io)
        .and_then(|mut socket| socket.request(RouteNetlinkMessage::GetLink(message), 0))
        .map_err(|error| Error::netlink(operation, interface, error))?;
    answers
        .into_iter()
        .find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => LinkState::from_message(link),
            _ => None,
        })
        .ok_or_else(|| Error::malformed(operation, interface, "no link in it"))
}

/// Whether an interface can have that name. A longer one than the kernel's never exists and must not be cut down to one
/// that does.
pub(crate) fn valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains('\0')
}

/// Names for an error message: an empty list is better than a second error.
pub(crate) fn names() -> Vec<String> {
    Interface::all()
        .map(|all| all.into_iter().map(|interface| interface.name).collect())
        .unwrap_or_default()
}

/// On a point-to-point link `IFA_ADDRESS` is the peer's address and `IFA_LOCAL` ours; IPv6 often has only the former.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(wanted);
    find(|a| {
        if let AddressAttribute::Local(ip) = a {
            Some(*ip)
        } else {
            None
        }
    })
    .or_else(|| {
        find(|a| {
            if let AddressAttribute::Address(ip) = a {
                Some(*ip)
            } else {
                None
            }
        })
    })
}

/// The inode of the calling thread's network namespace, which identifies it; `None` without a mounted procfs.
pub(crate) fn current_namespace() -> Option<u64> {
    rustix::fs::stat("/proc/thread-self/ns/net")
        .ok()
        .map(|stat| stat.st_ino)
}
