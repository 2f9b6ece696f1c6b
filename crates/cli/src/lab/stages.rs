//! Where packets' time goes on the paths of a lab: each that is to be traced has turns of its own, idle and loaded, once all that are measured
//! are through. So no figure of the matrix has the tracing in it. With tracing and without they alternate, which tells what tracing costs.
//!
//! ```text
//!  link    sender ── kernel ── receiver        both ends here, one way, one clock                    trace::trace
//!  guest   asker ── kernel ── guest ── kernel ── asker    there and back; the guest records its part  trace::across
//! ```

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::mapping::Mapping;
use ringside_measure::schema::{LabClock, LabLoad, LabStages, LoadKind, MissingHook, TracedPath};
use ringside_netlab::attach::Way as Join;
use ringside_netlab::guest::{Accelerator, Guest, GuestChild};
use ringside_nic::host::CpuTimes;

use super::bed::Bed;
use super::folder::Folder;
use super::load::Running;
use super::plan::{Plan, Probe, Way};
use super::run::{Fault, TRIES, begins, bench, condition, contender, pace, with_guests};
use super::steered::Steered;
use super::{boot, one_way};
use crate::output;
use crate::serve::Turns;
use crate::stop::Stop;
use crate::trace::{self, Asker, Crossed, Ends, Far, Hearer, Sender, Setup, Slots, told_missing};

/// How long the tracing programs may take to be loaded in a guest whose CPUs are emulated, and what they saw to be written.
const LOAD: Duration = Duration::from_secs(90);
/// Where a guest writes it.
const EVENTS: &str = "/stages.json";

/// A path under one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Number of the probe.
    pub(super) probe: usize,
    pub(super) is_loaded: bool,
}

/// All of a lab, in order of the file.
pub(super) fn all(plan: &Plan) -> Vec<Part> {
    let traced = plan.probes.iter().enumerate().filter(|(_, probe)| probe.is_traced);
    traced
        .flat_map(|(number, probe)| {
            probe.conditions().map(move |is_loaded| Part {
                probe: number,
                is_loaded,
            })
        })
        .collect()
}

impl Part {
    fn name(self, plan: &Plan) -> String {
        format!(
            "{}, stages, {}",
            plan.probes[self.probe].name,
            condition(self.is_loaded)
        )
    }

    pub(super) fn condition(self) -> LoadKind {
        match self.is_loaded {
            true => LoadKind::Foreign,
            false => LoadKind::Idle,
        }
    }
}

/// Traces what is missing of a run.
///
/// # Errors
/// When the lab itself fails. Stages that cannot be had are no error: the result says why.
pub(super) fn measure(
    plan: &Plan,
    bed: &mut Bed,
    folder: &mut Folder,
    first_session: u32,
    (bar, stop): (&ProgressBar, &Stop),
) -> Result<()> {
    let mut session = first_session;
    for part in all(plan) {
        let probe = &plan.probes[part.probe];
        let is_it = |stages: &LabStages| stages.path == probe.name && stages.condition == part.condition();
        if folder.stages.iter().any(is_it) {
            continue;
        }
        begins(bar, part.name(plan));
        let mut best: Option<LabStages> = None;
        for _ in 0..TRIES {
            let turn = with_guests(plan, bed, (&part.name(plan), folder, bar, stop), |bed| {
                session = session.wrapping_add(2);
                one(plan, bed, part, session, stop)
            })?;
            let traced = match turn {
                Ok(traced) => traced,
                Err(Fault::Cell(error)) => {
                    // What is broken for all is not this path's fault.
                    bed.check(plan)?;
                    ensure!(!stop.is_set(), "interrupted");
                    bar.suspend(|| output::note(format_args!("{}: {error:#}", part.name(plan))));
                    best = best.or_else(|| Some(none(probe, part, format!("{error:#}"))));
                    break;
                }
                Err(Fault::Lab(error)) => {
                    bed.check(plan)?;
                    return Err(error.context(part.name(plan)));
                }
            };
            let is_quiet = traced.steal_percent <= STEAL_LIMIT * 100.0;
            best = match best {
                Some(best) if best.steal_percent <= traced.steal_percent => Some(best),
                _ => Some(traced),
            };
            if is_quiet {
                break;
            }
        }
        let best = best.context("a try at least")?;
        folder.add_stages(part.probe, best)?;
        bar.inc(1);
    }
    Ok(())
}

