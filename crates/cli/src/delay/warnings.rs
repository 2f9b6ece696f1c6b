//! All that a reader of the figures has to know.

use ringside_measure::compare::STEAL_LIMIT;

use super::series::{Series, cell_name};
use super::table;

/// Medians of turns that differ by less are what turns are like.
const FAR_APART: f64 = 1.25;

/// What there was to be said before the first turn, and what the turns have shown.
pub(super) fn all(mut warnings: Vec<String>, cells: &[Series], impossible: u64) -> Vec<String> {
    if let Some(warning) = cells.iter().find_map(Series::busy_warning) {
        warnings.push(format!(
            "{warning}. The cells of busy-poll show what its system calls cost on top of spinning"
        ));
    }
    if let Some(reason) = cells.iter().find_map(|series| series.unprivileged.as_ref()) {
        warnings.push(format!(
            "the test bed's sender has no real-time priority ({reason}): where it shares the CPU with an application that \
             spins, packets come less evenly"
        ));
    }
    let disturbance = cells.iter().filter_map(Series::disturbance).fold(0.0, f64::max);
    if disturbance > STEAL_LIMIT * 100.0 {
        warnings.push(format!(
            "disturbed: other processes had the CPU of a spinning application for up to {disturbance:.0} % of the time; on a \
             quiet machine the upper percentiles and the longest delays are lower"
        ));
    }
    warnings.extend(unsteady(cells));
    if impossible != 0 {
        warnings.push(format!(
            "{impossible} packets were dequeued before the XDP program saw them: the clocks of the CPUs do not agree"
        ));
    }
    warnings
}

/// Turns of one cell whose medians are far apart: a distribution over all of them is that of several machines.
#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn unsteady(cells: &[Series]) -> Option<String> {
    let medians = cells.iter().filter_map(|series| {
        let (least, most) = series.medians()?;
        Some((series.cell, least as f64, most as f64))
    });
    let apart: Vec<_> = medians.filter(|(_, least, most)| *most > least * FAR_APART).collect();
    let ratio = |(_, least, most): &(_, f64, f64)| most / least.max(1.0);
    let worst = apart.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let &(cell, least, most) = worst;
    Some(format!(
        "the machine was not the same all the time: in {} of the cells the medians of the turns differ by more than a quarter, \
         most in {}, from {} to {} µs (JSON has every turn)",
        apart.len(),
        cell_name(cell),
        table::micros(least),
        table::micros(most)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::{cell, reading, series};
    use super::*;

    #[test]
    fn turns_that_are_far_apart_are_told() {
        let steady = || {
            let mut steady = series(cell());
            steady.add(Ok(reading(1_000..1_200, 0.0)));
            steady.add(Ok(reading(1_100..1_300, 0.0)));
            // Left out, and so it does not matter what it was.
            steady.add(Ok(reading(9_000..9_200, 0.5)));
            steady
        };
        assert_eq!(unsteady(&[steady()]), None);
        let mut moody = steady();
        moody.add(Ok(reading(3_000..3_200, 0.0)));
        let told = unsteady(&[steady(), moody]).expect("a warning");
        assert!(told.contains("in 1 of the cells"), "{told}");
        assert!(
            told.contains("spin, other core, C-states as is, from 1.099 to 3.09"),
            "{told}"
        );
    }
}
