//! What a received frame is: not ours, damaged, or a tenant's.
//!
//! ```text
//!  ┌──────────┬─────────────┬─────┬───────────────────┬──────────┬──────┬────────────────┐
//!  │ Ethernet │ IPv4 / IPv6 │ UDP │ VXLAN / Geneve    │ Ethernet │ VLAN │ IPv4, IPv6, ARP│
//!  └──────────┴─────────────┴─────┴───────────────────┴──────────┴──────┴────────────────┘
//!  0          14            udp   tunnel              inner             network       end
//! ```
//! The XDP program reads the same bytes by the same rules (`gateway.bpf.c`): both say the same of every frame, which is
//! tested on the same frames. What is not for one of the gateway's addresses, or not for one of its two ports, or what
//! the kernel itself has to say something about (version or lengths of its IP header, a later fragment) is the kernel's.

use std::net::{IpAddr, Ipv6Addr};

use ringside_wire::geneve::{self, GeneveOption};
use ringside_wire::{EtherType, MacAddr, Protocol, arp, ethernet, ipv4, ipv6, udp, vlan, vxlan};

use crate::{DropReason, Vni, table::Encapsulation};

/// The gateway's side of the network that carries the tenants'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// Addresses to which hosts send. Few.
    pub addresses: Vec<IpAddr>,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// UDP port of Geneve.
    pub geneve_port: u16,
    /// Geneve options (class, type) that may be critical, because whoever gets them knows them.
    pub known_options: Vec<(u16, u8)>,
}

impl Underlay {
    /// The standard ports, at these addresses.
    #[must_use]
    pub fn at(addresses: &[IpAddr]) -> Self {
        Self {
            addresses: addresses.to_vec(),
            vxlan_port: vxlan::PORT,
            geneve_port: geneve::PORT,
            known_options: Vec::new(),
        }
    }

    /// Returns the UDP port of an encapsulation.
    #[must_use]
    pub const fn port(&self, encapsulation: Encapsulation) -> u16 {
        match encapsulation {
            Encapsulation::Vxlan => self.vxlan_port,
            Encapsulation::Geneve => self.geneve_port,
        }
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The kernel's.
    NotOurs,
    /// For the gateway, but not to be handed on.
    Drop(DropReason),
    /// A tenant's.
    Tenant(Packet),
}

/// Where everything is in a tenant's packet. Offsets are in bytes from the start of the frame, and lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The host that sent it.
    pub from: IpAddr,
    /// The gateway's address that it came to.
    pub to: IpAddr,
    /// What it came in.
    pub encapsulation: Encapsulation,
    /// The tenant's network.
    pub vni: Vni,
    /// The outer UDP header.
    pub udp: u16,
    /// The tunnel header.
    pub tunnel: u16,
    /// The tenant's Ethernet header.
    pub inner: u16,
    /// What follows it, behind VLAN tags.
    pub network: u16,
    /// The end of what is the tenant's: the frame may have padding behind it.
    pub end: u16,
    /// What the tenant says.
    pub content: Content,
}

/// What a tenant's frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// An IP packet to one receiver.
    Ip {
        /// Its sender.
        src: IpAddr,
        /// Its receiver.
        dst: IpAddr,
    },
    /// Who has this address? In ARP or neighbour discovery.
    WhoHas {
        /// Who asks. Unspecified: it only wants to know whether somebody else has the address.
        asker: IpAddr,
        /// The address.
        target: IpAddr,
    },
}

/// Where the outer IP header begins.
pub const OUTER: usize = ethernet::HEADER_LEN;

impl Packet {
    /// Tells what a frame is.
    #[must_use]
    pub fn classify(frame: &[u8], underlay: &Underlay) -> Class {
        match classify(frame, underlay) {
            Ok(packet) => Class::Tenant(packet),
            Err(class) => class,
        }
    }

    /// The tenant's Ethernet destination.
    #[must_use]
    pub fn inner_destination(&self, frame: &[u8]) -> MacAddr {
        mac_at(frame, usize::from(self.inner))
    }

    /// The tenant's Ethernet source.
    #[must_use]
    pub fn inner_source(&self, frame: &[u8]) -> MacAddr {
        mac_at(frame, usize::from(self.inner) + 6)
    }
}

fn mac_at(frame: &[u8], at: usize) -> MacAddr {
    let octets = frame.get(at..).and_then(<[u8]>::first_chunk);
    MacAddr(octets.copied().unwrap_or_default())
}

