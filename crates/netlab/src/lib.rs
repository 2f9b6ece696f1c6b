//! Network test beds on one machine: namespaces joined by veth pairs, or by the machine's NICs.
//!
//! A test bed is two or more hosts, each a network namespace, joined by veth pairs with a known number of queues,
//! MTU, addresses and offloads. It needs no configuration of the machine and leaves none behind: everything is removed
//! on drop, also when a test panics, and what a killed process left is recognised and removed by the next one.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use ringside_netlab::{Lab, VethConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lab = Lab::veth(VethConfig { queues: 4, tx_checksum: false, ..VethConfig::tagged("echo") })?;
//!
//! // A closure on a thread inside a namespace. Sockets stay in the namespace they were made in.
//! let receiver = lab.b.run(|| UdpSocket::bind((lab.b.ipv4, 7)))?;
//! let sender = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0)))?;
//! sender.send_to(b"hello", (lab.b.ipv4, 7))?;
//! let mut data = [0; 16];
//! assert_eq!(receiver.recv_from(&mut data)?.0, 5);
//!
//! // Facts and settings of an end, through ringside-nic.
//! assert_eq!(lab.a.run(|| lab.a.interface.rx_queues())?, 4);
//! lab.b.set_up(false)?;
//!
//! // Another program inside, which dies with this process.
//! let links = lab.a.ns.command("ip").args(["-s", "link"]).output()?;
//! println!("{}", String::from_utf8_lossy(&links.stdout));
//! # Ok(())
//! # }
//! ```
//!
//! A chain of three hosts is two labs that share the namespace in the middle:
//!
//! ```no_run
//! use ringside_netlab::{Lab, Namespace, VethConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [client, router, server] = ["client", "router", "server"].map(Namespace::create);
//! let (client, router, server) = (client?, router?, server?);
//! let left = Lab::join(&client, &router, VethConfig { subnet: 1, ..VethConfig::named("to-router", "left") })?;
//! let right = Lab::join(&router, &server, VethConfig { subnet: 2, ..VethConfig::named("right", "to-router") })?;
//! # drop((left, right)); Ok(())
//! # }
//! ```
//!
//! Two NICs of this machine with a cable between them take a veth pair's place with [`Lab::cable`].
//!
//! More than two hosts in one network are veth pairs of which one end is a port of a bridge ([`Device::bridge`]).
//! [`Device::vxlan`] and [`Device::geneve`] are tunnels of the kernel's, [`Tap`] an interface whose cable ends in the test. With another kernel, or with NICs
//! that have zero-copy, programs run in a [`guest`]; how it is joined to the network is an [attachment](attach).
//!
//! # Privileges
//!
//! Root, or `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, and a writable `/run`. In a chroot whose `/` is no mount point also
//! `CAP_SYS_CHROOT`.
//!
//! # What is inside a namespace
//!
//! Code that runs inside sees the namespace's own `/sys/class/net`, because it also has a mount namespace of its own
//! with a fresh sysfs. File systems that were mounted below `/sys` (bpf, tracefs, debugfs, control groups) are carried
//! over. Each namespace also has a name under `/run/netns`, so `ip netns exec NAME …` works from a shell.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "guests"), allow(dead_code, reason = "guests alone use it"))]

#[cfg(feature = "guests")]
pub mod attach;
mod borrowed;
mod configure;
mod device;
mod enter;
mod error;
#[cfg(feature = "guests")]
pub mod guest;
mod in_use;
mod lab;
mod name;
mod namespace;
mod offspring;
mod program;
mod sys;
mod tap;
pub mod testing;

pub use borrowed::Borrowed;
pub use device::{Device, GeneveConfig, VxlanConfig};
pub use error::Error;
pub use in_use::use_of;
pub use lab::{End, Lab, VethConfig};
pub use namespace::{Namespace, reap_stale};
pub use offspring::spawn_with_offspring;
pub use program::find_program;
pub use tap::{GuestTap, Tap};
pub use testing::wait_until;

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
