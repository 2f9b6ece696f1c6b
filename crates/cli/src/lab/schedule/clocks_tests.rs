use super::*;
use crate::lab::file::Text;

fn schedule(most: &str) -> Schedule {
    let text = Text {
        name: "t".into(),
        text: format!(
            "[[host]]\nname = \"me\"\nplace = \"here\"\n[[host]]\nname = \"far\"\nserve = \"192.0.2.7\"\n\
             [[schedule]]\nname = \"s\"\nfrom = \"me\"\nto = \"far\"\nclass = [\"5:0us:500us\"]\nmax-clock-offset = {most:?}\n"
        ),
    };
    let mut plan = Plan::read(&text).unwrap_or_else(|faults| panic!("{faults}"));
    plan.schedules.pop().expect("a schedule")
}

fn off(ns: Option<u64>) -> ClockState {
    ClockState {
        offset_ns: ns,
        by: ns.map(|_| "ptp4l".into()),
        ptp4l_silence: ns.is_none().then(|| "there is no ptp4l".into()),
        ..ClockState::default()
    }
}

#[test]
fn a_turn_by_clocks_that_are_worse_than_asked_does_not_count() {
    let schedule = schedule("1us");
    let judged = |talker, listener, apart| {
        let told = judge(&schedule, [&off(talker), &off(listener)], apart);
        told.map_err(|error| error.to_string())
    };
    let good = judged(Some(1_000), Some(0), Some((-30_000, 28_001))).expect("right to what is known");
    assert_eq!((good.most_offset_ns, good.is_one), (Some(1_000), false));
    assert_eq!(
        (good.apart_ns, good.apart_uncertainty_ns),
        (Some(-30_000), Some(28_001))
    );
    assert_eq!(good.talker.offset_ns, Some(1_000));
    for (talker, listener, apart, why) in [
        (
            Some(1_001),
            Some(0),
            None,
            "at the talker CLOCK_TAI may be 1.001 µs off, by ptp4l",
        ),
        (
            Some(0),
            Some(1_001),
            None,
            "at the listener CLOCK_TAI may be 1.001 µs off",
        ),
        (
            Some(0),
            None,
            None,
            "at the listener nobody knows how far CLOCK_TAI is off: there is no ptp4l",
        ),
        // 37 s, as where one kernel alone knows of the leap seconds.
        (
            Some(0),
            Some(0),
            Some((37_000_000_000, 50_000)),
            "both ends say that their clocks are right, and by the packets they are 36999950 µs apart at least",
        ),
        (Some(0), Some(0), Some((-30_000, 27_999)), "2.001 µs apart at least"),
    ] {
        let error = judged(talker, listener, apart).expect_err(why);
        let asks = "the schedule s with max-clock-offset 1 µs: ";
        assert!(error.starts_with(asks) && error.contains(why), "{error}");
    }
}

#[test]
fn of_several_turns_the_worst_is_told() {
    let of = |talker, listener, apart| LabClocks {
        talker: off(talker),
        listener: off(listener),
        apart_ns: apart,
        apart_uncertainty_ns: apart.map(|_| 5),
        ..LabClocks::default()
    };
    let all = [
        of(Some(3), Some(9), None),
        of(Some(7), None, Some(-40)),
        of(Some(5), Some(20), Some(30)),
    ];
    let told = together(all.iter()).expect("several");
    assert_eq!((told.talker.offset_ns, told.listener.offset_ns), (Some(7), None));
    assert_eq!((told.apart_ns, told.apart_uncertainty_ns), (Some(-40), Some(5)));
}
