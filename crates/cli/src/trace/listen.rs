//! Others send and receive: what the kernel tells of their probes.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ringside_bpf::{TraceOptions, Tracer};
use ringside_measure::trace::Correlator;

use super::across::{self, Inside, RECORDING};
use super::args::{Args, Session};
use super::collect::{Collector, Seen, idle_states, named};
use super::path::Traced;
use super::result::{self, Names};
use crate::clock::now_ns;
use crate::stop::Stop;

/// How often the rings are read.
const READ: Duration = Duration::from_millis(20);
/// What had a CPU, that is written down at the most.
const MOST_DISTURBERS: usize = 1 << 18;
/// A packet of which nothing was heard for so long is over.
const OVER_NS: u64 = 300_000_000;

/// Traces until the time is over, there are packets enough, or a signal.
pub(super) fn trace(args: &Args, session: Session, names: &Names, stop: &Stop) -> Result<Traced> {
    let mut tracer = load(args, session, !args.no_disturbers)?;
    let mut collector = Collector::new(tracer.reader()?, Correlator::of_others(), args.stop_above);
    tracer.attach()?;
    eprintln!("tracing for {:.1} s", args.time.as_secs_f64());
    let begun = Instant::now();
    let is_enough = |collector: &Collector| {
        let traced = args
            .count
            .is_some_and(|count| collector.breakdown.whole().samples() >= count);
        traced || collector.recorded.is_some()
    };
    while begun.elapsed() < args.time && !stop.is_set() && !is_enough(&collector) {
        thread::sleep(READ);
        collector.read()?;
        collector.settle(now_ns().saturating_sub(OVER_NS), true);
    }
    tracer.detach();
    collector.read()?;
    collector.settle(u64::MAX, true);
    if collector.breakdown.whole().samples() == 0 {
        let which = match session {
            Session::Any => "no probe".to_owned(),
            Session::One(session) => format!("no probe of session {session}"),
        };
        bail!(
            "{which} passed two points of its way within {:.1} s: does somebody send, such as ringside ping, on this machine? Packets \
             of XDP sockets are seen only where they pass the kernel's stack",
            begun.elapsed().as_secs_f64()
        );
    }
    let lost = tracer.lost()?;
    Ok(Traced {
        path: result::path(&collector, names, lost),
        missing: tracer.missing().to_vec(),
    })
}

/// Writes all that is seen into a file when the time is over, or when it is told to end.
pub(super) fn record(args: &Args, session: Session, path: &Path, stop: &Stop) -> Result<()> {
    let mut tracer = load(args, session, true)?;
    let idle = idle_states();
    let reader = tracer.reader()?;
    tracer.attach()?;
    eprintln!("{RECORDING}");
    let begun = Instant::now();
    let (mut events, mut disturbers, mut forgotten) = (Vec::new(), Vec::new(), 0);
    let mut is_over = false;
    while !is_over {
        thread::sleep(READ);
        is_over = begun.elapsed() >= args.time || stop.is_set();
        if is_over {
            tracer.detach();
        }
        let (read, others) = reader.read()?;
        events.extend(read.iter().map(|event| Seen::from(event).row()));
        let room = MOST_DISTURBERS - disturbers.len();
        forgotten += others.len().saturating_sub(room) as u64;
        disturbers.extend(
            others
                .into_iter()
                .take(room)
                .map(|other| across::row(named(other, &idle))),
        );
    }
    let inside = Inside {
        interfaces: Names::here().rows(),
        missing: tracer.missing().iter().cloned().map(super::told_missing).collect(),
        lost_events: tracer.lost()?,
        events,
        disturbers,
        forgotten_disturbers: forgotten,
    };
    let json = serde_json::to_vec(&inside).context("writing what was seen as JSON")?;
    fs::write(path, json).with_context(|| format!("writing {}", path.display()))
}

fn load(args: &Args, session: Session, disturbers: bool) -> Result<Tracer> {
    Ok(Tracer::load(TraceOptions {
        session: match session {
            Session::Any => None,
            Session::One(session) => Some(session),
        },
        one_of: args.one_of,
        disturbers,
    })?)
}
