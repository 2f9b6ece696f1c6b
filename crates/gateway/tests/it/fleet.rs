//! Gateways that have their state in etcd: real servers, real processes, and what may happen to them.
//!
//! `cargo test -p ringside-gateway --test it fleet::` runs a bounded part, `make test-fleet` all of it.

mod agents;
mod authority;
mod basics;
mod by_hand;
mod changes;
mod clocks;
mod cluster;
mod compared;
mod copy;
mod damaged;
mod faults;
mod followed;
mod full;
mod handover;
mod hindered;
mod history;
mod hosts;
mod hung;
mod interrupted;
mod late;
mod members;
mod mended;
mod metrics;
mod migrate;
mod movers;
mod node;
mod objects;
mod ownership;
mod quiet;
mod recorder;
mod restore;
mod security;
mod stranger;
mod table;
mod traffic;
mod trial;
mod turns;
mod units;
mod unnamed;
mod unsaid;
mod way;

use crate::{common, peers, process, tenant};
use common::etcd::Etcd;
