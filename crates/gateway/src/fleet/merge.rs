//! Statements into what a key holds, by the rule of the tables (`model/rule.rs`).

use std::borrow::Cow;

use super::key::Key;
use super::value::{Entry, Packed, pack, unpack};
use crate::model::Outcome;
use crate::model::rule::decide;
use crate::object::{Change, Group, Neighbor, OPEN_VERSION, Port, Statement, fill_in};

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    /// It stays as it is.
    Keep,
    /// It holds this from now on.
    Put(Vec<u8>),
    /// It goes.
    Delete,
}

/// What statements about a key's objects bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merged {
    pub(crate) write: Write,
    /// In the order of the statements.
    pub(crate) outcomes: Vec<Outcome>,
    /// In the same order: the statement with its version, if that was open.
    pub(crate) filled: Vec<Option<Change>>,
}

/// The key of the value that has what a change is about.
pub(crate) fn key_of(change: &Change) -> Key {
    match change {
        Change::Neighbor(statement) => Neighbor::place(statement.key()).0,
        Change::Port(statement) => Port::place(statement.key()).0,
        Change::Group(statement) => Group::place(statement.key()).0,
    }
}

/// Puts statements about objects of one key into what it holds, in order. `now` in seconds since 1970.
///
/// # Errors
/// What is wrong with what it holds.
pub(crate) fn merge(key: Key, current: Option<&[u8]>, said: &[&Change], now: i64) -> Result<Merged, String> {
    match key {
        Key::Group(_) => merge_kind::<Group>(key, current, said, now),
        Key::Ports(_) => merge_kind::<Port>(key, current, said, now),
        Key::Neighbors(_) => merge_kind::<Neighbor>(key, current, said, now),
    }
}

/// Forgets what was deleted before a time.
///
/// # Errors
/// What is wrong with what it holds.
pub(crate) fn forget(key: Key, current: Option<&[u8]>, before: i64) -> Result<Write, String> {
    match key {
        Key::Group(_) => forget_kind::<Group>(key, current, before),
        Key::Ports(_) => forget_kind::<Port>(key, current, before),
        Key::Neighbors(_) => forget_kind::<Neighbor>(key, current, before),
    }
}

fn read<O: Packed>(key: Key, current: Option<&[u8]>) -> Result<Vec<Entry<O>>, String> {
    current.map_or(Ok(Vec::new()), |value| unpack(key, value))
}

fn written<O: Packed>(key: Key, current: Option<&[u8]>, entries: &[Entry<O>]) -> Write {
    match (pack(key, entries), current) {
        (Some(value), Some(current)) if value == current => Write::Keep,
        (Some(value), _) => Write::Put(value),
        (None, Some(_)) => Write::Delete,
        (None, None) => Write::Keep,
    }
}

fn merge_kind<O: Packed>(key: Key, current: Option<&[u8]>, said: &[&Change], now: i64) -> Result<Merged, String> {
    let mut entries = read::<O>(key, current)?;
    let mut outcomes = Vec::with_capacity(said.len());
    let mut all_filled = Vec::with_capacity(said.len());
    for statement in said.iter().filter_map(|change| O::of(change)) {
        let mut statement = Cow::Borrowed(statement);
        let place = entries.binary_search_by_key(&statement.key(), |entry| entry.statement.key());
        let entry = place.ok().and_then(|at| entries.get(at));
        let mut filled = None;
        if statement.version() == OPEN_VERSION {
            fill_in(statement.to_mut(), entry.map(|entry| &entry.statement));
            filled = Some(O::into_change((*statement).clone()));
        }
        all_filled.push(filled);
        let (known, gone) = match entry.map(|entry| &entry.statement) {
            Some(Statement::Put(object)) => (Some(object.version()), None),
            Some(Statement::Delete(_, version)) => (None, Some(*version)),
            None => (None, None),
        };
        let is_same = || entry.is_some_and(|entry| entry.statement == *statement);
        let (outcome, forgotten) = decide(known, gone, &statement, is_same);
        outcomes.push(outcome);
        let holds = match &*statement {
            Statement::Put(_) => outcome.is_change(),
            Statement::Delete(..) => forgotten,
        };
        if holds {
            let is_delete = matches!(&*statement, Statement::Delete(..));
            let entry = Entry {
                statement: statement.into_owned(),
                deleted: if is_delete { now } else { 0 },
            };
            match place {
                Ok(at) => entries[at] = entry,
                Err(at) => entries.insert(at, entry),
            }
        }
    }
    Ok(Merged {
        write: written(key, current, &entries),
        outcomes,
        filled: all_filled,
    })
}

fn forget_kind<O: Packed>(key: Key, current: Option<&[u8]>, before: i64) -> Result<Write, String> {
    let mut entries = read::<O>(key, current)?;
    entries.retain(|entry| matches!(entry.statement, Statement::Put(_)) || entry.deleted >= before);
    Ok(written(key, current, &entries))
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
