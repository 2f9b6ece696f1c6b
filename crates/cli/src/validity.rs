//! Watches the machine and its clocks while something is measured: what was taken away, and which clock went wrong.
//!
//! From the start of the program to the result: what it took before the first packet is little, and a machine that was
//! suspended meanwhile is none to measure on either.

use std::sync::{Mutex, PoisonError};

use ringside_measure::schema::{Document, Outcome};
use ringside_measure::validity::{Facts, Rounds, Stolen, Validity, judge};
use ringside_nic::clock::{Boottime, FastClock, Monotonic, Offset, Realtime, Timestamp};
use ringside_nic::host::{CpuTimes, clocksource};

/// Where everything stood at the beginning.
struct Mark {
    at: Timestamp<Monotonic>,
    times: Option<CpuTimes>,
    clocksource: Option<String>,
    boottime: Offset<Monotonic, Boottime>,
    realtime: Offset<Monotonic, Realtime>,
    /// Compared with the kernel's clock at the end once more: it must have gone as fast.
    counter: FastClock,
}

static MARK: Mutex<Option<Mark>> = Mutex::new(None);

/// Why a clock that measured ended up without the counter.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// From now on. Takes two milliseconds.
pub(crate) fn begin() {
    let mark = Mark {
        at: Timestamp::now(),
        times: CpuTimes::read().ok(),
        clocksource: clocksource(),
        boottime: Offset::measure(),
        realtime: Offset::measure(),
        counter: FastClock::new(),
    };
    *MARK.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
}

/// A clock of a measuring thread has lost the counter that it read.
pub(crate) fn counter_lost(reason: &str) {
    *LOST.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
}

/// Until now: whether the result can be believed. `None` where nothing was begun.
pub(crate) fn end(result: &Outcome) -> Option<Validity> {
    let mut mark = MARK.lock().unwrap_or_else(PoisonError::into_inner);
    let facts = mark.as_mut()?.facts(Rounds::of(result));
    Some(judge(&facts))
}

impl Mark {
    fn facts(&mut self, rounds: Option<Rounds>) -> Facts {
        let (boottime, realtime) = (
            Offset::<Monotonic, Boottime>::measure(),
            Offset::<Monotonic, Realtime>::measure(),
        );
        let suspended_ns = boottime.delta_ns().saturating_sub(self.boottime.delta_ns());
        let stepped_ns = realtime.delta_ns().saturating_sub(self.realtime.delta_ns());
        let readings = [boottime.uncertainty_ns(), self.boottime.uncertainty_ns()]
            .into_iter()
            .chain([realtime.uncertainty_ns(), self.realtime.uncertainty_ns()]);
        let now = Timestamp::<Monotonic>::now();
        Facts {
            duration_ns: now.as_nanos().saturating_sub(self.at.as_nanos()),
            steal: self.steal(),
            rounds,
            clocksource: self
                .clocksource
                .clone()
                .zip(clocksource())
                .map(|(before, after)| [before, after]),
            counter: self.counter(),
            suspended_ns,
            // The time of day goes on in suspend.
            stepped_ns: stepped_ns.saturating_sub(suspended_ns),
            uncertainty_ns: readings.sum(),
        }
    }

    /// The CPU that lost most.
    fn steal(&self) -> Option<Stolen> {
        let passed = CpuTimes::read().ok()?.since(self.times.as_ref()?);
        let stolen = passed.cpus.iter().filter_map(|(cpu, time)| {
            Some(Stolen {
                cpu: *cpu,
                share: time.fraction(time.steal)?,
                ticks: time.steal,
            })
        });
        stolen.max_by(|a, b| a.share.total_cmp(&b.share))
    }

    fn counter(&mut self) -> Option<String> {
        let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lost.or_else(|| {
            // Compares, for it has not been read for long.
            self.counter.now();
            self.counter.lost().map(str::to_owned)
        })
    }
}

/// The reasons why a result cannot be believed, as a sentence; `None` if there is none.
pub(crate) fn trouble(document: &Document) -> Option<String> {
    let validity = document.validity.as_ref().filter(|validity| !validity.valid)?;
    let reasons: Vec<&str> = validity.reasons.iter().map(|invalid| invalid.text.as_str()).collect();
    Some(reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_this_machine_is_no_trouble() {
        begin();
        let mut mark = MARK.lock().unwrap();
        let facts = mark.as_mut().unwrap().facts(None);
        assert!(facts.duration_ns > 0 && facts.counter.is_none(), "{facts:?}");
        assert_eq!(facts.clocksource.map(|[before, after]| before == after), Some(true));
        assert!(facts.suspended_ns.unsigned_abs() < 1_000_000 + facts.uncertainty_ns);
    }
}
