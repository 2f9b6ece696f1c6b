//! Others send and receive: what the kernel tells of their probes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use ringside_bpf::{TraceOptions, TraceReader, Tracer};
use ringside_measure::trace::Correlator;
use signal_hook::consts::SIGUSR1;

use super::across::{self, Inside, RECORDING};
use super::args::{Args, Session};
use super::collect::{Collector, Seen, idle_states, named};
use super::path::Traced;
use super::result::{self, Names};
use super::steal::Steal;
use super::tasks::TaskNames;
use crate::clock::now_ns;
use crate::stop::Stop;

/// How often the rings are read.
const READ: Duration = Duration::from_millis(20);
/// What is written down at the most, so that it fits a message to another machine: 16 MiB, some 100 bytes for a row.
const MOST_EVENTS: usize = 80_000;
const MOST_DISTURBERS: usize = 50_000;
/// Time without an event after which a packet has ended, in addition to `--stop-above`.
const OVER: Duration = Duration::from_secs(1);

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
        traced || collector.flight.recorded.is_some()
    };
    let over = OVER + args.stop_above.unwrap_or_default();
    let over_ns = u64::try_from(over.as_nanos()).unwrap_or(u64::MAX);
    while begun.elapsed() < args.time && !stop.is_set() && !is_enough(&collector) {
        thread::sleep(READ);
        // All events up to here are read below, however long this thread has no CPU meanwhile.
        let now = now_ns();
        collector.read()?;
        collector.settle(now.saturating_sub(over_ns), true);
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
        path: result::path(&mut collector, names, lost),
        missing: tracer.missing().to_vec(),
    })
}

/// Writes all that is seen into a file when the time is over, or when it is told to end.
pub(super) fn record(args: &Args, session: Session, path: &Path, stop: &Stop) -> Result<()> {
    let recorder = Recorder::load(options(args, session, !args.no_disturbers))?;
    let begun = Instant::now();
    let is_told = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&is_told)).context("listening for a signal")?;
    eprintln!("{RECORDING}");
    let is_over = || begun.elapsed() >= args.time || stop.is_set();
    let inside = recorder.run(is_over, || is_told.swap(false, Ordering::Relaxed))?;
    let json = serde_json::to_vec(&inside).context("writing what was seen as JSON")?;
    crate::files::write(path, json).with_context(|| format!("writing {}", path.display()))
}

/// Tracing programs that are attached.
struct Recorder {
    tracer: Tracer,
    reader: TraceReader,
}

impl Recorder {
    fn load(options: TraceOptions) -> Result<Self> {
        let mut tracer = Tracer::load(options)?;
        let reader = tracer.reader()?;
        tracer.attach()?;
        Ok(Self { tracer, reader })
    }

    /// All that is seen until it is over; it pauses, and goes on, when it is told to.
    fn run(mut self, is_over: impl Fn() -> bool, is_told: impl Fn() -> bool) -> Result<Inside> {
        let (mut is_on, mut signals) = (true, 0);
        let idle = idle_states();
        let mut names = TaskNames::of_recorder();
        let mut steal = Steal::watch();
        let mut inside = Inside::here();
        let mut ends = false;
        while !ends {
            thread::sleep(READ);
            ends = is_over();
            if ends {
                self.tracer.detach();
            } else if is_told() {
                is_on = !is_on;
                signals += 1;
                match is_on {
                    true => self.tracer.attach()?,
                    false => self.tracer.detach(),
                }
                eprintln!("{}", across::told_to(is_on, signals));
            }
            let (events, others) = self.reader.read()?;
            let room = MOST_EVENTS - inside.events.len();
            inside.lost_events += events.len().saturating_sub(room) as u64;
            inside
                .events
                .extend(events.iter().take(room).map(|event| Seen::from(event).row()));
            let room = MOST_DISTURBERS - inside.disturbers.len();
            inside.forgotten_disturbers += others.len().saturating_sub(room) as u64;
            // Where what CPUs do is looked at.
            let steal = steal.as_mut().filter(|_| !others.is_empty());
            let taken = steal.map(Steal::look).unwrap_or_default();
            let others = others.into_iter().map(|other| named(other, &idle, &mut names));
            let all = others.chain(taken).take(room);
            inside.disturbers.extend(all.map(across::row));
        }
        inside.missing = self.tracer.missing().iter().cloned().map(super::told_missing).collect();
        inside.lost_events += self.tracer.lost()?;
        Ok(inside)
    }
}

/// Probes of a session, recorded by a thread of this program.
pub(crate) struct Recording {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Inside>>>,
}

impl Recording {
    /// Begins; when this returns the programs are attached.
    ///
    /// # Errors
    /// When the kernel refuses them.
    pub(crate) fn start(session: u32) -> Result<Self> {
        let options = TraceOptions {
            session: Some(session),
            one_of: 1,
            disturbers: true,
            tasks: false,
        };
        let end = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&end);
        let (tell, told) = mpsc::channel();
        // Its reader is of one thread.
        let work = move || match Recorder::load(options) {
            Ok(recorder) => {
                _ = tell.send(Ok(()));
                recorder.run(|| its.load(Ordering::Relaxed), || false)
            }
            Err(error) => {
                _ = tell.send(Err(error));
                Ok(Inside::default())
            }
        };
        let thread = thread::Builder::new().name("recorder".into());
        let recording = Self {
            end,
            thread: Some(thread.spawn(work).context("starting a thread")?),
        };
        told.recv().context("the thread ended")??;
        Ok(recording)
    }

    /// Ends it: what was seen.
    ///
    /// # Errors
    /// When the kernel's record could not be read.
    pub(crate) fn finish(mut self) -> Result<serde_json::Value> {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it ends once")?;
        let inside = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        serde_json::to_value(inside).context("writing what was seen as JSON")
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(JoinHandle::join);
    }
}

fn load(args: &Args, session: Session, disturbers: bool) -> Result<Tracer> {
    Ok(Tracer::load(options(args, session, disturbers))?)
}

fn options(args: &Args, session: Session, disturbers: bool) -> TraceOptions {
    TraceOptions {
        session: match session {
            Session::Any => None,
            Session::One(session) => Some(session),
        },
        one_of: args.one_of,
        disturbers,
        tasks: false,
    }
}
