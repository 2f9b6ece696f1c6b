//! VLAN tags: from the Ethernet header to the network layer, whatever tags stand between.
//!
//! ```
//! use ringside_wire::{vlan, EtherType};
//!
//! let mut frame = [0u8; 64];
//! frame[12..18].copy_from_slice(&[0x81, 0x00, 0xa0, 0x2a, 0x08, 0x00]); // priority 5, VLAN 42
//! let network = vlan::Network::parse(&frame)?;
//! assert_eq!(network.ethertype, EtherType::IPV4);
//! assert_eq!(network.offset, 18);
//! assert_eq!((network.outer.unwrap().priority(), network.outer.unwrap().id()), (5, 42));
//! # Ok::<(), ringside_wire::Error>(())
//! ```

use crate::ethernet::{Frame, HEADER_LEN};
use crate::{Error, EtherType};

/// Bytes that one tag adds to a frame.
pub const TAG_LEN: usize = 4;

const LAYER: &str = "VLAN tag";

/// The control information of an 802.1Q or 802.1ad tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "TCI")]
pub struct Tag(pub u16);

impl Tag {
    /// Priority code point, 0 (best effort) to 7.
    #[must_use]
    #[doc(alias = "PCP")]
    pub fn priority(self) -> u8 {
        self.0.to_be_bytes()[0] >> 5
    }

    /// Drop eligible: may go first in congestion.
    #[must_use]
    #[doc(alias = "DEI")]
    pub const fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// VLAN identifier; 0 means that the tag carries only a priority.
    #[must_use]
    #[doc(alias = "VID")]
    pub const fn id(self) -> u16 {
        self.0 & 0x0fff
    }
}

/// Where the network layer begins in a frame, and the tags before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Type of the network layer, behind all tags.
    pub ethertype: EtherType,
    /// Its first byte, from the start of the frame.
    pub offset: usize,
    /// The first tag, if there is one in the frame (a NIC may have taken it out).
    pub outer: Option<Tag>,
    /// The second tag, if there are two.
    pub inner: Option<Tag>,
}

impl Network {
    /// Looks behind up to two tags. Two is what 802.1ad allows; a third is left as the ethertype.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the frame ends in the Ethernet header or in a tag.
    pub fn parse(frame: &[u8]) -> Result<Self, Error> {
        let mut network = Self {
            ethertype: Frame::parse(frame)?.ethertype(),
            offset: HEADER_LEN,
            outer: None,
            inner: None,
        };
        if let Some(tag) = network.next_tag(frame)? {
            network.outer = Some(tag);
            network.inner = network.next_tag(frame)?;
        }
        Ok(network)
    }

    /// Steps over one tag: its control information, then the type of what follows.
    fn next_tag(&mut self, frame: &[u8]) -> Result<Option<Tag>, Error> {
        if !matches!(self.ethertype, EtherType::VLAN | EtherType::SERVICE_VLAN) {
            return Ok(None);
        }
        let Some(&[a, b, c, d]) = frame.get(self.offset..).and_then(<[u8]>::first_chunk::<TAG_LEN>) else {
            return Err(Error::Truncated {
                layer: LAYER,
                need: self.offset + TAG_LEN,
                have: frame.len(),
            });
        };
        self.ethertype = EtherType(u16::from_be_bytes([c, d]));
        self.offset += TAG_LEN;
        Ok(Some(Tag(u16::from_be_bytes([a, b]))))
    }
}

#[cfg(test)]
mod tests;
