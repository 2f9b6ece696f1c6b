//! Can a result be believed? A machine that was taken away, or a clock that went wrong, makes figures that look like any others.
//!
//! The facts of a run are collected outside; what they mean is decided here. A reason is told with the result
//! ([`Document::validity`](crate::schema::Document::validity)), which stays as it is: it may still be of use, but nobody should
//! compare with it without knowing.
//!
//! ```
//! use ringside_measure::validity::{Facts, Reason, judge};
//!
//! let quiet = Facts { duration_ns: 5_000_000_000, ..Facts::default() };
//! assert!(judge(&quiet).valid);
//!
//! let suspended = Facts { suspended_ns: 3_000_000_000, ..quiet };
//! let validity = judge(&suspended);
//! assert!(!validity.valid);
//! assert_eq!(validity.reasons[0].reason, Reason::Suspended);
//! println!("{}", validity.reasons[0].text);
//! ```

use serde::{Deserialize, Serialize};

use crate::compare::{Round, STEAL_LIMIT};
use crate::schema::{DelayTurn, LoadKind, Outcome, SenderLateness};

/// Steps of a clock below this are those of its readings: a millisecond.
const STEP_NS: u64 = 1_000_000;

/// Ticks that have to be stolen before it counts: of a short run one tick is some percent.
const STOLEN_TICKS: u64 = 3;

/// What was seen while a result was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// How long it took, by CLOCK_MONOTONIC.
    pub duration_ns: u64,
    /// Of the CPU that lost most: its number, the share of its time that the hypervisor took, 0 to 1, and how many ticks that
    /// were. `None` where the kernel does not tell.
    pub steal: Option<Stolen>,
    /// Share of the time, 0 to 1, that the thread of the measurement which waited most was ready to
    /// run while other processes had the CPU. `None` where the kernel does not tell.
    pub cpu_wait: Option<f64>,
    /// The same of the far end's threads; `None` also without a far end.
    pub far_cpu_wait: Option<f64>,
    /// How late the sender of a schedule was; `None` without one.
    pub sender_lateness: Option<SenderLateness>,
    /// Quiet and disturbed rounds; `None` for a result without rounds.
    pub rounds: Option<Rounds>,
    /// The kernel's clock source before and after.
    pub clocksource: Option<[String; 2]>,
    /// What is wrong with the CPU's counter, where it was followed and lost.
    pub counter: Option<String>,
    /// CLOCK_BOOTTIME less CLOCK_MONOTONIC, how much more than before: time in suspend.
    pub suspended_ns: i64,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC, how much more than before, without the time in suspend: it was set.
    pub stepped_ns: i64,
    /// How wrong the two before may be.
    pub uncertainty_ns: u64,
}

/// What the hypervisor took from a CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stolen {
    /// The CPU.
    pub cpu: u32,
    /// Share of its time, 0 to 1.
    pub share: f64,
    /// That in ticks of the kernel.
    pub ticks: u64,
}

/// Rounds of an interleaved measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounds {
    /// Those in which the hypervisor took no more than [`STEAL_LIMIT`] of the CPU time.
    pub quiet: usize,
    /// All others.
    pub disturbed: usize,
    /// Variants and cells that have no quiet round: their figures are of disturbed ones.
    pub without_quiet: usize,
}

impl Rounds {
    /// Counts those of a result; `None` for one without rounds.
    #[must_use]
    pub fn of(result: &Outcome) -> Option<Self> {
        let disturbed = |rounds: &[Round]| rounds.iter().filter(|round| !round.is_quiet()).count();
        let mut all = Self::default();
        match result {
            Outcome::Compare(compare) => {
                for variant in compare.tables.iter().flat_map(|table| &table.variants) {
                    all.add(variant.rounds.len(), disturbed(&variant.rounds));
                }
            }
            Outcome::Sweep(sweep) => {
                for one in &sweep.configurations {
                    all.add(one.rounds.len(), disturbed(&one.rounds));
                }
                // Many configurations have one round. What knobs do is told from all of them.
                all.without_quiet = 0;
            }
            Outcome::Delay(delay) => {
                for cell in &delay.cells {
                    let is_disturbed = |turn: &&DelayTurn| turn.steal_percent > STEAL_LIMIT * 100.0;
                    all.add(cell.turns.len(), cell.turns.iter().filter(is_disturbed).count());
                }
            }
            Outcome::Lab(lab) => {
                for cell in &lab.cells {
                    all.add(cell.turns_measured as usize, cell.turns_disturbed as usize);
                }
            }
            Outcome::Run(_) | Outcome::Search(_) | Outcome::Trace(_) | Outcome::Steer(_) => return None,
        }
        Some(all)
    }

