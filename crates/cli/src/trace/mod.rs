//! `ringside trace`: where each microsecond of a packet's way goes, and who took it when one was slow.
//!
//! ```text
//!  ends.rs   sender ── probe: intended, sent ──▶ kernel ──▶ receiver ── heard, XDP program's time ──▶ board.rs
//!                                                  │ hooks (ringside_bpf::Tracer)                        │
//!  collect.rs                                      └─────────▶ events ──▶ Correlator ◀───────────────────┘
//!                                                                            └─▶ Breakdown, Slowest ──▶ result.rs
//!
//!  across.rs  asker ──▶ kernel ──▶ guest's kernel (recorded there: listen.rs) ──▶ … back: both on one axis of time
//! ```

mod across;
mod args;
mod board;
mod brief;
mod collect;
mod ends;
mod flight;
mod listen;
mod path;
mod result;
mod steal;
mod table;
mod tasks;

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result, bail};
use ringside_bpf::MissingHook;
use ringside_measure::probe::Clock;
use ringside_measure::schema::{self, Document, Outcome, TraceResult, TracedPath};
use ringside_nic::host::CpuTimes;

pub(crate) use across::{Crossed, Far, Guest, RECORDING, across, record_line, told_to};
pub(crate) use args::Args;
pub(crate) use ends::{Asker, Ends, Hearer, Sender};
pub(crate) use listen::Recording;
pub(crate) use path::{Setup, Slots, Traced, trace};
pub(crate) use result::Names;
pub(crate) use table::{measured_words, slow_words, stage_name};

use args::Receiver;

use crate::compare::Bed;
use crate::session::nanos;
use crate::stop::Stop;
use crate::{output, system};

/// Traces, prints the table, and writes the JSON.
///
/// # Errors
/// When the path cannot be had, the kernel refuses the tracing programs, or no packet was traced; a receiver that fails beside
/// others is told with its reason.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    output::check(&args.output)?;
    let stop = Stop::on_signals().context("listening for signals")?;
    if let Some((path, session)) = args.events.as_ref().zip(args.session) {
        return listen::record(args, session, path, &stop);
    }
    let times = CpuTimes::read()?;
    let (mut all, description, interfaces) = match args.session {
        Some(session) => {
            let traced = listen::trace(args, session, &result::Names::here(), &stop)?;
            let what = "probes of others, in all namespaces of this machine".to_owned();
            (vec![(traced.path, traced.missing)], what, Vec::new())
        }
        None => own(args, &stop)?,
    };
    let passed = CpuTimes::read()?.since(&times).sum();
    let mut missing: Vec<MissingHook> = Vec::new();
    for hook in all.iter_mut().flat_map(|(_, missing)| missing.drain(..)) {
        if !missing.contains(&hook) {
            missing.push(hook);
        }
    }
    let paths: Vec<TracedPath> = all.into_iter().map(|(path, _)| path).collect();
    let result = TraceResult {
        clock: Clock::Monotonic,
        one_of: args.one_of,
        interval_ns: args.session.is_none().then(|| nanos(args.interval())),
        missing: missing.into_iter().map(told_missing).collect(),
        steal_percent: passed.fraction(passed.steal).map(|part| part * 100.0),
        warnings: warnings(&paths),
        paths,
    };
    let document = system::document(interfaces, Outcome::Trace(Box::new(result)));
    tell(args, &document, &description)
}

/// For the result.
pub(crate) fn told_missing(hook: MissingHook) -> schema::MissingHook {
    schema::MissingHook {
        hook: hook.hook,
        tells: hook.tells.to_owned(),
        reason: hook.reason,
    }
}

type Own = (Vec<(TracedPath, Vec<MissingHook>)>, String, Vec<schema::Interface>);

