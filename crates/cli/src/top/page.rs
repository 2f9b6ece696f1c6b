//! What was seen, in lines: for the terminal, and as text. Tables have less than 80 columns; sentences as many as there are.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ringside_nic::QueueKind;

use super::view::{Cpu, DeviceQueue, Drops, Interface, Process, Queue, Times, View};
use crate::output::{mode_name, wrapped_to};
use crate::report::units::{short, time};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Letters of the bar of frames.
const BAR: usize = 14;

/// A page: a running command or an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The process with this number.
    Process(u32),
    /// The interface at this place.
    Interface(usize),
}

/// What there are pages of.
pub(super) fn subjects(view: &View) -> Vec<Subject> {
    let processes = view.processes.iter().map(|process| Subject::Process(process.pid));
    let interfaces = (0..view.interfaces.len()).map(Subject::Interface);
    processes.chain(interfaces).collect()
}

/// The name of a page.
pub(super) fn title(view: &View, subject: Subject) -> String {
    match subject {
        Subject::Process(pid) => {
            let mut all = view.processes.iter();
            let command = all
                .find(|process| process.pid == pid)
                .map_or("", |process| &process.command);
            format!("{command} {pid}")
        }
        Subject::Interface(at) => view.interfaces.get(at).map_or(String::new(), |of| of.name.clone()),
    }
}

/// One page, for so many columns.
pub(super) fn lines(view: &View, subject: Subject, columns: usize) -> Vec<Line<'static>> {
    let mut lines = match subject {
        Subject::Process(pid) => {
            let mut all = view.processes.iter();
            all.find(|process| process.pid == pid)
                .map_or(Vec::new(), |of| process(of, columns))
        }
        Subject::Interface(at) => view
            .interfaces
            .get(at)
            .map_or(Vec::new(), |of| interface(of, view, columns)),
    };
    lines.extend(cpus(&view.cpus));
    lines.extend(notes(view, columns));
    lines
}

/// All of it, for a reader without a terminal.
pub(super) fn text(view: &View) -> String {
    const COLUMNS: usize = 100;
    let mut lines: Vec<Line<'static>> = Vec::new();
    for process_seen in &view.processes {
        lines.extend(process(process_seen, COLUMNS));
    }
    if view.processes.is_empty() {
        lines.extend(nobody(view, COLUMNS));
    }
    for of in &view.interfaces {
        lines.extend(interface(of, view, COLUMNS));
    }
    lines.extend(cpus(&view.cpus));
    lines.extend(notes(view, COLUMNS));
    let texts = lines.iter().map(|line| {
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        text.trim_end().to_owned() + "\n"
    });
    texts.collect()
}

/// What to do where nothing runs.
pub(super) fn nobody(view: &View, columns: usize) -> Vec<Line<'static>> {
    let directory = ringside_nic::state_dir::path();
    let here = format!(
        "No ringside command runs here that tells of itself in {}.",
        directory.display()
    );
    let mut lines = sentence(&here, "", columns);
    if view.processes_elsewhere != 0 {
        let there = format!(
            "{} in other network namespaces: ip netns exec NAME ringside top",
            view.processes_elsewhere
        );
        lines.extend(sentence(&there, "", columns));
    }
    lines.push(Line::default());
    lines
}

fn sentence(text: &str, indent: &str, columns: usize) -> Vec<Line<'static>> {
    let wrapped = wrapped_to(columns, text, indent);
    wrapped.lines().map(|line| Line::from(line.to_owned())).collect()
}

/// A name that is seen at once, and what there is to say of it.
fn heading(name: &str, rest: &str, columns: usize) -> Vec<Line<'static>> {
    let mut lines = sentence(&format!("{name} {rest}"), "", columns);
    if let Some(first) = lines.first_mut() {
        let text: String = first.spans.iter().map(|span| span.content.as_ref()).collect();
        if let Some(rest) = text.strip_prefix(name) {
            *first = Line::from(vec![Span::styled(name.to_owned(), BOLD), Span::raw(rest.to_owned())]);
        }
    }
    lines
}

fn dim(text: impl Into<String>) -> Line<'static> {
    Line::from(Span::styled(text.into(), DIM))
}

/// A rate in so many columns, right-aligned; `-` where it is not known.
fn cell(rate: Option<f64>) -> String {
    let text = rate.map_or("-".to_owned(), short);
    format!("{text:>9}")
}

