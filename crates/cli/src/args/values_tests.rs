use super::*;

#[test]
fn takes_numbers_with_and_without_a_unit() {
    for (text, expected) in [
        ("1", 1),
        ("100000", 100_000),
        ("10k", 10_000),
        ("2M", 2_000_000),
        ("2.5M", 2_500_000),
        ("0.5k", 500),
        ("1G", 1_000_000_000),
    ] {
        assert_eq!(rate(text), Ok(expected), "{text}");
        assert_eq!(count(text), Ok(expected), "{text}");
    }
    for text in [
        "",
        "k",
        ".5k",
        "1.5",
        "1.0005k",
        "-1",
        "+-1",
        "1e9",
        "10K",
        "10 k",
        "99999999999G",
        "1.-5k",
    ] {
        assert!(count(text).is_err() && rate(text).is_err(), "{text}");
    }
    assert!(rate("0").is_err_and(|error| error.contains("0 sends nothing")));
    assert!(rate("2000G").is_err() && count("0").is_err());
}

#[test]
fn takes_times_with_and_without_a_unit() {
    for (text, millis) in [
        ("10", 10_000),
        ("0.5", 500),
        ("10s", 10_000),
        ("500ms", 500),
        ("250000us", 250),
        ("250000\u{b5}s", 250),
        ("250000\u{3bc}s", 250),
        ("2min", 120_000),
        ("1h", 3_600_000),
    ] {
        assert_eq!(seconds(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in [
        "0",
        "0s",
        "-1",
        "nan",
        "inf",
        "1e30",
        "ten",
        "10 seconds",
        "",
        "400000h",
    ] {
        assert!(seconds(text).is_err_and(|error| error.contains("no time")), "{text}");
    }
}
