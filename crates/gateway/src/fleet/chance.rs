//! Numbers and times by chance, so that what happened to all is not asked about by all at once; the same for the same seed.

use std::time::Duration;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64's finalizer: a number without any order of a number that has some.
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let mut mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// splitmix64.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// What follows from this number.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of all of 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// A number below this one; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let wide = u128::from(self.draw()) * end as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// In [0, 1).
    #[allow(clippy::cast_precision_loss, reason = "53 bits")]
    pub fn part(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A time below this one.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(self.draw() % nanos)
    }
}
