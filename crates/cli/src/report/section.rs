//! A result's part of the page: its figures and plots.

use maud::{Markup, html};
use ringside_measure::compare::Figure;
use ringside_measure::schema::{
    AaRatio, CompareResult, CpuStages, DelayResult, Document, Outcome, RunResult, Table, Variant,
};

use super::entry::{Content, Entry};
use super::figure::{self, Bar};
use super::{charts, loaded, metrics, rates, settings, stages, units, words};
use crate::output::{count, cpu, mode_name};

/// The part of one entry.
pub(super) fn of(entry: &Entry) -> Markup {
    html! {
        section {
            h2 { (entry.name) }
            @match &entry.content {
                Content::Ours(document) => {
                    @match &document.result {
                        Outcome::Run(run) => (run_part(entry, run)),
                        Outcome::Compare(compare) => (compare_part(compare)),
                        Outcome::Delay(delay) => (delay_part(delay)),
                        Outcome::Search(search) => (rates::part(search)),
                        Outcome::Sweep(sweep) => (settings::part(sweep)),
                        Outcome::Trace(trace) => (stages::part(trace)),
                        Outcome::Lab(lab) => (super::lab::part(lab)),
                        Outcome::Steer(steer) => (super::steer::part(steer)),
                    }
                    @if let Some(far) = &document.far { (super::far::part(far)) }
                    (repeat(document))
                }
                Content::Foreign(foreign) => {
                    p { (foreign.title) ". " (foreign.note) }
                    (figures(entry))
                    (charts::of(&[entry]))
                    @if !foreign.set_up.is_empty() {
                        details { summary { "Set-up" } div.wide { table {
                            @for (name, value) in &foreign.set_up { tr { th { (name) } td { (value) } } }
                        } } }
                    }
                }
            }
        }
    }
}

/// Title of the kind of result: `Ping`, `Comparison`.
pub(super) fn kind(entry: &Entry) -> &str {
    match &entry.content {
        Content::Foreign(foreign) => &foreign.title,
        Content::Ours(document) => match &document.result {
            Outcome::Run(run) => words::operation(run.operation),
            Outcome::Compare(_) => "Comparison",
            Outcome::Search(_) => "Search for rates",
            Outcome::Sweep(_) => "Sweep over settings",
            Outcome::Trace(_) => "Stages of a packet's way",
            Outcome::Lab(_) => "Lab",
            Outcome::Steer(_) => "Steering",
            Outcome::Delay(_) => "Delay from the XDP program to the application",
        },
    }
}

fn run_part(entry: &Entry, run: &RunResult) -> Markup {
    html! {
        p { (words::operation(run.operation)) ", " (units::time(run.duration_ns as f64)) @if let Some(bytes) = run.frame_bytes { ", frames of " (bytes) " bytes without check sequence" } "." }
        (figures(entry))
        @if let Some(under_load) = &run.under_load { (loaded::part(under_load)) }
        (charts::of(&[entry]))
        (ledger(run))
        (queues(run))
        (cpus(run))
    }
}

fn figures(entry: &Entry) -> Markup {
    html! { div.cards { @for metric in entry.metrics() { div { b { (metric.written()) } span { (metric.name) } } } } }
}

/// From what was to be sent to what arrived, and where the rest went.
fn ledger(run: &RunResult) -> Markup {
    let row = |name: &str, packets: u64, share: bool| {
        let percent = share.then(|| {
            let of_sent = metrics::percent(packets, run.packets.sent);
            metrics::Metric::new("", of_sent, metrics::Kind::Percent).written()
        });
        html! { tr { th { (name) } td.number { (count(packets as f64)) } td.number { (percent.unwrap_or_default()) } } }
    };
    html! {
        h3 { "Where the packets went" }
        div.wide { table {
            (row("to be sent", run.packets.generated, false))
            (row("sent", run.packets.sent, true))
            @for loss in run.packets.losses.iter().filter(|loss| loss.count > 0) { (row(&format!("lost: {}", loss.text), loss.count, true)) }
            @if let Some(received) = run.packets.received { (row("received", received, true)) }
            @if let Some(transmitted) = run.packets.transmitted { (row("left by the link", transmitted, true)) }
            tr { th { "not accounted for" } td.number { (run.unaccounted_packets) } td {} }
        } }
        @if let Some(counts) = &run.sequence {
            p { (count(counts.duplicated as f64)) " came twice, " (count(counts.reordered as f64)) " out of order (RFC 4737), " (count(counts.late as f64)) " too late to count." }
        }
    }
}

