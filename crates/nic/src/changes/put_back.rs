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
    let of_host = |one: &Work| one.record().setting.of_host().is_some();
    for together in work.chunk_by(|a, b| a.record().place.same(&b.record().place) && of_host(a) == of_host(b)) {
        let Some(first) = together.first() else { continue };
        if of_host(first) {
            done.extend(together.iter().map(on_host));
        } else {
            done.extend(in_place(&first.record().place, together));
        }
    }
    done
}

/// A setting of the host needs no namespace, nor the interface that it was changed for.
fn on_host(work: &Work) -> (Record, Restored) {
    let record = work.record();
    let outcome = match (work, record.setting.of_host()) {
        (Work::PutBack { .. }, Some(knob)) => {
            restore(record, knob.read_host().map(Some), |value| knob.write_host(value))
        }
        (Work::Told(_, outcome), _) => outcome.clone(),
        (Work::PutBack { .. }, None) => Outcome::Gone,
    };
    told(record, outcome)
}

fn told(record: &Record, outcome: Outcome) -> (Record, Restored) {
    let change = Change::from(record);
    (record.clone(), Restored { change, outcome })
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
        told(one.record(), outcome)
    });
    each.collect()
}

fn attempt(access: &Access<'_>, work: &Work) -> Outcome {
    let (record, spare) = match work {
        Work::PutBack { record, spare } => (record, spare),
        Work::Told(_, outcome) => return outcome.clone(),
    };
    match access.read(&record.setting) {
        Ok(None) => gone(access, &record.setting),
        now => restore(record, now, |_| write(access, record, spare)),
    }
}

/// Compares with what is there now, and has the value from before written if it is ours.
fn restore(record: &Record, now: Result<Option<String>>, write: impl FnOnce(&str) -> Result<()>) -> Outcome {
    let now = match now {
        Ok(Some(now)) => now,
        Ok(None) => return Outcome::Gone,
        // A queue, an interrupt, a CPU that is no longer there.
        Err(error) if matches!(record.setting, Setting::Knob { .. }) && error.errno() == Some(libc::ENOENT) => {
            return Outcome::Gone;
        }
        Err(error) => return Outcome::of(Err(error)),
    };
    if now == record.before {
        Outcome::AsBefore
    } else if record.setting.is_set(&now, &record.after) {
        Outcome::of(write(&record.before))
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
