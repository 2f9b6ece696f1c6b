//! Numbers side by side in words, the upper half first.

pub(crate) fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

pub(crate) fn joined([upper, lower]: [u32; 2]) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

#[allow(clippy::cast_possible_truncation, reason = "these are the two halves")]
pub(crate) fn long_halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}

pub(crate) fn long_joined([upper, lower]: [u64; 2]) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}
