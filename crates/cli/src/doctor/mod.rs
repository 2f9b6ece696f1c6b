//! `ringside doctor`: whether and how well AF_XDP works here, by doing it.
//!
//! ```text
//!  facts.rs, flows.rs      host, process, kernel, interface ─┐
//!  veth.rs   bind + echo   each queue in each mode           ├─▶ rules/ ─▶ Finding ─▶ report.rs
//!  watched.rs ─▶ live.rs   the same on the interface         ┘   (plain functions)
//! ```

mod args;
mod bind;
mod echo;
mod facts;
mod finding;
mod flows;
mod icmp;
mod live;
mod report;
mod rules;
mod tried;
mod veth;
mod watched;

use std::process::ExitCode;

use anyhow::Result;
use ringside_nic::Interface;
use ringside_nic::host::CpuTimes;
use ringside_xsk::KernelCapabilities;

pub(crate) use args::Args;
use facts::{Brief, Facts, Host, Nic, Process};
use report::Report;

/// Looks, tries and tells. The exit status is that of the worst finding.
///
/// # Errors
/// When there is no such interface, or what was asked for makes no sense.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(parent) = args.watched_by {
        return watched::run(args, parent).map(|()| ExitCode::SUCCESS);
    }
    args.check()?;
    let before = CpuTimes::read()?;
    let interface = args.interface.as_deref().map(Interface::by_name).transpose()?;
    // As it is before anything is bound to it.
    let nic = match &interface {
        Some(interface) => Some(Nic::read(interface, &args.flow)?),
        None => None,
    };
    let interfaces = match &nic {
        Some(_) => Vec::new(),
        None => Brief::all()?,
    };
    if let Some(interface) = interface.as_ref().filter(|_| args.live) {
        watched::check(interface, args)?;
    }
    let veth = (!args.no_veth).then(|| veth::test(args.probes));
    let live = match &interface {
        Some(interface) if args.live => Some(watched::test(interface, args)?),
        _ => None,
    };
    let report = Report::new(Facts {
        kernel: KernelCapabilities::probe(),
        process: Process::read()?,
        interface: nic,
        interfaces,
        veth,
        live,
        // Last, for the time that was stolen meanwhile.
        host: Host::read(&before)?,
    });
    report.deliver(args)?;
    Ok(ExitCode::from(report.severity.exit_status()))
}
