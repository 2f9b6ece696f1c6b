//! What was acknowledged, on the disk: SQLite in WAL mode.
//!
//! One [`Store`] writes, from one thread; any number of [`Reader`]s read what it has committed, meanwhile. A commit is
//! on the disk when [`Store::commit`] returns (`synchronous=FULL`): many changes in one cost one flush. Deleted objects
//! leave their version behind (a tombstone) until [`Store::forget`].
//!
//! # What is checked
//! Every row has a checksum over all its values. [`Store::open`] has SQLite check the structure of the file, and
//! [`Store::load`] every row. A row that does not match is moved to the table `quarantine`, and told. In the place of a file that
//! SQLite finds damaged comes another one with what can still be read of it, and that is told, too: a gateway that forwards most of
//! what it knew is better than one that does not start. What was lost is told until somebody says that it is there again
//! ([`Store::repaired`]), for what is missing may be what forbids something. What the disk does not tell is not damaged: then the store is
//! not opened ([`StoreError::Unreadable`]), and nothing is changed.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::ending;
use crate::fleet::sync::Mark;
use crate::model::Working;
use crate::object::{Change, Group, Neighbor, Object, Port, Statement};

mod clock;
mod damage;
mod disk;
mod loss;
mod mirror;
mod read;
mod row;
mod salvage;
mod schema;
mod versions;

use damage::{Bad, End};
use disk::{is_damage, is_unreadable, read_through};
pub use read::{Filter, Page, Reader};
pub use row::Row;

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder or a file in it.
    #[error("the store {path}: {action}: {source}")]
    File {
        /// The store's file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What came of it.
        r#source: std::io::Error,
    },
    /// Somebody else has it.
    #[error("the store {path} is in use by another process: stop that one, or give this one another `store.path`")]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// Made by a program that knows more.
    #[error(
        "the store {path} has version {found}, this program knows versions up to {known}: use the newer program that made it, or another `store.path`. Nothing was changed"
    )]
    Newer {
        /// The store's file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The highest that is known.
        known: i64,
    },
    /// A database, but not one of this program's.
    #[error("{path} is a database of another program: give another `store.path`. Nothing was changed")]
    Foreign {
        /// The store's file.
        path: PathBuf,
    },
    /// A fleet's truth is in etcd; this is a copy.
    #[error(
        "the store {path} is a copy of a fleet's state in etcd: set `store.kind = \"etcd\"`, or make it the truth with `ringside-gateway \
         migrate --to sqlite`, or give another `store.path`. Nothing was changed"
    )]
    OfFleet {
        /// The store's file.
        path: PathBuf,
    },
    /// It would be overwritten with what etcd holds.
    #[error(
        "the store {path} holds objects that etcd does not know: bring them there with `ringside-gateway migrate --to etcd`, or give \
         another `store.path`. Nothing was changed"
    )]
    NotOfFleet {
        /// The store's file.
        path: PathBuf,
    },
    /// The disk is full. What is there stays readable.
    #[error("the store {path}: the disk is full: make room, and writing goes on by itself")]
    Full {
        /// The store's file.
        path: PathBuf,
    },
    /// The disk does not tell what the file holds. Nobody knows whether anything is wrong with that.
    #[error(
        "the store {path}: {action}: {reason}: its disk cannot be read. Nothing was changed: look at the disk, and at the kernel's log, and try again when it is \
         well. Where a part of the file stays unreadable, put what `ddrescue` makes of it in its place, or give another `store.path` and say everything \
         anew; a fleet's gateway reads it from etcd"
    )]
    Unreadable {
        /// The store's file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What came of it.
        reason: String,
    },
    /// What is read makes no sense, or cannot be read at all: where it asks for rows, SQLite says the same of both.
    #[error(
        "the store {path}: {action}: {source}: the file is damaged, or its disk cannot be read: look at the disk, and at the kernel's log. The next start \
         looks through all of it"
    )]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What came of it.
        r#source: rusqlite::Error,
    },
    /// What SQLite says.
    #[error("the store {path}: {action}: {source}")]
    Sqlite {
        /// The store's file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What came of it.
        r#source: rusqlite::Error,
    },
}

