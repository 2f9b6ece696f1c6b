//! The longest burst that is taken whole.

use super::{Binary, BinaryResult, Outcome, Range, Search, Trial};
use crate::Error;

/// RFC 2544, section 26.4, as RFC 9004 has it: the longest burst of packets, one right behind the other, of which none is lost.
/// It is searched several times over, because it varies; what that says of the buffer is in [`BackToBackResult`].
/// <https://datatracker.ietf.org/doc/html/rfc9004>
///
/// A trial is a burst: [`Trial::packets`] packets at the highest rate.
#[derive(Debug)]
pub struct BackToBack {
    rate_pps: u64,
    lengths: Range,
    verify: u32,
    left: u32,
    search: Binary,
    found: Vec<BinaryResult>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackToBackResult {
    /// Searches that came to an end.
    pub searches: usize,
    /// Mean, least and greatest length of the longest burst without loss, in packets.
    pub mean_packets: f64,
    /// The least.
    pub min_packets: u64,
    /// The greatest.
    pub max_packets: u64,
    /// Searches in which even the longest burst of all was taken: the buffer is not what limits.
    pub unlimited: usize,
    /// The time in which such a burst comes in (RFC 9004, "implied DUT buffer time"), in ns.
    pub implied_buffer_ns: f64,
}

impl BackToBackResult {
    /// The buffer's time, corrected for what is forwarded while the burst comes in (RFC 9004, section 6.4), in ns, of a device with
    /// this throughput.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio of rates")]
    pub fn corrected_buffer_ns(&self, rate_pps: u64, throughput_pps: f64) -> f64 {
        self.implied_buffer_ns * (1.0 - (throughput_pps / rate_pps as f64).min(1.0))
    }
}

impl BackToBack {
    /// Bursts of up to `longest` packets at `rate_pps`, searched `searches` times (RFC 2544 wants 50). A burst with a loss is
    /// repeated up to `verify` times.
    ///
    /// # Errors
    ///
    /// [`Error::Search`] if the rate, the length or the number of searches is too small.
    pub fn new(rate_pps: u64, longest: u64, searches: u32, verify: u32) -> Result<Self, Error> {
        if rate_pps == 0 || longest < 2 || searches == 0 {
            return Err(Error::Search(format!(
                "bursts of up to {longest} packets at {rate_pps} packets/s, {searches} times: the rate and the number have to be at least \
                 1, the length at least 2"
            )));
        }
        let lengths = Range::new(1, longest)?;
        Ok(Self {
            rate_pps,
            lengths,
            verify,
            left: searches,
            search: of(lengths, verify)?,
            found: Vec::new(),
        })
    }

    /// What was found; `None` before the first search is over.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "lengths of bursts")]
    pub fn result(&self) -> Option<BackToBackResult> {
        let lengths = || self.found.iter().map(|found| found.throughput_pps.unwrap_or(0));
        let mean_packets = lengths().sum::<u64>() as f64 / self.found.len() as f64;
        Some(BackToBackResult {
            searches: self.found.len(),
            mean_packets,
            min_packets: lengths().min()?,
            max_packets: lengths().max()?,
            unlimited: self.found.iter().filter(|found| found.failed_pps.is_none()).count(),
            implied_buffer_ns: mean_packets * 1e9 / self.rate_pps as f64,
        })
    }
}

/// Lengths are to the search what rates are: its trials are of one second.
fn of(lengths: Range, verify: u32) -> Result<Binary, Error> {
    // As exact as one packet in a thousand.
    Binary::new(lengths, 0.0, 0.001, verify, 1_000_000_000)
}

impl Search for BackToBack {
    fn wanted(&self) -> Option<Trial> {
        let burst = self.search.wanted()?;
        let packets = u128::from(burst.packets());
        // Rounded up, so that the trial is of as many packets.
        let duration = (packets * 1_000_000_000).div_ceil(u128::from(self.rate_pps));
        Some(Trial {
            load_pps: self.rate_pps,
            duration_ns: u64::try_from(duration).unwrap_or(u64::MAX),
        })
    }

    fn record(&mut self, outcome: Outcome) {
        if self.search.wanted().is_none() {
            return;
        }
        self.search.record(outcome);
        if self.search.wanted().is_some() {
            return;
        }
        self.found.push(self.search.result());
        self.left -= 1;
        if self.left > 0 {
            // The same as before, so it is one.
            if let Ok(search) = of(self.lengths, self.verify) {
                self.search = search;
            }
        }
    }
}
