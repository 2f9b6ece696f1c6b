use super::*;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(1));

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn it_is_given_up_after_its_time_and_back_after_a_longer_one() {
    let mut link = Link::default();
    assert!(!link.is_given_up(at(0), PATIENCE) && link.due(PATIENCE).is_none());
    link.tell(at(0), true);
    link.tell(at(5000), false);
    assert_eq!(link.due(PATIENCE), Some(at(6000)));
    // What is told again is no news.
    link.tell(at(5500), false);
    assert!(!link.is_given_up(at(5999), PATIENCE));
    assert!(link.is_given_up(at(6000), PATIENCE));
    assert_eq!(link.due(PATIENCE), None);
    link.tell(at(7000), true);
    assert!(link.is_given_up(at(9999), PATIENCE));
    // Once more away, and all of it begins anew.
    link.tell(at(9999), false);
    link.tell(at(10_000), true);
    assert!(link.is_given_up(at(12_999), PATIENCE));
    assert!(!link.is_given_up(at(13_000), PATIENCE));
}

#[test]
fn a_short_one_is_nothing() {
    let mut link = Link::default();
    link.tell(at(0), true);
    for second in 1..10 {
        link.tell(at(second * 1000), false);
        link.tell(at(second * 1000 + 900), true);
        assert!(!link.is_given_up(at(second * 1000 + 999), PATIENCE));
    }
}

#[test]
fn who_begins_without_one_takes_nothing() {
    let mut link = Link::default();
    link.tell(at(10), false);
    assert!(link.is_given_up(at(10), PATIENCE));
    let mut other = Link::default();
    other.tell(at(10), false);
    assert!(!other.is_given_up(at(100_000), None), "where it does not matter");
    assert_eq!(other.due(None), None);
}
