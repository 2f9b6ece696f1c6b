//! What is said between the machine and the world.

use std::collections::HashSet;
use std::time::Duration;

use crate::fleet::FleetName;
use crate::fleet::item::Item;
use crate::fleet::key::Key;

/// When what is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two questions whether all is well.
    pub pulse: Duration,
    /// Without an answer for so long something is wrong.
    pub silence: Duration,
    /// Between two comparisons with all that etcd holds, give or take a quarter; of more than [`PAGES`] pages as much longer as there
    /// are more.
    pub compare: Duration,
    /// From when etcd has told that nothing is missing until that is believed for a comparison.
    pub settle: Duration,
    /// Before the first try after a failure; then up to 32 times as long.
    pub retry: Duration,
}

/// Pages of a comparison up to which [`Timing::compare`] holds: two million neighbours.
pub const PAGES: u32 = 16;

impl Default for Timing {
    fn default() -> Self {
        Self {
            pulse: Duration::from_secs(1),
            silence: Duration::from_secs(5),
            compare: Duration::from_secs(600),
            settle: Duration::from_secs(1),
            retry: Duration::from_millis(100),
        }
    }
}

/// A key, as etcd tells it: what stands behind the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Behind the prefix.
    pub key: Vec<u8>,
    /// None: it was deleted.
    pub value: Option<Vec<u8>>,
    /// When it was changed last.
    pub revision: u64,
}

/// Some keys of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// For the first page, etcd's revision; what is listed is as of then.
    pub revision: u64,
    /// In the order of the keys.
    pub pairs: Vec<Pair>,
    /// There are more in the range that was asked for.
    pub more: bool,
}

/// Why something did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// What was asked for is no longer kept.
    Compacted,
    /// Anything else, for people.
    Other(String),
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// What came of [`Action::List`].
    Listed(Result<Page, Failed>),
    /// The watch has begun.
    Watching,
    /// All changes of some revisions, in order.
    Events(Vec<Pair>),
    /// Everything up to this revision was told, says etcd.
    Progress(u64),
    /// The watch has ended.
    Ended(Failed),
    /// What came of [`Action::Pulse`].
    Pulse(Result<Pulse, String>),
}

/// What a linearizable read has brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    /// etcd's revision.
    pub revision: u64,
    /// The number of its cluster.
    pub cluster: u64,
    /// What `v1/fleet` holds.
    pub fleet: Option<FleetName>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// List keys, in the place of what was listed before.
    List(Pages),
    /// Watch everything from this revision on, in the place of what was watched before.
    Watch(u64),
    /// Watch no more.
    Unwatch,
    /// Read `v1/fleet`, linearizable; what was asked before is given up.
    Pulse,
    /// Ask on the watch how far it is.
    Progress,
    /// Tell the tables.
    Tell(Tell),
}

/// What comes next, in this order.
#[derive(Debug)]
pub(super) enum Next {
    Do(Action),
    /// Read what these say, and tell the tables: so late that etcd has been asked for the next page before.
    Read(Vec<Pair>),
    /// The same of all groups and ports.
    ReadPolicy(Vec<Pair>),
}

/// Which keys are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// Those that begin with this, behind the prefix.
    pub kind: &'static str,
    /// Behind this one.
    pub after: Option<Vec<u8>>,
    /// And before this one; None: all that there are of the kind.
    pub before: Option<Vec<u8>>,
    /// How often the size of a page is to be halved.
    pub smaller: u32,
    /// As of this revision; None: now, linearizable.
    pub revision: Option<u64>,
}

/// What the tables are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tell {
    /// From now until the next [`Tell::Revision`] what is known is of no one revision.
    Begin,
    /// This holds. `compare`: it should be known, so count what is not.
    Items {
        /// What holds.
        items: Vec<Item>,
        /// Whether this is a comparison.
        compare: bool,
    },
    /// This holds of groups and ports, at once, and none has another key than these: part by part there would be rules that are neither those
    /// before nor those after.
    Policy {
        /// What holds.
        items: Vec<Item>,
        /// All of their keys.
        keep: HashSet<Key>,
    },
    /// Nothing has another key than these.
    Sweep {
        /// All keys.
        keep: HashSet<Key>,
        /// Whether this is a comparison.
        compare: bool,
    },
    /// What is known is what etcd has at this revision.
    Revision(u64),
}

/// How it fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not everything has been listed yet.
    Behind,
    /// All is well.
    Following,
    /// etcd has not answered for too long; why.
    CutOff(String),
    /// What etcd says is not believed any more; why.
    Rejected(String),
}

/// What was counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Watches that were begun again where the last one ended.
    pub resumed: u64,
    /// Lists because what had to be watched, or was being listed, was compacted.
    pub relisted: u64,
    /// Comparisons that came to their end.
    pub compared: u64,
    /// Values that could not be read.
    pub damaged: u64,
}

/// Which fleet of which cluster, and how much of it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The number of etcd's cluster.
    pub cluster: u64,
    /// What `v1/fleet` holds.
    pub fleet: FleetName,
    /// The revision as of which all is known; None: not all is.
    pub revision: Option<u64>,
    /// Not all values could be read: the next start compares at once, to know which.
    pub has_unread: bool,
}
