//! Why a packet cannot ask for what it asks for.

use std::fmt;

use crate::burst::Packet;

/// Why a packet cannot ask for what it asks for. Nothing was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The queue was not opened for it.
    #[error(
        "a {what} was asked for, and the queue was opened without: QueueOptions::tx_metadata(TxMetadata::new().{option})"
    )]
    NotOpened {
        /// What was asked for.
        what: &'static str,
        /// The option of [`TxMetadata`](super::TxMetadata).
        option: &'static str,
    },
    /// The checksum would lie outside of the packet, or of its first frame. The kernel would not send it, nor anything behind it.
    #[error(
        "a checksum from byte {start} on, to be put at byte {start} + {offset}, does not fit into the {len} bytes of the packet, or of the part of it in its first frame"
    )]
    Checksum {
        /// Where the sum begins, in bytes.
        start: u16,
        /// Where it is put, in bytes behind that.
        offset: u16,
        /// Bytes of the packet in its first frame.
        len: u32,
    },
    /// The kernel sums up the first frame alone, so the checksum would be wrong.
    #[error(
        "a checksum in software (TxMetadata::software_checksum) of a packet in several frames: the kernel sums up the first one only; let the device do it (TxMetadata::checksum), or send shorter packets"
    )]
    ChecksumOfParts,
    /// The packet starts too near to its frame's start.
    #[error("{room} bytes are in front of the packet in its frame, and 24 are needed for what it asks for")]
    NoRoom {
        /// Bytes in front of the packet.
        room: u32,
    },
}

/// A received packet that cannot ask for what it asks for: as it was before, and undecided.
pub struct NotAsked<'b> {
    /// Why not.
    pub error: AskError,
    /// The packet.
    pub packet: Packet<'b>,
}

impl fmt::Debug for NotAsked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotAsked")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for NotAsked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotAsked<'_> {}

impl From<NotAsked<'_>> for AskError {
    fn from(refused: NotAsked<'_>) -> Self {
        refused.error
    }
}
