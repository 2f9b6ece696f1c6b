use super::*;

fn turn(is_traced: bool, median_ns: u64, events: u64) -> Turn {
    let mut times = Latency::new();
    // At a lab's usual rate a turn has few.
    (0..6).for_each(|_| times.record(median_ns));
    Turn {
        is_traced,
        from_ns: 0,
        until_ns: 1,
        to_ns: 1,
        times,
        steal: 0.0,
        events,
    }
}

#[test]
fn turns_are_compared_in_pairs_whichever_of_the_two_was_first() {
    let mut turns = Vec::new();
    // The machine gets slower: within a pair tracing always takes a tenth more.
    for (pair, off_ns) in (0..5).zip([10_000, 11_000, 12_000, 13_000, 14_000]) {
        let both = [turn(true, off_ns * 11 / 10, 200), turn(false, off_ns, 0)];
        match pair % 2 {
            0 => turns.extend(both),
            _ => turns.extend(both.into_iter().rev()),
        }
    }
    // One that has no other.
    turns.push(turn(false, 1, 0));
    let cost = cost(&turns).unwrap().expect("pairs");
    assert!((cost.ratio.median - 1.1).abs() < 0.01, "{cost:?}");
    assert!(cost.ratio.low.is_some_and(|low| low > 1.08) && cost.ratio.high.is_some_and(|high| high < 1.12));
    let of = |events| CostTurns {
        turns: 5,
        packets: 30,
        events,
    };
    assert_eq!((cost.off, cost.on), (of(0), of(1_000)));
}

#[test]
fn two_turns_of_one_kind_are_no_pair() {
    assert_eq!(cost(&[turn(true, 5, 9), turn(true, 5, 9)]).unwrap(), None);
    assert_eq!(cost(&[turn(true, 5, 9)]).unwrap(), None);
}
