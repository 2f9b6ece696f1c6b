//! The commands that drive one port: each opens it, runs a loop per queue, and makes a result of the counters.

pub(crate) mod cyclic;
pub(crate) mod echo;
pub(crate) mod fwd;
pub(crate) mod hints;
pub(crate) mod impair;
pub(crate) mod listener;
pub(crate) mod ping;
pub(crate) mod rx;
pub(crate) mod streams;
pub(crate) mod talker;
pub(crate) mod tx;
pub(crate) mod whole;

use anyhow::{Result, bail};
use ringside_measure::counters::{Ledger, LossCause};
use ringside_measure::rate::{Rates, Span};
use ringside_measure::schema::{QueueCounters, RunResult};
use ringside_nic::{LinkState, LinkStats};
use ringside_xsk::Port;

use crate::session::{self, Ran};

/// Everything that was redirected to the sockets of the queues came out or was counted as lost.
///
/// `redirected` is what `session::settle` told: so many had to come out. Where packets still flow, more have come until
/// the counters were read, at the most those that the XDP program has counted by then. `missed` packets never came to
/// the program, and are added to both sides.
fn receive_ledger(queues: &[QueueCounters], redirected: u64, missed: u64) -> Ledger {
    let sum = |field: fn(&QueueCounters) -> u64| queues.iter().map(field).sum::<u64>();
    let by_now = sum(|queue| queue.xdp_verdicts.map_or(0, |verdicts| verdicts.redirected_packets));
    let mut ledger = Ledger {
        received: Some(sum(|queue| queue.received_packets)),
        ..Ledger::default()
    };
    ledger.lose(
        LossCause::RxDropped,
        sum(|queue| queue.xdp_statistics.map_or(0, |k| k.rx_dropped)),
    );
    ledger.lose(
        LossCause::RxRingFull,
        sum(|queue| queue.xdp_statistics.map_or(0, |k| k.rx_ring_full)),
    );
    let out = ledger.delivered() + ledger.lost();
    // A program of the user's tells nothing: then what came out is all that is known.
    ledger.sent = match queues.iter().all(|queue| queue.xdp_verdicts.is_some()) {
        true => out.clamp(redirected, by_now.max(redirected)),
        false => out,
    };
    ledger.lose(LossCause::RxMissed, missed);
    ledger.sent += missed;
    ledger.generated = ledger.sent;
    ledger
}

/// What the NIC had no room for, by its link's counters.
fn missed(before: &LinkState, after: &LinkState) -> u64 {
    let missed = |state: &LinkState| state.stats.rx_missed_errors.wrapping_add(state.stats.rx_fifo_errors);
    missed(after).wrapping_sub(missed(before))
}

/// Everything that was put on the TX rings left by the link or was counted as lost.
///
/// The link counts what others send, too: more than was ours cannot have left. `in_flight` frames did not come back, either
/// because the link did not take them, which shows in its counters, or because whoever has them now is slow.
///
/// The counters of a link that was removed (`None`) are gone with it: of its frames those left that
/// came back.
fn transmit_ledger(queues: &[QueueCounters], in_flight: u64, before: &LinkState, after: Option<&LinkState>) -> Ledger {
    let sum = |field: fn(&QueueCounters) -> u64| queues.iter().map(field).sum::<u64>();
    let sent = sum(|queue| queue.sent_packets);
    let passed = |field: fn(&LinkStats) -> u64| Some(field(&after?.stats).wrapping_sub(field(&before.stats)));
    let left = passed(|stats| stats.tx_packets).unwrap_or(sent.saturating_sub(in_flight));
    let dropped = passed(|stats| stats.tx_dropped).unwrap_or(0);
    let mut ledger = Ledger {
        generated: sent,
        sent,
        ..Ledger::default()
    };
    ledger.lose(
        LossCause::TxInvalidDescs,
        sum(|queue| queue.xdp_statistics.map_or(0, |k| k.tx_invalid_descs)),
    );
    ledger.lose(LossCause::LinkTxDropped, dropped.min(sent - ledger.lost().min(sent)));
    let left = left.min(sent - ledger.lost());
    ledger.transmitted = Some(left);
    let not_back = in_flight.min(sent - ledger.lost() - left);
    let cause = match after {
        Some(_) => LossCause::LeftOnTxRing,
        None => LossCause::InterfaceRemoved,
    };
    ledger.lose(cause, not_back);
    ledger
}

/// Of `sent` packets that were put on a port's TX rings those that left by its link are
/// transmitted, and the others lost.
fn leave(ledger: &mut Ledger, port: &Port, sent: u64, before: &LinkState, after: &LinkState) {
    let passed = |field: fn(&LinkStats) -> u64| field(&after.stats).wrapping_sub(field(&before.stats));
    let dropped = passed(|stats| stats.tx_dropped).min(sent);
    // Those that did not come back are elsewhere if the link counts them, or else still here.
    let not_taken = (sent - dropped)
        .saturating_sub(passed(|stats| stats.tx_packets))
        .min(session::in_flight(port));
    *ledger.transmitted.get_or_insert(0) += sent - dropped - not_taken;
    ledger.lose(LossCause::LinkTxDropped, dropped);
    ledger.lose(LossCause::LeftOnTxRing, not_taken);
}

/// What no counter explains, into the result.
fn account(result: &mut RunResult) {
    result.unaccounted_packets = i64::try_from(result.packets.difference()).unwrap_or(i64::MAX);
}

/// Returns the rates of packets and bytes that were counted, of mixed sizes, from the first to the
/// last packet. `headers` of each frame are no payload; 0 where they are not known.
fn rates(packets: u64, bytes: u64, headers: usize, span: Option<Span>) -> Option<Rates> {
    Rates::within(span?, packets, bytes, headers as u64)
}

/// How a run ends whose result was told: a run that ended early, or that sampled nothing, is an error and not a zero.
fn conclude(ran: Ran, packets: u64, what: &str, hint: &str) -> Result<()> {
    if let Some(failure) = ran.failure {
        return Err(failure.context(format!("{what} ended early")));
    }
    if packets == 0 {
        bail!("{what}: nothing was sampled; {hint}");
    }
    Ok(())
}
