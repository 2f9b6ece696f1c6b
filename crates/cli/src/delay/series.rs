//! What was read of each cell, turn by turn, and what becomes of it in the result.

use anyhow::Result;
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::delay::{CStates, Cell, Core, Delays, Wait};
use ringside_measure::schema::{CpuUse, DelayCell, DelayTurn, IdleUse};
use ringside_nic::host::CpuTime;
use ringside_xsk::BusyPolling;

use super::plan::{Place, Planned};
use super::turn::{Reading, ThreadTime};
use crate::system;

/// A cell with all that was read of it.
pub(super) struct Series {
    pub(super) cell: Cell,
    pub(super) place: Result<Place, String>,
    /// Of the turns that count, as all that follows.
    delays: Delays,
    sent: Option<u64>,
    lost: u64,
    cpu: CpuTime,
    thread: ThreadTime,
    idle: Vec<IdleUse>,
    turns: Vec<DelayTurn>,
    /// Those of turns that were left out.
    disturbed: Vec<Reading>,
    /// Also of turns that were left out: what the clocks did is no matter of steal.
    impossible_left_out: u64,
    busy_polling: BusyPolling,
    pub(super) unprivileged: Option<String>,
    failures: u32,
    failure: Option<String>,
}

impl Series {
    pub(super) fn new(planned: Planned) -> Self {
        Self {
            delays: Delays::new(planned.cell.core, 0),
            cell: planned.cell,
            place: planned.place,
            sent: None,
            lost: 0,
            cpu: CpuTime::default(),
            thread: ThreadTime::default(),
            idle: Vec::new(),
            turns: Vec::new(),
            disturbed: Vec::new(),
            impossible_left_out: 0,
            busy_polling: BusyPolling::Off,
            unprivileged: None,
            failures: 0,
            failure: None,
        }
    }

    pub(super) fn add(&mut self, reading: Result<Reading>) {
        let reading = match reading {
            Ok(reading) => reading,
            Err(error) => {
                self.failures += 1;
                self.failure = Some(format!("{error:#}"));
                return;
            }
        };
        let summary = reading.delays.latency().summary();
        let left_out = reading.steal > STEAL_LIMIT;
        self.turns.push(DelayTurn {
            samples: reading.delays.latency().samples(),
            p50_ns: summary.and_then(|summary| summary.p50_ns),
            max_ns: summary.map(|summary| summary.max_ns),
            steal_percent: reading.steal * 100.0,
            left_out,
        });
        self.unprivileged.clone_from(&reading.unprivileged);
        if left_out {
            self.impossible_left_out += reading.delays.left_out().impossible;
            self.disturbed.push(reading);
            return;
        }
        self.count(reading);
    }

    /// Ends the series: where all turns were left out, all of them count.
    pub(super) fn end(&mut self) {
        let disturbed = std::mem::take(&mut self.disturbed);
        if disturbed.len() < self.turns.len() {
            return;
        }
        self.impossible_left_out = 0;
        for turn in &mut self.turns {
            turn.left_out = false;
        }
        for reading in disturbed {
            self.count(reading);
        }
    }

    fn count(&mut self, reading: Reading) {
        self.delays.merge(&reading.delays);
        if let Some(sent) = reading.sent {
            *self.sent.get_or_insert(0) += sent;
        }
        self.lost += reading.lost;
        self.cpu = self.cpu + reading.cpu;
        self.thread.elapsed_ns += reading.thread.elapsed_ns;
        self.thread.running_ns += reading.thread.running_ns;
        self.thread.waiting_ns += reading.thread.waiting_ns;
        self.busy_polling = reading.busy_polling;
        let idle = reading.idle.into_iter().map(|state| IdleUse {
            name: state.name,
            entries: state.entries,
            time_ns: state.time_us.saturating_mul(1000),
        });
        match self.idle.is_empty() {
            true => self.idle = idle.collect(),
            false => {
                for (sum, state) in self.idle.iter_mut().zip(idle) {
                    sum.entries += state.entries;
                    sum.time_ns += state.time_ns;
                }
            }
        }
    }

    /// Samples so far, of turns that count.
    pub(super) fn samples(&self) -> u64 {
        self.delays.latency().samples()
    }

    /// A turn that was left out has to be made up for.
    pub(super) fn has_left_out(&self) -> bool {
        self.turns.iter().any(|turn| turn.left_out)
    }

    /// One that failed twice and never worked has no further turn.
    pub(super) fn is_given_up(&self) -> bool {
        self.place.is_err() || (self.turns.is_empty() && self.failures >= 2)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples() == 0
    }

    pub(super) fn impossible(&self) -> u64 {
        self.delays.left_out().impossible + self.impossible_left_out
    }

