//! Objects as tables, and answers as JSON.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use ringside_gateway_core::table::Encapsulation;
use ringside_measure::BadValue;
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

/// Columns of a CSV file.
pub(super) struct Columns {
    pub(super) required: &'static [&'static str],
    pub(super) optional: &'static [&'static str],
    /// True if other columns are ignored, false if they are an error.
    pub(super) allows_others: bool,
}

impl Columns {
    /// Checks the first line of a file.
    fn check(&self, header: &csv::StringRecord) -> Result<(), String> {
        let is_known = |name: &str| self.required.contains(&name) || self.optional.contains(&name);
        let names: Vec<&str> = header.iter().collect();
        let lacks: Vec<&str> = (self.required.iter().copied())
            .filter(|name| !names.contains(name))
            .collect();
        let is_repeated = |at: usize| is_known(names[at]) && names[..at].contains(&names[at]);
        let twice = (1..names.len()).find(|at| is_repeated(*at));
        let unknown = names.iter().find(|name| !self.allows_others && !is_known(name));
        let problem = match (twice, unknown) {
            _ if !lacks.is_empty() => format!("lacks {}", lacks.join(", ")),
            (Some(at), _) => format!("has {} twice", names[at]),
            (None, Some(name)) => format!("has {name}, which is no column"),
            (None, None) => return Ok(()),
        };
        Err(format!(
            "the header {problem}; expected is CSV whose first line names the columns {}, and if \
             wanted {}, with commas between them",
            self.required.join(", "),
            self.optional.join(", ")
        ))
    }
}

/// A line of a CSV file.
pub(super) trait Row: DeserializeOwned {
    const COLUMNS: Columns;
}

/// Reads a CSV file with comments; `-` is standard input. Returns its lines as [`lines`] does;
/// errors name file and line.
pub(super) fn csv<T: Row>(file: &Path) -> Result<impl Iterator<Item = Result<(u64, T)>>> {
    let input: Box<dyn std::io::Read> = match file.as_os_str().as_encoded_bytes() {
        b"-" => Box::new(std::io::stdin()),
        _ => {
            let opened = std::fs::File::open(file);
            Box::new(opened.with_context(|| format!("opening {}", file.display()))?)
        }
    };
    let name = file.display().to_string();
    let named = move |(number, error)| BadValue(format!("{name}, line {number}: {error}"));
    Ok(lines(reader(input)).map(move |line| Ok(line.map_err(&named)?)))
}

fn reader(input: Box<dyn io::Read>) -> csv::Reader<Box<dyn io::Read>> {
    let mut reader = csv::ReaderBuilder::new();
    // The reader's error about the number of fields has the line at which it began to skip.
    let reader = reader.flexible(true).trim(csv::Trim::All).comment(Some(b'#'));
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

/// A line, or what is wrong with it, each with its number.
type Line<T> = Result<(u64, T), (u64, String)>;

/// Reads lines of a CSV file, each with its number in the file: blank lines and comments count,
/// too. Errors have line numbers, too. A wrong header is reported first.
fn lines<T: Row>(mut reader: csv::Reader<impl std::io::Read>) -> impl Iterator<Item = Line<T>> {
    let read = reader.headers().cloned().map_err(|error| reason(&error));
    // An empty file has no lines.
    let checked = read.and_then(|header| match header.is_empty() {
        true => Ok(header),
        false => T::COLUMNS.check(&header).map(|()| header),
    });
    // The position of a record is where the reader was before it, at the first of the lines that
    // it skipped.
    let number = |reader: &csv::Reader<_>| reader.position().line().saturating_sub(1);
    let (header, wrong) = match checked {
        Ok(header) => (Some(header), None),
        Err(error) => (None, Some(Err((number(&reader), error)))),
    };
    let mut record = csv::StringRecord::new();
    let rows = std::iter::from_fn(move || {
        let header = header.as_ref()?;
        let line = match reader.read_record(&mut record) {
            Ok(false) => return None,
            Ok(true) if record.len() != header.len() => {
                Err(format!("{} fields, and the header has {}", record.len(), header.len()))
            }
            Ok(true) => {
                let read = record.deserialize(Some(header));
                read.map_err(|error| wrong_field(&error, [header, &record]))
            }
            Err(error) => Err(reason(&error)),
        };
        let number = number(&reader);
        Some(line.map(|line| (number, line)).map_err(|error| (number, error)))
    });
    wrong.into_iter().chain(rows)
}

/// Returns what is wrong, without the reader's position.
fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns which column has which wrong value.
fn wrong_field(error: &csv::Error, [header, record]: [&csv::StringRecord; 2]) -> String {
    let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
        return reason(error);
    };
    let at = err.field().and_then(|at| usize::try_from(at).ok());
    let named = at.and_then(|at| header.get(at).zip(record.get(at)));
    match named {
        Some((name, value)) => format!("{name}: {value:?}: {}", err.kind()),
        None => err.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Numbered {
        number: u32,
    }

    impl Row for Numbered {
        const COLUMNS: Columns = Columns {
            required: &["number"],
            optional: &[],
            allows_others: false,
        };
    }

    #[test]
    fn lines_have_their_numbers_in_the_file() {
        for (end, last) in [("\n", "\n"), ("\n", ""), ("\r\n", "\r\n"), ("\r\n", "")] {
            let text = ["# of today", "number", "", "1", "", "# more", "", "2", "3"].join(end) + last;
            let reader = reader(Box::new(io::Cursor::new(text)));
            let read: Vec<(u64, u32)> = lines::<Numbered>(reader)
                .map(|line| {
                    line.map(|(number, Numbered { number: value })| (number, value))
                        .unwrap()
                })
                .collect();
            assert_eq!(read, [(4, 1), (8, 2), (9, 3)], "{end:?} {last:?}");
        }
    }

    #[test]
    fn errors_have_the_number_of_their_line() {
        for end in ["\n", "\r\n"] {
            let lines = ["# of today", "number", "", "1", "", "# more", "", "2,3", "x", "4"];
            let reader = reader(Box::new(io::Cursor::new(lines.join(end))));
            let read: Vec<Result<u64, (u64, String)>> = super::lines::<Numbered>(reader)
                .map(|line| line.map(|(number, _)| number))
                .collect();
            let [Ok(4), Err((8, fields)), Err((9, value)), Ok(10)] = &read[..] else {
                panic!("{read:?}")
            };
            assert_eq!(fields, "2 fields, and the header has 1");
            assert_eq!(value, "number: \"x\": invalid digit found in string");
        }
    }
}
