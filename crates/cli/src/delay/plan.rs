//! Which cells can be had here, where each runs, and what to know about them: decided from facts, before anything runs.

use anyhow::{Result, bail};
use ringside_measure::delay::{CStates, Cell, Core};
use ringside_nic::Knob;
use ringside_nic::host::{System, WakeUpLimit, siblings};

use super::args::Args;
use crate::args::bad_value;
use crate::pin;

/// What the machine is like, as far as it decides about cells.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The CPUs that this process may run on.
    pub(super) allowed: Vec<u32>,
    /// CPUs that are threads of one core, each group with more than one.
    pub(super) cores: Vec<Vec<u32>>,
    /// Idle states that are not switched off: name and exit latency in microseconds, from shallow to deep.
    pub(super) states: Vec<(String, u64)>,
    /// The limit of wake-up times that is in force, in microseconds, or why there is none to be had.
    pub(super) limit: Result<u32, String>,
    /// `idle=` of the kernel's command line.
    pub(super) idle: Option<String>,
    pub(super) is_virtual: bool,
}

/// The CPUs of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where NAPI is meant to run, and the XDP program with it.
    pub(super) napi: u32,
    pub(super) application: u32,
}

/// A cell, and where it runs or why it cannot.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) cell: Cell,
    pub(super) place: Result<Place, String>,
}

/// All cells that were asked for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) cells: Vec<Planned>,
    pub(super) warnings: Vec<String>,
}

impl Machine {
    pub(super) fn read() -> Result<Self> {
        let system = System::read()?;
        let allowed = pin::allowed()?;
        let mut cores: Vec<Vec<u32>> = allowed.iter().map(|cpu| siblings(*cpu)).collect();
        cores.retain(|core| core.len() > 1);
        cores.sort_unstable();
        cores.dedup();
        let states = system.idle.states.into_iter().filter(|state| !state.disabled);
        Ok(Self {
            allowed,
            cores,
            states: states
                .map(|state| (state.name, state.latency_us.unwrap_or(0)))
                .collect(),
            limit: WakeUpLimit::now().map_err(|error| error.to_string()),
            idle: system.command_line.idle,
            is_virtual: system.virtualised == Some(true),
        })
    }

    /// A CPU of another core than `cpu` where there is one, else another thread of its core.
    fn other_than(&self, cpu: u32) -> Option<u32> {
        let others = || self.allowed.iter().copied().filter(|other| *other != cpu);
        others()
            .find(|other| !self.share_a_core(cpu, *other))
            .or(others().next())
    }

    fn share_a_core(&self, a: u32, b: u32) -> bool {
        self.cores.iter().any(|core| core.contains(&a) && core.contains(&b))
    }

    fn may_run_on(&self, cpu: u32) -> bool {
        self.allowed.contains(&cpu)
    }

    fn allowed_text(&self) -> String {
        match self.allowed[..] {
            [cpu] => format!("CPU {cpu} alone"),
            _ => format!("CPUs {}", Knob::cpu_list(&self.allowed)),
        }
    }

    /// Which CPU runs NAPI on the test bed.
    pub(super) fn lab_cpu(&self, args: &Args) -> Result<u32> {
        let Some(cpu) = args.napi_cpu.or(self.allowed.first().copied()) else {
            bail!("no CPU that this process may run on");
        };
        if !self.may_run_on(cpu) {
            bad_value!("--napi-cpu {cpu}: this process may run on {}", self.allowed_text());
        }
        Ok(cpu)
    }

    /// What is wrong with CPUs that were named; known before anything is built.
    pub(super) fn check(&self, args: &Args) -> Result<()> {
        if let Some(cpu) = args.other_cpu.filter(|cpu| !self.may_run_on(*cpu)) {
            bad_value!("--other-cpu {cpu}: this process may run on {}", self.allowed_text());
        }
        if args.lab.is_some() {
            self.not_napis(args, self.lab_cpu(args)?)?;
        }
        Ok(())
    }

