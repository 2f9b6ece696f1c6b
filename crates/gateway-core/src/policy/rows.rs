//! Rows of bits, found by a number.

/// Rows of bits for intervals of numbers: row `i` is for numbers from `starts[i]` to the next start.
#[derive(Debug)]
pub(super) struct Rows<K> {
    starts: Box<[K]>,
    bits: Box<[u64]>,
    words: usize,
}

/// Words for a bit for each rule.
pub(super) fn words_for(rules: usize) -> usize {
    rules.div_ceil(64)
}

/// Sets a bit of a row.
pub(super) fn set(row: &mut [u64], rule: usize) {
    row[rule / 64] |= 1 << (rule % 64);
}

impl<K: Copy + Ord + Default> Rows<K> {
    /// Of ranges, one a rule, of which each sets the bit of its rule. `next` is the number behind another, None behind
    /// the last there is.
    pub(super) fn of(rules: usize, ranges: &[(usize, K, K)], next: impl Fn(K) -> Option<K>) -> Self {
        let mut starts = vec![K::default()];
        for &(_, first, last) in ranges {
            starts.push(first);
            starts.extend(next(last));
        }
        starts.sort_unstable();
        starts.dedup();
        let words = words_for(rules);
        let mut bits = vec![0; starts.len() * words];
        for &(rule, first, last) in ranges {
            let from = starts.partition_point(|start| *start < first);
            let to = starts.partition_point(|start| *start <= last);
            for row in bits.chunks_exact_mut(words).take(to).skip(from) {
                set(row, rule);
            }
        }
        Self {
            starts: starts.into(),
            bits: bits.into(),
            words,
        }
    }

    /// The row of a number.
    pub(super) fn find(&self, number: K) -> &[u64] {
        // The first start is the least number, so there is always one that is not above.
        let row = self.starts.partition_point(|start| *start <= number) - 1;
        &self.bits[row * self.words..][..self.words]
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.bits)
    }
}
