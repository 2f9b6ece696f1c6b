//! VXLAN endpoints of the kernel, and which host a MAC address is behind there.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{NetlinkError, Socket};
use crate::{Error, Interface, Result};

/// How a VXLAN endpoint was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vxlan {
    /// The network's number, 24 bits.
    pub vni: u32,
    /// UDP port that it sends to.
    pub port: u16,
    /// Whether it learns from what it receives which host a MAC address is behind.
    pub learns: bool,
    /// The host that everything goes to that has no entry of its own, if there is one.
    pub remote: Option<IpAddr>,
    /// The host's own address that it sends from, if it was given one.
    pub local: Option<IpAddr>,
}

impl Interface {
    /// How it was made, if it is a VXLAN endpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    #[doc(alias = "IFLA_VXLAN_ID")]
    pub fn vxlan(&self) -> Result<Option<Vxlan>> {
        let mut message = LinkMessage::default();
        message.header.index = self.index();
        let request = RouteNetlinkMessage::GetLink(message);
        let answers = self.request("read how the link was made", request, 0)?;
        let attributes = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link.attributes),
            _ => None,
        });
        Ok(attributes.as_deref().and_then(made))
    }

    /// The endpoint sends frames for this MAC address to this host from now on, until it is [taken
    /// back](Self::stop_forwarding), or was not used for as long as the endpoint's ageing time. Only where it does not learn: what is
    /// learned takes the entry's place.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with `EOPNOTSUPP` if this is no VXLAN endpoint, `EPERM` without `CAP_NET_ADMIN`.
    #[doc(alias = "NDA_DST")]
    pub fn forward(&self, mac: [u8; 6], host: IpAddr) -> Result<()> {
        let mut message = self.entry(mac);
        message.header.state = NeighbourState::Reachable;
        message.attributes.push(NeighbourAttribute::Destination(match host {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        }));
        let request = RouteNetlinkMessage::NewNeighbour(message);
        self.request("send to a host", request, NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// What has no entry of its own goes to this host from now on. No packet is lost meanwhile; one or the other may go to both.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with `EOPNOTSUPP` if this is no VXLAN endpoint, `EPERM` without `CAP_NET_ADMIN`, `EINVAL` if the endpoint was
    /// made for addresses of the other family.
    // The kernel adds the new entry before it deletes the old one:
    // <https://elixir.bootlin.com/linux/v6.18/C/ident/vxlan_changelink>
    #[doc(alias = "IFLA_VXLAN_GROUP")]
    pub fn set_vxlan_remote(&self, host: IpAddr) -> Result<()> {
        let remote = match host {
            IpAddr::V4(ip) => InfoVxlan::Group(ip),
            IpAddr::V6(ip) => InfoVxlan::Group6(ip),
        };
        let mut message = LinkMessage::default();
        message.header.index = self.index();
        let infos = vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(vec![remote])),
        ];
        message.attributes.push(LinkAttribute::LinkInfo(infos));
        let request = RouteNetlinkMessage::NewLink(message);
        self.request("send to another host", request, 0).map(drop)
    }

    /// Takes [`forward`](Self::forward) back. It is no error if there is no such entry.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    pub fn stop_forwarding(&self, mac: [u8; 6]) -> Result<()> {
        let request = RouteNetlinkMessage::DelNeighbour(self.entry(mac));
        match self.request("no longer send to a host", request, 0) {
            Err(Error::Kernel { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => done.map(drop),
        }
    }

    /// The MAC addresses with entries that are not permanent.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the table cannot be read.
    pub fn forwarded(&self) -> Result<Vec<[u8; 6]>> {
        const OPERATION: &str = "read the forwarding database";
        self.check_namespace(OPERATION)?;
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = self.index();
        let answers = Socket::route()
            .map_err(NetlinkError::Io)
            .and_then(|mut socket| socket.dump(RouteNetlinkMessage::GetNeighbour(message)))
            .map_err(|error| Error::netlink(OPERATION, self.name(), error))?;
        let entries = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(entry) => Some(entry),
            _ => None,
        });
        let own = entries.filter(|entry| {
            entry.header.ifindex == self.index()
                && entry.header.flags.contains(NeighbourFlags::Own)
                && entry.header.state == NeighbourState::Reachable
        });
        let macs = own.filter_map(|entry| {
            entry.attributes.into_iter().find_map(|attribute| match attribute {
                NeighbourAttribute::LinkLayerAddress(mac) => mac.try_into().ok(),
                _ => None,
            })
        });
        Ok(macs.collect())
    }

    fn entry(&self, mac: [u8; 6]) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = self.index();
        message.header.flags = NeighbourFlags::Own;
        let mac = NeighbourAttribute::LinkLayerAddress(mac.to_vec());
        message.attributes.push(mac);
        message
    }
}

fn made(attributes: &[LinkAttribute]) -> Option<Vxlan> {
    let infos = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    let settings = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vxlan(settings)) => Some(settings),
        _ => None,
    })?;
    let find = |wanted: fn(&InfoVxlan) -> Option<u32>| settings.iter().find_map(wanted);
    let ip = |wanted: fn(&InfoVxlan) -> Option<IpAddr>| {
        let found = settings.iter().find_map(wanted);
        found.filter(|ip| !ip.is_unspecified())
    };
    Some(Vxlan {
        remote: ip(|setting| match setting {
            InfoVxlan::Group(ip) => Some((*ip).into()),
            InfoVxlan::Group6(ip) => Some((*ip).into()),
            _ => None,
        }),
        local: ip(|setting| match setting {
            InfoVxlan::Local(ip) => Some((*ip).into()),
            InfoVxlan::Local6(ip) => Some((*ip).into()),
            _ => None,
        }),
        vni: find(|setting| match setting {
            InfoVxlan::Id(vni) => Some(*vni),
            _ => None,
        })?,
        port: u16::try_from(find(|setting| match setting {
            InfoVxlan::Port(port) => Some(u32::from(*port)),
            _ => None,
        })?)
        .ok()?,
        learns: find(|setting| match setting {
            InfoVxlan::Learning(learns) => Some(u32::from(*learns)),
            _ => None,
        })? != 0,
    })
}
