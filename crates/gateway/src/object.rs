//! What the control plane keeps: neighbours, ports and security groups, as the rest of the gateway sees them.
//!
//! [`wire`] makes them from messages of the API and back, [`text`] from what people write and read (YAML, JSON, CSV).

use std::fmt;

use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::policy::{GroupId, Rule};
use ringside_gateway_core::table::Host;
use ringside_wire::MacAddr;

pub mod text;
pub mod wire;

/// The highest version: SQLite has no unsigned numbers.
pub const MAX_VERSION: u64 = i64::MAX.cast_unsigned();
/// The version of a statement that has none yet: the writer fills it in by what is known
/// ([`fill_in`]).
#[cfg(feature = "daemon")]
pub(crate) const OPEN_VERSION: u64 = u64::MAX;
/// The most rules of a group.
pub const MAX_RULES: usize = 4096;
/// The most groups of a port.
pub const MAX_GROUPS: usize = 256;
/// The longest name of a group, in bytes.
pub const MAX_NAME: usize = 255;

/// Something that has a name and a version.
pub trait Object: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// What names it.
    type Key: Copy + Ord + fmt::Debug + fmt::Display + Send + Sync + 'static;

    /// What it is called in messages.
    const NAME: &'static str;

    /// Its name.
    fn key(&self) -> Self::Key;

    /// Given by the caller; of two statements about an object the higher one holds.
    fn version(&self) -> u64;

    /// Replaces the version.
    fn set_version(&mut self, version: u64);

    /// Puts it among the others.
    fn into_change(statement: Statement<Self>) -> Change;

    /// What is said about an object of this kind; None if it is of another one.
    fn of(change: &Change) -> Option<&Statement<Self>>;

    /// The same, to be changed.
    fn of_mut(change: &mut Change) -> Option<&mut Statement<Self>>;
}

/// An address of a tenant, and where it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbor {
    /// The address.
    pub address: TenantAddress,
    /// Its MAC address in its own network.
    pub mac: MacAddr,
    /// Where it lives.
    pub host: Host,
    /// See [`Object::version`].
    pub version: u64,
}

/// An address of a tenant, and the groups that are bound to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The address.
    pub address: TenantAddress,
    /// In order, each once.
    pub groups: Vec<GroupId>,
    /// See [`Object::version`].
    pub version: u64,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: GroupId,
    /// For people.
    pub name: String,
    /// What it allows.
    pub rules: Vec<Rule>,
    /// See [`Object::version`].
    pub version: u64,
}

/// What is said about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement<O: Object> {
    /// It is so.
    Put(O),
    /// It is gone, in this version.
    Delete(O::Key, u64),
}

impl<O: Object> Statement<O> {
    /// Whom it is about.
    pub fn key(&self) -> O::Key {
        match self {
            Self::Put(object) => object.key(),
            Self::Delete(key, _) => *key,
        }
    }

    /// See [`Object::version`].
    pub fn version(&self) -> u64 {
        match self {
            Self::Put(object) => object.version(),
            Self::Delete(_, version) => *version,
        }
    }
}

/// Fills in an open version. Something that differs from what is known gets the next version,
/// something that does not the known one; a delete gets the known one.
#[cfg(feature = "daemon")]
pub(crate) fn fill_in<O: Object>(statement: &mut Statement<O>, known: Option<&Statement<O>>) {
    match statement {
        Statement::Put(object) if object.version() == OPEN_VERSION => {
            let next = |known: &Statement<O>| known.version().saturating_add(1).min(MAX_VERSION);
            let version = known.map_or(1, next);
            object.set_version(known.map_or(version, Statement::version));
            let is_known = matches!(known, Some(Statement::Put(known)) if known == object);
            if !is_known {
                object.set_version(version);
            }
        }
        Statement::Delete(_, version) if *version == OPEN_VERSION => {
            *version = known.map_or(0, Statement::version);
        }
        _ => {}
    }
}

/// What is said about an object of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A neighbour.
    Neighbor(Statement<Neighbor>),
    /// A port.
    Port(Statement<Port>),
    /// A security group. Seldom, and large.
    Group(Box<Statement<Group>>),
}

impl Change {
    /// True if its version is to be filled in.
    #[cfg(feature = "daemon")]
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        let version = match self {
            Self::Neighbor(statement) => statement.version(),
            Self::Port(statement) => statement.version(),
            Self::Group(statement) => statement.version(),
        };
        version == OPEN_VERSION
    }

    /// True if it says that something is gone.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        match self {
            Self::Neighbor(statement) => matches!(statement, Statement::Delete(..)),
            Self::Port(statement) => matches!(statement, Statement::Delete(..)),
            Self::Group(statement) => matches!(**statement, Statement::Delete(..)),
        }
    }
}

impl Object for Neighbor {
    type Key = TenantAddress;

    const NAME: &'static str = "neighbor";

    fn key(&self) -> TenantAddress {
        self.address
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    fn into_change(statement: Statement<Self>) -> Change {
        Change::Neighbor(statement)
    }

    fn of(change: &Change) -> Option<&Statement<Self>> {
        match change {
            Change::Neighbor(statement) => Some(statement),
            _ => None,
        }
    }

    fn of_mut(change: &mut Change) -> Option<&mut Statement<Self>> {
        match change {
            Change::Neighbor(statement) => Some(statement),
            _ => None,
        }
    }
}

impl Object for Port {
    type Key = TenantAddress;

    const NAME: &'static str = "port";

    fn key(&self) -> TenantAddress {
        self.address
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    fn into_change(statement: Statement<Self>) -> Change {
        Change::Port(statement)
    }

    fn of(change: &Change) -> Option<&Statement<Self>> {
        match change {
            Change::Port(statement) => Some(statement),
            _ => None,
        }
    }

    fn of_mut(change: &mut Change) -> Option<&mut Statement<Self>> {
        match change {
            Change::Port(statement) => Some(statement),
            _ => None,
        }
    }
}

/// The number of a group, as something that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(pub GroupId);

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

impl Object for Group {
    type Key = GroupKey;

    const NAME: &'static str = "security group";

    fn key(&self) -> GroupKey {
        GroupKey(self.id)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    fn into_change(statement: Statement<Self>) -> Change {
        Change::Group(Box::new(statement))
    }

    fn of(change: &Change) -> Option<&Statement<Self>> {
        match change {
            Change::Group(statement) => Some(statement),
            _ => None,
        }
    }

    fn of_mut(change: &mut Change) -> Option<&mut Statement<Self>> {
        match change {
            Change::Group(statement) => Some(statement),
            _ => None,
        }
    }
}
