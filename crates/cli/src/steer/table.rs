//! Where packets landed, for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table as Grid, presets};
use ringside_measure::schema::{SteerLanding, SteerQueue, SteerResult};
use ringside_nic::Knob;

use crate::output::{wrapped, wrapped_to};

/// Renders where each class of packets landed, in a sentence each.
pub(super) fn brief(result: &SteerResult) -> String {
    let sentences = result.sentences.iter();
    let sentences = sentences.map(|sentence| {
        let text = format!("{}: {}.", sentence.mark(), sentence.text);
        wrapped_to(80, &text, "")
    });
    header(result) + &sentences.collect::<String>()
}

/// `eth0 (igb), 1.0 s, sent from eth1`
fn header(result: &SteerResult) -> String {
    let driver = result.driver.as_deref().unwrap_or("no driver");
    format!(
        "{} ({driver}), {:.1} s{}\n",
        result.interface,
        result.elapsed_ns as f64 / 1e9,
        result
            .sender
            .as_ref()
            .map(|from| format!(", sent from {from}"))
            .unwrap_or_default()
    )
}

/// Renders all counts and settings.
pub(super) fn render(result: &SteerResult, terminal: bool) -> String {
    let mut text = header(result) + "\n";
    let mut grid = load(&queues(result), terminal);
    align(&mut grid, 2);
    _ = writeln!(text, "{grid}");
    let rules = match &result.rules {
        None => "The driver has no rules for queues (ethtool -N).".to_owned(),
        Some(rules) if rules.is_empty() => "No rules for queues (ethtool -N).".to_owned(),
        Some(rules) => {
            let of = |rule: &ringside_measure::schema::SteerRule| {
                let queue = rule
                    .queue
                    .map_or_else(|| "no queue".to_owned(), |queue| format!("queue {queue}"));
                format!("{}: {} to {queue}", rule.location, rule.flow)
            };
            format!(
                "Rules for queues: {}.",
                rules.iter().map(of).collect::<Vec<_>>().join("; ")
            )
        }
    };
    text += &wrapped(&rules, "");
    if !result.rss_queues.is_empty() {
        text += &wrapped(
            &format!(
                "The NIC's hash chooses from queues {}.",
                Knob::cpu_list(&result.rss_queues)
            ),
            "",
        );
    }
    text += "\nInterrupts, and packets in the stack or for AF_XDP sockets, by queue and CPU\n";
    _ = writeln!(text, "{}", grid_of(result, terminal));
    let cpus: Vec<String> = result
        .cpus
        .iter()
        .map(|cpu| format!("CPU {}: {} ({} by RPS)", cpu.cpu, cpu.net_rx, cpu.received_rps))
        .collect();
    text += &wrapped(
        &format!(
            "Software interrupts to receive, of all interfaces: {}.",
            cpus.join(", ")
        ),
        "",
    );
    text += "\n";
    for sentence in &result.sentences {
        text += &wrapped(&format!("{}: {}.", sentence.mark(), sentence.text), "");
    }
    text
}

/// The rows of queue × CPU, the first one the header: interrupts, packets of each class, and of none.
pub(crate) fn grid(result: &SteerResult) -> Vec<Vec<String>> {
    let mut header = vec!["queue".to_owned(), "CPU".to_owned(), "interrupts".to_owned()];
    header.extend(result.classes.iter().map(|class| class.flow.to_string()));
    header.push("all else".to_owned());
    let mut places: BTreeSet<(u32, u32)> = BTreeSet::new();
    let landings = result
        .classes
        .iter()
        .flat_map(|class| &class.landings)
        .chain(&result.others);
    places.extend(landings.map(|landing| (landing.queue, landing.cpu)));
    for queue in &result.queues {
        places.extend(queue.interrupts.iter().map(|count| (queue.queue, count.cpu)));
    }
    let mut rows = vec![header];
    for (queue, cpu) in places {
        let count = |landings: &[SteerLanding]| {
            let there = landings
                .iter()
                .filter(|landing| (landing.queue, landing.cpu) == (queue, cpu));
            there.map(|landing| landing.packets).sum::<u64>().to_string()
        };
        let of_queue = result.queues.iter().find(|one| one.queue == queue);
        let interrupts = match of_queue.filter(|queue| queue.irq.is_some()) {
            None => "-".to_owned(),
            Some(queue) => {
                let there = queue.interrupts.iter().find(|count| count.cpu == cpu);
                there.map_or(0, |count| count.count).to_string()
            }
        };
        let mut row = vec![queue.to_string(), cpu.to_string(), interrupts];
        row.extend(result.classes.iter().map(|class| count(&class.landings)));
        row.push(count(&result.others));
        rows.push(row);
    }
    rows
}

fn grid_of(result: &SteerResult, terminal: bool) -> Grid {
    let mut grid = load(&grid(result), terminal);
    align(&mut grid, 0);
    grid
}

/// The queues as they are set.
fn queues(result: &SteerResult) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["queue", "IRQ", "its CPUs", "RPS", "packets by the driver"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let row = |queue: &SteerQueue| {
        let none = || "-".to_owned();
        let irq = queue
            .irq
            .map(|irq| format!("{irq} {}", queue.irq_name.as_deref().unwrap_or_default()));
        vec![
            queue.queue.to_string(),
            irq.unwrap_or_else(none),
            queue.irq.map_or_else(none, |_| Knob::cpu_list(&queue.irq_cpus)),
            Knob::cpu_list(&queue.rps_cpus),
            queue.driver_packets.map_or_else(none, |packets| packets.to_string()),
        ]
    };
    rows.extend(result.queues.iter().map(row));
    rows
}

fn load(rows: &[Vec<String>], terminal: bool) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(if terminal {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::ASCII_FULL_CONDENSED
    });
    if let Some((header, rows)) = rows.split_first() {
        grid.set_header(header);
        for row in rows {
            grid.add_row(row);
        }
    }
    grid
}

fn align(grid: &mut Grid, from: usize) {
    for column in grid.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
