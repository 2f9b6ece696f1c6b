//! Which packets something happens to.

use crate::Error;
use crate::random::SplitMix64;

/// Which packets something happens to. Shares are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pick {
    /// None.
    Never,
    /// Each with this probability.
    Share(f64),
    /// Every so manieth, the first of them being that number: with 10 the 10th, the 20th, and so on.
    Every(u64),
    /// In bursts, by the model of Gilbert (1960) and Elliott (1963): a path that is good or bad, and changes at random.
    #[doc(alias = "Gilbert-Elliott")]
    Bursts {
        /// Probability to turn bad, from packet to packet.
        enter: f64,
        /// Probability to turn good again.
        leave: f64,
        /// Share of the packets that it happens to while the path is bad.
        bad: f64,
        /// The same while it is good.
        good: f64,
    },
}

/// A probability, as the number below which 2^64 are to be.
#[derive(Debug, Clone, Copy)]
struct Threshold(u128);

impl Threshold {
    fn new(what: &str, share: f64) -> Result<Self, Error> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::Impairment(format!(
                "{what} with a probability of {share}: it has to be from 0 to 1"
            )));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 2^64, both exact"
        )]
        Ok(Self((share * 2f64.powi(64)) as u128))
    }

    fn hit(self, random: &mut SplitMix64) -> bool {
        u128::from(random.next()) < self.0
    }
}

/// Picks packet after packet.
#[derive(Debug)]
pub(super) struct Picker {
    way: Way,
    random: SplitMix64,
}

#[derive(Debug)]
enum Way {
    Never,
    Share(Threshold),
    Every {
        number: u64,
        left: u64,
    },
    Bursts {
        is_bad: bool,
        enter: Threshold,
        leave: Threshold,
        bad: Threshold,
        good: Threshold,
    },
}

impl Picker {
    pub(super) fn new(what: &str, pick: Pick, seed: u64) -> Result<Self, Error> {
        let way = match pick {
            Pick::Never => Way::Never,
            Pick::Share(share) => Way::Share(Threshold::new(what, share)?),
            Pick::Every(0) => return Err(Error::Impairment(format!("{what} of every 0th packet: there is none"))),
            Pick::Every(number) => Way::Every { number, left: number },
            Pick::Bursts {
                enter,
                leave,
                bad,
                good,
            } => Way::Bursts {
                is_bad: false,
                enter: Threshold::new(what, enter)?,
                leave: Threshold::new(what, leave)?,
                bad: Threshold::new(what, bad)?,
                good: Threshold::new(what, good)?,
            },
        };
        Ok(Self {
            way,
            random: SplitMix64(seed),
        })
    }

    /// Whether it is to happen to the next packet.
    pub(super) fn next(&mut self) -> bool {
        let random = &mut self.random;
        match &mut self.way {
            Way::Never => false,
            Way::Share(share) => share.hit(random),
            Way::Every { number, left } => {
                *left -= 1;
                if *left == 0 {
                    *left = *number;
                    return true;
                }
                false
            }
            Way::Bursts {
                is_bad,
                enter,
                leave,
                bad,
                good,
            } => {
                let (share, change) = if *is_bad { (bad, leave) } else { (good, enter) };
                let hit = share.hit(random);
                *is_bad ^= change.hit(random);
                hit
            }
        }
    }
}
