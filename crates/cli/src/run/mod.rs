//! The commands that drive one port: each opens it, runs a loop per queue, and makes a result of the counters.

pub(crate) mod echo;
pub(crate) mod fwd;
pub(crate) mod ping;
pub(crate) mod rx;
pub(crate) mod tx;

use anyhow::{Result, bail};
use ringside_measure::counters::Ledger;
use ringside_measure::rate::Rates;
use ringside_measure::schema::{QueueCounters, RunResult};
use ringside_nic::LinkState;

use crate::session::Ran;

/// Everything that was redirected to the sockets of the queues came out or was counted as lost.
fn receive_ledger(queues: &[QueueCounters]) -> Ledger {
    let sum = |field: fn(&QueueCounters) -> u64| queues.iter().map(field).sum::<u64>();
    let redirected = sum(|queue| queue.xdp_verdicts.map_or(queue.received_packets, |verdicts| verdicts.redirected));
    let mut ledger = Ledger {
        generated: redirected,
        sent: redirected,
        received: sum(|queue| queue.received_packets),
        losses: Vec::new(),
    };
    ledger.lose("rx_dropped (no free frame in time, or too long)", sum(|queue| queue.xdp_statistics.map_or(0, |k| k.rx_dropped)));
    ledger.lose("rx_ring_full", sum(|queue| queue.xdp_statistics.map_or(0, |k| k.rx_ring_full)));
    ledger
}

/// Everything that was put on the TX rings left by the link or was counted as lost.
fn transmit_ledger(queues: &[QueueCounters], before: &LinkState, after: &LinkState) -> Ledger {
    let sum = |field: fn(&QueueCounters) -> u64| queues.iter().map(field).sum::<u64>();
    let sent = sum(|queue| queue.sent_packets);
    let mut ledger = Ledger {
        generated: sent,
        sent,
        received: after.stats.tx_packets.wrapping_sub(before.stats.tx_packets),
        losses: Vec::new(),
    };
    ledger.lose("tx_invalid_descs", sum(|queue| queue.xdp_statistics.map_or(0, |k| k.tx_invalid_descs)));
    ledger.lose("dropped by the link on the way out", after.stats.tx_dropped.wrapping_sub(before.stats.tx_dropped));
    ledger
}

/// What no counter explains, into the result.
fn account(result: &mut RunResult) {
    result.unaccounted_packets = i64::try_from(result.packets.difference()).unwrap_or(i64::MAX);
}

/// Rates from packets and bytes that were counted, of mixed sizes. Exact for the bits of frames; for the wire each frame
/// gets its 24 bytes of overhead, and padding is left out of account.
fn rates(packets: u64, bytes: u64, ran: &Ran) -> Option<Rates> {
    let mean = bytes.checked_div(packets).unwrap_or(0);
    let mut rates = Rates::new(packets, mean, mean, crate::session::nanos(ran.duration))?;
    #[allow(clippy::cast_precision_loss, reason = "a rate has three digits")]
    {
        rates.frame_bps = bytes as f64 * 8.0 / ran.duration.as_secs_f64();
        if packets != 0 && mean >= 60 {
            rates.wire_bps = (bytes + packets * 24) as f64 * 8.0 / ran.duration.as_secs_f64();
        }
        rates.payload_bps = rates.frame_bps;
    }
    Some(rates)
}

/// A run that sampled nothing is an error, not a zero.
fn not_empty(packets: u64, what: &str, hint: &str) -> Result<()> {
    if packets == 0 {
        bail!("{what}: nothing was sampled; {hint}");
    }
    Ok(())
}
