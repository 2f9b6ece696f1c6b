//! A packet that goes through a guest: what the host's kernel and the guest's saw of it, on one axis of time.

use super::{Packet, Point, Stamp, Vcpus};
use crate::mapping::{Bounds, Mapping};

/// A request and its answer, as two kernels saw them, each by its own clock.
///
/// ```text
///  host   intended ─ call ─ … ─ transmit into the device, copied by QEMU ╮          ╭ received from the device ─ … ─ application
///  guest                                                                 ╰ NAPI … ─ transmit ╯
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Across {
    /// What the host saw of the request; of its application's own points nothing is taken.
    pub there: Packet,
    /// What the guest saw of the request, by its own clock.
    pub came: Packet,
    /// What the guest saw of the answer, by its own clock; nothing, where its kernel lets nobody see it.
    pub left: Packet,
    /// What the host saw of the answer, and what its application knows of both.
    pub back: Packet,
}

impl Across {
    /// What this packet says about the guest's clock.
    pub fn bound(&self, bounds: &mut Bounds) {
        // That a soft interrupt was asked for may have another reason than this packet.
        let came = self.came().find(|stamp| !is_asked(stamp));
        // Where the host saw nothing of it (XDP sockets that send by XDP), it was not there before it was sent.
        if let (Some(last), Some(first)) = (self.sent().last(), came) {
            bounds.there(last.ns, first.ns);
        }
        let incoming = self.incoming().find(|stamp| !is_asked(stamp));
        if let (Some(last), Some(first)) = (self.before_answer(), incoming) {
            bounds.back(last.ns, first.ns);
        }
    }

    /// The guest's last point that the answer cannot have been out before. A reader that looks into its ring by itself may have answered before it is told
    /// that there is something.
    fn before_answer(&self) -> Option<&Stamp> {
        let came = || self.came().filter(|stamp| !stamp.point.is_of_reader()).last();
        self.left.stamps.last().or_else(came)
    }

    /// What the guest saw of the request. What it would have done with it after it had answered was another packet's.
    fn came(&self) -> impl Iterator<Item = &Stamp> + '_ {
        let answered = self.left.stamps.first().map_or(u64::MAX, |stamp| stamp.ns);
        self.came.stamps.iter().take_while(move |stamp| stamp.ns <= answered)
    }

    /// What the guest saw; of the answer nothing where XDP sockets send it out of their own memory.
    fn inside(&self) -> impl Iterator<Item = &Stamp> + '_ {
        self.came().chain(&self.left.stamps)
    }

    /// What the host saw before the answer was there.
    fn sent(&self) -> impl Iterator<Item = Stamp> + '_ {
        let back = self.incoming().find(|stamp| !is_asked(stamp));
        let back = back.map_or(u64::MAX, |stamp| stamp.ns);
        let outgoing = self.outgoing().take_while(move |stamp| stamp.ns <= back);
        self.begun().chain(outgoing)
    }

    /// Puts all stamps on the host's clock, with what the guest's virtual CPU did for it; `None` if the guest saw nothing of the request, or the host of the answer.
    ///
    /// Where a stamp of the guest is before its cause on the host, or behind its effect, it is moved, and the disorder has by how much. One that contradicts
    /// others by the same clock is left out.
    #[must_use]
    pub fn join(&self, mapping: &Mapping, vcpus: &Vcpus) -> Option<Packet> {
        let mut stamps: Vec<Stamp> = self.sent().collect();
        let last = *stamps.last()?;
        let begin = last.ns;
        let end = self.incoming().find(|stamp| !is_asked(stamp))?.ns.max(begin);
        self.came().next()?;
        let mut disorder_ns = self.there.disorder_ns.max(self.back.disorder_ns);
        for stamp in self.inside() {
            let here = mapping.here(stamp.ns);
            // Asked for before this packet was there, it was for another one.
            if is_asked(stamp) && here < begin {
                continue;
            }
            // Told of after the reader had answered.
            let is_readers = stamp.point.is_of_reader() || stamp.point == Point::Copy;
            if is_readers && self.left.stamps.is_empty() && here > end + mapping.uncertainty_ns() {
                continue;
            }
            let ns = here.clamp(begin, end);
            disorder_ns = disorder_ns.max(here.abs_diff(ns));
            let mut place = stamp.place;
            place.is_guest = true;
            let stamp = Stamp { ns, place, ..*stamp };
            if stamps.last() == Some(&last) {
                let (way_in, moved_ns) = vcpus.enter(&last, &stamp, mapping.uncertainty_ns());
                disorder_ns = disorder_ns.max(moved_ns);
                stamps.extend(way_in);
            }
            stamps.push(stamp);
        }
        let left = stamps.last()?.ns;
        stamps.extend(self.incoming().filter(|stamp| !is_asked(stamp) || stamp.ns >= left));
        // Each part is in order: the guest's are by the clamp, and what comes back is not before it.
        stamps.is_sorted_by_key(|stamp| stamp.ns).then_some(Packet {
            id: self.back.id,
            stamps,
            disorder_ns,
            measured_ns: self.back.measured_ns,
        })
    }

    /// What the application did before the host's kernel saw the request.
    fn begun(&self) -> impl Iterator<Item = Stamp> + '_ {
        let first = self.outgoing().next().map_or(u64::MAX, |stamp| stamp.ns);
        let known = self.back.stamps.iter().copied().filter(is_begun);
        known.map(move |stamp| Stamp {
            ns: stamp.ns.min(first),
            ..stamp
        })
    }

    fn outgoing(&self) -> impl Iterator<Item = Stamp> + '_ {
        self.there.stamps.iter().copied().filter(|stamp| !is_begun(stamp))
    }

    fn incoming(&self) -> impl Iterator<Item = Stamp> + '_ {
        self.back.stamps.iter().copied().filter(|stamp| !is_begun(stamp))
    }
}

fn is_begun(stamp: &Stamp) -> bool {
    matches!(stamp.point, Point::Intended | Point::Call)
}

fn is_asked(stamp: &Stamp) -> bool {
    matches!(stamp.point, Point::Raised | Point::SoftIrq)
}

#[cfg(test)]
#[path = "across_tests.rs"]
mod tests;
