//! What the server does for a lab besides answering, where it may (`--lab`): an end of a schedule, steering, receivers of loads. All of it
//! ends with the value, and so with the connection.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use ringside_measure::control::{Errand as Wanted, LoadsEnd, MOST_FROM_SERVER, ScheduleEnd, SteerEnd, Talk};
use ringside_measure::schedule::{Class, Schedule};
use ringside_measure::schema::{ClockState, FarEnd};
use ringside_netlab::Namespace;
use ringside_nic::Interface;
use ringside_wire::MacAddr;

use crate::lab::schedule::{self, Kept, Program};
use crate::lab::{listens, own_program};
use crate::left::Left;
use crate::run::streams::{PtpArgs, clock_state};
use crate::steer::{Installed, Settings, Watch};
use crate::stop::Stop;

/// How long programs may take until they are ready, all of them, and one until it has ended: the other end waits for longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// Servers of iperf3 that one client may have.
const MOST_SERVERS: usize = 64;
/// What `ringside lab sink` says when it is there.
const SINK_IS_THERE: &str = "Taking streams";

/// What a client may have done, and for how long it is waited.
pub(super) struct Bounds<'a> {
    pub(super) time: Duration,
    pub(super) rate_pps: Option<u64>,
    /// Who is asked how right the clock is.
    pub(super) ptp: &'a PtpArgs,
    pub(super) stop: &'a Stop,
    /// Who is told of what cannot be undone.
    pub(super) left: &'a Left,
}

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
    Clock(Box<ClockState>),
}

impl Errand {
    /// In a few words.
    pub(super) fn words(wanted: &Wanted) -> &'static str {
        match wanted {
            Wanted::Schedule(end) if end.talks.is_some() => "a talker",
            Wanted::Schedule(_) => "a listener",
            Wanted::Steer(_) => "steering",
            Wanted::Loads(end) if *end == LoadsEnd::default() => "a question of bounds",
            Wanted::Loads(_) => "receivers of loads",
            Wanted::Guest(_) => "a guest",
            Wanted::Clock => "a question of its clock",
        }
    }

    /// Begins it on an interface, at one of its addresses.
    ///
    /// # Errors
    /// Why it cannot be done; nothing is left then.
    pub(super) fn begin(wanted: &Wanted, interface: &str, own: IpAddr, bounds: &Bounds<'_>) -> Result<Self> {
        match wanted {
            Wanted::Schedule(end) => stream(end, interface, bounds),
            Wanted::Steer(end) => steer(end, interface, bounds.left),
            Wanted::Loads(end) => loads(end, own, bounds).map(Self::Loads),
            Wanted::Guest(_) => bail!("a guest is started elsewhere"),
            Wanted::Clock => {
                let state = clock_state(bounds.ptp, &Interface::by_name(interface)?);
                Ok(Self::Clock(Box::new(state)))
            }
        }
    }

    /// Ends it, undoes it, and tells what came of it.
    pub(super) fn end(self, far: FarEnd, stop: &Stop) -> FarEnd {
        let mut told = far;
        if let Err(error) = self.finish(&mut told, stop) {
            told.lost = Some(format!("{error:#}"));
        }
        told
    }

    /// Undoes it without an end.
    pub(super) fn undo(self) {
        if let Self::Steer {
            installed: Some(installed),
            ..
        } = self
        {
            installed.put_back();
        }
    }

    fn finish(self, told: &mut FarEnd, stop: &Stop) -> Result<()> {
        match self {
            Self::Schedule {
                mut program,
                kept,
                talks,
            } => {
                if !talks {
                    program.interrupt()?;
                }
                program.until_ended(Instant::now() + PATIENCE, || goes_on(stop))?;
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
                let seen = watch.end(None, None, installed.as_mut_slice());
                if let Some(installed) = installed {
                    installed.put_back();
                }
                told.steered = Some(Box::new(seen?));
            }
            Self::Loads(_) => {}
            Self::Clock(state) => told.clock_state = Some(state),
        }
        Ok(())
    }
}

fn start(
    what: &'static str,
    program: impl AsRef<std::ffi::OsStr>,
    words: &[String],
    left: &Left,
) -> Result<Program<'static>> {
    Program::here(what, Namespace::current()?.command(program), words, left.clone())
}

/// Whether there is still a server.
fn goes_on(stop: &Stop) -> Result<()> {
    ensure!(!stop.is_set(), "the server was ended");
    Ok(())
}

/// Whether a talker may be: for so long, so many packets, to one host.
fn check_talk(end: &ScheduleEnd, talk: &Talk, bounds: &Bounds<'_>) -> Result<()> {
    if Duration::from_nanos(talk.duration_ns) > bounds.time {
        bail!(
            "streams of {} ns are asked for, this server allows {:?} (--max-time)",
            talk.duration_ns,
            bounds.time
        );
    }
    let to: MacAddr = talk.to_mac.parse().context("the listener's hardware address")?;
    ensure!(!to.is_multicast(), "streams to {to}, which is more than one host's");
    let classes = end.classes.iter().map(|class| class.parse::<Class>());
    let classes: Vec<_> = classes.collect::<Result<_, _>>().map_err(Error::msg)?;
    let schedule = Schedule::new(end.cycle_ns, classes)?;
    if let Some(most) = bounds.rate_pps {
        let packets = u128::from(schedule.packets_per_cycle()) * 1_000_000_000;
        let rate = packets.div_ceil(u128::from(schedule.cycle_ns()));
        ensure!(
            rate <= u128::from(most),
            "streams of {rate} packets/s are asked for, this server allows {most} (--max-rate)"
        );
    }
    Ok(())
}

