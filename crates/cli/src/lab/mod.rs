//! `ringside lab`: paths from one file, each measured idle and loaded, there and back and one way.
//!
//! ```text
//!  lab file ── file.rs (values, lines and keys) ── plan.rs (what it means) ──▶ Plan
//!                                                                              │
//!  machine.rs, servers.rs  what this machine and others lack for it ◀──────────┤
//!  bed.rs  namespaces, links, other machines ◀─────────────────────────────────┤
//!     └─ guests.rs, far_guests.rs, boot.rs  guests here, and at other machines │
//!  run.rs  round 1: A idle, A loaded, B idle, B loaded, …   round 2: backwards ┘
//!     ├─ steered.rs what is steered for its time    load.rs  streams (tcp.rs) and programs beside the probes
//!     ├─ passed.rs  what goes through a guest's attachment, and waits in it
//!     ├─ turn.rs    both ends of a cell ── prober.rs: who sends at their times, and who hears
//!     ├─ schedule.rs  all classes of a schedule: a talker and a listener
//!     ├─ stages.rs  a traced turn for each path, when all others are through
//!     └─ folder.rs  each turn on the disk before the next begins ──▶ result.rs ──▶ JSON, table, report
//! ```

mod args;
mod bed;
pub(crate) mod boot;
mod brief;
mod date;
mod far_guests;
mod file;
mod folder;
mod guests;
mod load;
mod machine;
mod one_way;
mod overrides;
mod passed;
mod plan;
mod prober;
mod result;
mod run;
pub(crate) mod schedule;
mod servers;
mod stages;
mod steered;
mod study;
mod table;
mod tcp;
mod threads;
mod turn;
mod udp;

use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::ProgressBar;
use ringside_measure::schema::{self, Document, Outcome};
use ringside_netlab::attach::Vfio;
use ringside_netlab::guest::reap_folders;
use ringside_netlab::reap_stale;

use crate::left::Left;
use crate::report::units::plural;
use crate::stop::Stop;
use crate::{output, report, system};

pub(crate) use args::Args;
pub(crate) use boot::own_program;
pub(crate) use file::{Acceleration, Lane};
pub(crate) use load::listens;

use args::{CleanArgs, Command, FileArgs, ListArgs, ReportArgs, RunArgs, ShowArgs};
use bed::Bed;
use file::Text;
use folder::Folder;
use plan::Plan;

/// Exit status of `ringside lab check` where the file is right: as that of `ringside doctor` for what does not work.
const CANNOT_BE_RUN: u8 = 4;

/// Checks, runs, reports, cleans or lists.
///
/// # Errors
/// What is wrong with the file, all of it; what the machine lacks; and what ends a run in the middle.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let done = match &args.command {
        Command::Check(args) => return check(args),
        Command::Run(args) => measure(args),
        Command::Show(args) => show(args),
        Command::Report(args) => make_report(args),
        Command::Clean(args) => clean(args),
        Command::List(args) => list(args),
        Command::Sink(args) => tcp::sink(args.listen, &Stop::on_signals().context("listening for signals")?),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// A file that is right and a machine that is not are different findings, for scripts too.
fn check(args: &FileArgs) -> Result<ExitCode> {
    let text = study::read(&args.file)?;
    let plan = Plan::read_with(&text, &args.overrides)?;
    let lacks = machine::lacks(&plan).and(servers::lacks(&plan));
    let reasons = lacks.reasons(&plan);
    output::print(&(table::plan(&plan) + &table::lacks(&plan, &lacks)))?;
    Ok(match reasons.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(CANNOT_BE_RUN),
    })
}

/// Prints what a lab is, wherever it is to run: nothing of this machine is looked at.
fn show(args: &ShowArgs) -> Result<()> {
    let text = study::read(&args.file.file)?;
    if args.toml {
        return output::print(&text.text);
    }
    let plan = Plan::read_with(&text, &args.file.overrides)?;
    output::print(&(table::plan(&plan) + &table::needs(&plan)))
}

fn measure(args: &RunArgs) -> Result<()> {
    let text = study::read(&args.file.file)?;
    let begun = Plan::read_with(&text, &args.file.overrides)?;
    // What other machines lack is asked for when this one lacks nothing.
    let refuse = |plan: &Plan| {
        let lacks = machine::lacks(plan);
        lacks.refuse(plan, &text.name)?;
        lacks.and(servers::lacks(plan)).refuse(plan, &text.name)
    };
    output::check(&args.output)?;
    // Before there is a folder; but one that is finished is told without its machines.
    if !args.resume {
        refuse(&begun)?;
    }
    let stop = Stop::on_signals().context("listening for signals")?;
    let mut folder = open(args, &text)?;
    let plan = folder.plan(&text)?;
    let path = folder.path().to_owned();
    output::note(format_args!("{}", table::summary(&plan, &path)));
    if let Some(document) = finished(&path)? {
        output::note("it is finished: this is its result");
        return deliver(args, &path, &document);
    }
    if args.resume {
        refuse(&plan)?;
    }
    let left = Left::default();
    let unfinished = |error: anyhow::Error, turns: usize| {
        let (file, path) = (args.file.file.display(), path.display());
        let turns = plural(turns, "turn");
        anyhow!("{error:#}; kept {turns}: `ringside lab run {file} --into {path} --resume` goes on")
    };
    let mut bed = match Bed::build(&plan, &path, &stop, &left) {
        Ok(bed) => bed,
        Err(error) => {
            run::keep_left(&left, &mut folder, &ProgressBar::hidden())?;
            // Whatever was not waited for is no fault of the lab's.
            let error = if stop.is_signal() {
                anyhow!("interrupted")
            } else {
                error
            };
            return Err(unfinished(error, folder.turns.len()));
        }
    };
    folder.know(bed.machines(&plan))?;
    let measured = run::measure(&plan, &mut bed, &mut folder, &stop);
    let interfaces = bed.interfaces();
    // What was built goes before anything is told.
    drop(bed);
    let kept = run::keep_left(&left, &mut folder, &ProgressBar::hidden());
    measured.map_err(|error| unfinished(error, folder.turns.len()))?;
    kept?;
    let document = document(&plan, &text, &folder, interfaces)?;
    let json = document.to_json()?;
    folder.write(
        folder::REPORT,
        report::html(&plan.title, &text.name, document.clone()).as_bytes(),
    )?;
    // Last: it says that the run is finished.
    folder.write(folder::RESULT, json.as_bytes())?;
    deliver(args, &path, &document)
}

