//! How an interface is set, for people.

use std::fmt::{self, Write as _};

use ringside_nic::{Channels, Qdisc, QueueDetail, QueueKind, Threaded};
use ringside_xsk::{Capabilities, KernelCapabilities};

use super::state::{Attached, NapiState, State};

/// Width of what is asked.
const WHAT: usize = 16;

/// Returns the answer in one screen: modes, how the interface is set, and what is missing.
pub(super) fn brief(capabilities: &Capabilities, state: &State) -> Result<String, fmt::Error> {
    let device = &capabilities.device;
    let driver = capabilities.driver.as_ref();
    let driver = driver.map_or("no driver".to_owned(), |driver| format!("driver {driver}"));
    let mut text = format!("{}: {driver}, {}", state.interface, super::modes(device));
    let mut line = |what: &str, words: &str| write!(text, "\n  {what:<WHAT$}{words}");
    state.settings(&mut line)?;
    line("queues", &queues(state.queues.as_deref()))?;
    line("metadata", &super::metadata(device))?;
    kernel(&capabilities.kernel, &mut line)?;
    text.push_str("\nEach feature, queue and NAPI instance: -v\n");
    Ok(text)
}

/// Writes what of AF_XDP the kernel has, lacks, and does not let this user try.
fn kernel<F>(kernel: &KernelCapabilities, line: &mut F) -> fmt::Result
where
    F: FnMut(&str, &str) -> fmt::Result,
{
    let which = |known: Option<bool>| {
        kernel
            .features()
            .filter(move |feature| feature.support.known() == known)
    };
    let (there, all) = (which(Some(true)).count(), kernel.features().count());
    line(
        "kernel",
        &format!("Linux {}: {there} of {all} features of AF_XDP", kernel.release),
    )?;
    for feature in which(Some(false)) {
        line("missing", &format!("{} (Linux {})", feature.what, feature.since))?;
    }
    let reasons = which(None).filter_map(|feature| feature.support.reason());
    let mut reasons: Vec<&str> = reasons.collect();
    reasons.sort_unstable();
    reasons.dedup();
    match which(None).count() {
        0 => Ok(()),
        number => line("unknown", &format!("{number} features: {}", reasons.join("; "))),
    }
}

/// Counts queues, and names those that an AF_XDP socket is bound to.
fn queues(queues: Option<&[QueueDetail]>) -> String {
    let Some(queues) = queues else {
        return "unknown (needs Linux 6.8)".to_owned();
    };
    if queues.is_empty() {
        return "none are active".to_owned();
    }
    let of = |kind| queues.iter().filter(move |queue| queue.kind == kind);
    let bound: Vec<String> = of(QueueKind::Rx)
        .filter(|queue| queue.xsk == Some(true))
        .map(|queue| queue.id.to_string())
        .collect();
    let sockets = match (bound.is_empty(), queues.iter().all(|queue| queue.xsk.is_none())) {
        (_, true) => "AF_XDP sockets unknown (needs Linux 6.15)".to_owned(),
        (true, _) => "no AF_XDP socket".to_owned(),
        (false, _) => format!("an AF_XDP socket is bound to RX queue {}", bound.join(", ")),
    };
    let (rx, tx) = (of(QueueKind::Rx).count(), of(QueueKind::Tx).count());
    format!("{rx} RX, {tx} TX; {sockets}")
}

