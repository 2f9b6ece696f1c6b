//! The four rings of an XDP socket, on the kernel's ABI.
//!
//! Two are filled by us ([`ProducerRing`]: fill and TX) and two are emptied by us
//! ([`ConsumerRing`]: RX and completion). Work on a ring goes through a guard that holds the count:
//! what was pushed is published, what was taken is released, and no caller passes a number.

mod cursor;
mod guards;
#[cfg(feature = "testing")]
mod heap;
mod map;
mod memory;

#[cfg(test)]
mod model_tests;

#[cfg(feature = "testing")]
pub(crate) use cursor::Indices;
pub(crate) use guards::{ConsumerRing, Filled, ProducerRing, Reservation};
#[cfg(feature = "testing")]
pub(crate) use heap::HeapRing;
pub(crate) use map::{ProducerIndex, RingMap};
pub(crate) use memory::Slot;

/// `struct xdp_desc`: one packet on the RX or TX ring.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L176>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Desc {
    /// Offset of the packet's first byte in the UMEM.
    pub(crate) addr: u64,
    /// Length of the packet in bytes.
    pub(crate) len: u32,
    /// `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub(crate) options: u32,
}

impl Desc {
    /// `XDP_PKT_CONTD`: the packet goes on in the next descriptor. Linux 6.6.
    /// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L172>
    pub(crate) const CONTINUED: u32 = 1;

    /// `XDP_TX_METADATA`: there is a `struct xsk_tx_metadata` in front of the packet. Linux 6.8.
    /// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L179>
    pub(crate) const WITH_METADATA: u32 = 1 << 1;

    #[cfg(feature = "testing")]
    pub(crate) fn is_continued(self) -> bool {
        self.options & Self::CONTINUED != 0
    }
}

const _: () = assert!(size_of::<Desc>() == 16 && align_of::<Desc>() == 8);

/// A descriptor as the two words that it is read in: of the second one loops need no more than they have to take apart.
#[derive(Clone, Copy, Default)]
pub(crate) struct RawDesc {
    pub(crate) addr: u64,
    pub(crate) rest: DescRest,
}

/// Length and options of a descriptor.
#[derive(Clone, Copy, Default)]
pub(crate) struct DescRest(u64);

#[allow(clippy::cast_possible_truncation, reason = "a word's halves")]
impl DescRest {
    #[inline]
    pub(crate) fn len(self) -> u32 {
        let shift = if cfg!(target_endian = "little") { 0 } else { 32 };
        (self.0 >> shift) as u32
    }

    #[inline]
    pub(crate) fn options(self) -> u32 {
        let shift = if cfg!(target_endian = "little") { 32 } else { 0 };
        (self.0 >> shift) as u32
    }
}

impl std::ops::BitOrAssign for DescRest {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
impl From<Desc> for RawDesc {
    fn from(desc: Desc) -> Self {
        let (len, options) = (u64::from(desc.len), u64::from(desc.options));
        Self {
            addr: desc.addr,
            rest: DescRest(if cfg!(target_endian = "little") {
                options << 32 | len
            } else {
                len << 32 | options
            }),
        }
    }
}

/// What the fill and completion rings carry: the offset of a chunk in the UMEM.
pub(crate) type Addr = u64;

// SAFETY: plain integers without padding or invalid values.
unsafe impl Slot for Desc {}

pub(crate) type FillRing = ProducerRing<Addr, RingMap>;
pub(crate) type TxRing = ProducerRing<Desc, RingMap>;
pub(crate) type RxRing = ConsumerRing<Desc, RingMap>;
pub(crate) type CompletionRing = ConsumerRing<Addr, RingMap>;
