//! Facts and settings of a network interface and of the host it is in.
//!
//! An AF_XDP program has to know its interface before it opens a socket: how many receive queues are active, which
//! driver serves it, whether a program is attached already, what the offloads do to a packet. It also has to know
//! what the process may do: locked memory, capabilities, the memory the control group has left. This crate answers
//! those questions from the kernel directly (rtnetlink, `SIOCETHTOOL`, sysfs, procfs), without running other tools,
//! and changes only what it is asked to change.
//!
//! ```no_run
//! use ringside_nic::Interface;
//!
//! # fn main() -> Result<(), ringside_nic::Error> {
//! let eth0 = Interface::by_name("eth0")?; // an unknown name lists the names that exist
//! let state = eth0.state()?;
//! println!("{} is {}, {} receive queues", state.name, state.operstate, eth0.rx_queues()?);
//! if let Some(xdp) = state.xdp {
//!     println!("program {} is attached in {} mode", xdp.prog_id, xdp.mode);
//! }
//! println!("transmit checksum offload: {}", eth0.feature("tx-checksum-ip-generic")?.active);
//! # Ok(())
//! # }
//! ```
//!
//! # Network namespaces
//!
//! Every call works in the network namespace of the **calling thread**. An [`Interface`] remembers the namespace in
//! which it was looked up and refuses to act in another one, where the same name or index may belong to a different
//! interface. Settings in sysfs (the interface-wide NAPI ones) are found in the right namespace with `CAP_SYS_ADMIN`;
//! without, they also need the sysfs of that namespace mounted at `/sys`.
//!
//! # Privileges
//!
//! Reading needs none, except that other users' processes are invisible to [`owners`] without `CAP_SYS_PTRACE`.
//! Changing anything needs `CAP_NET_ADMIN`.

#![deny(unsafe_code)]

pub mod changes;
pub mod clock;
mod cpus;
mod deferral;
mod egress;
mod error;
mod ethtool;
mod features;
mod flags;
pub mod host;
mod huge_pages;
mod icmp;
mod interface;
mod irq;
mod kernel;
mod knob;
mod link;
mod namespace;
mod napi;
mod neighbour;
mod netdev;
pub mod netlink;
mod ntuple;
pub mod owners;
pub mod process;
mod promiscuous;
mod qdisc;
mod queue_counters;
mod route;
mod rss;
mod setting;
pub mod sockets;
mod speed;
pub mod state_dir;
mod steering;
mod sys;
mod sysfs;
mod threads;
mod veth;
mod vxlan;
mod watch;

pub use deferral::{Applied, Deferral};
pub use error::Error;
pub use ethtool::{Channels, Driver, Rings};
pub use features::Feature;
pub use huge_pages::HugePages;
pub use icmp::{IcmpErrors, ReceivedIcmp};
pub use interface::{Interface, InterfaceAddress};
pub use irq::{Irq, IrqUse};
pub use knob::{Coalescing, Knob};
pub use link::{LinkState, LinkStats, OperState, XdpAttachment, XdpMode};
pub use namespace::namespace_cookie;
pub use napi::NapiSettings;
pub use neighbour::{NeighbourEvent, NeighbourWatch};
pub use netdev::{
    DeviceCapabilities, Napi, NapiSetting, QueueDetail, QueueKind, QueueStatistics, RxMetadata, Threaded, XdpFeatures,
    XskFeatures,
};
pub use ntuple::{NtupleFlow, NtupleRule};
pub use promiscuous::Promiscuous;
pub use qdisc::{Etf, Gate, Gates, Qdisc, QdiscSetup, QueueRange};
pub use queue_counters::QueueCounter;
pub use route::Route;
pub use rss::{Flow, FlowKind, HashFunction, HashedFields, Rss, Symmetry, toeplitz};
pub use steering::{QueueIrq, Steered, Steering};
pub use sys::wait_for_grace_period;
pub use threads::NapiThread;
pub use veth::{PeerNamespace, VethPeer};
pub use vxlan::Vxlan;
pub use watch::{LinkEvent, LinkStatus, LinkWatch};

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
