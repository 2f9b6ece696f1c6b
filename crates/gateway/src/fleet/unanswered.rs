//! How long a question to etcd has been without an answer, by time in which this program could have
//! heard one.

use std::time::{Duration, Instant};

/// Between two looks while a question is under way.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// What is counted between two looks at the most. A program that was stopped, or had no CPU, has
/// heard nothing meanwhile whether etcd answered or not.
const MAX_STEP: Duration = LOOK.saturating_mul(2);

/// See the module.
#[derive(Debug)]
pub(crate) struct Unanswered {
    looked: Instant,
    waited: Duration,
}

impl Unanswered {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            looked: now,
            waited: Duration::ZERO,
        }
    }

    /// Returns for how long an answer has been waited for, to be called after each answer and every
    /// [`LOOK`].
    pub(crate) fn look(&mut self, now: Instant, is_waiting: bool) -> Duration {
        let step = now.saturating_duration_since(self.looked).min(MAX_STEP);
        self.looked = now;
        self.waited = if is_waiting { self.waited + step } else { Duration::ZERO };
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_program_does_not_take_etcd_for_silent() {
        let begin = Instant::now();
        let mut unanswered = Unanswered::new(begin);
        assert_eq!(unanswered.look(begin + LOOK, false), Duration::ZERO);
        for looks in 2..12 {
            assert_eq!(unanswered.look(begin + looks * LOOK, true), (looks - 1) * LOOK);
        }
        // An hour without a CPU.
        let later = begin + Duration::from_secs(3600);
        assert_eq!(unanswered.look(later, true), 10 * LOOK + MAX_STEP);
        // The answer was there all the time.
        assert_eq!(unanswered.look(later, false), Duration::ZERO);
        assert_eq!(unanswered.look(later + LOOK, true), LOOK);
    }
}
