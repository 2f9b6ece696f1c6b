use std::time::Duration;

use super::Timestamp;
use crate::clock::{Boottime, KernelClock, Monotonic, MonotonicRaw, Realtime, Tai};

fn at(ns: u64) -> Timestamp<Tai> {
    Timestamp::from_nanos(ns)
}

#[test]
fn differences_have_a_sign_and_saturate() {
    assert_eq!(at(5) - at(5), 0);
    assert_eq!(at(0) - at(7), -7);
    assert_eq!(at(u64::MAX) - at(u64::MAX - 3), 3);
    assert_eq!(at(u64::MAX) - at(0), i64::MAX);
    assert_eq!(at(0) - at(u64::MAX), i64::MIN);
    assert_eq!(at(0) - at(i64::MAX.unsigned_abs()), -i64::MAX);
    assert_eq!(at(0) - at(i64::MIN.unsigned_abs()), i64::MIN);
    assert_eq!(at(9).since(at(4)), Some(Duration::from_nanos(5)));
    assert_eq!(at(4).since(at(9)), None);
    assert_eq!(at(4) + Duration::from_micros(1), at(1_004));
    assert_eq!(at(4) + Duration::MAX, at(u64::MAX));
}

#[test]
fn the_kernels_clocks_tell_their_times() {
    // After 2020, and the monotonic ones since a boot that was not that long ago.
    const IN_2020: u64 = 1_577_836_800_000_000_000;
    assert!(Timestamp::<Realtime>::now().as_nanos() > IN_2020);
    assert!(Timestamp::<Tai>::now().as_nanos() > IN_2020);
    let (mono, boot) = (Timestamp::<Monotonic>::now(), Timestamp::<Boottime>::now());
    assert!(mono.as_nanos() <= boot.as_nanos() && boot.as_nanos() < IN_2020);
    assert_eq!(format!("{:?}", at(3)), "3 ns of CLOCK_TAI");
}

#[test]
fn a_sleep_ends_when_the_clock_shows_its_time() {
    fn sleeps<C: KernelClock>() {
        let until = Timestamp::<C>::now() + Duration::from_millis(3);
        until.sleep_until().unwrap();
        assert!(Timestamp::now() >= until);
        // That is over: no sleep.
        until.sleep_until().unwrap();
    }
    sleeps::<Monotonic>();
    sleeps::<Tai>();
    sleeps::<Boottime>();
    let raw = Timestamp::<MonotonicRaw>::now().sleep_until().unwrap_err();
    assert_eq!(raw.raw_os_error(), Some(libc::EOPNOTSUPP));
}
