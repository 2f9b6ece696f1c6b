//! `ringside talker`: classes of packets with VLAN priorities, each in its window of a cycle.
//!
//! ```text
//!   schedule ── slots of a cycle ── cyclic: waits for each deadline ── Frames: tag, UDP, probe
//!                                     │ lead: so long before, where somebody keeps times         ┌─ packet socket of the class
//!                                     └────────────────────────────────────────────── Through ───┤   SO_PRIORITY, SO_TXTIME
//!                                                                                                └─ XDP socket, launch time
//! ```

mod args;
mod frames;
mod packet;
mod qdisc;
mod xsk;

use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::counters::LossCause;
use ringside_measure::schedule::Schedule;
use ringside_measure::schema::{
    self, ClassSent, CycleResult, LaunchBy, LaunchResult, Operation, QueueCounters, RunResult, ScheduleResult, Via,
};
use ringside_nic::changes::Undo;
use ringside_nic::clock::{Tai, Timestamp};
use ringside_nic::{Interface, LinkState};

use args::QdiscArg;
pub(crate) use args::TalkerArgs;
use frames::{Frames, Which};

use super::cyclic::{self, Due, Plan, Sender, Sent};
use super::streams::Gate;
use super::{account, conclude, rates, transmit_ledger};
use crate::args::{CycleClock, ViaArg, bad_value};
use crate::session::{self, Ran, Worker, nanos};
use crate::stop::Stop;
use crate::{left, output, target};

pub(crate) fn run(args: &TalkerArgs) -> Result<()> {
    check(args)?;
    let stop = Stop::on_signals()?;
    let interface = session::interface(&args.port, &args.run.output)?;
    let schedule = args.schedule.schedule(&interface)?;
    let departures = schedule.departures(|class| args.later_ns(class))?;
    let gate = Gate::read(&args.clock, &interface);
    gate.check()?;
    output::note(gate.note());
    let flow = target::flow(&interface, &args.flow)?;
    let (slots, deadlines): (Vec<_>, Vec<_>) = departures.into_iter().unzip();
    let session =
        u32::try_from(Timestamp::<Tai>::now().as_nanos() & u64::from(u32::MAX)).unwrap_or(0) ^ std::process::id();
    let frames = Frames::new(flow, session, &schedule, args.vlan, slots)?;
    let undo = qdisc::install(args, &interface, &schedule)?;
    let name = interface.name().to_owned();
    let talk = Talk {
        args,
        interface,
        schedule,
        session,
        gate,
        plan: Plan {
            period: Duration::from_nanos(args.schedule.cycle),
            deadlines,
            clock: CycleClock::Tai,
            waiting: cyclic::waiting(args.spin, args.sleep),
            ahead: Duration::ZERO,
        },
    };
    let done = match args.via {
        ViaArg::AfPacket => packet::run(talk, frames, &stop),
        ViaArg::AfXdp => xsk::run(talk, frames, &stop),
    };
    // Before the end is told: nothing is left behind then, or the result says what.
    let restored = undo.map(Undo::restore).unwrap_or_default();
    restored.iter().for_each(output::note);
    let Ended {
        record,
        mut result,
        ran,
    } = done?;
    let schedule = result.schedule.as_mut().context("a talker has a schedule")?;
    schedule.left = left::sentences(&restored);
    let each = schedule.classes.iter().filter_map(|class| class.sent.as_ref());
    let sent = each.map(|class| class.sent_packets).sum();
    output::finish(&args.run, vec![record], result)?;
    conclude(
        ran,
        sent,
        &format!("talker {name}"),
        "no packet could be sent: is the link up, and are the windows long enough?",
    )
}

