//! Everything that is counted, in one place.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// Declares the library's own counters: a snapshot, its addition, and the live form that one thread
/// adds to while others read it.
macro_rules! own_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the library counts for a queue. Packets and bytes are counted where they cross the
        /// rings.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct OwnStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for OwnStats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        /// [`OwnStats`] as they grow. Apart from what other threads write to.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct OwnCounters {
            $(pub(crate) $name: Counter,)*
            /// The NIC had no frame to receive into at the last look (zero-copy).
            is_starved: AtomicBool,
        }

        impl OwnCounters {
            pub(crate) fn snapshot(&self) -> OwnStats {
                OwnStats {
                    $($name: self.$name.get(),)*
                }
            }
        }
    };
}

own_counters! {
    /// Packets taken from the RX ring.
    rx_packets,
    /// Their bytes, Ethernet header included, checksum (FCS) not.
    rx_bytes,
    /// Packets put on the TX ring. Without a carrier the kernel takes and drops them: they count
    /// here, in [`tx_completed`](Self::tx_completed) and, outside zero-copy, in
    /// [`tx_kicks_partly`](Self::tx_kicks_partly), and for the interface as TX dropped.
    tx_packets,
    /// Their bytes.
    tx_bytes,
    /// Frames that came back on the completion ring: the kernel is done with them, which does not
    /// say that they left.
    tx_completed,
    /// Packets that were to be sent and were not, because their queue failed or was closed, or
    /// because the link was down and other packets waited on the TX ring.
    tx_abandoned,
    /// Packets that were to be sent and were not, because they were longer than the interface's
    /// MTU.
    tx_too_long,
    /// `sendto()` calls.
    tx_kicks,
    /// Those that answered `EAGAIN`, `EBUSY` or `ENOBUFS`: the kernel took only some packets for
    /// now, or without a carrier dropped one.
    tx_kicks_partly,
    /// `recvfrom()` calls, to wake the kernel's receive side or to busy-poll.
    rx_kicks,
    /// `poll()` calls.
    polls,
    /// Times that a `poll()` was woken by a packet.
    wakeups,
    /// Times that the NIC had no frame left to receive into, with zero-copy. It dropped packets
    /// then, those for the host included: the application took packets too late, or kept too many
    /// frames. While it is inside no call, [`StatsReader`](crate::StatsReader) and
    /// [`Queue::stats`](crate::Queue::stats) look and count as well.
    rx_starved,
    /// Times that steady load made the working set small, see
    /// [`QueueOptions::working_set`](crate::QueueOptions::working_set).
    rx_shrunk,
    /// Looks at an empty RX ring.
    empty_looks,
    /// Turns of busy-polling ([`Wait::BusyPoll`](crate::Wait::BusyPoll)).
    busy_polls,
    /// Those after which there were packets.
    busy_polls_fruitful,
}

impl OwnCounters {
    /// Notes whether the NIC has no frame to receive into, and counts the times that this began.
    /// Any thread may.
    #[inline]
    pub(crate) fn note_starved(&self, starved: bool) {
        if self.is_starved.load(Ordering::Relaxed) == starved {
            return;
        }
        if !self.is_starved.swap(starved, Ordering::Relaxed) && starved {
            self.rx_starved.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A counter that one thread adds to, without a locked instruction, and any may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only the thread that owns the queue does.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        let (k, o) = (&mut self.kernel, &other.kernel);
        k.rx_dropped += o.rx_dropped;
        k.rx_invalid_descs += o.rx_invalid_descs;
        k.tx_invalid_descs += o.tx_invalid_descs;
        k.rx_ring_full += o.rx_ring_full;
        k.rx_fill_ring_empty += o.rx_fill_ring_empty;
        k.tx_ring_empty += o.tx_ring_empty;
        self.own += other.own;
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
