//! What NICs make of a frame's room with zero-copy.

use ringside_nic::Interface;

use crate::error::Error;
use crate::mode::Path;
use crate::options::{QueueOptions, Sizes};
use crate::socket::ETHERNET_AND_TWO_TAGS;
use crate::umem::{Geometry, SharedUmem};

/// Drivers that tell the NIC a buffer's size in whole KiB, rounded down, and take each buffer's part of a longer packet for a packet of
/// its own: with frames of 2048 bytes a packet of 1348 comes as one of 1024 and one of 324.
/// `igb_setup_srrctl` (`E1000_SRRCTL_BSIZEPKT_SHIFT`) and `igb_clean_rx_irq_zc`, Linux 6.14 to 7.3:
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/igb_setup_srrctl>
const WHOLE_KIB: [&str; 1] = ["igb"];

/// In front of a packet while the NIC's receive stamps are on (`IGB_TS_HDR_LEN`).
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/IGB_TS_HDR_LEN>
const STAMP: u32 = 16;

/// Frames in which any packet of a usual MTU is whole.
const LARGE_FRAME: u32 = 4096;

/// As [`Sizes::choose`]; where nobody has said how large frames are to be, they are as large as the NIC needs for packets of the MTU.
pub(crate) fn sizes(
    interface: &Interface,
    mtu: u32,
    options: &QueueOptions,
    path: Path,
    nic_ring: u32,
    shared: Option<&SharedUmem>,
) -> Result<Sizes, Error> {
    let sizes = Sizes::choose(options, path, nic_ring, shared)?;
    if options.frame_size.is_some() || shared.is_some() {
        return Ok(sizes);
    }
    match cuts(interface, mtu, path, &sizes.geometry) {
        Some(_) => Sizes::choose(&options.clone().frame_size(LARGE_FRAME), path, nic_ring, shared),
        None => Ok(sizes),
    }
}

/// Why the NIC would deliver packets of the MTU in pieces, if it would. A queue that only transmits
/// is no exception: the NIC receives the host's packets into its frames.
pub(crate) fn cuts(interface: &Interface, mtu: u32, path: Path, geometry: &Geometry) -> Option<String> {
    if path != Path::ZeroCopy || geometry.multi_buffer() {
        return None;
    }
    let (packet, room) = (longest(mtu), geometry.packet_room());
    if packet <= whole_kib(room) {
        return None;
    }
    let driver = interface.driver().ok()?.name;
    WHOLE_KIB.contains(&driver.as_str()).then(|| {
        format!(
            "the driver {driver} gives the NIC whole KiB of a frame, {} of {room} bytes here, and packets of up to {packet} would come in \
             pieces; use frames of {LARGE_FRAME} bytes, or a smaller MTU",
            whole_kib(room)
        )
    })
}

/// Bytes of a packet of this MTU, and what the NIC may put in front.
fn longest(mtu: u32) -> u32 {
    mtu.saturating_add(ETHERNET_AND_TWO_TAGS + STAMP)
}

/// So much of a frame's room the NIC fills.
fn whole_kib(room: u32) -> u32 {
    room / 1024 * 1024
}

#[cfg(test)]
#[path = "nic_buffers_tests.rs"]
mod tests;
