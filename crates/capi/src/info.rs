//! What a queue got, and what it has counted.

use std::ffi::c_int;

use ringside_xsk::Path;

use crate::boundary::{call, copy_struct};
use crate::options::rsd_mode;
use crate::queue::{enter, rsd_queue};

/// What a queue got.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct rsd_queue_info {
    /// The queue's number on its interface.
    pub queue: u32,
    /// The mode that was obtained: enum rsd_mode.
    pub mode: u32,
    /// Bytes that fit at `data` of a packet that was reserved.
    pub room: u32,
    /// Bytes of the longest packet that can be sent: `room`, or with RSD_MULTI_BUFFER more.
    pub packet_room: u32,
    /// Frames.
    pub frames: u32,
    /// Bytes of a frame.
    pub frame_size: u32,
    /// Bytes in front of a packet beyond the kernel's 256.
    pub headroom: u32,
    /// Slots of the RX ring; 0: there is none.
    pub rx_ring: u32,
    /// Slots of the TX ring; 0: there is none.
    pub tx_ring: u32,
    /// Slots of the fill ring.
    pub fill_ring: u32,
    /// Slots of the completion ring.
    pub completion_ring: u32,
    /// 1 when the kernel tells when it must be woken.
    pub need_wakeup: u32,
}

/// What was counted since the queue was opened.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct rsd_stats {
    /// Packets that were received.
    pub rx_packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Packets that were put on the TX ring. Without a carrier the kernel takes and drops them: they
    /// count here, in tx_completed and, outside zero-copy, in tx_kicks_partly, and for the
    /// interface as TX dropped.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that the kernel gave back: it is done with them, which does not say that they left.
    pub tx_completed: u64,
    /// Packets that were to be sent and were not.
    pub tx_abandoned: u64,
    /// sendto() calls.
    pub tx_kicks: u64,
    /// recvfrom() calls.
    pub rx_kicks: u64,
    /// poll() calls.
    pub polls: u64,
    /// Looks at an empty RX ring.
    pub empty_looks: u64,
    /// The kernel dropped the packet, for another reason than the next ones.
    pub rx_dropped: u64,
    /// The kernel dropped the packet because the RX ring was full.
    pub rx_ring_full: u64,
    /// The kernel found no frame for a packet.
    pub rx_fill_ring_empty: u64,
    /// Invalid addresses on the fill ring.
    pub rx_invalid_descs: u64,
    /// Invalid descriptors on the TX ring.
    pub tx_invalid_descs: u64,
    /// Times that the kernel found the TX ring empty.
    pub tx_ring_empty: u64,
    /// Times that the NIC had no frame left to receive into, with zero-copy: it dropped packets
    /// then, those for the host included.
    pub rx_starved: u64,
    /// Packets that were to be sent and were not, because they were longer than the interface's
    /// MTU.
    pub tx_too_long: u64,
    /// Times that steady load left frames waiting for fewer packets (working_set).
    pub rx_shrunk: u64,
    /// Those of tx_kicks that the kernel answered with EAGAIN, EBUSY or ENOBUFS: it took only some
    /// packets for now, or without a carrier dropped one.
    pub tx_kicks_partly: u64,
    /// Times that a poll() was woken by a packet.
    pub wakeups: u64,
    /// Turns of busy-polling.
    pub busy_polls: u64,
    /// Those after which there were packets.
    pub busy_polls_fruitful: u64,
}

/// Tells what a queue got. `size` is sizeof(struct rsd_queue_info).
///
/// # Safety
/// `info` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_queue_query(queue: *mut rsd_queue, info: *mut rsd_queue_info, size: usize) -> c_int {
    call(|| {
        let entry = enter(queue)?;
        let queue = entry.peek();
        let report = queue.report();
        let mode = match report.path {
            Path::ZeroCopy => rsd_mode::RSD_MODE_ZERO_COPY,
            Path::NativeCopy => rsd_mode::RSD_MODE_NATIVE,
            Path::Generic => rsd_mode::RSD_MODE_GENERIC,
            Path::Copy => rsd_mode::RSD_MODE_COPY,
        };
        let told = rsd_queue_info {
            queue: report.queue,
            mode: mode as u32,
            room: report.frame_size - ringside_xsk::XDP_HEADROOM - report.headroom,
            packet_room: u32::try_from(queue.packet_room()).unwrap_or(u32::MAX),
            frames: report.frames,
            frame_size: report.frame_size,
            headroom: report.headroom,
            rx_ring: report.rx_ring,
            tx_ring: report.tx_ring,
            fill_ring: report.fill_ring,
            completion_ring: report.completion_ring,
            need_wakeup: report.need_wakeup.into(),
        };
        // SAFETY: the caller's promise; twelve numbers of one size have no padding.
        unsafe { copy_struct(&told, info, size) }?;
        Ok(0)
    })
}

/// Writes the counters of a queue to `stats`. `size` is sizeof(struct rsd_stats). One system call.
///
/// RSD_EBUSY: another thread is in a call with the queue. Let the thread that uses the queue read
/// them.
///
/// # Safety
/// `stats` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_queue_stats(queue: *mut rsd_queue, stats: *mut rsd_stats, size: usize) -> c_int {
    call(|| {
        let counted = enter(queue)?.peek().stats()?;
        let (own, kernel) = (counted.own, counted.kernel);
        let told = rsd_stats {
            rx_packets: own.rx_packets,
            rx_bytes: own.rx_bytes,
            tx_packets: own.tx_packets,
            tx_bytes: own.tx_bytes,
            tx_completed: own.tx_completed,
            tx_abandoned: own.tx_abandoned,
            tx_kicks: own.tx_kicks,
            rx_kicks: own.rx_kicks,
            polls: own.polls,
            empty_looks: own.empty_looks,
            rx_dropped: kernel.rx_dropped,
            rx_ring_full: kernel.rx_ring_full,
            rx_fill_ring_empty: kernel.rx_fill_ring_empty,
            rx_invalid_descs: kernel.rx_invalid_descs,
            tx_invalid_descs: kernel.tx_invalid_descs,
            tx_ring_empty: kernel.tx_ring_empty,
            rx_starved: own.rx_starved,
            tx_too_long: own.tx_too_long,
            rx_shrunk: own.rx_shrunk,
            tx_kicks_partly: own.tx_kicks_partly,
            wakeups: own.wakeups,
            busy_polls: own.busy_polls,
            busy_polls_fruitful: own.busy_polls_fruitful,
        };
        // SAFETY: the caller's promise; numbers of one size have no padding.
        unsafe { copy_struct(&told, stats, size) }?;
        Ok(0)
    })
}
