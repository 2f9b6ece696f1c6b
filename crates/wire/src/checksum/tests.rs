use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The definition, word by word, as slow as it is plain.
fn plain(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    u16::try_from(sum).unwrap()
}

#[test]
fn ipv4_header_from_the_textbook() {
    // 20-byte header whose checksum field (zeroed here) is known to be 0xb861.
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
        0x00, 0xc7,
    ];
    assert_eq!(Sum::of(&header).finish(), 0xb861);
}

#[test]
fn rfc_1624_example() {
    // RFC 1624 §4: checksum 0xdd2f, word 0x5555 becomes 0x3285; equation 3 gives 0x0000.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn nothing_sums_to_zero_and_all_ones_stay() {
    assert_eq!(Sum::of(&[]).fold(), 0);
    assert_eq!(Sum::of(&[0xff; 64]).fold(), 0xffff);
    assert_eq!(fold(u64::MAX), 0xffff);
}

#[test]
fn odd_end_is_padded_on_the_right() {
    assert_eq!(Sum::of(&[0x12]).fold(), 0x1200);
    assert_eq!(Sum::of(&[0x12, 0x34, 0x56]).fold(), 0x1234 + 0x5600);
}

proptest! {
    #[test]
    fn wide_sum_is_the_plain_sum(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let sum = Sum::of(&bytes).fold();
        // 0x0000 and 0xffff are both zero in one's complement; the wide sum gives 0xffff for it
        // as the plain one does, unless every byte is zero.
        prop_assert_eq!(sum, plain(&bytes));
    }

    #[test]
    fn pieces_add_up(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..150) {
        let cut = (2 * cut).min(bytes.len() & !1);
        let (a, b) = bytes.split_at(cut);
        let whole = Sum::of(&bytes);
        prop_assert_eq!(Sum::of(a).bytes(b).fold(), whole.fold());
        prop_assert_eq!(Sum::of(a).and(Sum::of(b)).fold(), whole.fold());
    }

    #[test]
    fn update_is_a_recomputation(
        mut words in proptest::collection::vec(any::<u16>(), 1..100),
        at in any::<prop::sample::Index>(),
        new in any::<u16>(),
    ) {
        words.push(0x4500); // never all zero, as in every real header
        let sum = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            Sum::of(&bytes).finish()
        };
        let before = sum(&words);
        let at = at.index(words.len() - 1);
        let old = std::mem::replace(&mut words[at], new);
        prop_assert_eq!(update(before, old, new), sum(&words));
    }
}
