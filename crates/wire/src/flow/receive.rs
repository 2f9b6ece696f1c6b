//! From a received frame to its UDP payload.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use super::{LAYER, macs};
use crate::bytes::swap_neighbours;
use crate::udp::{ChecksumState, Datagram};
use crate::vlan::{Network, Tag};
use crate::{Error, EtherType, MacAddr, Protocol, ethernet, ipv4, ipv6, udp};

/// Where source and destination address stand in the IP header, and how long one is.
const V4_ADDRESSES: (usize, usize) = (12, 4);
const V6_ADDRESSES: (usize, usize) = (8, 16);

/// Who sent a UDP frame to whom, and where in the frame its payload is.
///
/// It holds offsets, not the frame, so that the frame can be edited meanwhile. Its methods take
/// the frame again; with another one they may give an error or nonsense, but do not panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpPacket {
    /// Hardware address of the sender.
    pub src_mac: MacAddr,
    /// Hardware address of the receiver.
    pub dst_mac: MacAddr,
    /// The outer VLAN tag, if the frame holds one.
    pub vlan: Option<Tag>,
    /// Address and port of the sender.
    pub src: SocketAddr,
    /// Address and port of the receiver.
    pub dst: SocketAddr,
    /// The payload in the frame, without Ethernet padding.
    pub payload: Range<usize>,
    network: usize,
    datagram: usize,
}

/// Reads a frame down to its UDP payload: VLAN tags and IPv6 extension headers are stepped over,
/// lengths are those of IP and UDP, Ethernet padding does not count.
///
/// Checksums are not verified here, because that reads the whole payload: see
/// [`UdpPacket::checksum_state`].
///
/// # Errors
/// [`Error::Unsupported`] for anything but UDP, for fragments, and for IPv6 packets that have
/// other stops before them; [`Error::Truncated`] and [`Error::Malformed`] for damaged ones.
pub fn parse_udp(frame: &[u8]) -> Result<UdpPacket, Error> {
    let (src_mac, dst_mac) = macs(frame)?;
    let network = Network::parse(frame)?;
    let upper = Upper::find(frame, &network)?;
    if upper.protocol != Protocol::UDP {
        return Err(unsupported("IP protocol", u32::from(upper.protocol.0)));
    }
    let datagram = Datagram::parse(upper.bytes)?;
    let payload = upper.offset + udp::HEADER_LEN;
    Ok(UdpPacket {
        src_mac,
        dst_mac,
        vlan: network.outer,
        src: SocketAddr::new(upper.src, datagram.src_port()),
        dst: SocketAddr::new(upper.dst, datagram.dst_port()),
        payload: payload..payload + datagram.payload().len(),
        network: network.offset,
        datagram: upper.offset,
    })
}

impl UdpPacket {
    /// What the UDP checksum in `frame` is worth. Reads all of the payload.
    #[must_use]
    pub fn checksum_state(&self, frame: &[u8]) -> ChecksumState {
        let datagram = frame.get(self.datagram..).unwrap_or_default();
        udp::checksum_state(datagram, self.src.ip(), self.dst.ip())
    }

    /// Sends `frame` back: swaps MAC addresses, IP addresses and ports in place. All checksums
    /// stay as right as they were, since they are sums; the TTL stays. This value still describes
    /// the frame as it was received.
    ///
    /// # Errors
    /// [`Error::Truncated`] when `frame` is shorter than the one that was parsed.
    pub fn reflect(&self, frame: &mut [u8]) -> Result<(), Error> {
        swap_neighbours(frame, self.datagram, 2)?;
        swap_addresses(frame, self.network, self.dst.ip())?;
        ethernet::swap_macs(frame)
    }

    /// Brings the UDP checksum of `frame` up to date after one aligned 16-bit word of its payload
    /// changed from `old` to `new` (aligned from the start of the payload).
    ///
    /// # Errors
    /// As [`UdpPacket::reflect`].
    pub fn patch_checksum(&self, frame: &mut [u8], old: u16, new: u16) -> Result<(), Error> {
        udp::patch_checksum(self.datagram_mut(frame)?, old, new)
    }

    /// Computes the UDP checksum of `frame` anew, over all of the payload.
    ///
    /// # Errors
    /// As [`UdpPacket::reflect`].
    pub fn fill_checksum(&self, frame: &mut [u8]) -> Result<(), Error> {
        let (src, dst) = (self.src.ip(), self.dst.ip());
        udp::fill_checksum(self.datagram_mut(frame)?, src, dst)
    }

    fn datagram_mut<'a>(&self, frame: &'a mut [u8]) -> Result<&'a mut [u8], Error> {
        let have = frame.len();
        frame.get_mut(self.datagram..).ok_or(Error::Truncated {
            layer: LAYER,
            need: self.datagram,
            have,
        })
    }
}

/// The upper layer of an IP packet in a frame, whole.
pub(super) struct Upper<'a> {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: Protocol,
    /// From the start of the frame.
    pub(super) offset: usize,
    /// To the end of the IP packet.
    pub(super) bytes: &'a [u8],
    /// There are IPv4 options, which say things about the way that a reflection would get wrong.
    pub(super) has_options: bool,
}

impl<'a> Upper<'a> {
    pub(super) fn find(frame: &'a [u8], network: &Network) -> Result<Self, Error> {
        let bytes = frame.get(network.offset..).unwrap_or_default();
        match network.ethertype {
            EtherType::IPV4 => {
                let packet = ipv4::Packet::parse(bytes)?;
                if packet.is_fragment() {
                    let offset = u32::try_from(packet.fragment_offset()).unwrap_or(u32::MAX);
                    return Err(unsupported("IPv4 fragment offset", offset));
                }
                Ok(Self {
                    src: packet.src().into(),
                    dst: packet.dst().into(),
                    protocol: packet.protocol(),
                    offset: network.offset + packet.header_len(),
                    bytes: packet.payload(),
                    has_options: !packet.options().is_empty(),
                })
            }
            EtherType::IPV6 => {
                let packet = ipv6::Packet::parse(bytes)?;
                let upper = packet.upper_layer()?;
                if let Some(fragment) = upper.fragment.filter(|found| !found.is_atomic()) {
                    let offset = u32::try_from(fragment.offset).unwrap_or(u32::MAX);
                    return Err(unsupported("IPv6 fragment offset", offset));
                }
                if upper.has_stops_left {
                    return Err(unsupported("IPv6 routing header with segments left", 1));
                }
                Ok(Self {
                    src: packet.src().into(),
                    dst: packet.dst().into(),
                    protocol: upper.protocol,
                    offset: network.offset + upper.offset,
                    bytes: upper.bytes,
                    has_options: false,
                })
            }
            EtherType(other) => Err(unsupported("ethertype", u32::from(other))),
        }
    }
}

/// Swaps the IP addresses of the packet at `network`; `family` is any address of its family.
pub(super) fn swap_addresses(frame: &mut [u8], network: usize, family: IpAddr) -> Result<(), Error> {
    let (at, len) = match family {
        IpAddr::V4(_) => V4_ADDRESSES,
        IpAddr::V6(_) => V6_ADDRESSES,
    };
    swap_neighbours(frame, network + at, len)
}

fn unsupported(field: &'static str, value: u32) -> Error {
    Error::Unsupported {
        layer: LAYER,
        field,
        value,
    }
}