    /// The distribution, for its histogram.
    pub(super) fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Why there are no figures.
    pub(super) fn unavailable(&self) -> Option<String> {
        if let Err(reason) = &self.place {
            return Some(reason.clone());
        }
        if !self.is_empty() {
            return None;
        }
        let left_out = self.delays.left_out();
        Some(match (&self.failure, self.turns.len()) {
            (Some(failure), _) => failure.clone(),
            (None, 0) => "it had no turn".into(),
            _ if left_out.elsewhere > 0 => match self.cell.core {
                Core::Same => "NAPI never ran on the application's CPU".into(),
                Core::Other if self.drives() == Some(true) => {
                    "busy-polling runs NAPI on the application's CPU: there is no other".into()
                }
                Core::Other => "NAPI always ran on the application's CPU".into(),
            },
            _ if left_out.without_hints > 0 => "the XDP program told nothing about its packets".into(),
            _ if left_out.warm_up > 0 => "no more packets came than the warm-up takes".into(),
            _ => "no packet came".into(),
        })
    }

    /// Whether busy-polling brought packets.
    fn drives(&self) -> Option<bool> {
        match self.busy_polling {
            BusyPolling::Driving { .. } => Some(true),
            BusyPolling::NoNapi | BusyPolling::Idle { .. } => Some(false),
            _ => None,
        }
    }

    /// What is wrong with busy-polling.
    pub(super) fn busy_warning(&self) -> Option<&'static str> {
        (self.cell.wait == Wait::BusyPoll && !self.is_empty())
            .then(|| self.busy_polling.warning())
            .flatten()
    }

    /// Share of the time that the application was kept from a CPU that should have been its own.
    pub(super) fn disturbance(&self) -> Option<f64> {
        self.cell
            .has_own_cpu()
            .then(|| self.share(self.thread.waiting_ns))
            .flatten()
    }

    /// The least and the greatest median of a turn.
    pub(super) fn medians(&self) -> Option<(u64, u64)> {
        let medians = || {
            let counted = self.turns.iter().filter(|turn| !turn.left_out);
            counted.filter_map(|turn| turn.p50_ns)
        };
        Some((medians().min()?, medians().max()?))
    }

    fn share(&self, ns: u64) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "2^53 ns are a hundred days")]
        (self.thread.elapsed_ns > 0).then(|| ns as f64 * 100.0 / self.thread.elapsed_ns as f64)
    }

    /// For the result.
    pub(super) fn cell(&self) -> DelayCell {
        let left_out = self.delays.left_out();
        let place = self.place.as_ref().ok();
        DelayCell {
            wait: self.cell.wait,
            core: self.cell.core,
            c_states: self.cell.c_states,
            napi_cpu: place.map(|place| place.napi),
            application_cpu: place.map(|place| place.application),
            unavailable: self.unavailable(),
            busy_polling_drives: self.drives().filter(|_| self.cell.wait == Wait::BusyPoll),
            delay: self.delays.latency().summary(),
            delay_hdr: self.delays.latency().to_hdr(),
            measured_ns: self.thread.elapsed_ns,
            sent_packets: self.sent,
            received_packets: self.delays.packets(),
            lost_packets: self.lost,
            warm_up_packets: left_out.warm_up,
            elsewhere_packets: left_out.elsewhere,
            impossible_packets: self.impossible(),
            without_hints_packets: left_out.without_hints,
            cpu: place.and_then(|place| self.cpu_use(place.application)),
            thread_percent: self.share(self.thread.running_ns),
            waiting_percent: self.share(self.thread.waiting_ns),
            idle: self.idle.clone(),
            failed_turns: self.failures,
            failure: self.failure.clone(),
            turns: self.turns.clone(),
        }
    }

    fn cpu_use(&self, cpu: u32) -> Option<CpuUse> {
        (self.cpu.total() > 0).then(|| system::cpu_share(cpu, &self.cpu))
    }
}

/// A cell in words.
pub(crate) fn cell_name(cell: Cell) -> String {
    format!(
        "{}, {} core, C-states {}",
        wait_name(cell.wait),
        core_name(cell.core),
        c_states_name(cell.c_states)
    )
}

/// The words of the command line and the table.
pub(super) fn wait_name(wait: Wait) -> &'static str {
    match wait {
        Wait::Spin => "spin",
        Wait::Poll => "poll",
        Wait::BusyPoll => "busy-poll",
    }
}

pub(super) fn core_name(core: Core) -> &'static str {
    match core {
        Core::Same => "same",
        Core::Other => "other",
    }
}

pub(super) fn c_states_name(c_states: CStates) -> &'static str {
    match c_states {
        CStates::AsIs => "as is",
        CStates::Off => "off",
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
pub(super) mod tests;
