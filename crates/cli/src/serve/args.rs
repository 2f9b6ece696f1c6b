//! The command line of `ringside serve`, and what the commands take that use one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ringside_measure::control::{DEFAULT_PORT, FarVia, Token};
use ringside_measure::probe;
use ringside_xsk::Mode;

use super::pin::Pin;
use crate::args::{PortArgs, rate, seconds};
use crate::live::PrometheusArgs;
use crate::run::streams::PtpArgs;

const EXAMPLES: &str = "\
Examples:
  ringside serve eth0 --token-file ringside.token        then copy the file to the other host, and there:
  ringside ping 192.0.2.7 --token-file ringside.token
  ringside search 192.0.2.7 --token-file ringside.token
  ringside serve eth0 --tls --token-file ringside.token  encrypted, with a key of its own, whose pin it prints
  ringside serve eth0 --token-file ringside.token --max-rate 1000000 --max-time 60
  ringside serve eth0 --lab --trace --token-file ringside.token   a host of another one's `ringside lab`
  ringside serve eth0 --lab --lab-guests eth1 --token-file ringside.token   and of its guests, joined to eth1
  ringside serve --via udp --listen 127.0.0.1            without XDP, for this host alone";

/// What to open, for whom, and how much of it.
#[derive(Debug, clap::Args)]
// A negative number is a nonsense value, not an unknown option.
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) port: PortArgs,
    /// Address and TCP port of the control connection [default: all addresses, port 29620]
    #[arg(long, value_name = "IP[:PORT]", value_parser = listen)]
    pub(super) listen: Option<SocketAddr>,
    /// UDP port of the probes that come to XDP sockets
    #[arg(long = "port", default_value_t = probe::DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) udp_port: u16,
    /// What receives and answers [default: af-xdp with an interface, udp without]
    #[arg(long, value_enum)]
    pub(super) via: Option<Via>,
    /// File with the token that clients have to have; made if it is not there [default: the environment's RINGSIDE_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Speak TLS, with a key of this host's own, whose pin is printed
    #[arg(long)]
    pub(super) tls: bool,
    /// The file of that key, made if it is not there [default: ringside/serve.pem in the folder for settings]
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(super) key_file: Option<PathBuf>,
    /// Only clients whose TLS key has this pin; may be given several times
    #[arg(long, value_name = "PIN", requires = "tls")]
    pub(super) allow: Vec<Pin>,
    /// Let anybody in who reaches it
    #[arg(long)]
    pub(super) insecure: bool,
    /// Highest rate of a session in packets/s, such as 10k or 2M: who asks for more is
    /// refused, who sends more is not answered
    #[arg(long, value_name = "PPS", value_parser = rate)]
    pub(super) max_rate: Option<u64>,
    /// Longest session in seconds, or a time such as 10min
    #[arg(long, default_value = "3600", value_name = "SECONDS", value_parser = seconds)]
    pub(super) max_time: Duration,
    /// Sessions at a time
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) max_sessions: u16,
    /// Let clients see what this host's kernel does with their probes (`ringside lab`, `trace = true`): tracing programs run for that time
    #[arg(long)]
    pub(super) trace: bool,
    /// Do for clients' labs what `ringside lab` would do on this host for the time of a turn: be an end of a schedule (with its queueing
    /// disciplines), steer the interface, receive loads
    #[arg(long)]
    pub(super) lab: bool,
    /// Start guests for clients' labs, whose packets come and go by this interface. It is a guest's for that time, unless it has an address, or this
    /// server's sockets: then it stays, and guests are joined by macvtap. May be given several times
    #[arg(long, value_name = "INTERFACE", requires = "lab")]
    pub(super) lab_guests: Vec<String>,
    /// Guests at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), requires = "lab_guests")]
    pub(super) max_guests: u16,
    /// MiB of memory of each
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..=65_536), requires = "lab_guests")]
    pub(super) max_guest_memory: u32,
    /// A kernel that guests may have: `host`, or a Debian package such as linux-image-amd64/trixie-backports, which is fetched now. The first one,
    /// unless a lab names another; may be given several times [default: as for guests here, docs/guests.md]
    #[arg(long, value_name = "KERNEL", requires = "lab_guests")]
    pub(super) guest_kernel: Vec<String>,
    #[command(flatten)]
    pub(super) ptp: PtpArgs,
    /// Seconds to serve, or a time such as 10min or 1h [default: until Ctrl-C]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) time: Option<Duration>,
    #[command(flatten)]
    pub(super) prometheus: PrometheusArgs,
}

