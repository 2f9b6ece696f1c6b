//! What a running command offers to others: its statistics through a socket in the state directory (`ringside.live/1`), and
//! with `--prometheus` as metrics over HTTP.
//!
//! ```text
//!  thread of a queue ── Teller ─┐  between two bursts, and only when somebody has asked
//!                             Board     counters and places of frames, one slot a queue
//!  server thread ── Source ─────┘  asks, waits for the answers, adds what the XDP program and the probes have counted
//!     ├─ /run/ringside/live-PID-START.sock    a line in, a line of JSON out
//!     └─ http://127.0.0.1:PORT/metrics
//! ```
//!
//! While nobody asks, a burst costs one load of a word that does not change.

mod args;
mod board;
mod client;
pub(crate) mod directory;
mod http;
mod metrics;
mod offer;
mod server;
mod source;

pub(crate) use args::PrometheusArgs;
pub(crate) use board::Teller;
pub(crate) use client::Client;
pub(crate) use offer::{Offer, listen};
