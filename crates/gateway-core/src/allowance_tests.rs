use super::*;

const RATE: u32 = 100;

fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

/// How many of so many a network gets at once.
fn burst(shares: &mut Shares, number: u32, now: u64, count: u32) -> u32 {
    (0..count).map(|_| u32::from(shares.take(vni(number), now, RATE))).sum()
}

#[test]
fn a_network_has_its_rate_and_no_more() {
    let mut shares = Shares::new();
    assert_eq!(burst(&mut shares, 7, SECOND, 1000), RATE);
    assert_eq!(burst(&mut shares, 7, SECOND, 1000), 0);
    assert_eq!(burst(&mut shares, 7, SECOND + SECOND / 2, 1000), RATE / 2);
    // Another one's is another's; one so far away shares it.
    assert_eq!(burst(&mut shares, 8, SECOND + SECOND / 2, 1000), RATE);
    assert_eq!(burst(&mut shares, 8 + PLACES, SECOND + SECOND / 2, 1000), 0);
}

/// Whatever all others take, what is a network's own is there for it, in each second.
#[test]
fn no_flood_takes_what_is_anothers() {
    let mut shares = Shares::new();
    for second in 1..4 {
        let now = second * SECOND;
        let flood: u32 = (0..200).map(|number| burst(&mut shares, number, now, 1000)).sum();
        let most = TOGETHER * RATE + 200 * (RATE / OWN);
        assert!((TOGETHER * RATE..=most).contains(&flood), "{flood}");
        assert_eq!(burst(&mut shares, 500, now, 1000), RATE / OWN);
    }
}

#[test]
fn little_is_little_and_nothing_is_nothing() {
    let mut shares = Shares::new();
    assert!(!shares.take(vni(1), SECOND, 0));
    let taken = (0..100)
        .filter(|number| shares.take(vni(2 + number % 2), SECOND, 1))
        .count();
    assert_eq!(taken, 2);
    assert!(shares.take(vni(4), SECOND, u32::MAX));
}
