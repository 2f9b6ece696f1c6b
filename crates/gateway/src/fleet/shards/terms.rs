//! What is said between the machine and the world.

use std::time::Duration;

use ringside_gateway_core::shard::{MemberId, Shard};

/// An answer may well take so long on a machine that has other things to do.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// When what is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long etcd keeps a member that says nothing.
    pub lease: Duration,
    /// Between two lists of everything, although a watch tells what changes.
    pub list: Duration,
    /// So much later each further member looks after shards without an owner, should the one before it not have done so.
    pub stagger: Duration,
    /// Before the first try after a failure; then up to 16 times as long.
    pub retry: Duration,
    /// After so long shards go to their new owner even if that could not be given their connections.
    pub hand_over: Duration,
    /// Shards of living members that one transaction moves.
    pub most: usize,
    /// Without a link for so long a member gives its shards away; None: it keeps them.
    pub without_link: Option<Duration>,
}

impl Timing {
    /// How long an answer about the lease may take, before another member of etcd is asked: three of them may be asked one after the
    /// other, from the moment in which the lease is to be kept until it runs out.
    #[must_use]
    pub fn patience(&self) -> Duration {
        (self.lease / 6).max(LEAST_PATIENCE).min(self.lease / 3)
    }

    /// How long those whose keys are gone together may take to be there again, should they live: an old leader of etcd before 3.4.31 ends
    /// all leases when it goes on. Twice the time of an answer, for they need a lease, a list and a key.
    #[must_use]
    pub fn back(&self) -> Duration {
        2 * self.patience()
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            list: Duration::from_secs(30),
            stagger: Duration::from_millis(100),
            retry: Duration::from_millis(50),
            hand_over: Duration::from_secs(10),
            most: 128,
            without_link: Some(Duration::from_secs(1)),
        }
    }
}

/// What is to be done. Each action but `Watch` and `Unwatch` is answered by one input, within [`Action::Keep`]'s time or what the world
/// thinks right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A lease for so long. [`Input::Granted`].
    Grant(Duration),
    /// This lease is to live on; an answer that takes longer than this is none. [`Input::Kept`].
    Keep(i64, Duration),
    /// The own key, under this lease. [`Input::Registered`].
    Register(Registration),
    /// All members and the map, at one revision. [`Input::Listed`].
    List,
    /// What changes of them from this revision on: [`Input::Changed`], until [`Input::Ended`].
    Watch(u64),
    /// Not any more.
    Unwatch,
    /// Gives the connections of these shards to a member, which is to have them before the map says so; others may be given theirs at the
    /// same time. [`Input::HandedOver`].
    HandOver {
        /// Who gets them.
        to: MemberId,
        /// Of these.
        shards: Vec<Shard>,
    },
    /// Another map. [`Input::Proposed`].
    Propose(Proposal),
}

/// The own key is to hold this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Whose.
    pub id: MemberId,
    /// With it the key goes.
    pub lease: i64,
    /// What it holds.
    pub value: Vec<u8>,
    /// When the key has to have been changed last (0: it is not there); None: whatever is there.
    pub expected: Option<u64>,
}

/// A transaction: if everything is so, the map becomes this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// When the map was changed last; 0: there is none.
    pub revision: u64,
    /// The map, encoded.
    pub map: Vec<u8>,
    /// Members whose keys were changed last at these revisions: who proposes it, and who gets something.
    pub present: Vec<(MemberId, u64)>,
    /// Who loses something without having given it away: members that have no key (0), or whose
    /// keys, changed last at these revisions, say nothing of a member.
    pub absent: Vec<(MemberId, u64)>,
}

/// A member's key, as etcd tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose.
    pub id: MemberId,
    /// None: it is gone.
    pub value: Option<Vec<u8>>,
    /// When it was changed last.
    pub revision: u64,
    /// With which it goes.
    pub lease: i64,
}

/// The map's key, as etcd tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    /// None: it is gone.
    pub value: Option<Vec<u8>>,
    /// When it was changed last.
    pub revision: u64,
}

/// Everything at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// As of then.
    pub revision: u64,
    /// All members.
    pub members: Vec<Entry>,
    /// None: there is none yet.
    pub map: Option<MapEntry>,
}

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// A member.
    Member(Entry),
    /// The map.
    Map(MapEntry),
}

/// What came of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was made, at this revision.
    Made(u64),
    /// Something was otherwise: this is the map.
    Otherwise(Option<MapEntry>),
}

/// What has happened. Errors are words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A lease and how long it lives, or why there is none.
    Granted(Result<(i64, Duration), String>),
    /// How long the lease lives on: 0 if it is over.
    Kept(Result<Duration, String>),
    /// At which revision; None if the key was otherwise.
    Registered(Result<Option<u64>, String>),
    /// Everything.
    Listed(Result<Listed, String>),
    /// What a watch tells.
    Changed(Vec<Changed>),
    /// The watch is over.
    Ended(String),
    /// Whether this new owner has the connections; false: it cannot be given any, and need not be waited for.
    HandedOver(MemberId, Result<bool, String>),
    /// What came of a proposal; if nobody knows, why.
    Proposed(Result<Outcome, String>),
    /// Whether this gateway knows all that etcd holds of networks, neighbours and rules.
    Synced(bool),
    /// To be taken out of service, or back into it.
    Drain(bool),
    /// Whether packets come to this gateway at all. Until it is said they do.
    Link(bool),
}

/// Whether this gateway is a member of its fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// It has no lease yet, or its key is not there yet.
    Joining(Option<String>),
    /// Its lease lives.
    Member,
    /// Its lease may have run out, and its shards may have been given to others; it goes on with what it last knew.
    Lapsed(String),
    /// Another program runs under its name, and has taken its place.
    Replaced(String),
}

/// What this gateway is to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenure {
    /// Its owner.
    Owner,
    /// Its owner when etcd was last heard of; it is served until somebody says otherwise.
    Held,
    /// Another one's, or nobody's. What comes of it all the same is sent on, for hosts may not know it yet.
    Foreign,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Shards that were taken from members that are gone.
    pub taken: u64,
    /// Shards that were given to others.
    pub given: u64,
    /// Those of them whose connections could not be given along.
    pub given_bare: u64,
    /// Proposals that met another's.
    pub conflicts: u64,
    /// Leases that ran out.
    pub lapses: u64,
}
