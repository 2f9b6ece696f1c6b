//! Results for people and for programs.

pub(crate) mod brief;
pub(crate) mod cpu;
mod cycle;
pub(crate) mod grid;
mod ledger;
mod times;

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ringside_measure::latency::Summary;
use ringside_measure::probe::Clock;
use ringside_measure::rate::Rates;
use ringside_measure::schema::{
    self, ChecksumBy, Document, Outcome, QueueCounters, RunResult, TxStampsResult, UntilCi,
};
use ringside_xsk::PortReport;

use crate::args::{OutputArgs, RunArgs};
use crate::{system, validity};

/// The last line of a short text.
const DETAILS: &str = "Details: -v; all figures: --json\n";

/// A line on standard error. Not `eprintln!`, which panics when the reader has gone (`2>&1 | head`).
pub(crate) fn note(text: impl Display) {
    // There is nobody left to tell.
    _ = writeln!(std::io::stderr(), "{text}");
}

/// Notes that a port is open, with its whole report if `verbose`.
pub(crate) fn opened(verbose: bool, report: &PortReport) {
    match verbose {
        true => note(report),
        false => brief_report(report).iter().for_each(note),
    }
}

fn brief_report(report: &PortReport) -> Vec<String> {
    let interface = &report.interface;
    let modes = report
        .queues
        .iter()
        .map(|queue| (queue.queue, system::mode(queue.path)));
    let mut first = brief::port(interface, &modes.collect::<Vec<_>>());
    if let Some(program) = &report.program {
        let filter = program.filter.as_ref();
        let filter = filter.map_or(String::new(), |filter| format!(", filter {filter}"));
        first += &format!(
            "; XDP program {} id {}, {}{filter}",
            program.name, program.id, program.attached
        );
    }
    let mut lines = vec![first];
    let nic = report.program.as_ref().and_then(|program| program.nic.as_ref());
    lines.extend(nic.map(|nic| format!("  {nic}")));
    // The same for all queues mostly.
    let notes: BTreeSet<&String> = report.queues.iter().flat_map(|queue| &queue.notes).collect();
    let settings = report.settings.iter().chain(&report.warnings).chain(notes);
    lines.extend(settings.map(|line| format!("{interface}: {line}")));
    // Only where it was asked for, and the same for all queues.
    let asked = report.queues.first().and_then(|queue| queue.tx_metadata);
    lines.extend(asked.map(|obtained| format!("{interface}: TX metadata: {obtained}")));
    if !report.unbound_queues.is_empty() {
        lines.push(format!(
            "{interface}: without a socket: queues {:?}; their packets go up the stack",
            report.unbound_queues
        ));
    }
    lines
}

/// Whether the result can be written where the command line wants it: to be known before a long run, not after it.
pub(crate) fn check(args: &OutputArgs) -> Result<()> {
    args.json_file
        .as_deref()
        .map_or(Ok(()), |path| check_file("--json-file", path))
}

/// The same for the file of one option.
pub(crate) fn check_file(option: &str, path: &Path) -> Result<()> {
    let there = path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("{option} {}: opening it for writing", path.display()))?;
    if !there {
        // The run may fail, and shall then leave nothing.
        _ = fs::remove_file(path);
    }
    Ok(())
}

/// Prints a result and writes it, as the command line asks for.
pub(crate) fn finish(args: &RunArgs, interfaces: Vec<schema::Interface>, result: RunResult) -> Result<()> {
    finish_with(args, interfaces, result, None)
}

/// The same, with what the far end told.
pub(crate) fn finish_with(
    args: &RunArgs,
    interfaces: Vec<schema::Interface>,
    result: RunResult,
    far: Option<schema::FarEnd>,
) -> Result<()> {
    let document = system::document_with(interfaces, Outcome::Run(Box::new(result)), far);
    let text = match &document.result {
        Outcome::Run(result) if !args.output.json => match args.verbose {
            true => text(&document, result),
            false => brief::text(&document, result),
        },
        _ => String::new(),
    };
    deliver_run(&args.output, &document, &text, !args.verbose)
}

/// As [`deliver`]. The last line of a text that is `brief` says how to get all figures.
pub(crate) fn deliver_run(args: &OutputArgs, of: &Document, text: &str, brief: bool) -> Result<()> {
    deliver_with(args, of, text, if brief { DETAILS } else { "" })
}

/// Prints the text, or the JSON instead of it, and writes the JSON to the file that was asked for.
///
/// # Errors
/// When it cannot be written; for figures that cannot be, before any of them is told; and for an invalid result where a valid one
/// is required.
pub(crate) fn deliver(args: &OutputArgs, document: &Document, text: &str) -> Result<()> {
    deliver_with(args, document, text, "")
}

