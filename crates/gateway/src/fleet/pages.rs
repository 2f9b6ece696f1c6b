//! How many pages a list of everything is.

use super::key::{KINDS, Key};
use super::merge::key_of;
use crate::object::Change;

/// Keys of a page, by kind: a group may have a megabyte, a block of neighbours has a few hundred bytes.
pub(super) const KEYS: [i64; 3] = [16, 1024, 8192];

/// Counts keys of objects that come in the order of their addresses, each kind for itself, as a store has them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    keys: [i64; 3],
    last: Option<Key>,
}

impl Tally {
    pub(crate) fn count(&mut self, changes: &[Change]) {
        for key in changes.iter().map(key_of) {
            if self.last.replace(key) == Some(key) {
                continue;
            }
            let kind = KINDS.iter().position(|kind| *kind == key.kind());
            if let Some(keys) = kind.and_then(|kind| self.keys.get_mut(kind)) {
                *keys += 1;
            }
        }
    }

    /// Pages that a list of them takes, at the least.
    pub(crate) fn pages(&self) -> u32 {
        let pages = self
            .keys
            .iter()
            .zip(KEYS)
            .map(|(keys, of_page)| (keys + of_page - 1) / of_page);
        u32::try_from(pages.sum::<i64>()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Neighbor;
    use crate::object::Statement;
    use ringside_gateway_core::{TenantAddress, Vni};

    /// Deletes, for short, beside each other or in a block each.
    fn neighbors(count: u32, apart: u32) -> Vec<Change> {
        let address = |number: u32| TenantAddress::new(Vni::new(7).unwrap(), (number * apart).to_be_bytes().into());
        let deleted = |number| Statement::<Neighbor>::Delete(address(number), 1);
        (0..count).map(|number| Change::Neighbor(deleted(number))).collect()
    }

    fn pages(parts: &[Vec<Change>]) -> u32 {
        let mut tally = Tally::default();
        parts.iter().for_each(|part| tally.count(part));
        tally.pages()
    }

    #[test]
    fn pages_are_those_of_a_list() {
        assert_eq!(pages(&[]), 0);
        assert_eq!(pages(&[neighbors(1, 1)]), 1);
        assert_eq!(pages(&[neighbors(8192 * 16, 1)]), 1);
        assert_eq!(pages(&[neighbors(8192 * 16 + 1, 1)]), 2);
        assert_eq!(pages(&[neighbors(8193, 16)]), 2, "a key each");
        // A batch ends in the middle of a key.
        let all = neighbors(8192 * 16, 1);
        let (first, second) = all.split_at(1000);
        assert_eq!(pages(&[first.to_vec(), second.to_vec()]), 1);
    }
}
