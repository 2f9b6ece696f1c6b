//! What a port changes on its interface, when it is asked to: put back when the port closes, and after a kill by whoever
//! changes something next.

use std::time::Duration;

use ringside_nic::changes::{self, Changes, Protection, Undo};
use ringside_nic::{Deferral, Interface};

use crate::error::Error;

/// Threaded NAPI: each receive queue is polled by a kernel thread instead of the software interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadedNapi {
    /// The CPUs that the kernel threads are pinned to, one after the other; none: wherever the scheduler puts them.
    ///
    /// Not those that spin for packets: a spinning application starves the thread that is to bring them.
    pub cpus: Vec<u32>,
}

/// What is to be changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) deferral: Option<Deferral>,
    pub(super) threaded: Option<ThreadedNapi>,
}

/// What was changed, put back on drop in the opposite order, and what to say about it.
#[derive(Debug, Default)]
pub(super) struct Changed {
    undo: Vec<Undo>,
    pub(super) notes: Vec<String>,
}

impl Settings {
    /// Makes the changes, after an XDP program was attached: on some drivers NAPI instances exist only from then on.
    pub(super) fn apply(&self, interface: &Interface, queues: &[u32]) -> Result<Changed, Error> {
        let mut changed = Changed::default();
        if self.deferral.is_none() && self.threaded.is_none() {
            return Ok(changed);
        }
        for left in changes::recover()? {
            changed.notes.push(left.to_string());
        }
        let changes = Changes::new();
        if let Some(deferral) = self.deferral {
            let (applied, undo) = changes.set_deferral(interface, queues, deferral)?;
            changed.notes.push(format!("{}, {applied}", told(deferral)));
            changed.keep(undo);
        }
        if let Some(threaded) = &self.threaded {
            let undo = changes.set_napi_threaded(interface, true)?;
            changed.keep(undo);
            let mut note = "NAPI in kernel threads".to_owned();
            if !threaded.cpus.is_empty() {
                let (threads, undo) = changes.pin_napi_threads(interface, &threaded.cpus)?;
                changed.keep(undo);
                let pinned = threads
                    .iter()
                    .map(|thread| format!("{} on CPUs {:?}", thread.name, thread.cpus))
                    .collect::<Vec<_>>();
                note = format!("{note}: {}", pinned.join(", "));
            }
            changed.notes.push(note);
        }
        Ok(changed)
    }
}

impl Changed {
    fn keep(&mut self, undo: Undo) {
        if let Protection::None { reason } = undo.protection() {
            let note = format!("a kill would leave what was changed: {reason}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.undo.push(undo);
    }

    /// Leaves everything as it is, for another process to restore.
    pub(super) fn forget(mut self) {
        self.undo.drain(..).for_each(std::mem::forget);
    }

    /// Puts everything back, the last change first.
    pub(super) fn restore(&mut self) {
        while let Some(undo) = self.undo.pop() {
            drop(undo);
        }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.restore();
    }
}

fn told(deferral: Deferral) -> String {
    let micros = |time: Duration| time.as_micros();
    let mut text = format!(
        "interrupts deferred for {} empty polls, {} µs each",
        deferral.defer_hard_irqs,
        micros(deferral.gro_flush_timeout)
    );
    if let Some(suspend) = deferral.irq_suspend_timeout {
        text = format!("{text}, suspended for {} µs", micros(suspend));
    }
    text
}
