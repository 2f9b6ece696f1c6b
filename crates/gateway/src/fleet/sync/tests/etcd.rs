//! etcd, as far as a gateway sees it.

use std::collections::BTreeMap;

use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::{TenantAddress, Vni};

use crate::fleet::item::Item;
use crate::fleet::key::{FLEET, Key};
use crate::fleet::sync::{Failed, Page, Pages, Pair};
use crate::fleet::value::{Entry, Packed, pack};
use crate::object::{Group, Neighbor, Port, Statement};

/// What the tables ought to hold.
pub(super) type Items = BTreeMap<Key, Item>;

/// Value of the key that says whose state it is.
pub(crate) const NAME: &[u8] = b"ringside-gateway fleet, schema 1, 0123456789abcdef";

/// What it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    LoseNextEvent,
}

#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) cluster: u64,
    pub(crate) revision: u64,
    compacted: u64,
    /// In order.
    history: Vec<Pair>,
    pub(super) fault: Option<Fault>,
    /// A fault has come about.
    pub(super) has_lost: bool,
    pub(super) progress_is_ahead: bool,
    pub(crate) fleet: Option<Vec<u8>>,
}

/// One of a few keys, of each kind, in three networks.
fn key(number: u8) -> Key {
    let vni = Vni::new(u32::from(number) % 3).unwrap();
    let address = TenantAddress::new(vni, [10, 0, number, 0].into());
    match number % 4 {
        0 => Port::place(address).0,
        1 => Key::Group(GroupId(number.into())),
        _ => Neighbor::place(address).0,
    }
}

fn value(number: u8, version: u64) -> Vec<u8> {
    fn of<O: Packed>(key: Key, low: u8, version: u64) -> Vec<u8> {
        let entry = Entry::<O> {
            statement: Statement::Delete(O::at(key, low).unwrap(), version),
            deleted: 1,
        };
        pack(key, &[entry]).unwrap()
    }
    let key = key(number);
    match key {
        Key::Group(_) => of::<Group>(key, 0, version),
        Key::Ports(_) => of::<Port>(key, number % 16, version),
        Key::Neighbors(_) => of::<Neighbor>(key, number % 16, version),
    }
}

impl Etcd {
    pub(crate) fn new() -> Self {
        let fleet = NAME.to_vec();
        Self {
            cluster: 1,
            revision: 2,
            compacted: 0,
            history: vec![Pair {
                key: FLEET.into(),
                value: Some(fleet.clone()),
                revision: 2,
            }],
            fault: None,
            has_lost: false,
            progress_is_ahead: false,
            fleet: Some(fleet),
        }
    }

    /// In one transaction; None deletes, and a key comes once.
    pub(super) fn write(&mut self, pairs: &[(u8, Option<u64>)]) {
        self.revision += 1;
        let pairs: BTreeMap<u8, Option<u64>> = pairs.iter().copied().collect();
        for (number, version) in pairs {
            let name = key(number).to_string().into_bytes();
            if version.is_none() && !self.at(self.revision).contains_key(&key(number)) {
                continue;
            }
            self.history.push(Pair {
                key: name,
                value: version.map(|version| value(number, version)),
                revision: self.revision,
            });
        }
    }

    /// In one transaction, what these say.
    pub(crate) fn hold(&mut self, items: Vec<Item>) {
        self.revision += 1;
        for item in items {
            self.history.push(Pair {
                key: item.key().to_string().into_bytes(),
                value: item.write(),
                revision: self.revision,
            });
        }
    }

    /// Changes the key that says whose state it is, and nothing else.
    pub(super) fn set_fleet(&mut self, fleet: Option<Vec<u8>>) {
        self.revision += 1;
        self.history.push(Pair {
            key: FLEET.into(),
            value: fleet.clone(),
            revision: self.revision,
        });
        self.fleet = fleet;
    }

    pub(super) fn replace_fleet(&mut self, fleet: Option<Vec<u8>>) {
        self.revision += 1;
        for (_, key) in [(0, FLEET.to_owned())]
            .into_iter()
            .chain(self.at(self.revision).keys().map(|key| (1, key.to_string())))
        {
            let value = if key == FLEET { fleet.clone() } else { None };
            self.history.push(Pair {
                key: key.into_bytes(),
                value,
                revision: self.revision,
            });
        }
        self.fleet = fleet;
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// From a backup of that revision.
    pub(super) fn restore(&mut self, revision: u64) {
        self.history.retain(|pair| pair.revision <= revision);
        self.revision = revision;
    }

    fn pairs_at(&self, revision: u64) -> BTreeMap<&[u8], &Pair> {
        let mut pairs = BTreeMap::new();
        for pair in self.history.iter().take_while(|pair| pair.revision <= revision) {
            pairs.insert(&*pair.key, pair);
        }
        pairs.retain(|_, pair| pair.value.is_some());
        pairs
    }

    pub(super) fn at(&self, revision: u64) -> Items {
        let pairs = self.pairs_at(revision);
        let items = pairs
            .values()
            .filter_map(|pair| Some((Key::parse(&pair.key)?, pair.value.as_deref()?)));
        items
            .map(|(key, value)| (key, Item::read(key, Some(value)).unwrap()))
            .collect()
    }

    pub(crate) fn list(
        &self,
        Pages {
            kind,
            after,
            before,
            revision,
            ..
        }: &Pages,
        size: usize,
    ) -> Result<Page, Failed> {
        let revision = *revision;
        let (after, before) = (after.as_ref(), before.as_ref());
        if revision.is_some_and(|revision| revision < self.compacted) {
            return Err(Failed::Compacted);
        }
        let pairs = self.pairs_at(revision.unwrap_or(self.revision));
        let mut pairs: Vec<Pair> = (pairs.into_values())
            .filter(|pair| pair.key.starts_with(kind.as_bytes()) && after.is_none_or(|after| pair.key > *after))
            .filter(|pair| before.is_none_or(|before| pair.key < *before))
            .cloned()
            .collect();
        let more = pairs.len() > size;
        pairs.truncate(size);
        Ok(Page {
            revision: self.revision,
            pairs,
            more,
        })
    }

    /// All of the next revision that has something, from one on.
    pub(super) fn events(&mut self, from: u64) -> Result<Option<Vec<Pair>>, Failed> {
        if from <= self.compacted {
            return Err(Failed::Compacted);
        }
        let Some(first) = self.history.iter().find(|pair| pair.revision >= from) else {
            return Ok(None);
        };
        let revision = first.revision;
        let all = self.history.iter().filter(|pair| pair.revision == revision);
        let mut all: Vec<Pair> = all.cloned().collect();
        if self.fault.take().is_some() {
            all.pop();
            self.has_lost = true;
        }
        Ok(Some(all))
    }
}