    fn not_napis(&self, args: &Args, napi: u32) -> Result<()> {
        if args.other_cpu == Some(napi) {
            bad_value!("--other-cpu {napi}: that is the CPU that runs NAPI; name another one");
        }
        Ok(())
    }
}

impl Plan {
    /// For packets whose NAPI runs on CPU `napi`.
    ///
    /// # Errors
    /// For an `--other-cpu` that is no other one, and when not a single cell can be had.
    pub(super) fn new(args: &Args, machine: &Machine, napi: u32) -> Result<Self> {
        machine.not_napis(args, napi)?;
        let other = args.other_cpu.or(machine.other_than(napi));
        let cells: Vec<Planned> = args
            .cells()
            .into_iter()
            .map(|cell| Planned {
                cell,
                place: place(machine, cell, napi, other),
            })
            .collect();
        if let Some(Err(reason)) = cells.first().map(|planned| &planned.place)
            && cells.iter().all(|planned| planned.place.is_err())
        {
            bail!("none of the cells that were asked for can be had here: {reason}");
        }
        let mut plan = Self {
            cells,
            warnings: Vec::new(),
        };
        plan.warn(machine, napi);
        Ok(plan)
    }

    /// Cells that can be had.
    pub(super) fn had(&self) -> usize {
        self.cells.iter().filter(|planned| planned.place.is_ok()).count()
    }

    /// Whether any cell that can be had is with C-states off.
    pub(super) fn switches_c_states_off(&self) -> bool {
        let had = self.cells.iter().filter(|planned| planned.place.is_ok());
        had.map(|planned| planned.cell)
            .any(|cell| cell.c_states == CStates::Off)
    }

    fn warn(&mut self, machine: &Machine, napi: u32) {
        let off = self.cells.iter().any(|planned| planned.cell.c_states == CStates::Off);
        let other = self.cells.iter().find_map(|planned| {
            let place = planned.place.as_ref().ok()?;
            (planned.cell.core == Core::Other).then_some(place.application)
        });
        let mut warnings = Vec::new();
        let deepest = machine.states.iter().map(|(_, micros)| *micros).max();
        match (machine.idle.as_deref(), deepest) {
            (Some("poll"), _) => warnings.push(
                "the kernel was started with idle=poll: its CPUs never sleep, and C-states off is no different".to_owned(),
            ),
            (_, None) => warnings.push(
                "no cpuidle: the kernel tells no idle states, and chooses none by /dev/cpu_dma_latency. Cells with C-states \
                 off are measured with it held all the same, but cannot differ for that"
                    .to_owned(),
            ),
            (_, Some(deepest)) => match machine.limit {
                Ok(limit) if u64::from(limit) < deepest => warnings.push(format!(
                    "somebody holds /dev/cpu_dma_latency at {limit} µs, or the kernel was told so: C-states as they are \
                     leave out those that take longer to leave"
                )),
                _ => {}
            },
        }
        if machine.is_virtual && off {
            warnings.push(
                "virtual machine: waking a CPU that sleeps is the hypervisor's work, which the exit latencies do not know \
                 of, and it depends on what else the host does"
                    .to_owned(),
            );
        }
        if let Some(other) = other.filter(|other| machine.share_a_core(napi, *other)) {
            warnings.push(format!(
                "CPUs {napi} and {other} are threads of one core: the one that spins slows the other down, and keeps the \
                 core awake"
            ));
        }
        self.warnings = warnings;
    }
}

fn place(machine: &Machine, cell: Cell, napi: u32, other: Option<u32>) -> Result<Place, String> {
    if let (CStates::Off, Err(reason)) = (cell.c_states, &machine.limit) {
        return Err(format!("C-states cannot be switched off: {reason}"));
    }
    let application = match cell.core {
        Core::Same if machine.may_run_on(napi) => napi,
        Core::Same => {
            return Err(format!(
                "NAPI runs on CPU {napi}, and this process may run on {}",
                machine.allowed_text()
            ));
        }
        Core::Other => {
            other.ok_or_else(|| format!("no other CPU: this process may run on {}", machine.allowed_text()))?
        }
    };
    Ok(Place { napi, application })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