    /// Adds those of a variant or cell.
    fn add(&mut self, rounds: usize, disturbed: usize) {
        self.quiet += rounds - disturbed.min(rounds);
        self.disturbed += disturbed;
        self.without_quiet += usize::from(rounds > 0 && disturbed >= rounds);
    }
}

/// Returns the share of the time, 0 to 1, that a thread of the measurement waited for a CPU: of a
/// run and a search the one that waited most. Of a comparison or a sweep it is the median of the
/// turns; of delays the worst cell whose application has a CPU of its own; of
/// labs the worst cell without load. `None` where the kernel does not report it.
#[must_use]
pub fn cpu_wait(result: &Outcome) -> Option<f64> {
    match result {
        Outcome::Run(run) => run.cpu_stages.as_ref()?.longest_wait(run.duration_ns),
        Outcome::Search(search) => Some(search.cpu_wait_percent? / 100.0),
        Outcome::Compare(compare) => Some(compare.cpu_wait_percent? / 100.0),
        Outcome::Sweep(sweep) => Some(sweep.cpu_wait_percent? / 100.0),
        Outcome::Delay(delay) => {
            let own = delay.cells.iter().filter(|cell| cell.cell().has_own_cpu());
            worst(own.filter_map(|cell| cell.waiting_percent))
        }
        Outcome::Lab(lab) => {
            let idle = lab.cells.iter().filter(|cell| cell.condition == LoadKind::Idle);
            worst(idle.filter_map(|cell| cell.waiting_percent))
        }
        Outcome::Trace(_) | Outcome::Steer(_) => None,
    }
}

fn worst(percent: impl Iterator<Item = f64>) -> Option<f64> {
    Some(percent.reduce(f64::max)? / 100.0)
}

/// Returns how late the sender of a result was; `None` without a schedule.
#[must_use]
pub fn sender_lateness(result: &Outcome) -> Option<SenderLateness> {
    match result {
        Outcome::Run(run) => run.sender_lateness,
        _ => None,
    }
}

/// Why a result cannot be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The hypervisor took more of a CPU than [`STEAL_LIMIT`].
    Steal,
    /// Other processes had the CPU for more than [`STEAL_LIMIT`] of the time while one of ours was
    /// ready to run, here or at the far end.
    CpuContention,
    /// The sender was late for more than [`STEAL_LIMIT`] of the packets of its schedule.
    SenderLate,
    /// The hypervisor took more than [`STEAL_LIMIT`] of the CPU in more than half of the rounds, or in
    /// all of a variant or cell.
    RoundsDisturbed,
    /// The kernel changed its clock source.
    ClocksourceChanged,
    /// The CPU's counter and CLOCK_MONOTONIC went apart.
    CounterLost,
    /// The machine was suspended.
    Suspended,
    /// The time of day was set.
    ClockSet,
}

/// A reason in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Invalid {
    /// Which it is.
    pub reason: Reason,
    /// What happened.
    pub text: String,
}

/// Whether a result can be believed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Validity {
    /// No reason was found why not.
    pub valid: bool,
    /// The reasons.
    pub reasons: Vec<Invalid>,
    /// What the hypervisor took of the CPU that lost most, in percent of its time; `None` where the kernel does not tell.
    pub steal_percent: Option<f64>,
    /// For how long the thread that waited most was ready to run and had no CPU, in percent of the
    /// time; of rounds see [`cpu_wait`]. `None` where the kernel does not report it.
    #[serde(default)]
    pub cpu_wait_percent: Option<f64>,
    /// Time in suspend, in nanoseconds.
    pub suspended_ns: u64,
    /// How far the time of day was set, in nanoseconds; below zero: back.
    pub clock_set_ns: i64,
}

