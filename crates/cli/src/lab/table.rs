//! A lab for people: what it would do, what came out, and what there is.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use comfy_table::{CellAlignment, Table as Grid, presets};
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::schema::{Document, LabCell, LabResult, LabSteering, LoadKind, Outcome};
use ringside_nic::Knob;

use super::file::Text;
use super::folder::State;
use super::load::describe;
use super::machine::{self, Lacks};
use super::plan::{FarGuest, Guest, Place, Plan, Probe, Steering, Wire};
use super::run::{Cell, condition, time};
use super::study;
use crate::output::wrapped;
use crate::report::units::{self, plural};
use crate::report::{lab_stages, lab_words};
use crate::system;

/// One line before a run.
pub(super) fn summary(plan: &Plan, folder: &Path) -> String {
    format!(
        "{}: {}, {} of {} each, about {} at least; into {}",
        plan.title,
        plural(Cell::all(plan).len(), "cell"),
        plural(plan.rounds, "round"),
        units::time(plan.turn.as_secs_f64() * 1e9),
        duration(time(plan).as_secs()),
        folder.display()
    )
}

/// What a lab would do.
pub(super) fn plan(plan: &Plan) -> String {
    let mut text = format!("{}\n\n", plan.title);
    for (number, host) in plan.hosts.iter().enumerate() {
        let what = match &host.place {
            Place::Namespace => format!("a namespace, its probes on CPU {}", plan.cpu(number)),
            Place::Here => format!("this machine, its probes on CPU {}", plan.cpu(number)),
            Place::Serve(serve) => format!("another machine, where `ringside serve` runs: {}", serve.at),
            Place::Guest(there) => {
                text += &far_guest(plan, number, there);
                continue;
            }
        };
        _ = writeln!(text, "host   {}: {what}", host.name);
    }
    for (number, guest) in plan.guests.iter().enumerate() {
        let (host, how) = (&plan.hosts[guest.host].name, guest.attachment.name());
        let machine = match plan.guests.get(guest.machine).filter(|other| other.name != guest.name) {
            Some(other) => format!("one more NIC of {}", other.name),
            None => {
                let emulated = match plan.emulated_cpus(number) {
                    cpus if cpus == guest.cpus => String::new(),
                    cpus => format!(" ({cpus} if emulated)"),
                };
                format!("{} CPUs{emulated}, {} MiB", guest.cpus, guest.memory_mib)
            }
        };
        _ = writeln!(text, "guest  {} of {host}: {how}, {machine}", guest.name);
    }
    for link in &plan.links {
        let [a, b] = link.ends.map(|host| plan.hosts[host].name.as_str());
        let name = link.name.as_ref().map(|name| format!("{name}, ")).unwrap_or_default();
        let what = match &link.wire {
            Wire::Veth { queues, .. } => format!("veth, {}", plural(*queues, "queue")),
            Wire::Nics(names) => format!("the NICs {}", names.join(" and ")),
        };
        _ = writeln!(text, "link   {name}{a} to {b}: {what}, MTU {}", link.mtu);
    }
    for load in &plan.loads {
        _ = writeln!(text, "load   {}: {}", load.name, describe(plan, load));
    }
    for steering in &plan.steerings {
        _ = writeln!(text, "steer  {}", describe_steering(plan, steering));
    }
    for probe in &plan.probes {
        let kinds: Vec<&str> = probe.measures.iter().map(|kind| kind.name()).collect();
        text += &wrapped(
            &format!(
                "probe  {}: {}; {}{}{}",
                probe.name,
                probe.description,
                kinds.join(" and "),
                beside(plan, probe),
                if probe.is_traced { "; stages" } else { "" }
            ),
            "",
        );
    }
    _ = writeln!(
        text,
        "\n{}, {} of {} each: about {} at least",
        plural(Cell::all(plan).len(), "cell"),
        plural(plan.rounds, "round"),
        units::time(plan.turn.as_secs_f64() * 1e9),
        duration(time(plan).as_secs())
    );
    for note in plan.notes() {
        text += &wrapped(&format!("Note: {note}."), "");
    }
    text
}