fn deliver_with(args: &OutputArgs, document: &Document, text: &str, end: &str) -> Result<()> {
    let json = document.to_json()? + "\n";
    let trouble = validity::trouble(document);
    let printed = match args.json {
        true => {
            if let Some(reasons) = &trouble {
                note(invalid(reasons).trim_end());
            }
            print(&json)
        }
        false => print(&ended(text, trouble.as_deref(), end)),
    };
    // Also when standard output fails: one of the two may have been the reason for a long run.
    if let Some(path) = &args.json_file {
        crate::files::write(path, &json).with_context(|| format!("writing the result to {}", path.display()))?;
    }
    printed?;
    match trouble.filter(|_| args.require_valid) {
        Some(reasons) => bail!("--require-valid: the result is invalid: {reasons}"),
        None => Ok(()),
    }
}

/// Returns the text with the reasons why the result is invalid, if it is, and this end.
fn ended(text: &str, trouble: Option<&str>, end: &str) -> String {
    format!("{text}{}{end}", trouble.map_or(String::new(), invalid))
}

fn invalid(reasons: &str) -> String {
    // The narrowest terminal that is usual.
    wrapped_to(80, &format!("INVALID: {reasons}"), "")
}

/// Text on standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    // A reader that went away (`| head`) is no error of ours.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Lines of a length that can be read, each after `indent`.
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    wrapped_to(100, text, indent)
}

/// The same of so many columns. A word that is longer has a line of its own, and stays whole.
pub(crate) fn wrapped_to(columns: usize, text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column == 0 {
            out.push_str(indent);
            column = indent.len();
        } else if column + 1 + length > columns {
            _ = write!(out, "\n{indent}");
            column = indent.len();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

/// What became of measuring until an interval is narrow enough.
pub(crate) fn until(until: &UntilCi) -> String {
    let width = until.width_percent.map_or_else(
        || "has no interval yet".to_owned(),
        |percent| format!("is known to an interval {percent:.2} % wide"),
    );
    let goal = until.goal_percent;
    let of = match until.of.as_str() {
        "p50_ns" => "the median round trip",
        "sent_pps" => "the rate sent",
        "received_pps" => "the rate received",
        of => of,
    };
    match until.reached {
        true => format!("Until {goal} %: reached; {of} {width}."),
        false => format!("Until {goal} %: NOT reached before the end; {of} {width}."),
    }
}

/// How well the figure of a run is known that was to be known to so much.
fn known_to(until_ci: &UntilCi) -> String {
    let goal = match until_ci.reached {
        true => format!("{} % was asked for and reached", until_ci.goal_percent),
        false => format!(
            "{} % was asked for and NOT reached before the end",
            until_ci.goal_percent
        ),
    };
    let Some(estimate) = &until_ci.estimate else {
        return format!("{goal}: too few pieces for an interval");
    };
    let written = |value: f64| match until_ci.of.as_str() {
        "p50_ns" => format!("{:.3}", value / 1e3),
        _ => count(value),
    };
    let (what, unit) = match until_ci.of.as_str() {
        "p50_ns" => ("median round trip", "µs"),
        "sent_pps" => ("sent", "packets/s"),
        _ => ("received", "packets/s"),
    };
    format!(
        "{what} {} [{}-{}] {unit}, {:.2} % wide, by the medians of {} pieces (of neighbours' correlation {:.2}); {goal}",
        written(estimate.median),
        written(estimate.low),
        written(estimate.high),
        until_ci.width_percent.unwrap_or_default(),
        estimate.pieces,
        estimate.correlation,
    )
}

/// `1,234,567`
pub(crate) fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[allow(clippy::cast_precision_loss, reason = "for people; counts stay far below 2^53")]
pub(crate) fn packets(number: u64) -> String {
    count(number as f64)
}

/// All figures as text.
fn text(document: &Document, result: &RunResult) -> String {
    let mut out = Lines::default();
    out.line(system::summary(&document.system));
    for interface in &document.interfaces {
        let modes: Vec<String> = interface
            .queues
            .iter()
            .map(|queue| format!("{}:{}", queue.queue, mode_name(queue.mode)))
            .collect();
        let driver = interface.driver.as_deref().unwrap_or("no driver name");
        out.line(format!(
            "{} ({driver}, MTU {}), queues {}",
            interface.name,
            interface.mtu_bytes,
            modes.join(" ")
        ));
        if let Some(reason) = interface.queues.iter().find_map(|queue| queue.reason.as_ref()) {
            out.line(format!("  not better because: {reason}"));
        }
    }
    out.blank();
    let sum = |field: fn(&QueueCounters) -> u64| result.queues.iter().map(field).sum::<u64>();
    rates(
        &mut out,
        "received",
        result.received.as_ref(),
        sum(|queue| queue.received_packets),
        result.duration_ns,
    );
    rates(
        &mut out,
        "sent",
        result.transmitted.as_ref(),
        sum(|queue| queue.sent_packets),
        result.duration_ns,
    );
    if let Some(target) = result.target_pps {
        let achieved = result.transmitted.map_or_else(String::new, |rates| {
            format!(", achieved {:.1} % of it", rates.packets_pps * 100.0 / target)
        });
        out.pair("asked for", format!("{} packets/s{achieved}", count(target)));
    }
    ledger::text(&mut out, result);
    link(&mut out, result);
    match (&result.under_load, &result.latency) {
        (Some(under_load), _) => out.text.push_str(&crate::run::ping::table::text(under_load)),
        (None, Some(latency)) => times::text(&mut out, latency),
        (None, None) => {}
    }
    if let Some(lateness) = &result.sender_lateness {
        times::sender(&mut out, lateness);
    }
    if let Some(far) = &document.far {
        out.text.push_str(&crate::serve::text(far));
    }
    if let Some(known) = &result.until_ci {
        out.pair("known", known_to(known));
    }
    if let Some(hints) = &result.hints {
        out.text.push_str(&crate::run::hints::text(hints));
    }
    if let Some(impair) = &result.impair {
        out.text.push_str(&crate::run::impair::text(impair));
    }
    if let Some(cycle) = &result.cycle {
        cycle::text(&mut out, cycle);
    }
    if let Some(schedule) = &result.schedule {
        out.text.push_str(&crate::run::streams::text(schedule));
    }
    if let Some(by) = result.checksum_offload {
        out.pair("checksums", checksums(by));
    }
    if let Some(stamps) = &result.tx_stamps {
        departures(&mut out, stamps);
    }
    // Once for all lines above.
    if out.text.contains("p99.9 -") {
        out.pair("", TOO_FEW);
    }
    queues(&mut out, result);
    cpu::text(&mut out, result);
    out.text
}

/// Prints the number and length of the link's outages, if there were some.
fn link(out: &mut Lines, result: &RunResult) {
    if let (Some(flaps @ 1..), Some(down)) = (result.link_flaps, result.link_down_ns) {
        #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
        let seconds = down as f64 / 1e9;
        out.pair(
            "link",
            format!(
                "went down or lost its carrier {flaps} time(s), was not up for \
                 {seconds:.2} s in all"
            ),
        );
    }
}

pub(crate) fn mode_name(mode: schema::Mode) -> &'static str {
    match mode {
        schema::Mode::ZeroCopy => "zero-copy",
        schema::Mode::NativeCopy => "native copy",
        schema::Mode::Generic => "generic",
        schema::Mode::Copy => "copy",
    }
}

/// Lines with a label in front.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn pair(&mut self, label: &str, value: impl AsRef<str>) {
        self.line(format!("{label:<14} {}", value.as_ref()));
    }
}

