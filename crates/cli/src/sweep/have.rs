//! What can be had here: each level is tried before anything is measured, so that none is faked.

use std::time::Duration;

use anyhow::{Result, bail};
use ringside_measure::schema::UnavailableLevel;
use ringside_measure::sweep::Knob;
use ringside_xsk::{Direction, Pages};

use super::knob;
use super::{Args, SMALLEST_PROBE};
use crate::args::{List, PortArgs, WaitArg};
use crate::compare::{Bed, Bench, Contender, Kind, Operation};
use crate::peer::xsk::{NoBusyPolling, SetUp};
use crate::stop::Stop;

/// What is swept over, and what stays.
pub(super) struct Knobs {
    /// Those with several levels that can be had.
    pub(super) turned: Vec<Knob>,
    /// Those with one: it holds for all configurations.
    pub(super) fixed: Vec<(String, String)>,
    pub(super) unavailable: Vec<UnavailableLevel>,
}

impl Knobs {
    /// Tries each level alone.
    ///
    /// # Errors
    /// Where what was to stay cannot be had, or nothing is left to sweep over.
    pub(super) fn of(args: &Args, bed: &Bed, stop: &Stop) -> Result<Self> {
        let (fixed, asked): (Vec<Knob>, Vec<Knob>) = args
            .knobs
            .iter()
            .map(|knob| knob.0.clone())
            .partition(|knob| knob.levels.len() == 1);
        let mut knobs = Self {
            turned: Vec::new(),
            fixed: fixed
                .into_iter()
                .map(|knob| (knob.name, knob.levels.concat()))
                .collect(),
            unavailable: Vec::new(),
        };
        attempt(args, bed, stop, &knobs.settings(args, &[])?)?;
        for mut knob in asked {
            let name = knob.name.clone();
            knob.levels.retain(|level| {
                let settings = knobs.settings(args, &[(name.as_str(), level.as_str())]);
                match settings.and_then(|settings| attempt(args, bed, stop, &settings)) {
                    Ok(()) => true,
                    Err(error) => {
                        knobs.unavailable.push(UnavailableLevel {
                            knob: name.clone(),
                            level: level.clone(),
                            reason: format!("{error:#}"),
                        });
                        false
                    }
                }
            });
            match knob.levels.len() {
                0 => {}
                // What is left of it is all that there is.
                1 => knobs.fixed.push((knob.name, knob.levels.concat())),
                _ => knobs.turned.push(knob),
            }
        }
        Ok(knobs)
    }

    /// The settings of a configuration. Its thread runs where the command line has it, unless that is a knob.
    pub(super) fn settings(&self, args: &Args, levels: &[(&str, &str)]) -> Result<PortArgs> {
        let all = self.all(levels);
        let mut settings = knob::settings(all.iter().copied())?;
        if !all.iter().any(|(name, _)| *name == "cpus") {
            let cpu = match args.objective.operation() {
                Operation::Rx | Operation::Fwd => args.bench.receiver_cpu(),
                Operation::Tx | Operation::Ping => args.bench.sender_cpu(),
            };
            settings.cpus = Some(List(vec![cpu]));
        }
        Ok(settings)
    }

    /// A configuration with what stays.
    pub(super) fn all<'k>(&'k self, levels: &[(&'k str, &'k str)]) -> Vec<(&'k str, &'k str)> {
        let fixed = self.fixed.iter().map(|(name, level)| (name.as_str(), level.as_str()));
        fixed.chain(levels.iter().copied()).collect()
    }
}

/// Opens what is measured, and looks at what was obtained.
fn attempt(args: &Args, bed: &Bed, stop: &Stop, settings: &PortArgs) -> Result<()> {
    let operation = args.objective.operation();
    let (side, direction) = match operation {
        Operation::Rx => (&bed.b, Direction::Receive),
        Operation::Tx => (&bed.a, Direction::Transmit),
        Operation::Fwd => (&bed.b, Direction::Both),
        Operation::Ping => (&bed.a, Direction::Both),
    };
    // Who cannot be put there is told now.
    crate::pin::check(settings)?;
    let port = side.run(|| SetUp::tuned(settings, direction).open(&side.interface))?;
    for queue in &port.report().queues {
        if settings.huge_pages && queue.pages != Pages::Huge {
            let reason = queue.notes.iter().find(|note| note.contains("huge pages"));
            bail!("{}", reason.map_or("no huge pages were obtained", String::as_str));
        }
        match (settings.tx_budget, queue.tx_budget) {
            (Some(_), None) => bail!("it is for sending on copy paths, and plays no part here"),
            (Some(wanted), Some(obtained)) if obtained < wanted => {
                bail!("it is {obtained} at the most, as the TX ring has slots: for more add --knob ring=SLOTS")
            }
            _ => {}
        }
    }
    drop(port);
    if settings.wait == WaitArg::BusyPoll {
        busy_polls(args, bed, stop, settings)?;
    }
    Ok(())
}

/// Whether busy-polling drives anything only packets show: a short turn, whose figure is of no interest.
fn busy_polls(args: &Args, bed: &Bed, stop: &Stop, settings: &PortArgs) -> Result<()> {
    let bench = Bench {
        slot: Duration::from_millis(20),
        ..args.bench.clone()
    };
    let contender = Contender::new(
        bed,
        &bench,
        args.objective.operation(),
        Kind::AfXdpNative,
        SMALLEST_PROBE,
    );
    match contender.tuned(settings).turn(&mut None, stop) {
        Err(error) if error.downcast_ref::<NoBusyPolling>().is_some() => Err(error),
        // Anything else shows in the race.
        _ => Ok(()),
    }
}
