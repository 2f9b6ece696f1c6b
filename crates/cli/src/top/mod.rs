//! `ringside top`: what packets, rings and CPUs do at this moment.
//!
//! ```text
//!  running ringside ── socket in the state directory ─┐
//!  kernel: link, netdev netlink, ethtool, XDP events, ├─ observe.rs ── Observation ─┐ of two moments
//!          AF_XDP sockets, interrupts, CPUs ──────────┘   (counters)                v
//!                                                              view.rs ── View (rates) ─┬─ JSON
//!                                                                                       └─ page.rs ── lines ─┬─ text
//!                                                                     app.rs (keys) ── screen.rs ────────────┴─ terminal
//! ```
//!
//! Only observe.rs and terminal.rs know the world; the rest are functions of values.

mod app;
mod observation;
mod observe;
mod page;
mod screen;
mod terminal;
mod view;

#[cfg(test)]
mod example;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringside_nic::Interface;

use crate::args::time_or;
use crate::output;
use crate::stop::Stop;
use observe::Observer;
use view::View;

const EXAMPLES: &str = "\
Examples:
  ringside top                                 all that uses AF_XDP or XDP here
  ringside top eth0                            one interface, and the commands that run on it
  ringside top eth0 --interval 250ms
  ringside top --once                          one look, as text
  ringside top eth0 --once --json | jq .interfaces[0].queues";

/// What to look at, and how often.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Network interface [default: all with an XDP program, an AF_XDP socket or a running ringside; if there is none, all that
    /// are up]
    interface: Option<String>,
    /// Seconds, or a time such as 250ms, between two looks, and what rates are of: 50ms to 60s
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = interval)]
    interval: Duration,
    /// Look twice, an interval apart, print what was seen and end; so it is where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// Print JSON (schema ringside.top/1) instead of text; with it --once goes without saying
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(50)..=Duration::from_secs(60);
    time_or(Duration::from_secs(1), &range, text)
        .ok_or_else(|| format!("{text:?} is no interval; it takes seconds, or 50ms to 60s"))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // One that is not there is told at once, with those that are.
    let interface = args.interface.as_deref().map(Interface::by_name).transpose()?;
    let stop = Stop::on_signals()?;
    let mut observer = Observer::new(interface);
    if !args.once && !args.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return terminal::run(observer, args.interval, &stop);
    }
    let first = observer.observe();
    if stop.sleep_until(Instant::now() + args.interval) {
        return Ok(());
    }
    let second = observer.observe();
    let view = View::of(&first, &first, &second);
    if args.json {
        let json = serde_json::to_string_pretty(&view).context("writing what was seen as JSON")?;
        return output::print(&(json + "\n"));
    }
    output::print(&page::text(&view))
}