/// Our own sender and receivers, one after the other.
fn own(args: &Args, stop: &Stop) -> Result<Own> {
    args.bench.check_cpus()?;
    let bed = Bed::open(&args.bench, &[args.size])?;
    let names = result::Names::of(&bed);
    eprintln!(
        "{}: {} receiver(s), {:.1} s each",
        bed.description(),
        args.receivers.len(),
        args.time.as_secs_f64()
    );
    let mut all = Vec::new();
    let mut failure = None;
    for (number, receiver) in args.receivers.iter().enumerate() {
        if stop.is_set() {
            break;
        }
        // Packets of one receiver that are late are not the next one's.
        let session = std::process::id().wrapping_add(u32::try_from(number).unwrap_or(0) << 22);
        match one(args, &bed, &names, *receiver, session, stop) {
            Ok(traced) => all.push((traced.path, traced.missing)),
            Err(error) => {
                all.push((failed(receiver.name(), &error), Vec::new()));
                failure = Some(error);
            }
        }
    }
    if all.iter().all(|(path, _)| path.failure.is_some()) {
        match failure {
            Some(error) => return Err(error.context("nothing was traced")),
            None => bail!("nothing was traced: it was ended before the first receiver"),
        }
    }
    let notes = bed.description();
    let interfaces = bed.records();
    Ok((all, notes, interfaces))
}

/// One receiver.
fn one(args: &Args, bed: &Bed, names: &Names, receiver: Receiver, session: u32, stop: &Stop) -> Result<Traced> {
    let _cut = (receiver == Receiver::AfPacket)
        .then(|| Bed::cut_stack_off(&bed.b))
        .transpose()?;
    let hearer = Hearer::open(receiver, bed, args.size)?;
    let (sender, kind) = Sender::open(bed, args.size, session, args.interval())?;
    eprintln!("{}: from a {kind}", receiver.name());
    let setup = Setup {
        name: receiver.name(),
        session,
        one_of: args.one_of,
        disturbers: !args.no_disturbers,
        stop_above: args.stop_above,
        time: args.time,
        count: args.count,
        settle: args.bench.settle(),
        slots: (!args.no_cost).then_some(Slots {
            length: args.bench.slot,
            pairs: None,
            count: None,
        }),
        cpus: args.bench.cpus,
        carriers: Vec::new(),
        vcpus: Vec::new(),
    };
    trace(&setup, Ends::Two(sender, hearer), names, &mut || Ok(()), stop)
}

fn failed(receiver: &str, error: &anyhow::Error) -> TracedPath {
    TracedPath {
        receiver: Some(receiver.to_owned()),
        failure: Some(format!("{error:#}")),
        sent_packets: None,
        received_packets: None,
        traced_packets: 0,
        incomplete_packets: 0,
        lost_events: 0,
        stages: Vec::new(),
        whole: None,
        whole_hdr: None,
        sum_mean_ns: 0.0,
        measured: None,
        end: None,
        disordered_packets: 0,
        clock_error_ns: 0,
        cost: None,
        slow: None,
        recorded: None,
    }
}

fn warnings(paths: &[TracedPath]) -> Vec<String> {
    let mut all = Vec::new();
    for path in paths {
        let of = path
            .receiver
            .as_deref()
            .map_or(String::new(), |name| format!("{name}: "));
        if path.lost_events > 0 {
            all.push(format!(
                "{of}{} events were lost, for they came faster than they were read: trace fewer packets with --one-of",
                path.lost_events
            ));
        }
        if path.incomplete_packets > path.traced_packets / 10 {
            all.push(format!(
                "{of}{} packets are in no figure, since they began or ended elsewhere than the {} that are",
                path.incomplete_packets, path.traced_packets
            ));
        }
    }
    all
}

/// The table for people, on standard output unless the JSON goes there.
fn tell(args: &Args, document: &Document, description: &str) -> Result<()> {
    let terminal = if args.output.json {
        std::io::stderr().is_terminal()
    } else {
        std::io::stdout().is_terminal()
    };
    let text = match args.verbose || args.output.json {
        true => table::render(document, description, terminal),
        false => brief::render(document, description),
    };
    if args.output.json {
        output::note(text.trim_end());
    }
    output::deliver_run(&args.output, document, &text, !args.verbose)
}
