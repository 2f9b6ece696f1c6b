//! Packets as bytes: views that check lengths once, headers that write themselves, and checksums.
//!
//! Every layer has a *view* (`Frame`, `Packet`, `Datagram` …) made by `parse`. `parse` checks every
//! length that the accessors rely on, so the accessors cannot fail and cannot panic. Most layers
//! also have a plain *header* struct that `emit`s itself into a slice. Edits in place (turning a
//! request into its answer) are free functions on `&mut [u8]`.
//!
//! | layer | module | view | emit | edit in place |
//! |---|---|---|---|---|
//! | Ethernet II | [`ethernet`] | [`ethernet::Frame`] | [`ethernet::Header`] | [`ethernet::swap_macs`] |
//! | 802.1Q / 802.1ad | [`vlan`] | [`vlan::Network`] | | |
//! | ARP | [`arp`] | [`arp::Packet`] | [`arp::Packet::emit`] | |
//! | IPv4 | [`ipv4`] | [`ipv4::Packet`] | [`ipv4::Header`] | |
//! | IPv6 | [`ipv6`] | [`ipv6::Packet`] | [`ipv6::Header`] | |
//! | UDP | [`udp`] | [`udp::Datagram`] | [`udp::Header`] | [`udp::patch_checksum`] |
//! | TCP | [`tcp`] | [`tcp::Segment`] | [`tcp::Header`] | |
//! | ICMP, ICMPv6 | [`icmp`] | [`icmp::Echo`], [`icmp::ErrorMessage`], [`icmp::Quoted`], [`icmp::NeighborSolicitation`] | [`icmp::NeighborAdvertisement`] | [`icmp::request_to_reply_v4`] |
//! | VXLAN | [`vxlan`] | [`vxlan::Packet`] | [`vxlan::Header`] | |
//! | Geneve | [`geneve`] | [`geneve::Packet`] | [`geneve::Header`] | |
//! | whole frames | [`flow`] | [`flow::UdpPacket`] | [`flow::UdpFlow`] | [`flow::reflect_udp`], [`flow::reflect_icmp_echo`] |
//!
//! Nothing here allocates, reads a clock or does I/O. All multi-byte fields are big-endian on the
//! wire and native integers in the API; all offsets and lengths are in bytes.
//!
//! # Example: a probe frame, whole, and its answer
//!
//! ```
//! use ringside_wire::flow::{parse_udp, reflect_udp, ChecksumState, UdpFlow};
//!
//! let flow = UdpFlow {
//!     src_mac: "02:00:00:00:00:01".parse()?,
//!     dst_mac: "02:00:00:00:00:02".parse()?,
//!     src: "192.0.2.1:5000".parse()?,
//!     dst: "192.0.2.2:29620".parse()?,
//!     ttl: 64,
//! };
//! let mut frame = [0u8; 128];
//! let at = flow.header_len();
//! frame[at..at + 4].copy_from_slice(b"ping");
//! let len = flow.write(&mut frame, 4)?; // headers and checksums around the payload
//! let frame = &mut frame[..len];
//!
//! reflect_udp(frame)?; // MAC addresses, IP addresses and ports swapped, checksum still right
//! let packet = parse_udp(frame)?;
//! assert_eq!(packet.src, flow.dst);
//! assert_eq!(&frame[packet.payload.clone()], b"ping");
//! assert_eq!(packet.checksum_state(frame), ChecksumState::Valid);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
mod bytes;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod flow;
pub mod geneve;
pub mod icmp;
mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vxlan;

pub use error::Error;
pub use ethernet::{EtherType, MacAddr, swap_macs};
pub use flow::{UdpFlow, UdpPacket, parse_udp, reflect_icmp_echo, reflect_udp};
pub use ip::Protocol;
