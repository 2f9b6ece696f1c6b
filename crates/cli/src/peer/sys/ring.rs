//! The receive rings of packet sockets, mapped: blocks of packets (TPACKET_V3) and single frames (TPACKET_V2).
//!
//! ```text
//!  TPACKET_V3   | block: status, number, offset of the first | header packet | header packet | … |  × blocks
//!  TPACKET_V2   | frame: status, length, offset of the packet | packet      |                       × frames
//! ```
//!
//! Each block or frame belongs to the kernel or to us, as its status says. Layouts:
//! <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_packet.h#L118>, protocol:
//! <https://docs.kernel.org/networking/packet_mmap.html>

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{TP_STATUS_KERNEL, TP_STATUS_USER, c_int, tpacket_versions};

use super::set_option;

/// Shared memory of a ring, cut into pieces of one size.
struct Pieces {
    base: NonNull<u8>,
    piece: usize,
    pieces: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, and is reached through `&mut` only.
unsafe impl Send for Pieces {}

impl Pieces {
    fn map(socket: BorrowedFd<'_>, piece: usize, pieces: usize) -> io::Result<Self> {
        let bytes = piece * pieces;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced. The kernel keeps the
        // ring's pages until it is unmapped, also when the socket is closed before.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap() answered address 0"))?;
        Ok(Self {
            base,
            piece,
            pieces,
            next: 0,
        })
    }

    /// The next piece, and the status word at `status_at` in it.
    fn current(&mut self, status_at: usize) -> (NonNull<u8>, &AtomicU32) {
        // SAFETY: `next` is below `pieces`, so the piece lies in the mapping. The status word is aligned, since pieces
        // are whole pages or powers of two above 64 bytes, and is only reached as an atomic while it is shared.
        unsafe {
            let piece = self.base.add(self.next * self.piece);
            (piece, AtomicU32::from_ptr(piece.add(status_at).cast().as_ptr()))
        }
    }

    /// Gives the current piece to the kernel and goes on to the next one.
    fn release(&mut self, status_at: usize) {
        // Release: what we did in the piece happens before the kernel writes to it again.
        self.current(status_at).1.store(TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.pieces;
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of that length; whatever was borrowed from it was borrowed from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.piece * self.pieces) };
    }
}

/// A ring of blocks, which the kernel hands over when they are full or a time is over.
pub(in crate::peer) struct BlockRing(Pieces);

/// Where in a block its status and its number of packets are, and the offset of the first.
const BLOCK_STATUS: usize = 8;
const BLOCK_PACKETS: usize = 12;
const BLOCK_FIRST: usize = 16;

impl BlockRing {
    /// Makes the ring and maps it. `retire_ms`: time after which a block is handed over with what is in it.
    pub(in crate::peer) fn new(
        socket: BorrowedFd<'_>,
        block_bytes: u32,
        blocks: u32,
        retire_ms: u32,
    ) -> io::Result<Self> {
        const FRAME: u32 = 2048;
        version(socket, tpacket_versions::TPACKET_V3)?;
        let ring = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            // Packets lie one behind the other in a block; this is only checked to fit.
            tp_frame_size: FRAME,
            tp_frame_nr: block_bytes / FRAME * blocks,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, ring)?;
        Pieces::map(socket, block_bytes as usize, blocks as usize).map(Self)
    }

    /// The next block that the kernel has handed over. Dropping it gives it back.
    pub(in crate::peer) fn next(&mut self) -> Option<Block<'_>> {
        // Acquire: the packets were written before the status.
        let ours = self.0.current(BLOCK_STATUS).1.load(Ordering::Acquire) & TP_STATUS_USER != 0;
        // Made only if it is ours: dropping one gives its memory to the kernel.
        ours.then(|| Block(&mut self.0))
    }
}

/// A block of packets, ours until dropped.
pub(in crate::peer) struct Block<'r>(&'r mut Pieces);

impl Block<'_> {
    /// The packets in it, whole frames in the order of their arrival, to read and to change in place.
    pub(in crate::peer) fn packets_mut(&mut self) -> Packets<'_> {
        let (block, _) = self.0.current(BLOCK_STATUS);
        // SAFETY: both lie in the block's descriptor, aligned to four bytes; the block is ours.
        let (left, at) = unsafe {
            (
                block.add(BLOCK_PACKETS).cast::<u32>().read(),
                block.add(BLOCK_FIRST).cast::<u32>().read(),
            )
        };
        Packets {
            block,
            bytes: self.0.piece,
            left,
            at: at as usize,
            end: 0,
            _block: PhantomData,
        }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.0.release(BLOCK_STATUS);
    }
}