/// `1.50 s`, `2.50 ms`
fn duration(ns: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let seconds = ns as f64 / 1e9;
    match seconds < 0.1 {
        true => format!("{:.2} ms", seconds * 1e3),
        false => format!("{seconds:.2} s"),
    }
}

/// Packets of one direction in a run of `run_ns`, and their rates from the first to the last.
fn rates(out: &mut Lines, label: &str, rates: Option<&Rates>, number: u64, run_ns: u64) {
    let text = match rates {
        Some(rates) => format!(
            "{} packets in {}, the first to the last within {}: {} packets/s, {:.3} Gbit/s on the wire, \
             {:.3} Gbit/s in frames",
            packets(number),
            duration(run_ns),
            duration(rates.span_ns.unwrap_or(run_ns)),
            count(rates.packets_pps),
            rates.wire_bps / 1e9,
            rates.frame_bps / 1e9,
        ),
        None if number == 0 => return,
        None => format!(
            "{} packets in {}, all within less than 1 ms: no rate",
            packets(number),
            duration(run_ns)
        ),
    };
    out.pair(label, text);
}

/// The figures of a distribution in a line, in microseconds.
pub(crate) fn microseconds(summary: &Summary) -> String {
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let cells = [
        ("min", Some(us(summary.min_ns))),
        ("mean", Some(format!("{:.2}", summary.mean_ns / 1e3))),
        ("p50", summary.p50_ns.map(us)),
        ("p90", summary.p90_ns.map(us)),
        ("p99", summary.p99_ns.map(us)),
        ("p99.9", summary.p99_9_ns.map(us)),
        ("p99.99", summary.p99_99_ns.map(us)),
        ("p99.999", summary.p99_999_ns.map(us)),
        ("max", Some(us(summary.max_ns))),
    ];
    cells
        .into_iter()
        // It takes a million samples, which hardly any run has.
        .filter(|(name, value)| *name != "p99.999" || value.is_some())
        .map(|(name, value)| format!("{name} {}", value.unwrap_or_else(|| "-".into())))
        .collect::<Vec<_>>()
        .join("  ")
}