impl State {
    /// Writes a line for each setting of the interface as a whole.
    fn settings(&self, line: &mut impl FnMut(&str, &str) -> fmt::Result) -> fmt::Result {
        let link = match (self.up, self.carrier) {
            (false, _) => "down",
            (true, false) => "up, but without a carrier",
            (true, true) => "up",
        };
        line("link", &format!("{link}, MTU {}", self.mtu_bytes))?;
        line(
            "channels",
            &self.channels.map_or("none that can be set".into(), channels),
        )?;
        let rings = self.rings.map(|rings| {
            let (rx, tx) = ((rings.rx, rings.max_rx), (rings.tx, rings.max_tx));
            format!("RX {} of {}, TX {} of {} descriptors", rx.0, rx.1, tx.0, tx.1)
        });
        line("rings", rings.as_deref().unwrap_or("none that can be set"))?;
        let program = self.xdp_program.as_ref().map(program);
        line("XDP program", program.as_deref().unwrap_or("none"))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The interface {} now", self.interface)?;
        let mut line = |what: &str, text: &str| write!(f, "\n  {what:<WHAT$}{text}");
        self.settings(&mut line)?;
        line("qdiscs", &qdiscs(&self.qdiscs))?;
        match &self.queues {
            None => line("queues", "unknown (needs Linux 6.8)")?,
            Some(queues) if queues.is_empty() => line("queues", "none are active")?,
            Some(queues) => queues.iter().try_for_each(|queue| {
                let kind = match queue.kind {
                    QueueKind::Rx => "RX",
                    QueueKind::Tx => "TX",
                };
                line(&format!("{kind} queue {}", queue.id), &uses(queue))
            })?,
        }
        for napi in self.napis.iter().flatten() {
            line(&format!("NAPI {}", napi.id), &instance(napi))?;
        }
        Ok(())
    }
}

/// Kinds with how many there are of each; and whether launch times of packet sockets are kept.
fn qdiscs(qdiscs: &[Qdisc]) -> String {
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for qdisc in qdiscs {
        match kinds.iter_mut().find(|(kind, _)| *kind == qdisc.kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&qdisc.kind, 1)),
        }
    }
    let etf = kinds.iter().any(|(kind, _)| *kind == "etf");
    let texts: Vec<String> = kinds
        .into_iter()
        .map(|(kind, count)| match count {
            1 => kind.to_owned(),
            count => format!("{count} x {kind}"),
        })
        .collect();
    let texts = if texts.is_empty() {
        "none".into()
    } else {
        texts.join(", ")
    };
    match etf {
        true => texts + "; etf keeps the launch times of packet sockets (SO_TXTIME)",
        false => texts + "; without etf nothing keeps the launch times of packet sockets (SO_TXTIME)",
    }
}

/// Those kinds that the driver has, each with its maximum.
fn channels(channels: Channels) -> String {
    let kinds = [
        ("RX", channels.rx, channels.max_rx),
        ("TX", channels.tx, channels.max_tx),
        ("combined", channels.combined, channels.max_combined),
        ("other", channels.other, channels.max_other),
    ];
    let there = kinds.iter().filter(|(_, now, most)| now.max(most) != &0);
    let texts: Vec<String> = there
        .map(|(kind, now, most)| format!("{kind} {now} of {most}"))
        .collect();
    texts.join(", ")
}

fn program(program: &Attached) -> String {
    let name = program.name.as_deref().unwrap_or("of unknown name");
    let mut text = format!("{name} (id {}), attached {}", program.id, program.mode);
    for holder in &program.holders {
        text.push_str(&format!(", held by process {} ({})", holder.pid, holder.command));
    }
    text
}

fn uses(queue: &QueueDetail) -> String {
    let napi = queue.napi.map_or("NAPI not reported".into(), |id| format!("NAPI {id}"));
    let socket = match queue.xsk {
        Some(true) => "an AF_XDP socket is bound",
        Some(false) => "no AF_XDP socket",
        None => "AF_XDP socket unknown (needs Linux 6.15)",
    };
    let io_uring = if queue.io_uring == Some(true) { ", io_uring" } else { "" };
    format!("{napi}, {socket}{io_uring}")
}

fn instance(napi: &NapiState) -> String {
    let polled = match napi.threaded {
        Threaded::Off => "polled by the software interrupt",
        Threaded::On => "polled by a kernel thread",
        _ => "polled by a kernel thread that never stops",
    };
    let mut text = napi.irq.map_or(String::new(), |irq| format!("interrupt {irq}, "));
    text.push_str(polled);
    if let (Some(polls), Some(nanos)) = (napi.defer_hard_irqs, napi.gro_flush_timeout_ns) {
        text.push_str(&format!(", defer-hard-irqs {polls}, gro-flush-timeout {nanos} ns"));
    }
    match napi.irq_suspend_timeout_ns {
        None | Some(0) => {}
        Some(nanos) => text.push_str(&format!(", irq-suspend-timeout {nanos} ns")),
    }
    text
}