const fn drop<T>(reason: DropReason) -> Result<T, Class> {
    Err(Class::Drop(reason))
}

/// The outer IP header, as far as it matters, and its payload.
struct Outer<'a> {
    src: IpAddr,
    dst: IpAddr,
    first_fragment: bool,
    payload: &'a [u8],
    udp: usize,
}

fn outer<'a>(frame: &'a [u8]) -> Result<Outer<'a>, Class> {
    let ethernet = ethernet::Frame::parse(frame).map_err(|_| Class::NotOurs)?;
    match ethernet.ethertype() {
        EtherType::IPV4 => {
            let ip = ipv4::Packet::parse(ethernet.payload()).map_err(|_| Class::NotOurs)?;
            if ip.protocol() != Protocol::UDP || ip.fragment_offset() > 0 {
                return Err(Class::NotOurs);
            }
            Ok(Outer {
                src: ip.src().into(),
                dst: ip.dst().into(),
                first_fragment: ip.more_fragments(),
                payload: ip.payload(),
                udp: OUTER + ip.header_len(),
            })
        }
        EtherType::IPV6 => {
            let ip = ipv6::Packet::parse(ethernet.payload()).map_err(|_| Class::NotOurs)?;
            // Extension headers, fragments among them: nobody's tunnel uses them.
            if ip.next_header() != Protocol::UDP {
                return Err(Class::NotOurs);
            }
            Ok(Outer {
                src: ip.src().into(),
                dst: ip.dst().into(),
                first_fragment: false,
                payload: ip.payload(),
                udp: OUTER + ipv6::HEADER_LEN,
            })
        }
        _ => Err(Class::NotOurs),
    }
}

fn classify(frame: &[u8], underlay: &Underlay) -> Result<Packet, Class> {
    let outer = outer(frame)?;
    let Some(&[_, _, high, low, ..]) = outer.payload.first_chunk::<{ udp::HEADER_LEN }>() else {
        return Err(Class::NotOurs);
    };
    let encapsulation = match u16::from_be_bytes([high, low]) {
        port if port == underlay.vxlan_port => Encapsulation::Vxlan,
        port if port == underlay.geneve_port => Encapsulation::Geneve,
        _ => return Err(Class::NotOurs),
    };
    if !underlay.addresses.contains(&outer.dst) {
        return Err(Class::NotOurs);
    }
    if outer.first_fragment {
        return drop(DropReason::OuterFragment);
    }
    let Ok(datagram) = udp::Datagram::parse(outer.payload) else {
        return drop(DropReason::OuterMalformed);
    };
    let tunnel = outer.udp + udp::HEADER_LEN;
    let (vni, header_len) = match encapsulation {
        Encapsulation::Vxlan => of_vxlan(datagram.payload())?,
        Encapsulation::Geneve => of_geneve(datagram.payload(), &underlay.known_options)?,
    };
    let inner = datagram.payload().get(header_len..).unwrap_or_default();
    let (network, content) = of_tenant(inner)?;
    let inner_at = tunnel + header_len;
    let at = |offset: usize| u16::try_from(offset).map_err(|_| Class::Drop(DropReason::OuterMalformed));
    Ok(Packet {
        from: outer.src,
        to: outer.dst,
        encapsulation,
        vni,
        udp: at(outer.udp)?,
        tunnel: at(tunnel)?,
        inner: at(inner_at)?,
        network: at(inner_at + network)?,
        end: at(inner_at + inner.len())?,
        content,
    })
}

fn of_vxlan(payload: &[u8]) -> Result<(Vni, usize), Class> {
    match vxlan::Packet::parse(payload) {
        Ok(packet) => Ok((vni(packet.vni()), vxlan::HEADER_LEN)),
        Err(ringside_wire::Error::Malformed { .. }) => drop(DropReason::VxlanFlags),
        Err(_) => drop(DropReason::OuterMalformed),
    }
}

fn of_geneve(payload: &[u8], known: &[(u16, u8)]) -> Result<(Vni, usize), Class> {
    let packet = match geneve::Packet::parse(payload) {
        Ok(packet) => packet,
        Err(ringside_wire::Error::Unsupported { .. }) => return drop(DropReason::GeneveVersion),
        Err(_) => return drop(DropReason::GeneveMalformed),
    };
    if packet.is_control() {
        return drop(DropReason::GeneveControl);
    }
    let unknown =
        |option: &GeneveOption<'_>| option.is_critical() && !known.contains(&(option.class, option.option_type));
    // The bit in the header is for those who do not look at the options; these count.
    if packet.options().any(|option| unknown(&option)) {
        return drop(DropReason::GeneveCritical);
    }
    if packet.protocol() != EtherType::TRANSPARENT_ETHERNET {
        return drop(DropReason::GeneveProtocol);
    }
    Ok((vni(packet.vni()), geneve::HEADER_LEN + packet.options_bytes().len()))
}

