//! Help texts with numbers of the library's.

use ringside_xsk::QueueOptions;

pub(super) fn frame_size_help() -> String {
    format!(
        "Bytes of a UMEM frame: 2048 or 4096, or with --unaligned any number between, \
         such as 2.5k [default: {}, or 4096 with \
         zero-copy where the NIC would cut packets into pieces]",
        QueueOptions::DEFAULT_FRAME_SIZE
    )
}

pub(super) fn frames_help() -> String {
    format!(
        "Frames of the UMEM of each queue, such as 512 or 10k [default: {}, or as many as memory \
         can be locked for, plus twice the NIC's own ring with zero-copy; {} where the queue only \
         transmits, which gets as many as that ring has, in addition, with zero-copy]",
        QueueOptions::DEFAULT_FRAMES,
        QueueOptions::DEFAULT_TRANSMIT_FRAMES
    )
}

pub(super) fn working_set_help() -> String {
    format!(
        "Packets for which frames wait under steady load, such as 512 or 2k, in the copy modes: \
         few stay in the cache; with as many as --frames all wait at all times [default: {}]",
        QueueOptions::DEFAULT_WORKING_SET
    )
}
