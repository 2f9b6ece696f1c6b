//! The command line of `ringside doctor`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use ringside_measure::probe::DEFAULT_PORT;
use ringside_nic::Flow;

use crate::args::{bad_value, count, seconds};

const EXAMPLES: &str = "\
Examples:
  ringside doctor                              does AF_XDP work here? Tried on a veth pair of ours
  ringside doctor eth0                         and facts about eth0; nothing is bound to it
  ringside doctor eth0 -v                      all facts, and why each note matters
  ringside doctor eth0 --live                  and bind each of its queues in each mode
  ringside doctor eth0 --live --peer 192.0.2.7  and see packets come back, by echo or by ICMP
  ringside doctor eth0 --flow 192.0.2.7:4000-192.0.2.1:4789  which queue does this flow come to?
  ringside doctor eth0 --json | jq .findings

Errors and warnings say what, why it matters, and the command to fix it; so do notes with
-v. Exit status: 0 if there is
nothing above a note, 3 with a warning, 4 with an error; 1 if the examination itself could not be
made, 2 for a wrong command line.

--live loads an XDP program that passes on all but the test's own packets. On some NICs that resets
the link for a moment. The test is a process of its own, which is killed when it is not done by
--deadline, or when this one ends: then nothing of it is left.";

/// What to look at, and how to tell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Args {
    /// Network interface [default: the host alone]
    pub(super) interface: Option<String>,
    /// Bind each queue of the interface in each mode, and send a frame to itself; with --peer probes that come back
    #[arg(long, requires = "interface")]
    pub(super) live: bool,
    /// A host on the interface's link that runs `ringside echo`, or at least answers ICMP echo requests
    #[arg(long, value_name = "IP", requires = "live")]
    pub(super) peer: Option<IpAddr>,
    /// UDP port of its `ringside echo`
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..), requires = "peer")]
    pub(super) peer_port: u16,
    /// Seconds, or a time such as 500ms, after which the test on the interface is ended, however
    /// far it is
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, requires = "live")]
    pub(super) deadline: Duration,
    /// Test the interface although it carries the SSH connection of this login
    #[arg(long, requires = "live")]
    pub(super) own_connection: bool,
    /// Probes for each queue and mode, such as 64 or 1k
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count)]
    pub(super) probes: u64,
    /// Tell the queue that a flow comes to, as FROM:PORT-TO:PORT; of UDP, or with tcp: in front of TCP. May be repeated
    #[arg(long, value_name = "FLOW", value_parser = flow, requires = "interface")]
    pub(super) flow: Vec<Flow>,
    /// Leave out the test on a veth pair
    #[arg(long)]
    pub(super) no_veth: bool,
    /// Print all findings, also those that are fine, and for notes why they matter and how to
    /// fix them
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Print JSON (schema ringside.doctor/1) to standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Write the JSON to a file, in addition
    #[arg(long, value_name = "FILE")]
    pub(super) json_file: Option<PathBuf>,
    /// The process that the test on the interface is for. Not for people.
    #[arg(long, hide = true, value_name = "PID", requires = "live")]
    pub(super) watched_by: Option<u32>,
}

impl Args {
    /// What no parser sees.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(path) = &self.json_file {
            crate::output::check_file("--json-file", path)?;
        }
        for flow in &self.flow {
            if flow.kind().is_none() {
                bad_value!(
                    "--flow {}-{}: both addresses have to be of one family",
                    flow.src,
                    flow.dst
                );
            }
        }
        Ok(())
    }
}

/// `192.0.2.7:4000-192.0.2.1:4789`, or with `tcp:` or `udp:` in front.
fn flow(text: &str) -> Result<Flow, String> {
    let (tcp, addresses) = match text.split_once(':') {
        Some(("tcp", rest)) => (true, rest),
        Some(("udp", rest)) => (false, rest),
        _ => (false, text),
    };
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    addresses
        .split_once('-')
        .and_then(|(src, dst)| {
            Some(Flow {
                src: address(src)?,
                dst: address(dst)?,
                tcp,
            })
        })
        .ok_or_else(|| {
            format!(
                "{text:?} is no flow; write FROM:PORT-TO:PORT, such as 192.0.2.7:4000-192.0.2.1:4789 or \
                 tcp:[2001:db8::7]:4000-[2001:db8::1]:80"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read() {
        let udp = flow("192.0.2.7:4000-192.0.2.1:4789").unwrap();
        assert_eq!((udp.src, udp.tcp), ("192.0.2.7:4000".parse().unwrap(), false));
        assert_eq!(flow("udp:192.0.2.7:4000-192.0.2.1:4789"), Ok(udp));
        let tcp = flow("tcp:[2001:db8::7]:4000-[2001:db8::1]:80").unwrap();
        assert_eq!((tcp.dst, tcp.tcp), ("[2001:db8::1]:80".parse().unwrap(), true));
        for nonsense in ["", "-", "192.0.2.7-192.0.2.1", "192.0.2.7:1", "tcp:1-2", "a:1-b:2"] {
            assert!(flow(nonsense).unwrap_err().contains("is no flow"), "{nonsense:?}");
        }
    }
}
