//! What goes wrong with XDP on this machine, counted at the kernel's tracepoints.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::Verdict;
use crate::error::{Error, Result};
use crate::load;
use crate::skel::events::EventsSkelBuilder;

const NAME: &str = "ringside_events";

/// Counts redirects that failed and exceptions, of all interfaces and all programs, from when it is started until it is
/// dropped.
///
/// A packet for an AF_XDP socket whose fill ring is empty or whose RX ring is full is such a redirect. The tracepoints are hit
/// by errors alone, so what goes well is not slowed down.
///
/// Needs a kernel with BTF, and CAP_BPF and CAP_PERFMON, or root.
///
/// ```no_run
/// use ringside_bpf::XdpEvents;
///
/// let events = XdpEvents::start()?;
/// for event in events.counts()? {
///     println!("{event:?}");
/// }
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[doc(alias = "xdp_redirect_err")]
#[doc(alias = "xdp_exception")]
#[derive(Debug)]
pub struct XdpEvents {
    events: MapHandle,
    /// Each detaches its program when it is dropped.
    _links: [Link; 2],
}

/// How often one thing went wrong on one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct XdpEvent {
    /// The inode of the interface's network namespace: `stat -L -c %i /proc/self/ns/net`.
    pub namespace: u32,
    /// The index of the interface that the packets came in by.
    pub interface: u32,
    /// What went wrong.
    pub kind: XdpEventKind,
    /// How often.
    pub count: u64,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum XdpEventKind {
    /// A redirect failed with this error number. Of AF_XDP sockets on copy paths: `ENOMEM` for an empty fill ring, `ENOBUFS` for
    /// an RX ring that is full, `ENOSPC` for a packet that is longer than a frame, among others.
    Redirect(u32),
    /// A packet was dropped after this verdict: one that the program aborted, or that the driver could not carry out.
    #[serde(serialize_with = "action")]
    Exception(Verdict),
}

fn action<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(verdict.name())
}

impl XdpEvents {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the kernel refuses the programs: without BTF, and without the capabilities.
    pub fn start() -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || EventsSkelBuilder::default().open(&mut storage)?.load())?;
        let links = load::capture(NAME, || {
            Ok([
                skel.progs.ringside_redir.attach_trace()?,
                skel.progs.ringside_except.attach_trace()?,
            ])
        })?;
        Ok(Self {
            events: load::own_map(NAME, &skel.maps.events)?,
            _links: links,
        })
    }

    /// What was counted so far, in no order.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn counts(&self) -> Result<Vec<XdpEvent>> {
        let mut counts = Vec::new();
        for key in self.events.keys() {
            let values = self
                .events
                .lookup_percpu(&key, MapFlags::ANY)
                .map_err(|error| Error::map(NAME, "events", "reading", load::os_error(&error)))?;
            let values = values.unwrap_or_default();
            let count = values.iter().filter_map(|value| value.as_slice().try_into().ok());
            counts.extend(XdpEvent::from_key(&key, count.map(u64::from_ne_bytes).sum()));
        }
        Ok(counts)
    }
}

impl XdpEvent {
    /// `struct event` in events.bpf.c
    fn from_key(key: &[u8], count: u64) -> Option<Self> {
        let (words, []) = key.as_chunks::<4>() else { return None };
        let &[namespace, interface, kind, code] = words else {
            return None;
        };
        let code = u32::from_ne_bytes(code);
        Some(Self {
            namespace: u32::from_ne_bytes(namespace),
            interface: u32::from_ne_bytes(interface),
            kind: match u32::from_ne_bytes(kind) {
                0 => XdpEventKind::Redirect(code),
                1 => XdpEventKind::Exception(code.into()),
                _ => return None,
            },
            count,
        })
    }
}