fn stream(end: &ScheduleEnd, interface: &str, bounds: &Bounds<'_>) -> Result<Errand> {
    if let Some(talk) = &end.talks {
        check_talk(end, talk, bounds)?;
    }
    let talks = end.talks.is_some();
    let kept = end.tells_arrivals.then(|| Kept::at(false)).transpose()?;
    let words = schedule::words(end, interface, kept.as_ref(), bounds.ptp);
    let mut program = start(schedule::name(end), own_program()?, &words, bounds.left)?;
    if !talks {
        program.until(Program::listens, Instant::now() + PATIENCE, || goes_on(bounds.stop))?;
    }
    Ok(Errand::Schedule {
        program: Box::new(program),
        kept,
        talks,
    })
}

fn steer(end: &SteerEnd, interface: &str, left: &Left) -> Result<Errand> {
    let (settings, classes) = Settings::of_errand(end)?;
    let interface = Interface::by_name(interface)?;
    let installed = settings.install(&interface, left)?;
    installed.iter().for_each(Installed::note);
    let watch = Box::new(Watch::begin(&interface, &classes, None)?);
    Ok(Errand::Steer { installed, watch })
}

fn check_ports(ports: &[u16]) -> Result<()> {
    ensure!(
        ports.len() <= MOST_SERVERS,
        "{} servers of iperf3 are asked for: {MOST_SERVERS} are the most",
        ports.len()
    );
    let mut sorted = ports.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => bail!("two servers of iperf3 on one port, {}", pair[0]),
        None => Ok(()),
    }
}

fn loads(end: &LoadsEnd, own: IpAddr, bounds: &Bounds<'_>) -> Result<Vec<Program<'static>>> {
    let Bounds { stop, left, .. } = *bounds;
    check_ports(&end.iperf3)?;
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let own_text = own.to_string();
    if end.sink {
        let mut sink = start(
            "ringside lab sink",
            own_program()?,
            &words(&["lab", "sink", "--listen", &own_text]),
            left,
        )?;
        let is_there = |sink: &Program<'_>| Ok(sink.said()?.contains(SINK_IS_THERE));
        sink.until(is_there, deadline, || goes_on(stop))?;
        all.push(sink);
    }
    let here = Namespace::current()?;
    for port in &end.iperf3 {
        ensure!(!listens(&here, *port), "somebody listens on TCP port {port} already");
        let mut server = start(
            "iperf3",
            "iperf3",
            &words(&["-s", "-B", &own_text, "-p", &port.to_string()]),
            left,
        )?;
        server.until(|_| Ok(listens(&here, *port)), deadline, || goes_on(stop))?;
        all.push(server);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(to_mac: &str, seconds: u64, classes: &[&str]) -> Option<String> {
        let talk = Talk {
            to_mac: to_mac.to_owned(),
            duration_ns: seconds * 1_000_000_000,
            qdisc: "as-it-is".to_owned(),
        };
        let end = ScheduleEnd {
            talks: Some(talk.clone()),
            via: "af-packet".to_owned(),
            cycle_ns: 1_000_000,
            classes: classes.iter().map(|class| (*class).to_owned()).collect(),
            spins: false,
            cpu: None,
            tells_arrivals: false,
        };
        let bounds = Bounds {
            time: Duration::from_secs(10),
            rate_pps: Some(3_000),
            ptp: &PtpArgs::default(),
            stop: &Stop::default(),
            left: &Left::default(),
        };
        check_talk(&end, &talk, &bounds).err().map(|why| format!("{why:#}"))
    }

    #[test]
    fn a_talker_keeps_to_what_the_server_allows() {
        const ONE: &str = "02:00:00:00:00:01";
        const TWO: &str = "5:0us:100us:128:2";
        let says = |why: Option<String>, word: &str| {
            let why = why.unwrap_or_default();
            assert!(why.contains(word), "{why:?}: {word}");
        };
        assert_eq!(why(ONE, 10, &[TWO, "3:200us:100us"]), None);
        says(why(ONE, 10, &[TWO, "3:200us:100us:128:2"]), "--max-rate");
        says(why(ONE, 11, &[TWO]), "--max-time");
        says(why("ff:ff:ff:ff:ff:ff", 1, &[TWO]), "more than one");
        says(why("01:00:5e:00:00:01", 1, &[TWO]), "more than one");
        says(why("everybody", 1, &[TWO]), "hardware address");
        // Not two classes where one was counted.
        assert!(why(ONE, 1, &["5:0us:100us,3:200us:100us"]).is_some());
    }

    #[test]
    fn servers_have_a_port_each_and_are_not_many() {
        let ports: Vec<u16> = (5201..5201 + 64).collect();
        check_ports(&ports).expect("so many");
        check_ports(&[&ports[..], &[80]].concat()).expect_err("one more");
        check_ports(&[5201, 5202, 5201]).expect_err("one twice");
    }
}
