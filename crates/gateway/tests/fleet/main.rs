//! Gateways that have their state in etcd: real servers, real processes, and what may happen to them.
//!
//! `cargo test -p ringside-gateway --test fleet` runs a bounded part, `make test-fleet` all of it.

#[path = "../common/mod.rs"]
mod common;
#[path = "../tenants/peers.rs"]
#[allow(dead_code, reason = "shared with the tenants' tests")]
mod peers;
#[path = "../../../cli/tests/common/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared; a part of it is used here")]
mod process;
#[path = "../tenants/tenant.rs"]
#[allow(dead_code, reason = "shared with the tenants' tests")]
mod tenant;

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
mod metrics;
mod migrate;
mod movers;
mod node;
mod objects;
mod ownership;
mod recorder;
mod restore;
mod security;
mod stranger;
mod table;
mod traffic;
mod trial;
mod turns;
mod units;
mod unsaid;
mod way;

use common::etcd::Etcd;
