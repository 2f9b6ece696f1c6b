//! What was obtained, for people and for results.

use std::fmt;

use ringside_nic::RxMetadata;
use serde::Serialize;

use crate::mmap::Pages;
use crate::mode::Path;
use crate::options::{BusyPoll, Direction};
use crate::tx_metadata::TxMetadataReport;

/// What one queue got, and why not better.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueReport {
    /// The interface's name.
    pub interface: String,
    /// The queue's number.
    pub queue: u32,
    /// The mode obtained.
    #[serde(rename = "mode")]
    pub path: Path,
    /// Receive, transmit or both.
    pub direction: Direction,
    /// Slots of the RX ring; 0: not made.
    pub rx_ring: u32,
    /// Slots of the TX ring; 0: not made.
    pub tx_ring: u32,
    /// Slots of the fill ring.
    pub fill_ring: u32,
    /// Slots of the completion ring.
    pub completion_ring: u32,
    /// Identity of the UMEM; queues that share one have the same.
    pub umem: u64,
    /// Frames of the UMEM, or the queue's share of them.
    pub frames: u32,
    /// Bytes of a frame.
    pub frame_size: u32,
    /// Bytes in front of a packet beyond the kernel's 256.
    pub headroom: u32,
    /// Whether a packet may be in several frames.
    pub multi_buffer: bool,
    /// What packets may ask for, and who does it; none where nothing can be asked for.
    pub tx_metadata: Option<TxMetadataReport>,
    /// Bytes of the UMEM's memory.
    pub memory_bytes: u64,
    /// The pages it lies in.
    pub pages: Pages,
    /// Whether the kernel tells when it must be woken.
    pub need_wakeup: bool,
    /// Busy-polling, if asked for.
    pub busy_poll: Option<BusyPoll>,
    /// Packets that one wake-up call sends; none with zero-copy, where the driver decides.
    pub tx_budget: Option<u32>,
    /// Frames that wait for packets that the NIC receives for the host, where the queue only
    /// transmits with zero-copy; 0 otherwise.
    pub host_frames: u32,
    /// Better modes, and why each was refused.
    pub refused_modes: Vec<String>,
    /// Options that were not obtained, and why: huge pages, the default number of frames.
    pub notes: Vec<String>,
}

impl fmt::Display for QueueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue {}: {}, {} frames of {} B ({} KiB, {} pages), rings rx {} tx {} fill {} completion {}, {}",
            self.queue,
            self.path,
            self.frames,
            self.frame_size,
            self.memory_bytes / 1024,
            match self.pages {
                Pages::Normal => "normal",
                Pages::Huge => "huge",
                Pages::Custom => "caller's",
            },
            self.rx_ring,
            self.tx_ring,
            self.fill_ring,
            self.completion_ring,
            if self.need_wakeup {
                "need_wakeup"
            } else {
                "woken at every burst"
            },
        )?;
        if self.multi_buffer {
            write!(f, ", packets in several frames")?;
        }
        if let Some(budget) = self.tx_budget {
            write!(f, ", tx budget {budget}")?;
        }
        if let Some(busy_poll) = self.busy_poll {
            write!(f, ", busy-poll budget {} for {} µs", busy_poll.budget, busy_poll.micros)?;
        }
        if let Some(tx_metadata) = &self.tx_metadata {
            write!(f, "\n    TX metadata: {tx_metadata}")?;
        }
        if self.host_frames != 0 {
            let frames = self.host_frames;
            write!(
                f,
                "\n    {frames} frames wait for packets that the NIC receives for the host"
            )?;
        }
        for note in self.refused_modes.iter().chain(&self.notes) {
            write!(f, "\n    {note}")?;
        }
        Ok(())
    }
}

/// The XDP program that feeds a port.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProgramReport {
    /// Its name, as bpftool shows it.
    pub name: String,
    /// Its id, as bpftool shows it.
    pub id: u32,
    /// `native` or `generic`; or that the caller attached it.
    pub attached: &'static str,
    /// Which packets it wants, for Ringside's own program.
    pub filter: Option<String>,
    /// Whether it tells what the NIC knows about packets, where that was asked for
    /// ([`Layouts::ringside_nic`](crate::hints::Layouts)).
    pub nic: Option<NicReport>,
}

/// Which variant of Ringside's program was obtained: the one that asks the NIC's driver, or the one that does not.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NicReport {
    /// It is loaded for this device and asks its driver about each packet.
    pub device_bound: bool,
    /// What the driver can tell; `None` where the kernel does not say (before Linux 6.7).
    pub offers: Option<RxMetadata>,
    /// Why it does not ask.
    pub why_not: Option<String>,
}

impl fmt::Display for NicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.why_not, self.offers) {
            (Some(why), _) => write!(f, "without what the NIC knows: {why}"),
            (None, Some(offers)) => write!(f, "for this device alone: asks its driver for {offers}"),
            (None, None) => f.write_str("for this device alone: asks its driver"),
        }
    }
}

/// What a port got.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PortReport {
    /// The interface's name.
    pub interface: String,
    /// Its driver, where the interface tells.
    pub driver: Option<String>,
    /// The XDP program; none for a port that only transmits.
    pub program: Option<ProgramReport>,
    /// Receive queues without a socket of ours: their packets go up the kernel's stack, and are counted.
    pub unbound_queues: Vec<u32>,
    /// What was changed on the interface, and how; empty when nothing was asked for.
    pub settings: Vec<String>,
    /// What will cost packets as the interface is set up now, each with what to do.
    pub warnings: Vec<String>,
    /// One entry a queue.
    pub queues: Vec<QueueReport>,
}

impl fmt::Display for PortReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.interface)?;
        if let Some(driver) = &self.driver {
            write!(f, " (driver {driver})")?;
        }
        match &self.program {
            Some(program) => {
                write!(
                    f,
                    ": XDP program {} id {}, {}",
                    program.name, program.id, program.attached
                )?;
                if let Some(filter) = &program.filter {
                    write!(f, ", filter {filter}")?;
                }
                if let Some(nic) = &program.nic {
                    write!(f, "\n  {nic}")?;
                }
            }
            None => write!(f, ": no XDP program, transmit only")?,
        }
        for line in self.settings.iter().chain(&self.warnings) {
            write!(f, "\n  {line}")?;
        }
        for queue in &self.queues {
            write!(f, "\n  {queue}")?;
        }
        if !self.unbound_queues.is_empty() {
            write!(
                f,
                "\n  without a socket: queues {:?}; their packets go up the stack",
                self.unbound_queues
            )?;
        }
        Ok(())
    }
}
