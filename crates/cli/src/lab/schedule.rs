//! A turn of a schedule: `ringside listener` at one end and `ringside talker` at the other, each in its namespace, or one of them in a guest or on
//! another machine. So all that they can do is had here, and what they find is what they find on their own; but for times by another clock, of
//! which a program there knows nothing ([`crossing`]).

pub(in crate::lab) mod clocks;
mod crossing;
mod program;
mod words;

pub(super) use program::text;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ringside_measure::control::{ScheduleEnd, Talk};
use ringside_measure::schedule::Class;
use ringside_measure::schema::{
    ClassReceived, ClassResult, ClassSent, ClockState, LabClock, LabClocks, LabSchedule, LabWindows, LaunchBy,
    RunResult, ScheduleResult,
};
use ringside_measure::sequence::Counts;
use ringside_netlab::guest::Guest;
use ringside_netlab::{End, Namespace};
use ringside_nic::host::CpuTimes;
use ringside_wire::MacAddr;

use super::bed::Bed;
use super::boot;
use super::folder::Measured;
use super::load::Running;
use super::plan::{Plan, Schedule, Way};
use crate::left::Left;
use crate::run::streams::PtpArgs;
use crate::session::nanos;
use crate::stop::Stop;

use crossing::Crossing;
pub(crate) use program::{Kept, Program};
pub(in crate::lab) use program::{Remote, errand, start};
pub(crate) use words::{of as words, program as name};

/// How long a listener may take until it has its socket, and a talker longer than its turn.
const START: Duration = Duration::from_secs(10);
/// The same in a guest whose CPUs are emulated.
const START_INSIDE: Duration = Duration::from_secs(60);
/// For so long the last packets are waited for.
const DRAIN: Duration = Duration::from_millis(50);

/// One turn; a reading for each class, without its loads.
pub(super) fn turn(
    plan: &Plan,
    bed: &Bed,
    schedule: &Schedule,
    (session, loads, stop): (u32, &mut Running<'_>, &Stop),
) -> Result<Vec<Measured>> {
    let [talks, listens] = places(plan, bed, schedule)?;
    let times = CpuTimes::read()?;
    let steal = || -> Result<f64> {
        let passed = CpuTimes::read()?.since(&times).sum();
        Ok(passed.fraction(passed.steal).unwrap_or(0.0))
    };
    if let Way::Link { .. } = schedule.way {
        let (sent, received, _) = streams((plan, bed), schedule, [&talks, &listens], (loads, stop))?;
        let received = received.schedule.context("a listener tells of its schedule")?;
        let clocks = clocks::judge(schedule, [state(&sent)?, &received.clock_state], None)?;
        return readings(schedule, &sent, &received, (steal()?, LabWindows::Clock, None, clocks));
    }
    let mut crossing = Crossing::new(plan, bed, schedule);
    crossing.ask(session, (loads, stop))?;
    let (sent, received, arrivals) = streams((plan, bed), schedule, [&talks, &listens], (loads, stop))?;
    crossing.ask(session.wrapping_add(2), (loads, stop))?;
    let judged = crossing.judge(
        &sent,
        &received,
        &arrivals.context("a listener keeps when packets came")?,
    )?;
    let clocks = clocks::judge(schedule, [state(&sent)?, state(&received)?], judged.apart)?;
    let about = (steal()?, judged.windows, Some(judged.clock), clocks);
    readings(schedule, &sent, &judged.received, about)
}

/// What an end knows of its clock.
fn state(of: &RunResult) -> Result<&ClockState> {
    let schedule = of.schedule.as_ref();
    Ok(&schedule.context("both ends tell of their schedule")?.clock_state)
}

/// Where an end of a schedule runs.
enum Place<'b> {
    Here {
        interface: &'b str,
        mac: [u8; 6],
        ns: &'b Namespace,
        cpu: u32,
        left: Left,
        /// Whom its clock is asked from.
        ptp: PtpArgs,
    },
    Inside {
        guest: &'b Guest,
        interface: &'b str,
        mac: [u8; 6],
        left: Left,
    },
    There {
        remote: Remote<'b>,
        mac: [u8; 6],
    },
}

impl<'b> Place<'b> {
    fn end(end: &'b End, cpu: u32, left: Left) -> Self {
        Self::Here {
            interface: end.interface.name(),
            mac: end.mac,
            ns: &end.ns,
            cpu,
            left,
            ptp: PtpArgs::default(),
        }
    }
}

