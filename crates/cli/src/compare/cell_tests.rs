use super::*;

fn figure(median: f64, spread: Option<f64>) -> Figure {
    Figure {
        median,
        min: 0.0,
        max: median * 2.0,
        spread,
        spread_percent: spread.filter(|_| median > 0.0).map(|spread| spread / median * 100.0),
        rounds_used: 6,
        rounds_left_out: 0,
    }
}

#[test]
fn rates_and_times_have_their_spread_in_percent() {
    let cell = |median, spread| relative(&figure(median, Some(spread)), micros);
    assert_eq!(cell(4_560.0, 45.6), "4.56\n±1.0%");
    assert_eq!(cell(4_560.0, 547.2), "4.56\n±12%");
    assert_eq!(cell(4_560.0, 9_120.0), "4.56\n±200%");
    assert_eq!(cell(0.0, 1_500.0), "0.000\n±1.50", "of zero there is no percentage");
    assert_eq!(relative(&figure(4_560.0, None), micros), "4.56\n±?");
}

#[test]
fn percentages_have_their_spread_in_points() {
    let cell = |median, spread| points(&[Some(figure(median, Some(spread)))], share).unwrap();
    assert_eq!(cell(12.34, 0.44), "12.3\n±0.4");
    assert_eq!(cell(0.0, 0.0), "0.0\n±0.0");
    assert_eq!(cell(0.0, 0.3), "0.0\n±0.3", "a median of zero, and still a spread");
    assert_eq!(cell(0.004, 0.001), "<0.1\n±<0.1", "little is not none");
    assert_eq!(points(&[Some(figure(3.0, None))], share).unwrap(), "3.0\n±?");
    let stages = [Some(figure(51.2, Some(1.6))), None, Some(figure(0.0, Some(9.9)))];
    assert_eq!(points(&stages, coarse).unwrap(), "51/-/0\n±2/-/±10");
    assert_eq!(points(&[None], share), None);
}

#[test]
fn ratios_have_their_interval() {
    let ratio = |median: f64, interval: Option<(f64, f64)>| Ratio {
        median,
        low: interval.map(|ends| ends.0),
        high: interval.map(|ends| ends.1),
        rounds_used: 6,
        rounds_left_out: 0,
    };
    assert_eq!(proportion(&ratio(2.345, Some((1.9, 12.34)))), "2.35\n[1.90-12.3]");
    assert_eq!(proportion(&ratio(0.98, None)), "0.98\n[?]");
}

#[test]
fn rates_keep_two_digits_at_least() {
    assert_eq!(
        [2_614_000.0, 461_400.0, 8_440.0, 12.0].map(packets),
        ["2.61 M", "461 k", "8.4 k", "12"]
    );
    assert_eq!(
        [25.4e9, 1.8e9, 0.46e9, 0.034e9].map(giga),
        ["25.4", "1.80", "0.46", "0.034"]
    );
}
