//! Whole frames: write a UDP flow's, read one, and send one back where it came from.
//!
//! ```text
//!            0              14                34 or 54      42 or 62
//!            ├── Ethernet ──┼── IPv4 or IPv6 ──┼── UDP ──┼── payload ──┤
//! UdpFlow::write               fills these three           is there already
//! ```
//!
//! The example on the [crate's front page](crate) writes a frame, reflects and reads it.

use core::net::{IpAddr, SocketAddr};

use crate::ethernet::{self, Frame};
use crate::{Error, EtherType, MacAddr, Protocol, ipv4, ipv6, udp};

mod complete;
mod receive;
mod reflect;

pub use crate::udp::ChecksumState;
pub use complete::complete_checksum;
pub use receive::{UdpPacket, parse_udp};
pub use reflect::{complete_udp_checksum, reflect_icmp_echo, reflect_udp};

/// Returns an address as people write it: an IPv4 address that an IPv6 socket shows as
/// `[::ffff:192.0.2.1]:5000` as `192.0.2.1:5000`. Others stay as they are.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

const LAYER: &str = "UDP frame";

/// The addresses of a UDP flow, from which the headers of its frames are written.
///
/// Both socket addresses have to be of one family. The scope and flow information of an IPv6
/// address are not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpFlow {
    /// Hardware address of the sender.
    pub src_mac: MacAddr,
    /// Hardware address of the receiver, or of the router on the way.
    pub dst_mac: MacAddr,
    /// Address and port of the sender.
    pub src: SocketAddr,
    /// Address and port of the receiver.
    pub dst: SocketAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
}

impl UdpFlow {
    /// Where the payload begins, in bytes: 42 for IPv4, 62 for IPv6.
    #[must_use]
    pub fn header_len(&self) -> usize {
        let ip = match self.dst {
            SocketAddr::V4(_) => ipv4::HEADER_LEN,
            SocketAddr::V6(_) => ipv6::HEADER_LEN,
        };
        ethernet::HEADER_LEN + ip + udp::HEADER_LEN
    }

    /// Writes the headers around the `payload_len` bytes that stand at
    /// [`header_len`](Self::header_len) already, with all checksums. Returns the frame's length
    /// in bytes; below [`ethernet::MIN_FRAME_LEN`] whoever sends it has to pad it.
    ///
    /// # Errors
    /// [`Error::FamilyMismatch`]; [`Error::NoRoom`] when headers and payload do not fit `frame`;
    /// [`Error::TooLong`] when the payload does not fit the length fields.
    pub fn write(&self, frame: &mut [u8], payload_len: usize) -> Result<usize, Error> {
        let len = self.header_len().saturating_add(payload_len);
        let have = frame.len();
        let no_room = Error::NoRoom {
            layer: LAYER,
            need: len,
            have,
        };
        let frame = frame.get_mut(..len).ok_or(no_room)?;
        let (eth, packet) = frame.split_at_mut_checked(ethernet::HEADER_LEN).ok_or(no_room)?;
        let upper_len = udp::HEADER_LEN + payload_len;
        let (ethertype, ip_len) = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = ipv4::Header {
                    ttl: self.ttl,
                    payload_len: upper_len,
                    ..ipv4::Header::new(src, dst, Protocol::UDP)
                };
                header.emit(packet)?;
                (EtherType::IPV4, ipv4::HEADER_LEN)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = ipv6::Header {
                    hop_limit: self.ttl,
                    payload_len: upper_len,
                    ..ipv6::Header::new(src, dst, Protocol::UDP)
                };
                header.emit(packet)?;
                (EtherType::IPV6, ipv6::HEADER_LEN)
            }
            _ => return Err(Error::FamilyMismatch),
        };
        let header = ethernet::Header {
            dst: self.dst_mac,
            src: self.src_mac,
            ethertype,
        };
        header.emit(eth)?;
        let datagram = packet.get_mut(ip_len..).ok_or(no_room)?;
        let header = udp::Header {
            src_port: self.src.port(),
            dst_port: self.dst.port(),
            payload_len,
        };
        header.emit(datagram)?;
        udp::fill_checksum(datagram, self.src.ip(), self.dst.ip())?;
        Ok(len)
    }

    /// The flow back: sender and receiver changed places, the same TTL.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            src: self.dst,
            dst: self.src,
            ttl: self.ttl,
        }
    }
}

/// The addresses of the Ethernet header, of a frame that is known to have one.
fn macs(frame: &[u8]) -> Result<(MacAddr, MacAddr), Error> {
    let frame = Frame::parse(frame)?;
    Ok((frame.src(), frame.dst()))
}

#[cfg(test)]
mod tests;
