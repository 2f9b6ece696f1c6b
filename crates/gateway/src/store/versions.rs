//! Versions that the store gives.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use rusqlite::Connection;

use super::{Row, Store, StoreError, row};
use crate::object::{self, Change, Group, Neighbor, OPEN_VERSION, Port, Statement};

impl Store {
    /// Fills in the versions that are open, in order, by what is known before each.
    ///
    /// # Errors
    /// Those of [`StoreError`].
    pub(crate) fn fill_in(&self, changes: &mut [&mut Change]) -> Result<(), StoreError> {
        fill_in::<Group>(&self.connection, changes)
            .and_then(|()| fill_in::<Port>(&self.connection, changes))
            .and_then(|()| fill_in::<Neighbor>(&self.connection, changes))
            .map_err(|source| self.failed("reading versions", source))
    }
}

/// Fills in the open versions of a kind.
fn fill_in<O: Row>(connection: &Connection, changes: &mut [&mut Change]) -> rusqlite::Result<()>
where
    O::Key: Hash,
{
    // What holds of each object with an open version, whatever older statements say of it.
    let mut known: HashMap<O::Key, Option<Statement<O>>> = HashMap::new();
    let mut select = None;
    for statement in changes.iter().filter_map(|change| O::of(change)) {
        if statement.version() != OPEN_VERSION {
            continue;
        }
        if let Entry::Vacant(place) = known.entry(statement.key()) {
            let select = match &mut select {
                Some(select) => select,
                None => select.insert(connection.prepare(&row::select::<O>())?),
            };
            place.insert(row::find(select, statement.key())?);
        }
    }
    for statement in changes.iter_mut().filter_map(|change| O::of_mut(change)) {
        let Some(known) = known.get_mut(&statement.key()) else {
            continue;
        };
        object::fill_in(statement, known.as_ref());
        let holds = known
            .as_ref()
            .is_none_or(|known| known.version() <= statement.version());
        if holds {
            *known = Some(statement.clone());
        }
    }
    Ok(())
}
