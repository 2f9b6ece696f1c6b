//! By which time what was deleted grows old, across starts.

use rusqlite::{Connection, OptionalExtension as _};

use super::{Reader, Row, Store, StoreError, failed};
use crate::object::{Group, Neighbor, Port};

/// In `meta`: the time when it was noted last.
const CLOCK: &str = "clock";

impl Store {
    /// The newest time that it knows of, in seconds since 1970: when something was deleted, or what [`Store::set_clock`] noted. None:
    /// it knows of none.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn clock(&self) -> Result<Option<i64>, StoreError> {
        let read = || {
            let query = "SELECT value FROM meta WHERE name = ?1";
            let noted = self.connection.query_row(query, [CLOCK], |row| row.get(0));
            Ok(noted.optional()?.max(newest(&self.connection)?))
        };
        read().map_err(|source| self.failed("reading its time", source))
    }

    /// Notes what time it is, if something is remembered that grows old.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn set_clock(&mut self, now: i64) -> Result<(), StoreError> {
        let set = || {
            if newest(&self.connection)?.is_some() {
                let put = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
                self.connection.execute(put, (CLOCK, now))?;
            }
            Ok(())
        };
        set().map_err(|source| self.failed("noting its time", source))
    }
}

impl Reader {
    /// When what was deleted last was deleted, in seconds since 1970.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub(crate) fn newest_deletion(&self) -> Result<Option<i64>, StoreError> {
        newest(&self.connection).map_err(|source| failed(&self.path, "looking when something was deleted", source))
    }
}

fn newest(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let of = |table: &str| {
        let query = format!("SELECT max(deleted) FROM {table} WHERE deleted IS NOT NULL");
        connection.query_row(&query, [], |row| row.get::<_, Option<i64>>(0))
    };
    let all = [of(Neighbor::TABLE)?, of(Port::TABLE)?, of(Group::TABLE)?];
    Ok(all.into_iter().flatten().max())
}
