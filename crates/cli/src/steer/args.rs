//! The command line of `ringside steer`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_bpf::Landings;
use serde::Deserialize;

use super::settings::Settings;
use super::values::{ClassArg, CpusArg, EgressArg, PinArg, RuleArg};
use crate::args::{BadValue, List, OutputArgs, bad_value, list, rate, seconds};
use crate::pin::check_online;

const EXAMPLES: &str = "\
Examples:
  ringside steer show eth0                     queues, interrupts, CPUs, rules, and what arrives where in a second
  ringside steer run eth0 --class pcp:5=1@1 --class udp:7000=0@0   what others send: does it land there?
  ringside steer run eth0 --rule pcp:5=1 --irq 1=1 --rss 0 --class pcp:5=1@1
  ringside steer run eth0 --from eth1@far --rps 0=1 --class udp:7000=0@1   sent from a port of this machine
  ringside steer run --lab --xps 2=0 --send-cpu 0 --class pcp:5=1   on a veth pair of its own
  ringside steer run eth0 --file steering.toml --json";

/// Which queue and CPU packets come to
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Show how an interface steers, and what arrives where meanwhile; change nothing
    Show(ShowArgs),
    /// Steer for the time of the run, count where each class of packets lands, say what is wrong, and put everything back
    #[command(visible_alias = "check")]
    Run(Box<RunArgs>),
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Network interface, or NAME@NAMESPACE
    pub(super) interface: String,
    /// Seconds to count, or a time such as 500ms or 2min
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub(super) time: Duration,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(super) struct RunArgs {
    /// Network interface that receives, or NAME@NAMESPACE
    #[arg(required_unless_present = "lab", conflicts_with = "lab")]
    pub(super) interface: Option<String>,
    /// Between two namespaces made for it, joined by a veth pair of four queues
    #[arg(long)]
    pub(super) lab: bool,
    /// Send each class from this interface, NAME or NAME@NAMESPACE, which reaches the other one by a cable or a bridge
    /// [default: count what others send]
    #[arg(long, value_name = "IF", conflicts_with = "lab")]
    pub(super) from: Option<String>,
    /// A class of packets, and where it is to land: pcp:5=1@0 for VLAN priority 5, queue 1, CPU 0; udp:7000=1 for a UDP port, any CPU
    #[arg(long, value_name = "FLOW[=QUEUE][@CPU]")]
    pub(super) class: Vec<ClassArg>,
    /// Rule of the NIC (ethtool -N): pcp:5=1 or udp:7000=1, to that receive queue
    #[arg(long, value_name = "FLOW=QUEUE")]
    pub(super) rule: Vec<RuleArg>,
    /// Receive queues over which the NIC's hash spreads all else (ethtool -X), such as 0 or 0,2-3
    #[arg(long, value_name = "QUEUES", value_parser = list)]
    pub(super) rss: Option<List>,
    /// CPUs that handle the interrupt of a receive queue
    #[arg(long, value_name = "QUEUE=CPUS")]
    pub(super) irq: Vec<CpusArg>,
    /// CPUs over which the kernel spreads the packets of a receive queue (RPS), or none
    #[arg(long, value_name = "QUEUE=CPUS")]
    pub(super) rps: Vec<CpusArg>,
    /// CPUs whose packets leave by a transmit queue (XPS), or none; of the interface that sends, if that is given
    #[arg(long, value_name = "QUEUE=CPUS")]
    pub(super) xps: Vec<CpusArg>,
    /// Priority in the tags of a VLAN device for a socket's priority (egress-qos-map); of the interface that sends, if that is given
    #[arg(long, value_name = "PRIORITY=PCP")]
    pub(super) egress: Vec<EgressArg>,
    /// CPUs for the threads of a process whose names begin so: QEMU's "CPU 0", or vhost
    #[arg(long, value_name = "PID:NAME=CPUS")]
    pub(super) pin: Vec<PinArg>,
    /// Take classes and settings from a file (TOML, lists of what stands here behind the options), too
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Packets a second of each class, such as 1000 or 10k
    #[arg(long, default_value_t = 1000, value_name = "PPS", value_parser = rate)]
    pub(super) rate: u64,
    /// CPU that sends [default: any]
    #[arg(long, value_name = "CPU")]
    pub(super) send_cpu: Option<u32>,
    /// Seconds to send and count, or a time such as 500ms or 2min
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub(super) time: Duration,
    /// Exit with an error if a class lands elsewhere
    #[arg(long)]
    pub(super) require_right: bool,
    /// Print all figures, and what explains them
    #[arg(short, long)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// The same in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    class: Vec<ClassArg>,
    rule: Vec<RuleArg>,
    rss: Vec<u32>,
    irq: Vec<CpusArg>,
    rps: Vec<CpusArg>,
    xps: Vec<CpusArg>,
    egress: Vec<EgressArg>,
    pin: Vec<PinArg>,
}

/// What is asked for, of command line and file.
pub(super) struct Asked {
    pub(super) classes: Vec<ClassArg>,
    /// Where packets are received.
    pub(super) receiving: Settings,
    /// Where they are sent.
    pub(super) sending: Settings,
}

impl RunArgs {
    pub(super) fn asked(&self) -> Result<Asked> {
        let file = match &self.file {
            None => File::default(),
            Some(path) => {
                let what = || format!("--file {}", path.display());
                let text = fs::read_to_string(path).with_context(what)?;
                toml::from_str(&text).map_err(|error| BadValue(format!("{}: {error}", what())))?
            }
        };
        let classes = [file.class, self.class.clone()].concat();
        for (number, class) in classes.iter().enumerate() {
            if classes[..number].iter().any(|other| other.flow == class.flow) {
                bad_value!("--class: {} is there twice", class.flow);
            }
        }
        if classes.len() > Landings::MOST_CLASSES {
            bad_value!("--class: at most {} classes", Landings::MOST_CLASSES);
        }
        let sends = self.lab || self.from.is_some();
        if classes.is_empty() {
            bad_value!("no class of packets is asked for: give --class, such as --class pcp:5=1@1");
        }
        if self.send_cpu.is_some() && !sends {
            bad_value!("--send-cpu: nothing is sent without --from or --lab");
        }
        let mut all = Settings {
            rules: [file.rule, self.rule.clone()].concat(),
            rss: self.rss.as_ref().map_or(file.rss, |queues| queues.0.clone()),
            irqs: [file.irq, self.irq.clone()].concat(),
            rps: [file.rps, self.rps.clone()].concat(),
            xps: [file.xps, self.xps.clone()].concat(),
            egress: [file.egress, self.egress.clone()].concat(),
            pins: [file.pin, self.pin.clone()].concat(),
        };
        for (option, lists) in [("--irq", &all.irqs), ("--rps", &all.rps), ("--xps", &all.xps)] {
            for CpusArg(_, cpus) in lists {
                check_online(option, cpus)?;
            }
        }
        for PinArg { cpus, .. } in &all.pins {
            check_online("--pin", cpus)?;
        }
        for class in &classes {
            check_online("--class", class.cpu.as_slice())?;
        }
        check_online("--send-cpu", self.send_cpu.as_slice())?;
        let sending = match sends {
            true => Settings {
                xps: std::mem::take(&mut all.xps),
                egress: std::mem::take(&mut all.egress),
                ..Settings::default()
            },
            false => Settings::default(),
        };
        Ok(Asked {
            classes,
            receiving: all,
            sending,
        })
    }
}