fn queues(run: &RunResult) -> Markup {
    if run.queues.is_empty() {
        return html! {};
    }
    html! {
        details { summary { "Queues" } div.wide { table {
            tr { th { "interface" } th { "queue" } th { "received" } th { "sent" } th { "calls to send" } th { "calls to wait" } th { "ring full" } th { "fill ring empty" } }
            @for queue in &run.queues { tr {
                td { (queue.interface) } td.number { (queue.queue) }
                @for number in [queue.received_packets, queue.sent_packets, queue.kicks, queue.waits] { td.number { (count(number as f64)) } }
                @let statistics = queue.xdp_statistics.unwrap_or_default();
                td.number { (count(statistics.rx_ring_full as f64)) } td.number { (count(statistics.rx_fill_ring_empty_descs as f64)) }
            } }
        } } }
    }
}

fn cpus(run: &RunResult) -> Markup {
    if run.cpus.is_empty() {
        return html! {};
    }
    html! {
        details { summary { "CPUs" } div.wide { table {
            tr { th { "CPU" } th { "user %" } th { "system %" } th { "softirq %" } th { "stolen %" } }
            @for cpu in &run.cpus { tr {
                td.number { (cpu.cpu) }
                @for share in [cpu.user_percent, cpu.system_percent, cpu.softirq_percent, cpu.steal_percent] { td.number { (format!("{share:.0}")) } }
            } }
        } }
        @if let Some(stages) = &run.cpu_stages { (stages_part(stages)) } }
    }
}

fn stages_part(stages: &CpuStages) -> Markup {
    html! {
        @match stages.per_packet {
            Some(cost) => p {
                "CPU time a packet, of all CPUs and programs: "
                (units::time(cost.user_ns)) " in user code, "
                (units::time(cost.system_ns)) " in system calls and kernel threads, "
                (units::time(cost.softirq_ns)) " in interrupts, over "
                (count(stages.packets as f64)) " packets."
            }
            None => p { "CPU time a packet is not shown: " (cpu::no_cost(stages)) "." }
        }
        @if let Some(counts) = stages.counters {
            @let (of, each) = cpu::counted(stages);
            @let each = |count: u64| units::digits(each(count));
            p {
                "Of the workers, " (of) ": " (each(counts.user_cycles)) " cycles and "
                (each(counts.user_instructions)) " instructions in user code, "
                (each(counts.kernel_cycles)) " and " (each(counts.kernel_instructions))
                " in the kernel."
            }
        }
        div.wide { table {
            tr { th { "thread" } th { "on a CPU" } th { "user" } th { "system" } }
            @for thread in &stages.threads { tr {
                th { (thread.name) }
                td.number { (thread.run_ns.map_or_else(|| "–".to_owned(), |ns| units::time(ns as f64))) }
                td.number { (units::time(thread.user_ns as f64)) } td.number { (units::time(thread.system_ns as f64)) }
            } }
        } }
    }
}

fn compare_part(compare: &CompareResult) -> Markup {
    html! {
        p { (compare.rounds) " rounds of " (units::time(compare.round_duration_ns as f64)) " each, interleaved. Figures are medians over the rounds, whiskers the \
            distance of the quartiles, ratios are paired by rounds with a bootstrap 95 % interval." }
        @for table in &compare.tables { (table_part(table)) }
    }
}

