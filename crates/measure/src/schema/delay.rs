//! The time from the XDP program to the application, cell by cell.

use serde::{Deserialize, Serialize};

use super::CpuUse;
use crate::delay::{CStates, Cell, Core, Wait};
#[cfg(doc)]
use crate::latency::Latency;
use crate::latency::Summary;
use crate::probe::Clock;

/// Delays from the XDP program, in the software interrupt, to the application's dequeue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DelayResult {
    /// The clock of both stamps.
    pub clock: Clock,
    /// What reading it costs the application. It is part of every delay, about once, and not taken off.
    pub clock_read: ClockRead,
    /// Mean time between two packets of the test bed's sender, whose gaps are from half to one and a half of it; `None`
    /// where another host sends.
    pub interval_ns: Option<u64>,
    /// Time between two packets as it was found before measuring, where another host sends.
    pub observed_interval_ns: Option<u64>,
    /// How often each cell had its turn.
    pub rounds: u32,
    /// CPU steal in percent above which a turn was left out.
    pub steal_limit_percent: f64,
    /// The cells, in the order of the table; also those that could not be had.
    pub cells: Vec<DelayCell>,
    /// What a reader of the figures has to know.
    pub warnings: Vec<String>,
}

/// The price of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockRead {
    /// Readings that were made to find it.
    pub reads: u64,
    /// The least of the batches.
    pub min_ns: f64,
    /// The median of the batches.
    pub median_ns: f64,
}

/// One way to wait, in one place, with CPUs that sleep or do not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DelayCell {
    /// What the application did while there was no packet.
    pub wait: Wait,
    /// Whether it ran on the CPU that runs NAPI.
    pub core: Core,
    /// How deep CPUs might sleep.
    pub c_states: CStates,
    /// Where NAPI was meant to run.
    pub napi_cpu: Option<u32>,
    /// Where the application ran.
    pub application_cpu: Option<u32>,
    /// Why there are no figures, if the cell could not be had.
    pub unavailable: Option<String>,
    /// Whether busy-polling brought packets; `None` for the other ways to wait, and where it is not known.
    pub busy_polling_drives: Option<bool>,
    /// The distribution; `None` if nothing was sampled.
    pub delay: Option<Summary>,
    /// All of it as a histogram (HdrHistogram V2, compressed, base64; [`Latency::from_hdr`] reads it).
    pub delay_hdr: Option<String>,
    /// For how long the application looked for packets in the turns that count, warm-up included.
    pub measured_ns: u64,
    /// Packets of the test bed's sender; `None` where another host sends.
    pub sent_packets: Option<u64>,
    /// Packets that came to the application, whatever became of them.
    pub received_packets: u64,
    /// Packets of the test bed's sender that did not come; elsewhere those that the kernel dropped at the socket.
    pub lost_packets: u64,
    /// Packets at the beginning of a turn, which do not count.
    pub warm_up_packets: u64,
    /// Packets whose stamps tell of another core than the cell is about; left out.
    pub elsewhere_packets: u64,
    /// Packets that were dequeued before the XDP program saw them: the clocks did not agree. Left out.
    pub impossible_packets: u64,
    /// Packets that the XDP program told nothing about; left out.
    pub without_hints_packets: u64,
    /// What the application's CPU did, as the kernel counts it at its timer ticks.
    pub cpu: Option<CpuUse>,
    /// Time that the application's thread had its CPU, as the scheduler counts it, in percent of the time; what the software
    /// interrupt does meanwhile is in it, unless the kernel was built to tell the two apart.
    pub thread_percent: Option<f64>,
    /// Time that the thread was ready to run and had to wait for its CPU, in percent of the time.
    pub waiting_percent: Option<f64>,
    /// How often the application's CPU went to sleep, state by state; empty where the kernel does not tell.
    pub idle: Vec<IdleUse>,
    /// Turns that failed.
    pub failed_turns: u32,
    /// Why the last of them did.
    pub failure: Option<String>,
    /// The turns that did not fail, in order.
    pub turns: Vec<DelayTurn>,
}

impl DelayCell {
    /// Which of the cells it is.
    #[must_use]
    pub fn cell(&self) -> Cell {
        Cell {
            wait: self.wait,
            core: self.core,
            c_states: self.c_states,
        }
    }
}

/// One turn of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DelayTurn {
    /// Samples of it.
    pub samples: u64,
    /// Their median; `None` for too few.
    pub p50_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// Share of the time of the two CPUs that the hypervisor took.
    pub steal_percent: f64,
    /// Left out for it. Where every turn of the cell has too much of it, none is.
    pub left_out: bool,
}

/// What became of an idle state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IdleUse {
    /// Its name.
    pub name: String,
    /// How often the CPU went into it.
    pub entries: u64,
    /// For how long in all.
    pub time_ns: u64,
}