fn check(args: &TalkerArgs) -> Result<()> {
    let schedule = Schedule::new(args.schedule.cycle, args.schedule.classes.clone())?;
    for fault in &args.fault {
        let (args::Fault::Late { pcp, .. } | args::Fault::Omit { pcp, .. }) = fault;
        if schedule.class_of(*pcp).is_none() {
            bad_value!("--fault: there is no class {pcp}");
        }
    }
    if args.run.prometheus.prometheus.is_some() {
        bad_value!("--prometheus: a talker does not offer its counters");
    }
    if args.run.until_ci.is_some() {
        bad_value!("--until-ci: a talker's rate is its schedule's");
    }
    if args.etf_offload && args.qdisc != QdiscArg::Etf {
        bad_value!("--etf-offload goes with --qdisc etf");
    }
    if args.via == ViaArg::AfXdp && (args.port.queues.as_ref()).is_some_and(|queues| queues.0.len() != 1) {
        bad_value!("a talker sends on one queue: name one with --queues");
    }
    match (args.via, args.qdisc) {
        (ViaArg::AfXdp, QdiscArg::Mqprio | QdiscArg::Taprio) => {
            bad_value!(
                "--via af-xdp: XDP sockets pass queueing disciplines by; only --qdisc etf --etf-offload means something to the NIC"
            )
        }
        (ViaArg::AfXdp, QdiscArg::Etf) if !args.etf_offload => {
            bad_value!(
                "--via af-xdp --qdisc etf: XDP sockets pass it by; with --etf-offload it has the NIC keep launch times"
            )
        }
        (ViaArg::AfPacket, _) if args.port.queues.is_some() => {
            bad_value!("--queues: with --via af-packet the kernel chooses the queue, by the class's priority")
        }
        _ => Ok(()),
    }
}

/// A talker that is set up.
struct Talk<'a> {
    args: &'a TalkerArgs,
    interface: Interface,
    schedule: Schedule,
    session: u32,
    gate: Gate,
    plan: Plan,
}

/// Hands a frame to the kernel.
trait Through {
    /// To leave at `launch_ns` of CLOCK_TAI, if that is given. False when there was no room for it.
    fn hand_over(&mut self, class: usize, frame: &[u8], launch_ns: Option<u64>, worker: &Worker<'_>) -> Result<bool>;

    /// What is to be done when there is time for it.
    fn between(&mut self) -> Result<()>;
}

/// Sends the packets of the schedule.
struct Talker<'a, T> {
    frames: Frames,
    through: T,
    talk: &'a Talk<'a>,
    /// Somebody keeps the times: the launch time is so long after the hand-over.
    lead: Option<Duration>,
    sent: Vec<ClassSent>,
    omit: Vec<Option<u64>>,
    last: Option<(u64, usize)>,
}

impl<'a, T: Through> Talker<'a, T> {
    fn new(talk: &'a Talk<'a>, frames: Frames, through: T, lead: Option<Duration>) -> Self {
        let classes = talk.schedule.classes();
        let sent = classes.iter().map(|class| {
            let later = talk.args.later_ns(class);
            let omit = talk.args.omit(class);
            ClassSent {
                later_ns: (later > 0).then_some(later),
                omitted_packets: omit.map(|_| 0),
                ..ClassSent::default()
            }
        });
        Self {
            frames,
            through,
            lead,
            sent: sent.collect(),
            omit: classes.iter().map(|class| talk.args.omit(class)).collect(),
            talk,
            last: None,
        }
    }

    /// The plan, with everything handed over so long before.
    fn plan(&self) -> Plan {
        Plan {
            ahead: self.lead.unwrap_or_default(),
            ..self.talk.plan.clone()
        }
    }

    fn which(&self, due: Due) -> Option<(Which, u64)> {
        // The deadline is where the packet leaves, less the lead; of a class that is late on purpose, later than it is intended.
        let leaves_ns = due.deadline_ns.saturating_add(nanos(self.lead.unwrap_or_default()));
        let which = self
            .frames
            .which(due.slot, due.cycle, self.frames.begin_of(leaves_ns))?;
        Some((which, leaves_ns))
    }

    /// What was sent of each class.
    fn finish(mut self) -> (Vec<ClassSent>, T) {
        for (sent, due) in self.sent.iter_mut().zip(self.frames.due(self.last)) {
            sent.skipped_packets = due.saturating_sub(sent.sent_packets + sent.omitted_packets.unwrap_or(0));
        }
        (self.sent, self.through)
    }
}

