//! Objects as tables, and answers as JSON.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use ringside_gateway_core::table::Encapsulation;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    Ok(reader(input))
}

fn reader(input: Box<dyn io::Read>) -> csv::Reader<Box<dyn io::Read>> {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.trim(csv::Trim::All).comment(Some(b'#'));
    // As the reader counts lines by their ends, the last one has one, too.
    let input: Box<dyn io::Read> = Box::new(WithoutReturns(input).chain(&b"\n"[..]));
    reader.from_reader(input)
}

/// Input without carriage returns. With them a CSV reader is at the end of the line before, not at
/// the next line, behind a record.
struct WithoutReturns(Box<dyn io::Read>);

impl io::Read for WithoutReturns {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(buffer)?;
            let kept: Vec<u8> = (buffer.iter().take(read).copied())
                .filter(|byte| *byte != b'\r')
                .collect();
            buffer[..kept.len()].copy_from_slice(&kept);
            // Nothing is the end of the input.
            if !kept.is_empty() || read == 0 {
                return Ok(kept.len());
            }
        }
    }
}

/// Reads lines of a CSV file, each with its number in the file: blank lines and comments count,
/// too.
pub(super) fn lines<T: DeserializeOwned>(
    mut reader: csv::Reader<impl std::io::Read>,
) -> impl Iterator<Item = csv::Result<(u64, T)>> {
    let mut record = csv::StringRecord::new();
    let mut headers = reader.headers().cloned();
    std::iter::from_fn(move || {
        let headers = match &headers {
            Ok(headers) => headers,
            Err(_) => {
                return std::mem::replace(&mut headers, Ok(csv::StringRecord::new()))
                    .err()
                    .map(Err);
            }
        };
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        // The position of a record is where the reader was before it, at the first of the lines
        // that it skipped.
        let number = reader.position().line() - 1;
        // Errors name it.
        let mut position = record.position().cloned().unwrap_or_else(csv::Position::new);
        position.set_line(number);
        record.set_position(Some(position));
        Some(record.deserialize(Some(headers)).map(|line| (number, line)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_numbers_in_the_file() {
        for (end, last) in [("\n", "\n"), ("\n", ""), ("\r\n", "\r\n"), ("\r\n", "")] {
            let text = ["# of today", "number", "", "1", "", "# more", "", "2", "3"].join(end) + last;
            let reader = reader(Box::new(io::Cursor::new(text)));
            let read: Vec<(u64, u32)> = lines::<(u32,)>(reader)
                .map(|line| line.map(|(number, (value,))| (number, value)).unwrap())
                .collect();
            assert_eq!(read, [(4, 1), (8, 2), (9, 3)], "{end:?} {last:?}");
        }
    }
}