impl StoreError {
    /// True if a commit that ended with this may be on the disk all the same: all of it was written, and whether it is kept nobody knows. As
    /// long as this program runs it is not there, and what is written next takes its place; a start may find it.
    pub(crate) fn is_open(&self) -> bool {
        use rusqlite::ffi;
        let Self::Sqlite { r#source, .. } = self else {
            return false;
        };
        // The last that a commit does is to flush, and to tell readers by memory that they share: https://sqlite.org/walformat.html
        let last = [
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_SHMSIZE,
            ffi::SQLITE_IOERR_SHMMAP,
        ];
        source
            .sqlite_error()
            .is_some_and(|error| last.contains(&error.extended_code))
    }
}

/// Pages of the write-ahead log after which it is written back even while work waits: 256 MB.
const MOST_LOG_BYTES: u64 = 256 << 20;
/// As much of it is written back when there is nothing else to do.
const SOME_LOG_BYTES: u64 = 4 << 20;

/// How long an operator who looks into the store, or writes into it, is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Steps of SQLite between two signs that it goes on: less than a millisecond, when it does.
const STEPS: i32 = 10_000;

/// What a file is opened as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Truth,
    /// Of a fleet's state.
    Copy,
    /// Whatever it says of itself.
    Either,
}

/// The writer of a store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// What was wrong when it was opened.
    problems: Vec<String>,
    /// Held as long as the store is open.
    _lock: File,
}

/// What a load has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loaded {
    /// Objects.
    pub objects: u64,
    /// Deleted ones that are remembered.
    pub tombstones: u64,
    /// Rows that were put into quarantine.
    pub quarantined: u64,
}

