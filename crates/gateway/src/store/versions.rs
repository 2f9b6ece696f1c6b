//! Versions that the store gives.

use std::collections::HashMap;
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
    let mut select = None;
    // What statements before have made of an object.
    let mut said: HashMap<O::Key, Statement<O>> = HashMap::new();
    for statement in changes.iter_mut().filter_map(|change| O::of_mut(change)) {
        let key = statement.key();
        if statement.version() == OPEN_VERSION {
            let known = match said.get(&key) {
                Some(known) => Some(known.clone()),
                None => {
                    let select = match &mut select {
                        Some(select) => select,
                        None => select.insert(connection.prepare(&row::select::<O>())?),
                    };
                    row::find(select, key)?
                }
            };
            object::fill_in(statement, known.as_ref());
        }
        let holds = said
            .get(&key)
            .is_none_or(|before| before.version() <= statement.version());
        if holds {
            said.insert(key, statement.clone());
        }
    }
    Ok(())
}
