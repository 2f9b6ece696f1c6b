//! The rule by which versions are compared: of two statements about an object the higher one holds, whichever comes first.
//!
//! The tables in memory and the fleet's values go by it; the store has it once more, as SQL (`store/row.rs`).

use super::Outcome;
use crate::object::{Object, Statement};

/// What becomes of a delete of something that is not there: the outcome, and whether it is the
/// newest that is known, and is to be
/// remembered. One of version 0, of what has never been there, is older than whatever comes, and is
/// not.
pub(super) fn unknown(gone: Option<u64>, version: u64) -> (Outcome, bool) {
    match gone {
        Some(gone) if gone > version => (Outcome::Older, false),
        Some(gone) if gone == version => (Outcome::Unchanged, false),
        Some(_) | None => (Outcome::NotFound, version > 0),
    }
}

/// What becomes of a statement about an object that is known in a version, or was deleted in one: the outcome, and for a
/// delete whether it is the newest that is known, and is to be remembered.
pub(crate) fn decide<O: Object>(
    known: Option<u64>,
    gone: Option<u64>,
    statement: &Statement<O>,
    is_same: impl FnOnce() -> bool,
) -> (Outcome, bool) {
    let version = statement.version();
    match statement {
        Statement::Put(_) => {
            let outcome = match known {
                None if gone.is_some_and(|gone| gone >= version) => Outcome::Older,
                None => Outcome::Created,
                Some(known) if known > version => Outcome::Older,
                Some(known) if known < version => Outcome::Replaced,
                Some(_) if is_same() => Outcome::Unchanged,
                Some(_) => Outcome::Conflict,
            };
            (outcome, false)
        }
        Statement::Delete(..) => match known {
            None => unknown(gone, version),
            Some(known) if known > version => (Outcome::Older, false),
            Some(_) => (Outcome::Deleted, true),
        },
    }
}
