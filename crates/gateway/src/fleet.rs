//! The state of many gateways in etcd.
//!
//! | module | what it holds |
//! |---|---|
//! | [`key`], [`value`], [`item`] | schema 1: keys, what they hold, packed |
//! | `name` | name of a fleet's state |
//! | [`chance`] | times by chance |
//! | `merge` | statements into what a key holds |
//! | `clock` | the fleet's time, by which what was deleted grows old |
//! | [`sync`] | how a gateway follows etcd without a gap; no sockets, no clock |
//! | [`shards`] | which gateway owns which networks; no sockets, no clock |
//! | [`Member`] | does what [`shards`] says |
//! | [`Baggage`] | connections, to the gateway that gets their networks |
//! | `client`, [`Door`] | what is asked of etcd, and the connections to it |
//! | `follow` | does what [`sync`] says |
//! | `write` | changes into transactions |
//! | `space` | whether etcd takes anything |
//! | [`migrate`] | the truth from a file to etcd, or back |
//! | [`Status`] | how it fares |
//! | `unanswered` | for how long etcd has not answered |
//! | `backlog` | what waits for the disk of the copy |

use std::hash::{BuildHasher as _, RandomState};

pub(crate) mod backlog;
pub(crate) mod baggage;
pub mod chance;
pub(crate) mod client;
pub(crate) mod clock;
mod door;
pub(crate) mod follow;
pub mod item;
pub mod key;
mod member;
pub(crate) mod merge;
pub mod migrate;
mod name;
pub mod order;
pub(crate) mod pages;
pub mod shards;
pub(crate) mod space;
mod status;
pub mod sync;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod unanswered;
pub mod value;
pub(crate) mod write;

pub use baggage::Baggage;
pub use client::{EtcdOptions, EtcdTls, User};
pub use door::Door;
pub use member::{Known, Member, MemberOptions};
pub use name::FleetName;
pub use status::Status;

/// A number that nobody knows before.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
