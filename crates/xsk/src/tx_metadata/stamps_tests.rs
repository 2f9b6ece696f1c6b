//! Which packets get a stamp, and what is counted.

use super::*;

fn stamps(sampling: StampSampling) -> Stamps {
    Stamps::new(sampling, 4, false)
}

fn chosen(stamps: &mut Stamps, packets: usize) -> Vec<bool> {
    (0..packets).map(|_| stamps.wanted()).collect()
}

#[test]
fn all_or_one_in_so_many() {
    assert_eq!(chosen(&mut stamps(StampSampling::all()), 3), [true; 3]);
    let third = chosen(&mut stamps(StampSampling::one_in(3)), 7);
    assert_eq!(third, [true, false, false, true, false, false, true]);
}

/// Who has to wait for a register passes its turn on to the next packet, and the distance is counted from there.
#[test]
fn no_more_than_are_allowed_are_awaited() {
    let mut stamps = stamps(StampSampling::one_in(2).outstanding(1));
    assert_eq!(chosen(&mut stamps, 5), [true, false, false, false, false]);
    stamps.arrived(7, Some(1));
    assert_eq!(chosen(&mut stamps, 3), [true, false, false]);
    stamps.arrived(8, None);
    assert!(stamps.wanted());
    let counters = stamps.counters();
    assert_eq!((counters.wanted, counters.asked), (9, 3));
    assert_eq!(
        (counters.stamped, counters.unstamped, counters.outstanding()),
        (1, 1, 1)
    );
    assert_eq!(counters.coverage(), Some(1.0 / 9.0));
    assert_eq!(StampCounters::default().coverage(), None);
}

#[test]
fn what_nobody_takes_is_thrown_away_and_counted() {
    let mut stamps = stamps(StampSampling::all());
    let room = stamps.arrived.capacity() as u64;
    for token in 0..room + 3 {
        assert!(stamps.wanted());
        stamps.arrived(token, Some(1000 + token));
    }
    assert_eq!(stamps.counters().unread, 3);
    assert_eq!(stamps.arrived.capacity() as u64, room, "nothing is allocated");
    let taken: Vec<TxStamp> = std::iter::from_fn(|| stamps.take()).collect();
    assert_eq!(taken.len() as u64, room);
    let time = StampTime::Software(Timestamp::from_nanos(1000));
    assert_eq!(taken[0], TxStamp { token: 0, time });
    assert_eq!(time.to_string(), "1000 ns of CLOCK_TAI, in software");
    assert_eq!(
        (time.software().map(Timestamp::as_nanos), time.hardware()),
        (Some(1000), None)
    );
}

#[test]
fn with_zero_copy_the_time_is_the_nics() {
    let mut stamps = Stamps::new(StampSampling::all(), 4, true);
    assert!(stamps.wanted());
    stamps.arrived(1, Some(55));
    let time = stamps.take().expect("it arrived").time;
    assert_eq!((time.software(), time.hardware()), (None, Some(HardwareTime(55))));
    assert_eq!(time.to_string(), "55 ns of the NIC's clock, in hardware");
}
