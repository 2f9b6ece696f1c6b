//! What packets ask the driver for, between the user's word and the TX ring, and what the kernel has written when they are
//! back.
//!
//! The request is kept beside the frames until the packet is put on the TX ring, and only then written in front of it: so
//! hints stay what they are until nobody can read them any more.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Buf, FrameIndex, Umem};
use crate::tx_metadata::{AskError, CHECKSUM, METADATA_LEN, STAMP_AT, TIMESTAMP, TxMeta};

/// The requests of all frames.
///
/// As with the book, no entry is ever contended: it is changed by who holds the frame, and read by who holds the pair that
/// the frame was sent on. Hence relaxed loads and stores.
pub(super) struct AskedFrames(Box<[Asked]>);

#[derive(Default)]
struct Asked {
    token: AtomicU64,
    launch: AtomicU64,
    /// Flags, the checksum's start and offset, and where the packet starts in its frame: 16 bits each, from the lowest on.
    rest: AtomicU64,
}

impl AskedFrames {
    pub(super) fn new(frames: u32) -> Self {
        Self((0..frames).map(|_| Asked::default()).collect())
    }

    fn put(&self, frame: FrameIndex, meta: &TxMeta, offset: u32) {
        let asked = &self.0[frame.0 as usize];
        let halves = [
            u64::from(meta.flags),
            meta.start.into(),
            meta.offset.into(),
            offset.into(),
        ];
        let rest = (0..4).fold(0, |rest, n| rest | halves[n] << (16 * n));
        asked.token.store(meta.token, Ordering::Relaxed);
        asked.launch.store(meta.launch, Ordering::Relaxed);
        asked.rest.store(rest, Ordering::Relaxed);
    }

    #[allow(clippy::cast_possible_truncation, reason = "a word's parts")]
    fn get(&self, frame: FrameIndex) -> (TxMeta, u32) {
        let asked = &self.0[frame.0 as usize];
        let rest = asked.rest.load(Ordering::Relaxed);
        let meta = TxMeta {
            flags: rest as u8,
            start: (rest >> 16) as u16,
            offset: (rest >> 32) as u16,
            launch: asked.launch.load(Ordering::Relaxed),
            token: asked.token.load(Ordering::Relaxed),
        };
        (meta, (rest >> 48) as u32)
    }
}

impl Umem {
    /// Notes what a packet asks for, if that can be: `several` says that it is in several frames, of which this is the first.
    pub(crate) fn ask(&self, head: &Buf, meta: &TxMeta, several: bool) -> Result<(), AskError> {
        let features = self.geometry.tx_features();
        not_opened(meta.flags, features.0)?;
        let Some(asked) = &self.asked else {
            // Features without a table there are not, nor requests without features.
            return Ok(());
        };
        if meta.flags & CHECKSUM != 0 {
            if u32::from(meta.start) + u32::from(meta.offset) + 2 > head.len {
                return Err(AskError::Checksum {
                    start: meta.start,
                    offset: meta.offset,
                    len: head.len,
                });
            }
            if several && features.software_checksum() {
                return Err(AskError::ChecksumOfParts);
            }
        }
        let room = head.offset(&self.geometry);
        if room < METADATA_LEN {
            return Err(AskError::NoRoom { room });
        }
        asked.put(head.frame(&self.geometry), meta, room);
        Ok(())
    }

    /// What the packet in this frame asks for.
    pub(super) fn asked(&self, frame: FrameIndex) -> TxMeta {
        self.asked.as_ref().map_or(TxMeta::new(), |asked| asked.get(frame).0)
    }

    /// Writes a request in front of its packet, with these of its flags. The caller owns the frame.
    pub(super) fn write_request(&self, frame: FrameIndex, flags: u8) {
        let Some((meta, at)) = self.metadata_of(frame) else {
            return;
        };
        let bytes = meta.bytes(flags);
        // SAFETY: `metadata_of` leads to `METADATA_LEN` bytes of the frame, which is the caller's.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Token and stamp of a packet that asked for one and is back; no stamp where nobody has written one. The caller owns the
    /// frame.
    pub(super) fn stamp(&self, frame: FrameIndex) -> (u64, Option<u64>) {
        let Some((meta, at)) = self.metadata_of(frame) else {
            return (0, None);
        };
        debug_assert!(meta.flags & TIMESTAMP != 0);
        // SAFETY: as above; the eight bytes of the stamp are inside of those, and need not be aligned.
        let stamp = unsafe { at.add(STAMP_AT as usize).cast::<u64>().read_unaligned() };
        // A driver that has no stamp leaves the request's word, or clears it.
        let written = stamp != 0 && stamp != meta.second_word();
        (meta.token, written.then_some(stamp))
    }

    /// The request of the packet in this frame, and where it is in memory.
    #[allow(clippy::cast_possible_truncation, reason = "an offset in memory that is mapped")]
    fn metadata_of(&self, frame: FrameIndex) -> Option<(TxMeta, *mut u8)> {
        let (meta, offset) = self.asked.as_ref()?.get(frame);
        // One that was never asked for has offset 0.
        let offset = offset.checked_sub(METADATA_LEN)?;
        let at = self.geometry.addr(frame) + u64::from(offset);
        // SAFETY: a packet starts inside of its frame (`Buf`), and these bytes lie in front of it in the same frame.
        Some((meta, unsafe { self.memory().as_ptr().add(at as usize) }))
    }
}

/// Whether flags are all among those that a queue, or a UMEM, was opened for.
pub(super) fn not_opened(flags: u8, opened: u8) -> Result<(), AskError> {
    let (what, option) = match flags & !opened {
        0 => return Ok(()),
        missing if missing & TIMESTAMP != 0 => ("time of completion", "timestamps(..)"),
        missing if missing & CHECKSUM != 0 => ("checksum", "checksum()"),
        _ => ("launch time", "launch_time(..)"),
    };
    Err(AskError::NotOpened { what, option })
}
