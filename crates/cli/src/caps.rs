//! `ringside caps`: what an interface and the kernel can do, and what the interface is set to now.

mod state;
mod text;

use anyhow::{Context as _, Result};
use ringside_nic::{DeviceCapabilities, Interface, XdpFeatures};
use ringside_xsk::Capabilities;
use serde::Serialize;

use crate::output;
pub(crate) use state::{Attached, Holder, State};

const EXAMPLES: &str = "\
Examples:
  ringside caps eth0                           before anything else: does it have native XDP, zero-copy, timestamps?
  ringside caps eth0 -v                        each feature, queue and NAPI instance
  ringside caps eth0 --json                    the same for programs
  ringside caps eth0 --json | jq .kernel.multi_buffer.available

Nothing is bound or attached to the interface: what the device can do is what its driver tells, and the kernel is tried
on sockets of its own. Root sees everything; without, what cannot be tried is unknown, and says which capability is missing.";

/// What to look at, and how to tell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Network interface; it may be down
    interface: String,
    /// Print each feature of the driver and of the kernel, each queue and each NAPI instance
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON (schema ringside.caps/1) to standard output
    #[arg(long)]
    json: bool,
}

/// All of it, as JSON has it.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    tool_version: &'static str,
    #[serde(flatten)]
    capabilities: Capabilities,
    state: State,
}

/// Tells, and changes nothing.
///
/// # Errors
/// When there is no such interface.
pub(crate) fn run(args: &Args) -> Result<()> {
    let interface = Interface::by_name(&args.interface)?;
    let report = Report {
        schema: "ringside.caps/1",
        tool_version: env!("CARGO_PKG_VERSION"),
        capabilities: Capabilities::of(&interface)?,
        state: State::read(&interface)?,
    };
    if args.json {
        let json = serde_json::to_string_pretty(&report).context("writing the capabilities as JSON")?;
        output::print(&(json + "\n"))
    } else if args.verbose {
        output::print(&format!("{}\n\n{}\n", report.capabilities, report.state))
    } else {
        output::print(&text::brief(&report.capabilities, &report.state)?)
    }
}

/// Returns how a driver passes packets to AF_XDP.
pub(crate) fn modes(device: &DeviceCapabilities) -> &'static str {
    let native = XdpFeatures::BASIC | XdpFeatures::REDIRECT;
    match device.xdp_features {
        None => "modes unknown (needs Linux 6.3)",
        Some(set) if set.contains(XdpFeatures::XSK_ZEROCOPY) => "native XDP and zero-copy",
        Some(set) if set.contains(native) => "native XDP, no zero-copy",
        Some(_) => "generic XDP only",
    }
}

/// Returns what a driver offers of packets beside their bytes.
pub(crate) fn metadata(device: &DeviceCapabilities) -> String {
    let rx = device.rx_metadata.map(|set| set.to_string());
    let tx = device.xsk_features.map(|set| set.to_string());
    format!(
        "of received packets {}, of sent ones {}",
        rx.as_deref().unwrap_or("unknown"),
        tx.as_deref().unwrap_or("unknown")
    )
}
