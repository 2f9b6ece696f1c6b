//! The state of many gateways in etcd.
//!
//! | module | what it holds |
//! |---|---|
//! | [`key`], [`value`], [`item`] | schema 1: keys, what they hold, packed |
//! | `merge` | statements into what a key holds |
//! | [`sync`] | how a gateway follows etcd without a gap; no sockets, no clock |

pub mod item;
pub mod key;
pub(crate) mod merge;
pub mod sync;
#[cfg(test)]
pub(crate) mod testing;
pub mod value;
