//! The other end of a veth pair, which may be in another network namespace.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, LinkState, Result};

/// Where iproute2 keeps the names of network namespaces.
const NAMES: &str = "/run/netns";

/// The other end of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VethPeer {
    /// Its index in its network namespace.
    pub index: u32,
    /// The network namespace that it is in; `None` if that is the interface's own.
    pub namespace: Option<PeerNamespace>,
    /// Its state. `None` if the kernel does not allow the question: in another network namespace it
    /// takes `CAP_NET_ADMIN` there.
    pub state: Option<LinkState>,
}

/// A network namespace as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerNamespace {
    /// The number by which `ip netns list-id` shows it. It is the asking namespace's own numbering.
    pub id: i32,
    /// Its name of `ip netns`, if it has one that this process can see.
    pub name: Option<String>,
}

impl Interface {
    /// Returns the other end of a veth pair; `None` for other kinds of links.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `ENODEV` if the interface was removed.
    #[doc(alias = "IFLA_LINK_NETNSID")]
    pub fn veth_peer(&self) -> Result<Option<VethPeer>> {
        let operation = "read the other end of the link";
        let mut message = LinkMessage::default();
        message.header.index = self.index();
        let answers = self.request(operation, RouteNetlinkMessage::GetLink(message), 0)?;
        let Some(link) = answers.into_iter().find_map(link) else {
            return Err(Error::malformed(operation, self.name(), "no link in it"));
        };
        let (mut index, mut id) = (None, None);
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Link(value) => index = Some(*value),
                LinkAttribute::LinkNetNsId(value) => id = Some(*value),
                _ => {}
            }
        }
        let is_veth = LinkState::from_message(link).is_some_and(|state| state.kind.as_deref() == Some("veth"));
        let Some(index) = index.filter(|_| is_veth) else {
            return Ok(None);
        };
        let mut socket = Socket::route().map_err(|error| Error::netlink(operation, self.name(), error.into()))?;
        let name = id.and_then(|id| namespace_name(&mut socket, id));
        Ok(Some(VethPeer {
            index,
            namespace: id.map(|id| PeerNamespace { id, name }),
            state: state(&mut socket, index, id).ok().flatten(),
        }))
    }
}

fn link(answer: RouteNetlinkMessage) -> Option<LinkMessage> {
    match answer {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }
}

fn state(socket: &mut Socket, index: u32, namespace: Option<i32>) -> Result<Option<LinkState>, NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    // Also called IFLA_TARGET_NETNSID.
    message.attributes.extend(namespace.map(LinkAttribute::IfNetnsId));
    let answers = socket.request(RouteNetlinkMessage::GetLink(message), 0)?;
    Ok(answers.into_iter().find_map(link).and_then(LinkState::from_message))
}

/// Asks the kernel for the number of each namespace that has a name.
fn namespace_name(socket: &mut Socket, id: i32) -> Option<String> {
    let names = fs::read_dir(Path::new(NAMES)).ok()?;
    let mut named = names.filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.file_name().into_string().ok()?, File::open(entry.path()).ok()?))
    });
    named.find_map(|(name, file)| {
        let mut message = NsidMessage::default();
        let descriptor = u32::try_from(file.as_raw_fd()).ok()?;
        message.attributes.push(NsidAttribute::Fd(descriptor));
        let answers = socket.request(RouteNetlinkMessage::GetNsId(message), 0).ok()?;
        let is_it = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewNsId(message) => message.attributes.contains(&NsidAttribute::Id(id)),
            _ => false,
        };
        answers.iter().any(is_it).then_some(name)
    })
}

#[cfg(test)]
#[path = "veth_tests.rs"]
mod tests;
