//! The tables, and how old ones become new ones.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::{StoreError, failed};

/// By which the file tells what it is: "Ring". SQLite keeps it in the file's header.
const APPLICATION: i64 = 0x5269_6e67;
/// By which a copy of a fleet's state does: "Rinc". It stands there so that it can be read as long as anything of the file can.
const COPY: i64 = 0x5269_6e63;

/// Each brings the one before up to date. Never changed once it was released, only added to.
const VERSIONS: [&str; 2] = [
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('revision', 0);
    CREATE TABLE neighbors (
        vni INTEGER, ip BLOB, mac BLOB, host_ip BLOB, host_mac BLOB, port INTEGER, encapsulation TEXT,
        version INTEGER NOT NULL, deleted INTEGER, checksum INTEGER NOT NULL,
        PRIMARY KEY (vni, ip)
    ) WITHOUT ROWID;
    CREATE TABLE ports (
        vni INTEGER, ip BLOB, security_groups TEXT,
        version INTEGER NOT NULL, deleted INTEGER, checksum INTEGER NOT NULL,
        PRIMARY KEY (vni, ip)
    ) WITHOUT ROWID;
    CREATE TABLE security_groups (
        id INTEGER PRIMARY KEY, name TEXT, rules TEXT,
        version INTEGER NOT NULL, deleted INTEGER, checksum INTEGER NOT NULL
    );",
    // Tombstones are found without a look at every row, and damaged rows have a place.
    "CREATE INDEX neighbors_deleted ON neighbors (deleted) WHERE deleted IS NOT NULL;
    CREATE INDEX ports_deleted ON ports (deleted) WHERE deleted IS NOT NULL;
    CREATE INDEX security_groups_deleted ON security_groups (deleted) WHERE deleted IS NOT NULL;
    CREATE TABLE quarantine (
        found TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, origin TEXT NOT NULL, reason TEXT NOT NULL, row TEXT NOT NULL
    );",
];

const LATEST: i64 = VERSIONS.len() as i64;

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))
}

/// Refuses what this program cannot or should not write.
pub(super) fn check(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let read = || {
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((
            number(connection, "application_id")?,
            number(connection, "user_version")?,
            tables,
        ))
    };
    let (application, version, tables) = read().map_err(|source| failed(path, "reading what it is", source))?;
    let path = path.to_owned();
    match (application, tables) {
        (0, 0) => Ok(()),
        (APPLICATION | COPY, _) if version <= LATEST => Ok(()),
        (APPLICATION | COPY, _) => Err(StoreError::Newer {
            path,
            found: version,
            known: LATEST,
        }),
        _ => Err(StoreError::Foreign { path }),
    }
}

/// Whether it says that it is a copy of a fleet's state. Those that programs before this one made say so only in `meta`.
pub(super) fn is_copy(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(number(connection, "application_id")? == COPY)
}

/// Has it say whether it is one.
pub(super) fn set_copy(connection: &Connection, is_copy: bool) -> rusqlite::Result<()> {
    let application = if is_copy { COPY } else { APPLICATION };
    connection.pragma_update(None, "application_id", application)
}

/// Brings the tables up to date, wholly or not at all.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let version = number(connection, "user_version")?;
    if version == LATEST {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for script in VERSIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(script)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", LATEST)?;
    transaction.commit()
}