fn table_part(table: &Table) -> Markup {
    let is_ping = table.ratio_of.starts_with("rtt");
    let title = format!(
        "{}, frames of {} bytes",
        words::operation(table.operation),
        table.frame_bytes
    );
    let value = |variant: &Variant| {
        if is_ping {
            variant.rtt_p50_ns
        } else {
            variant.packets_pps
        }
    };
    let bar = |variant: &Variant| {
        let figure: Figure = value(variant)?;
        let around = figure
            .spread
            .map(|spread| ((figure.median - spread).max(0.0), figure.median + spread));
        let written = if is_ping {
            units::time(figure.median)
        } else {
            format!("{}/s", units::short(figure.median))
        };
        let ratio = variant
            .ratio_to_base
            .map(|ratio| format!(", × {}", units::digits(ratio.median)));
        let is_base = variant.name == table.base;
        let ratio = if is_base { Some(", base".to_owned()) } else { ratio };
        Some(Bar {
            name: variant.name.clone(),
            value: figure.median,
            between: around,
            note: written + &ratio.unwrap_or_default(),
            is_base,
        })
    };
    let bars: Vec<Bar> = table.variants.iter().filter_map(bar).collect();
    let (label, write): (_, fn(f64) -> String) = if is_ping {
        ("median round trip: shorter is better", figure::time)
    } else {
        ("packets per second: more is better", figure::number)
    };
    html! {
        h3 { (title) }
        p { (table.load) "." }
        (figure::bars(if is_ping { "Median round trip" } else { "Packets per second" }, label, &bars, write))
        div.wide { table {
            tr { th { "variant" } @for name in columns(is_ping) { th { (name) } } th { "× " (table.base) " [95 %]" } }
            @for variant in &table.variants { (variant_row(variant, &table.base, is_ping)) }
        } }
        @if !table.under_load.is_empty() { (loaded::compared(table)) }
        @if !table.aa.is_empty() { (aa_part(table)) }
    }
}

/// Each variant against itself.
fn aa_part(table: &Table) -> Markup {
    let bar = |aa: &AaRatio| {
        let ratio = aa.ratio?;
        Some(Bar {
            name: aa.name.clone(),
            value: ratio.median,
            between: ratio.low.zip(ratio.high),
            note: settings::interval(&ratio),
            is_base: false,
        })
    };
    let bars: Vec<Bar> = table.aa.iter().filter_map(bar).collect();
    html! {
        (figure::bars("Each variant against itself (A/A)", "ratio: 1 but for noise", &bars, figure::number))
        @if let Some(percent) = table.noise_floor_percent {
            p { "Noise: " (crate::compare::nothing(percent)) }
        }
    }
}

fn columns(is_ping: bool) -> &'static [&'static str] {
    if is_ping {
        &[
            "RTT min", "mean", "p50", "p90", "p99", "p99.9", "max", "lost %", "CPU %",
        ]
    } else {
        &["packets/s", "bit/s on the wire", "bit/s of payload", "lost %", "CPU %"]
    }
}

/// `1.42 [1.17–1.53]`
pub(super) fn ratio(variant: &Variant, base: &str) -> String {
    match variant.ratio_to_base {
        None if variant.name == base => "base".to_owned(),
        None => "–".to_owned(),
        Some(ratio) => settings::interval(&ratio),
    }
}

fn variant_row(variant: &Variant, base: &str, is_ping: bool) -> Markup {
    type Write = fn(f64) -> String;
    let time: Write = units::time;
    let (short, digits): (Write, Write) = (units::short, units::digits);
    let cells: Vec<(Option<Figure>, Write)> = if is_ping {
        vec![
            (variant.rtt_min_ns, time),
            (variant.rtt_mean_ns, time),
            (variant.rtt_p50_ns, time),
            (variant.rtt_p90_ns, time),
            (variant.rtt_p99_ns, time),
            (variant.rtt_p99_9_ns, time),
            (variant.rtt_max_ns, time),
            (variant.loss_percent, digits),
            (variant.cpu_busy_percent, digits),
        ]
    } else {
        vec![
            (variant.packets_pps, short),
            (variant.wire_bps, short),
            (variant.payload_bps, short),
            (variant.loss_percent, digits),
            (variant.cpu_busy_percent, digits),
        ]
    };
    html! { tr {
        th { (variant.name) @if let Some(mode) = variant.mode { br; small { (mode_name(mode)) } } }
        @if let Some(failure) = &variant.failure {
            td colspan=(cells.len() + 1) { (failure) }
        } @else {
            @for (figure, write) in cells { td.number { @if let Some(figure) = figure {
                (write(figure.median))
                @if let Some(spread) = figure.spread { br; small { "± " (write(spread)) } }
            } @else { "–" } } }
            td.number { (ratio(variant, base)) }
        }
    } }
}

