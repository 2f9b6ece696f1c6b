//! The commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};

use crate::Settings;
use crate::lab;
use crate::operation::Operation;
use crate::ours;
use crate::peers::{Missing, Peers, Role, Variant};
use crate::report::{Outcome, Report};
use crate::rounds;

/// `peers run`.
pub(crate) fn run(settings: &Settings) -> Result<()> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "namespaces and XDP programs need root: run it as root"
    );
    anyhow::ensure!(
        std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2),
        "sender and receiver need a CPU each: this machine has one"
    );
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("installing a signal handler")?;
    }
    lab::remove_stale()?;
    let peers = Peers::find()?;
    let mut report = Report::new(settings.slot, settings.settle);
    let mut failed = Vec::new();
    for operation in Operation::ALL {
        if !settings.only.is_empty() && !settings.only.contains(&operation) {
            continue;
        }
        eprintln!("{}: {} …", operation.name(), operation.title());
        // What the other operations give is worth having all the same.
        match measure(&peers, operation, settings, &stop) {
            Ok(outcome) => report.add(outcome),
            Err(error) if stop.load(Ordering::Relaxed) => return Err(error),
            Err(error) => {
                eprintln!("{}: {error:#}", operation.name());
                failed.push(operation.name());
            }
        }
        // Written after each operation, so that an interrupted run leaves what it has.
        report.write(&settings.json)?;
    }
    print!("{}", report.table());
    println!("written: {}", settings.json.display());
    anyhow::ensure!(failed.is_empty(), "without a result: {}", failed.join(", "));
    Ok(())
}

fn measure(peers: &Peers, operation: Operation, settings: &Settings, stop: &AtomicBool) -> Result<Outcome> {
    let (variants, mut missing) = variants(peers, operation, settings);
    let (series, failed) = rounds::run(operation, variants, settings, stop)?;
    missing.extend(failed);
    Outcome::new(operation, series, missing)
}

/// `peers list`.
pub(crate) fn list() -> Result<()> {
    let peers = Peers::find()?;
    for operation in Operation::ALL {
        println!("{operation:?}");
        let (mut variants, mut missing) = peers.variants(operation);
        match ours::variant(operation) {
            Ok(ours) => variants.push(ours),
            Err(why) => missing.push(why),
        }
        for variant in variants {
            println!("  {}: {}", variant.name, variant.near.words.join(" "));
        }
        for row in missing {
            println!("  (without {}: {})", row.name, row.why);
        }
    }
    Ok(())
}

/// The rows that are asked for, the base first, and those that cannot be had.
fn variants(peers: &Peers, operation: Operation, settings: &Settings) -> (Vec<Variant>, Vec<Missing>) {
    let (mut variants, mut missing) = peers.variants(operation);
    match ours::variant(operation) {
        // Next to the base, so that the two are measured close to each other.
        Ok(ours) => variants.insert(1, ours),
        Err(why) => missing.push(why),
    }
    if !settings.variants.is_empty() {
        let wanted = |name: &str| settings.variants.iter().any(|part| name.contains(part.as_str()));
        variants.retain(|variant| variant.role == Role::Base || wanted(&variant.name));
        missing.retain(|row| wanted(&row.name));
    }
    for options in &settings.also {
        variants.extend(ours::with_options(operation, options));
    }
    (variants, missing)
}
