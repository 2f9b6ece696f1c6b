//! Probes in frames, as those have them who see Ethernet.

use anyhow::Result;
use ringside_measure::probe::{FarStamps, make_reply_in_place};
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_wire::vlan::TAG_LEN;

use crate::clock::now_ns;

/// Writes `probe` behind the headers of `flow`, around what stands there already, and all headers with it.
pub(super) fn write_probe(flow: &UdpFlow, frame: &mut [u8], probe: &[u8]) -> Result<()> {
    let at = flow.header_len();
    let payload = frame.get_mut(at..).unwrap_or_default();
    let len = payload.len();
    anyhow::ensure!(
        len >= probe.len(),
        "a frame of {} bytes has no room for a probe",
        at + len
    );
    payload[..probe.len()].copy_from_slice(probe);
    flow.write(frame, len)?;
    Ok(())
}

/// Frames with a VLAN tag that has a priority and no VLAN.
const TAG_PROTOCOL: [u8; 2] = [0x81, 0x00];
const MACS: usize = 12;

/// The same with a priority in a VLAN tag, for which the frame has room.
pub(super) fn write_tagged(flow: &UdpFlow, frame: &mut [u8], probe: &[u8], pcp: Option<u8>) -> Result<()> {
    let Some(pcp) = pcp else {
        return write_probe(flow, frame, probe);
    };
    let untagged = frame.get_mut(TAG_LEN..).unwrap_or_default();
    write_probe(flow, untagged, probe)?;
    frame.copy_within(TAG_LEN..TAG_LEN + MACS, 0);
    frame[MACS..MACS + 2].copy_from_slice(&TAG_PROTOCOL);
    frame[MACS + 2..MACS + TAG_LEN].copy_from_slice(&(u16::from(pcp) << 13).to_be_bytes());
    Ok(())
}

/// Turns a frame with a request into one with its reply; false when it is none, and then it is as it was.
pub(super) fn answer_in_place(frame: &mut [u8]) -> bool {
    let Ok(packet) = parse_udp(frame) else { return false };
    let Ok(change) = make_reply_in_place(&mut frame[packet.payload.clone()]) else {
        return false;
    };
    let now = now_ns_if_wanted(&frame[packet.payload.clone()]);
    let checksum = match now {
        None => packet.patch_checksum(frame, change.old, change.new),
        Some(now) => {
            let stamps = FarStamps {
                came_ns: now,
                left_ns: now,
            };
            stamps.give(&mut frame[packet.payload.clone()]);
            packet.fill_checksum(frame)
        }
    };
    checksum.is_ok() && packet.reflect(frame).is_ok()
}

/// The clock is read for those who want to know only.
pub(super) fn now_ns_if_wanted(payload: &[u8]) -> Option<u64> {
    FarStamps::are_wanted(payload).then(now_ns)
}

/// The UDP payload of a frame, if it has one.
pub(super) fn payload(frame: &[u8]) -> Option<&[u8]> {
    let packet = parse_udp(frame).ok()?;
    frame.get(packet.payload)
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
