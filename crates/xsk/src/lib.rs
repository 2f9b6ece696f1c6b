//! AF_XDP for packet programs: an interface with all its queues in a few lines, frames that own their memory, and
//! the obtained mode always told.
//!
//! - [`Port`] is an interface with all its queues, our XDP program attached; [`Queue`] is one of them, for one thread.
//! - [`Queue::recv`] gives a [`Burst`] of packets to edit, drop, keep or send back; [`Frame`] is a packet that you keep.
//! - [`Port::report`] tells which mode was obtained per queue and why not a better one; [`Mode::Require`] fails instead.
//! - [`Stats`] holds the kernel's six counters and ours, [`Ledger`] tells where each frame is.
//! - [`Capabilities`] tells what an interface and the kernel can do, before anything is opened.
//!
//! Own XDP program, own socket, own memory: [`Program::Custom`], [`Program::Attached`], [`Queue::builder`].
//!
//! Needs Linux 5.9 or later (`bpf_link` for XDP, six counters), and the capabilities `CAP_NET_RAW`, `CAP_NET_ADMIN` and
//! `CAP_BPF`; for more memory than `RLIMIT_MEMLOCK` also `CAP_IPC_LOCK`, and before Linux 5.18 `CAP_PERFMON` for our XDP
//! program. The kernel's own description: <https://docs.kernel.org/networking/af_xdp.html>
#![deny(unsafe_code)]

// The name by which the derive macro, and what the test binaries share, know this crate.
extern crate self as ringside_xsk;

mod burst;
mod busy_poll;
mod capabilities;
#[cfg(all(test, feature = "attach"))]
#[path = "../tests/it/common/mod.rs"]
mod common;
mod conflict;
mod error;
pub mod hints;
mod ledger;
mod link;
#[allow(unsafe_code, reason = "maps and unmaps memory")]
mod mmap;
mod mode;
mod nic_buffers;
mod opener;
mod options;
mod pair;
mod port;
mod program;
mod queue;
mod report;
#[allow(unsafe_code, reason = "reads and writes slots of shared rings")]
mod ring;
mod socket;
mod stats;
mod sync;
#[allow(unsafe_code, reason = "system calls without a safe wrapper elsewhere")]
mod sys;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod tx_metadata;
#[allow(unsafe_code, reason = "hands out the bytes of frames")]
mod umem;
mod wakeup;

pub use burst::{Burst, Packet, PacketsMut, PacketsWithHints};
pub use busy_poll::BusyPolling;
pub use capabilities::{Capabilities, KernelCapabilities, KernelFeature, Support};
pub use conflict::{foreign_program, program_name};
pub use error::{Error, Violation};
pub use ledger::Ledger;
pub use mmap::Pages;
pub use mode::{Mode, Path};
pub use options::{BusyPoll, Direction, QueueOptions};
pub use port::{Port, PortBuilder, PortGuard, ThreadedNapi};
pub use program::{AttachMode, AttachedProgram, Program, XdpLink, XskMap};
#[cfg(feature = "attach")]
pub use program::{Filter, IpNet, MatchError, PacketMatch, ParseFilterError};
pub use queue::{Queue, QueueBuilder, SendError, StatsReader};
pub use report::{NicReport, PortReport, ProgramReport, QueueReport};
#[cfg(feature = "attach")]
pub use ringside_bpf::{QueueCounters, XskCounters};
pub use ringside_nic::{Deferral, Error as InterfaceError, Interface, LinkEvent, LinkWatch, changes, clock};
pub use stats::{KernelStats, OwnStats, Stats};
pub use umem::{Frame, FrameMemory, SharedUmem, SharedUmemBuilder, XDP_HEADROOM};
pub use wakeup::Wait;