/// Returns the median and the tail of a distribution in a line, with the unit; of few samples
/// what is known of them.
pub(crate) fn tail(summary: &Summary) -> String {
    let cell = |name: &str, ns: Option<f64>| ns.map(|ns| format!("{name} {:.2}", ns / 1e3));
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let of = |ns: Option<u64>| ns.map(|ns| ns as f64);
    let cells = match summary.p50_ns {
        Some(_) => [
            cell("p50", of(summary.p50_ns)),
            cell("p99", of(summary.p99_ns)),
            cell("p99.9", of(summary.p99_9_ns)),
            cell("max", of(Some(summary.max_ns))),
        ],
        None => [
            cell("min", of(Some(summary.min_ns))),
            cell("mean", Some(summary.mean_ns)),
            cell("max", of(Some(summary.max_ns))),
            None,
        ],
    };
    let cells: Vec<String> = cells.into_iter().flatten().collect();
    format!("{} µs", cells.join("  "))
}

const TOO_FEW: &str = "- : too few samples for this percentile (fewer than 10 beyond it)";

/// When packets left.
fn departures(out: &mut Lines, stamps: &TxStampsResult) {
    let clock = match stamps.clock {
        Clock::Phc => "the NIC's clock",
        _ => "CLOCK_TAI",
    };
    let coverage = stamps
        .coverage_percent
        .map_or("no packet".into(), |percent| format!("{percent:.2} % of the packets"));
    out.pair(
        "left",
        format!(
            "{coverage} have a stamp, of {clock} taken in {}: {} wanted one, {} asked for it, {} came back without{}",
            stamps.source,
            packets(stamps.wanted_packets),
            packets(stamps.asked_packets),
            packets(stamps.unstamped_packets),
            match stamps.outstanding_packets {
                0 => String::new(),
                some => format!(", {} not at all", packets(some)),
            },
        ),
    );
    if stamps.unread_packets + stamps.impossible_packets != 0 {
        out.pair(
            "",
            format!(
                "{} stamps were thrown away unread, {} were before their packet's hand-over",
                packets(stamps.unread_packets),
                packets(stamps.impossible_packets)
            ),
        );
    }
    if let Some(times) = &stamps.hand_over {
        let within = stamps.uncertainty_ns.map_or(String::new(), |ns| {
            #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
            let us = ns as f64 / 1e3;
            format!(", each within {us:.2} µs, for it is by two clocks")
        });
        out.pair(
            "left, µs",
            format!(
                "{}  (from the hand-over of the packet, or of its burst{within})",
                microseconds(times)
            ),
        );
    }
}

fn checksums(by: ChecksumBy) -> &'static str {
    match by {
        ChecksumBy::Device => "filled in by the device",
        ChecksumBy::DeviceOrKernel => "filled in by the device, or by the kernel where the device has no such offload",
        ChecksumBy::Kernel => "filled in by the kernel",
    }
}

fn queues(out: &mut Lines, result: &RunResult) {
    for queue in &result.queues {
        let label = format!("{} queue {}", queue.interface, queue.queue);
        let verdicts = queue.xdp_verdicts.as_ref().map_or(0, |of| of.passed_unbound_packets);
        if queue.xdp_statistics.is_none() && verdicts != 0 {
            out.pair(
                &label,
                format!("without a socket: {} went up the stack", packets(verdicts)),
            );
            continue;
        }
        let mut text = format!(
            "received {}, sent {}, {} sendto(), {} poll() or recvfrom()",
            packets(queue.received_packets),
            packets(queue.sent_packets),
            packets(queue.kicks),
            packets(queue.waits)
        );
        let mut add = |name: &str, number: u64| {
            if number != 0 {
                text.push_str(&format!(", {name} {}", packets(number)));
            }
        };
        if let Some(kernel) = &queue.xdp_statistics {
            add("rx_dropped", kernel.rx_dropped);
            add("rx_ring_full", kernel.rx_ring_full);
            add("rx_fill_ring_empty", kernel.rx_fill_ring_empty_descs);
            add("rx_invalid_descs", kernel.rx_invalid_descs);
            add("tx_invalid_descs", kernel.tx_invalid_descs);
        }
        out.pair(&label, text);
    }
}