fn process(process: &Process, columns: usize) -> Vec<Line<'static>> {
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let uptime = time(process.uptime_ns as f64);
    let words = process.command_line.iter().skip(1);
    let command_line = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    let name = format!("{} {}", process.command, process.pid);
    let mut lines = heading(&name, &format!("up {uptime}: ringside {command_line}"), columns);
    if !process.queues.is_empty() {
        lines.push(dim(format!(
            "{:<14}{:<11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "queue", "mode", "rx pkt/s", "rx B/s", "tx pkt/s", "tx B/s", "wake/s", "kick/s"
        )));
    }
    for queue in &process.queues {
        lines.push(Line::from(format!(
            "{:<14}{:<11}{}{}{}{}{}{}",
            format!("{}:{}", queue.interface, queue.queue),
            mode_name(queue.mode),
            cell(queue.received_pps),
            cell(queue.received_bytes_per_s),
            cell(queue.sent_pps),
            cell(queue.sent_bytes_per_s),
            cell(queue.wakeups_per_s),
            cell(queue.kicks_per_s),
        )));
        lines.push(Line::from(frames(queue)));
        lines.extend(lost(&queue.drops, "  "));
        if let Some(rate @ 1.0..) = queue.fill_ring_empty_per_s {
            let text = format!("  the fill ring was found empty: {}/s; more --frames help", short(rate));
            lines.push(Line::from(text));
        }
    }
    if let Some(times) = &process.latency {
        lines.extend(latency(times));
    }
    lines.push(Line::default());
    lines
}

/// `  [FFFFFFF.......] fill 256 of 512, rx 0, …`: a letter for each place, as many as it has of the frames.
fn frames(queue: &Queue) -> String {
    let Some(frames) = queue.frames else {
        return "  where its frames are it has not told yet".to_owned();
    };
    let total = frames.total().max(1) as usize;
    let places = [
        ('F', frames.fill),
        ('R', frames.rx),
        ('U', frames.user),
        ('T', frames.tx),
        ('C', frames.completion),
    ];
    let (mut bar, mut until) = (String::new(), 0);
    for (letter, count) in places {
        until += count as usize;
        while bar.len() < (until * BAR).div_ceil(total).min(BAR) && count != 0 {
            bar.push(letter);
        }
    }
    format!(
        "  [{bar:.<BAR$}] fill {} rx {} user {} tx {} completion {} free {}",
        frames.fill, frames.rx, frames.user, frames.tx, frames.completion, frames.free
    )
}

/// Losses, one a line; reasons that have none are left out.
fn lost(drops: &[Drops], indent: &str) -> Vec<Line<'static>> {
    let some = drops
        .iter()
        .filter(|drops| drops.packets != 0 || drops.packets_per_s.unwrap_or(0.0) != 0.0);
    some.map(|drops| {
        let rate = drops.packets_per_s.map_or("-".to_owned(), short);
        #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
        let all = short(drops.packets as f64);
        let text = format!("{indent}lost: {}: {rate}/s, {all} in all", drops.reason);
        Line::from(Span::styled(text, BAD))
    })
    .collect()
}

fn latency(times: &Times) -> Vec<Line<'static>> {
    let mut lines = vec![dim(format!(
        "{:<14}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "round trips", "min", "mean", "p50", "p90", "p99", "p99.9", "max"
    ))];
    for (what, summary) in [("  now", &times.interval), ("  all", &times.whole)] {
        let mut text = format!("{what:<14}");
        match summary {
            Some(summary) => {
                for (_, ns) in summary.figures() {
                    text.push_str(&format!("{:>9}", ns.map_or("-".to_owned(), time)));
                }
            }
            None => text.push_str("  none"),
        }
        lines.push(Line::from(text));
    }
    lines
}

