//! What an overlay gateway decides, without sockets and without a clock.
//!
//! Compute nodes send their tenants' packets, encapsulated in VXLAN (RFC 7348) or Geneve (RFC 8926), to the gateway. It
//! knows behind which host every tenant address lives, and sends them on. This crate is the part of it that thinks:
//! everything here is a plain function or a table in memory, tested without root.
//!
//! | module | what it holds |
//! |---|---|
//! | [`address`] | [`Vni`], [`TenantAddress`]: what names a tenant's port |
//! | [`flow`] | [`Flow`]: what of a tenant's packet decides about its way |
//! | [`policy`] | security groups: which packets the rules of an address allow |
//! | [`conntrack`] | connections: which packets belong to one that was allowed |
//! | [`firewall`] | [`Firewall`]: both together |
//! | [`decide`] | [`Decider`]: what becomes of each packet of a burst |
//! | [`answer`], [`rewrite`] | edits in place: answers, ICMP errors, and the packet that goes on |
//! | [`buffer`] | [`Buffer`]: a packet's memory |
//! | [`packet`] | what a received frame is, and where everything is in it |
//! | [`direct`] | [`Directs`]: which hosts are told where a receiver lives, because they send much to it |
//! | [`mod@drop`] | [`DropReason`]: why packets are dropped |
//! | [`shard`] | which gateway of a fleet serves which network |
//! | [`underlay_error`] | what hosts and routers say by ICMP about the gateway's own packets |
//! | [`table`] | [`Neighbors`], by which workers find tens of millions of tenants while they change; [`Hosts`] |
// One instruction has no safe name: see `prefetch`.
#![deny(unsafe_code)]

pub mod address;
mod allowance;
pub mod answer;
pub mod buffer;
pub mod conntrack;
pub mod decide;
pub mod direct;
pub mod drop;
pub mod firewall;
pub mod flow;
mod lane;
pub mod packet;
pub mod policy;
mod prefetch;
pub mod rewrite;
pub mod shard;
pub mod table;
#[doc(hidden)]
pub mod testing;
pub mod underlay_error;
mod words;

pub use address::{TenantAddress, Vni};
pub use buffer::{Buffer, Roomy};
pub use decide::{Decider, Decision};
pub use direct::{DirectLimits, DirectPair, Directs};
pub use drop::DropReason;
pub use firewall::Firewall;
pub use flow::Flow;
pub use packet::{Class, Content, Packet, Underlay};
pub use table::{Hosts, Neighbors};
