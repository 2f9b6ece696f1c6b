//! The histograms as comma-separated values.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::series::{Series, c_states_name, core_name, wait_name};

/// One line for each bucket that has samples: where they lie, and how many they are.
pub(super) fn write(path: &Path, cells: &[Series]) -> Result<()> {
    crate::files::write(path, text(cells)).with_context(|| format!("--csv {}: writing the histograms", path.display()))
}

fn text(cells: &[Series]) -> String {
    let mut text = String::from("wait,core,c_states,from_ns,to_ns,samples\n");
    for series in cells {
        let (cell, latency) = (series.cell, series.delays().latency());
        for bucket in latency.buckets() {
            _ = writeln!(
                text,
                "{},{},{},{},{},{}",
                wait_name(cell.wait),
                core_name(cell.core),
                c_states_name(cell.c_states).replace(' ', "-"),
                bucket.from_ns,
                bucket.to_ns,
                bucket.samples
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::{cell, reading, series};
    use super::*;

    #[test]
    fn every_sample_is_in_a_line_of_its_cell() {
        let mut spin = series(cell());
        spin.add(Ok(reading(1_000..1_500, 0.0)));
        spin.add(Ok(reading(1_200..1_300, 0.0)));
        let empty = series(cell());
        let text = text(&[spin, empty]);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("wait,core,c_states,from_ns,to_ns,samples"));
        let mut sum = 0;
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields[..3], ["spin", "other", "as-is"], "{line}");
            let [from, to, samples] = [3, 4, 5].map(|at| fields[at].parse::<u64>().unwrap());
            assert!((1_000..1_500).contains(&from) && from <= to, "{line}");
            sum += samples;
        }
        assert_eq!(sum, 600);
    }
}
