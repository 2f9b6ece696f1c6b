//! How long a packet takes.

use std::f64::consts::TAU;
use std::time::Duration;

use super::Settings;
use crate::Error;
use crate::random::SplitMix64;

/// How the delay varies around its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// Evenly, from the delay less the jitter to the delay and the jitter.
    #[default]
    Uniform,
    /// By a normal distribution with the jitter as its standard deviation, but never below 0.
    Normal,
}

/// Draws delays.
#[derive(Debug)]
pub(super) struct Delay {
    mean_ns: u64,
    jitter_ns: u64,
    spread: Spread,
    overtaking: bool,
    /// When the last packet is due.
    last_ns: u64,
    random: SplitMix64,
}

impl Delay {
    pub(super) fn new(settings: &Settings, seed: u64) -> Result<Self, Error> {
        let Settings {
            delay_ns,
            jitter_ns,
            spread,
            overtaking,
            ..
        } = *settings;
        if spread == Spread::Uniform && jitter_ns > delay_ns {
            return Err(Error::Impairment(format!(
                "a delay of {:?} with a jitter of {:?} would be below zero; give a longer delay or less \
                 jitter",
                Duration::from_nanos(delay_ns),
                Duration::from_nanos(jitter_ns)
            )));
        }
        Ok(Self {
            mean_ns: delay_ns,
            jitter_ns,
            spread,
            overtaking,
            last_ns: 0,
            random: SplitMix64(seed),
        })
    }

    /// The next packet's delay.
    pub(super) fn next_ns(&mut self) -> u64 {
        if self.jitter_ns == 0 {
            return self.mean_ns;
        }
        match self.spread {
            Spread::Uniform => {
                let width = self.jitter_ns.saturating_mul(2).saturating_add(1);
                (self.mean_ns - self.jitter_ns).saturating_add(self.random.below(width))
            }
            Spread::Normal => {
                let (first, second) = (self.uniform(), self.uniform());
                // Box and Muller (1958); 1 less, for the logarithm of 0 is none.
                let normal = (-2.0 * (1.0 - first).ln()).sqrt() * (TAU * second).cos();
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "delays of far less than 2^53 ns; what is below 0 becomes 0"
                )]
                {
                    normal.mul_add(self.jitter_ns as f64, self.mean_ns as f64).round() as u64
                }
            }
        }
    }

    /// When a packet is due that sets out at `from_ns`.
    pub(super) fn due_ns(&mut self, from_ns: u64, delay_ns: u64) -> u64 {
        let due = from_ns.saturating_add(delay_ns);
        if self.overtaking {
            return due;
        }
        self.last_ns = self.last_ns.max(due);
        self.last_ns
    }

    /// From 0 to below 1.
    #[allow(clippy::cast_precision_loss, reason = "below 2^53")]
    fn uniform(&mut self) -> f64 {
        const ONE: u64 = 1 << 53;
        self.random.below(ONE) as f64 / ONE as f64
    }
}
