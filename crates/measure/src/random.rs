//! Numbers that are random enough, and the same in each run.

/// A generator of 64-bit numbers with one word of state (Steele, Lea and Flood, 2014). Enough to
/// draw rounds, and one dependency less.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An index below `len`, which is at least one.
    pub(crate) fn below(&mut self, len: usize) -> usize {
        usize::try_from(self.number_below(len as u64)).unwrap_or(0)
    }

    /// A number below `end`, which is at least one; the bias of end / 2^64 does not matter here.
    pub(crate) fn number_below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_gives_the_published_numbers() {
        // First outputs for seed 1234567 of the reference implementation.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn indices_cover_the_range_evenly() {
        let mut random = SplitMix64(0x5249_4e47_5349_4445);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        // Standard deviation of a count is 93; five of them on either side.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 465), "{counts:?}");
    }
}
