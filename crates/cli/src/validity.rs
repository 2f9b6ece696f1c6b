//! Watches the machine and its clocks while something is measured: what was taken away, and which clock went wrong.
//!
//! From the start of the program to the result: what it took before the first packet is little, and a machine that was
//! suspended meanwhile is none to measure on either.

use std::sync::{Mutex, PoisonError};

use ringside_measure::schema::{Document, FarEnd, Outcome};
use ringside_measure::validity::{Facts, Rounds, Stolen, Validity, cpu_wait, judge, sender_lateness};
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
    *MARK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Mark::now());
}

/// A clock of a measuring thread has lost the counter that it read.
pub(crate) fn counter_lost(reason: &str) {
    *LOST.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
}

/// Until now: whether the result can be believed. `None` where nothing was begun.
pub(crate) fn end(result: &Outcome, far: Option<&FarEnd>) -> Option<Validity> {
    let mut mark = MARK.lock().unwrap_or_else(PoisonError::into_inner);
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let facts = mark.as_mut()?.facts(Rounds::of(result), lost);
    Some(judge(&Facts {
        cpu_wait: cpu_wait(result),
        far_cpu_wait: far.and_then(|far| far.cpu_wait_percent).map(|percent| percent / 100.0),
        sender_lateness: sender_lateness(result),
        ..facts
    }))
}

impl Mark {
    fn now() -> Self {
        Self {
            at: Timestamp::now(),
            times: CpuTimes::read().ok(),
            clocksource: clocksource(),
            boottime: Offset::measure(),
            realtime: Offset::measure(),
            counter: FastClock::new(),
        }
    }

    /// Returns what happened since. `lost` is why a measuring thread lost the counter that it read.
    fn facts(&mut self, rounds: Option<Rounds>, lost: Option<String>) -> Facts {
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
            cpu_wait: None,
            far_cpu_wait: None,
            sender_lateness: None,
            rounds,
            clocksource: self
                .clocksource
                .clone()
                .zip(clocksource())
                .map(|(before, after)| [before, after]),
            counter: lost.or_else(|| self.counter()),
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

    /// Why this mark's own counter cannot be believed, compared with the kernel's clock, for it has not been read for long.
    fn counter(&mut self) -> Option<String> {
        self.counter.now();
        self.counter.lost().map(str::to_owned)
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
    fn facts_are_of_the_time_since_the_mark() {
        let begin = std::time::Instant::now();
        let mut mark = Mark::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let facts = mark.facts(None, None);
        let elapsed = begin.elapsed().as_nanos();
        assert!(
            (2_000_000..=elapsed).contains(&u128::from(facts.duration_ns)),
            "{facts:?} in {elapsed} ns"
        );
        assert_eq!(facts.rounds, None);
        assert_eq!(facts.clocksource.map(|[before, _]| before), clocksource());
    }

    #[test]
    fn a_counter_that_was_lost_is_named_whatever_becomes_of_the_others() {
        let lost = "the counter went backwards".to_owned();
        let facts = Mark::now().facts(None, Some(lost.clone()));
        assert_eq!(facts.counter, Some(lost));
    }
}
