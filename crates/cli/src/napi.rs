//! What a command changes on its interface when it is asked to: deferred interrupts, threaded NAPI.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use ringside_nic::changes::{Recovered, Restored};
use ringside_xsk::{Deferral, Port, PortBuilder, ThreadedNapi};

use crate::args::{List, count_in, list, micros};
use crate::{left, output};

/// Settings of the interface for the time of the run, put back at its end; after a kill by the next run.
#[derive(Clone, Debug, Args)]
pub(crate) struct NapiArgs {
    /// Keep the interface's interrupts off for so many empty polls, so many microseconds each, such
    /// as 2:200 or 2:200us: more packets where the receiver has a CPU of its own, at the cost of
    /// latency. Put back at the end
    #[arg(long, value_name = "POLLS:MICROS")]
    pub(crate) napi_defer: Option<Defer>,
    /// Let kernel threads poll the interface's queues instead of the software interrupt, on these CPUs if any are given
    /// (Linux 5.12). Put back at the end
    #[arg(long, value_name = "CPUS", value_parser = cpus, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) threaded_napi: Option<List>,
}

/// No CPUs are none to pin to.
fn cpus(text: &str) -> Result<List, String> {
    if text.is_empty() {
        Ok(List(Vec::new()))
    } else {
        list(text)
    }
}

/// `POLLS:MICROS`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defer(pub(crate) Deferral);

impl FromStr for Defer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(polls, time)| {
            let time = micros(time).ok().filter(|time| *time > 0)?;
            Some((count_in(1..=u32::MAX)(polls).ok()?, time))
        });
        let (polls, micros) = numbers.ok_or_else(|| format!("{text:?} is not POLLS:MICROS, both above 0: 2:20us"))?;
        Ok(Self(Deferral {
            defer_hard_irqs: polls,
            gro_flush_timeout: Duration::from_micros(micros.into()),
            ..Deferral::default()
        }))
    }
}

impl NapiArgs {
    /// Has the port make the changes.
    pub(crate) fn apply(&self, mut builder: PortBuilder) -> PortBuilder {
        if let Some(Defer(deferral)) = self.napi_defer {
            builder = builder.deferral(deferral);
        }
        if let Some(List(cpus)) = &self.threaded_napi {
            builder = builder.threaded_napi(ThreadedNapi { cpus: cpus.clone() });
        }
        builder
    }
}

/// True if the last attempt could not restore everything that earlier runs left.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Restores what an earlier run left that was killed.
pub(crate) fn recover() {
    recover_of(None);
}

/// Tries again to restore what could not be restored before. A veth without GRO has NAPI instances
/// only while an XDP program is attached. What fails once more was reported before.
pub(crate) fn recover_when_attached() {
    if HAS_FAILED.load(Relaxed) {
        restore(|of| !of.changes.iter().all(Restored::has_failed));
    }
}

/// Restores what earlier runs left. Returns a sentence for each change of that process that cannot
/// be restored.
pub(crate) fn recover_of(process: Option<u32>) -> Vec<String> {
    let recovered = restore(|_| true);
    let own = recovered.iter().filter(|of| Some(of.pid) == process);
    own.flat_map(|of| left::sentences(&of.changes)).collect()
}

/// Restores what earlier runs left, and returns it. Prints those of which the caller wants a note.
fn restore(is_noted: impl Fn(&Recovered) -> bool) -> Vec<Recovered> {
    let recovered = match ringside_nic::changes::recover() {
        Ok(recovered) => recovered,
        // No reason not to measure; who changes something is told again.
        Err(error) => {
            output::note(format_args!(
                "what an earlier run may have left cannot be put back: {error}"
            ));
            return Vec::new();
        }
    };
    recovered.iter().filter(|of| is_noted(of)).for_each(output::note);
    let mut changes = recovered.iter().flat_map(|of| &of.changes);
    HAS_FAILED.store(changes.any(Restored::has_failed), Relaxed);
    recovered
}

/// Says so where busy-polling did nothing.
pub(crate) fn warn(port: &Port) {
    let idle = port
        .queues()
        .iter()
        .find_map(|queue| Some((queue.id(), queue.busy_polling().warning()?)));
    if let Some((queue, warning)) = idle {
        output::note(format_args!("{} queue {queue}: {warning}", port.interface()));
    }
}
