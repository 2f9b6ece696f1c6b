//! What a gateway offers of itself.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// All of it, at this port of this namespace's loopback; nothing, if nobody is there.
pub(crate) fn scrape(port: u16) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text\r\n\r\n")
            .unwrap();
        stream.read_to_string(&mut answer).unwrap();
    }
    answer
}

/// What was told at one time.
#[derive(Debug)]
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    /// Of the gateway that offers them at this port of this namespace's loopback.
    pub(crate) fn of(port: u16) -> Self {
        Self(scrape(port))
    }

    /// By its name, without what all of them begin with, and with its labels.
    pub(crate) fn get(&self, name: &str) -> f64 {
        let name = format!("ringside_gateway_{name} ");
        let value = self.0.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// One that is a whole number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "that is looked at"
    )]
    pub(crate) fn count(&self, name: &str) -> u64 {
        let value = self.get(name);
        assert!(value >= 0.0 && value.fract() == 0.0, "{name} is {value}");
        value as u64
    }
}
