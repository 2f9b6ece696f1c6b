//! Hints: what the XDP program knows about a packet, told to whoever receives it.
//!
//! The program puts a struct in front of the packet, whose last member is the struct's own id in the BTF:
//!
//! ```text
//!   frame   | ... | rx_ktime | rx_cpu | btf_id | packet ...
//!                 '--- bpf_xdp_adjust_meta() --'
//! ```
//!
//! [`Btf`] finds such structs in the type information of a BPF object, of the kernel, or of a kernel module; [`Layouts`] are
//! those that a port's packets may have; a [`Reader`] reads one of them as a Rust struct, [`RawHints`] any of them by names.
//!
//! ```no_run
//! use ringside_xsk::hints::{Btf, Hints, Layouts};
//! use ringside_xsk::{Interface, Port, QueueOptions, Wait};
//! # fn program() -> ringside_xsk::Program { unimplemented!() }
//!
//! #[derive(Hints)]
//! #[repr(C, packed(4))]
//! struct RxTime {
//!     rx_ktime: u64,
//!     rx_cpu: u32,
//!     btf_id: u32,
//! }
//!
//! let mut layouts = Layouts::of(&Btf::from_file("program.bpf.o")?)?;
//! let rx_time = layouts.reader::<RxTime>()?;         // compared with the program's struct rx_time, once
//! let mut port = Port::builder(Interface::by_name("eth0")?)
//!     .program(program())
//!     .options(QueueOptions::new().hints(layouts))
//!     .open()?;
//! let queue = port.queues_mut().next().unwrap();
//! let mut burst = queue.recv(Wait::Spin)?;
//! for (packet, hints) in burst.with_hints(rx_time) {
//!     if let Some(RxTime { rx_ktime, .. }) = hints {
//!         println!("{} bytes came at {rx_ktime} ns of CLOCK_MONOTONIC", packet.len());
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Why a value is never a wrong one
//!
//! The kernel does not tell whether there is metadata in front of a packet. So the library clears the word in which the id
//! would be before it lends a frame to the kernel: when the program writes no hints, the word is 0, and what was in the
//! frame before is not taken for hints. An id is believed only where it was cleared, right in front of the place where
//! packets start; with zero-copy a program that moves a packet's start (`bpf_xdp_adjust_head()`), or a NIC that writes there,
//! costs the hints of that packet. In front of a packet whose start was moved by the user, that was replaced, or that was
//! not received, there are no hints. What is `None` for such a reason is counted ([`HintCounters`]).
//!
//! What remains with the program: it must not write a struct under another's id, and must take off metadata that came with
//! a packet from another XDP program (`ringside_hints()` and `ringside_no_hints()` in `ringside/hints.h` do).
//!
//! Ringside's own program tells receive time, CPU, queue, number and a mark: `Layouts::ringside()`. With
//! `Layouts::ringside_nic()` it asks the NIC's driver too: hardware time stamp, hash, VLAN tag. When a packet was received is
//! then an `RxStamp`, which says whose stamp it is: the NIC's, the program's, or the application's own.
//!
//! Metadata in front of packets of XDP sockets needs Linux 5.3 or so in copy mode, with zero-copy the driver.
//! <https://docs.kernel.org/networking/xdp-rx-metadata.html>

mod btf;
mod error;
mod layout;
#[cfg(feature = "attach")]
mod nic;
#[cfg(feature = "attach")]
mod own;
mod set;
mod source;
#[cfg(feature = "attach")]
mod stamp;
mod typed;

#[cfg(test)]
mod tests;

pub use btf::Btf;
pub use error::{BtfError, LayoutError};
pub use layout::{Field, LONGEST, Layout, Value};
#[cfg(feature = "attach")]
pub use nic::{HardwareStamp, HashType, NicReader, RingsideNic, RxHash, VlanTag};
#[cfg(feature = "attach")]
pub use own::RingsideRx;
pub use ringside_hints_derive::Hints;
pub use set::{FieldHandle, Layouts, RawHints};
#[cfg(feature = "attach")]
pub use stamp::{RxStamp, StampCounters, StampSource};
pub use typed::{HintValue, Hints, Reader, Shape};

pub(crate) use typed::Slot;

/// Reads of hints that gave `None`, by reason. A packet that is asked for several types is counted each time, but not for
/// having another one of the port's types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct HintCounters {
    /// The program wrote none: the id is 0.
    pub absent: u64,
    /// An id that none of the port's layouts has.
    pub unknown: u64,
    /// The packet does not start where packets start, was replaced, or was not received by a queue with hints.
    pub stale: u64,
}