impl Place<'_> {
    fn mac(&self) -> [u8; 6] {
        match self {
            Self::Here { mac, .. } | Self::Inside { mac, .. } | Self::There { mac, .. } => *mac,
        }
    }

    /// Who is told of what a program there could not undo.
    fn left(&self) -> &Left {
        match self {
            Self::Here { left, .. } | Self::Inside { left, .. } => left,
            Self::There { remote, .. } => &remote.left,
        }
    }

    fn cpu(&self) -> Option<u32> {
        match self {
            Self::Here { cpu, .. } => Some(*cpu),
            Self::Inside { .. } | Self::There { .. } => None,
        }
    }

    /// How long a program may take there until it is ready.
    fn patience(&self) -> Duration {
        match self {
            Self::Here { .. } | Self::There { .. } => START,
            Self::Inside { .. } => START_INSIDE,
        }
    }

    /// Where a listener there keeps when packets came, if that is not its machine's business.
    fn kept(&self) -> Result<Option<Kept>> {
        match self {
            Self::Here { .. } => Kept::at(false).map(Some),
            Self::Inside { .. } => Kept::at(true).map(Some),
            Self::There { .. } => Ok(None),
        }
    }

    fn start(&self, end: ScheduleEnd, kept: Option<&Kept>, stop: &Stop) -> Result<Program<'_>> {
        let what = words::program(&end);
        match self {
            Self::Here {
                interface,
                ns,
                left,
                ptp,
                ..
            } => {
                let words = words::of(&end, interface, kept, ptp);
                Program::here(what, ns.command(boot::own_program()?), &words, left.clone())
            }
            Self::Inside {
                guest, interface, left, ..
            } => {
                let words = words::of(&end, interface, kept, &PtpArgs::default());
                let left = end.talks.is_some().then(|| left.clone());
                Program::inside(what, guest, &words, left)
            }
            Self::There { remote, .. } => Program::there(what, remote, end, stop),
        }
    }
}

/// Where the talker is, and where the listener.
fn places<'b>(plan: &Plan, bed: &'b Bed, schedule: &Schedule) -> Result<[Place<'b>; 2]> {
    let near_cpu = plan.cpu(schedule.from);
    let near_left = bed.left_at(schedule.from);
    let (near, far) = match schedule.way {
        Way::Link { link, back } => {
            let (near, far) = bed.ends(schedule.way)?;
            let [a, b] = plan.links[link].ends;
            let far_host = if back { a } else { b };
            let far = Place::end(far, plan.cpu(far_host), bed.left_at(far_host));
            (Place::end(near, near_cpu, near_left), far)
        }
        Way::Guest(number) => {
            // That there is one.
            let path = bed.guest(number)?;
            let inside = Place::Inside {
                guest: bed.machine(plan, number)?,
                interface: bed.inside(number)?,
                mac: path.b.mac().0,
                left: bed.left_in(&plan.guests[number].name),
            };
            (Place::end(bed.near(plan, number)?, near_cpu, near_left), inside)
        }
        Way::Serve(number) => {
            let path = bed.far(number)?;
            let near = Place::Here {
                interface: path.a.interface.name(),
                mac: path.a.mac().0,
                ns: &bed.here,
                cpu: near_cpu,
                left: near_left,
                ptp: schedule.ptp.clone(),
            };
            let there = Place::There {
                remote: bed.remote(number)?,
                mac: path.b.mac().0,
            };
            (near, there)
        }
    };
    Ok(if schedule.is_back { [far, near] } else { [near, far] })
}