/// What the facts mean.
#[must_use]
pub fn judge(facts: &Facts) -> Validity {
    let mut reasons = Vec::new();
    let mut add = |reason, text: String| reasons.push(Invalid { reason, text });
    match (facts.rounds, facts.steal) {
        // Each round has been looked at by itself.
        (Some(rounds), _) if rounds.disturbed > rounds.quiet || rounds.without_quiet > 0 => add(
            Reason::RoundsDisturbed,
            format!(
                "in {} of {} rounds the hypervisor took more than {:.0} % of the CPU time{}",
                rounds.disturbed,
                rounds.quiet + rounds.disturbed,
                STEAL_LIMIT * 100.0,
                match rounds.without_quiet {
                    0 => String::new(),
                    some => format!("; {some} of the variants or cells have no other rounds"),
                }
            ),
        ),
        (None, Some(stolen)) if stolen.share > STEAL_LIMIT && stolen.ticks >= STOLEN_TICKS => add(
            Reason::Steal,
            format!(
                "the hypervisor took {:.1} % of the time of CPU {} (more than {:.0} %)",
                stolen.share * 100.0,
                stolen.cpu,
                STEAL_LIMIT * 100.0
            ),
        ),
        _ => {}
    }
    for (wait, at, whose) in [
        (facts.cpu_wait, "", "ours"),
        (facts.far_cpu_wait, "at the far end ", "its threads"),
    ] {
        if let Some(wait) = wait.filter(|wait| *wait > STEAL_LIMIT) {
            add(
                Reason::CpuContention,
                format!(
                    "{at}other processes had the CPU for {:.0} % of the time while one of {whose} \
                     was ready to run",
                    wait * 100.0
                ),
            );
        }
    }
    if let Some(late) = facts.sender_lateness.filter(SenderLateness::is_too_late) {
        add(
            Reason::SenderLate,
            format!(
                "the sender was late for {:.0} % of the packets (more than {:.0} %), by up to {:.2} \
                 ms",
                late.late_share() * 100.0,
                STEAL_LIMIT * 100.0,
                late.times.max_ns as f64 / 1e6
            ),
        );
    }
    if let Some([before, after]) = facts.clocksource.as_ref().filter(|[before, after]| before != after) {
        add(
            Reason::ClocksourceChanged,
            format!("the kernel changed its clock source from {before} to {after}"),
        );
    }
    let beyond = |ns: i64| ns.unsigned_abs() > facts.uncertainty_ns.saturating_add(STEP_NS);
    let (is_suspended, is_set) = (beyond(facts.suspended_ns), beyond(facts.stepped_ns));
    // A counter that goes on in suspend, or does not, is no other fault.
    if let Some(why) = facts.counter.as_ref().filter(|_| !is_suspended) {
        add(Reason::CounterLost, why.clone());
    }
    if is_suspended {
        add(
            Reason::Suspended,
            format!("the machine was suspended for {:.3} s", facts.suspended_ns as f64 / 1e9),
        );
    }
    if is_set {
        add(
            Reason::ClockSet,
            format!(
                "the time of day was set by {:+.3} s: times by other clocks than CLOCK_MONOTONIC are wrong by that",
                facts.stepped_ns as f64 / 1e9
            ),
        );
    }
    Validity {
        valid: reasons.is_empty(),
        reasons,
        steal_percent: facts.steal.map(|stolen| stolen.share * 100.0),
        cpu_wait_percent: facts.cpu_wait.map(|wait| wait * 100.0),
        suspended_ns: if is_suspended {
            u64::try_from(facts.suspended_ns).unwrap_or(0)
        } else {
            0
        },
        clock_set_ns: if is_set { facts.stepped_ns } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Facts {
        Facts {
            duration_ns: 5_000_000_000,
            steal: Some(Stolen {
                cpu: 1,
                share: 0.01,
                ticks: 5,
            }),
            clocksource: Some(["tsc".into(), "tsc".into()]),
            suspended_ns: 400,
            stepped_ns: -300,
            uncertainty_ns: 200,
            ..Facts::default()
        }
    }

    fn reasons(facts: &Facts) -> Vec<Reason> {
        let validity = judge(facts);
        assert_eq!(validity.valid, validity.reasons.is_empty());
        validity.reasons.into_iter().map(|invalid| invalid.reason).collect()
    }

    #[test]
    fn a_quiet_run_is_valid() {
        let validity = judge(&quiet());
        assert!(validity.valid);
        // What is within the readings of the clocks is none.
        assert_eq!((validity.suspended_ns, validity.clock_set_ns), (0, 0));
        assert_eq!(validity.steal_percent, Some(1.0));
        assert!(judge(&Facts::default()).valid);
    }

    #[test]
    fn steal_counts_from_the_limit_on() {
        let steal = |share, ticks, rounds| {
            reasons(&Facts {
                steal: Some(Stolen { cpu: 1, share, ticks }),
                rounds,
                ..quiet()
            })
        };
        assert_eq!(steal(0.04, 20, None), []);
        assert_eq!(steal(0.041, 20, None), [Reason::Steal]);
        // Of a run of a tenth of a second one tick is a tenth.
        assert_eq!(steal(0.1, 1, None), []);
        // Steal is looked at round by round where there are rounds.
        let with = |quiet, disturbed, without_quiet| {
            Some(Rounds {
                quiet,
                disturbed,
                without_quiet,
            })
        };
        let rounds = |quiet, disturbed| with(quiet, disturbed, 0);
        assert_eq!(steal(0.0, 0, with(15, 5, 1)), [Reason::RoundsDisturbed]);
        assert_eq!(steal(0.5, 200, rounds(10, 10)), []);
        assert_eq!(steal(0.0, 0, rounds(9, 10)), [Reason::RoundsDisturbed]);
    }

    #[test]
    fn threads_that_wait_for_a_cpu_make_a_result_invalid() {
        let waited = |share| {
            judge(&Facts {
                cpu_wait: Some(share),
                ..quiet()
            })
        };
        assert!(waited(0.04).valid);
        let validity = waited(0.375);
        assert_eq!(validity.reasons[0].reason, Reason::CpuContention);
        assert!(
            validity.reasons[0]
                .text
                .contains("other processes had the CPU for 38 % of the time"),
            "{validity:?}"
        );
        assert_eq!(validity.cpu_wait_percent, Some(37.5));
        let far = judge(&Facts {
            far_cpu_wait: Some(0.375),
            ..quiet()
        });
        assert_eq!(far.reasons[0].reason, Reason::CpuContention);
        assert!(
            far.reasons[0]
                .text
                .contains("at the far end other processes had the CPU for 38 %"),
            "{far:?}"
        );
        assert_eq!(far.cpu_wait_percent, None, "it is in the far end's record");
    }

    #[test]
    fn a_late_sender_makes_a_result_invalid() {
        let sent = |late: u64| {
            let mut lateness = crate::pace::Lateness::new(1_000);
            lateness.record(0, 4_000_000, late);
            lateness.record(0, 2_000, 100 - late);
            judge(&Facts {
                sender_lateness: lateness.result(),
                ..quiet()
            })
        };
        assert!(sent(4).valid);
        let validity = sent(5);
        assert_eq!(validity.reasons[0].reason, Reason::SenderLate);
        assert!(
            validity.reasons[0]
                .text
                .contains("late for 5 % of the packets (more than 4 %), by up to 4.00 ms"),
            "{validity:?}"
        );
    }

    #[test]
    fn clock_trouble_is_told_with_what_happened() {
        let one = |facts: Facts, reason, words: &str| {
            let validity = judge(&facts);
            assert_eq!(reasons(&facts), [reason]);
            assert!(validity.reasons[0].text.contains(words), "{validity:?}");
            validity
        };
        let changed = Facts {
            clocksource: Some(["tsc".into(), "hpet".into()]),
            ..quiet()
        };
        one(changed, Reason::ClocksourceChanged, "from tsc to hpet");
        let lost = Facts {
            counter: Some("the counter went 5 ns apart".into()),
            ..quiet()
        };
        one(lost.clone(), Reason::CounterLost, "5 ns apart");
        let suspended = Facts {
            suspended_ns: 7_500_000_000,
            ..lost
        };
        let validity = one(suspended, Reason::Suspended, "suspended for 7.500 s");
        assert_eq!(validity.suspended_ns, 7_500_000_000);
        let set = Facts {
            stepped_ns: -3_000_000_000,
            ..quiet()
        };
        assert_eq!(
            one(set, Reason::ClockSet, "set by -3.000 s").clock_set_ns,
            -3_000_000_000
        );
        // As far as the readings can be off, nothing is known.
        let unsure = Facts {
            stepped_ns: 3_000_000,
            uncertainty_ns: 2_500_000,
            ..quiet()
        };
        assert_eq!(reasons(&unsure), []);
    }

    #[test]
    fn a_run_that_ended_before_it_began_waited_for_no_more_than_its_time() {
        use crate::schema::{CpuStages, Operation, RunResult, ThreadUse};
        let mut run = RunResult::new(Operation::Tx);
        // Its thread waited before the first packet was due.
        run.duration_ns = 1_000_000;
        run.cpu_stages = Some(CpuStages {
            packets: 0,
            user_ns: 0,
            system_ns: 0,
            softirq_ns: 0,
            steal_ns: 0,
            tick_ns: 10_000_000,
            per_packet: None,
            threads: vec![ThreadUse {
                name: "worker 0".into(),
                is_kernel: false,
                run_ns: Some(2_640_000),
                wait_ns: Some(7_360_000),
                elapsed_ns: Some(10_000_000),
                user_ns: 0,
                system_ns: 0,
            }],
            counters: None,
            no_counters: None,
        });
        assert_eq!(cpu_wait(&Outcome::Run(Box::new(run))), Some(0.736));
    }

    #[test]
    fn results_of_rounds_have_their_waits_for_a_cpu() {
        use crate::delay::{Core, Wait};
        use crate::schema::DelayCell;
        use crate::schema::example::{delays, sweep};
        use crate::schema::tests::{comparison, lab};
        let mut swept = sweep();
        swept.cpu_wait_percent = Some(55.0);
        assert_eq!(cpu_wait(&Outcome::Sweep(Box::new(swept))), Some(0.55));
        let mut compared = comparison();
        compared.cpu_wait_percent = Some(55.0);
        assert_eq!(cpu_wait(&Outcome::Compare(compared)), Some(0.55));
        // A cell that sleeps, or shares its CPU with NAPI, waits for it also on a quiet machine.
        let mut delayed = delays();
        let mut cell = delayed.cells[0].clone();
        cell.waiting_percent = Some(90.0);
        delayed.cells = [(Core::Same, Wait::Spin), (Core::Other, Wait::Poll)]
            .map(|(core, wait)| DelayCell {
                core,
                wait,
                ..cell.clone()
            })
            .to_vec();
        assert_eq!(cpu_wait(&Outcome::Delay(delayed.clone())), None);
        for waited in [5.0, 10.0] {
            delayed.cells.push(DelayCell {
                core: Core::Other,
                wait: Wait::Spin,
                waiting_percent: Some(waited),
                ..cell.clone()
            });
        }
        assert_eq!(cpu_wait(&Outcome::Delay(delayed)), Some(0.1));
        let mut studied = lab();
        let mut cell = studied.cells.remove(0);
        studied.cells.clear();
        for (condition, waited) in [(LoadKind::Idle, 8.0), (LoadKind::Foreign, 70.0)] {
            (cell.condition, cell.waiting_percent) = (condition, Some(waited));
            studied.cells.push(cell.clone());
        }
        assert_eq!(cpu_wait(&Outcome::Lab(Box::new(studied))), Some(0.08));
    }

    #[test]
    fn disturbed_rounds_are_counted() {
        use crate::schema::example::{delays, example, sweep};
        assert_eq!(Rounds::of(&example().result), None);
        let mut swept = sweep();
        swept.configurations[0].rounds[3].steal = 0.5;
        let counted = Rounds::of(&Outcome::Sweep(Box::new(swept)));
        let counted = counted.map(|rounds| (rounds.quiet, rounds.disturbed, rounds.without_quiet));
        assert_eq!(counted, Some((15, 1, 0)));
        let mut delayed = delays();
        let cell = &mut delayed.cells[0];
        cell.turns.iter_mut().for_each(|turn| turn.steal_percent = 20.0);
        let disturbed = cell.turns.len();
        let counted = Rounds::of(&Outcome::Delay(delayed)).expect("turns");
        assert_eq!((counted.disturbed, counted.without_quiet), (disturbed, 1));
        assert!(Rounds::of(&Outcome::Delay(delays())).is_some());
    }
}
