//! One variant's turn.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_bpf::Link;

use crate::Settings;
use crate::children::{self, Process};
use crate::counters::Counter;
use crate::disturbance::{Disturbance, Mark};
use crate::lab::{FAR, Lab, NEAR};
use crate::load::{self, Load};
use crate::operation::{Operation, SENDER_CPU};
use crate::peers::{RoundTrips, Variant};

/// How long a program may take until its first packet.
const START: Duration = Duration::from_secs(10);
/// How long a program that ran before may take until its first packet of a turn.
const FIRST_PACKET: Duration = Duration::from_secs(2);

/// A variant on its own path, paused between its turns.
#[derive(Debug)]
pub(crate) struct Contender {
    /// Which variant it is.
    pub(crate) variant: Variant,
    operation: Operation,
    // In the order in which they have to go: process, sink, then the path under them.
    process: Process,
    _sink: Option<Link>,
    counter: Option<Counter>,
    lab: Lab,
    log: PathBuf,
}

/// What a turn gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Packets per second, or the median round trip in nanoseconds.
    pub(crate) value: f64,
    /// Ping-pong only.
    pub(crate) round_trips: Option<RoundTrips>,
    /// How much of it went to others.
    pub(crate) disturbance: Disturbance,
}

impl Contender {
    /// Builds the path, starts the process, sees that packets flow, and pauses it.
    pub(crate) fn start(variant: Variant, operation: Operation, settings: &Settings) -> Result<Self> {
        let lab = Lab::new()?;
        let sink = operation.has_sink().then(|| load::attach_sink(&lab)).transpose()?;
        let counter = match operation {
            Operation::Rx => Some(Counter::find(lab.near(), NEAR, "rx_queue_0_xdp_redirect")?),
            Operation::Tx | Operation::Fwd => Some(Counter::find(lab.far(), FAR, "rx_queue_0_xdp_drops")?),
            Operation::Ping => None,
        };
        let folder = settings
            .json
            .parent()
            .map_or_else(PathBuf::new, |parent| parent.join("bench-logs"));
        let name: String = variant
            .name
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        let log = folder.join(format!("{operation:?}-{name}.log").to_lowercase());
        let process = Process::start(&variant.near, lab.near(), operation.cpu(), &log)?;
        let mut contender = Self {
            variant,
            operation,
            process,
            _sink: sink,
            counter,
            lab,
            log,
        };
        // Whether it is ready shows only by trying: until then nothing takes the packets.
        let end = Instant::now() + START;
        loop {
            contender.process.check()?;
            match contender.turn(settings) {
                Ok(_) => return Ok(contender),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            // A process that starts must not be paused between two tries.
            contender.process.resume()?;
        }
    }

    /// Runs for one turn and pauses again.
    pub(crate) fn turn(&mut self, settings: &Settings) -> Result<Reading> {
        self.process.resume()?;
        let reading = match self.operation {
            Operation::Ping => self.ping(settings),
            Operation::Rx | Operation::Tx | Operation::Fwd => self.rate(settings),
        };
        self.process.pause()?;
        if reading.is_err() {
            // The process's own words say more than ours.
            self.process.check()?;
        }
        reading
    }

    fn rate(&self, settings: &Settings) -> Result<Reading> {
        let counter = self.counter.as_ref().context("nothing to count with")?;
        let before = counter.read()?;
        let longest = FIRST_PACKET + settings.settle + settings.slot;
        let load = self
            .operation
            .is_loaded()
            .then(|| Load::start(&self.lab, longest, settings.load));
        let mut begun = Instant::now();
        while let Some(load) = load.as_ref()
            && !load.is_ready()
        {
            if load.has_ended() || begun.elapsed() > START {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let loading = begun.elapsed();
        begun = Instant::now();
        while counter.read()? == before {
            if load.as_ref().is_some_and(Load::has_ended) || begun.elapsed() > FIRST_PACKET {
                load.map(Load::finish).transpose()?;
                bail!(
                    "no packet within {:?}, after {loading:?} of preparation",
                    begun.elapsed()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(settings.settle);

        let mark = Mark::new(self.process.id())?;
        let (first, begin) = (counter.read()?, Instant::now());
        std::thread::sleep(settings.slot);
        let (last, elapsed) = (counter.read()?, begin.elapsed());
        let disturbance = mark.elapsed()?;

        let ended_early = load.as_ref().is_some_and(Load::has_ended);
        load.map(Load::finish).transpose()?;
        ensure!(!ended_early, "the load ended before the turn");
        Ok(Reading {
            value: last.saturating_sub(first) as f64 / elapsed.as_secs_f64(),
            round_trips: None,
            disturbance,
        })
    }

    fn ping(&self, settings: &Settings) -> Result<Reading> {
        let client = self.variant.client.as_ref().context("nobody to measure with")?;
        let mut invocation = client.invocation.clone();
        let seconds = settings.settle + settings.slot;
        invocation.words.push(seconds.as_secs_f64().to_string());
        let command = invocation.command(self.lab.far(), SENDER_CPU);
        let mark = Mark::new(self.process.id())?;
        let output = children::output(
            command,
            seconds + Duration::from_secs(5),
            &self.log.with_extension("client.log"),
        )?;
        let disturbance = mark.elapsed()?;
        let round_trips = (client.parse)(&output)?;
        Ok(Reading {
            value: round_trips.p50,
            round_trips: Some(round_trips),
            disturbance,
        })
    }
}
