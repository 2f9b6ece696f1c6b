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
fn plain_numbers_keep_the_unit_of_their_option() {
    let second = Duration::from_secs(1);
    let millis = |text: &str| time_or(Duration::from_millis(1), &(Duration::ZERO..=second), text);
    assert_eq!(millis("200"), Some(Duration::from_millis(200)));
    assert_eq!(millis("200us"), Some(Duration::from_micros(200)));
    for text in ["1001", "2s", "-1", "nan", "", "1 ms"] {
        assert_eq!(millis(text), None, "{text}");
    }
    for (text, expected) in [
        ("0", 0),
        ("10", 10),
        ("10us", 10),
        ("1.5ms", 1500),
        ("2000s", 2_000_000_000),
    ] {
        assert_eq!(micros(text), Ok(expected), "{text}");
    }
    for text in ["0.5", "500ns", "2000000001", "10k", "x"] {
        assert!(
            micros(text).is_err_and(|error| error.contains("whole microseconds")),
            "{text}"
        );
    }
    assert_eq!(budget("0"), Ok(Duration::ZERO));
}