fn none(probe: &Probe, part: Part, why: String) -> LabStages {
    LabStages {
        path: probe.name.clone(),
        condition: part.condition(),
        is_round_trip: !matches!(probe.way, Way::Link { .. }),
        loads: Vec::new(),
        unavailable: Some(why),
        traced: None,
        missing: Vec::new(),
        clock: None,
        steering: Vec::new(),
        steal_percent: 0.0,
    }
}

/// What a turn gave.
struct Stages {
    traced: TracedPath,
    missing: Vec<MissingHook>,
    clock: Option<LabClock>,
}

/// One turn.
fn one(plan: &Plan, bed: &Bed, part: Part, session: u32, stop: &Stop) -> Result<LabStages, Fault> {
    let probe = &plan.probes[part.probe];
    bed.has(probe.way).map_err(Fault::Cell)?;
    // In front of all sockets: they remember which queue they have sent by.
    let steered = Steered::begin(plan, bed, probe, stop).map_err(Fault::Cell)?;
    let mut loads = match part.is_loaded {
        true => Running::start(plan, bed, probe).map_err(Fault::Lab)?,
        false => Running::default(),
    };
    let before = CpuTimes::read().map_err(|error| Fault::Lab(error.into()))?;
    let stages = match probe.way {
        Way::Guest(guest) => into_guest(plan, bed, (probe, guest), session, (&mut loads, stop)),
        Way::Serve(host) => to_machine(plan, bed, (probe, host), session, (&mut loads, stop)),
        Way::Link { .. } => over_link(plan, bed, probe, session, (&mut loads, stop)),
    };
    let stages = match stages {
        Err(error) if loads.is_broken() => return Err(Fault::Lab(error)),
        stages => stages.map_err(Fault::Cell)?,
    };
    let after = CpuTimes::read().map_err(|error| Fault::Lab(error.into()))?;
    let passed = after.since(&before).sum();
    let steering = steered.end().map_err(Fault::Cell)?;
    let loads: Vec<LabLoad> = loads.end().map_err(Fault::Lab)?;
    Ok(LabStages {
        loads,
        unavailable: None,
        traced: Some(stages.traced),
        missing: stages.missing,
        clock: stages.clock,
        steering,
        steal_percent: passed.fraction(passed.steal).unwrap_or(0.0) * 100.0,
        ..none(probe, part, String::new())
    })
}

/// Pairs of a turn with tracing and one without, of which each path has as many: what tracing costs has an interval from five on.
const PAIRS: u32 = 5;

/// How long a path is looked at, idle or loaded: with tracing for a turn in all, and for as long without. A flight recorder traces all the time, until it has its packet.
pub(super) fn time(plan: &Plan, probe: &Probe) -> Duration {
    match probe.stop_above {
        Some(_) => plan.turn + plan.settle,
        None => (plan.turn + plan.settle * PAIRS) * 2,
    }
}

fn setup<'a>(plan: &Plan, probe: &'a Probe, session: u32) -> Setup<'a> {
    let slots = Slots {
        length: plan.turn / PAIRS,
        pairs: Some(PAIRS),
        count: probe.count.map(|count| count.div_ceil(PAIRS.into())),
    };
    let slots = probe.stop_above.is_none().then_some(slots);
    Setup {
        name: &probe.name,
        session,
        one_of: 1,
        disturbers: probe.disturbers.unwrap_or(true),
        stop_above: probe.stop_above,
        time: time(plan, probe),
        count: probe.count.filter(|_| slots.is_none()),
        settle: plan.settle,
        slots,
        cpus: bench(plan, probe).cpus,
        carriers: Vec::new(),
        vcpus: Vec::new(),
    }
}

