//! A turn of a schedule: `ringside listener` at one end of a link and `ringside talker` at the other, each in its namespace. So all that
//! they can do is had here, and what they find is what they find on their own.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::schema::{ClassReceived, ClassSent, Document, LabSchedule, LaunchBy, Outcome, RunResult};
use ringside_measure::sequence::Counts;
use ringside_netlab::End;
use ringside_nic::host::CpuTimes;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::bed::Bed;
use super::file::ScheduleVia;
use super::folder::Measured;
use super::load::{Running, tempfile};
use super::plan::{Plan, Schedule, Way};
use crate::stop::Stop;

/// How often everything is looked after.
const LOOK: Duration = Duration::from_millis(10);
/// How long a listener may take until it has its socket, and a talker longer than its turn.
const START: Duration = Duration::from_secs(10);
/// For so long the last packets are waited for.
const DRAIN: Duration = Duration::from_millis(50);

/// One turn; a reading for each class, without its loads.
pub(super) fn turn(
    plan: &Plan,
    bed: &Bed,
    schedule: &Schedule,
    (loads, stop): (&mut Running, &Stop),
) -> Result<Vec<Measured>> {
    let (near, far) = bed.ends(schedule.way)?;
    let Way::Link { link, back } = schedule.way else {
        bail!("a schedule goes over a link");
    };
    let [a, b] = plan.links[link].ends;
    let (near_cpu, far_cpu) = if back {
        (plan.cpu(b), plan.cpu(a))
    } else {
        (plan.cpu(a), plan.cpu(b))
    };
    let times = CpuTimes::read()?;
    let mut watch = |end: &mut Program, until: &dyn Fn(&str) -> bool, limit: Duration| -> Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            ensure!(!stop.is_set(), "interrupted");
            loads.check()?;
            if let Some(status) = end.child.try_wait()? {
                return Ok(Some(status));
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
    let mut listener = Program::start(
        "ringside listener",
        far,
        &common(
            schedule,
            far,
            far_cpu,
            "listener",
            &["--wait", if schedule.spins { "spin" } else { "poll" }],
        ),
    )?;
    let listens = |said: &str| said.contains("a packet socket listens") || said.contains("XDP program ringside_xsk");
    if watch(&mut listener, &listens, START)?.is_some() {
        bail!("{}", listener.failed()?);
    }
    let to = far.mac.map(|byte| format!("{byte:02x}")).join(":");
    let seconds = plan.turn.as_secs_f64().to_string();
    let mut talk = vec![
        "--to-mac",
        to.as_str(),
        "-t",
        seconds.as_str(),
        "--qdisc",
        schedule.qdisc.name(),
    ];
    if schedule.spins {
        talk.push("--spin");
    }
    let mut talker = Program::start(
        "ringside talker",
        near,
        &common(schedule, near, near_cpu, "talker", &talk),
    )?;
    let never = |_: &str| false;
    let limit = plan.turn + START;
    let ended = watch(&mut talker, &never, limit)?;
    if !ended.is_some_and(|status| status.success()) {
        bail!("{}", talker.failed()?);
    }
    thread::sleep(DRAIN);
    listener.interrupt();
    let ended = watch(&mut listener, &never, START)?;
    if !ended.is_some_and(|status| status.success()) {
        bail!("{}", listener.failed()?);
    }
    let passed = CpuTimes::read()?.since(&times).sum();
    let steal = passed.fraction(passed.steal).unwrap_or(0.0);
    readings(schedule, &talker.result()?, &listener.result()?, steal)
}

/// The command line of one end.
fn common(schedule: &Schedule, end: &End, cpu: u32, command: &str, more: &[&str]) -> Vec<String> {
    let cycle = format!("{}ns", schedule.schedule.cycle_ns());
    let mut words: Vec<String> = [
        command,
        end.interface.name(),
        "--json",
        "--via",
        schedule.via.name(),
        "--cycle",
        &cycle,
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend(["--class".to_owned(), schedule.classes.join(",")]);
    words.extend(["--cpus".to_owned(), cpu.to_string()]);
    if schedule.via == ScheduleVia::AfXdp {
        words.extend(["--mode", "native"].map(str::to_owned));
    }
    words.extend(more.iter().map(|word| (*word).to_owned()));
    words
}

fn readings(schedule: &Schedule, sent: &RunResult, received: &RunResult, steal: f64) -> Result<Vec<Measured>> {
    let kept_by = sent
        .cycle
        .as_ref()
        .and_then(|cycle| Some(cycle.launch.as_ref()?.kept_by));
    let (sent, received) = (sent.schedule.as_ref(), received.schedule.as_ref());
    let (sent, received) = sent.zip(received).context("both ends tell of their schedule")?;
    let of = |class: &ringside_measure::schedule::Class| {
        let is_it = |other: &&ringside_measure::schema::ClassResult| other.class.pcp == class.pcp;
        let sent = sent
            .classes
            .iter()
            .find(is_it)
            .and_then(|of| of.sent.clone())
            .context("the talker tells of each class")?;
        let received = received.classes.iter().find(is_it).and_then(|of| of.received.clone());
        let received = received.context("the listener tells of each class")?;
        reading(&sent, &received, steal, |sent, received| LabSchedule {
            class: *class,
            kept_by: kept_by.unwrap_or(LaunchBy::Thread),
            skipped_packets: sent.skipped_packets,
            early_packets: received.early_packets,
            late_packets: received.late_packets,
            late_most_ns: received.late_most_ns,
        })
        .with_context(|| format!("class {}: no packet arrived", class.pcp))
    };
    schedule.schedule.classes().iter().map(of).collect()
}

fn reading(
    sent: &ClassSent,
    received: &ClassReceived,
    steal: f64,
    windows: impl FnOnce(&ClassSent, &ClassReceived) -> LabSchedule,
) -> Option<Measured> {
    Some(Measured {
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
        impossible_packets: received.impossible_packets,
        raw: received.path?,
        raw_hdr: received.path_hdr.clone()?,
        corrected: received.latency?,
        corrected_hdr: received.latency_hdr.clone()?,
        steal,
        // Of another process, whose threads nobody has looked after.
        waiting: 0.0,
        clock: None,
        loads: Vec::new(),
        schedule: Some(windows(sent, received)),
        steering: Vec::new(),
        redirected: None,
        tap: None,
    })
}

/// This program once more, in a namespace; killed when it is dropped.
struct Program {
    what: &'static str,
    child: Child,
    out: File,
    err: File,
}

impl Program {
    fn start(what: &'static str, end: &End, words: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let (out, err) = (
            tempfile().context("a file for a result")?,
            tempfile().context("a file for messages")?,
        );
        let mut command: Command = end.ns.command(program);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?)
            // Not the terminal's Ctrl-C: it is told when to end.
            .process_group(0);
        let child = command.spawn().with_context(|| format!("starting {what}"))?;
        Ok(Self { what, child, out, err })
    }

    /// What it has said so far on standard error.
    fn said(&self) -> Result<String> {
        whole(&self.err)
    }

    fn interrupt(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            _ = kill_process(pid, Signal::INT);
        }
    }

    fn result(&self) -> Result<RunResult> {
        let document: Document =
            serde_json::from_str(&whole(&self.out)?).with_context(|| format!("reading the result of {}", self.what))?;
        match document.result {
            Outcome::Run(result) => Ok(*result),
            _ => bail!("{} told of something else", self.what),
        }
    }

    /// Why it ended.
    fn failed(&self) -> Result<String> {
        let said = self.said()?;
        let last = said.lines().map(str::trim).rfind(|line| line.starts_with("ringside: "));
        let why = last.or_else(|| said.lines().last()).unwrap_or("it said nothing");
        Ok(format!("{}: {}", self.what, why.trim_start_matches("ringside: ")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            _ = kill_process_group(group, Signal::KILL);
        }
        _ = self.child.wait();
    }
}

/// All that is in a file, wherever its writer is: the two share one position, so it is not moved.
fn whole(file: &File) -> Result<String> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let mut text = Vec::new();
    let mut again = File::open(path).context("reading what a program said")?;
    again.rewind()?;
    again.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
