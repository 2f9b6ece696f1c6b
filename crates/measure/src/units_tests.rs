use super::*;

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
        ("2m", 120_000),
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

#[test]
fn takes_counts_of_a_range() {
    let parse = count_in(1..=65_536_u32);
    assert_eq!(parse("65536"), Ok(65_536));
    assert_eq!(parse("10k"), Ok(10_000));
    for text in ["0", "66k", "5G", "-1"] {
        let error = parse(text).unwrap_err();
        assert!(
            error.contains("no number from 1 to 65536; write one such as"),
            "{error}"
        );
    }
}

#[test]
fn takes_bytes_with_a_k_of_1000() {
    let parse = bytes_in(60..=3000_u16);
    for (text, expected) in [("64", 64), ("1k", 1000), ("1.5k", 1500), ("3k", 3000)] {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
    for text in ["59", "3.1k", "1KiB", "1K", "1.0005k", ""] {
        let error = parse(text).unwrap_err();
        assert!(error.contains("no number of bytes from 60 to 3000"), "{error}");
    }
}

#[test]
fn takes_counts_with_and_without_a_unit() {
    for (text, expected) in [("1", 1), ("10k", 10_000), ("2.5M", 2_500_000), ("1G", 1_000_000_000)] {
        assert_eq!(count(text), Ok(expected), "{text}");
    }
    for text in ["", "0", "k", "1.0005k", "10K", "99999999999G"] {
        assert!(count(text).is_err(), "{text}");
    }
    assert_eq!(number("0"), Some(0));
}
