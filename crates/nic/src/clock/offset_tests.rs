use super::{Converted, Offset};
use crate::clock::{Boottime, Monotonic, MonotonicRaw, Realtime, Tai, Timestamp};

fn mono(ns: u64) -> Timestamp<Monotonic> {
    Timestamp::from_nanos(ns)
}

fn tai(ns: u64) -> Timestamp<Tai> {
    Timestamp::from_nanos(ns)
}

#[test]
fn the_truth_is_within_what_a_bracket_says() {
    // Clock B is 1000 ahead; it is read anywhere between two readings of A that are `width` apart.
    for width in 0..40 {
        for reading in 0..=width {
            let offset = Offset::bracketed(mono(500), tai(1_500 + reading), mono(500 + width)).unwrap();
            let wrong = offset.delta_ns().abs_diff(1_000);
            assert!(wrong <= offset.uncertainty_ns(), "{offset:?}, width {width}");
            assert_eq!(offset.uncertainty_ns(), width.div_ceil(2) + 1);
        }
    }
    assert!(Offset::bracketed(mono(500), tai(1), mono(499)).is_none(), "set back");
    assert!(Offset::bracketed(mono(0), tai(u64::MAX), mono(0)).is_none(), "too far");
}

#[test]
fn there_and_back_is_where_it_was() {
    let there = Offset::bracketed(mono(2_000), tai(900), mono(2_010)).unwrap();
    assert_eq!(there.delta_ns(), -1_105);
    let converted = there.convert(mono(5_000)).unwrap();
    assert_eq!(
        converted,
        Converted {
            at: tai(3_895),
            uncertainty_ns: 6
        }
    );
    let back = there.inverse().unwrap();
    assert_eq!(back.convert(converted.at).unwrap().at, mono(5_000));
    assert_eq!(back.measured_at(), tai(900));
    assert!(there.convert(mono(1_104)).is_none(), "before the other clock's zero");
    assert!(back.convert(tai(u64::MAX)).is_none());
}

#[test]
fn uncertainty_grows_with_drift_in_both_directions() {
    let offset = Offset::bracketed(mono(1_000_000_000), tai(1_000_000_000), mono(1_000_000_000)).unwrap();
    let known = |offset: &Offset<_, _>, at| offset.convert(mono(at)).unwrap().uncertainty_ns;
    assert_eq!(known(&offset, 9_000_000_000), 1, "the kernel corrects both alike");
    let offset = offset.with_drift_ppb(200_000);
    assert_eq!(known(&offset, 1_000_000_000), 1);
    assert_eq!(known(&offset, 1_001_000_000), 201, "200 ppm of a millisecond");
    assert_eq!(known(&offset, 999_000_000), 201);
    assert_eq!(
        offset
            .inverse()
            .unwrap()
            .convert(tai(1_001_000_000))
            .unwrap()
            .uncertainty_ns,
        201
    );
    let raw = Offset::<Monotonic, MonotonicRaw>::measure();
    let later = Timestamp::from_nanos(raw.measured_at().as_nanos() + 1_000_000);
    assert_eq!(raw.convert(later).unwrap().uncertainty_ns, raw.uncertainty_ns() + 1_000);
}

#[test]
fn a_chain_adds_up() {
    let first = Offset::bracketed(mono(100), tai(1_100), mono(100)).unwrap();
    let second = Offset::bracketed(tai(2_000), Timestamp::<Boottime>::from_nanos(2_050), tai(2_004)).unwrap();
    let second = second.with_drift_ppb(1_000_000);
    let both = first.then(&second).unwrap();
    assert_eq!(both.delta_ns(), 1_048);
    // 1, then 3 and what a thousandth of the 902 ns between the two measurements comes to.
    assert_eq!(both.uncertainty_ns(), 5);
    assert_eq!(both.convert(mono(1_000_100)).unwrap().uncertainty_ns, 5 + 1_000);
}

/// The kernel has CLOCK_TAI and CLOCK_BOOTTIME at a fixed distance of CLOCK_MONOTONIC: two measurements agree within what
/// they say, and so does the way round over a third clock.
#[test]
fn measurements_of_the_kernels_clocks_agree() {
    let direct = Offset::<Monotonic, Tai>::measure();
    let again = Offset::<Monotonic, Tai>::measure();
    let apart = direct.delta_ns().abs_diff(again.delta_ns());
    assert!(
        apart <= direct.uncertainty_ns() + again.uncertainty_ns(),
        "{direct}, {again}"
    );

    let round = Offset::<Monotonic, Realtime>::measure()
        .then(&Offset::<Realtime, Tai>::measure())
        .unwrap();
    let apart = direct.delta_ns().abs_diff(round.delta_ns());
    assert!(
        apart <= direct.uncertainty_ns() + round.uncertainty_ns(),
        "{direct}, {round}"
    );

    // TAI is ahead of UTC by whole seconds, none where nobody has told the kernel.
    let leap = Offset::<Realtime, Tai>::measure();
    let rest = (leap.delta_ns() + 500_000_000).rem_euclid(1_000_000_000) - 500_000_000;
    assert!(rest.unsigned_abs() <= leap.uncertainty_ns(), "{leap}");
    assert!((0..100_000_000_000).contains(&(leap.delta_ns() - rest)), "{leap}");
    let text = leap.to_string();
    assert!(text.starts_with("CLOCK_TAI - CLOCK_REALTIME = "), "{text}");
}