impl Store {
    /// Opens a store, makes one where there is none, and brings an old one up to date.
    ///
    /// # Errors
    /// Those of [`StoreError`]. A damaged file is none: see [`Store::problems`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &Working::default())
    }

    /// The same, with signs that it goes on: a large one is looked through before it is opened.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn open_with(path: &Path, working: &Working) -> Result<Self, StoreError> {
        let store = Self::open_any(path, Role::Truth, working)?;
        match store.says_copy()? || store.mark()?.is_some() {
            true => Err(StoreError::OfFleet { path: path.to_owned() }),
            false => Ok(store),
        }
    }

    /// As what it is, but for a damaged one: that is taken for what it is opened as, unless it says otherwise.
    pub(crate) fn open_any(path: &Path, role: Role, working: &Working) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        let was_interrupted = salvage::finish(path)?;
        let mut problems = Vec::new();
        let connected = match connect(path, working) {
            // Another time the disk may tell what it does not tell now.
            Err(StoreError::Damaged { .. }) => {
                read_through(path, working)?;
                connect(path, working)
            }
            connected => connected,
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(StoreError::Damaged { source, .. }) => {
                problems.extend(salvage::replace(path, role, &source, working)?);
                salvage::finish(path)?;
                connect(path, working)?
            }
            Err(error) => return Err(error),
        };
        // From here on others tell how far they are.
        say_progress(&mut connection, None).map_err(|source| failed(path, "setting it up", source))?;
        let lines = loss::lines(&connection).map_err(|source| failed(path, "reading what it has lost", source))?;
        if was_interrupted && lines.is_empty() {
            problems.push(format!(
                "the store {}: its file was damaged, and is kept beside it as .damaged-TIME; the start that put another one in its \
                 place was killed",
                path.display()
            ));
        }
        Ok(Self {
            connection,
            path: path.to_owned(),
            problems,
            _lock: lock,
        })
    }

    /// What was wrong with it when it was opened, for people, and needs nobody to do anything; but for that: [`Store::missing`].
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Another connection, which only reads.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.path)
    }

    /// Calls for everything that is there, in batches, tombstones included: these with the time at which they were deleted, in
    /// seconds since 1970. Rows that are damaged are put into quarantine.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn load(&mut self, mut each: impl FnMut(&[Change], &[i64])) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded::default();
        let found = (|| {
            let mut bad = damage::scan::<Group>(&self.connection, End::First, &mut loaded, &mut each)?;
            bad.extend(damage::scan::<Port>(
                &self.connection,
                End::First,
                &mut loaded,
                &mut each,
            )?);
            bad.extend(damage::scan::<Neighbor>(
                &self.connection,
                End::First,
                &mut loaded,
                &mut each,
            )?);
            self.set_aside(&bad)?;
            let instead: Vec<Change> = bad.iter().filter_map(|bad| bad.instead.clone()).collect();
            each(&instead, &vec![0; instead.len()]);
            Ok(bad.len() as u64)
        })();
        loaded.quarantined = found.map_err(|source| self.failed("reading all rows", source))?;
        Ok(loaded)
    }

    /// Moves damaged rows out of the way, and notes that; a copy is made anew from what it is a copy of.
    fn set_aside(&mut self, bad: &[Bad]) -> rusqlite::Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        let told = format!(
            "the store {}: {} damaged rows are in its table `quarantine`, and are not in use",
            self.path.display(),
            bad.len()
        );
        let mark = mirror::mark(&self.connection)?;
        let lacks_ports = bad.iter().any(Bad::is_port);
        let transaction = self.connection.transaction()?;
        damage::quarantine(&transaction, bad)?;
        if let Some(mark) = mark {
            // Also by the start after this one, if this one does not come to it.
            mirror::put_mark(&transaction, &Mark { revision: None, ..mark })?;
            self.problems.push(told + "; all is read anew from etcd");
        } else {
            let told = told + loss::what_to_do(lacks_ports);
            loss::note(&transaction, &told, lacks_ports)?;
        }
        transaction.commit()
    }

    /// Writes changes, in order, so that they are on the disk when it returns; or none of them. An older version changes
    /// nothing. Says how often something was committed.
    ///
    /// # Errors
    /// Those of [`StoreError`]; [`StoreError::Full`] passes by itself.
    pub fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change> + Clone,
        now: i64,
    ) -> Result<u64, StoreError> {
        let committed = (|| {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            write::<Group>(&transaction, changes.clone().filter_map(Group::of), now)?;
            write::<Port>(&transaction, changes.clone().filter_map(Port::of), now)?;
            write::<Neighbor>(&transaction, changes.filter_map(Neighbor::of), now)?;
            let revision = next_revision(&transaction)?;
            transaction.commit()?;
            Ok(revision)
        })();
        let revision = committed.map_err(|source| self.failed("writing changes", source))?;
        if self.log_bytes() > MOST_LOG_BYTES {
            // The log stays where that fails, and is tried again.
            _ = self.write_back();
        }
        Ok(revision)
    }

    /// Tries whether it can be written, by a commit without changes.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn probe(&mut self) -> Result<u64, StoreError> {
        self.commit(std::iter::empty(), 0)
    }

    /// How often something was committed since it was made.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn revision(&self) -> Result<u64, StoreError> {
        let query = "SELECT value FROM meta WHERE name = 'revision'";
        let found: Result<i64, _> = self.connection.query_row(query, [], |row| row.get(0));
        found
            .map(i64::cast_unsigned)
            .map_err(|source| self.failed("reading its revision", source))
    }

    /// Forgets versions of what was deleted before a time, in seconds since 1970, and says of how many; or none of them.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub fn forget(&mut self, before: i64) -> Result<usize, StoreError> {
        let mut forget = || {
            let mut forgotten = 0;
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            for table in [Neighbor::TABLE, Port::TABLE, Group::TABLE] {
                forgotten += transaction.execute(&format!("DELETE FROM {table} WHERE deleted < ?1"), [before])?;
            }
            transaction.commit()?;
            Ok(forgotten)
        };
        forget().map_err(|source| self.failed("forgetting what was deleted long ago", source))
    }

    /// Writes the log back into the file, if there is something of it. To be called when nothing else is to be done.
    ///
    /// # Errors
    /// Those of [`StoreError`]; nothing is lost then.
    pub fn rest(&self) -> Result<(), StoreError> {
        if self.log_bytes() > SOME_LOG_BYTES {
            self.write_back()?;
        }
        Ok(())
    }

    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.log_bytes() + std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(with_suffix(&self.path, "-wal")).map_or(0, |file| file.len())
    }

    /// The log is cut, so that its length says how much of it there is. A reader in its middle keeps it for a time, and is not
    /// waited for.
    fn write_back(&self) -> Result<(), StoreError> {
        let write = || {
            self.connection.busy_timeout(Duration::ZERO)?;
            let written = self
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            self.connection.busy_timeout(PATIENCE)?;
            written
        };
        write().map_err(|source| self.failed("writing the log back", source))
    }

    fn failed(&self, action: &'static str, source: rusqlite::Error) -> StoreError {
        failed(&self.path, action, source)
    }
}

