//! Everything that is counted, in one place.

use serde::Serialize;

/// Counters of one queue since it was opened: the kernel's six, and our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// What the kernel counts for the socket.
    pub kernel: KernelStats,
    /// What the library counts.
    pub own: OwnStats,
}

/// `XDP_STATISTICS`: six counters since Linux 5.9, the first three since 4.18.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L101>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KernelStats {
    /// Packets dropped for other reasons than the ones below, or, on an empty fill ring, in addition to
    /// [`rx_fill_ring_empty`](Self::rx_fill_ring_empty).
    pub rx_dropped: u64,
    /// Invalid addresses on the fill ring.
    pub rx_invalid_descs: u64,
    /// Invalid descriptors on the TX ring.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Packets for which the fill ring had no frame.
    pub rx_fill_ring_empty: u64,
    /// Times that the TX ring was found empty.
    pub tx_ring_empty: u64,
}

/// What the library counts for a queue. Packets and bytes are counted where they cross the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OwnStats {
    /// Packets taken from the RX ring.
    pub rx_packets: u64,
    /// Their bytes, Ethernet header included, checksum (FCS) not.
    pub rx_bytes: u64,
    /// Packets put on the TX ring.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that came back on the completion ring.
    pub tx_completed: u64,
    /// Packets that were to be sent and were not, because their queue failed or was closed.
    pub tx_abandoned: u64,
    /// `sendto()` calls.
    pub tx_kicks: u64,
    /// Those that answered `EAGAIN`, `EBUSY` or `ENOBUFS`.
    pub tx_kicks_partly: u64,
    /// `recvfrom()` calls, to wake the kernel's receive side or to busy-poll.
    pub rx_kicks: u64,
    /// `poll()` calls.
    pub polls: u64,
    /// Times that a `poll()` was woken by a packet.
    pub wakeups: u64,
    /// Times that the NIC had no frame left to receive into, with zero-copy. It dropped packets
    /// then, those for the host included: the application took packets too late, or kept too many
    /// frames.
    pub rx_starved: u64,
    /// Looks at an empty RX ring.
    pub empty_looks: u64,
    /// Turns of busy-polling ([`Wait::BusyPoll`](crate::Wait::BusyPoll)).
    pub busy_polls: u64,
    /// Those after which there were packets.
    pub busy_polls_fruitful: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        let (k, o) = (&mut self.kernel, &other.kernel);
        k.rx_dropped += o.rx_dropped;
        k.rx_invalid_descs += o.rx_invalid_descs;
        k.tx_invalid_descs += o.tx_invalid_descs;
        k.rx_ring_full += o.rx_ring_full;
        k.rx_fill_ring_empty += o.rx_fill_ring_empty;
        k.tx_ring_empty += o.tx_ring_empty;
        let (s, o) = (&mut self.own, &other.own);
        s.rx_packets += o.rx_packets;
        s.rx_bytes += o.rx_bytes;
        s.tx_packets += o.tx_packets;
        s.tx_bytes += o.tx_bytes;
        s.tx_completed += o.tx_completed;
        s.tx_abandoned += o.tx_abandoned;
        s.tx_kicks += o.tx_kicks;
        s.tx_kicks_partly += o.tx_kicks_partly;
        s.rx_kicks += o.rx_kicks;
        s.polls += o.polls;
        s.wakeups += o.wakeups;
        s.rx_starved += o.rx_starved;
        s.empty_looks += o.empty_looks;
        s.busy_polls += o.busy_polls;
        s.busy_polls_fruitful += o.busy_polls_fruitful;
    }
}

impl std::iter::Sum for Stats {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |mut sum, stats| {
            sum += stats;
            sum
        })
    }
}
