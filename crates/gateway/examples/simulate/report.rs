//! What came of it, as text and as JSON.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use ringside_gateway::fleet::key::Key;
use serde_json::{Value, json};

use super::costs::{DEFAULT_QUOTA, MILLISECOND, SECOND};
use super::measure::{Measure, Phase, quantile};
use super::world::{Setup, World};

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn float(number: u64) -> f64 {
    number as f64
}

fn seconds(time: u64) -> f64 {
    float(time) / float(SECOND)
}

/// Three quantiles, in seconds.
#[derive(Debug, Clone, Copy)]
struct Spread([f64; 3]);

impl Spread {
    fn of(values: &mut [u64]) -> Option<Self> {
        let of = |permille| seconds(quantile(&mut *values, permille));
        let spread = [500, 990, 1000].map(of);
        (!values.is_empty()).then_some(Self(spread))
    }

    fn text(spread: Option<Self>) -> String {
        let Some(Self(spread)) = spread else {
            return "-".to_owned();
        };
        spread.map(time).join(" / ")
    }

    fn json(spread: Option<Self>) -> Value {
        match spread {
            None => Value::Null,
            Some(Self([p50, p99, max])) => json!({"p50_s": p50, "p99_s": p99, "max_s": max}),
        }
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn large(number: f64) -> String {
    match number {
        n if n >= 1e10 => format!("{:.0} G", n / 1e9),
        n if n >= 1e9 => format!("{:.1} G", n / 1e9),
        n if n >= 1e7 => format!("{:.0} M", n / 1e6),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// One phase, worked out.
struct Row {
    name: &'static str,
    settled: bool,
    took: f64,
    converged: Option<Spread>,
    unconverged: u64,
    caught_up: Option<Spread>,
    answered: Option<Spread>,
    per_second: fn(&Self, u64) -> f64,
    phase: [(&'static str, u64); 24],
}

impl Row {
    fn of(phase: &mut Phase, cores: u64) -> Self {
        let (before, after) = (phase.before, phase.after);
        let took = phase.ended - phase.began;
        let cpu = (after.cpu - before.cpu) * 100 / (took.max(1) * cores);
        let transactions = after.transactions - before.transactions;
        Self {
            name: phase.name,
            settled: phase.settled,
            took: seconds(took),
            unconverged: transactions.saturating_sub(phase.converged.len() as u64),
            converged: Spread::of(&mut phase.converged),
            caught_up: Spread::of(&mut phase.caught_up),
            answered: Spread::of(&mut phase.answered),
            per_second: |row, number| float(number) / row.took.max(1e-9),
            phase: [
                ("requests", after.requests - before.requests),
                ("peak_requests_s", phase.peak_requests),
                ("pages", after.pages - before.pages),
                ("late_pages", after.late_pages - before.late_pages),
                ("late_requests", after.late - before.late),
                ("watch_events", after.events - before.events),
                ("bytes_sent", after.sent - before.sent),
                ("peak_bytes_s", phase.peak_sent),
                ("cpu_percent", cpu),
                ("peak_cpu_percent", phase.peak_cpu),
                ("peak_database_bytes", phase.peak_database),
                ("changes", after.written - before.written),
                ("peak_changes_waiting", phase.peak_backlog),
                ("conflicts", after.conflicts - before.conflicts),
                ("refused_transactions", after.refused - before.refused),
                (
                    "gateway_seconds_not_following",
                    after.not_following - before.not_following,
                ),
                ("moved_shards", phase.moved),
                ("shards_of_those_hit", phase.of_hit),
                ("comparisons", phase.compared),
                ("member_events", after.member_events - before.member_events),
                ("member_bytes", after.member_bytes - before.member_bytes),
                ("map_writes", after.map_writes - before.map_writes),
                ("map_conflicts", after.map_conflicts - before.map_conflicts),
                (
                    "shards_moved_until_ms",
                    phase.moved_last.saturating_sub(phase.began) / MILLISECOND,
                ),
            ],
        }
    }

    fn of_name(&self, name: &str) -> u64 {
        (self.phase.iter())
            .find_map(|(known, value)| (*known == name).then_some(*value))
            .unwrap_or(0)
    }

    fn rate(&self, name: &str) -> String {
        large((self.per_second)(self, self.of_name(name)))
    }

    fn peak(&self, name: &str) -> String {
        large(float(self.of_name(name)))
    }
}

/// Everything that is told.
pub(crate) struct Report {
    rows: Vec<(Row, u64, u64)>,
    setup: Setup,
    pub(crate) digest: u64,
    events: u64,
    virtual_s: f64,
    divergences: u64,
    pub(crate) equal: bool,
    received: f64,
    index_memory: u64,
    largest_database: u64,
    shards: [usize; 2],
}

impl Report {
    pub(crate) fn new(world: &mut World) -> Self {
        let cores = (world.setup.costs.members * world.setup.costs.cores) as u64;
        let Measure {
            phases, divergences, ..
        } = &mut world.measure;
        let rows: Vec<(Row, u64, u64)> = (phases.iter_mut())
            .map(|phase| (Row::of(phase, cores), phase.ownerless, phase.relisted))
            .collect();
        let counts = || (0..world.gateways.len()).map(|gateway| world.seats.count(gateway));
        let costs = &world.setup.costs;
        let history = phases.iter().map(|phase| phase.peak_history).max().unwrap_or(0);
        let received: u64 = world.gateways.iter().map(|gateway| gateway.received).sum();
        Self {
            digest: world.digest,
            events: world.events,
            virtual_s: seconds(world.now),
            divergences: *divergences,
            equal: world.gateways.iter().all(|gateway| gateway.is_complete(&world.log)),
            received: float(received) / float(world.gateways.len() as u64) / seconds(world.now),
            index_memory: world.setup.keys() * costs.key_memory
                + history * costs.change_memory
                + world.gateways.len() as u64 * costs.watcher_memory / costs.members as u64,
            largest_database: phases.iter().map(|phase| phase.peak_database).max().unwrap_or(0),
            shards: [counts().min().unwrap_or(0), counts().max().unwrap_or(0)],
            rows,
            setup: world.setup.clone(),
        }
    }

    /// Whether all was over in time.
    #[cfg(test)]
    pub(crate) fn settled(&self) -> bool {
        self.rows.iter().all(|(row, ..)| row.settled)
    }

    /// What there is to complain about.
    pub(crate) fn problem(&self) -> Option<String> {
        let late = self.rows.iter().filter(|(row, ..)| !row.settled);
        let late: Vec<&str> = late.map(|(row, ..)| row.name).collect();
        if !late.is_empty() {
            return Some(format!(
                "not over within {} s, so that what came after it says little: {} (--patience-seconds)",
                self.setup.patience / SECOND,
                late.join(", ")
            ));
        }
        (!self.equal).then(|| "in the end gateways hold something else than etcd".to_owned())
    }

    /// Memory that a list of all keys takes while it is compared, in bytes: a hash table of keys, which doubles.
    fn keep_bytes(&self) -> u64 {
        let entry = size_of::<Key>() as u64 + 1;
        let buckets = (self.setup.keys() * 8 / 7).next_power_of_two();
        buckets * entry
    }

    /// Bytes a second to a gateway where tenants have IPv6: nearly all of them are events, and a key's digits are more.
    fn received_v6(&self) -> f64 {
        let costs = &self.setup.costs;
        self.received * float(costs.event_bytes + costs.key_bytes_v6) / float(costs.event_bytes)
    }

    pub(crate) fn text(&self) -> String {
        let setup = &self.setup;
        let costs = &setup.costs;
        let mut out = String::new();
        _ = writeln!(
            out,
            "{} gateways, {} neighbours in {} keys, {} changes a second, seed {}; etcd: {} members, {} cores and {} bit/s each, flush {}",
            setup.gateways,
            large(float(setup.neighbors)),
            large(float(setup.keys())),
            setup.churn,
            setup.seed,
            costs.members,
            costs.cores,
            large(float(costs.wire * 8)),
            time(seconds(costs.sync)),
        );
        _ = writeln!(
            out,
            "\nfrom an answered write to the tables of all gateways, and what etcd does for it\n"
        );
        let mut table = table(&[
            "",
            "took",
            "p50 / p99 / most",
            "caught up: p50 / p99 / most",
            "answered: p50 / p99 / most",
            "changes/s",
            "not following, gateway-s",
        ]);
        for (row, ..) in &self.rows {
            let took = format!("{:.0} s{}", row.took, if row.settled { "" } else { ", NOT OVER" });
            let mut converged = Spread::text(row.converged);
            if row.unconverged > 0 {
                _ = write!(converged, ", {} never", row.unconverged);
            }
            table.add_row([
                row.name.to_owned(),
                took,
                converged,
                Spread::text(row.caught_up),
                Spread::text(row.answered),
                row.rate("changes"),
                row.peak("gateway_seconds_not_following"),
            ]);
        }
        _ = writeln!(out, "{table}\n");
        let mut table = self::table(&[
            "",
            "requests/s (most)",
            "pages (late)",
            "watch events/s",
            "B/s out (most)",
            "CPU % (most)",
            "database, B",
            "shards moved (of those hit)",
            "until",
            "unserved",
            "maps (in vain)",
            "B/s of them and members",
            "relists",
            "comparisons",
        ]);
        for (row, ownerless, relisted) in &self.rows {
            table.add_row([
                row.name.to_owned(),
                format!("{} ({})", row.rate("requests"), row.peak("peak_requests_s")),
                format!("{} ({})", row.peak("pages"), row.peak("late_pages")),
                row.rate("watch_events"),
                format!("{} ({})", row.rate("bytes_sent"), row.peak("peak_bytes_s")),
                format!("{} ({})", row.of_name("cpu_percent"), row.of_name("peak_cpu_percent")),
                row.peak("peak_database_bytes"),
                format!(
                    "{} ({})",
                    row.of_name("moved_shards"),
                    row.of_name("shards_of_those_hit")
                ),
                time(seconds(row.of_name("shards_moved_until_ms") * MILLISECOND)),
                time(seconds(*ownerless)),
                format!("{} ({})", row.peak("map_writes"), row.peak("map_conflicts")),
                row.rate("member_bytes"),
                relisted.to_string(),
                row.of_name("comparisons").to_string(),
            ]);
        }
        _ = writeln!(out, "{table}\n");
        _ = writeln!(
            out,
            "a gateway: {}B of memory for all neighbours ({}B over IPv6) and {}B more while it lists all keys; {}B of disk; {}B/s from etcd ({}B/s over IPv6); {} to {} shards",
            large(float(setup.neighbors * costs.neighbor_memory)),
            large(float(setup.neighbors * costs.neighbor_memory_v6)),
            large(float(self.keep_bytes())),
            large(float(setup.neighbors * costs.neighbor_disk)),
            large(self.received),
            large(self.received_v6()),
            self.shards[0],
            self.shards[1],
        );
        _ = writeln!(
            out,
            "an etcd member: {}B of database at the most ({} of the default limit), {}B of memory beside it",
            large(float(self.largest_database)),
            percent(self.largest_database, DEFAULT_QUOTA),
            large(float(self.index_memory)),
        );
        _ = writeln!(
            out,
            "{:.0} s, {} events, digest {:016x}; all gateways hold what etcd holds: {}; comparisons found {} divergences",
            self.virtual_s,
            large(float(self.events)),
            self.digest,
            if self.equal { "yes" } else { "NO" },
            self.divergences,
        );
        out
    }

    pub(crate) fn json(&self) -> Value {
        let setup = &self.setup;
        let phases: Vec<Value> = (self.rows.iter())
            .map(|(row, ownerless, relisted)| {
                let mut phase = json!({
                    "name": row.name,
                    "settled": row.settled,
                    "took_s": row.took,
                    "converged": Spread::json(row.converged),
                    "unconverged_transactions": row.unconverged,
                    "caught_up": Spread::json(row.caught_up),
                    "answered": Spread::json(row.answered),
                    "longest_unserved_s": seconds(*ownerless),
                    "relists": relisted,
                });
                for (name, value) in row.phase {
                    phase[name] = json!(value);
                }
                phase
            })
            .collect();
        json!({
            "gateways": setup.gateways,
            "neighbors": setup.neighbors,
            "keys": setup.keys(),
            "changes_s": setup.churn,
            "seed": setup.seed,
            "digest": format!("{:016x}", self.digest),
            "events": self.events,
            "simulated_s": self.virtual_s,
            "equal": self.equal,
            "divergences": self.divergences,
            "gateway": {
                "memory_bytes": setup.neighbors * setup.costs.neighbor_memory,
                "memory_bytes_v6": setup.neighbors * setup.costs.neighbor_memory_v6,
                "received_bytes_s_v6": self.received_v6(),
                "listing_memory_bytes": self.keep_bytes(),
                "disk_bytes": setup.neighbors * setup.costs.neighbor_disk,
                "received_bytes_s": self.received,
                "shards_least": self.shards[0],
                "shards_most": self.shards[1],
            },
            "etcd": {
                "database_bytes": self.largest_database,
                "memory_bytes": self.index_memory,
            },
            "phases": phases,
        })
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{} %", part * 100 / whole)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
