use std::mem::offset_of;

use super::{Caps, MOST_SAMPLES, SysOffsetExtended, SysOffsetPrecise, Time};
use crate::clock::{Offset, Realtime, Tai, Timestamp};

/// From `pahole` on the kernel's header.
#[test]
fn layouts_are_the_kernels() {
    assert_eq!((size_of::<Time>(), align_of::<Time>()), (16, 8));
    assert_eq!((offset_of!(Time, nsec), offset_of!(Time, reserved)), (8, 12));
    assert_eq!(size_of::<Caps>(), 80);
    assert_eq!(offset_of!(Caps, cross_timestamping), 24);
    assert_eq!(size_of::<SysOffsetPrecise>(), 64);
    assert_eq!(offset_of!(SysOffsetPrecise, sys_realtime), 16);
    assert_eq!(offset_of!(SysOffsetPrecise, sys_monoraw), 32);
    assert_eq!(size_of::<SysOffsetExtended>(), 16 + MOST_SAMPLES * 48);
    assert_eq!(offset_of!(SysOffsetExtended, clockid), 4);
    assert_eq!(offset_of!(SysOffsetExtended, ts), 16);
}

fn time(sec: i64, nsec: u32) -> Time {
    Time { sec, nsec, reserved: 0 }
}

#[test]
fn times_that_no_clock_shows_are_none() {
    assert_eq!(
        time(2, 7).timestamp::<Tai>(),
        Some(Timestamp::from_nanos(2_000_000_007))
    );
    assert_eq!(time(-1, 0).timestamp::<Tai>(), None);
    assert_eq!(time(0, 1_000_000_000).timestamp::<Tai>(), None);
    assert_eq!(time(i64::MAX, 0).timestamp::<Tai>(), None);
}

/// An answer as a driver gives it: of the samples the one with the smallest bracket counts, nonsense is passed over.
#[test]
fn the_best_sample_of_an_answer_counts() {
    let mut answer = SysOffsetExtended::new();
    assert_eq!(answer.n_samples, 25);
    answer.n_samples = 4;
    answer.ts[0] = [time(10, 0), time(47, 500), time(10, 2_000)];
    answer.ts[1] = [time(11, 0), time(48, 350), time(11, 600)];
    answer.ts[2] = [time(12, 900), time(49, 0), time(12, 100)]; // set back
    answer.ts[3] = [time(13, 0), time(50, 1_000_000_000), time(13, 0)]; // no time
    answer.ts[4] = [time(14, 0), time(51, 0), time(14, 0)]; // beyond what was answered
    let best = answer
        .samples::<Realtime, Tai>()
        .fold(None, |best, (before, device, after)| {
            Offset::better(best, Offset::bracketed(before, device, after))
        });
    let best = best.unwrap();
    assert_eq!((best.delta_ns(), best.uncertainty_ns()), (37_000_000_050, 301));
    assert_eq!(best.measured_at().as_nanos(), 11_000_000_300);
    // A driver cannot make us read beyond the array.
    answer.n_samples = u32::MAX;
    assert_eq!(answer.samples::<Realtime, Tai>().count(), MOST_SAMPLES - 1);
}