fn failed(path: &Path, action: &'static str, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        _ if is_unreadable(&source) => StoreError::Unreadable {
            path,
            action,
            reason: source.to_string(),
        },
        _ if is_damage(&source) => StoreError::Damaged { path, action, source },
        _ => StoreError::Sqlite { path, action, source },
    }
}

/// What follows the store's path in the names of its other files.
pub(crate) const SUFFIXES: [&str; 5] = ["-wal", "-shm", ".lock", salvage::NEW, salvage::WHOLE];

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Locks the store against other processes. Not through SQLite, so that an operator can still look into it.
fn lock(path: &Path) -> Result<File, StoreError> {
    let file = |action, source| StoreError::File {
        path: path.to_owned(),
        action,
        source,
    };
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(with_suffix(path, ".lock"))
        .map_err(|source| file("opening its lock file", source))?;
    match ending::lock(&lock) {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(file("locking it", source)),
    }
}

/// Gives a sign each time that SQLite has done a little more.
fn say_progress(connection: &mut Connection, working: Option<&Working>) -> rusqlite::Result<()> {
    let sign = working.cloned().map(|working| {
        move || {
            working.sign();
            // It goes on.
            false
        }
    });
    connection.progress_handler(STEPS, sign)
}

/// Opens, checks and brings up to date.
fn connect(path: &Path, working: &Working) -> Result<Connection, StoreError> {
    let error = |action| move |source| failed(path, action, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(error("opening it"))?;
    // Before anything is set: setting it up would change a file that is somebody else's.
    schema::check(path, &connection)?;
    (|| {
        say_progress(&mut connection, Some(working))?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // It is written back when there is time for it.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        // Kibibytes: a load of a million rows touches each page a few times.
        connection.pragma_update(None, "cache_size", -(64 << 10))
    })()
    .map_err(error("setting it up"))?;
    let sound: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(error("checking its structure"))?;
    if sound != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(error("checking its structure")(rusqlite::Error::SqliteFailure(
            code,
            Some(sound),
        )));
    }
    schema::migrate(&mut connection).map_err(error("bringing it up to date"))?;
    Ok(connection)
}

/// Says that something was committed, and how often that was so.
fn next_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .query_row(
            "UPDATE meta SET value = value + 1 WHERE name = 'revision' RETURNING value",
            [],
            |row| row.get(0),
        )
        .map(i64::cast_unsigned)
}

/// Writes all statements about objects of a kind.
fn write<'a, O: Row>(
    connection: &Connection,
    statements: impl Iterator<Item = &'a Statement<O>>,
    now: i64,
) -> rusqlite::Result<()> {
    let mut statements: Vec<&Statement<O>> = statements.collect();
    if statements.is_empty() {
        return Ok(());
    }
    // Neighbours in the file one after the other; what is said about one object keeps its order.
    statements.sort_by_key(|statement| statement.key());
    let mut upsert = connection.prepare(&row::upsert::<O>())?;
    let mut select = connection.prepare(&row::select::<O>())?;
    for statement in statements {
        // What has never been there is not remembered as deleted: see `model/rule.rs`.
        if matches!(statement, Statement::Delete(_, 0)) && !row::is_there::<O>(&mut select, statement.key())? {
            continue;
        }
        row::bind(&mut upsert, statement, now)?;
        upsert.raw_execute()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
