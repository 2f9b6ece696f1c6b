//! Figures for people: three digits and a unit.

use std::fmt::Display;

/// `4.88 M`, `854 k`, `12`, `0.35`
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, prefix) = match size {
        _ if size >= 1e9 => (value / 1e9, " G"),
        _ if size >= 1e6 => (value / 1e6, " M"),
        _ if size >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    format!("{}{prefix}", digits(scaled))
}

/// `4.23 µs`, `1.02 ms`, `850 ns`
pub(crate) fn time(ns: f64) -> String {
    let size = ns.abs();
    let (scaled, unit) = match size {
        _ if size >= 1e9 => (ns / 1e9, "s"),
        _ if size >= 1e6 => (ns / 1e6, "ms"),
        _ if size >= 1e3 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    format!("{} {unit}", digits(scaled))
}

/// `1 cell`, `12 cells`
pub(crate) fn plural<N: Display + From<u8> + PartialEq>(number: N, noun: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Three digits that count, but no more than two decimals.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if size < 0.005 {
        return "0".to_owned();
    }
    // Rounded first: 9.996 is 10.0, not 10.00.
    match size {
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let all = [
            0.0,
            0.001,
            0.351,
            9.996,
            99.96,
            854_321.0,
            4_876_543.0,
            1.5e9,
            -12_300.0,
        ]
        .map(short);
        assert_eq!(
            all,
            ["0", "0", "0.35", "10.0", "100", "854 k", "4.88 M", "1.50 G", "-12.3 k"]
        );
        let all = [850.0, 4_230.0, 1_024_000.0, 2.5e9].map(time);
        assert_eq!(all, ["850 ns", "4.23 µs", "1.02 ms", "2.50 s"]);
    }

    #[test]
    fn one_is_singular() {
        let all = [0_u64, 1, 2].map(|number| plural(number, "cell"));
        assert_eq!(all, ["0 cells", "1 cell", "2 cells"]);
    }
}
