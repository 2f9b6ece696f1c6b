//! Objects as tables, and answers as JSON.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use ringside_gateway_core::table::Encapsulation;
use serde::Serialize;

use crate::object::text::Text;
use crate::object::{Group, Neighbor, Port};

/// An object that has a line in a table.
pub(super) trait Shown: Text {
    const HEADER: &'static [&'static str];

    fn line(&self) -> Vec<String>;
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl Shown for Neighbor {
    const HEADER: &'static [&'static str] = &[
        "vni",
        "ip",
        "mac",
        "host",
        "host mac",
        "port",
        "encapsulation",
        "version",
    ];

    fn line(&self) -> Vec<String> {
        vec![
            self.address.vni.to_string(),
            self.address.ip.to_string(),
            self.mac.to_string(),
            self.host.ip.to_string(),
            or_dash(self.host.mac),
            or_dash(self.host.port),
            or_dash(self.host.encapsulation.map(Encapsulation::name)),
            self.version.to_string(),
        ]
    }
}

impl Shown for Port {
    const HEADER: &'static [&'static str] = &["vni", "ip", "groups", "version"];

    fn line(&self) -> Vec<String> {
        let groups: Vec<String> = self.groups.iter().map(|group| group.0.to_string()).collect();
        vec![
            self.address.vni.to_string(),
            self.address.ip.to_string(),
            if groups.is_empty() {
                "-".to_owned()
            } else {
                groups.join(",")
            },
            self.version.to_string(),
        ]
    }
}

impl Shown for Group {
    const HEADER: &'static [&'static str] = &["id", "name", "rules", "version"];

    fn line(&self) -> Vec<String> {
        vec![
            self.id.0.to_string(),
            or_dash(Some(&self.name).filter(|name| !name.is_empty())),
            self.rules.len().to_string(),
            self.version.to_string(),
        ]
    }
}

/// Prints some lines.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints one JSON text, on a line if it is one of many.
pub(super) fn json(value: &impl Serialize, one_of_many: bool) -> Result<()> {
    match one_of_many {
        true => print(&serde_json::to_string(value)?),
        false => print(&serde_json::to_string_pretty(value)?),
    }
}

/// Numbers to the right, as far as there are some.
pub(super) fn table<'a>(
    header: &[&str],
    lines: impl Iterator<Item = Vec<String>>,
    right: impl IntoIterator<Item = &'a usize>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for line in lines {
        table.add_row(line);
    }
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Opens a CSV file with comments; `-` is standard input.
pub(super) fn csv(file: &Path) -> Result<csv::Reader<Box<dyn std::io::Read>>> {
    let input: Box<dyn std::io::Read> = match file.as_os_str().as_encoded_bytes() {
        b"-" => Box::new(std::io::stdin()),
        _ => {
            let opened = std::fs::File::open(file);
            Box::new(opened.with_context(|| format!("opening {}", file.display()))?)
        }
    };
    let mut reader = csv::ReaderBuilder::new();
    Ok(reader.trim(csv::Trim::All).comment(Some(b'#')).from_reader(input))
}
