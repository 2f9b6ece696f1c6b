//! What becomes of a file that is damaged: another one takes its place, with all of it that can be read.
//!
//! ```text
//! store.db, -wal (damaged) ──read──▶ store.db.new ──whole, on the disk──▶ store.db.whole ──the log goes──▶ store.db
//!            └──the same files──▶ store.db.damaged-TIME, -wal
//! ```
//! Whoever is killed before `store.db.whole` is there leaves everything as it was, and the next start finds it damaged again; from
//! then on the next start does what is left to be done ([`finish`]).

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags};

use super::damage::{self, End};
use super::{Loaded, PATIENCE, Role, Row, StoreError, failed, loss, mirror, schema, with_suffix};
use crate::fleet::sync::Mark;
use crate::model::Working;
use crate::object::{Group, Neighbor, Port};

/// Behind the file's name: what is being made, and what is to take its place.
pub(super) const NEW: &str = ".new";
pub(super) const WHOLE: &str = ".whole";
/// What `meta` has besides, and is worth keeping.
const KEPT: [&str; 2] = ["revision", "clock"];

/// What a damaged file says of itself.
#[derive(Debug)]
enum Is {
    Truth,
    /// Of which fleet's state, if that can be read.
    Copy(Option<Mark>),
    Unknown,
}

/// How much of it could be read.
#[derive(Debug, Default)]
struct Saved {
    loaded: Loaded,
    /// Nothing is missing.
    whole: bool,
    ports: bool,
}

/// Puts another file in the place of a damaged one, which is kept under another name. What is missing is noted in it; what else is to
/// be told comes back.
///
/// # Errors
/// Those of [`StoreError`]; also if it is not of this role. Then it is as it was.
pub(super) fn replace(
    path: &Path,
    role: Role,
    why: &rusqlite::Error,
    working: &Working,
) -> Result<Option<String>, StoreError> {
    let aside = name_aside(path);
    let old = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    );
    let old = old.and_then(|mut old| {
        old.busy_timeout(PATIENCE)?;
        super::say_progress(&mut old, Some(working))?;
        Ok(old)
    });
    let old = old.ok();
    let is = old.as_ref().map_or(Is::Unknown, ask);
    match (&is, role) {
        (Is::Copy(_), Role::Truth) => return Err(StoreError::OfFleet { path: path.to_owned() }),
        (Is::Truth, Role::Copy) if !old.as_ref().is_some_and(|old| mirror::is_empty(old).unwrap_or(false)) => {
            return Err(StoreError::NotOfFleet { path: path.to_owned() });
        }
        _ => {}
    }
    let is_copy = role == Role::Copy || matches!(is, Is::Copy(_));
    // Without its mark nobody can tell whose state the copy was: it begins with nothing, and etcd has all of it.
    let mark = match &is {
        Is::Copy(mark) => mark.clone().map(|mark| Mark { revision: None, ..mark }),
        Is::Truth | Is::Unknown => None,
    };
    let readable = old.as_ref().filter(|_| !is_copy || mark.is_some());
    let begin = format!(
        "the store {}: its file was damaged ({}) and is kept as {}; ",
        path.display(),
        why.to_string().replace('\n', " "),
        aside.display()
    );
    let new = with_suffix(path, NEW);
    let build = || -> rusqlite::Result<(Saved, String)> {
        let mut to = Connection::open(&new)?;
        // Nobody looks at what is not whole.
        to.pragma_update(None, "journal_mode", "OFF")?;
        to.pragma_update(None, "synchronous", "OFF")?;
        schema::migrate(&mut to)?;
        let to_all = to.transaction()?;
        let mut saved = readable.map_or_else(|| Ok(Saved::default()), |old| save(old, &to_all))?;
        if let Some(mark) = &mark {
            mirror::put_mark(&to_all, mark)?;
        } else if !is_copy && readable.is_none_or(|old| keep_notes(old, &to_all).is_err()) {
            // It may have lost ports before.
            (saved.whole, saved.ports) = (false, false);
        }
        let told = begin + &tell(&saved, is_copy);
        if !is_copy && !saved.whole {
            loss::note(&to_all, &told, !saved.ports)?;
        }
        to_all.commit()?;
        Ok((saved, told))
    };
    let built = build().map_err(|source| {
        // A full disk is not to stay so because of it; else the next start does that.
        _ = remove_new(path);
        failed(path, "saving what can be read", source)
    });
    let (saved, told) = built?;
    drop(old);
    put_in_place(path, &aside).map_err(file(path, "putting a new file in the place of the damaged one"))?;
    Ok((is_copy || saved.whole).then_some(told))
}

/// Ends what a start before this one has begun, and was killed at. True if there was a file to be put in its place.
pub(super) fn finish(path: &Path) -> Result<bool, StoreError> {
    let finish = || {
        remove_new(path)?;
        let whole = with_suffix(path, WHOLE);
        if !fs::exists(&whole)? {
            return Ok(false);
        }
        // What is in the log of the damaged file is in the new one, or could not be read; it must not be read into this.
        for suffix in ["-wal", "-shm"] {
            remove(&with_suffix(path, suffix))?;
            step();
        }
        sync_folder(path)?;
        fs::rename(&whole, path)?;
        step();
        sync_folder(path)?;
        Ok(true)
    };
    finish().map_err(file(path, "putting the file that was saved in its place"))
}

