//! What becomes of rows and files that are damaged.

use std::path::Path;
use std::time::SystemTime;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::{Loaded, Row, StoreError, connect, row, with_suffix};
use crate::object::{Change, Group, Neighbor, Object as _, Port, Statement};

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

/// Moves rows out of the way, and puts there what holds in their place.
pub(super) fn quarantine(connection: &mut Connection, bad: &[Bad]) -> rusqlite::Result<()> {
    if bad.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for bad in bad {
        transaction.execute(
            "INSERT INTO quarantine (origin, reason, row) VALUES (?1, ?2, ?3)",
            [bad.table, &bad.reason, &bad.shown],
        )?;
        transaction.execute(
            &format!("DELETE FROM {} WHERE {}", bad.table, bad.condition),
            rusqlite::params_from_iter(&bad.keys),
        )?;
    }
    let instead = bad.iter().filter_map(|bad| bad.instead.as_ref());
    super::write::<Port>(&transaction, instead.filter_map(Port::of), 0)?;
    transaction.commit()
}

/// Sets a damaged file aside, makes a new one with what can be read of it, and tells about it.
pub(super) fn replace(path: &Path, why: &rusqlite::Error) -> Result<(Connection, String), StoreError> {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let aside = with_suffix(path, &format!(".damaged-{seconds}"));
    // The log first: what is in it belongs to the file that it stands beside.
    for suffix in ["-wal", "-shm", ""] {
        let (from, to) = (with_suffix(path, suffix), with_suffix(&aside, suffix));
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::File {
                    path: path.to_owned(),
                    action: "setting the damaged file aside",
                    source: error,
                });
            }
            _ => {}
        }
    }
    let mut connection = connect(path)?;
    let saved =
        save(&aside, &mut connection).map_err(|source| super::failed(path, "saving what can be read", source))?;
    let told = format!(
        "the store {}: the file was damaged ({why}) and is now {}; {} objects could be read and are in use, others \
         are missing: put everything anew",
        path.display(),
        aside.display(),
        saved.objects
    );
    Ok((connection, told))
}

/// Copies what can be read, with tombstones.
fn save(from: &Path, to: &mut Connection) -> rusqlite::Result<Loaded> {
    let mut loaded = Loaded::default();
    let Ok(old) = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE) else {
        return Ok(loaded);
    };
    copy::<Group>(&old, to, &mut loaded)?;
    copy::<Port>(&old, to, &mut loaded)?;
    copy::<Neighbor>(&old, to, &mut loaded)?;
    Ok(loaded)
}

fn copy<O: Row>(old: &Connection, to: &mut Connection, loaded: &mut Loaded) -> rusqlite::Result<()> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    // Up to the damage from the one end, then from the other.
    for end in [End::First, End::Last] {
        let mut written = Ok(());
        let read = scan::<O>(old, end, loaded, &mut |changes, _| {
            // Times of deletion start anew.
            if written.is_ok() {
                written = (|| {
                    let transaction = to.transaction()?;
                    super::write::<O>(&transaction, changes.iter().filter_map(O::of), now.cast_signed())?;
                    transaction.commit()
                })();
            }
        });
        written?;
        match read {
            Ok(bad) => {
                let instead = bad.iter().filter_map(|bad| bad.instead.as_ref());
                return super::write::<Port>(to, instead.filter_map(Port::of), 0);
            }
            Err(error) if error.sqlite_error().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
