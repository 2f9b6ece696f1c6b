//! ARP for IPv4 on Ethernet (RFC 826): read a request, write its reply.
//!
//! ```
//! use ringside_wire::arp::{Operation, Packet};
//!
//! let request = Packet {
//!     operation: Operation::Request,
//!     sender_mac: "02:00:00:00:00:01".parse()?,
//!     sender_ip: "192.0.2.1".parse()?,
//!     target_mac: "00:00:00:00:00:00".parse()?,
//!     target_ip: "192.0.2.2".parse()?,
//! };
//! let reply = request.reply("02:00:00:00:00:02".parse()?);
//! let mut bytes = [0u8; 28];
//! reply.emit(&mut bytes)?;
//! assert_eq!(Packet::parse(&bytes)?, reply);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::net::Ipv4Addr;

use crate::bytes::{room, split_header};
use crate::{Error, EtherType, MacAddr};

/// Bytes of an ARP packet for IPv4 on Ethernet.
pub const PACKET_LEN: usize = 28;

const LAYER: &str = "ARP packet";

/// Hardware type Ethernet, protocol IPv4, lengths 6 and 4: the only kind read here.
const PREFIX: [u8; 6] = [0, 1, 0x08, 0, 6, 4];
const _: () = assert!(u16::from_be_bytes([PREFIX[2], PREFIX[3]]) == EtherType::IPV4.0);

/// Question or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Who has the target's address?
    Request,
    /// The sender has its address.
    Reply,
}

/// An ARP packet as plain data; 28 bytes are too few for a view to pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Question or answer.
    pub operation: Operation,
    /// Hardware address of who sent it.
    pub sender_mac: MacAddr,
    /// IP address of who sent it.
    pub sender_ip: Ipv4Addr,
    /// Hardware address of whom it is for; nothing in a request.
    pub target_mac: MacAddr,
    /// IP address that is asked for, or of who asked.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads what follows the Ethernet header; padding behind it is ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 28 bytes, [`Error::Unsupported`] for other hardware, protocols
    /// or operations.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (p, _): (&[u8; PACKET_LEN], _) = split_header(LAYER, bytes)?;
        if p[..6] != PREFIX {
            return Err(Error::Unsupported {
                layer: LAYER,
                field: "hardware and protocol type",
                value: u32::from_be_bytes([p[0], p[1], p[2], p[3]]),
            });
        }
        let operation = match u16::from_be_bytes([p[6], p[7]]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => {
                return Err(Error::Unsupported {
                    layer: LAYER,
                    field: "operation",
                    value: u32::from(other),
                });
            }
        };
        Ok(Self {
            operation,
            sender_mac: MacAddr([p[8], p[9], p[10], p[11], p[12], p[13]]),
            sender_ip: Ipv4Addr::new(p[14], p[15], p[16], p[17]),
            target_mac: MacAddr([p[18], p[19], p[20], p[21], p[22], p[23]]),
            target_ip: Ipv4Addr::new(p[24], p[25], p[26], p[27]),
        })
    }

    /// Writes the packet to the first 28 bytes of `buffer`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), Error> {
        let out: &mut [u8; PACKET_LEN] = room(LAYER, buffer)?;
        let operation = match self.operation {
            Operation::Request => 1u16,
            Operation::Reply => 2,
        };
        out[..6].copy_from_slice(&PREFIX);
        out[6..8].copy_from_slice(&operation.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender_ip.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..].copy_from_slice(&self.target_ip.octets());
        Ok(())
    }

    /// The answer to this request by the owner of its target address, whose hardware address is
    /// `mac`.
    #[must_use]
    pub fn reply(&self, mac: MacAddr) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }
}

#[cfg(test)]
mod tests;