fn interface(of: &Interface, view: &View, columns: usize) -> Vec<Line<'static>> {
    let driver = of.driver.as_deref().unwrap_or("no driver");
    let rest = format!("({driver}) {}, MTU {}", of.state, of.mtu_bytes);
    let mut lines = heading(&of.name, &rest, columns);
    if let Some(program) = &of.xdp_program {
        let name = program.name.as_deref().unwrap_or("of unknown name");
        let mut text = format!("XDP program {name} (id {}), {}", program.id, program.mode);
        for holder in &program.holders {
            text.push_str(&format!(", held by {} ({})", holder.pid, holder.command));
        }
        lines.extend(sentence(&text, "", columns));
    }
    lines.push(dim(format!(
        "{:<25}{:>9}{:>9}{:>9}{:>9}",
        "link", "rx pkt/s", "rx B/s", "tx pkt/s", "tx B/s"
    )));
    lines.push(Line::from(format!(
        "{:<25}{}{}{}{}",
        "",
        cell(of.received_pps),
        cell(of.received_bytes_per_s),
        cell(of.sent_pps),
        cell(of.sent_bytes_per_s),
    )));
    for queue in &of.queues {
        lines.extend(sentence(&device_queue(queue), "  ", columns));
    }
    lines.extend(lost(&of.drops, ""));
    for interrupt in &of.interrupts {
        let cpus = interrupt.per_s_by_cpu.iter().filter(|(_, rate)| *rate != 0.0);
        let cpus = cpus.map(|(cpu, rate)| format!("CPU {cpu} {}/s", short(*rate)));
        let cpus = Some(cpus.collect::<Vec<_>>().join(", ")).filter(|cpus| !cpus.is_empty());
        let cpus = cpus.as_deref().unwrap_or("none");
        let text = format!("irq {} {}: {cpus}", interrupt.number, interrupt.name);
        lines.extend(sentence(&text, "  ", columns));
    }
    if !view.af_xdp_processes.is_empty() {
        let each = view.af_xdp_processes.iter();
        let each = each.map(|user| format!("{} ({}, {})", user.pid, user.command, user.sockets));
        let each = each.collect::<Vec<_>>().join(", ");
        let text = format!("AF_XDP sockets in this namespace (process, name, number): {each}");
        lines.extend(sentence(&text, "", columns));
    }
    lines.push(Line::default());
    lines
}

/// `rx 0 AF_XDP: xdp_packets 1.02 M/s, …`: the counters that move.
fn device_queue(queue: &DeviceQueue) -> String {
    let kind = match queue.kind {
        QueueKind::Rx => "rx",
        QueueKind::Tx => "tx",
    };
    let socket = match (&queue.holder, queue.af_xdp_socket) {
        (Some(holder), _) => format!("AF_XDP of {} ({})", holder.pid, holder.command),
        (None, Some(true)) => "AF_XDP".to_owned(),
        (None, _) => String::new(),
    };
    let moving = queue
        .counters
        .iter()
        .filter(|(_, counter)| counter.per_s.is_some_and(|rate| rate != 0.0));
    let moving = moving.map(|(name, counter)| format!("{name} {}/s", short(counter.per_s.unwrap_or(0.0))));
    let moving = moving.collect::<Vec<_>>().join(", ");
    let what = match (moving.is_empty(), queue.counters.is_empty()) {
        (false, _) => moving,
        (true, false) => "quiet".to_owned(),
        (true, true) => "the driver tells nothing of it".to_owned(),
    };
    let socket = if socket.is_empty() { socket } else { socket + ": " };
    format!("{kind} {} {socket}{what}", queue.queue)
}

fn cpus(cpus: &[Cpu]) -> Vec<Line<'static>> {
    if cpus.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![dim(format!(
        "{:<8}{:>8}{:>8}{:>8}{:>8}{:>12}{:>12}{:>12}",
        "CPU", "user %", "system", "softirq", "steal", "NET_RX/s", "NET_TX/s", "irq/s"
    ))];
    for cpu in cpus {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), short);
        lines.push(Line::from(format!(
            "{:<8}{:>8.0}{:>8.0}{:>8.0}{:>8.0}{:>12}{:>12}{:>12}",
            cpu.cpu,
            cpu.user_percent,
            cpu.system_percent,
            cpu.softirq_percent,
            cpu.steal_percent,
            rate(cpu.net_rx_per_s),
            rate(cpu.net_tx_per_s),
            rate(cpu.interrupts_per_s),
        )));
    }
    lines
}

fn notes(view: &View, columns: usize) -> Vec<Line<'static>> {
    let lines = view.notes.iter().flat_map(|note| sentence(note, "", columns));
    lines.map(|line| line.style(DIM)).collect()
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
