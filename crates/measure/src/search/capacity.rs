//! The capacity of a path of which nothing is known: the sender goes by what the receiver tells twenty times a second
//! (RFC 9097, section 8 and appendix A).
//!
//! ```text
//!   rate ▲        ╭╮ ╭─╮╭      up by ten rows of the table while all goes well,
//!        │      ╭─╯╰─╯ ╰╯      by one after the first congestion;
//!        │   ╭──╯              down by one for loss or waiting queues, by thirty when that goes on
//!        │╭──╯
//!        └──────────────▶ time          what counts is the best whole second, as it came in
//! ```

/// Loss, reordering and duplication together that a report may show before they count.
const MOST_ERRORS: u64 = 10;
/// Delay variation below which there is room, and above which there is none.
const LOW_NS: u64 = 30_000_000;
const HIGH_NS: u64 = 90_000_000;
/// Reports of congestion one after the other that make for a large step down.
const SLOW: u32 = 3;
/// Rows of a large step.
const LEAP: usize = 10;
/// The row of 1 Gbit/s: above it steps are of one row.
const HIGH_SPEED: usize = 1000;
/// The last row: 100 Gbit/s.
const LAST: usize = HIGH_SPEED + 90 + 90;

/// How often the receiver reports.
pub const FEEDBACK_NS: u64 = 50_000_000;
/// Length of the pieces of which the best is the capacity.
pub const PIECE_NS: u64 = 1_000_000_000;

/// Bits per second of a row: 0.5 Mbit/s, then 1 Mbit/s to 1 Gbit/s in steps of 1, to 10 Gbit/s in steps of 100 Mbit/s, to
/// 100 Gbit/s in steps of 1 Gbit/s.
fn rate_of(row: usize) -> u64 {
    let row = row as u64;
    match row {
        0 => 500_000,
        1..=1000 => row * 1_000_000,
        1001..=1090 => 1_000_000_000 + (row - 1000) * 100_000_000,
        _ => 10_000_000_000 + (row - 1090) * 1_000_000_000,
    }
}

/// What the receiver saw since its last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Packets that were lost, came twice, or out of order.
    pub errors: u64,
    /// The greatest delay over the least that was ever seen.
    pub delay_variation_ns: u64,
}

/// Which rate to send at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjuster {
    row: usize,
    most: usize,
    congested: u32,
}

impl Adjuster {
    /// Begins with the lowest rate; `most_bps` is never exceeded.
    #[must_use]
    pub fn new(most_bps: u64) -> Self {
        let most = (0..=LAST).rev().find(|&row| rate_of(row) <= most_bps).unwrap_or(0);
        Self {
            row: 0,
            most,
            congested: 0,
        }
    }

    /// The rate, in bits of IP packets per second.
    #[must_use]
    pub fn rate_bps(&self) -> u64 {
        rate_of(self.row)
    }

    /// Takes a report.
    pub fn report(&mut self, seen: Seen) {
        let is_slow = self.row < HIGH_SPEED;
        if seen.errors <= MOST_ERRORS && seen.delay_variation_ns < LOW_NS {
            if is_slow && self.congested < SLOW {
                self.row = (self.row + LEAP).min(self.most);
                self.congested = 0;
            } else {
                self.row = (self.row + 1).min(self.most);
            }
        } else if seen.errors > MOST_ERRORS || seen.delay_variation_ns > HIGH_NS {
            self.congested = self.congested.saturating_add(1);
            let down = if is_slow && self.congested == SLOW { LEAP * 3 } else { 1 };
            self.row = self.row.saturating_sub(down);
        }
    }
}

/// Bits that came, piece by piece.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pieces {
    begun: Option<(u64, u64)>,
    rates_bps: Vec<f64>,
}

impl Pieces {
    /// So many bytes of IP packets had come at this time, by the receiver's clock.
    pub fn add(&mut self, at_ns: u64, ip_bytes: u64) {
        let Some((begun_ns, before)) = self.begun else {
            self.begun = Some((at_ns, ip_bytes));
            return;
        };
        let passed = at_ns.saturating_sub(begun_ns);
        if passed >= PIECE_NS {
            self.rates_bps
                .push(ip_bytes.saturating_sub(before) as f64 * 8e9 / passed as f64);
            self.begun = Some((at_ns, ip_bytes));
        }
    }

    /// Bits per second of each.
    #[must_use]
    pub fn rates_bps(&self) -> &[f64] {
        &self.rates_bps
    }

    /// That of the best, which is the path's capacity as far as it was seen; `None` before the first has ended.
    #[must_use]
    pub fn most_bps(&self) -> Option<f64> {
        self.rates_bps.iter().copied().reduce(f64::max)
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a simulation in floating point, far below 2^53"
)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// A link with a rate and a queue, seen report by report.
    struct Link {
        bps: f64,
        queue_bytes: f64,
        waiting: f64,
        loses_one_in: Option<u64>,
    }

    const PACKET: f64 = 1250.0;

    impl Link {
        /// Sends at a rate for the time of a report; the bytes that came, and what the receiver saw.
        fn pass(&mut self, bps: f64, random: &mut SplitMix64) -> (f64, Seen) {
            let seconds = FEEDBACK_NS as f64 / 1e9;
            let mut offered = bps * seconds / 8.0;
            let mut errors = 0.0;
            if let Some(one_in) = self.loses_one_in {
                let packets = (offered / PACKET) as u64;
                let lost = (0..packets).filter(|_| random.below(one_in) == 0).count();
                errors += lost as f64;
                offered -= lost as f64 * PACKET;
            }
            let room = self.bps * seconds / 8.0;
            let all = self.waiting + offered;
            let came = all.min(room);
            self.waiting = (all - came).min(self.queue_bytes);
            errors += (all - came - self.waiting) / PACKET;
            let seen = Seen {
                errors: errors as u64,
                delay_variation_ns: (self.waiting * 8e9 / self.bps) as u64,
            };
            (came, seen)
        }
    }