fn vni(number: u32) -> Vni {
    let [_, a, b, c] = number.to_be_bytes();
    Vni::from_bytes([a, b, c])
}

/// Where the network layer begins in a tenant's frame, and what it is.
fn of_tenant(inner: &[u8]) -> Result<(usize, Content), Class> {
    let malformed = |_| Class::Drop(DropReason::InnerMalformed);
    let network = vlan::Network::parse(inner).map_err(malformed)?;
    let bytes = inner.get(network.offset..).unwrap_or_default();
    let to_many = mac_at(inner, 0).is_multicast();
    let content = match network.ethertype {
        EtherType::ARP => who_has_v4(bytes)?,
        EtherType::IPV4 => {
            let ip = ipv4::Packet::parse(bytes).map_err(malformed)?;
            if to_many || ip.dst().is_multicast() || ip.dst().is_broadcast() {
                return drop(DropReason::InnerMulticast);
            }
            Content::Ip {
                src: ip.src().into(),
                dst: ip.dst().into(),
            }
        }
        EtherType::IPV6 => {
            let ip = ipv6::Packet::parse(bytes).map_err(malformed)?;
            if let Some(who_has) = who_has_v6(&ip)? {
                who_has
            } else if to_many || ip.dst().is_multicast() {
                return drop(DropReason::InnerMulticast);
            } else {
                Content::Ip {
                    src: ip.src().into(),
                    dst: ip.dst().into(),
                }
            }
        }
        _ => return drop(DropReason::InnerProtocol),
    };
    Ok((network.offset, content))
}

fn who_has_v4(bytes: &[u8]) -> Result<Content, Class> {
    let arp = match arp::Packet::parse(bytes) {
        Ok(arp) => arp,
        Err(ringside_wire::Error::Truncated { .. }) => return drop(DropReason::InnerMalformed),
        Err(_) => return drop(DropReason::ArpNotAsked),
    };
    // An announcement asks for its own address.
    if arp.operation != arp::Operation::Request || arp.sender_ip == arp.target_ip {
        return drop(DropReason::ArpNotAsked);
    }
    Ok(Content::WhoHas {
        asker: arp.sender_ip.into(),
        target: arp.target_ip.into(),
    })
}

/// The conditions of RFC 4861 §7.1.1. None for what is no neighbour discovery at all.
fn who_has_v6(ip: &ipv6::Packet<'_>) -> Result<Option<Content>, Class> {
    use ringside_wire::icmp::{self, NeighborSolicitation, v6};
    if ip.next_header() != Protocol::ICMPV6 {
        return Ok(None);
    }
    let Some(&message_type) = ip.payload().first() else {
        return Ok(None);
    };
    if message_type != v6::NEIGHBOR_SOLICITATION {
        // Advertisements and redirects to one receiver pass as what they are: packets.
        return if v6::is_neighbor_discovery(message_type) && ip.dst().is_multicast() {
            drop(DropReason::DiscoveryNotAsked)
        } else {
            Ok(None)
        };
    }
    if ip.hop_limit() != u8::MAX || !icmp::verify_v6(ip.payload(), ip.src(), ip.dst()) {
        return drop(DropReason::DiscoveryMalformed);
    }
    match NeighborSolicitation::parse(ip.payload()) {
        // Who has no address yet asks a few, and tells no MAC address of its own.
        Ok(asked) if ip.src().is_unspecified() && (asked.source_mac.is_some() || !is_solicited_node(ip.dst())) => {
            drop(DropReason::DiscoveryMalformed)
        }
        Ok(asked) => Ok(Some(Content::WhoHas {
            asker: ip.src().into(),
            target: asked.target.into(),
        })),
        Err(_) => drop(DropReason::DiscoveryMalformed),
    }
}

/// The group of those whose addresses have the same last three bytes, RFC 4291 §2.7.1.
fn is_solicited_node(ip: Ipv6Addr) -> bool {
    matches!(ip.segments(), [0xff02, 0, 0, 0, 0, 1, 0xff00..=0xffff, _])
}
