//! The Internet checksum: RFC 1071 sums, pseudo headers, RFC 1624 updates.
//!
//! ```
//! use ringside_wire::checksum::{update, Sum};
//!
//! let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]; // the example of RFC 1071 §3
//! let sum = Sum::of(&words);
//! assert_eq!(sum.fold(), 0xddf2);
//! // One word changed: the checksum follows without reading the rest again.
//! assert_eq!(update(sum.finish(), 0xf203, 0xf204), !0xddf3);
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Protocol;

/// A running one's complement sum of big-endian 16-bit words.
///
/// Slices are added as if each began on a word boundary, so every slice but the last has to be of
/// even length; an odd last one is padded with a zero byte, as RFC 1071 asks.
///
/// One's complement addition does not care about byte order (RFC 1071 §2B): it is added in the
/// machine's own order, and only the 16-bit result is turned around.
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// The sum over `bytes`.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self::ZERO.bytes(bytes)
    }

    /// This sum and that over `bytes`.
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(self.0 + native_sum(bytes))
    }

    /// This sum and one word.
    #[inline]
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// This sum and another one.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The sum in 16 bits, carries added back. Data with its right checksum sums to 0xffff.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        u16::from_be(fold(self.0))
    }

    /// The checksum to be written: the complement of the sum.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }
}

/// The pseudo header of IPv4 (RFC 768): addresses, protocol, length of header and data in bytes.
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, len: u16) -> Sum {
    Sum::of(&src.octets())
        .bytes(&dst.octets())
        .word(u16::from(protocol.0))
        .word(len)
}

/// The pseudo header of IPv6 (RFC 8200 §8.1): addresses, length in bytes, upper-layer protocol.
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol, len: u32) -> Sum {
    Sum::of(&src.octets())
        .bytes(&dst.octets())
        .bytes(&len.to_be_bytes())
        .word(u16::from(protocol.0))
}

/// The pseudo header of either family. None between two families, and for more than IP can carry.
pub(crate) fn pseudo(src: IpAddr, dst: IpAddr, protocol: Protocol, len: usize) -> Option<Sum> {
    let len = u16::try_from(len).ok()?;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(pseudo_v4(src, dst, protocol, len)),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(pseudo_v6(src, dst, protocol, u32::from(len))),
        _ => None,
    }
}

/// The checksum after one word of the data changed from `old` to `new` (RFC 1624, equation 3).
///
/// Equal to a full recomputation unless everything that is covered becomes zero: then it gives 0
/// where 0xffff is right. IP, UDP and ICMPv6 never are all zero, since their (pseudo) headers hold
/// a version or protocol number; ICMP over IPv4 can be, and its reply looks after that itself.
/// UDP has a rule of its own for zero: use [`crate::udp::update_checksum`] there.
#[must_use]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::ZERO.word(!checksum).word(!old).word(new).finish()
}

/// Carries added back until 16 bits are left. Zero only for a sum of zero.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff); // at most 33 bits
    let sum = (sum >> 32) + (sum & 0xffff_ffff); // at most 32 bits
    let sum = (sum >> 16) + (sum & 0xffff); // at most 17 bits
    let sum = (sum >> 16) + (sum & 0xffff); // at most 16 bits
    (sum & 0xffff) as u16
}

/// Sum of the 32-bit words in the machine's byte order, an incomplete last one padded with zeros.
#[inline]
fn native_sum(bytes: &[u8]) -> u64 {
    // 32-bit halves in two 64-bit accumulators: no carry to look after within 32 GiB, no
    // dependency between the two, and a shape that compilers turn into vector instructions.
    let (chunks, rest) = bytes.as_chunks::<8>();
    let (mut low, mut high) = (0u64, 0u64);
    for chunk in chunks {
        let wide = u64::from_ne_bytes(*chunk);
        low += wide & 0xffff_ffff;
        high += wide >> 32;
    }
    let mut tail = [0u8; 8];
    for (to, from) in tail.iter_mut().zip(rest) {
        *to = *from;
    }
    let tail = u64::from_ne_bytes(tail);
    low + high + (tail & 0xffff_ffff) + (tail >> 32)
}

#[cfg(test)]
mod tests;
