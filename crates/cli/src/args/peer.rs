//! The receiver of packets, as the command line names it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ringside_wire::MacAddr;

/// `--to`
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Ip(IpAddr),
    Mac(MacAddr),
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Ip(ip.to_canonical()));
        }
        if text.parse::<SocketAddr>().is_ok() {
            return Err("give the port with --to-port".into());
        }
        text.parse()
            .map(Self::Mac)
            .map_err(|_| format!("{text:?} is neither an IP nor a MAC address"))
    }
}