/// What a lab takes, wherever it is run.
pub(super) fn needs(plan: &Plan) -> String {
    let list = |names: Vec<String>| names.join(", ");
    let mut all: Vec<String> = Vec::new();
    let caps = machine::needed_capabilities(plan);
    if !caps.is_empty() {
        all.push(format!(
            "root ({})",
            list(caps.iter().map(ToString::to_string).collect())
        ));
    }
    let cpus: BTreeSet<u32> = plan.cpus().map(|(_, cpu)| cpu).collect();
    if !cpus.is_empty() {
        all.push(format!(
            "CPUs {}",
            Knob::cpu_list(&cpus.into_iter().collect::<Vec<_>>())
        ));
    }
    let programs = machine::programs(plan);
    if !programs.is_empty() {
        all.push(format!(
            "programs: {}",
            list(programs.into_iter().map(str::to_owned).collect())
        ));
    }
    let guests = plan.guests.iter().enumerate();
    let first = guests.filter(|(at, of)| of.machine == *at);
    let machines: Vec<&Guest> = first.map(|(_, of)| of).collect();
    if !machines.is_empty() {
        let (cpus, memory) = machines
            .iter()
            .fold((0, 0), |(cpus, memory), of| (cpus + of.cpus, memory + of.memory_mib));
        all.push(format!(
            "QEMU for {} with {cpus} CPUs and {memory} MiB in all; with KVM they are fast",
            plural(machines.len(), "guest")
        ));
    }
    let nics: Vec<String> = plan
        .links
        .iter()
        .filter_map(|link| link.nics())
        .flatten()
        .cloned()
        .collect();
    if !nics.is_empty() {
        all.push(format!("the interfaces {}", list(nics)));
    }
    let devices: Vec<String> = plan
        .guests
        .iter()
        .filter_map(|of| Some(of.nic?.0.to_string()))
        .collect();
    if !devices.is_empty() {
        all.push(format!("the PCI devices {}", list(devices)));
    }
    let servers: Vec<String> = plan
        .hosts
        .iter()
        .filter_map(|host| match &host.place {
            Place::Serve(serve) => Some(serve.at.clone()),
            _ => None,
        })
        .collect();
    if !servers.is_empty() {
        all.push(format!("`ringside serve` at {}", list(servers)));
    }
    if all.is_empty() {
        return String::new();
    }
    let lines: String = all.iter().map(|need| wrapped(&format!("- {need}"), "  ")).collect();
    format!("\nIt needs:\n{lines}")
}

/// What is missing for it: why it cannot be run, or which rows it will not have.
pub(super) fn lacks(plan: &Plan, lacks: &Lacks) -> String {
    let sentence = |start: &str, why: &str| {
        let end = if why.ends_with('?') { "" } else { "." };
        wrapped(&format!("{start}: {why}{end}"), "")
    };
    let reasons = lacks.reasons(plan);
    if !reasons.is_empty() {
        let told = reasons.into_iter().map(|why| sentence("It cannot be run here", why));
        return told.collect();
    }
    let row = |(probes, why): &(Vec<usize>, String)| {
        let names: Vec<&str> = probes.iter().map(|number| plan.probes[*number].name.as_str()).collect();
        // Of a guest that no probe goes to there is no row.
        let rows = if names.is_empty() {
            String::new()
        } else {
            format!(", {}", names.join(", "))
        };
        sentence(&format!("Not to be had here{rows}"), why)
    };
    lacks.rows.iter().map(row).collect()
}

/// A guest that another machine's server is to start.
fn far_guest(plan: &Plan, number: usize, there: &FarGuest) -> String {
    let guest = &there.guest;
    let machine = match guest.machine == number {
        true => format!("{} CPUs, {} MiB", guest.cpus, guest.memory_mib),
        false => format!("one more NIC of {}", plan.hosts[guest.machine].name),
    };
    format!(
        "guest  {} of {}, which starts it: {} at {}, {}/{}, {machine}\n",
        guest.name,
        plan.hosts[guest.host].name,
        guest.attachment.name(),
        there.interface.as_deref().unwrap_or("its first interface for guests"),
        there.address.0,
        there.address.1
    )
}

/// Under what a probe has its turns, where that is not idle and beside all loads.
fn beside(plan: &Plan, probe: &Probe) -> String {
    let names: Vec<&str> = probe.loads.iter().map(|load| plan.loads[*load].name.as_str()).collect();
    let is_beside_all = names.len() == plan.loads.len();
    match (probe.is_idle, names.is_empty()) {
        (true, _) if is_beside_all => String::new(),
        (true, true) => "; idle only".to_owned(),
        (true, false) => format!("; idle, and beside {}", names.join(", ")),
        (false, _) => format!("; only beside {}", names.join(", ")),
    }
}

