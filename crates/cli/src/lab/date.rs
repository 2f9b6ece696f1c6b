//! Dates for names of folders.

/// `20261123-013005`, of seconds since 1970, in UTC.
pub(super) fn stamp(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (mut year, mut day) = (1970, days);
    while day >= days_of(year) {
        day -= days_of(year);
        year += 1;
    }
    let february = 28 + u64::from(days_of(year) == 366);
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!(
        "{year:04}{month:02}{:02}-{:02}{:02}{:02}",
        day + 1,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn days_of(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if is_leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::stamp;

    #[test]
    fn dates_are_those_of_date() {
        // By `date -u -d @N +%Y%m%d-%H%M%S`.
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_709_210_096, "20240229-123456"),
            (1_795_399_205, "20261123-020005"),
            (4_107_542_400, "21000301-000000"),
        ] {
            assert_eq!(stamp(seconds), text, "{seconds}");
        }
    }
}
