//! `ringside serve`: the far end of measurements between two hosts; and what the near end needs of it.
//!
//! ```text
//!   ringside ping HOST                         ringside serve eth0
//!   ───────────────────                        ────────────────────
//!   place.rs   host → route → interface         site.rs        listens; one thread a connection
//!   far.rs     dials, asks, keeps alive  ─TCP─▶ connection.rs  answers, keeps alive
//!              (measure::control::Client)                      (measure::control::Server)
//!                                                guests.rs, errand.rs  what it does for a lab
//!   run/ping   sends and times           ─UDP─▶ xsk.rs, udp.rs answer and count, for the sessions
//!                                               on the board.rs
//! ```

mod args;
mod board;
mod clocks;
mod connection;
mod contest;
mod errand;
mod far;
mod fits;
mod guests;
mod lending;
mod near;
mod place;
mod running;
mod secret;
mod site;
mod text;
mod tls;
mod turns;
mod udp;
mod wire;
mod xsk;

pub(crate) use args::{Args, RemoteArgs};
pub(crate) use clocks::{Clocks, OneWay};
pub(crate) use far::{Dialled, Far};
pub(crate) use near::{finish, lost, tell_apart};
pub(crate) use place::find;
pub(crate) use secret::random_token;
pub(crate) use site::run;
pub(crate) use text::text;
pub(crate) use tls::Pin;
pub(crate) use turns::Turns;
