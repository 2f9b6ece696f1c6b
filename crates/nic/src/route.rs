//! Which way packets to an address leave.

use std::net::IpAddr;

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, Result};

/// The kernel's way to an address, as `ip route get` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// Where packets leave.
    pub interface: Interface,
    /// Whose hardware address they get, if not the receiver's: it is behind this router.
    pub gateway: Option<IpAddr>,
    /// The address that they come from.
    pub source: Option<IpAddr>,
    /// The address is this host's own: packets to it never leave.
    pub is_local: bool,
    /// The longest IP packet, in bytes, that the route says gets there (`ip route … mtu`), or that the kernel has heard of from a
    /// router; None where the interface's own MTU is all that is known.
    pub mtu: Option<u32>,
}

impl Route {
    /// Asks the kernel, in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoute`] if the kernel knows no way; [`Error::Kernel`] if it does not answer.
    #[doc(alias = "RTM_GETROUTE")]
    pub fn to(address: IpAddr) -> Result<Self> {
        const OPERATION: &str = "ask for the route";
        let mut message = RouteMessage::default();
        (message.header.address_family, message.header.destination_prefix_length) = match address {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        message.attributes.push(RouteAttribute::Destination(address.into()));
        let no_route = |source| Error::NoRoute { address, source };
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.request(RouteNetlinkMessage::GetRoute(message), 0))
            .map_err(|error| match error {
                NetlinkError::Refused { source, .. } => no_route(source),
                other => Error::netlink(OPERATION, &address.to_string(), other),
            })?;
        let found = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        let found = found.ok_or_else(|| no_route(std::io::Error::from_raw_os_error(libc::ENETUNREACH)))?;
        let mut index = None;
        let (mut gateway, mut source, mut mtu) = (None, None, None);
        for attribute in &found.attributes {
            match attribute {
                RouteAttribute::Oif(oif) => index = Some(*oif),
                RouteAttribute::Gateway(via) => gateway = ip(via),
                RouteAttribute::PrefSource(from) => source = ip(from),
                RouteAttribute::Metrics(metrics) => mtu = metrics.iter().find_map(limit),
                _ => {}
            }
        }
        // A route without an interface is one that forbids: blackhole, unreachable, prohibit.
        let index = index.ok_or_else(|| no_route(std::io::Error::from_raw_os_error(libc::ENETUNREACH)))?;
        Ok(Self {
            interface: Interface::by_index(index)?,
            gateway,
            source,
            is_local: found.header.kind == RouteType::Local,
            mtu,
        })
    }
}

fn limit(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) if *mtu != 0 => Some(*mtu),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
