//! What is to be changed, and what of it can be had: known before anything is touched.

use anyhow::{Result, bail};
use ringside_nic::host::{System, WakeUpLimit};
use ringside_nic::{Coalescing, Error, Interface, Knob};

use super::args::{Args, Threads};
use super::report::{Row, Unavailable};
use super::state;
use crate::args::BadValue;
use crate::pin::check_online;

/// Changes in the order in which they are made: those that NAPI instances depend on before those of the instances.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) unavailable: Vec<Unavailable>,
}

/// One change.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) what: What,
    pub(super) row: Row,
    /// Asked for by itself, so that it is an error if it cannot be had.
    pub(super) asked: bool,
}

#[derive(Debug)]
pub(super) enum What {
    WakeUp { micros: u32 },
    Knob { knob: Knob, value: String },
    Threads { on: bool, cpus: Vec<u32> },
}

impl Plan {
    /// # Errors
    /// For what was asked for and cannot be had.
    pub(super) fn of(interface: &Interface, args: &Args) -> Result<Self> {
        let mut plan = Self {
            steps: Vec::new(),
            unavailable: Vec::new(),
        };
        for (option, cpus) in args.cpus() {
            check_online(option, cpus)?;
        }
        plan.wake_up(args)?;
        plan.governor(args)?;
        plan.interrupts(interface, args)?;
        plan.coalescing(interface, args)?;
        plan.offloads(interface, args)?;
        plan.queues(interface, args)?;
        plan.threads(interface, args)?;
        Ok(plan)
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.steps.iter().map(|step| step.row.clone()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn wake_up(&mut self, args: &Args) -> Result<()> {
        let Some(micros) = args.dma_latency.or(args.latency.then_some(0)) else {
            return Ok(());
        };
        let asked = args.dma_latency.is_some();
        if !args.lasts() && !args.dry_run {
            let reason = "it lasts only while it is held open: give a command behind --, or --hold";
            return self.without(state::WAKE_UP, reason, asked);
        }
        match WakeUpLimit::now() {
            Ok(now) => self.steps.push(Step {
                what: What::WakeUp { micros },
                row: Row::new(state::WAKE_UP, format!("{now} µs"), format!("{micros} µs")),
                asked,
            }),
            Err(error) => self.without(state::WAKE_UP, error, asked)?,
        }
        Ok(())
    }

    fn governor(&mut self, args: &Args) -> Result<()> {
        let Some(governor) = args.governor.as_deref().or(args.latency.then_some("performance")) else {
            return Ok(());
        };
        let asked = args.governor.is_some();
        let system = System::read()?;
        if system.governors.is_empty() {
            return self.without("governor", state::NO_GOVERNOR, asked);
        }
        for cpu in system.governors.into_keys() {
            self.knob(None, Knob::Governor { cpu }, governor, asked)?;
        }
        Ok(())
    }

    fn interrupts(&mut self, interface: &Interface, args: &Args) -> Result<()> {
        // Which CPUs are the right ones only the user knows: --latency leaves them alone.
        let Some(cpus) = &args.irq_cpus else { return Ok(()) };
        let irqs = interface.irqs()?;
        if irqs.is_empty() {
            return self.without("IRQ affinity", state::NO_IRQS, true);
        }
        for (irq, cpu) in irqs.into_iter().zip(cpus.0.iter().cycle()) {
            self.knob(None, Knob::IrqCpus { irq: irq.number }, &cpu.to_string(), true)?;
        }
        Ok(())
    }

    fn coalescing(&mut self, interface: &Interface, args: &Args) -> Result<()> {
        let mut wanted: Vec<_> = args
            .coalesce
            .iter()
            .map(|(field, value)| (*field, value.as_str(), true))
            .collect();
        if args.latency {
            use Coalescing::{AdaptiveRx, AdaptiveTx, RxUsecs, TxUsecs};
            let short = [(AdaptiveRx, "off"), (AdaptiveTx, "off"), (RxUsecs, "0"), (TxUsecs, "0")];
            let others = short
                .into_iter()
                .filter(|(field, _)| !args.coalesce.iter().any(|(asked, _)| asked == field));
            wanted.extend(others.map(|(field, value)| (field, value, false)));
        }
        if let Some((field, ..)) = wanted.first()
            && let Err(error) = interface.knob(&Knob::Coalescing { field: *field })
        {
            let asked = wanted.iter().any(|(.., asked)| *asked);
            return self.without("coalescing", reason(&error), asked);
        }
        for (field, value, asked) in wanted {
            let knob = Knob::Coalescing { field };
            // What the driver does not have is 0 or off, and may not be written.
            if asked || interface.knob(&knob).is_ok_and(|now| now != value) {
                self.knob(Some(interface), knob, value, asked)?;
            }
        }
        Ok(())
    }

    fn offloads(&mut self, interface: &Interface, args: &Args) -> Result<()> {
        let gro = Knob::offload("gro");
        let named = args.offload.iter().any(|(knob, _)| *knob == gro);
        if let Some(value) = args.gro.as_deref().or((args.latency && !named).then_some("off")) {
            self.knob(Some(interface), gro, value, args.gro.is_some())?;
        }
        for (knob, value) in &args.offload {
            self.knob(Some(interface), knob.clone(), value, true)?;
        }
        Ok(())
    }

    fn queues(&mut self, interface: &Interface, args: &Args) -> Result<()> {
        let rps = args
            .rps
            .as_ref()
            .map(|list| list.0.clone())
            .or(args.latency.then(Vec::new));
        if let Some(cpus) = rps {
            for queue in 0..interface.rx_queues()? {
                self.knob(
                    Some(interface),
                    Knob::RpsCpus { queue },
                    &Knob::cpu_list(&cpus),
                    args.rps.is_some(),
                )?;
            }
        }
        if let Some(cpus) = &args.xps {
            for queue in 0..interface.tx_queues()? {
                let turn = usize::try_from(queue).unwrap_or(0) % cpus.0.len().max(1);
                let cpu: Vec<u32> = cpus.0.get(turn).copied().into_iter().collect();
                self.knob(Some(interface), Knob::XpsCpus { queue }, &Knob::cpu_list(&cpu), true)?;
            }
        }
        Ok(())
    }

    fn threads(&mut self, interface: &Interface, args: &Args) -> Result<()> {
        let Some(threads) = &args.threaded_napi else {
            return Ok(());
        };
        let (on, cpus) = match threads {
            Threads::Off => (false, Vec::new()),
            Threads::On(cpus) => (true, cpus.clone()),
        };
        let now = if interface.napi()?.threaded { "on" } else { "off" };
        let mut after = if on { "on" } else { "off" }.to_owned();
        if !cpus.is_empty() {
            after.push_str(&format!(", on CPUs {}", Knob::cpu_list(&cpus)));
        }
        self.steps.push(Step {
            what: What::Threads { on, cpus },
            row: Row::new(state::THREADED, now, after),
            asked: true,
        });
        Ok(())
    }

    /// A knob of the interface, or of the host.
    fn knob(&mut self, interface: Option<&Interface>, knob: Knob, value: &str, asked: bool) -> Result<()> {
        let name = knob.to_string();
        let now = match state::value(interface, &knob) {
            Ok(now) => now,
            Err(error @ Error::UnknownFeature { .. }) if asked => {
                return Err(BadValue(format!("{name} cannot be set here: {error}")).into());
            }
            Err(error) => return self.without(&name, reason(&error), asked),
        };
        if let (Some(interface), Knob::Offload { name: feature }) = (interface, &knob)
            && now != value
            && interface.feature(feature)?.fixed
        {
            return self.without(&name, "the driver does not let it be changed", asked);
        }
        self.steps.push(Step {
            row: Row::new(&name, now, value),
            what: What::Knob {
                knob,
                value: value.to_owned(),
            },
            asked,
        });
        Ok(())
    }

    fn without(&mut self, name: &str, reason: impl std::fmt::Display, asked: bool) -> Result<()> {
        if asked {
            bail!("{name} cannot be set here: {reason}");
        }
        self.unavailable.push(Unavailable {
            name: name.to_owned(),
            reason: reason.to_string(),
        });
        Ok(())
    }
}

/// In the user's words where there are better ones than the error's.
pub(super) fn reason(error: &Error) -> String {
    match error.errno() {
        Some(libc::EOPNOTSUPP) => "the driver does not offer it".to_owned(),
        Some(libc::ENOENT) => "it is not there: an interface with a single queue has no such choice".to_owned(),
        _ => error.to_string(),
    }
}
