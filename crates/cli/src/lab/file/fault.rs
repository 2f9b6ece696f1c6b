//! What is wrong with a file, and where: its line, and the key.

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::args::BadValue;

/// The text of a file, and what it is called.
#[derive(Clone, Debug)]
pub(in crate::lab) struct Text {
    pub(in crate::lab) name: String,
    pub(in crate::lab) text: String,
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::lab) struct Fault {
    /// From 1 on; `None` for what is missing as a whole.
    line: Option<usize>,
    key: Option<String>,
    message: String,
}

/// All that is wrong with a file: at least one.
#[derive(Debug)]
pub(in crate::lab) struct Faults {
    name: String,
    faults: Vec<Fault>,
}

impl Text {
    /// Reads its values, or says where the first is that cannot be.
    pub(in crate::lab) fn read<T: DeserializeOwned>(&self) -> Result<T, Faults> {
        toml::from_str(&self.text).map_err(|error| {
            // The parser's own words, on one line.
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            self.faults(vec![self.at(error.span().as_ref(), message)])
        })
    }

    /// Something wrong at a place.
    pub(in crate::lab) fn at(&self, span: Option<&Range<usize>>, message: impl Into<String>) -> Fault {
        let line = |at: usize| 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        Fault {
            // Of a whole table the header's.
            line: span.map(|span| line(span.start)),
            key: span.and_then(|span| self.key(span.start)),
            message: message.into(),
        }
    }

    pub(in crate::lab) fn faults(&self, faults: Vec<Fault>) -> Faults {
        Faults {
            name: self.name.clone(),
            faults,
        }
    }

    /// The key that has its name or its value there, with those that it is below.
    fn key(&self, at: usize) -> Option<String> {
        // What cannot be parsed at all has no keys.
        let table = DeTable::parse(&self.text).ok()?;
        let mut path = Vec::new();
        find(table.get_ref(), at, &mut path).then(|| path.join("."))
    }
}

fn find(table: &DeTable<'_>, at: usize, path: &mut Vec<String>) -> bool {
    table.iter().any(|(key, value)| {
        path.push(key.get_ref().to_string());
        let found = key.span().contains(&at) || inside(value.get_ref(), at, path) || value.span().contains(&at);
        if !found {
            path.pop();
        }
        found
    })
}

fn inside(value: &DeValue<'_>, at: usize, path: &mut Vec<String>) -> bool {
    match value {
        DeValue::Table(table) => find(table, at, path),
        DeValue::Array(items) => items
            .iter()
            .any(|item| inside(item.get_ref(), at, path) || item.span().contains(&at)),
        _ => false,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "key {key}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [one] => write!(f, "the lab file {}, {one}", self.name),
            all => {
                write!(f, "the lab file {} has {} faults:", self.name, all.len())?;
                all.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

impl std::error::Error for Faults {}

impl From<Faults> for BadValue {
    fn from(faults: Faults) -> Self {
        Self(faults.to_string())
    }
}
