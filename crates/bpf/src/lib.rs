//! Ringside's BPF programs, each behind a safe handle.
//!
//! | handle | program | what it does with a packet |
//! |---|---|---|
//! | [`XskProgram`] | `xsk.bpf.c`, `xsk_nic.bpf.c` | steers it into the AF_XDP socket of its queue |
//! | [`Sink`] | `sink.bpf.c` | counts and drops it before the stack: the limit of receiving |
//! | [`Reflector`] | `reflect.bpf.c` | sends it back, or answers it: the limit of forwarding |
//! | [`Redirector`] | `redirect.bpf.c` | sends it on to another interface, from driver to driver |
//! | [`IngressDrop`] | `tc_drop.bpf.c` | drops it behind the AF_PACKET taps |
//! | [`Landings`] | `landing.bpf.c`, `landing_xsk.bpf.c` | counts it by class, receive queue and CPU, and lets it pass |
//! | [`PriorityTag`] | `tag.bpf.c` | gives it a VLAN priority on its way out |
//! | [`Generator`] | `generate.bpf.c` | makes it, without a socket |
//! | [`GatewayProgram`](gateway::GatewayProgram) | `gateway.bpf.c` | sends tenants' packets on to where they live: the [`gateway`]'s fast path |
//! | [`UserProgram`] | the user's own | what the user wants |
//!
//! [`XdpEvents`] (`events.bpf.c`) sees no packets: it counts what goes wrong with them, at the kernel's tracepoints. [`Tracer`]
//! (`trace.bpf.c`, `trace_fentry.bpf.c`) tells when probes pass the points of their way through the kernel. [`TapRings`]
//! (`rings.bpf.c`) sees what waits for guests in TAP devices. [`RedirectLosses`] (`redirect_lost.bpf.c`) counts what is dropped behind a redirect.
//!
//! The programs are written in C. Their compiled objects are checked in (`src/generated`), so a build
//! needs no clang; `scripts/generate` compiles them again. Nothing but the kernel is
//! needed at run time. Every handle owns the file descriptors of its program and maps, and what it
//! attaches is a `bpf_link`: dropping the [`Link`], or the end of the process in any way, detaches
//! it.
//!
//! ARP and IPv6 neighbour discovery reach the host through all of them, with the exceptions that
//! say so: [`Filter::Wire`], [`PacketMatch::arp`], [`Neighbours::Drop`] and [`IngressDrop`].
#![deny(unsafe_code)]

mod attach;
mod error;
mod events;
mod filter;
pub mod gateway;
mod generate;
mod landing;
mod load;
mod redirect;
mod reflect;
mod rings;
mod sink;
mod skel;
mod sys;
mod tag;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod trace;
mod traffic;
mod user;
mod xsk;

pub use attach::{Link, LoadedProgram, Verdict, XdpMode, attach_pass, dry_run, loaded_program};
pub use error::{Error, Result};
pub use events::{XdpEvent, XdpEventKind, XdpEvents};
pub use filter::{Filter, MatchError, PacketMatch, ParseFilterError};
pub use generate::{Generator, GeneratorOptions, Sent};
pub use ipnet::IpNet;
pub use landing::{Landing, LandingClass, LandingFor, Landings};
pub use redirect::{RedirectLosses, RedirectLost, Redirected, Redirector};
pub use reflect::{ProbeMarks, Reflect, Reflector};
pub use rings::{RingSeen, TapRings};
pub use sink::{IngressDrop, Neighbours, Sink};
pub use tag::PriorityTag;
pub use trace::{MissingHook, TraceDisturber, TraceEvent, TraceOptions, TraceReader, Tracer};
pub use traffic::Traffic;
pub use user::UserProgram;
pub use xsk::{NicHints, QueueCounters, XSK_NIC_OBJECT, XSK_OBJECT, XskCounters, XskHints, XskProgram};

/// The inode of the calling thread's network namespace, by which tracing programs tell it from others; `stat -L -c %i /proc/self/ns/net` prints it.
/// 0, which is none's, without a file system of processes.
#[must_use]
pub fn namespace() -> u32 {
    let file = std::fs::metadata("/proc/thread-self/ns/net");
    file.map_or(0, |file| {
        u32::try_from(std::os::unix::fs::MetadataExt::ino(&file)).unwrap_or(0)
    })
}
