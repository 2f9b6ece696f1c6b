//! The frames of the classes: VLAN tag, UDP, probe, and the stream's part.

use anyhow::{Context as _, Result};
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::schedule::{STREAM_LEN, Schedule, Slot, StreamPart};
use ringside_wire::flow::UdpFlow;
use ringside_wire::vlan::TAG_LEN;

use crate::args::bad_value;

/// Ethernet's addresses, in front of the tag.
const ADDRESSES: usize = 12;
/// The type of a tagged frame (802.1Q).
const TYPE: [u8; 2] = [0x81, 0x00];

/// The frames of a schedule, one for each class, written anew for each packet.
pub(super) struct Frames {
    flow: UdpFlow,
    session: u32,
    cycle_ns: u64,
    classes: Vec<OfClass>,
    /// Those of a cycle, in the order in which they are sent.
    slots: Vec<Slot>,
}

struct OfClass {
    pcp: u8,
    vlan: u16,
    per_cycle: u64,
    frame: Vec<u8>,
}

/// Which packet it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Which {
    pub(super) class: usize,
    pub(super) sequence: u64,
    /// When it is due by the schedule, in nanoseconds of CLOCK_TAI.
    pub(super) intended_ns: u64,
    /// For how long it is worth sending: until its window is over.
    pub(super) span_ns: u64,
    number: u32,
}

impl Frames {
    pub(super) fn new(flow: UdpFlow, session: u32, schedule: &Schedule, vlan: u16, slots: Vec<Slot>) -> Result<Self> {
        let classes = schedule.classes().iter().map(|class| {
            let least = flow.header_len() + TAG_LEN + STREAM_LEN;
            let len = class.frame_bytes as usize;
            if len < least {
                bad_value!(
                    "class {}: frames of {len} bytes have no room for a probe: with these addresses it takes {least}",
                    class.pcp
                );
            }
            Ok(OfClass {
                pcp: class.pcp,
                vlan,
                per_cycle: class.packets_per_cycle.into(),
                frame: vec![0; len],
            })
        });
        Ok(Self {
            flow,
            session,
            cycle_ns: schedule.cycle_ns(),
            classes: classes.collect::<Result<_>>()?,
            slots,
        })
    }

    /// The packet of a slot in a cycle of the run, which begins at `begin_ns`. Numbers go with the schedule: one that is not sent is
    /// missing at the listener.
    pub(super) fn which(&self, slot: usize, cycle: u64, begin_ns: u64) -> Option<Which> {
        let slot = self.slots.get(slot)?;
        let per_cycle = self.classes.get(slot.class)?.per_cycle;
        Some(Which {
            class: slot.class,
            sequence: cycle * per_cycle + u64::from(slot.number),
            intended_ns: begin_ns + slot.offset_ns,
            span_ns: slot.over_ns - slot.offset_ns,
            number: slot.number,
        })
    }

    /// Begin of the cycle that a time is in.
    pub(super) fn begin_of(&self, ns: u64) -> u64 {
        ns / self.cycle_ns * self.cycle_ns
    }

    /// Packets of each class that were due until a slot of a cycle, that one included.
    pub(super) fn due(&self, last: Option<(u64, usize)>) -> Vec<u64> {
        let of = |class: usize| {
            let Some((cycle, slot)) = last else { return 0 };
            let in_cycle = self
                .slots
                .iter()
                .take(slot + 1)
                .filter(|slot| slot.class == class)
                .count();
            cycle * self.classes[class].per_cycle + in_cycle as u64
        };
        (0..self.classes.len()).map(of).collect()
    }

    /// Writes the packet, sent at `sent_ns`. `unskipped` packets of its class were sent before it,
    /// or left out on purpose.
    pub(super) fn write(&mut self, which: Which, sent_ns: u64, unskipped: u64) -> Result<&[u8]> {
        let class = self.classes.get_mut(which.class).context("a class of the schedule")?;
        let headers = self.flow.header_len();
        let probe = Probe {
            kind: Kind::Request,
            clock: Clock::Tai,
            session: self.session,
            sequence: which.sequence,
            intended_ns: which.intended_ns,
            sent_ns,
        };
        let part = StreamPart {
            pcp: class.pcp,
            number: u16::try_from(which.number).unwrap_or(u16::MAX),
            // Numbers go with the schedule. The listener takes differences.
            #[allow(clippy::cast_possible_truncation, reason = "modulo 2^32")]
            skipped: which.sequence.wrapping_sub(unskipped) as u32,
        };
        // As if there were no tag, so much further behind; then the addresses move to the front, and the tag between.
        let frame = &mut class.frame;
        let untagged = frame.get_mut(TAG_LEN..).unwrap_or_default();
        let len = untagged.len() - headers;
        probe.encode(&mut untagged[headers..headers + HEADER_LEN])?;
        part.encode(&mut untagged[headers..])?;
        self.flow.write(untagged, len)?;
        frame.copy_within(TAG_LEN..TAG_LEN + ADDRESSES, 0);
        frame[ADDRESSES..ADDRESSES + 2].copy_from_slice(&TYPE);
        let tag = u16::from(class.pcp) << 13 | class.vlan;
        frame[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tag.to_be_bytes());
        Ok(frame)
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
