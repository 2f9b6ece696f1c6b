//! A store that is not the truth but what was last known of it: a fleet's state is in etcd.
//!
//! It holds what the tables hold, and as of which revision. A start without etcd has that; and questions are answered from it, as
//! from any store. Nothing is lost when its last transactions are, so they are not waited for (`synchronous=NORMAL`): after
//! a power loss it is older, and whole.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::{Reader, Role, Row, Store, StoreError, failed, loss, next_revision, row, schema};
use crate::fleet::FleetName;
use crate::fleet::sync::Mark;
use crate::model::{Made, Working};
use crate::object::{Change, Group, Neighbor, Port, Statement};

/// In `meta`: whose state it is (bytes), etcd's cluster, and the revision.
const FLEET: &str = "fleet";
const CLUSTER: &str = "fleet-cluster";
const REVISION: &str = "fleet-revision";
/// In `meta` as well: 1 if etcd holds values that could not be read.
const UNREAD: &str = "fleet-unread";

impl Store {
    /// Opens a store that mirrors a fleet's state, makes one where there is none, and brings an old one up to date.
    ///
    /// # Errors
    /// Those of [`StoreError`]; [`StoreError::NotOfFleet`] if it holds what etcd does not know.
    pub fn open_mirror(path: &Path) -> Result<Self, StoreError> {
        Self::open_mirror_with(path, &Working::default())
    }

    /// The same, with signs that it goes on.
    ///
    /// # Errors
    /// Those of [`Self::open_mirror`].
    pub fn open_mirror_with(path: &Path, working: &Working) -> Result<Self, StoreError> {
        let store = Self::open_any(path, Role::Copy, working)?;
        let says_copy = store.says_copy()?;
        let is_copy = says_copy || store.mark()?.is_some();
        let empty = is_empty(&store.connection);
        if !is_copy && !empty.map_err(|source| store.failed("looking whether it is empty", source))? {
            return Err(StoreError::NotOfFleet { path: path.to_owned() });
        }
        let set_up = (|| {
            // One that a program before this one made does not say so there.
            if is_copy && !says_copy {
                schema::set_copy(&store.connection, true)?;
            }
            store.connection.pragma_update(None, "synchronous", "NORMAL")
        })();
        set_up.map_err(|source| store.failed("setting it up", source))?;
        Ok(store)
    }

    /// Whether its header says that it is a copy, whatever else can be read of it.
    pub(super) fn says_copy(&self) -> Result<bool, StoreError> {
        schema::is_copy(&self.connection).map_err(|source| self.failed("reading what it is", source))
    }

    /// Whose state it mirrors; None: it is the truth itself, or empty.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn mark(&self) -> Result<Option<Mark>, StoreError> {
        mark(&self.connection).map_err(|source| self.failed("reading whose state it mirrors", source))
    }

    /// Writes what is other than it was, whatever it held, and what that is as of. Says how often something was committed.
    ///
    /// # Errors
    /// Those of [`StoreError`]; [`StoreError::Full`] passes by itself.
    pub(crate) fn mirror(&mut self, made: &[Made], mark: Option<&Mark>) -> Result<u64, StoreError> {
        let mut write = || {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            write_all(&transaction, made)?;
            if let Some(mark) = mark {
                put_mark(&transaction, mark)?;
            }
            let revision = next_revision(&transaction)?;
            transaction.commit()?;
            Ok(revision)
        };
        let revision = write().map_err(|source| self.failed("writing what etcd says", source))?;
        if self.log_bytes() > super::MOST_LOG_BYTES {
            // The log stays where that fails, and is tried again.
            _ = self.write_back();
        }
        Ok(revision)
    }

    /// Begins to write all of it anew, in one transaction: readers see what was there before until [`Store::end_anew`], and so does the next
    /// start, should there be none.
    ///
    /// # Errors
    /// Those of [`StoreError`]; then it holds what it held.
    pub(crate) fn begin_anew(&self) -> Result<(), StoreError> {
        self.anew(|connection| {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            clear(connection)
        })
    }

    /// Some of it, after [`Store::begin_anew`].
    ///
    /// # Errors
    /// Those of [`StoreError`]; then it holds what it held, and it has to be begun anew.
    pub(crate) fn go_on_anew(&self, made: &[Made]) -> Result<(), StoreError> {
        self.anew(|connection| write_all(connection, made))
    }

    /// The end of that: what it holds is as of this mark, or still of the one before. Says how often something was committed.
    ///
    /// # Errors
    /// Those of [`StoreError`]; then it holds what it held, and it has to be begun anew.
    pub(crate) fn end_anew(&mut self, mark: Option<&Mark>) -> Result<u64, StoreError> {
        let revision = self.anew(|connection| {
            if let Some(mark) = mark {
                put_mark(connection, mark)?;
            }
            let revision = next_revision(connection)?;
            connection.execute_batch("COMMIT")?;
            Ok(revision)
        })?;
        // It is as long as all that there is.
        _ = self.write_back();
        Ok(revision)
    }

    /// A step of that, which is given up if it fails.
    fn anew<T>(&self, step: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        step(&self.connection).map_err(|source| {
            self.give_up_anew();
            self.failed("writing it anew", source)
        })
    }

    /// It holds what it held.
    pub(crate) fn give_up_anew(&self) {
        if !self.connection.is_autocommit() {
            // What cannot be rolled back is when the file is opened.
            _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// Writes this in the place of all that it held, as a copy of what this mark says; all of it, or nothing.
    ///
    /// # Errors
    /// Those of [`StoreError`]; then it holds what it held.
    pub(crate) fn replace_all(&mut self, made: &[Made], mark: &Mark) -> Result<(), StoreError> {
        let mut replace = || {
            let transaction = self.connection.transaction()?;
            clear(&transaction)?;
            write_all(&transaction, made)?;
            put_mark(&transaction, mark)?;
            next_revision(&transaction)?;
            transaction.commit()
        };
        replace().map_err(|source| self.failed("writing what etcd holds", source))
    }

    /// Makes it the truth itself, or a fleet's mirror, with all that it holds.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn set_mark(&mut self, mark: Option<&Mark>) -> Result<(), StoreError> {
        let mut set = || {
            let transaction = self.connection.transaction()?;
            match mark {
                Some(mark) => put_mark(&transaction, mark)?,
                None => {
                    let names = [FLEET, CLUSTER, REVISION, UNREAD];
                    let delete = "DELETE FROM meta WHERE name IN (?1, ?2, ?3, ?4)";
                    transaction.execute(delete, names)?;
                    schema::set_copy(&transaction, false)?;
                }
            }
            transaction.commit()
        };
        set().map_err(|source| self.failed("noting whose state it is", source))
    }
}

