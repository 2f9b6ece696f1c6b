//! The histograms as comma-separated values.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::series::{Series, c_states_name, core_name, wait_name};

/// One line for each bucket that has samples: where they lie, and how many they are.
pub(super) fn write(path: &Path, cells: &[Series]) -> Result<()> {
    fs::write(path, text(cells)).with_context(|| format!("--csv {}: writing the histograms", path.display()))
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