/// Iterator over the packets of a block.
pub(in crate::peer) struct Packets<'b> {
    block: NonNull<u8>,
    bytes: usize,
    left: u32,
    at: usize,
    /// End of the last packet handed out: no later one may begin before it.
    end: usize,
    _block: PhantomData<&'b mut [u8]>,
}

impl<'b> Iterator for Packets<'b> {
    type Item = &'b mut [u8];

    fn next(&mut self) -> Option<&'b mut [u8]> {
        if self.left == 0 || self.at < self.end || self.at.checked_add(size_of::<libc::tpacket3_hdr>())? > self.bytes {
            return None;
        }
        // SAFETY: the header lies within the block, which is ours, behind everything handed out before. It is read
        // unaligned, for its offset was only checked against the end of the block.
        let header = unsafe { self.block.add(self.at).cast::<libc::tpacket3_hdr>().read_unaligned() };
        let start = self.at + usize::from(header.tp_mac);
        let length = header.tp_snaplen as usize;
        let end = start.checked_add(length)?;
        if usize::from(header.tp_mac) < size_of::<libc::tpacket3_hdr>() || end > self.bytes {
            return None;
        }
        self.left -= 1;
        self.end = end;
        self.at += header.tp_next_offset as usize;
        // SAFETY: start..end lies within the block, which is borrowed for 'b, and behind all packets handed out before,
        // so that no two slices overlap.
        Some(unsafe { std::slice::from_raw_parts_mut(self.block.add(start).as_ptr(), length) })
    }
}

/// What the kernel tells of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// When it took it, in nanoseconds of CLOCK_REALTIME.
    pub at_ns: u64,
    /// The VLAN tag that it has taken out of the frame.
    pub tag: Option<u16>,
}

/// A ring of frames, each of which is handed over at once.
pub(in crate::peer) struct FrameRing(Pieces);

impl FrameRing {
    /// Makes the ring and maps it.
    pub(in crate::peer) fn new(socket: BorrowedFd<'_>, frame_bytes: u32, frames: u32) -> io::Result<Self> {
        const PAGE: u32 = 4096;
        version(socket, tpacket_versions::TPACKET_V2)?;
        let ring = libc::tpacket_req {
            tp_block_size: frame_bytes.max(PAGE),
            tp_block_nr: frames / (frame_bytes.max(PAGE) / frame_bytes),
            tp_frame_size: frame_bytes,
            tp_frame_nr: frames,
        };
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, ring)?;
        Pieces::map(socket, frame_bytes as usize, frames as usize).map(Self)
    }

    /// The next packet, if there is one, handed to `look`, and then given back.
    pub(in crate::peer) fn next<T>(&mut self, look: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        self.next_told(|packet, _| look(packet))
    }

    /// As [`next`](Self::next), with what the kernel tells beside the packet.
    pub(in crate::peer) fn next_told<T>(&mut self, look: impl FnOnce(&mut [u8], Told) -> T) -> Option<T> {
        let (frame, status) = self.0.current(0);
        // Acquire: the packet was written before the status.
        if status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the header is at the start of the frame, which is ours and larger; its alignment is the frame's.
        let header = unsafe { frame.cast::<libc::tpacket2_hdr>().read() };
        let (start, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let fits = start >= size_of::<libc::tpacket2_hdr>() && start + length <= self.0.piece;
        let told = Told {
            at_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            tag: (header.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then_some(header.tp_vlan_tci),
        };
        let seen = fits.then(|| {
            // SAFETY: start..start + length lies within the frame, behind its header; it is ours until released below.
            let packet = unsafe { std::slice::from_raw_parts_mut(frame.add(start).as_ptr(), length) };
            look(packet, told)
        });
        self.0.release(0);
        seen
    }
}

fn version(socket: BorrowedFd<'_>, version: tpacket_versions) -> io::Result<()> {
    let version = match version {
        tpacket_versions::TPACKET_V1 => 0,
        tpacket_versions::TPACKET_V2 => 1,
        tpacket_versions::TPACKET_V3 => 2,
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, version as c_int)
}