    /// What is found within so many seconds.
    fn found(mut link: Link, most_bps: u64, seconds: u64, seed: u64) -> f64 {
        let mut random = SplitMix64(seed);
        let (mut adjuster, mut pieces) = (Adjuster::new(most_bps), Pieces::default());
        let (mut at, mut bytes) = (0, 0.0);
        // A report is on its way while the next piece is sent already.
        let mut on_its_way = Seen::default();
        pieces.add(at, 0);
        while at < seconds * 1_000_000_000 {
            let (came, seen) = link.pass(adjuster.rate_bps() as f64, &mut random);
            at += FEEDBACK_NS;
            bytes += came;
            pieces.add(at, bytes as u64);
            adjuster.report(std::mem::replace(&mut on_its_way, seen));
        }
        pieces.most_bps().unwrap()
    }

    fn link(bps: f64, queue_ms: f64) -> Link {
        Link {
            bps,
            queue_bytes: bps / 8e3 * queue_ms,
            waiting: 0.0,
            loses_one_in: None,
        }
    }

    #[test]
    fn the_capacity_of_links_is_found() {
        for bps in [2e6, 20e6, 100e6, 450e6, 940e6, 2.5e9, 9.4e9] {
            for queue_ms in [2.0, 20.0, 200.0] {
                let found = found(link(bps, queue_ms), 100_000_000_000, 15, 1);
                assert!(
                    (0.9 * bps..=1.001 * bps).contains(&found),
                    "{bps} with {queue_ms} ms: {found}"
                );
            }
        }
    }

    #[test]
    fn a_little_loss_is_not_taken_for_congestion() {
        // Up to ten a report do not count: at 100 Mbit/s that is two in a hundred.
        for seed in 0..20 {
            let lossy = Link {
                loses_one_in: Some(200),
                ..link(100e6, 20.0)
            };
            let found = found(lossy, 100_000_000_000, 10, seed);
            assert!((0.9 * 100e6..=100.1e6).contains(&found), "{found}");
        }
    }

    #[test]
    fn no_more_is_sent_than_allowed() {
        let mut adjuster = Adjuster::new(25_400_000);
        for _ in 0..100 {
            adjuster.report(Seen::default());
            assert!(adjuster.rate_bps() <= 25_000_000);
        }
        assert_eq!(adjuster.rate_bps(), 25_000_000);
        assert_eq!(
            Adjuster::new(1).rate_bps(),
            500_000,
            "the lowest row is the least that there is"
        );
    }

    #[test]
    fn steps_are_those_of_the_rfc() {
        let good = Seen::default();
        let bad = Seen {
            errors: 11,
            delay_variation_ns: 0,
        };
        let neither = Seen {
            errors: 10,
            delay_variation_ns: LOW_NS,
        };
        let mut adjuster = Adjuster::new(u64::MAX);
        let mbps = |adjuster: &Adjuster| adjuster.rate_bps() / 1_000_000;
        for expected in [10, 20, 30, 40, 50] {
            adjuster.report(good);
            assert_eq!(mbps(&adjuster), expected);
        }
        adjuster.report(neither);
        assert_eq!(mbps(&adjuster), 50, "between the two thresholds it stays");
        for expected in [49, 48, 18, 17] {
            adjuster.report(bad);
            assert_eq!(mbps(&adjuster), expected, "the third in a row is a large step");
        }
        for expected in [18, 19] {
            adjuster.report(good);
            assert_eq!(mbps(&adjuster), expected, "from then on it feels its way");
        }
        let rows: Vec<u64> = (0..=LAST).map(rate_of).collect();
        assert!(rows.is_sorted() && rows[0] == 500_000 && rows[LAST] == 100_000_000_000);
    }

    #[test]
    fn thresholds_are_those_of_the_rfc() {
        let good = Seen::default();
        let bad = Seen {
            errors: 11,
            delay_variation_ns: 0,
        };
        let delay = |delay_variation_ns| Seen {
            errors: 0,
            delay_variation_ns,
        };
        let after = |reports: &[Seen]| {
            let mut adjuster = Adjuster::new(u64::MAX);
            (0..10).for_each(|_| adjuster.report(good));
            reports.iter().for_each(|seen| adjuster.report(*seen));
            adjuster.rate_bps() / 1_000_000
        };
        assert_eq!(after(&[delay(HIGH_NS)]), 100);
        assert_eq!(after(&[delay(HIGH_NS + 1)]), 99);
        // After two congested reports it leaps, after three it does not.
        assert_eq!(after(&[bad, bad, good]), 108);
        assert_eq!(after(&[bad, bad, bad, good]), 69);
        // Up to 1 Gbit/s.
        assert_eq!(after(&[good; 90]), 1_000);
        assert_eq!(after(&[good; 91]), 1_100);
    }

    #[test]
    fn pieces_are_a_second_long_at_least() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.most_bps(), None);
        // It begins with the first report: what came before does not count.
        pieces.add(5 * PIECE_NS, 1_000);
        pieces.add(5 * PIECE_NS + PIECE_NS / 2, 500_000);
        assert!(pieces.rates_bps().is_empty());
        pieces.add(6 * PIECE_NS, 1_001_000);
        pieces.add(8 * PIECE_NS, 1_501_000);
        assert_eq!(pieces.rates_bps(), [8e6, 2e6]);
        assert_eq!(pieces.most_bps(), Some(8e6));
    }
}
