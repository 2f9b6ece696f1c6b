//! Trials that lost packets because other processes had the CPU.

use std::time::Instant;

use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::search::Outcome;
use ringside_nic::host::process_wait_ns;

/// How often the same trial is repeated.
const MAX_IN_A_ROW: u32 = 3;

/// Decides which trials are repeated: their loss says something about this machine, and nothing about
/// the path.
pub(super) struct Repeats {
    /// The processes whose threads send, receive and answer.
    processes: Vec<u32>,
    begun: Instant,
    waited_ns: u64,
    is_disturbed: bool,
    in_a_row: u32,
    count: u64,
}

impl Repeats {
    /// Watches this process, and the one that answers if it is on this host.
    pub(super) fn watch(echo: Option<u32>) -> Self {
        Self {
            processes: std::iter::once(std::process::id()).chain(echo).collect(),
            begun: Instant::now(),
            waited_ns: 0,
            is_disturbed: false,
            in_a_row: 0,
            count: 0,
        }
    }

    /// Starts to count.
    pub(super) fn begin(&mut self) {
        (self.in_a_row, self.count) = (0, 0);
    }

    /// Returns how many trials were repeated.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn trial_begins(&mut self) {
        (self.begun, self.waited_ns) = (Instant::now(), self.waited());
    }

    pub(super) fn trial_ends(&mut self) {
        let waited_ns = self.waited().saturating_sub(self.waited_ns);
        let share = waited_ns as f64 / self.begun.elapsed().as_nanos().max(1) as f64;
        self.is_disturbed = share > STEAL_LIMIT;
    }

    /// Returns whether the last trial is to be repeated. One that lost nothing is not: it was hard
    /// enough.
    pub(super) fn wants(&mut self, outcome: &Outcome) -> bool {
        let repeats = self.is_disturbed && outcome.lost() != 0 && self.in_a_row < MAX_IN_A_ROW;
        self.in_a_row = if repeats { self.in_a_row + 1 } else { 0 };
        self.count += u64::from(repeats);
        repeats
    }

    fn waited(&self) -> u64 {
        self.processes.iter().filter_map(|&pid| process_wait_ns(pid)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disturbed_trials_with_loss_are_repeated_and_not_for_ever() {
        let mut repeats = Repeats::watch(None);
        let outcome = |received| Outcome {
            intended: 100,
            sent: 100,
            received,
        };
        assert!(!repeats.wants(&outcome(90)), "undisturbed");
        repeats.is_disturbed = true;
        assert!(!repeats.wants(&outcome(100)), "nothing was lost");
        for _ in 0..2 {
            let wanted: Vec<bool> = (0..4).map(|_| repeats.wants(&outcome(90))).collect();
            assert_eq!(wanted, [true, true, true, false]);
        }
        assert_eq!(repeats.count(), 6);
        repeats.begin();
        assert_eq!(repeats.count(), 0);
    }

    #[test]
    fn a_trial_beside_busy_threads_is_disturbed() {
        let cpus = std::thread::available_parallelism().expect("a number").get();
        let mut repeats = Repeats::watch(None);
        let spin = || {
            let begun = Instant::now();
            while begun.elapsed().as_millis() < 300 {
                std::hint::spin_loop();
            }
        };
        repeats.trial_begins();
        // More than the CPUs take, whose waits are this process's.
        std::thread::scope(|scope| {
            for _ in 0..3 * cpus {
                scope.spawn(spin);
            }
            spin();
            repeats.trial_ends();
        });
        assert!(repeats.is_disturbed);
    }
}
