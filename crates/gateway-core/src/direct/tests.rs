use super::*;
use crate::Vni;

const LIMITS: DirectLimits = DirectLimits {
    packets: 1000,
    notices: 2,
    lifetime: 60 * SECOND,
    pairs: 100,
};

fn pair(host: u8, receiver: u8) -> DirectPair {
    let vni = Vni::new(7).expect("a number");
    DirectPair {
        host: [192, 0, 2, host].into(),
        receiver: TenantAddress::new(vni, [10, 0, 0, receiver].into()),
    }
}

#[test]
fn who_sends_much_is_told_once() {
    let mut directs = Directs::new(LIMITS);
    for sample in 0..9 {
        assert!(!directs.sampled(sample, pair(1, 1), 100));
    }
    assert!(directs.sampled(9, pair(1, 1), 100));
    assert_eq!(directs.holds_for(10, &pair(1, 1)), Some(60 * SECOND - 1));
    // It goes on for a while, and is told again after a quarter of the time.
    assert!((10..100).all(|now| !directs.sampled(now, pair(1, 1), 1000)));
    assert!(directs.sampled(15 * SECOND + 9, pair(1, 1), 1000));
    assert_eq!(directs.holds_for(75 * SECOND + 8, &pair(1, 1)), Some(1));
    assert_eq!(directs.holds_for(75 * SECOND + 9, &pair(1, 1)), None);
}

#[test]
fn who_sends_little_is_not() {
    let mut directs = Directs::new(LIMITS);
    // 900 in each second.
    for second in 0..100 {
        for sample in 0..9 {
            assert!(!directs.sampled(second * SECOND + sample, pair(1, 1), 100));
        }
    }
    assert_eq!(directs.counts(), (0, 0));
}

#[test]
fn so_many_a_second_and_no_more() {
    let mut directs = Directs::new(LIMITS);
    let mut told = |now| (0..5).filter(|n| directs.sampled(now, pair(*n, 1), 1000)).count();
    assert_eq!(told(0), 2);
    assert_eq!(told(SECOND / 2), 1);
    assert_eq!(told(100 * SECOND), 2, "what was not used is lost");
    // Told: 0 and 1 twice, and 2. Held back: 3 of 5, 2 of 3, 3 of 5.
    assert_eq!(directs.counts(), (3, 8));
}

#[test]
fn a_change_goes_to_all_who_were_told() {
    let limits = DirectLimits { notices: 100, ..LIMITS };
    let mut directs = Directs::new(limits);
    for host in 1..=3 {
        assert!(directs.sampled(host.into(), pair(host, 1), 1000));
    }
    assert!(directs.sampled(4, pair(1, 2), 1000));
    let hosts = |hosts: &[u8]| hosts.iter().map(|host| pair(*host, 0).host).collect::<Vec<_>>();
    assert_eq!(directs.changed(5, pair(0, 1).receiver, false), hosts(&[1, 2, 3]));
    assert_eq!(directs.changed(5, pair(0, 9).receiver, false), hosts(&[]));
    // The first one's is over.
    assert_eq!(
        directs.changed(60 * SECOND + 1, pair(0, 1).receiver, true),
        hosts(&[2, 3])
    );
    assert_eq!(directs.changed(60 * SECOND + 1, pair(0, 1).receiver, true), hosts(&[]));
    assert_eq!(directs.holds_for(6, &pair(2, 1)), None);
    assert!(directs.sampled(61 * SECOND, pair(2, 1), 1000), "from the beginning");
}

#[test]
fn there_is_an_end_to_what_is_remembered() {
    let limits = DirectLimits {
        notices: 1_000_000,
        ..LIMITS
    };
    let mut directs = Directs::new(limits);
    let many = (0..=255).flat_map(|host| (0..=255).map(move |receiver| pair(host, receiver)));
    for pair in many.clone() {
        directs.sampled(0, pair, 1);
        directs.sampled(0, pair, 1000);
    }
    assert!(directs.counted.len() <= 100 && directs.told.len() <= 100);
    directs.forget(61 * SECOND);
    assert_eq!(
        (directs.counted.len(), directs.told.len(), directs.hosts.len()),
        (0, 0, 0)
    );
}
