//! What the queues of a port have in common: the XDP program, its map, changed settings.

use std::fmt;

use ringside_nic::Interface;

use super::settings::Changed;
use crate::error::Error;
use crate::opener::Opener;
use crate::program::{XdpLink, XskMap};
use crate::queue::{Queue, StatsReader};
use crate::report::PortReport;
use crate::stats::Stats;

/// What a port has besides its queues; see [`Port::into_queues`](super::Port::into_queues).
///
/// When it is dropped, the sockets leave the XSKMAP, settings are restored, and the XDP program is
/// detached, in this order. Its methods can be called from any thread, while others work on the
/// queues.
pub struct PortGuard {
    pub(super) interface: Interface,
    /// Restored before the program is detached, which on some drivers ends their NAPI instances.
    pub(super) changed: Changed,
    pub(super) map: Option<XskMap>,
    /// Where the sockets are in the map.
    pub(super) places: Vec<u32>,
    pub(super) link: Option<XdpLink>,
    #[cfg(feature = "attach")]
    pub(super) program: Option<ringside_bpf::XskProgram>,
    pub(super) report: PortReport,
    pub(super) readers: Vec<StatsReader>,
    pub(super) opener: Opener,
}

impl PortGuard {
    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// What was obtained per queue, and why.
    pub fn report(&self) -> &PortReport {
        &self.report
    }

    /// Checks that this process opened the port, and is not a child of it. Reads memory only.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of `fork()`.
    pub fn check_process(&self) -> Result<(), Error> {
        let queue = self.report.queues.first().map_or(0, |report| report.queue);
        self.opener.check(self.interface.name(), queue)
    }

    /// The counters of all queues together, also of those that are closed. For one queue:
    /// [`queue_stats`](Self::queue_stats). One `getsockopt()` for each queue.
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if the kernel does not answer.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.readers.iter().map(StatsReader::stats).sum()
    }

    /// The readers of the queues' counters, in the order of the queues.
    pub fn queue_stats(&self) -> &[StatsReader] {
        &self.readers
    }

    /// What our XDP program counted, per queue of the interface, also for queues without a socket;
    /// empty when the port uses another program.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the counters cannot be read.
    #[cfg(feature = "attach")]
    pub fn program_counters(&self) -> Result<Vec<ringside_bpf::QueueCounters>, Error> {
        let Some(program) = &self.program else {
            return Ok(Vec::new());
        };
        (0..program.queues())
            .map(|queue| {
                program.counters(queue).map_err(|error| Error::Load {
                    interface: self.interface.name().to_owned(),
                    reason: format!("its counters cannot be read: {error}"),
                })
            })
            .collect()
    }

    /// A reader of the same counters that outlives the guard; `None` when the port uses another
    /// program.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] when the process may open no more files.
    #[cfg(feature = "attach")]
    pub fn program_counter_reader(&self) -> Result<Option<ringside_bpf::XskCounters>, Error> {
        let reader = self.program.as_ref().map(ringside_bpf::XskProgram::counter_reader);
        reader.transpose().map_err(|error| Error::Load {
            interface: self.interface.name().to_owned(),
            reason: format!("its counters cannot be kept: {error}"),
        })
    }

    pub(super) fn close(&mut self) {
        if !self.opener.is_this_process() {
            // Sockets, program and settings are the parent's. Closing the copies of its descriptors
            // changes nothing.
            std::mem::take(&mut self.changed).forget();
            return;
        }
        if let Some(map) = &self.map {
            // The kernel has removed those that are closed, and somebody else's may be there by
            // now.
            let open = self
                .places
                .drain(..)
                .zip(&self.readers)
                .filter(|(_, reader)| !reader.is_closed());
            open.for_each(|(place, _)| map.remove(place));
        }
        self.changed.restore();
        self.link = None;
        self.report.queues.clear();
        self.readers.clear();
    }
}

impl Drop for PortGuard {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for PortGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortGuard")
            .field("interface", &self.interface)
            .field("queues", &self.readers)
            .finish_non_exhaustive()
    }
}

/// The first step of every teardown: from here on no packet is redirected to the queues.
pub(super) fn leave_map(map: Option<&XskMap>, queues: &[Queue]) {
    if let Some(map) = map {
        for queue in queues {
            map.remove(map.place_of(queue));
        }
    }
}
