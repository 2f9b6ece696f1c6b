//! Whether a queue's frames and rings suffice for a packet of the interface's MTU.

use ringside_nic::Interface;

use super::{ETHERNET_AND_TWO_TAGS, Failure, Request};
use crate::error::Error;
use crate::mode::Path;
use crate::options::{Direction, Sizes};
use crate::umem::Umem;

/// Without multi-buffer support a packet that does not fit a frame is dropped by the kernel: refuse
/// to start.
pub(crate) fn check_mtu(interface: &Interface, mtu: u32, sizes: Sizes) -> Result<(), Error> {
    let packet = mtu.saturating_add(ETHERNET_AND_TWO_TAGS);
    let usable = sizes.geometry.packet_room();
    if packet <= usable || sizes.geometry.multi_buffer() {
        return Ok(());
    }
    let room_in_4096 = 4096 - (sizes.geometry.frame_size() - usable);
    let lower = format!(
        "lower the MTU: ip link set dev {} mtu {}",
        interface.name(),
        usable - ETHERNET_AND_TWO_TAGS
    );
    Err(Error::MtuTooLarge {
        interface: interface.name().to_owned(),
        mtu,
        packet,
        frame_size: sizes.geometry.frame_size(),
        usable,
        advice: if packet <= room_in_4096 {
            format!("use frames of 4096 bytes, or packets in several frames (multi-buffer, Linux 6.6), or {lower}")
        } else {
            format!("let packets be in several frames (multi-buffer, Linux 6.6), or {lower}")
        },
    })
}

impl Request<'_> {
    /// Frames that a packet of the interface's MTU needs, with its Ethernet header and two VLAN
    /// tags; no more than the kernel sends as one.
    pub(crate) fn frames_per_packet(&self) -> u32 {
        let geometry = &self.sizes.geometry;
        match geometry.frames_for(self.mtu.saturating_add(ETHERNET_AND_TWO_TAGS)) {
            1 => 1,
            frames => frames.min(u32::try_from(most_fragments()).unwrap_or(u32::MAX)),
        }
    }

    /// Frames that a packet to be sent may be in: what the kernel takes, and what the TX ring has
    /// slots for.
    pub(crate) fn most_frames(&self) -> usize {
        let most = match self.sizes.geometry.multi_buffer() {
            true => most_fragments(),
            false => 1,
        };
        most.min(self.sizes.tx.max(1) as usize)
    }

    /// Refuses a TX ring without room for one packet.
    pub(crate) fn check_tx_ring(&self) -> Result<(), Error> {
        let frames = self.frames_per_packet();
        if self.sizes.tx != 0 && self.sizes.tx < frames {
            return Err(Error::Setting {
                setting: "tx_ring",
                value: self.sizes.tx.to_string(),
                reason: format!("one packet of the interface's MTU {} needs {frames} slots", self.mtu),
            });
        }
        Ok(())
    }

    /// Returns how to go on where memory is short: without the frames for the host, which copy mode
    /// does not need, there may be enough.
    pub(super) fn too_little_memory(&self, error: Error) -> Failure {
        match error {
            Error::Memory { .. } if self.receives_for_host() => Failure::Lacks(error.to_string()),
            error => Failure::Fatal(error),
        }
    }

    /// Returns whether the NIC receives packets into the UMEM that are all for the host: zero-copy,
    /// on a queue that only transmits.
    pub(crate) fn receives_for_host(&self) -> bool {
        self.path == Path::ZeroCopy && self.options.direction == Direction::Transmit
    }

    /// Refuses fewer frames than one packet takes: such packets would never be received, or none be
    /// sent.
    pub(super) fn check_frames(&self) -> Result<(), Error> {
        let Sizes {
            frames, fill_target, ..
        } = self.sizes;
        let (usable, wait) = match self.options.direction {
            Direction::Transmit => (frames - fill_target, String::new()),
            Direction::Both | Direction::Receive => {
                (fill_target, format!(", and {fill_target} of these wait for packets"))
            }
        };
        let needed = self.frames_per_packet();
        // A queue without frames of its own sends those of others.
        let has_own = match self.options.direction {
            Direction::Transmit => usable != 0,
            Direction::Both | Direction::Receive => frames != 0,
        };
        if has_own && usable < needed {
            return Err(Error::Setting {
                setting: "frames",
                value: frames.to_string(),
                reason: format!(
                    "one packet of the interface's MTU {} takes {needed} frames{wait}",
                    self.mtu
                ),
            });
        }
        Ok(())
    }

    pub(super) fn no_frames_left(&self, umem: &Umem) -> Error {
        Error::Setting {
            setting: "frames",
            value: self.sizes.frames.to_string(),
            reason: format!(
                "the shared UMEM has {} frames, and {} of them are left for {}: make it larger, or let each queue take fewer",
                umem.geometry().frames(),
                umem.unclaimed(),
                self.whose()
            ),
        }
    }
}

/// Frames that the kernel makes a packet of, whatever the driver is: `max_skb_frags`. Where it
/// copies them it makes one of the first as well, but it leaves them where they are for a driver
/// that takes packets so (IFF_TX_SKB_NO_LINEAR, virtio-net for instance), and nobody tells which
/// drivers these are. <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_build_skb_zerocopy>
fn most_fragments() -> usize {
    let told = std::fs::read_to_string("/proc/sys/net/core/max_skb_frags").ok();
    told.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(17)
}