/// `right at b: RPS 0=1; its packets to CPU 1`
fn describe_steering(plan: &Plan, steering: &Steering) -> String {
    let settings = &steering.settings;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(
        settings
            .rules
            .iter()
            .map(|rule| format!("{} to queue {}", rule.0, rule.1)),
    );
    if !settings.rss.is_empty() {
        parts.push(format!("RSS over queues {}", Knob::cpu_list(&settings.rss)));
    }
    for (name, all) in [("IRQ", &settings.irqs), ("RPS", &settings.rps), ("XPS", &settings.xps)] {
        parts.extend(
            all.iter()
                .map(|one| format!("{name} of queue {} on CPU {}", one.0, Knob::cpu_list(&one.1))),
        );
    }
    parts.extend(
        settings
            .egress
            .iter()
            .map(|one| format!("PCP {} for socket priority {}", one.1, one.0)),
    );
    for (name, cpus) in [("virtual CPUs", &steering.vcpus), ("vhost", &steering.vhost)] {
        if !cpus.is_empty() {
            parts.push(format!("{name} on CPU {}", Knob::cpu_list(cpus)));
        }
    }
    if parts.is_empty() {
        parts.push("as it is".to_owned());
    }
    let asked = [("queue", steering.queue), ("CPU", steering.cpu)];
    let asked: Vec<String> = asked
        .iter()
        .filter_map(|(name, number)| Some(format!("{name} {}", (*number)?)))
        .collect();
    if !asked.is_empty() {
        parts.push(format!("packets are to land on {}", asked.join(", ")));
    }
    format!(
        "{} at {}: {}",
        steering.name,
        plan.hosts[steering.host].name,
        parts.join("; ")
    )
}

/// The matrix.
pub(super) fn render(document: &Document, terminal: bool) -> String {
    let Outcome::Lab(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{}\n{}\n\n", system::summary(&document.system), result.title);
    _ = writeln!(text, "{}", matrix(result, terminal));
    let repeated: u32 = result.cells.iter().map(|cell| cell.turns_repeated).sum();
    if repeated > 0 {
        let limit = STEAL_LIMIT * 100.0;
        let told =
            format!("Turns repeated, for the hypervisor took more than {limit:.0} % of the CPU time: {repeated}");
        text += &wrapped(&told, "  ");
    }
    for cell in &result.cells {
        let name = name(cell);
        if let Some(why) = &cell.unavailable {
            text += &wrapped(&format!("{name}: not to be had: {why}"), "  ");
        } else if let Some(why) = cell.failure.as_ref().filter(|_| cell.failed_turns > 0) {
            text += &wrapped(
                &format!(
                    "{name}: {} failed, the last one: {why}",
                    plural(cell.failed_turns, "turn")
                ),
                "  ",
            );
        }
    }
    if !result.stages.is_empty() {
        text += "\nWhere the time goes, traced in turns of their own; all stages are in the report:\n";
        for stages in &result.stages {
            text += &wrapped(&lab_stages::line(stages), "  ");
            text += &lab_stages::slow(stages).unwrap_or_default();
            text += &steered(
                &format!(
                    "{}, traced, {}",
                    stages.path,
                    condition(stages.condition != LoadKind::Idle)
                ),
                &stages.steering,
            );
        }
    }
    for cell in &result.cells {
        for load in &cell.loads {
            if let Some(rate) = lab_words::rate(load) {
                text += &wrapped(&format!("{}, {}: {rate}", name(cell), load.name), "  ");
            }
        }
        if let Some(redirected) = &cell.redirected {
            text += &wrapped(&format!("{}: {}", name(cell), lab_words::redirected(redirected)), "  ");
        }
        if let Some(tap) = &cell.tap {
            text += &wrapped(&format!("{}: {}", name(cell), lab_words::tap(tap)), "  ");
        }
        if let Some(clock) = &cell.clock {
            let uncertainty = units::time(clock.uncertainty_ns as f64);
            let by = format!("{}: by the other end's clock, known to ± {uncertainty}", name(cell));
            text += &wrapped(&by, "  ");
        }
        text += &told(cell);
    }
    text += "\n";
    text += &wrapped(
        &format!(
            "Times in µs, from the time at which a probe was to be sent to its reception by a \
             program; {} of {}, in turn. Ratios are of the medians of the rounds, paired, with a \
             bootstrap 95 % interval; \"-\": too few samples.",
            plural(result.rounds, "round"),
            units::time(result.turn_ns as f64)
        ),
        "",
    );
    if let Some(few) = lab_words::too_few(result.cells.iter().filter_map(|cell| cell.latency.corrected)) {
        text += &wrapped(&format!("{few}."), "");
    }
    for warning in &result.warnings {
        text += &wrapped(&format!("Warning: {warning}."), "");
    }
    text
}

/// Windows of a class, and where packets landed.
fn told(cell: &LabCell) -> String {
    let mut text = String::new();
    if let Some(windows) = &cell.schedule {
        let late = windows
            .late_most_ns
            .map(|ns| format!(", by {} at the most", units::time(ns as f64)));
        text += &wrapped(
            &format!(
                "{}: {} packets before and {} behind their window{}; {} left out, for it was over{}{}{}",
                name(cell),
                windows.early_packets,
                windows.late_packets,
                late.unwrap_or_default(),
                windows.skipped_packets,
                lab_words::missed(windows)
                    .map(|missed| format!("; {missed}"))
                    .unwrap_or_default(),
                lab_words::gap(windows)
                    .map(|gap| format!("; {gap}"))
                    .unwrap_or_default(),
                cell.latency
                    .jitter
                    .map(|jitter| format!("; {}", lab_words::jitter(&jitter)))
                    .unwrap_or_default()
            ),
            "  ",
        );
        if let Some(clocks) = lab_words::clocks(windows) {
            text += &wrapped(&format!("{}: {clocks}", name(cell)), "  ");
        }
        if !windows.windows.is_by_clock() {
            text += &wrapped(&format!("{}: {}", name(cell), lab_words::by_the_fastest(cell)), "  ");
        }
    }
    text + &steered(&name(cell), &cell.steering)
}

/// Where packets landed at ends that were steered.
fn steered(name: &str, all: &[LabSteering]) -> String {
    let mut text = String::new();
    for one in all {
        for sentence in &one.seen.sentences {
            let told = format!(
                "{name}, {} at {}: {}: {}",
                one.name,
                one.host,
                sentence.mark(),
                sentence.text
            );
            text += &wrapped(&told, "  ");
        }
    }
    text
}

fn name(cell: &LabCell) -> String {
    format!(
        "{}, {}, {}",
        cell.path,
        cell.latency.kind.name(),
        condition(cell.condition != LoadKind::Idle)
    )
}

pub(super) fn grid(terminal: bool) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(if terminal {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::ASCII_FULL_CONDENSED
    });
    grid
}

