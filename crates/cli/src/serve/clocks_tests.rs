use ringside_measure::probe::{Kind, STAMPED_LEN};

use super::*;

fn facts(identity: &str, is_synchronised: bool, most_error_ns: u64) -> ClockFacts {
    ClockFacts {
        identity: identity.into(),
        is_synchronised,
        most_error_ns,
    }
}

/// The far clock 500 ahead, known within 101.
fn seen() -> Offset<Monotonic, FarClock> {
    let asked = TimeAsked {
        asked_ns: 10_000,
        came_ns: 10_600,
        left_ns: 10_650,
        heard_ns: 10_250,
        far_realtime_ns: 0,
    };
    super::seen(&asked).unwrap()
}

#[test]
fn the_time_of_the_answer_is_left_out() {
    let seen = seen();
    assert_eq!((seen.delta_ns(), seen.uncertainty_ns()), (500, 101));
    // Answers that cannot be.
    let asked = TimeAsked {
        asked_ns: 10,
        came_ns: 9,
        left_ns: 8,
        heard_ns: 11,
        far_realtime_ns: 0,
    };
    assert!(super::seen(&asked).is_none());
}

#[test]
fn one_kernel_is_one_clock_unless_it_is_seen_not_to_be() {
    let same = facts("one boot", false, 0);
    let near_by = TimeAsked {
        asked_ns: 10_000,
        came_ns: 10_040,
        left_ns: 10_050,
        heard_ns: 10_100,
        far_realtime_ns: 0,
    };
    let clocks = judge(&same, &same, None, 0, super::seen(&near_by).unwrap()).unwrap();
    assert_eq!(
        (clocks.basis, clocks.offset_ns, clocks.uncertainty_ns),
        (ClockBasis::SameKernel, 0, 0)
    );
    let error = judge(&same, &same, None, 0, seen()).unwrap_err().to_string();
    assert!(
        error.contains("does not count either host's clock as synchronised"),
        "{error}"
    );
    // Nothing known is not the same.
    let unknown = facts("", false, 0);
    assert!(judge(&unknown, &unknown, None, 0, super::seen(&near_by).unwrap()).is_err());
}

#[test]
fn synchronised_clocks_have_the_errors_of_both() {
    let (near, far) = (facts("a", true, 300), facts("b", true, 40));
    let clocks = judge(&near, &far, Some(700), 7, seen()).unwrap();
    assert_eq!(
        (clocks.basis, clocks.offset_ns, clocks.uncertainty_ns),
        (ClockBasis::Synchronised, 700, 347)
    );
    let record = clocks.record(200);
    assert_eq!(
        (record.uncertainty_ns, record.seen_offset_ns, record.seen_uncertainty_ns),
        (547, 500, 101)
    );
    // What moved during the run counts, too.
    let later = judge(&near, &far, Some(690), 7, seen()).unwrap();
    assert_eq!(clocks.and_then(&later).record(0).uncertainty_ns, 357);
}

#[test]
fn without_a_reason_it_is_refused_with_what_to_do() {
    let good = facts("a", true, 40);
    for (near, far, offset, part) in [
        (
            facts("a", false, 0),
            facts("b", true, 0),
            Some(500),
            "this host's clock",
        ),
        (
            facts("a", true, 0),
            facts("b", false, 0),
            Some(500),
            "the far end's clock",
        ),
        (good.clone(), facts("b", true, 40), Some(5_000), "that is not so"),
        (good.clone(), facts("b", true, 40), None, "that is not so"),
    ] {
        let error = judge(&near, &far, offset, 0, seen()).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("chrony") && error.contains("500 ns ahead"),
            "{error}"
        );
    }
}

#[test]
fn times_there_and_back_are_by_one_clock_after_all() {
    let clocks = judge(&facts("a", true, 300), &facts("b", true, 40), Some(700), 0, seen()).unwrap();
    let mut one_way = OneWay::new(clocks, true);
    let probe = Probe {
        kind: Kind::Reply,
        clock: Clock::Monotonic,
        session: 1,
        sequence: 0,
        intended_ns: 90,
        sent_ns: 100,
    };
    let mut payload = [0; STAMPED_LEN];
    probe.encode(&mut payload).unwrap();
    one_way.record(&payload, &probe, 300);
    FarStamps {
        came_ns: 700 + 150,
        left_ns: 700 + 160,
    }
    .give(&mut payload);
    one_way.record(&payload, &probe, 230);
    let (_, there, back) = one_way.results(None, 0);
    assert_eq!(there.kind, LatencyKind::OneWay);
    let of = |times: &LatencyResult| times.raw.map(|times| (times.samples, times.max_ns));
    assert_eq!(of(&there), Some((1, 50)), "the one with stamps");
    assert_eq!(there.corrected.map(|times| times.max_ns), Some(60));
    assert_eq!((of(&back), back.corrected), (Some((1, 70)), None));
}
