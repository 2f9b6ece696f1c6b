//! A turn of a schedule: `ringside listener` at one end and `ringside talker` at the other, each in its namespace, or one of them in a guest. So all
//! that they can do is had here, and what they find is what they find on their own; but for times by a guest's clock, of which a program in it
//! knows nothing ([`crossing`]).

mod crossing;
mod program;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::schedule::Class;
use ringside_measure::schema::{
    ClassReceived, ClassResult, ClassSent, LabClock, LabSchedule, LabWindows, LaunchBy, RunResult, ScheduleResult,
};
use ringside_measure::sequence::Counts;
use ringside_netlab::End;
use ringside_netlab::guest::Guest;
use ringside_nic::host::CpuTimes;

use super::bed::Bed;
use super::file::ScheduleVia;
use super::folder::Measured;
use super::guests;
use super::load::Running;
use super::plan::{Plan, Schedule, Way};
use crate::stop::Stop;

use crossing::Crossing;
use program::Program;

/// How often everything is looked after.
const LOOK: Duration = Duration::from_millis(10);
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
    (session, loads, stop): (u32, &mut Running, &Stop),
) -> Result<Vec<Measured>> {
    let [talks, listens] = places(plan, bed, schedule)?;
    let times = CpuTimes::read()?;
    let steal = || -> Result<f64> {
        let passed = CpuTimes::read()?.since(&times).sum();
        Ok(passed.fraction(passed.steal).unwrap_or(0.0))
    };
    let Way::Guest(guest) = schedule.way else {
        let (sent, received, _) = streams(plan, schedule, [&talks, &listens], (loads, stop))?;
        let received = received.schedule.context("a listener tells of its schedule")?;
        return readings(schedule, &sent, &received, (steal()?, LabWindows::Clock, None));
    };
    let mut crossing = Crossing::new(plan, bed, schedule, guest);
    crossing.ask(session, (loads, stop))?;
    let (sent, received, arrivals) = streams(plan, schedule, [&talks, &listens], (loads, stop))?;
    crossing.ask(session.wrapping_add(2), (loads, stop))?;
    let judged = crossing.judge(
        &sent,
        &received,
        &arrivals.context("a listener keeps when packets came")?,
    )?;
    let about = (steal()?, judged.windows, Some(judged.clock));
    readings(schedule, &sent, &judged.received, about)
}

/// Where an end of a schedule runs.
enum Place<'b> {
    Here {
        end: &'b End,
        cpu: u32,
    },
    Inside {
        guest: &'b Guest,
        interface: &'b str,
        mac: [u8; 6],
    },
}

impl Place<'_> {
    fn interface(&self) -> &str {
        match self {
            Self::Here { end, .. } => end.interface.name(),
            Self::Inside { interface, .. } => interface,
        }
    }

    fn mac(&self) -> [u8; 6] {
        match self {
            Self::Here { end, .. } => end.mac,
            Self::Inside { mac, .. } => *mac,
        }
    }

    /// How long a program may take there until it is ready.
    fn patience(&self) -> Duration {
        match self {
            Self::Here { .. } => START,
            Self::Inside { .. } => START_INSIDE,
        }
    }

    fn start(&self, what: &'static str, words: &[String]) -> Result<Program<'_>> {
        match self {
            Self::Here { end, .. } => {
                let own = guests::own_program()?;
                let command: Command = end.ns.command(own);
                Program::here(what, command, words)
            }
            Self::Inside { guest, .. } => Program::inside(what, guest, words),
        }
    }
}

/// Where the talker is, and where the listener.
fn places<'b>(plan: &Plan, bed: &'b Bed, schedule: &Schedule) -> Result<[Place<'b>; 2]> {
    let near_cpu = plan.cpu(schedule.from);
    let (near, far) = match schedule.way {
        Way::Link { link, back } => {
            let (near, far) = bed.ends(schedule.way)?;
            let [a, b] = plan.links[link].ends;
            let far_cpu = plan.cpu(if back { a } else { b });
            (near, Place::Here { end: far, cpu: far_cpu })
        }
        Way::Guest(number) => {
            // That there is one.
            let path = bed.guest(number)?;
            let inside = Place::Inside {
                guest: bed.machine(plan, number)?,
                interface: bed.inside(number)?,
                mac: path.b.mac().0,
            };
            (bed.near(plan, number)?, inside)
        }
        Way::Serve(_) => bail!("a schedule does not go to another machine"),
    };
    let near = Place::Here {
        end: near,
        cpu: near_cpu,
    };
    Ok(if schedule.is_back { [far, near] } else { [near, far] })
}

