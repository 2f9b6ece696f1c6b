//! A packet's bytes in one piece, for code that reads headers and payload together.

use ringside_xsk::Packet;

/// The longest packet that IP and Ethernet have; a longer one costs an allocation, once.
const USUAL: usize = 1 << 16;

/// Where packets that lie in several frames are put together. A packet in one frame is looked at where it is.
#[derive(Default)]
pub(crate) struct Whole(Vec<u8>);

impl Whole {
    /// With memory only where packets may be in several frames. To be made before the first packet.
    pub(crate) fn new(multi_buffer: bool) -> Self {
        Self(Vec::with_capacity(if multi_buffer { USUAL } else { 0 }))
    }

    /// All of the packet.
    #[inline]
    pub(crate) fn read<'a>(&'a mut self, packet: &'a Packet<'_>) -> &'a [u8] {
        match packet.len() {
            len if len == packet.data().len() => packet.data(),
            len => self.together(packet, len),
        }
    }

    /// Has `edit` look at the packet and change it; what it returns. Its length stays.
    #[inline]
    pub(crate) fn edit(&mut self, packet: &mut Packet<'_>, edit: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let len = packet.len();
        if len == packet.data().len() {
            return edit(packet.data_mut());
        }
        let bytes = self.together(packet, len);
        if !edit(bytes) {
            return false;
        }
        let mut left = &*bytes;
        for part in packet.parts_mut() {
            let (these, behind) = left.split_at(part.len());
            part.copy_from_slice(these);
            left = behind;
        }
        true
    }

    #[cold]
    fn together(&mut self, packet: &Packet<'_>, len: usize) -> &mut [u8] {
        self.0.resize(len, 0);
        packet.copy_to(&mut self.0);
        &mut self.0
    }
}
