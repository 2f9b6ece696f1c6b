//! A packet as one item over its frames: the first one, and the further ones of a multi-buffer packet.
//!
//! Every frame after the first is rare, so everything here has its short way for `rest` being empty.

use super::{Buf, Entry, Geometry, Umem};

/// Bytes of the packet.
#[inline]
pub(crate) fn len(head: &Buf, rest: &[Entry]) -> usize {
    rest.iter()
        .fold(head.len as usize, |sum, entry| sum + entry.buf.len as usize)
}

/// Returns whether a packet of `bytes` that begins with `head` has no more behind its Ethernet
/// header than `mtu` bytes. Up to two VLAN tags do not count.
#[inline(never)]
pub(crate) fn fits_mtu(umem: &Umem, head: &Buf, bytes: u32, mtu: u32) -> bool {
    let data = head.data(umem);
    let is_tag = |at| matches!(data.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    let tags = match (is_tag(12), is_tag(16)) {
        (true, true) => 8,
        (true, false) => 4,
        (false, _) => 0,
    };
    u64::from(bytes) <= u64::from(mtu) + ETHERNET + tags
}

/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;

/// Bytes that the frames have room for, from where the packet's parts start.
#[inline]
pub(crate) fn capacity(geometry: &Geometry, head: &Buf, rest: &[Entry]) -> usize {
    rest.iter()
        .fold(head.capacity(geometry), |sum, entry| sum + entry.buf.capacity(geometry))
}

/// Shortens the packet at its end, or lengthens it by what is free behind its last byte. False, and nothing changed, when
/// there is not so much room.
#[inline]
pub(crate) fn resize(geometry: &Geometry, head: &mut Buf, rest: &mut [Entry], len: usize) -> bool {
    if rest.is_empty() {
        return head.resize(geometry, len);
    }
    resize_chain(geometry, head, rest, len)
}

#[cold]
fn resize_chain(geometry: &Geometry, head: &mut Buf, rest: &mut [Entry], len: usize) -> bool {
    // The part in which the packet ends now: only that one and those behind it can grow.
    let last = rest.iter().rposition(|entry| entry.buf.len != 0).map_or(0, |at| at + 1);
    let parts = |head: &Buf, rest: &[Entry], at: usize| {
        let buf = if at == 0 { head } else { &rest[at - 1].buf };
        (buf.len as usize, buf.capacity(geometry))
    };
    let mut most = 0;
    for at in 0..=rest.len() {
        let (used, room) = parts(head, rest, at);
        most += if at < last { used } else { room };
    }
    if len > most {
        return false;
    }
    let mut left = len;
    for at in 0..=rest.len() {
        let (used, room) = parts(head, rest, at);
        let part = left.min(if at < last { used } else { room });
        let buf = if at == 0 { &mut *head } else { &mut rest[at - 1].buf };
        let done = buf.resize(geometry, part);
        debug_assert!(done);
        left -= part;
    }
    true
}

/// Replaces the packet, each frame filled before the next. False, and nothing changed, when it does not fit.
#[inline]
pub(crate) fn write(umem: &Umem, head: &mut Buf, rest: &mut [Entry], packet: &[u8]) -> bool {
    let geometry = umem.geometry();
    if rest.is_empty() {
        let fits = head.resize(geometry, packet.len());
        if fits {
            head.forget_hints();
            head.data_mut(umem).copy_from_slice(packet);
        }
        return fits;
    }
    if packet.len() > capacity(geometry, head, rest) {
        return false;
    }
    head.forget_hints();
    let mut left = packet;
    for buf in std::iter::once(head).chain(rest.iter_mut().map(|entry| &mut entry.buf)) {
        let (part, behind) = left.split_at(left.len().min(buf.capacity(geometry)));
        let done = buf.resize(geometry, part.len());
        debug_assert!(done);
        buf.data_mut(umem).copy_from_slice(part);
        left = behind;
    }
    true
}

/// The parts of the packet, in order.
#[inline]
pub(crate) fn parts<'p>(umem: &'p Umem, head: &'p Buf, rest: &'p [Entry]) -> impl Iterator<Item = &'p [u8]> {
    std::iter::once(head.data(umem)).chain(
        rest.iter()
            .map(|entry| entry.buf.data(umem))
            .filter(|part| !part.is_empty()),
    )
}

/// The parts of the packet, in order, to be edited.
#[inline]
pub(crate) fn parts_mut<'p>(
    umem: &'p Umem,
    head: &'p mut Buf,
    rest: &'p mut [Entry],
) -> impl Iterator<Item = &'p mut [u8]> {
    std::iter::once(head.data_mut(umem)).chain(
        rest.iter_mut()
            .map(|entry| entry.buf.data_mut(umem))
            .filter(|part| !part.is_empty()),
    )
}

/// Copies the packet's first bytes, as many as fit; tells how many.
pub(crate) fn copy_to(umem: &Umem, head: &Buf, rest: &[Entry], to: &mut [u8]) -> usize {
    let mut done = 0;
    for part in parts(umem, head, rest) {
        let some = part.len().min(to.len() - done);
        to[done..done + some].copy_from_slice(&part[..some]);
        done += some;
    }
    done
}

/// The number of entries of the packet that starts at the front of `entries`: up to the one with nothing behind it.
#[inline]
pub(crate) fn first_packet(entries: &[Entry]) -> usize {
    entries
        .iter()
        .position(|entry| !entry.more())
        .map_or(entries.len(), |last| last + 1)
}