fn delay_part(delay: &DelayResult) -> Markup {
    let bar = |cell: &ringside_measure::schema::DelayCell| {
        let times = cell.delay?;
        let between = times
            .p50_ns
            .zip(times.p99_ns)
            .map(|(p50, p99)| (p50 as f64, p99 as f64));
        Some(Bar {
            name: crate::delay::cell_name(cell.cell())
                .replace(" core", "")
                .replace("C-states ", "C "),
            value: times.mean_ns,
            between,
            note: format!("mean {}", units::time(times.mean_ns)),
            is_base: false,
        })
    };
    let bars: Vec<Bar> = delay.cells.iter().filter_map(bar).collect();
    html! {
        p { "From the XDP program, in the software interrupt, to the application's dequeue; " (delay.rounds) " rounds. Whiskers: from the median to p99." }
        (figure::bars("Delay by cell", "mean: shorter is better", &bars, figure::time))
        div.wide { table {
            tr { th { "cell" } th { "samples" } @for name in ["min", "mean", "p50", "p90", "p99", "p99.9", "max", "std. dev."] { th { (name) } } th { "thread, % of a CPU" } }
            @for cell in &delay.cells { tr {
                th { (crate::delay::cell_name(cell.cell())) }
                @if let Some(times) = &cell.delay {
                    td.number { (count(times.samples as f64)) }
                    @for ns in times.figures().map(|(_, ns)| ns).into_iter().chain([Some(times.stddev_ns)]) {
                        td.number { (ns.map_or_else(|| "–".to_owned(), units::time)) }
                    }
                    td.number { (cell.thread_percent.map_or_else(|| "–".to_owned(), units::digits)) }
                } @else {
                    td colspan="10" { (cell.unavailable.as_deref().unwrap_or("nothing sampled")) }
                }
            } }
        } }
    }
}

/// What it was measured on, and how to do it again.
fn repeat(document: &Document) -> Markup {
    let system = &document.system;
    let rows = [
        ("kernel", format!("{} {}", system.kernel_release, system.kernel_version)),
        ("CPU", format!("{} × {}", system.cpus_online, system.cpu_model)),
        ("memory", format!("{}B", units::short(system.memory_bytes as f64))),
        (
            "hypervisor",
            system.hypervisor.clone().unwrap_or_else(|| "none".to_owned()),
        ),
        (
            "machine",
            system.machine_model.clone().unwrap_or_else(|| "–".to_owned()),
        ),
        (
            "governor",
            system.cpu_governor.clone().unwrap_or_else(|| "none".to_owned()),
        ),
        (
            "clock source",
            system.clocksource.clone().unwrap_or_else(|| "–".to_owned()),
        ),
        ("boot parameters", system.kernel_command_line.clone()),
    ];
    html! {
        h3 { "To repeat it" }
        pre { (command(&document.command_line)) }
        details { summary { "System" } div.wide { table {
            @for (name, value) in rows { tr { th { (name) } td { (value) } } }
            @if !system.c_states.is_empty() { tr { th { "idle states" } td {
                @for state in &system.c_states { (state.name) " (" (units::time(state.exit_latency_ns as f64)) @if state.disabled { ", off" } ") " }
            } } }
            @for interface in &document.interfaces { tr { th { (interface.name) } td {
                (interface.driver.as_deref().unwrap_or("no driver name")) ", MTU " (interface.mtu_bytes) ", "
                @for queue in &interface.queues { "queue " (queue.queue) " " (mode_name(queue.mode)) @if let Some(reason) = &queue.reason { " (" (reason) ")" } " " }
            } } }
            @for mitigation in &system.mitigations { tr { th { (mitigation.name) } td { (mitigation.status) } } }
            tr { th { "tool" } td { "ringside " (document.tool_version) } }
        } } }
    }
}

/// As it would be typed.
fn command(words: &[String]) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_=./:,@%+".contains(character);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::cpu::tests::stages;

    #[test]
    fn cycles_of_few_packets_are_shown_in_all() {
        let with = |number| stages_part(&stages(10_000_000, number)).into_string();
        let few = with(999);
        let part = "CPU time a packet is not shown: 999 packets are too few, it takes 1,000.";
        assert!(few.contains(part), "{few}");
        assert!(few.contains("Of the workers, in all: 4000 cycles and "), "{few}");
        let some = with(2_000);
        assert!(some.contains("CPU time a packet, of all CPUs and programs: "), "{some}");
        assert!(some.contains("Of the workers, a packet: 2.00 cycles and "), "{some}");
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let words = ["ringside", "ping", "veth0", "--to", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), r"ringside ping veth0 --to 'a b' 'it'\''s' ''");
    }
}