impl Reader {
    /// Some of what was deleted before a time, in seconds since 1970.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub(crate) fn deleted_before(&self, before: i64, most: usize) -> Result<Vec<Change>, StoreError> {
        let read = || {
            let mut found = Vec::new();
            deleted::<Group>(&self.connection, before, most, &mut found)?;
            deleted::<Port>(&self.connection, before, most, &mut found)?;
            deleted::<Neighbor>(&self.connection, before, most, &mut found)?;
            Ok(found)
        };
        read().map_err(|source| failed(&self.path, "looking for what was deleted long ago", source))
    }
}

pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT NOT EXISTS (SELECT 1 FROM neighbors) AND NOT EXISTS (SELECT 1 FROM ports) \
                 AND NOT EXISTS (SELECT 1 FROM security_groups)";
    connection.query_row(query, [], |row| row.get(0))
}

pub(super) fn mark(connection: &Connection) -> rusqlite::Result<Option<Mark>> {
    let query = "SELECT value FROM meta WHERE name = ?1";
    let number = |name: &str| {
        let found = connection.query_row(query, [name], |row| row.get::<_, i64>(0));
        found.optional()
    };
    let fleet = connection.query_row(query, [FLEET], |row| row.get::<_, Vec<u8>>(0));
    let Some(fleet) = fleet.optional()? else {
        return Ok(None);
    };
    let cluster = number(CLUSTER)?.unwrap_or_default();
    let revision = number(REVISION)?;
    Ok(Some(Mark {
        cluster: cluster.cast_unsigned(),
        fleet: FleetName::read(&fleet),
        revision: revision.map(i64::cast_unsigned),
        has_unread: number(UNREAD)?.is_some(),
    }))
}

pub(super) fn put_mark(connection: &Connection, mark: &Mark) -> rusqlite::Result<()> {
    if !schema::is_copy(connection)? {
        schema::set_copy(connection, true)?;
    }
    let put = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
    connection.execute(put, (FLEET, mark.fleet.as_bytes()))?;
    connection.execute(put, (CLUSTER, mark.cluster.cast_signed()))?;
    let numbers = [
        (REVISION, mark.revision.map(u64::cast_signed)),
        (UNREAD, mark.has_unread.then_some(1)),
    ];
    for (name, number) in numbers {
        match number {
            Some(number) => connection.execute(put, (name, number))?,
            None => connection.execute("DELETE FROM meta WHERE name = ?1", [name])?,
        };
    }
    Ok(())
}

/// Nothing is known any more, and nothing that was lost is missing.
fn clear(connection: &Connection) -> rusqlite::Result<()> {
    for table in [Group::TABLE, Port::TABLE, Neighbor::TABLE] {
        connection.execute(&format!("DELETE FROM {table}"), [])?;
    }
    loss::forget(connection)
}

fn write_all(connection: &Connection, made: &[Made]) -> rusqlite::Result<()> {
    write::<Group>(connection, made)?;
    write::<Port>(connection, made)?;
    write::<Neighbor>(connection, made)
}

fn write<O: Row>(connection: &Connection, made: &[Made]) -> rusqlite::Result<()> {
    let of = |made: &Made| match made {
        Made::Said(change, when) => O::of(change).map(|statement| (statement.clone(), Some(*when))),
        Made::Forgotten(change, _) => O::of(change).map(|statement| (statement.clone(), None)),
    };
    let mut said: Vec<(Statement<O>, Option<i64>)> = made.iter().filter_map(of).collect();
    if said.is_empty() {
        return Ok(());
    }
    // In the order of the file; what is said about one object keeps its order.
    said.sort_by_key(|(statement, _)| statement.key());
    let mut put = connection.prepare(&row::replace::<O>())?;
    let mut remove = connection.prepare(&row::remove::<O>())?;
    for (statement, when) in &said {
        match when {
            Some(when) => {
                row::bind(&mut put, statement, *when)?;
                put.raw_execute()?;
            }
            None => {
                row::bind_key::<O>(&mut remove, statement.key())?;
                remove.raw_execute()?;
            }
        }
    }
    Ok(())
}

fn deleted<O: Row>(connection: &Connection, before: i64, most: usize, found: &mut Vec<Change>) -> rusqlite::Result<()> {
    let query = format!(
        "SELECT {} FROM {} WHERE deleted < ?1 LIMIT ?2",
        row::columns::<O>(),
        O::TABLE
    );
    let mut statement = connection.prepare(&query)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut rows = statement.query((before, most))?;
    while let Some(row) = rows.next()? {
        // One that is damaged is the next start's.
        found.extend(row::read::<O>(row).ok().map(|(statement, _)| O::into_change(statement)));
    }
    Ok(())
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
