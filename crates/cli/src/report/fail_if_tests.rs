use super::*;

fn condition(text: &str) -> Condition {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn reads_figures_operators_and_bounds() {
    let read = |text| {
        let of = condition(text);
        (of.name, of.operator, of.bound)
    };
    let name = |name: &str| name.to_owned();
    assert_eq!(
        read("rtt.p99>+10%"),
        (name("rtt.p99"), Operator::Above, Bound::Relative(10.0))
    );
    assert_eq!(
        read("received <= -2.5 %"),
        (name("received"), Operator::AtMost, Bound::Relative(-2.5))
    );
    assert_eq!(
        read("RTT p99.9>=50us"),
        (
            name("rtt.p99.9"),
            Operator::AtLeast,
            Bound::Absolute(50e3, Unit::Nanoseconds)
        )
    );
    assert_eq!(
        read("received, on the wire<2.5Gbit/s"),
        (
            name("received.on.the.wire"),
            Operator::Below,
            Bound::Absolute(2.5e9, Unit::BitsPerSecond)
        )
    );
    for (bound, wanted) in [
        ("0.1%", Bound::Absolute(0.1, Unit::Percent)),
        ("1.5s", Bound::Absolute(1.5e9, Unit::Nanoseconds)),
        ("7 ms", Bound::Absolute(7e6, Unit::Nanoseconds)),
        ("50\u{b5}s", Bound::Absolute(50e3, Unit::Nanoseconds)),
        ("50\u{3bc}s", Bound::Absolute(50e3, Unit::Nanoseconds)),
        ("100k", Bound::Absolute(1e5, Unit::None)),
        ("2M/s", Bound::Absolute(2e6, Unit::PacketsPerSecond)),
        ("0", Bound::Absolute(0.0, Unit::None)),
    ] {
        assert_eq!(condition(&format!("x>{bound}")).bound, wanted, "{bound}");
    }
}

#[test]
fn refuses_what_is_no_condition() {
    for (text, part) in [
        ("rtt.p99", "compares nothing"),
        ("", "compares nothing"),
        (">5%", "names no figure"),
        ("x>", "is no bound"),
        ("x>>5", "is no bound"),
        ("x>+5", "is no bound"),
        ("x>-5us", "is no bound"),
        ("x>five", "is no bound"),
        ("x>1.2.3", "is no bound"),
        ("x>5 apples", "is no bound"),
        ("x>1e3", "is no bound"),
    ] {
        let error = text.parse::<Condition>().err();
        assert!(
            error.as_ref().is_some_and(|error| error.contains(part)),
            "{text}: {error:?}"
        );
    }
}

#[test]
fn stars_stand_for_any_text() {
    for (pattern, name, wanted) in [
        ("rtt.p99", "rtt.p99", true),
        ("rtt.p99", "rtt.p99.9", false),
        ("*.p99", "udp.round.trip.idle.p99", true),
        ("*.p99", "udp.round.trip.idle.p99.9", false),
        ("udp*p99*", "udp.round.trip.idle.p99.9", true),
        ("*idle*", "udp.round.trip.loaded.p99", false),
        ("*", "lost", true),
        ("**µ", "µµ", true),
    ] {
        assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
    }
}

#[test]
fn changes_are_relative_to_the_baseline() {
    let holds = |text, value, base| condition(text).holds(value, base);
    assert!(!holds("x>+10%", 110.0, Some(100.0)) && holds("x>+10%", 110.1, Some(100.0)));
    assert!(holds("x>=+10%", 110.0, Some(100.0)));
    assert!(!holds("x<-10%", 90.0, Some(100.0)) && holds("x<-10%", 89.9, Some(100.0)));
    assert!(holds("x<=-10%", 90.0, Some(100.0)));
    // Any loss is more than none.
    assert!(holds("x>+10%", 0.001, Some(0.0)) && !holds("x>+10%", 0.0, Some(0.0)));
    assert!(holds("x>5", 5.1, None) && !holds("x>5", 5.0, None) && holds("x<5", 4.9, None));
}