/// The table for people, on standard output unless the JSON goes there.
fn deliver(args: &RunArgs, path: &Path, document: &Document) -> Result<()> {
    let terminal = match args.output.json {
        true => std::io::stderr().is_terminal(),
        false => std::io::stdout().is_terminal(),
    };
    let mut told = match args.verbose || args.output.json {
        true => table::render(document, terminal),
        false => brief::render(document, terminal),
    };
    told += &format!(
        "\nResult: {}\nReport: {}\n",
        path.join(folder::RESULT).display(),
        path.join(folder::REPORT).display()
    );
    if args.output.json {
        output::note(told.trim_end());
    }
    output::deliver_run(&args.output, document, &told, !args.verbose)
}

/// The result of a run that is through.
fn finished(path: &Path) -> Result<Option<Document>> {
    let file = path.join(folder::RESULT);
    match fs::read_to_string(&file) {
        Ok(json) => Document::from_json(&json)
            .map(Some)
            .with_context(|| format!("reading {}", file.display())),
        Err(_) => Ok(None),
    }
}

/// The folder of a new run, or of one to go on with.
fn open(args: &RunArgs, text: &Text) -> Result<Folder> {
    let overrides = &args.file.overrides;
    match (args.resume, &args.into) {
        (true, Some(path)) => Folder::resume(path, text, overrides),
        (true, None) => Folder::resume(&folder::unfinished(&text.name)?, text, overrides),
        (false, Some(path)) => Folder::create(path, text, overrides),
        (false, None) => Folder::create(&folder::fresh(&text.name), text, overrides),
    }
}

/// The result of what is there, if it can be.
fn document(plan: &Plan, text: &Text, folder: &Folder, interfaces: Vec<schema::Interface>) -> Result<Document> {
    let result = result::of(plan, text, folder)?;
    if result.cells.iter().all(|cell| cell.unavailable.is_some()) {
        // Each reason once, with the first path that has it.
        let mut reasons: Vec<(&str, &str)> = Vec::new();
        for cell in &result.cells {
            let why = cell.unavailable.as_deref().unwrap_or_default();
            if reasons.iter().all(|(_, other)| *other != why) {
                reasons.push((&cell.path, why));
            }
        }
        let told: Vec<String> = reasons.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        bail!("nothing was measured: {}", told.join("; "));
    }
    let document = Document {
        started_unix_s: folder.about.started_unix_s,
        ..system::document(interfaces, Outcome::Lab(Box::new(result)))
    };
    document.check()?;
    Ok(document)
}

fn make_report(args: &ReportArgs) -> Result<()> {
    let folder = Folder::look(&args.folder)?;
    let text = folder.text()?;
    let plan = folder.plan(&text)?;
    let document = match finished(&args.folder)? {
        Some(document) => document,
        // Interfaces went with the run.
        None => document(&plan, &text, &folder, Vec::new())?,
    };
    let path = args.output.clone().unwrap_or_else(|| args.folder.join(folder::REPORT));
    let is_json = path.extension().is_some_and(|end| end == "json");
    let content = match is_json {
        true => document.to_json()? + "\n",
        false => report::render(&path, &plan.title, &text.name, document.clone())?,
    };
    if path == Path::new("-") {
        return output::print(&content);
    }
    crate::files::write(&path, content).with_context(|| format!("writing the report to {}", path.display()))?;
    let terminal = std::io::stdout().is_terminal();
    output::print(&format!(
        "{}\nReport: {}\n",
        table::render(&document, terminal),
        path.display()
    ))
}

fn clean(args: &CleanArgs) -> Result<()> {
    // Devices first: their drivers make interfaces again, which no namespace is to take along.
    let devices: Vec<String> = Vfio::recover().iter().map(ToString::to_string).collect();
    let gone = reap_stale();
    let mut told = match gone.as_slice() {
        [] => "No namespace of a killed run is left.\n".to_owned(),
        names => format!("Removed, of killed runs: {}\n", names.join(", ")),
    };
    let files: Vec<String> = reap_folders().iter().map(|path| path.display().to_string()).collect();
    if !files.is_empty() {
        told += &format!("Files of their guests, removed: {}\n", files.join(", "));
    }
    if !devices.is_empty() {
        told += &format!("Back with their drivers, of killed runs: {}\n", devices.join(", "));
    }
    for path in &args.folders {
        folder::remove(path)?;
        told += &format!("Removed {}\n", path.display());
    }
    output::print(&told)
}

fn list(args: &ListArgs) -> Result<()> {
    output::print(&table::list(&args.runs, folder::all(&args.runs)?)?)
}
