//! What was read, variant by variant.

use anyhow::Result;
use ringside_measure::probe::HEADER_LEN;
use ringside_measure::schema::LoadKind;

use super::bed::Bed;
use super::options::Args;
use super::slot::{Load, Reading};
use super::under::Under;
use super::variant::{Kind, Operation};
use crate::args::bad_value;

/// The smallest frame with a probe over IPv4.
const SMALLEST_PING: u16 = 82;
const _: () = assert!(SMALLEST_PING as usize == 42 + HEADER_LEN);

/// The variants of one operation with frames of one size: one table.
pub(crate) struct Contest {
    pub(crate) operation: Operation,
    pub(crate) frame_bytes: u16,
    pub(crate) series: Vec<Series>,
    /// The generator, once it was needed.
    pub(crate) load: Option<Load>,
}

/// The readings of one variant.
pub(crate) struct Series {
    pub(crate) kind: Kind,
    /// It is the second of its kind, to be compared with the first (A/A).
    pub(crate) again: bool,
    /// What loads the path meanwhile.
    pub(crate) under: Under,
    /// With the round that each is of.
    pub(crate) readings: Vec<(u32, Reading)>,
    /// Turns that were repeated because the hypervisor disturbed them.
    pub(crate) repeats: u32,
    failures: u32,
    pub(crate) failure: Option<String>,
}

impl Contest {
    /// All that the command line asks for.
    pub(crate) fn all(args: &Args, bed: &Bed) -> Result<Vec<Self>> {
        let mut contests: Vec<Self> = Vec::new();
        for &operation in &args.operations {
            for &size in &args.sizes {
                let frame_bytes = match operation {
                    Operation::Ping => size.max(SMALLEST_PING),
                    _ => size,
                };
                let kinds = Kind::of(operation, !bed.is_lab());
                let chosen = kinds.into_iter().filter(|kind| kind.is_chosen(&args.variants));
                let mut series: Vec<Series> = chosen.map(Series::new).collect();
                if args.aa {
                    let again: Vec<Series> = series.iter().map(|series| Series::again(series.kind)).collect();
                    series.extend(again);
                }
                if operation == Operation::Ping {
                    let chosen: Vec<Kind> = series
                        .iter()
                        .filter(|series| !series.again)
                        .map(|series| series.kind)
                        .collect();
                    for under in args.under() {
                        series.extend(chosen.iter().map(|kind| Series::under(*kind, under)));
                    }
                }
                let known = |contest: &Self| contest.operation == operation && contest.frame_bytes == frame_bytes;
                if !series.is_empty() && !contests.iter().any(known) {
                    contests.push(Self {
                        operation,
                        frame_bytes,
                        series,
                        load: None,
                    });
                }
            }
        }
        if contests.is_empty() {
            bad_value!("none of the variants chosen takes part in any of the operations chosen");
        }
        Ok(contests)
    }

    /// Those that are compared, and neither with themselves nor under load.
    pub(crate) fn variants(&self) -> impl Iterator<Item = &Series> + Clone {
        self.series
            .iter()
            .filter(|series| !series.again && series.under.kind == LoadKind::Idle)
    }

    /// Those under load.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| series.under.kind != LoadKind::Idle)
    }

    /// Whether nothing at all was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.readings.is_empty())
    }

    /// Why, if there is one reason.
    pub(crate) fn failure(&self) -> Option<String> {
        self.series.iter().find_map(|series| series.failure.clone())
    }
}

impl Series {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            again: false,
            under: Under::IDLE,
            readings: Vec::new(),
            repeats: 0,
            failures: 0,
            failure: None,
        }
    }

    /// One under load.
    pub(crate) fn under(kind: Kind, under: Under) -> Self {
        Self {
            under,
            ..Self::new(kind)
        }
    }

    /// The second of its kind.
    pub(crate) fn again(kind: Kind) -> Self {
        Self {
            again: true,
            ..Self::new(kind)
        }
    }

    /// Measures a turn of a round with `turn`, which returns `None` when a signal interrupts it.
    ///
    /// Repeats the turn once if the hypervisor took too much CPU time and `repeats` is not used up.
    /// The repeat counts instead, unless it fails.
    pub(crate) fn measure(
        &mut self,
        round: u32,
        repeats: &mut usize,
        mut turn: impl FnMut() -> Option<Result<Reading>>,
    ) {
        let Some(mut reading) = turn() else { return };
        let is_disturbed = reading.as_ref().is_ok_and(|reading| !reading.is_quiet());
        if is_disturbed && *repeats > 0 {
            *repeats -= 1;
            if let Some(Ok(repeat)) = turn() {
                self.repeats += 1;
                reading = Ok(repeat);
            }
        }
        self.add(round, reading);
    }

    pub(crate) fn add(&mut self, round: u32, reading: Result<Reading>) {
        match reading {
            Ok(reading) => self.readings.push((round, reading)),
            Err(error) => {
                self.failures += 1;
                self.failure = Some(format!("{error:#}"));
            }
        }
    }

    /// One that failed twice and never worked has no further turn.
    pub(crate) fn is_given_up(&self) -> bool {
        self.readings.is_empty() && self.failures >= 2
    }

    /// Turns that failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}
