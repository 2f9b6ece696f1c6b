//! Links, addresses and neighbours by rtnetlink.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use ringside_nic::netlink::{NetlinkError, Socket};

use crate::{Error, Namespace, Result};

/// One end of a veth pair to be made.
pub(crate) struct Planned<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) name: &'a str,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
}

/// Makes a veth pair, each end in its namespace from the start, both down.
pub(crate) fn create_veth(a: &Planned<'_>, b: &Planned<'_>) -> Result<()> {
    let peer = message(b, Some(b.namespace.fd().as_fd().as_raw_fd()));
    let mut link = message(a, None);
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    let request = RouteNetlinkMessage::NewLink(link);
    a.namespace
        .try_run(|| send(request, NLM_F_CREATE | NLM_F_EXCL))?
        .map_err(|source| failed("create a veth pair", a.namespace, a.name, source))
}

/// Makes an interface of a kind other than veth, down. It is made in `namespace`, and moves to `home` before anybody sees it.
pub(crate) fn create_device(
    namespace: &Namespace,
    home: &Namespace,
    planned: (&'static str, &str, Option<[u8; 6]>, Option<u32>),
    info: Vec<LinkInfo>,
) -> Result<()> {
    create_device_on(namespace, home, planned, info, None)
}

/// As [`create_device`], on top of an interface of `namespace`.
pub(crate) fn create_device_on(
    namespace: &Namespace,
    home: &Namespace,
    planned: (&'static str, &str, Option<[u8; 6]>, Option<u32>),
    info: Vec<LinkInfo>,
    lower: Option<u32>,
) -> Result<()> {
    let (operation, name, mac, mtu) = planned;
    let mut link = LinkMessage::default();
    link.attributes.extend(lower.map(LinkAttribute::Link));
    link.attributes.extend([
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::NetNsFd(home.fd().as_fd().as_raw_fd()),
        LinkAttribute::LinkInfo(info),
    ]);
    link.attributes
        .extend(mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    link.attributes.extend(mtu.map(LinkAttribute::Mtu));
    let request = RouteNetlinkMessage::NewLink(link);
    namespace
        .try_run(|| send(request, NLM_F_CREATE | NLM_F_EXCL))?
        .map_err(|source| failed(operation, home, name, source))
}

/// Makes an interface of the calling thread's namespace a port of a bridge.
pub(crate) fn set_controller(index: u32, bridge: u32) -> Result<(), NetlinkError> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::Controller(bridge));
    send(RouteNetlinkMessage::SetLink(link), 0)
}

/// Sets how many packets may wait in an interface of the calling thread's namespace.
pub(crate) fn set_queue_len(index: u32, packets: u32) -> Result<(), NetlinkError> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::TxQueueLen(packets));
    send(RouteNetlinkMessage::SetLink(link), 0)
}

/// Gives an interface of the calling thread's namespace another name. It has to be down.
pub(crate) fn rename(index: u32, name: &str) -> Result<(), NetlinkError> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    send(RouteNetlinkMessage::SetLink(link), 0)
}

/// Moves an interface of the calling thread's namespace to another one, under the same name. It is down there, and without addresses.
pub(crate) fn move_to(index: u32, to: &Namespace) -> Result<(), NetlinkError> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes
        .push(LinkAttribute::NetNsFd(to.fd().as_fd().as_raw_fd()));
    send(RouteNetlinkMessage::SetLink(link), 0)
}

/// Adds an address to an interface of the calling thread's namespace, without duplicate address detection: nobody else
/// can have it, and the interface is usable at once.
pub(crate) fn add_address(index: u32, address: IpAddr, prefix_len: u8) -> Result<(), NetlinkError> {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_len;
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(address));
    message.attributes.push(AddressAttribute::Address(address));
    match address {
        IpAddr::V4(address) => {
            let host_bits = u32::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
            let broadcast = Ipv4Addr::from(u32::from(address) | host_bits);
            message.attributes.push(AddressAttribute::Broadcast(broadcast));
        }
        IpAddr::V6(_) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
    }
    send(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Adds a neighbour that never has to be asked for.
pub(crate) fn add_neighbour(index: u32, address: IpAddr, mac: [u8; 6]) -> Result<(), NetlinkError> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unicast;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    }));
    message
        .attributes
        .push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    send(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Whether the calling thread's namespace takes packets for an address as its own.
pub(crate) fn is_local(address: IpAddr) -> Result<bool, NetlinkError> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(address);
    message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    message.attributes.push(RouteAttribute::Destination(address.into()));
    let answers = Socket::route()?.request(RouteNetlinkMessage::GetRoute(message), 0)?;
    Ok(answers
        .iter()
        .any(|answer| matches!(answer, RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Local)))
}

/// Writes IPv6 settings of an interface of the calling thread's namespace, which `/proc/sys/net` shows.
///
/// A kernel without IPv6 has none of them, and needs none.
pub(crate) fn quiet_ipv6(namespace: &Namespace, interface: &str, enabled: bool) -> Result<()> {
    let directory = format!("/proc/sys/net/ipv6/conf/{interface}");
    if !fs::exists(&directory).unwrap_or(false) {
        return Ok(());
    }
    // Without these an interface that comes up detects duplicates, asks for routers and makes itself a link-local
    // address (mode 1: none), each with packets that a test would have to expect.
    let quiet: &[(&str, &str)] = &[
        ("accept_dad", "0"),
        ("router_solicitations", "0"),
        ("accept_ra", "0"),
        ("addr_gen_mode", "1"),
        // Unlike those of IPv4, addresses go with an interface that is switched off.
        ("keep_addr_on_down", "1"),
    ];
    let settings = if enabled { quiet } else { &[("disable_ipv6", "1")] };
    for (file, value) in settings {
        let path = format!("{directory}/{file}");
        fs::write(&path, value).map_err(|source| Error::Setting {
            path,
            namespace: namespace.name().to_owned(),
            source,
        })?;
    }
    Ok(())
}

pub(crate) fn failed(operation: &'static str, namespace: &Namespace, interface: &str, source: NetlinkError) -> Error {
    Error::Link {
        operation,
        interface: interface.to_owned(),
        namespace: namespace.name().to_owned(),
        source,
    }
}

fn message(end: &Planned<'_>, namespace: Option<i32>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.extend([
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::Address(end.mac.to_vec()),
        LinkAttribute::Mtu(end.mtu),
        // The driver activates as many as were asked for only if they are given:
        // https://elixir.bootlin.com/linux/v6.18/C/ident/veth_init_queues
        LinkAttribute::NumRxQueues(end.queues),
        LinkAttribute::NumTxQueues(end.queues),
    ]);
    message.attributes.extend(namespace.map(LinkAttribute::NetNsFd));
    message
}

fn send(message: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
    Socket::route()?.request(message, flags).map(drop)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}
