//! What the server does for a lab besides answering, where it may (`--lab`): an end of a schedule, steering, receivers of loads. All of it
//! ends with the value, and so with the connection.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::control::{Errand as Wanted, LoadsEnd, MOST_FROM_SERVER, ScheduleEnd, SteerEnd};
use ringside_measure::schema::FarEnd;
use ringside_netlab::Namespace;
use ringside_nic::Interface;

use crate::lab::schedule::{self, Kept, Program};
use crate::lab::{listens, own_program};
use crate::steer::{Installed, Settings, Watch};

/// How long a program may take until it is ready, and until it has ended: the other end waits for longer.
const PATIENCE: Duration = Duration::from_secs(8);
/// What `ringside lab sink` says when it is there.
const SINK_IS_THERE: &str = "Taking streams";

/// Something that is being done.
pub(super) enum Errand {
    Schedule {
        program: Box<Program<'static>>,
        kept: Option<Kept>,
        /// A talker ends by itself.
        talks: bool,
    },
    Steer {
        installed: Option<Installed>,
        watch: Box<Watch>,
    },
    /// Until they are dropped.
    Loads(#[allow(dead_code, reason = "they run for as long as they are there")] Vec<Program<'static>>),
}

impl Errand {
    /// In a few words.
    pub(super) fn words(wanted: &Wanted) -> &'static str {
        match wanted {
            Wanted::Schedule(end) if end.talks.is_some() => "a talker",
            Wanted::Schedule(_) => "a listener",
            Wanted::Steer(_) => "steering",
            Wanted::Loads(_) => "receivers of loads",
        }
    }

    /// Begins it on an interface, at one of its addresses.
    ///
    /// # Errors
    /// Why it cannot be done; nothing is left then.
    pub(super) fn begin(wanted: &Wanted, interface: &str, own: IpAddr, most: Duration) -> Result<Self> {
        match wanted {
            Wanted::Schedule(end) => stream(end, interface, most),
            Wanted::Steer(end) => steer(end, interface),
            Wanted::Loads(end) => loads(end, own).map(Self::Loads),
        }
    }

    /// Ends it, undoes it, and tells what came of it.
    pub(super) fn end(self, far: FarEnd) -> FarEnd {
        let mut told = far;
        if let Err(error) = self.finish(&mut told) {
            told.lost = Some(format!("{error:#}"));
        }
        told
    }

    fn finish(self, told: &mut FarEnd) -> Result<()> {
        match self {
            Self::Schedule {
                mut program,
                kept,
                talks,
            } => {
                if !talks {
                    program.interrupt()?;
                }
                if !ended_well(&mut program)? {
                    bail!("{}", program.failed()?);
                }
                told.result = Some(Box::new(program.result()?));
                if let Some(kept) = kept {
                    let arrivals = String::from_utf8(kept.read()?).context("reading when packets came")?;
                    ensure!(
                        arrivals.len() < MOST_FROM_SERVER / 2,
                        "too many packets came to tell of each: take a shorter turn"
                    );
                    told.arrivals = Some(arrivals);
                }
            }
            Self::Steer { mut installed, watch } => {
                let threads = installed.as_mut().map(Installed::ran).unwrap_or_default();
                let settings = installed.as_ref().map(|installed| installed.told.clone());
                let seen = watch.end(None, None, settings.unwrap_or_default(), threads)?;
                if let Some(installed) = installed {
                    installed.put_back();
                }
                told.steered = Some(Box::new(seen));
            }
            Self::Loads(_) => {}
        }
        Ok(())
    }
}

fn start(what: &'static str, program: impl AsRef<std::ffi::OsStr>, words: &[String]) -> Result<Program<'static>> {
    Program::here(what, Namespace::current()?.command(program), words)
}

/// Waits for a program to be ready; its own words if it ends before.
fn until_ready(program: &mut Program<'_>, is_ready: impl Fn(&Program<'_>) -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_ready(program) {
        if program.ended()?.is_some() {
            bail!("{}", program.failed()?);
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "{} is not ready after {PATIENCE:?}",
            program.what
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn ended_well(program: &mut Program<'_>) -> Result<bool> {
    let begin = Instant::now();
    loop {
        if let Some(is_well) = program.ended()? {
            return Ok(is_well);
        }
        ensure!(begin.elapsed() < PATIENCE, "{} does not end", program.what);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stream(end: &ScheduleEnd, interface: &str, most: Duration) -> Result<Errand> {
    if let Some(talk) = &end.talks
        && Duration::from_nanos(talk.duration_ns) > most
    {
        bail!(
            "streams of {} ns are asked for, this server allows {most:?} (--max-time)",
            talk.duration_ns
        );
    }
    let talks = end.talks.is_some();
    let kept = end.tells_arrivals.then(|| Kept::at(false)).transpose()?;
    let words = schedule::words(end, interface, kept.as_ref());
    let mut program = start(schedule::name(end), own_program()?, &words)?;
    if !talks {
        until_ready(&mut program, |program| program.listens().unwrap_or(false))?;
    }
    Ok(Errand::Schedule {
        program: Box::new(program),
        kept,
        talks,
    })
}

fn steer(end: &SteerEnd, interface: &str) -> Result<Errand> {
    let (settings, classes) = Settings::of_errand(end)?;
    let interface = Interface::by_name(interface)?;
    let installed = settings.install(&interface)?;
    installed.iter().for_each(Installed::note);
    let watch = Box::new(Watch::begin(&interface, &classes, None)?);
    Ok(Errand::Steer { installed, watch })
}

fn loads(end: &LoadsEnd, own: IpAddr) -> Result<Vec<Program<'static>>> {
    let mut all = Vec::new();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let own_text = own.to_string();
    if end.sink {
        let mut sink = start(
            "ringside lab sink",
            own_program()?,
            &words(&["lab", "sink", "--listen", &own_text]),
        )?;
        until_ready(&mut sink, |sink| {
            sink.said().is_ok_and(|said| said.contains(SINK_IS_THERE))
        })?;
        all.push(sink);
    }
    let here = Namespace::current()?;
    for port in &end.iperf3 {
        let mut server = start(
            "iperf3",
            "iperf3",
            &words(&["-s", "-B", &own_text, "-p", &port.to_string()]),
        )?;
        until_ready(&mut server, |_| listens(&here, *port))?;
        all.push(server);
    }
    Ok(all)
}
