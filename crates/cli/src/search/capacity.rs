//! `--method rfc9097`: the sender goes by what the far end reports twenty times a second.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::control::Tally;
use ringside_measure::pace::Pacer;
use ringside_measure::schema::CapacityRecord;
use ringside_measure::search::capacity::{Adjuster, FEEDBACK_NS, PIECE_NS, Pieces, Seen};

use super::path::Path;
use crate::stop::Stop;

/// How often to look for reports, in nanoseconds.
const LOOK_NS: u64 = 2_000_000;
/// Reports that may be late before this end gives up waiting for a piece: then the far end is gone, or the path is dead.
const PATIENCE: Duration = Duration::from_secs(3);
/// Ethernet's header, which is no part of an IP packet.
const ETHERNET: u64 = 14;

/// What both ends have counted so far.
#[derive(Default)]
struct Told {
    last: Tally,
    errors: u64,
    pieces: Pieces,
}

impl Told {
    /// What is new in a report.
    fn take(&mut self, tally: Tally) -> Seen {
        let missing = |tally: &Tally| tally.expected_packets.saturating_sub(tally.received_packets);
        let errors = missing(&tally) + tally.reordered_packets + tally.duplicated_packets;
        let seen = Seen {
            // A packet that was only late is missing no more.
            errors: errors.saturating_sub(self.errors),
            delay_variation_ns: tally.delay_variation_ns,
        };
        self.errors = errors;
        self.pieces.add(tally.at_ns, tally.ip_bytes);
        self.last = tally;
        seen
    }
}

/// Sends one size of packets for so many pieces of a second.
pub(super) fn find(
    path: &mut Path,
    packet: &mut [Vec<u8>],
    most_pps: u64,
    pieces: u32,
    stop: &Stop,
) -> Result<CapacityRecord> {
    let frame_bytes = packet.first().context("a packet")?.len() as u64;
    let packet_bits = (frame_bytes - ETHERNET) * 8;
    let mut adjuster = Adjuster::new(most_pps.saturating_mul(packet_bits));
    let mut told = Told::default();
    let mut highest_bps = 0;
    let mut skipped = 0;
    let mut stream = path.stream(packet)?;
    let begun = stream.now_ns();
    // Two more than the pieces take: the first report begins them, and rates change within.
    let longest = begun + u64::from(pieces) * PIECE_NS + u64::try_from(PATIENCE.as_nanos())?;
    let pace = |bps: u64, now: u64| Pacer::per_second((bps / packet_bits).max(1), now);
    let mut pacer = pace(adjuster.rate_bps(), begun)?;
    let mut next_look = begun;
    while told.pieces.rates_bps().len() < pieces as usize && !stop.is_set() {
        let now = stream.now_ns();
        if now > longest {
            break;
        }
        if now >= next_look {
            next_look = now + LOOK_NS;
            let before = adjuster.rate_bps();
            for tally in stream.tallies() {
                adjuster.report(told.take(tally));
            }
            let after = adjuster.rate_bps();
            highest_bps = highest_bps.max(after);
            if after != before {
                pacer = pace(after, now)?;
            }
        }
        // Who cannot keep up does not send a burst afterwards.
        skipped += pacer.skip_backlog(now, u64::from(stream.batch()) * 4);
        stream.send(&mut pacer, now)?;
    }
    let sent = stream.finish()?;
    std::thread::sleep(Duration::from_nanos(FEEDBACK_NS * 2));
    for tally in path.tallies() {
        told.take(tally);
    }
    Ok(CapacityRecord {
        capacity_bps: told.pieces.most_bps(),
        pieces_bps: told.pieces.rates_bps().to_vec(),
        frame_bytes,
        highest_bps,
        sent_packets: sent,
        received_packets: told.last.received_packets,
        reordered_packets: told.last.reordered_packets,
        duplicated_packets: told.last.duplicated_packets,
        limited_by_sender: skipped * 50 > sent,
    })
}