fn matrix(result: &LabResult, terminal: bool) -> Grid {
    let mut grid = grid(terminal);
    let base = format!("x {}", result.base);
    grid.set_header([
        "path", "time", "load", "min", "mean", "p50", "p99", "p99.9", "max", "stddev", "lost %", "x idle", &base,
    ]);
    for cell in result.cells.iter().filter(|cell| cell.unavailable.is_none()) {
        grid.add_row(row(cell));
    }
    for column in grid.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    grid
}

pub(super) fn row(cell: &LabCell) -> Vec<String> {
    let times = cell.latency.corrected;
    let none = || "-".to_owned();
    let micros = |ns: Option<f64>| ns.map_or_else(none, |ns| units::digits(ns / 1e3));
    let figure = |name: &str| {
        let figures = times.map(|times| times.figures());
        micros(figures.and_then(|all| all.into_iter().find(|(other, _)| *other == name)?.1))
    };
    let ratio = |ratio: &Option<ringside_measure::compare::Ratio>| match ratio {
        Some(ratio) => match ratio.low.zip(ratio.high) {
            Some((low, high)) => format!(
                "{} [{}-{}]",
                units::digits(ratio.median),
                units::digits(low),
                units::digits(high)
            ),
            None => units::digits(ratio.median),
        },
        None => none(),
    };
    vec![
        cell.path.clone(),
        cell.latency.kind.name().to_owned(),
        condition(cell.condition != LoadKind::Idle).to_owned(),
        figure("min"),
        figure("mean"),
        figure("p50"),
        figure("p99"),
        figure("p99.9"),
        figure("max"),
        micros(times.map(|times| times.stddev_ns)),
        cell.probes
            .loss_ratio()
            .map_or_else(none, |lost| units::digits(lost * 100.0)),
        ratio(&cell.ratio_to_idle),
        match &cell.base {
            Some(base) => format!("{} (x {base})", ratio(&cell.ratio_to_base)),
            None => ratio(&cell.ratio_to_base),
        },
    ]
}

/// The studies, and the runs of a folder.
pub(super) fn list(folder: &Path, runs: Vec<(PathBuf, Result<State>)>) -> Result<String> {
    let mut text = "Studies, for `ringside lab run NAME`:\n".to_owned();
    for (name, file) in study::ALL {
        let plan = Plan::read(&Text {
            name: name.to_owned(),
            text: file.to_owned(),
        })?;
        _ = writeln!(
            text,
            "  {name:<18} {} ({})",
            plan.title,
            duration(time(&plan).as_secs())
        );
    }
    if runs.is_empty() {
        _ = writeln!(text, "\nNo runs in {}.", folder.display());
        return Ok(text);
    }
    _ = writeln!(text, "\nRuns in {}:", folder.display());
    for (path, state) in runs {
        let state = match state {
            Ok(state) => format!("{}, {}", state.title, progress(&state)),
            Err(error) => format!("cannot be read: {error:#}"),
        };
        _ = writeln!(text, "  {}  {state}", path.display());
    }
    Ok(text)
}

fn progress(state: &State) -> String {
    match state {
        State { is_finished: true, .. } => "finished".to_owned(),
        State {
            is_running: true,
            turns,
            of,
            ..
        } => format!("running, {turns} of {of} turns"),
        State { turns, of, .. } => format!("ended after {turns} of {of} turns; --resume goes on"),
    }
}

/// `45 s`, `3 min`
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{} s", seconds.max(1)),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}