fn put_in_place(path: &Path, aside: &Path) -> io::Result<()> {
    let new = with_suffix(path, NEW);
    File::open(&new)?.sync_all()?;
    step();
    // The log first: nobody looks for one beside a file that is not there.
    for suffix in ["-wal", ""] {
        keep(&with_suffix(path, suffix), &with_suffix(aside, suffix))?;
        step();
    }
    sync_folder(path)?;
    fs::rename(&new, with_suffix(path, WHOLE))?;
    sync_folder(path)?;
    step();
    Ok(())
}

/// The same file under another name, too, if it is there.
fn keep(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Not every file system has links.
        Err(_) => {
            fs::copy(from, to)?;
            File::open(to)?.sync_all()
        }
        Ok(()) => Ok(()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove_new(path: &Path) -> io::Result<()> {
    let new = with_suffix(path, NEW);
    ["-journal", "-wal", "-shm", ""]
        .iter()
        .try_for_each(|suffix| remove(&with_suffix(&new, suffix)))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn file(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { path, action, source }
}

/// A name that nothing has.
fn name_aside(path: &Path) -> PathBuf {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let first = with_suffix(path, &format!(".damaged-{seconds}"));
    let others = (1_u32..).map(|number| with_suffix(&first, &format!(".{number}")));
    let is_free = |name: &PathBuf| {
        let taken = |suffix| with_suffix(name, suffix).symlink_metadata().is_ok();
        !taken("") && !taken("-wal")
    };
    std::iter::once(first.clone())
        .chain(others)
        .find(is_free)
        .unwrap_or(first)
}

fn ask(old: &Connection) -> Is {
    match (mirror::mark(old), schema::is_copy(old)) {
        (Ok(Some(mark)), _) => Is::Copy(Some(mark)),
        (_, Ok(true)) => Is::Copy(None),
        (Ok(None), _) => Is::Truth,
        (Err(_), _) => Is::Unknown,
    }
}

fn tell(saved: &Saved, is_copy: bool) -> String {
    let objects = saved.loaded.objects;
    match (is_copy, saved.whole) {
        (true, _) => "all is read anew from etcd, of whose state it was a copy".to_owned(),
        (_, true) => format!("all of its {objects} objects could be read, and are in use"),
        (_, false) => format!(
            "{objects} objects could be read and are in use, others are missing{}",
            loss::what_to_do(!saved.ports)
        ),
    }
}

/// Takes along what was lost before.
fn keep_notes(old: &Connection, to: &Connection) -> rusqlite::Result<()> {
    let (lines, lacks_ports) = (loss::lines(old)?, loss::lacks_ports(old)?);
    lines.iter().try_for_each(|line| loss::note(to, line, lacks_ports))
}

/// Copies what can be read, with tombstones.
fn save(old: &Connection, to: &Connection) -> rusqlite::Result<Saved> {
    let wall = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |time| time.as_secs().cast_signed());
    let query = "SELECT value FROM meta WHERE name = ?1";
    let number = |name: &str| old.query_row(query, [name], |row| row.get::<_, i64>(0));
    for name in KEPT {
        if let Ok(value) = number(name) {
            to.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", (name, value))?;
        }
    }
    // Times of deletion start anew, by the clock that they grow old by.
    let now = number("clock").map_or(wall, |clock| clock.max(wall));
    let mut loaded = Loaded::default();
    let groups = copy::<Group>(old, to, now, &mut loaded)?;
    let ports = copy::<Port>(old, to, now, &mut loaded)?;
    let neighbors = copy::<Neighbor>(old, to, now, &mut loaded)?;
    Ok(Saved {
        loaded,
        whole: groups && ports && neighbors,
        ports,
    })
}

/// False if some of it may be missing.
fn copy<O: Row>(old: &Connection, to: &Connection, now: i64, loaded: &mut Loaded) -> rusqlite::Result<bool> {
    // A page that says that it holds fewer rows than it does is read without an error.
    let check = format!("PRAGMA quick_check('{}')", O::TABLE);
    let said = old.query_row(&check, [], |row| row.get::<_, String>(0));
    let mut whole = said.is_ok_and(|said| said == "ok");
    // Up to the damage from the one end, then from the other.
    for end in [End::First, End::Last] {
        let mut written = Ok(());
        let read = damage::scan::<O>(old, end, loaded, &mut |changes, _| {
            if written.is_ok() {
                written = super::write::<O>(to, changes.iter().filter_map(O::of), now);
                step();
            }
        });
        written?;
        match read {
            Ok(bad) => {
                damage::quarantine(to, &bad)?;
                return Ok(whole && bad.is_empty());
            }
            // Another time it may be read.
            Err(error) if super::disk::is_unreadable(&error) => return Err(error),
            Err(error) if error.sqlite_error().is_some() => whole = false,
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// For tests: what a kill leaves here.
fn step() {
    #[cfg(test)]
    AT_STEP.with_borrow_mut(|at_step| at_step.iter_mut().for_each(|at_step| at_step()));
}

#[cfg(test)]
thread_local! {
    pub(super) static AT_STEP: std::cell::RefCell<Option<Box<dyn FnMut()>>> = const { std::cell::RefCell::new(None) };
}
