//! Probes in frames, as those have them who see Ethernet.

use anyhow::Result;
use ringside_measure::probe::make_reply_in_place;
use ringside_wire::flow::{UdpFlow, parse_udp};

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

/// Turns a frame with a request into one with its reply; false when it is none, and then it is as it was.
pub(super) fn answer_in_place(frame: &mut [u8]) -> bool {
    let Ok(packet) = parse_udp(frame) else { return false };
    let Ok(change) = make_reply_in_place(&mut frame[packet.payload.clone()]) else {
        return false;
    };
    packet.patch_checksum(frame, change.old, change.new).is_ok() && packet.reflect(frame).is_ok()
}

/// The UDP payload of a frame, if it has one.
pub(super) fn payload(frame: &[u8]) -> Option<&[u8]> {
    let packet = parse_udp(frame).ok()?;
    frame.get(packet.payload)
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