fn interval(probe: &Probe) -> Duration {
    Duration::from_secs(1) / u32::try_from(probe.rate).unwrap_or(u32::MAX).max(1)
}

/// Whether everything is as it should be.
fn look(loads: &mut Running<'_>, stop: &Stop) -> Result<()> {
    ensure!(!stop.is_set(), "interrupted");
    loads.check()
}

/// One way between two namespaces, by the sockets that are measured.
fn over_link(
    plan: &Plan,
    bed: &Bed,
    probe: &Probe,
    session: u32,
    (loads, stop): (&mut Running<'_>, &Stop),
) -> Result<Stages> {
    let path = bed.path(probe.way)?;
    let bench = bench(plan, probe);
    let contender = contender(&path, &bench, probe);
    let _tag = contender.tag()?;
    let _cut = contender.cut(&path.b)?;
    let hearer = match probe.kind.path() {
        Some(xdp) => Hearer::xsk(&path.b, xdp, probe.sleeps)?,
        None => Hearer::Peer(contender.open(&path.b)?),
    };
    let payload_len = pace(plan, probe, &path)?.payload_len;
    let sender = Sender::new(contender.open(&path.a)?, payload_len, session, interval(probe));
    let setup = setup(plan, probe, session);
    let names = bed.names();
    let traced = trace::trace(
        &setup,
        Ends::Two(sender, hearer),
        &names,
        &mut || look(loads, stop),
        stop,
    )?;
    ensure!(!stop.is_set(), "interrupted");
    Ok(Stages {
        traced: traced.path,
        missing: traced.missing.into_iter().map(told_missing).collect(),
        clock: None,
    })
}

/// To a guest and back.
fn into_guest(
    plan: &Plan,
    bed: &Bed,
    (probe, number): (&Probe, usize),
    session: u32,
    (loads, stop): (&mut Running<'_>, &Stop),
) -> Result<Stages> {
    let path = bed.guest(number)?;
    let bench = bench(plan, probe);
    let contender = contender(path, &bench, probe);
    let _tag = contender.tag()?;
    let _cut = contender.cut(&path.a)?;
    let payload_len = pace(plan, probe, path)?.payload_len;
    let turns = path.turns.as_ref().context("a guest has a server")?;
    let guest = bed.machine(plan, number)?;
    let is_emulated = guest.accelerator() == Accelerator::Tcg;
    let disturbers = probe.disturbers.unwrap_or(!is_emulated);
    let mut recorder = Recorder::start(guest, session, disturbers)?;
    turns.begin(contender.start()?)?;
    let traced = (|| {
        let sender = Sender::new(contender.open(&path.a)?, payload_len, session, interval(probe));
        let threads = ringside_nic::process::threads(bed.process(plan, number)?);
        let setup = Setup {
            // They carry the packets: what they do is in the stages.
            carriers: threads.iter().map(|thread| thread.id).collect(),
            vcpus: threads.iter().filter_map(|of| Some((vcpu(&of.name)?, of.id))).collect(),
            ..setup(plan, probe, session)
        };
        let names = bed.names();
        let watch = &mut || look(loads, stop);
        trace::across(
            &setup,
            Asker::new(sender),
            &names,
            (Far::Guest, &mut recorder),
            watch,
            stop,
        )
    })();
    let far = turns.end()?;
    if let Some(why) = far.lost {
        bail!("at the far end: {why}");
    }
    let crossed = traced?;
    ensure!(!stop.is_set(), "interrupted");
    let mut stages = told(crossed, Far::Guest, |mapping| {
        one_way::clock(mapping, plan, bed, Some(number))
    });
    let attachment = plan.guests[number].attachment;
    stages.missing.extend(crossing(guest.accelerator(), attachment));
    if !disturbers && probe.disturbers.is_none() {
        stages.missing.push(unwatched());
    }
    Ok(stages)
}

/// To another machine and back, which writes down what its kernel sees, if its server was started so.
fn to_machine(
    plan: &Plan,
    bed: &Bed,
    (probe, number): (&Probe, usize),
    session: u32,
    (loads, stop): (&mut Running<'_>, &Stop),
) -> Result<Stages> {
    let path = bed.far(number)?;
    let bench = bench(plan, probe);
    let contender = contender(path, &bench, probe);
    let _tag = contender.tag()?;
    let _cut = contender.cut(&path.a)?;
    let payload_len = pace(plan, probe, path)?.payload_len;
    let turns = path.turns.as_ref().context("another machine has a server")?;
    let mut start = contender.start()?;
    if let Some(contest) = &mut start.contest {
        contest.trace = Some(session);
    }
    turns.begin(start)?;
    let mut server = Server { turns: Some(turns) };
    let far = Far::Machine(&plan.hosts[number].name);
    let traced = (|| {
        let sender = Sender::new(contender.open(&path.a)?, payload_len, session, interval(probe));
        let (mut setup, names) = (setup(plan, probe, session), bed.names());
        if let Some(slots) = &mut setup.slots {
            // It traces in the turns without, too, and what it writes down has to fit a message.
            slots.length /= 2;
        }
        let watch = &mut || look(loads, stop);
        trace::across(&setup, Asker::new(sender), &names, (far, &mut server), watch, stop)
    })();
    // Of what failed before it was asked for its record.
    let ended = server.turns.take().map(Turns::end).transpose();
    let crossed = traced?;
    ended?;
    ensure!(!stop.is_set(), "interrupted");
    let mut stages = told(crossed, far, |mapping| one_way::clock(mapping, plan, bed, None));
    if let Some(there) = plan.hosts[number].lodger() {
        stages.missing.push(on_the_way(&plan.hosts[there.guest.host].name));
    }
    Ok(stages)
}

/// What the machine of a guest elsewhere does with a packet is not seen: its kernel has no part in the record of the guest's.
fn on_the_way(host: &str) -> MissingHook {
    MissingHook {
        hook: format!("all hooks at {host}"),
        tells: format!(
            "what {host} does between its NIC and the guest: 'NICs and wire, there' and 'back' have its driver, the attachment, QEMU and the virtual CPU in them"
        ),
        reason: "its server follows no packets of its guests".to_owned(),
    }
}

/// What both kernels saw, with what neither had a hook for.
fn told(crossed: Crossed, far: Far<'_>, clock: impl FnOnce(&Mapping) -> LabClock) -> Stages {
    let mut missing: Vec<MissingHook> = crossed.traced.missing.into_iter().map(told_missing).collect();
    missing.extend(crossed.missing_inside.into_iter().map(|hook| MissingHook {
        hook: format!("{} {}", hook.hook, far.place()),
        ..hook
    }));
    Stages {
        traced: crossed.traced.path,
        missing,
        clock: Some(clock(&crossed.mapping)),
    }
}

/// The server of another machine while a turn is traced there.
struct Server<'t> {
    turns: Option<&'t Turns>,
}

impl trace::Guest for Server<'_> {
    /// It traces from the beginning of its session to the end.
    fn trace(&mut self, _: bool) -> Result<bool> {
        Ok(false)
    }

    fn recorded(&mut self) -> Result<Vec<u8>> {
        let far = self.turns.take().context("it records once")?.end()?;
        if let Some(why) = far.lost {
            bail!("at the far end: {why}");
        }
        let recorded = far
            .recorded
            .context("the server there has written nothing down: it is of another version")?;
        Ok(serde_json::to_vec(&recorded)?)
    }
}

/// The virtual CPU whose thread has such a name in QEMU: `CPU 0/KVM`.
fn vcpu(name: &str) -> Option<u32> {
    let (number, accelerator) = name.strip_prefix("CPU ")?.split_once('/')?;
    matches!(accelerator, "KVM" | "TCG").then(|| number.parse().ok())?
}

/// What no hook tells of the way into a guest and out of it.
fn crossing(accelerator: Accelerator, attachment: Join) -> Vec<MissingHook> {
    let reason = match accelerator {
        Accelerator::Tcg => {
            "the guest is emulated (tcg): its interrupts and virtual CPUs are QEMU's own work, in which KVM has no part and no hook"
        }
        Accelerator::Kvm => "not read: they name no packet, and one interrupt is for several",
    };
    const CARRIED: &str = "any hook from the uplink to the guest's queues";
    const NO_RING: &str =
        "how long a packet waits for what carries it: there is no 'TAP ring', and 'QEMU and vCPU kick' has all of it";
    // Where there is no TAP device whose ring could be looked into.
    let ring = match attachment {
        Join::VhostUser => Some((
            CARRIED,
            NO_RING,
            "a program carries packets by the guest's own memory, and looks for them again and again",
        )),
        Join::Vfio => Some((
            CARRIED,
            NO_RING,
            "the NIC puts packets into the guest's memory by itself",
        )),
        Join::Macvtap => Some((
            "tracepoint sock:sk_data_ready of a macvtap device",
            "when the packet is put in the device's ring, and when QEMU is woken up for it: there is no 'TAP ring', and 'stack' goes on until QEMU takes it",
            "the kernel wakes the device's reader up without it",
        )),
        _ => None,
    };
    let kvm = [
        (
            "tracepoints kvm:kvm_msi_set_irq and kvm:kvm_entry",
            "when QEMU interrupts a virtual CPU that is awake, and when a thread that runs enters the guest: 'QEMU, with the vCPU awake' and 'vCPU to guest interrupt' \
             are one stage each",
            reason,
        ),
        (
            "tracepoint kvm:kvm_exit",
            "when the guest's doorbell comes out of it: 'out of the guest' is one stage",
            reason,
        ),
    ];
    let all = ring.into_iter().chain(kvm);
    all.map(|(hook, tells, reason)| MissingHook {
        hook: hook.to_owned(),
        tells: tells.to_owned(),
        reason: reason.to_owned(),
    })
    .collect()
}

/// Why nobody looks what an emulated guest does.
fn unwatched() -> MissingHook {
    MissingHook {
        hook: "interrupts, soft interrupts and tasks in the guest".to_owned(),
        tells: "what had the guest's CPUs during the slowest packets".to_owned(),
        reason: "the guest is emulated (tcg), and looking takes a good part of its time: with disturbers = true at the probe it is done all the same"
            .to_owned(),
    }
}

/// `ringside trace` in a guest, which writes down what its kernel sees.
struct Recorder<'g> {
    guest: &'g Guest,
    child: Option<GuestChild<'g>>,
    /// It has been told so often to pause or to go on.
    signals: u32,
}

impl<'g> Recorder<'g> {
    fn start(guest: &'g Guest, session: u32, disturbers: bool) -> Result<Self> {
        let own = boot::own_program()?;
        let line = trace::record_line(session, EVENTS, disturbers);
        let mut child = guest.command(&own).args(line).spawn()?;
        child.wait_for(trace::RECORDING, LOAD).context("tracing in the guest")?;
        Ok(Self {
            guest,
            child: Some(child),
            signals: 0,
        })
    }
}

impl trace::Guest for Recorder<'_> {
    fn trace(&mut self, is_on: bool) -> Result<bool> {
        let child = self.child.as_mut().context("it records once")?;
        self.signals += 1;
        child.signal(libc::SIGUSR1)?;
        child.wait_for(&trace::told_to(is_on, self.signals), LOAD)?;
        Ok(true)
    }

    fn recorded(&mut self) -> Result<Vec<u8>> {
        let child = self.child.take().context("it records once")?;
        child.signal(libc::SIGINT)?;
        let done = child.wait(LOAD)?;
        ensure!(
            done.status.success(),
            "tracing in the guest: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(self.guest.read(EVENTS)?)
    }
}

#[cfg(test)]
#[path = "stages_tests.rs"]
mod tests;