/// `--via`, `--far-via`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// XDP sockets
    AfXdp,
    /// A UDP socket of the kernel's
    Udp,
}

impl From<Via> for FarVia {
    fn from(via: Via) -> Self {
        match via {
            Via::AfXdp => Self::AfXdp,
            Via::Udp => Self::Udp,
        }
    }
}

/// A `ringside serve` at the other end.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "A `ringside serve` at the other end")]
pub(crate) struct RemoteArgs {
    /// Host where `ringside serve` runs, and its TCP port if it is not 29620. A HOST in the interface's place means the same, with
    /// the interface that the route to it leaves by
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) server: Option<String>,
    /// File with the server's token [default: the environment's RINGSIDE_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Pin of the server's TLS key, as `ringside serve --tls` prints it
    #[arg(long, value_name = "PIN")]
    pub(crate) pin: Option<Pin>,
    /// Speak TLS without a pin; the server then proves by the token who it is
    #[arg(long)]
    pub(crate) tls: bool,
    /// What the server has to receive with [default: what it prefers]
    #[arg(long, value_enum)]
    pub(crate) far_via: Option<Via>,
    /// Mode that the server's XDP sockets have to have: zero-copy, native, generic
    #[arg(long, value_name = "MODE")]
    pub(crate) far_mode: Option<Mode>,
    /// The token itself, where this program has drawn it.
    #[arg(skip)]
    pub(crate) token: Option<Token>,
}

impl RemoteArgs {
    /// The server at an address, with nothing besides.
    pub(crate) fn at(address: Ipv4Addr) -> Self {
        Self {
            server: Some(address.to_string()),
            ..Self::default()
        }
    }
}

/// An address, with a port or without.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    text.parse()
        .ok()
        .or_else(|| ip(text.trim_start_matches('[').trim_end_matches(']')).map(|ip| SocketAddr::new(ip, DEFAULT_PORT)))
        .ok_or_else(|| {
            format!("{text:?} is no address; write 192.0.2.1, 192.0.2.1:29620, 2001:db8::1 or [2001:db8::1]:29620")
        })
}

/// A host's name or address, with a port or without.
pub(super) fn host_and_port(text: &str) -> (&str, u16) {
    if let Some(inner) = text.strip_prefix('[') {
        return match inner.split_once(']') {
            Some((host, rest)) => (
                host,
                rest.strip_prefix(':')
                    .and_then(|port| port.parse().ok())
                    .unwrap_or(DEFAULT_PORT),
            ),
            None => (text, DEFAULT_PORT),
        };
    }
    match text.rsplit_once(':') {
        // More than one colon is an IPv6 address.
        Some((host, port)) if !host.contains(':') => match port.parse() {
            Ok(port) => (host, port),
            Err(_) => (text, DEFAULT_PORT),
        },
        _ => (text, DEFAULT_PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_ports_and_without() {
        for (text, host, port) in [
            ("host", "host", DEFAULT_PORT),
            ("host:7", "host", 7),
            ("192.0.2.1", "192.0.2.1", DEFAULT_PORT),
            ("192.0.2.1:7", "192.0.2.1", 7),
            ("2001:db8::7", "2001:db8::7", DEFAULT_PORT),
            ("[2001:db8::7]", "2001:db8::7", DEFAULT_PORT),
            ("[2001:db8::7]:9", "2001:db8::7", 9),
        ] {
            assert_eq!(host_and_port(text), (host, port), "{text}");
        }
        assert_eq!(listen("::1").unwrap(), "[::1]:29620".parse().unwrap());
        assert_eq!(listen("127.0.0.1:7").unwrap().port(), 7);
        assert!(listen("localhost").is_err());
    }
}
