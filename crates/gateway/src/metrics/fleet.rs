//! How a gateway fares with its fleet's state.

use std::fmt;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeMetric as _;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{Out, label};
use crate::fleet::shards::Membership;
use crate::fleet::sync::State;
use crate::fleet::{Member, Status};

pub(super) fn encode(out: &mut Out<'_, '_>, status: &Status) -> fmt::Result {
    let state = match status.state() {
        State::Behind => "behind",
        State::Following => "following",
        State::CutOff(_) => "cut-off",
        State::Rejected(_) => "rejected",
    };
    let states = ["behind", "following", "cut-off", "rejected"];
    let states = states.map(|name| (label("state", name), u64::from(name == state)));
    out.gauges("fleet_state", "1 for how the gateway fares with etcd", None, states)?;
    let gauges = [
        (
            "fleet_applied_revision",
            "Revision of etcd that tables and fast path have",
            &status.applied,
        ),
        (
            "fleet_known_revision",
            "Highest revision that etcd is known to have, other programs' included",
            &status.known,
        ),
        (
            "fleet_damaged_values",
            "Keys of etcd whose values cannot be read",
            &status.damaged,
        ),
        (
            "fleet_newer_values",
            "Keys of etcd whose values were written by a newer version of this program",
            &status.newer,
        ),
    ];
    for (name, help, value) in gauges {
        let value = usize::try_from(value.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        out.gauge(name, help, None, value)?;
    }
    out.gauge(
        "fleet_lost_ports",
        "Ports that etcd lacks though no gateway has deleted them: they hold as they were known",
        None,
        status.lost(),
    )?;
    out.gauge(
        "fleet_etcd_full",
        "1 while etcd's database is full, and takes nothing (alarm NOSPACE)",
        None,
        usize::from(status.is_full()),
    )?;
    let sizes = [("allocated", &status.database_bytes), ("used", &status.database_used)];
    out.gauges(
        "fleet_etcd_database",
        "Size of the database of the etcd member that is asked, and what of it holds something",
        Some(&Unit::Bytes),
        sizes.map(|(what, size)| (label("what", what), size.load(Ordering::Relaxed))),
    )?;
    let (given_up, waiting) = status.backlog.counts();
    out.counter(
        "fleet_copies_given_up",
        "Times that the copy of etcd's state was given up: too much waited for its disk, or it could not be made anew",
        given_up,
    )?;
    out.gauge(
        "fleet_copy_waiting",
        "Memory of what waits for the disk of the copy of etcd's state",
        Some(&Unit::Bytes),
        waiting,
    )?;
    let help = "Age of the last proof that nothing of etcd is missing";
    let metric = out
        .0
        .encode_descriptor("fleet_lag", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    ConstGauge::new(status.lag().as_secs_f64()).encode(metric)?;
    let counters = [
        (
            "fleet_watch_resumes",
            "Watches that were begun again where the last one ended",
            &status.resumed,
        ),
        (
            "fleet_relists",
            "Lists of everything, because what had to be watched, or was being listed, was compacted",
            &status.relisted,
        ),
        (
            "fleet_comparisons",
            "Comparisons with everything that etcd holds",
            &status.compared,
        ),
        (
            "fleet_divergences",
            "Objects that a comparison found otherwise: never, unless something is wrong",
            &status.diverged,
        ),
        (
            "fleet_restored_ports",
            "Ports that were put back into etcd after somebody had removed their keys",
            &status.restored,
        ),
        ("fleet_transactions", "Transactions with etcd", &status.transactions),
        (
            "fleet_conflicts",
            "Transactions that met another's, and were made anew",
            &status.conflicts,
        ),
    ];
    for (name, help, count) in counters {
        out.counter(name, help, count.load(Ordering::Relaxed))?;
    }
    Ok(())
}

/// What a gateway is in its fleet.
pub(super) fn encode_member(out: &mut Out<'_, '_>, member: &Member) -> fmt::Result {
    let known = member.known();
    let is = match known.membership {
        Membership::Joining(_) => "joining",
        Membership::Member => "member",
        Membership::Lapsed(_) => "lapsed",
        Membership::Replaced(_) => "replaced",
    };
    let all = ["joining", "member", "lapsed", "replaced"];
    let all = all.map(|name| (label("state", name), u64::from(name == is)));
    out.gauges("fleet_membership", "1 for whether the gateway takes part", None, all)?;
    let gauges = [
        (
            "fleet_members",
            "Gateways that take part, as far as is known",
            known.peers.len(),
        ),
        (
            "fleet_shards_owned",
            "Shards that are this gateway's",
            known.shards_of(known.me),
        ),
        (
            "fleet_shard_generation",
            "How often the map of shards has changed",
            usize::try_from(known.map.generation).unwrap_or(usize::MAX),
        ),
    ];
    for (name, help, value) in gauges {
        out.gauge(name, help, None, value)?;
    }
    let left = member.lease_left().unwrap_or_default();
    let help = "For how long etcd keeps the gateway for sure";
    let metric = (out.0).encode_descriptor("fleet_lease_left", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    ConstGauge::new(left.as_secs_f64()).encode(metric)?;
    let counts = known.counts;
    let moves = [
        ("taken", counts.taken),
        ("given", counts.given),
        ("given-bare", counts.given_bare),
    ];
    out.counters(
        "fleet_shard_moves",
        "Shards that this gateway moved: from members that are gone, to others, and of these without their connections",
        None,
        moves.map(|(what, count)| (label("what", what), count)),
    )?;
    out.counter(
        "fleet_foreign_packets",
        "Packets of networks that are other gateways'",
        member.foreign_packets(),
    )?;
    out.counter("fleet_map_conflicts", "Maps that met another's", counts.conflicts)?;
    out.counter("fleet_lease_lapses", "Leases that ran out", counts.lapses)
}
