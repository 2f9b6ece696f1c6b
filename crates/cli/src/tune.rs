//! `ringside tune`: what slows packets of an interface down, shown, changed for a time, and put back.

mod apply;
mod args;
mod plan;
mod report;
mod state;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use ringside_nic::Interface;
use ringside_nic::changes::{Changes, Recovered, Restored};

use apply::Applied;
pub(crate) use args::Args;
use plan::Plan;
use report::{Mode, Report};

use crate::args::bad_value;
use crate::output;

/// # Errors
/// For what makes no sense, what was asked for and cannot be had, and a command that cannot be started. The exit code is
/// the command's where there is one.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.undo {
        return undo(args);
    }
    let Some(name) = &args.interface else {
        bad_value!("which interface? ringside tune INTERFACE; or --undo for all that was kept");
    };
    let interface = Interface::by_name(name)?;
    let mode = args.mode()?;
    let mut report = Report::new(Some(&interface), mode);
    if mode == Mode::Show {
        report.settings = state::read(&interface)?;
        return report.deliver(args);
    }
    let plan = Plan::of(&interface, args)?;
    report.unavailable = plan.unavailable.clone();
    report.changes = plan.rows();
    if mode == Mode::DryRun {
        return report.deliver(args);
    }
    if plan.is_empty() {
        report.deliver(args)?;
        bail!("nothing of it can be had on {interface}");
    }
    let mut applied = Applied::make(&interface, plan)?;
    report.unavailable.append(&mut applied.unavailable);
    report.changes = applied.rows();
    match mode {
        Mode::Kept => {
            applied.keep()?;
            report.deliver(args)
        }
        Mode::Hold => {
            report.deliver(args)?;
            let stop = crate::stop::Stop::on_signals()?;
            output::note("held until Ctrl-C");
            while !stop.sleep_until(std::time::Instant::now() + std::time::Duration::from_secs(3600)) {}
            applied.restore().iter().for_each(output::note);
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            output::note(report.text().trim_end());
            let code = apply::command(&args.command);
            let restored = applied.restore();
            restored.iter().for_each(output::note);
            report.restored = restored;
            // Also if the command could not be started: what was changed is told.
            report.write_file(args)?;
            code
        }
    }
}

fn undo(args: &Args) -> Result<ExitCode> {
    args.nothing_with_undo()?;
    let interface = args.interface.as_deref().map(Interface::by_name).transpose()?;
    let mut report = Report::new(interface.as_ref(), Mode::Undo);
    let changes = Changes::new();
    let undone = changes
        .undo_kept(interface.as_ref())
        .context("what was kept cannot be put back")?;
    let changes_of = |recovered: Vec<Recovered>| recovered.into_iter().flat_map(|of| of.changes);
    report.restored = changes_of(undone).collect();
    // What killed runs left was tried when this process began. What is still there is reported.
    let left = changes.recover().context("reading what earlier runs left")?;
    let name = interface.as_ref().map(Interface::name);
    for change in changes_of(left).filter(Restored::has_failed) {
        let is_wanted = name.is_none_or(|name| change.change.interface == name);
        if is_wanted && !report.restored.contains(&change) {
            report.restored.push(change);
        }
    }
    match report.restored.iter().any(Restored::has_failed) {
        true => report.deliver(args).map(|_| ExitCode::FAILURE),
        false => report.deliver(args),
    }
}
