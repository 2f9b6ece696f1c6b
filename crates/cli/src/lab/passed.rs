//! What passes a guest's attachment: what XDP redirects, what the guest's device takes, and what waits in it.

use std::time::Instant;

use anyhow::Result;
use ringside_bpf::{RingSeen, TapRings};
use ringside_measure::schema::{LabRedirected, LabTap, LabWaiting};
use ringside_netlab::GuestTap;
use ringside_netlab::attach::{Attachment, Way};

use crate::session::nanos;

/// All so far.
#[derive(Debug)]
pub(super) struct Passed {
    redirected: Option<LabRedirected>,
    tap: Option<Tap>,
}

/// Of the device that the guest's NIC is behind.
#[derive(Debug)]
struct Tap {
    at: Instant,
    packets: u64,
    bytes: u64,
    dropped: u64,
    /// What else was dropped is not known.
    at_least: bool,
    ring: Option<RingSeen>,
}

impl Passed {
    pub(super) fn read(attachment: &Attachment, rings: Option<&TapRings>) -> Result<Self> {
        let redirected = match attachment {
            Attachment::Xdp(xdp) => {
                let [to, from] = xdp.traffic()?;
                Some(LabRedirected {
                    to_guest_packets: to.packets,
                    to_guest_passed_packets: to.passed,
                    from_guest_packets: from.packets,
                    from_guest_passed_packets: from.passed,
                })
            }
            _ => None,
        };
        let tap = attachment.tap().map(|tap| Tap::read(tap, attachment, rings));
        Ok(Self {
            redirected,
            tap: tap.transpose()?,
        })
    }

    /// What passed since an earlier look.
    pub(super) fn since(&self, before: &Self) -> (Option<LabRedirected>, Option<LabTap>) {
        let redirected = |(after, before): (LabRedirected, LabRedirected)| LabRedirected {
            to_guest_packets: after.to_guest_packets - before.to_guest_packets,
            to_guest_passed_packets: after.to_guest_passed_packets - before.to_guest_passed_packets,
            from_guest_packets: after.from_guest_packets - before.from_guest_packets,
            from_guest_passed_packets: after.from_guest_passed_packets - before.from_guest_passed_packets,
        };
        (
            self.redirected.zip(before.redirected).map(redirected),
            (self.tap.as_ref().zip(before.tap.as_ref())).map(|(after, before)| after.since(before)),
        )
    }
}

impl Tap {
    fn read(tap: &GuestTap, attachment: &Attachment, rings: Option<&TapRings>) -> Result<Self> {
        let (device, namespace) = (&tap.device.interface, &tap.device.ns);
        let stats = namespace.try_run(|| device.state())??.stats;
        // What a macvtap device passes to the guest it has received from the uplink.
        let (packets, bytes, dropped) = match attachment.way() {
            Way::Macvtap => (stats.rx_packets, stats.rx_bytes, stats.rx_dropped),
            _ => (stats.tx_packets, stats.tx_bytes, stats.tx_dropped),
        };
        let lost = match attachment {
            Attachment::Xdp(xdp) => xdp.lost()?,
            _ => Some(0),
        };
        // Of a macvtap device nothing is seen: its ring is filled past where one can look.
        let ring = match rings {
            Some(rings) => rings.seen(namespace.cookie()?, device.index())?,
            None => None,
        };
        Ok(Self {
            at: Instant::now(),
            packets,
            bytes,
            dropped: dropped + lost.unwrap_or_default(),
            at_least: lost.is_none(),
            ring,
        })
    }

    fn since(&self, before: &Self) -> LabTap {
        // None before: no packet had come until then.
        let ring = self.ring.as_ref().map(|after| match &before.ring {
            Some(before) => after.since(before),
            None => after.clone(),
        });
        LabTap {
            time_ns: nanos(self.at.duration_since(before.at)),
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            dropped_packets: self.dropped.saturating_sub(before.dropped),
            dropped_at_least: self.at_least,
            waiting: ring.map(|ring| LabWaiting {
                packets: ring.packets,
                mean_packets: ring.mean(),
                full_packets: ring.full,
                places: ring.size,
            }),
        }
    }
}

/// All turns together.
pub(super) fn together(taps: impl Iterator<Item = LabTap>) -> Option<LabTap> {
    taps.reduce(|all, more| LabTap {
        time_ns: all.time_ns + more.time_ns,
        packets: all.packets + more.packets,
        bytes: all.bytes + more.bytes,
        dropped_packets: all.dropped_packets + more.dropped_packets,
        dropped_at_least: all.dropped_at_least || more.dropped_at_least,
        waiting: match (all.waiting, more.waiting) {
            (Some(all), Some(more)) => Some(both(all, more)),
            (all, more) => all.or(more),
        },
    })
}

#[allow(clippy::cast_precision_loss, reason = "counts of packets")]
fn both(all: LabWaiting, more: LabWaiting) -> LabWaiting {
    let packets = all.packets + more.packets;
    let waiting = all.mean_packets * all.packets as f64 + more.mean_packets * more.packets as f64;
    LabWaiting {
        packets,
        mean_packets: waiting / packets.max(1) as f64,
        full_packets: all.full_packets + more.full_packets,
        places: all.places.max(more.places),
    }
}

#[cfg(test)]
#[path = "passed_tests.rs"]
mod tests;
