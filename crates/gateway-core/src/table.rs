//! Where every tenant lives: tables that workers read while they change.
//!
//! [`Neighbors`] finds the [`Neighbor`] of a [`TenantAddress`](crate::TenantAddress); [`Hosts`] holds the hosts that
//! neighbours name, once each. Workers read through a [`NeighborReader`] and a [`HostReader`] of their own, without
//! locks, without waiting and without writing to memory that others read; one burst of packets is one call, in which the
//! loads of all its packets are under way at once.
//!
//! # Why not an immutable snapshot, why not a ready-made concurrent map
//! A snapshot of ten million neighbours would have to be copied for each change. A concurrent map makes its readers
//! write (a reference count, an epoch, a lock's word) and gives no way to look up many keys at once. Here a slot is
//! written **once**: from empty to live to dead. A change writes a new slot and then buries the old one; what a reader
//! sees is always the whole old value or the whole new one. Dead slots go when their shard, a 256th of the table, is
//! built anew, which takes some milliseconds at ten million neighbours and keeps no reader waiting.

mod bindings;
mod hosts;
mod neighbors;
mod shard;
mod slot;

pub use bindings::{BindingReader, Bindings};
pub(crate) use hosts::PlainHost;
pub use hosts::{Encapsulation, Host, HostId, HostReader, Hosts, Limit};
pub use neighbors::{Neighbor, NeighborReader, NeighborWriter, Neighbors, Put, Removed};
pub(crate) use slot::address_of;

#[cfg(test)]
mod tests;