impl<T: Through> Sender for Talker<'_, T> {
    fn send(&mut self, due: Due, worker: &Worker<'_>) -> Result<Sent> {
        let (which, leaves_ns) = self.which(due).context("a slot of the schedule")?;
        self.last = Some((due.cycle, due.slot));
        let sent = &mut self.sent[which.class];
        if self.omit[which.class].is_some_and(|each| (which.sequence + 1).is_multiple_of(each)) {
            sent.omitted_packets = sent.omitted_packets.map(|omitted| omitted + 1);
            return Ok(Sent::Omitted);
        }
        let now_ns = Timestamp::<Tai>::now().as_nanos();
        if now_ns >= leaves_ns.saturating_add(which.span_ns) {
            // Overslept: it would only be in others' way.
            return Ok(Sent::No);
        }
        let unskipped = sent.sent_packets + sent.omitted_packets.unwrap_or(0);
        let frame = self.frames.write(which, now_ns, unskipped)?;
        let launch_ns = self.lead.map(|_| leaves_ns);
        Ok(match self.through.hand_over(which.class, frame, launch_ns, worker)? {
            true => {
                sent.sent_packets += 1;
                Sent::Yes
            }
            false => Sent::No,
        })
    }

    fn between(&mut self) -> Result<()> {
        self.through.between()
    }
}

/// A run that is over, and told when what was installed for it is gone.
struct Ended {
    record: schema::Interface,
    result: RunResult,
    ran: Ran,
}

/// What a run gave.
struct Told {
    ran: Ran,
    cycle: CycleResult,
    via: Via,
    kept_by: LaunchBy,
    lead: Option<Duration>,
    missed: Option<u64>,
    sent: Vec<ClassSent>,
    queues: Vec<QueueCounters>,
    in_flight: u64,
    before: LinkState,
    /// `None` if the interface is gone.
    after: Option<LinkState>,
}

impl Talk<'_> {
    /// The result, but for what only one way to send knows.
    fn result(&self, told: Told) -> Result<(RunResult, Ran)> {
        let mut cycle = told.cycle;
        cycle.via = told.via;
        cycle.launch = Some(LaunchResult {
            lead_ns: told.lead.map_or(0, nanos),
            kept_by: told.kept_by,
            missed_packets: told.missed,
        });
        let mut result = session::result(Operation::Talker, &told.ran, told.queues);
        let sizes = self.schedule.classes().iter().zip(&told.sent);
        let bytes = sizes
            .map(|(class, sent)| u64::from(class.frame_bytes) * sent.sent_packets)
            .sum();
        let sent: u64 = told.sent.iter().map(|class| class.sent_packets).sum();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
        {
            result.target_pps = Some(self.schedule.packets_per_cycle() as f64 * 1e9 / self.schedule.cycle_ns() as f64);
        }
        result.packets = transmit_ledger(&result.queues, told.in_flight, &told.before, told.after.as_ref());
        let unexplained = result.packets.sent - result.packets.delivered() - result.packets.lost();
        let missed = told.missed.unwrap_or(0).min(unexplained);
        result.packets.lose(LossCause::LaunchTimeMissed, missed);
        result.packets.generated += told.sent.iter().map(|class| class.skipped_packets).sum::<u64>();
        result.transmitted = rates(sent, bytes, 0, told.ran.sent);
        account(&mut result);
        result.cycle = Some(cycle);
        let qdiscs = self.interface.qdiscs().unwrap_or_default();
        let setup = self.interface.qdisc_setup().ok().flatten();
        result.schedule = Some(ScheduleResult {
            vlan_id: Some(self.args.vlan),
            qdiscs: match setup {
                Some(setup) => vec![setup.to_string()],
                None => qdiscs
                    .iter()
                    .map(|one| format!("{} {} parent {}", one.kind, one.handle, one.parent))
                    .collect(),
            },
            ..ScheduleResult::talker(&self.schedule, self.session, self.gate.state.clone(), told.sent)
        });
        Ok((result, told.ran))
    }
}
