//! What the store has lost, until somebody says that it is there again.
//!
//! An address without a port may do anything, so the store also remembers whether ports may be among what was lost: until then
//! addresses without one may do nothing ([`crate::model`]). A copy of a fleet's state needs neither, for etcd has all of it.

use rusqlite::{Connection, OptionalExtension as _};

use super::{Store, StoreError};

/// In `meta`: what was lost and why, for people, a line each; and that it may have been ports.
const MISSING: &str = "missing";
const PORTS: &str = "ports-missing";

/// Older lines are forgotten: who has not read these reads no more of them.
const MOST_LINES: usize = 8;

impl Store {
    /// What was lost and was not put anew yet, as far as anybody said: for people, with what to do.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn missing(&self) -> Result<Vec<String>, StoreError> {
        let read = lines(&self.connection);
        read.map_err(|source| self.failed("reading what it has lost", source))
    }

    /// Whether ports may be among it, so that an address without one is not known to have had none.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn may_lack_ports(&self) -> Result<bool, StoreError> {
        let read = lacks_ports(&self.connection);
        read.map_err(|source| self.failed("reading whether it has lost ports", source))
    }

    /// Nothing is missing any more.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn repaired(&mut self) -> Result<(), StoreError> {
        let written = forget(&self.connection);
        written.map_err(|source| self.failed("noting that nothing is missing", source))
    }
}

/// How a line ends.
pub(super) fn what_to_do(may_lack_ports: bool) -> &'static str {
    if may_lack_ports {
        ". Ports may be missing, so addresses without one may neither send nor get anything: put everything anew, ports above all, then \
         say `ringside gateway repaired`"
    } else {
        ". Put everything anew, then say `ringside gateway repaired`"
    }
}

/// Adds a line.
pub(super) fn note(connection: &Connection, line: &str, may_lack_ports: bool) -> rusqlite::Result<()> {
    let mut all = lines(connection)?;
    all.push(line.replace('\n', " "));
    let last = all.len().saturating_sub(MOST_LINES);
    let put = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
    connection.execute(put, (MISSING, all[last..].join("\n")))?;
    if may_lack_ports {
        connection.execute(put, (PORTS, 1))?;
    }
    Ok(())
}

/// In one statement, so wholly or not at all.
pub(super) fn forget(connection: &Connection) -> rusqlite::Result<()> {
    let forget = "DELETE FROM meta WHERE name IN (?1, ?2)";
    connection.execute(forget, [MISSING, PORTS]).map(drop)
}

pub(super) fn lines(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let query = "SELECT value FROM meta WHERE name = ?1";
    let found: Option<String> = connection.query_row(query, [MISSING], |row| row.get(0)).optional()?;
    Ok(found.iter().flat_map(|text| text.lines()).map(str::to_owned).collect())
}

pub(super) fn lacks_ports(connection: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM meta WHERE name = ?1)";
    connection.query_row(query, [PORTS], |row| row.get(0))
}