/// Has the streams flow: what the talker says, what the listener says, and if one of them is in a guest when packets came.
fn streams(
    plan: &Plan,
    schedule: &Schedule,
    [talks, listens]: [&Place<'_>; 2],
    (loads, stop): (&mut Running, &Stop),
) -> Result<(RunResult, RunResult, Option<Vec<u8>>)> {
    let mut watch = |end: &mut Program<'_>, until: &dyn Fn(&str) -> bool, limit: Duration| -> Result<Option<bool>> {
        let begin = Instant::now();
        loop {
            ensure!(!stop.is_set(), "interrupted");
            loads.check()?;
            if let Some(is_well) = end.ended()? {
                return Ok(Some(is_well));
            }
            if until(&end.said()?) {
                return Ok(None);
            }
            ensure!(
                begin.elapsed() < limit,
                "{} is not as far as it should be after {limit:?}",
                end.what
            );
            thread::sleep(LOOK);
        }
    };
    let kept = matches!(schedule.way, Way::Guest(_))
        .then(|| program::Kept::at(matches!(listens, Place::Inside { .. })))
        .transpose()?;
    let mut listen = common(schedule, listens, "listener");
    listen.extend(["--wait", if schedule.spins { "spin" } else { "poll" }].map(str::to_owned));
    if let Some(kept) = &kept {
        listen.extend(["--arrivals".to_owned(), kept.path()]);
    }
    let mut listener = listens.start("ringside listener", &listen)?;
    let is_ready = |said: &str| said.contains("a packet socket listens") || said.contains("XDP program ringside_xsk");
    if watch(&mut listener, &is_ready, listens.patience())?.is_some() {
        bail!("{}", listener.failed()?);
    }
    let to = listens.mac().map(|byte| format!("{byte:02x}")).join(":");
    let seconds = plan.turn.as_secs_f64().to_string();
    let mut talk = common(schedule, talks, "talker");
    talk.extend(["--to-mac", &to, "-t", &seconds, "--qdisc", schedule.qdisc.name()].map(str::to_owned));
    if schedule.spins {
        talk.push("--spin".to_owned());
    }
    let mut talker = talks.start("ringside talker", &talk)?;
    let never = |_: &str| false;
    if watch(&mut talker, &never, plan.turn + talks.patience())? != Some(true) {
        bail!("{}", talker.failed()?);
    }
    thread::sleep(DRAIN);
    listener.interrupt()?;
    if watch(&mut listener, &never, listens.patience())? != Some(true) {
        bail!("{}", listener.failed()?);
    }
    let arrivals = match (&kept, listens) {
        (None, _) => None,
        (Some(kept), Place::Here { .. }) => Some(kept.read()?),
        (Some(kept), Place::Inside { guest, .. }) => Some(guest.read(kept.path())?),
    };
    Ok((talker.result()?, listener.result()?, arrivals))
}

/// The command line of one end.
fn common(schedule: &Schedule, place: &Place<'_>, command: &str) -> Vec<String> {
    let cycle = format!("{}ns", schedule.schedule.cycle_ns());
    let mut words: Vec<String> = [
        command,
        place.interface(),
        "--json",
        "--via",
        schedule.via.name(),
        "--cycle",
        &cycle,
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend(["--class".to_owned(), schedule.classes.join(",")]);
    if let Place::Here { cpu, .. } = place {
        words.extend(["--cpus".to_owned(), cpu.to_string()]);
    }
    if schedule.via == ScheduleVia::AfXdp {
        words.extend(["--mode", "native"].map(str::to_owned));
    }
    words
}

/// What both ends say of each class, and of all: steal, from when on windows are counted, the other end's clock.
fn readings(
    schedule: &Schedule,
    sent: &RunResult,
    received: &ScheduleResult,
    (steal, windows, clock): (f64, LabWindows, Option<LabClock>),
) -> Result<Vec<Measured>> {
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
