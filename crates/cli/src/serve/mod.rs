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
#[cfg(feature = "full")]
mod board;
mod clocks;
#[cfg(feature = "full")]
mod connection;
#[cfg(feature = "full")]
mod contest;
#[cfg(feature = "full")]
mod errand;
mod far;
#[cfg(feature = "full")]
mod fits;
#[cfg(feature = "full")]
mod guests;
#[cfg(feature = "full")]
mod lending;
mod near;
mod pin;
mod place;
#[cfg(feature = "full")]
mod running;
mod secret;
#[cfg(feature = "full")]
mod site;
#[cfg(feature = "full")]
mod stamp;
mod text;
#[cfg_attr(not(feature = "full"), path = "no_tls.rs")]
mod tls;
mod turns;
#[cfg(feature = "full")]
mod udp;
mod wire;
#[cfg(feature = "full")]
mod xsk;

pub(crate) use args::{Args, RemoteArgs};
pub(crate) use clocks::{Clocks, OneWay};
pub(crate) use far::{Dialled, Far};
pub(crate) use near::{finish, lost, tell_apart};
pub(crate) use pin::Pin;
pub(crate) use place::find;
#[cfg(feature = "full")]
pub(crate) use secret::random_token;
#[cfg(feature = "full")]
pub(crate) use site::run;
pub(crate) use text::{came_there, one_way, text};
pub(crate) use turns::Turns;
