//! What etcd holds: which of its keys changed at which revision. Keys are not stored each: a cell stands for many that lie beside
//! each other, and has a version that grows with each change of one of them.

use std::net::Ipv4Addr;

use ringside_gateway::fleet::chance::mixed;
use ringside_gateway::fleet::item::Item;
use ringside_gateway::fleet::key::{Block, Key};
use ringside_gateway::fleet::sync::Pair;
use ringside_gateway::fleet::value::Entry;
use ringside_gateway::object::{Neighbor, Statement};
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use super::world::place;

/// Pairs of so many last revisions are at hand.
const RECENT: usize = 8192;

/// One revision.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// With the version that each has then.
    pub(crate) cells: Vec<(u32, u64)>,
    /// Keys that were written in truth.
    pub(crate) keys: u64,
    /// When it was acknowledged.
    pub(crate) at: u64,
    /// Of everything as it is then.
    pub(crate) digest: u64,
}

#[derive(Debug)]
pub(crate) struct Log {
    changes: Vec<Change>,
    of_cell: Vec<Vec<u64>>,
    pub(crate) compacted: u64,
    networks: u32,
    recent: std::collections::VecDeque<Vec<Pair>>,
    recent_from: u64,
}

/// What everything is known by: all cells' together, in any order.
pub(crate) fn digest_of(cell: u32, version: u64) -> u64 {
    match version {
        0 => 0,
        _ => mixed(u64::from(cell) << 40 | version),
    }
}

impl Log {
    /// Each cell was written in revision 1.
    pub(crate) fn new(cells: u32, networks: u32) -> Self {
        let digest = (0..cells).fold(0, |digest, cell| digest ^ digest_of(cell, 1));
        let first = Change {
            cells: (0..cells).map(|cell| (cell, 1)).collect(),
            keys: 0,
            at: 0,
            digest,
        };
        Self {
            changes: vec![first],
            of_cell: vec![vec![1]; cells as usize],
            compacted: 0,
            networks,
            recent: std::collections::VecDeque::new(),
            recent_from: 2,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.changes.len() as u64
    }

    pub(crate) fn change(&self, revision: u64) -> &Change {
        &self.changes[place(revision) - 1]
    }

    pub(crate) fn cells(&self) -> u32 {
        u32::try_from(self.of_cell.len()).unwrap_or(u32::MAX)
    }

    /// Says the revision.
    pub(crate) fn write(&mut self, cells: &[u32], keys: u64, at: u64) -> u64 {
        let revision = self.revision() + 1;
        let mut digest = self.change(revision - 1).digest;
        let mut changed: Vec<(u32, u64)> = Vec::with_capacity(cells.len());
        for &cell in cells {
            if changed.iter().any(|(other, _)| *other == cell) {
                continue;
            }
            let revisions = &mut self.of_cell[cell as usize];
            let version = revisions.len() as u64;
            revisions.push(revision);
            digest ^= digest_of(cell, version) ^ digest_of(cell, version + 1);
            changed.push((cell, version + 1));
        }
        let pairs = changed
            .iter()
            .map(|(cell, version)| pair(*cell, self.networks, *version, revision));
        self.recent.push_back(pairs.collect());
        if self.recent.len() > RECENT {
            self.recent.pop_front();
            self.recent_from += 1;
        }
        self.changes.push(Change {
            cells: changed,
            keys,
            at,
            digest,
        });
        revision
    }

    /// The pairs of a revision.
    pub(crate) fn pairs(&self, revision: u64, into: &mut Vec<Pair>) {
        let recent = (revision.checked_sub(self.recent_from)).and_then(|at| self.recent.get(place(at)));
        match recent {
            Some(pairs) => into.extend_from_slice(pairs),
            None => {
                let cells = &self.change(revision).cells;
                into.extend(
                    cells
                        .iter()
                        .map(|(cell, version)| pair(*cell, self.networks, *version, revision)),
                );
            }
        }
    }

    /// A cell as it was at a revision.
    pub(crate) fn at(&self, cell: u32, revision: u64) -> Pair {
        let revisions = &self.of_cell[cell as usize];
        let version = revisions.partition_point(|changed| *changed <= revision);
        pair(cell, self.networks, version as u64, revisions[version - 1])
    }

    /// The last revision that was acknowledged before a time.
    pub(crate) fn before(&self, at: u64) -> u64 {
        self.changes.partition_point(|change| change.at <= at) as u64
    }
}

/// The key of a cell that stands for so many networks: that of its last one.
pub(crate) fn key_of(cell: u32, networks: u32) -> Key {
    Key::Neighbors(Block::of(address_of(cell, networks)).0)
}

/// What stands behind its kind.
pub(crate) fn name_of(cell: u32, networks: u32) -> Vec<u8> {
    let name = key_of(cell, networks).to_string();
    name.trim_start_matches("v1/neighbors/").as_bytes().to_vec()
}

fn address_of(cell: u32, networks: u32) -> TenantAddress {
    let vni = Vni::new((cell + 1) * networks).expect("fewer than 16 million networks");
    TenantAddress::new(vni, Ipv4Addr::new(10, 0, 0, 0).into())
}

/// Which cell an address stands for.
pub(crate) fn cell_of(address: TenantAddress, networks: u32) -> u32 {
    address.vni.number() / networks - 1
}

fn pair(cell: u32, networks: u32, version: u64, revision: u64) -> Pair {
    let address = address_of(cell, networks);
    let (block, _) = Block::of(address);
    let entry = Entry {
        statement: Statement::Put(Neighbor {
            address,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            host: Host::at(Ipv4Addr::new(192, 0, 2, 1).into()),
            version,
        }),
        deleted: 0,
    };
    Pair {
        key: key_of(cell, networks).to_string().into_bytes(),
        value: Item::Neighbors(block, vec![entry]).write(),
        revision,
    }
}
