//! Neighbour solicitation and advertisement, RFC 4861 §4.3, §4.4: what ARP is for IPv4.

use core::net::Ipv6Addr;

use super::v6;
use crate::bytes::{room, split_header};
use crate::checksum::pseudo_v6;
use crate::{Error, MacAddr, Protocol};

const LAYER: &str = "neighbour solicitation";
const ADVERTISEMENT: &str = "neighbour advertisement";

/// Type, code, checksum, reserved or flags, target.
const FIXED_LEN: usize = 24;
/// The option that carries a link-layer address is eight bytes long on Ethernet.
const OPTION_LEN: usize = 8;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

/// Who has this address?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NeighborSolicitation {
    /// The address that is asked for; never multicast.
    pub target: Ipv6Addr,
    /// Hardware address of who asks; absent in duplicate address detection.
    pub source_mac: Option<MacAddr>,
}

impl NeighborSolicitation {
    /// Reads the upper layer of an IPv6 packet with [`crate::Protocol::ICMPV6`].
    ///
    /// RFC 4861 §7.1.1 has two more conditions, which are for the caller to check: the packet's
    /// hop limit is 255, and [`super::verify_v6`].
    ///
    /// # Errors
    /// [`Error::Truncated`] below 24 bytes or in an option, [`Error::Unsupported`] for another
    /// type, [`Error::Malformed`] for another code, a multicast target, an option of length 0.
    pub fn parse(message: &[u8]) -> Result<Self, Error> {
        let (fixed, mut options) = split_header::<FIXED_LEN>(LAYER, message)?;
        if fixed[0] != v6::NEIGHBOR_SOLICITATION {
            return Err(Error::Unsupported {
                layer: LAYER,
                field: "type",
                value: u32::from(fixed[0]),
            });
        }
        let malformed = |field, value| Error::Malformed {
            layer: LAYER,
            field,
            value,
        };
        if fixed[1] != 0 {
            return Err(malformed("code", u32::from(fixed[1])));
        }
        let mut octets = [0u8; 16];
        octets.copy_from_slice(&fixed[8..]);
        let target = Ipv6Addr::from(octets);
        if target.is_multicast() {
            let [first, second, ..] = octets;
            let prefix = u16::from_be_bytes([first, second]);
            return Err(malformed("target address", u32::from(prefix)));
        }

        let mut source_mac = None;
        while let [kind, units, ..] = *options {
            if units == 0 {
                return Err(malformed("option length", 0));
            }
            let len = usize::from(units) * 8;
            let Some((option, rest)) = options.split_at_checked(len) else {
                return Err(Error::Truncated {
                    layer: LAYER,
                    need: len,
                    have: options.len(),
                });
            };
            if let (SOURCE_LINK_LAYER, &[_, _, a, b, c, d, e, f]) = (kind, option) {
                source_mac = Some(MacAddr([a, b, c, d, e, f]));
            }
            options = rest;
        }
        Ok(Self { target, source_mac })
    }
}

/// This address is mine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NeighborAdvertisement {
    /// The address that was asked for.
    pub target: Ipv6Addr,
    /// Hardware address of its owner.
    pub target_mac: MacAddr,
    /// The sender is a router.
    pub router: bool,
    /// It answers a solicitation.
    pub solicited: bool,
    /// It replaces what is cached.
    pub override_cache: bool,
}

impl NeighborAdvertisement {
    /// Bytes of the message with its one option.
    pub const LEN: usize = FIXED_LEN + OPTION_LEN;

    /// Writes the message with its checksum between these addresses to the first 32 bytes of
    /// `buffer`. The packet that carries it needs a hop limit of 255.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<(), Error> {
        let out: &mut [u8; Self::LEN] = room(ADVERTISEMENT, buffer)?;
        let flags = u8::from(self.router) << 7 | u8::from(self.solicited) << 6 | u8::from(self.override_cache) << 5;
        out[..8].copy_from_slice(&[v6::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
        out[8..24].copy_from_slice(&self.target.octets());
        out[24..26].copy_from_slice(&[TARGET_LINK_LAYER, 1]);
        out[26..].copy_from_slice(&self.target_mac.0);
        let checksum = pseudo_v6(src, dst, Protocol::ICMPV6, 32).bytes(out).finish();
        out[2..4].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

const _: () = assert!(NeighborAdvertisement::LEN == 32);
