//! Putting values back on the machine, in the network namespaces where they belong.

use super::outcome::{Change, Outcome, Restored};
use super::record::{Place, Record};
use crate::setting::{Access, Setting};
use crate::{Interface, Result};

/// What is to be done about a change.
#[derive(Debug)]
pub(super) enum Work {
    /// Its value from before is set again, if it still has the one from after. For a file of an interface, the NAPI
    /// instances in `spare` keep what they have, because they have changes of their own.
    PutBack { record: Record, spare: Vec<u32> },
    /// Nothing: it is clear already what becomes of it.
    Told(Record, Outcome),
}

impl Work {
    fn record(&self) -> &Record {
        match self {
            Self::PutBack { record, .. } | Self::Told(record, _) => record,
        }
    }
}

/// Does the work, entering each namespace once for changes in a row.
pub(super) fn put_back(work: Vec<Work>) -> Vec<(Record, Restored)> {
    let mut done = Vec::new();
    for together in work.chunk_by(|a, b| a.record().place.same(&b.record().place)) {
        let Some(first) = together.first() else { continue };
        done.extend(in_place(&first.record().place, together));
    }
    done
}

fn in_place(place: &Place, work: &[Work]) -> Vec<(Record, Restored)> {
    let inside = || {
        let interface = Interface::by_index(place.index)?;
        let access = Access::new(&interface);
        Ok(work.iter().map(|one| attempt(&access, one)).collect::<Vec<_>>())
    };
    let needed = work.iter().any(|one| matches!(one, Work::PutBack { .. }));
    let outcomes = match needed.then(|| place.namespace.run(inside)) {
        None | Some(Ok(None)) => Err(Outcome::Gone),
        Some(Ok(Some(Ok(outcomes)))) => Ok(outcomes),
        Some(Ok(Some(Err(error)))) => Err(Outcome::of(Err(error))),
        Some(Err(error)) => Err(Outcome::Failed {
            error: format!("its network namespace cannot be entered: {error}"),
        }),
    };
    let each = work.iter().enumerate().map(|(position, one)| {
        let outcome = match (one, &outcomes) {
            (Work::Told(_, outcome), _) | (_, Err(outcome)) => outcome.clone(),
            (_, Ok(outcomes)) => outcomes[position].clone(),
        };
        let record = one.record().clone();
        let change = Change::from(&record);
        (record, Restored { change, outcome })
    });
    each.collect()
}

fn attempt(access: &Access<'_>, work: &Work) -> Outcome {
    let (record, spare) = match work {
        Work::PutBack { record, spare } => (record, spare),
        Work::Told(_, outcome) => return outcome.clone(),
    };
    let now = match access.read(&record.setting) {
        Ok(Some(now)) => now,
        Ok(None) => return gone(access, &record.setting),
        Err(error) => return Outcome::of(Err(error)),
    };
    if now == record.before {
        Outcome::AsBefore
    } else if now == record.after {
        Outcome::of(write(access, record, spare))
    } else {
        Outcome::ChangedSince { now }
    }
}

/// A NAPI instance is not there while the interface is down, and most drivers give it its settings again afterwards.
fn gone(access: &Access<'_>, setting: &Setting) -> Outcome {
    let up = access.interface().state().is_ok_and(|state| state.admin_up);
    match setting {
        Setting::Napi { .. } if !up => Outcome::Failed {
            error: "the interface is down, and its NAPI instances are not there".to_owned(),
        },
        _ => Outcome::Gone,
    }
}

fn write(access: &Access<'_>, record: &Record, spare: &[u32]) -> Result<()> {
    match record.setting {
        Setting::InterfaceFile { file } => access.write_sparing(file, &record.before, &record.after, spare),
        _ => access.write(&record.setting, &record.before),
    }
}
