//! Changes made, and the command that is run with them.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_nic::Interface;
use ringside_nic::changes::{Changes, Protection, Restored, Undo};
use ringside_nic::host::WakeUpLimit;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::plan::{Plan, Step, What};
use super::report::{Row, Unavailable};
use crate::output;

/// What was changed. Put back when it is dropped, the last one first.
#[derive(Debug, Default)]
pub(super) struct Applied {
    undos: Vec<Undo>,
    rows: Vec<Row>,
    pub(super) unavailable: Vec<Unavailable>,
    wake_up: Option<WakeUpLimit>,
}

impl Applied {
    /// # Errors
    /// For what was asked for and cannot be had; all is as before then.
    pub(super) fn make(interface: &Interface, plan: Plan) -> Result<Self> {
        let mut applied = Self::default();
        for step in plan.steps {
            match applied.step(interface, &step) {
                Ok(()) => applied.rows.push(step.row),
                Err(error) if step.asked => return Err(error),
                Err(error) => applied.unavailable.push(Unavailable {
                    name: step.row.what().to_owned(),
                    reason: format!("{error:#}"),
                }),
            }
        }
        Ok(applied)
    }

    fn step(&mut self, interface: &Interface, step: &Step) -> Result<()> {
        let changes = Changes::new();
        match &step.what {
            What::WakeUp { micros } => self.wake_up = Some(WakeUpLimit::hold(*micros)?),
            What::Knob { knob, value } => {
                let one = [(knob.clone(), value.clone())];
                self.undos.push(changes.set_knobs(interface, &one)?);
            }
            What::Threads { on, cpus } => {
                self.undos.push(changes.set_napi_threaded(interface, *on)?);
                if !cpus.is_empty() {
                    self.undos.push(changes.pin_napi_threads(interface, cpus)?.1);
                }
            }
        }
        if let Some(Protection::None { reason }) = self.undos.last().map(Undo::protection) {
            output::note(format_args!("a kill would leave this changed: {reason}"));
        }
        Ok(())
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.rows.clone()
    }

    /// Leaves it in place.
    ///
    /// # Errors
    /// Where it cannot be written down; then all is put back.
    pub(super) fn keep(mut self) -> Result<()> {
        let written = self
            .undos
            .iter()
            .all(|undo| matches!(undo.protection(), Protection::StateFile(_)));
        if !written {
            bail!("nothing is left in place, because it cannot be written down what to put back");
        }
        for undo in std::mem::take(&mut self.undos) {
            undo.keep().context("leaving a change in place")?;
        }
        Ok(())
    }

    /// Puts everything back, and tells.
    pub(super) fn restore(mut self) -> Vec<Restored> {
        let mut restored = Vec::new();
        while let Some(undo) = self.undos.pop() {
            restored.extend(undo.restore());
        }
        restored
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        // A vector drops its first element first.
        while self.undos.pop().is_some() {}
    }
}

/// Runs the command and waits for its end. Ctrl-C is the command's, to which the terminal sends it too; a SIGTERM is handed
/// on to it.
pub(super) fn command(words: &[OsString]) -> Result<ExitCode> {
    let Some((program, arguments)) = words.split_first() else {
        bail!("no command");
    };
    let (interrupted, terminated) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    // Not to be killed by either before everything is put back.
    signal_hook::flag::register(SIGINT, interrupted)?;
    signal_hook::flag::register(SIGTERM, Arc::clone(&terminated))?;
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let status = wait(&mut child, &terminated)?;
    Ok(code(status))
}

fn wait(child: &mut Child, terminated: &AtomicBool) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("waiting for the command")? {
            return Ok(status);
        }
        if terminated.swap(false, Ordering::Relaxed)
            && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        {
            // It is our child and nobody has waited for it: the number is its.
            _ = kill_process(pid, Signal::TERM);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As a shell has it.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).map_or(ExitCode::FAILURE, ExitCode::from)
}
