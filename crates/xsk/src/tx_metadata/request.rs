//! What is asked for about one packet.

use ringside_nic::clock::{Clock, PhcClock, Tai, Timestamp};

use super::{CHECKSUM, LAUNCH_TIME, TIMESTAMP};

/// What is asked for about one packet. Nothing at first.
///
/// A clock that no launch time is of does not compile:
///
/// ```compile_fail,E0277
/// use ringside_nic::clock::{Monotonic, Timestamp};
/// use ringside_xsk::tx_metadata::TxMeta;
///
/// let _ = TxMeta::new().launch_time(Timestamp::<Monotonic>::now());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "it has to be handed over with the packet"]
#[doc(alias = "xsk_tx_metadata")]
pub struct TxMeta {
    pub(crate) flags: u8,
    pub(crate) start: u16,
    pub(crate) offset: u16,
    pub(crate) launch: u64,
    pub(crate) token: u64,
}

impl TxMeta {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            flags: 0,
            start: 0,
            offset: 0,
            launch: 0,
            token: 0,
        }
    }

    /// Fills in a checksum of TCP, UDP or the like: the sum over all from byte `start` of the packet to its end is put at
    /// byte `start + offset`, where the sum of the pseudo-header has to be already, not complemented. Both are counted as the
    /// packet starts now, and the two bytes lie in its first frame. Linux 6.8.
    #[doc(alias = "XDP_TXMD_FLAGS_CHECKSUM")]
    pub const fn checksum(mut self, start: u16, offset: u16) -> Self {
        self.flags |= CHECKSUM;
        self.start = start;
        self.offset = offset;
        self
    }

    /// Asks for the time at which the packet left, which [`Queue::tx_stamps`](crate::Queue::tx_stamps) tells with this
    /// token: a number, an index, whatever the sender knows the packet by. Linux 6.8.
    ///
    /// Each packet may ask; which of them gets a stamp is up to the queue's [`StampSampling`](super::StampSampling).
    #[doc(alias = "XDP_TXMD_FLAGS_TIMESTAMP")]
    pub const fn timestamp(mut self, token: u64) -> Self {
        self.flags |= TIMESTAMP;
        self.token = token;
        self
    }

    /// Asks for the packet not to be sent before this time. Linux 6.15.
    ///
    /// A NIC compares it with its own clock, whose times [`Phc::now`](ringside_nic::clock::Phc::now) tells; a time of CLOCK_TAI
    /// is right where that clock is kept by it (ptp4l, phc2sys). A packet that waits holds up those behind it on its queue,
    /// and AF_XDP passes queueing disciplines by: who keeps to the time is a NIC, or nobody
    /// ([`LaunchBy`](super::LaunchBy)).
    #[doc(alias = "XDP_TXMD_FLAGS_LAUNCH_TIME")]
    pub fn launch_time<C: LaunchClock>(mut self, at: Timestamp<C>) -> Self {
        self.flags |= LAUNCH_TIME;
        self.launch = at.as_nanos();
        self
    }

    /// Nothing is asked for.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.flags == 0
    }

    /// The kernel's bytes, with these flags of the request.
    pub(crate) fn bytes(self, flags: u8) -> [u8; super::METADATA_LEN as usize] {
        let mut bytes = [0; super::METADATA_LEN as usize];
        bytes[..8].copy_from_slice(&u64::from(flags).to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.second_word().to_ne_bytes());
        bytes[16..].copy_from_slice(&self.launch.to_ne_bytes());
        bytes
    }

    /// The word that the kernel overwrites with the stamp.
    pub(crate) fn second_word(self) -> u64 {
        let mut bytes = [0; 8];
        if self.flags & CHECKSUM != 0 {
            bytes[..2].copy_from_slice(&self.start.to_ne_bytes());
            bytes[2..4].copy_from_slice(&self.offset.to_ne_bytes());
        }
        u64::from_ne_bytes(bytes)
    }
}

/// A clock that launch times are of: a NIC's, and CLOCK_TAI by which it is set.
pub trait LaunchClock: Clock + sealed::Sealed {}

impl LaunchClock for Tai {}
impl LaunchClock for PhcClock<'_> {}

/// What a closure that writes packets returns: nothing, or what the packet asks for.
pub(crate) trait Ask {
    /// Whether it can ask for anything: without, it costs nothing to look.
    const CAN: bool;

    fn meta(self) -> TxMeta;
}

impl Ask for () {
    const CAN: bool = false;

    #[inline]
    fn meta(self) -> TxMeta {
        TxMeta::new()
    }
}

impl Ask for TxMeta {
    const CAN: bool = true;

    #[inline]
    fn meta(self) -> TxMeta {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Tai {}
    impl Sealed for super::PhcClock<'_> {}
}
