//! Trials that lost packets because other processes had the CPU.

use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::search::Outcome;

use crate::cpu_wait::CpuWait;

/// How often the same trial is repeated.
const MAX_IN_A_ROW: u32 = 3;

/// Decides which trials are repeated: their loss says something about this machine, and nothing about
/// the path.
pub(super) struct Repeats {
    /// The processes whose threads send, receive and answer.
    processes: Vec<u32>,
    /// The waits of the processes since the trial began.
    since: CpuWait,
    is_disturbed: bool,
    /// Repeating does not help: other processes have the CPU all the time.
    is_hopeless: bool,
    in_a_row: u32,
    count: u64,
}

impl Repeats {
    /// Watches this process, and the one that answers if it is on this host.
    pub(super) fn watch(echo: Option<u32>) -> Self {
        let processes: Vec<u32> = std::iter::once(std::process::id()).chain(echo).collect();
        Self {
            since: CpuWait::of(processes.iter().copied()),
            processes,
            is_disturbed: false,
            is_hopeless: false,
            in_a_row: 0,
            count: 0,
        }
    }

    /// Returns the waits of the processes from now on.
    pub(super) fn cpu_wait(&self) -> CpuWait {
        CpuWait::of(self.processes.iter().copied())
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
        self.since = self.cpu_wait();
    }

    pub(super) fn trial_ends(&mut self) {
        self.is_disturbed = self.since.share() > Some(STEAL_LIMIT);
    }

    /// Returns whether the last trial is to be repeated: a thread waited for a CPU, and more than
    /// `loss_ratio` of the packets was lost. A trial that passes is not: it was hard enough.
    pub(super) fn wants(&mut self, outcome: &Outcome, loss_ratio: f64) -> bool {
        let is_bad = self.is_disturbed && outcome.loss_ratio() > loss_ratio;
        self.is_hopeless |= is_bad && self.in_a_row == MAX_IN_A_ROW;
        let repeats = is_bad && !self.is_hopeless;
        self.in_a_row = if repeats { self.in_a_row + 1 } else { 0 };
        self.count += u64::from(repeats);
        repeats
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_disturbed_trials_with_too_much_loss_are_repeated_and_not_for_ever() {
        let mut repeats = Repeats::watch(None);
        let outcome = |received| Outcome {
            intended: 100,
            sent: 100,
            received,
        };
        assert!(!repeats.wants(&outcome(90), 0.0), "undisturbed");
        repeats.is_disturbed = true;
        assert!(!repeats.wants(&outcome(100), 0.0), "nothing was lost");
        assert!(!repeats.wants(&outcome(98), 0.02), "it passes its goal");
        let wanted: Vec<bool> = (0..6).map(|_| repeats.wants(&outcome(90), 0.02)).collect();
        assert_eq!(wanted, [true, true, true, false, false, false], "it does not help");
        assert_eq!(repeats.count(), 3);
        repeats.begin();
        assert_eq!(repeats.count(), 0);
    }

    /// A process of one thread, which spins or sleeps until this is dropped.
    struct Other(Child);

    impl Other {
        fn start(line: &str) -> Self {
            let mut command = Command::new("sh");
            Self(command.args(["-c", line]).spawn().expect("a shell"))
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    #[test]
    fn a_trial_is_disturbed_when_a_thread_waits_for_a_cpu() {
        let cpus = std::thread::available_parallelism().expect("a number").get();
        // More than the CPUs take, each of which waits for most of the time.
        let spinning: Vec<Other> = (0..3 * cpus).map(|_| Other::start("while :; do :; done")).collect();
        let sleeping = Other::start("exec sleep 60");
        let is_disturbed = |other: &Other| {
            let mut repeats = Repeats {
                processes: vec![other.0.id()],
                ..Repeats::watch(None)
            };
            repeats.trial_begins();
            std::thread::sleep(Duration::from_millis(500));
            repeats.trial_ends();
            repeats.is_disturbed
        };
        assert!(is_disturbed(&spinning[0]));
        assert!(!is_disturbed(&sleeping));
    }
}
