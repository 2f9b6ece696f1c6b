//! What becomes of rows that are damaged; of files: [`super::salvage`].

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::{Loaded, Row, row};
use crate::object::{Change, Object as _, Port, Statement};

/// Objects that are handed on at once: as many as fit the CPU's cache.
const BATCH: usize = 4096;

/// A row that is damaged.
#[derive(Debug)]
pub(super) struct Bad {
    table: &'static str,
    /// A condition that finds the row, with the values of its key.
    condition: String,
    keys: Vec<rusqlite::types::Value>,
    reason: String,
    /// All its values, for people.
    shown: String,
    /// What holds in its place.
    pub(super) instead: Option<Change>,
}

/// From which end rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// Reads all rows of a kind, hands on what is sound and returns the rest.
pub(super) fn scan<O: Row>(
    connection: &Connection,
    from: End,
    loaded: &mut Loaded,
    each: &mut dyn FnMut(&[Change], &[i64]),
) -> rusqlite::Result<Vec<Bad>> {
    let mut statement = connection.prepare(&format!(
        "SELECT {} FROM {} ORDER BY {}",
        row::columns::<O>(),
        O::TABLE,
        match from {
            End::First => O::KEYS.join(", "),
            End::Last => format!("{} DESC", O::KEYS.join(" DESC, ")),
        }
    ))?;
    let mut rows = statement.query([])?;
    let (mut batch, mut deleted, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => {
                // What came before it is good.
                each(&batch, &deleted);
                return Err(error);
            }
        };
        match row::read::<O>(row) {
            Ok((statement, when)) => {
                match statement {
                    Statement::Put(_) => loaded.objects += 1,
                    Statement::Delete(..) => loaded.tombstones += 1,
                }
                batch.push(O::into_change(statement));
                deleted.push(when.unwrap_or(0));
                if batch.len() == BATCH {
                    each(&batch, &deleted);
                    batch.clear();
                    deleted.clear();
                }
            }
            Err(reason) => bad.push(Bad::of::<O>(row, reason)?),
        }
    }
    each(&batch, &deleted);
    Ok(bad)
}

impl Bad {
    /// Whether it was a port: of which address nobody knows, for that may be what is damaged.
    pub(super) fn is_port(&self) -> bool {
        self.table == Port::TABLE
    }

    fn of<O: Row>(row: &rusqlite::Row<'_>, reason: String) -> rusqlite::Result<Self> {
        let condition: Vec<String> = O::KEYS.iter().map(|column| format!("{column} IS ?")).collect();
        let show = |at: usize| -> rusqlite::Result<String> {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => "NULL".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => number.to_string(),
                ValueRef::Text(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            })
        };
        let columns = O::KEYS.len() + O::VALUES.len() + 3;
        let shown: Vec<String> = (0..columns).map(show).collect::<Result<_, _>>()?;
        Ok(Self {
            table: O::TABLE,
            condition: condition.join(" AND "),
            keys: (0..O::KEYS.len()).map(|at| row.get(at)).collect::<Result<_, _>>()?,
            reason,
            shown: shown.join(", "),
            instead: (O::read_key(row).ok())
                .and_then(O::instead)
                .map(|object| O::into_change(Statement::Put(object))),
        })
    }
}

/// Moves rows out of the way, and puts there what holds in their place; in a transaction of the caller's.
pub(super) fn quarantine(connection: &Connection, bad: &[Bad]) -> rusqlite::Result<()> {
    for bad in bad {
        connection.execute(
            "INSERT INTO quarantine (origin, reason, row) VALUES (?1, ?2, ?3)",
            [bad.table, &bad.reason, &bad.shown],
        )?;
        connection.execute(
            &format!("DELETE FROM {} WHERE {}", bad.table, bad.condition),
            rusqlite::params_from_iter(&bad.keys),
        )?;
    }
    let instead = bad.iter().filter_map(|bad| bad.instead.as_ref());
    super::write::<Port>(connection, instead.filter_map(Port::of), 0)
}
