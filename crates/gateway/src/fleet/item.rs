//! What the fleet's state says of all objects of a key.

use ringside_gateway_core::policy::GroupId;

use super::key::{Block, Key};
use super::value::{Entry, Packed, pack, unpack};
use crate::object::{Group, Neighbor, Port};

/// What holds of all objects of a key: what is not named is not there, and never was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A security group.
    Group(GroupId, Option<Entry<Group>>),
    /// Ports, in the order of their addresses.
    Ports(Block, Vec<Entry<Port>>),
    /// Neighbours, in the order of their addresses.
    Neighbors(Block, Vec<Entry<Neighbor>>),
    /// Ports that cannot be read. What is known of them holds, and where nothing is, nothing is allowed.
    DamagedPorts(Block),
}

fn entries<O: Packed>(key: Key, value: Option<&[u8]>) -> Result<Vec<Entry<O>>, String> {
    value.map_or(Ok(Vec::new()), |value| unpack(key, value))
}

impl Item {
    /// From what a key holds; None: there is no such key.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(key: Key, value: Option<&[u8]>) -> Result<Self, String> {
        Ok(match key {
            Key::Group(id) => Self::Group(id, entries(key, value)?.pop()),
            Key::Ports(block) => Self::Ports(block, entries(key, value)?),
            Key::Neighbors(block) => Self::Neighbors(block, entries(key, value)?),
        })
    }

    /// What its key holds, as [`Item::read`] reads it; None: there is no such key, or nothing is known of it.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let key = self.key();
        match self {
            Self::Group(_, entry) => pack(key, entry.as_slice()),
            Self::Ports(_, entries) => pack(key, entries),
            Self::Neighbors(_, entries) => pack(key, entries),
            Self::DamagedPorts(_) => None,
        }
    }

    /// The key that it is about.
    #[must_use]
    pub const fn key(&self) -> Key {
        match self {
            Self::Group(id, _) => Key::Group(*id),
            Self::Ports(block, _) | Self::DamagedPorts(block) => Key::Ports(*block),
            Self::Neighbors(block, _) => Key::Neighbors(*block),
        }
    }
}
