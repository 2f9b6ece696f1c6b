//! `--prometheus`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where metrics are offered.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PrometheusArgs {
    /// Offer metrics for Prometheus at http://ADDRESS/metrics while it runs: a port, on loopback, or an address of this host with
    /// a port, such as 192.0.2.1:9464; whoever reaches it may read them
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub(crate) prometheus: Option<SocketAddr>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        format!(
            "{text:?} is neither a port nor an IP address with one: write 9464, 192.0.2.1:9464 or [2001:db8::1]:9464"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (text, expected) in [
            ("9464", "127.0.0.1:9464"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:9464", "0.0.0.0:9464"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        for text in ["", ":9464", "65536", "-1", "localhost:9464", "192.0.2.1", "::1:9464x"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
