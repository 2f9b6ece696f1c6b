//! How much before a deadline to ask to be woken.

/// What waking up is taken to last before it is known.
const FIRST_GUESS_NS: u64 = 50_000;
/// From being woken to being ready, beyond what the clock shows.
const SLACK_NS: u64 = 2_000;

/// Learns how long waking up takes, so that a thread asks for it that much earlier and spins for
/// the rest.
///
/// ```
/// use ringside_measure::cycle::WakeEarly;
///
/// let mut early = WakeEarly::new(1_000_000);
/// for _ in 0..100 {
///     early.woke(60_000); // each time 60 µs late
/// }
/// assert!((60_000..70_000).contains(&early.early_ns()));
/// ```
#[derive(Debug, Clone)]
pub struct WakeEarly {
    early_ns: u64,
    max_ns: u64,
}

impl WakeEarly {
    /// Asks at most `max_ns` early: for the time between two deadlines.
    #[must_use]
    pub fn new(max_ns: u64) -> Self {
        Self {
            early_ns: FIRST_GUESS_NS.min(max_ns),
            max_ns,
        }
    }

    /// Returns how much before the deadline to ask to be woken, in nanoseconds.
    #[must_use]
    pub fn early_ns(&self) -> u64 {
        self.early_ns
    }

    /// Learns from a wake-up that took so long after the time asked for: more counts sooner than
    /// less, but single ones that took very long count little, for on a busy machine they are no
    /// rule.
    pub fn woke(&mut self, took_ns: u64) {
        let wanted = took_ns.saturating_add(SLACK_NS);
        if wanted > self.early_ns {
            let most = self.early_ns / 8 + SLACK_NS;
            self.early_ns += (wanted - self.early_ns).div_ceil(2).min(most);
        } else {
            self.early_ns -= (self.early_ns - wanted) / 64;
        }
        self.early_ns = self.early_ns.min(self.max_ns);
    }

    /// Notes that the time to be woken was over before the thread could sleep. Where that goes on
    /// nothing would be learned: so it asks a little later each time, until there is time to sleep.
    pub fn too_late_to_sleep(&mut self) {
        self.early_ns -= self.early_ns.div_ceil(4096);
    }
}