/// Has the streams flow: what the talker says, what the listener says, and if they have two clocks when packets came.
fn streams(
    (plan, bed): (&Plan, &Bed),
    schedule: &Schedule,
    [talks, listens]: [&Place<'_>; 2],
    (loads, stop): (&mut Running<'_>, &Stop),
) -> Result<(RunResult, RunResult, Option<Vec<u8>>)> {
    let mut goes_on = || {
        ensure!(!stop.is_set(), "interrupted");
        // A program in it says nothing while it runs.
        bed.hears(plan, schedule.way)?;
        loads.check()
    };
    let within = |limit: Duration| Instant::now() + limit;
    let has_two_clocks = !matches!(schedule.way, Way::Link { .. });
    let kept = if has_two_clocks { listens.kept()? } else { None };
    let end = |place: &Place<'_>, talks: Option<Talk>| ScheduleEnd {
        tells_arrivals: has_two_clocks && talks.is_none(),
        talks,
        via: schedule.via.name().to_owned(),
        cycle_ns: schedule.schedule.cycle_ns(),
        classes: schedule.classes.clone(),
        spins: schedule.spins,
        cpu: place.cpu(),
    };
    let mut listener = listens.start(end(listens, None), kept.as_ref(), stop)?;
    listener.until(Program::listens, within(listens.patience()), &mut goes_on)?;
    let talk = Talk {
        to_mac: MacAddr(listens.mac()).to_string(),
        duration_ns: nanos(plan.turn),
        qdisc: schedule.qdisc.name().to_owned(),
    };
    let mut talker = talks.start(end(talks, Some(talk)), None, stop)?;
    talker.until_ended(within(plan.turn + talks.patience()), &mut goes_on)?;
    thread::sleep(DRAIN);
    listener.interrupt()?;
    listener.until_ended(within(listens.patience()), &mut goes_on)?;
    let arrivals = match (listens, &kept) {
        _ if !has_two_clocks => None,
        (Place::There { .. }, _) => Some(listener.arrivals()?),
        (Place::Inside { guest, .. }, Some(kept)) => Some(guest.read(kept.path())?),
        (_, kept) => kept.as_ref().map(Kept::read).transpose()?,
    };
    let sent = talker.result()?;
    if let Some(schedule) = &sent.schedule {
        talks.left().add(schedule.left.clone());
    }
    Ok((sent, listener.result()?, arrivals))
}

/// What both ends say of each class, and of all: steal, from when on windows are counted, the other end's clock, how right both are.
fn readings(
    schedule: &Schedule,
    sent: &RunResult,
    received: &ScheduleResult,
    (steal, windows, clock, clocks): (f64, LabWindows, Option<LabClock>, LabClocks),
) -> Result<Vec<Measured>> {
    let clocks = Box::new(clocks);
    let launch = sent.cycle.as_ref().and_then(|cycle| cycle.launch.as_ref());
    let kept_by = launch.map(|launch| launch.kept_by);
    let missed = launch.and_then(|launch| launch.missed_packets);
    let all_sent = sent.packets.sent;
    let sent = sent.schedule.as_ref().context("a talker tells of its schedule")?;
    let of = |class: &Class| {
        let is_it = |other: &&ClassResult| other.class.pcp == class.pcp;
        let sent = sent
            .classes
            .iter()
            .find(is_it)
            .and_then(|of| of.sent.clone())
            .context("the talker tells of each class")?;
        let received = received.classes.iter().find(is_it).and_then(|of| of.received.clone());
        let received = received.context("the listener tells of each class")?;
        let told = LabSchedule {
            class: *class,
            kept_by: kept_by.unwrap_or(LaunchBy::Thread),
            skipped_packets: sent.skipped_packets,
            early_packets: received.early_packets,
            late_packets: received.late_packets,
            late_most_ns: received.late_most_ns,
            missed_packets: missed,
            windows,
            gap: received.gap,
            gap_hdr: received.gap_hdr.clone(),
            clocks: Some(clocks.clone()),
        };
        ensure!(
            received.received_packets > 0,
            "class {}: no packet arrived{}",
            class.pcp,
            missed.map_or_else(String::new, |missed| format!(
                "; of {all_sent} packets that all classes sent the queueing discipline threw {missed} away: too late for their time"
            ))
        );
        Ok(reading(&sent, received, told, (steal, clock)))
    };
    schedule.schedule.classes().iter().map(of).collect()
}

fn reading(
    sent: &ClassSent,
    received: ClassReceived,
    told: LabSchedule,
    (steal, clock): (f64, Option<LabClock>),
) -> Measured {
    // From the fastest packet on there are windows, and no latency.
    let is_known = told.windows.is_by_clock();
    let known = |times| if is_known { times } else { None };
    let known_hdr = |hdr| if is_known { hdr } else { None };
    Measured {
        probes: Counts {
            sent: sent.sent_packets,
            received: received.received_packets,
            lost: sent.sent_packets.saturating_sub(received.received_packets),
            duplicated: received.duplicated_packets,
            reordered: received.reordered_packets,
            longest_reordering: received.longest_reordering,
            ..Counts::default()
        },
        not_sent_probes: sent.skipped_packets,
        impossible_packets: if is_known { received.impossible_packets } else { 0 },
        raw: known(received.path),
        raw_hdr: known_hdr(received.path_hdr),
        corrected: known(received.latency),
        corrected_hdr: known_hdr(received.latency_hdr),
        steal,
        repeats: 0,
        // Of another process, whose threads nobody has looked after.
        waiting: 0.0,
        clock,
        loads: Vec::new(),
        schedule: Some(told),
        jitter: received.jitter,
        steering: Vec::new(),
        redirected: None,
        tap: None,
    }
}
