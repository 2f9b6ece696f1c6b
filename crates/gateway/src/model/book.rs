//! Applies changes to the tables in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringside_gateway_core::policy::{GroupId, PolicyWriter, ProfileId};
use ringside_gateway_core::table::{self, Put, Removed};
use ringside_gateway_core::{TenantAddress, Vni};

use super::rule::{decide, unknown};
use super::{DataPath, NoDataPath, Outcome, Tables};
use crate::object::{Change, Group, GroupKey, Port, Statement};

mod bound;
mod closed;
mod lost;
mod mirror;

pub(crate) use lost::Source;
pub(crate) use mirror::{Made, Other};

/// A profile that nothing is bound to stays so long: a worker may just have looked up an address that had it.
const LINGER: Duration = Duration::from_secs(10);

/// What is known besides the tables.
#[derive(Debug)]
pub(super) struct Book {
    tables: Arc<Tables>,
    /// Receives each change after the tables have changed.
    path: Arc<dyn DataPath>,
    ports: HashMap<TenantAddress, Bound>,
    /// Version and name.
    groups: HashMap<GroupId, (u64, String)>,
    /// How many addresses of which networks have a profile.
    users: HashMap<ProfileId, HashMap<Vni, usize>>,
    unused: Vec<(ProfileId, Instant)>,
    gone: Gone,
    /// While ports may be missing.
    closed: Option<closed::Closed>,
    /// Ports that hold though etcd lacks them, and whether that is for sure: see [`lost`].
    lost: HashMap<TenantAddress, bool>,
}

#[derive(Debug, Clone, Copy)]
struct Bound {
    profile: ProfileId,
    version: u64,
    /// It stands for a port that could not be read: see [`lost::placeholder`].
    is_placeholder: bool,
}

/// Versions of what was deleted, and when.
#[derive(Debug, Default)]
struct Gone {
    now: i64,
    neighbors: HashMap<TenantAddress, (u64, i64)>,
    ports: HashMap<TenantAddress, (u64, i64)>,
    groups: HashMap<GroupKey, (u64, i64)>,
}

/// Changes of the tables, as the data path receives them.
#[derive(Debug, Default)]
struct Applied {
    /// Addresses whose neighbour is new, different, or gone.
    changed: Vec<TenantAddress>,
    /// Networks in which what rules have decided before may no longer hold, each once.
    networks: Vec<Vni>,
}

impl Book {
    /// For tables without a data path.
    pub(super) fn new(tables: Arc<Tables>) -> Self {
        Self {
            tables,
            path: Arc::new(NoDataPath),
            ports: HashMap::new(),
            groups: HashMap::new(),
            users: HashMap::new(),
            unused: Vec::new(),
            gone: Gone::default(),
            closed: None,
            lost: HashMap::new(),
        }
    }

    /// Whether nothing is known, not even of anything that was deleted.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.neighbors.is_empty() && self.ports.is_empty() && self.groups.is_empty() && self.gone.len() == 0
    }

    /// Says what time it is.
    pub(super) fn set_now(&mut self, now: i64) {
        self.gone.now = now;
    }

    /// Sets the data path, which has read the tables. It receives all later changes.
    pub(super) fn set_path(&mut self, path: Arc<dyn DataPath>) {
        self.path = path;
    }

    /// Applies changes in order and passes them to the data path. Groups and ports come first: when
    /// packets reach a new neighbour, the rules that came with it apply to all packets.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Unchanged; changes.len()];
        let of_policy = |change: &Change| !matches!(change, Change::Neighbor(_));
        if changes.iter().any(of_policy) {
            let applied = self.apply_policy(changes, &mut outcomes);
            self.tell(&applied);
        }
        let applied = self.apply_neighbors(changes, &mut outcomes);
        self.tell(&applied);
        outcomes
    }

    /// Passes changes to the data path. Updates the sizes first: it reads from them whether there
    /// are rules.
    fn tell(&self, applied: &Applied) {
        self.tell_sizes();
        if !applied.networks.is_empty() {
            self.path.policy_changed(&applied.networks);
        }
        if !applied.changed.is_empty() {
            self.path.changed(&applied.changed);
        }
    }

    fn tell_sizes(&self) {
        let sizes = [
            (&self.tables.ports, self.ports.len()),
            (&self.tables.groups, self.groups.len()),
            (&self.tables.tombstones, self.gone.len()),
        ];
        for (place, size) in sizes {
            place.store(size, Ordering::Relaxed);
        }
    }

    fn apply_policy(&mut self, changes: &[Change], outcomes: &mut [Outcome]) -> Applied {
        let tables = Arc::clone(&self.tables);
        let mut policy = tables.policy.write();
        let mut bound = BTreeSet::new();
        for (change, outcome) in changes.iter().zip(outcomes) {
            match change {
                Change::Neighbor(_) => {}
                Change::Group(statement) => *outcome = self.group(&mut policy, statement),
                Change::Port(statement) => {
                    *outcome = self.port(&mut policy, statement);
                    if outcome.is_change() {
                        bound.insert(statement.key());
                    }
                }
            }
        }
        self.bound(policy, bound)
    }

    /// As `Neighbor::policy`.
    fn policy_of(&self, address: TenantAddress) -> u32 {
        let bound = self.ports.get(&address);
        bound.map_or_else(|| self.without_port(), |bound| bound.profile.number())
    }

    fn group(&mut self, policy: &mut PolicyWriter<'_>, statement: &Statement<Group>) -> Outcome {
        let key = statement.key();
        let known = self.groups.get(&key.0).map(|(version, _)| *version);
        let (decided, forgotten) = decide(
            known,
            self.gone.groups.get(&key).map(|(version, _)| *version),
            statement,
            || {
                let name = self.groups.get(&key.0).map(|(_, name)| name);
                matches!(statement, Statement::Put(group) if policy.group(key.0) == Some(&*group.rules) && name == Some(&group.name))
            },
        );
        match statement {
            Statement::Put(group) if decided.is_change() => {
                self.set_group(policy, key.0, Some(group));
                self.gone.groups.remove(&key);
            }
            Statement::Delete(_, version) if forgotten => {
                self.set_group(policy, key.0, None);
                self.gone.groups.insert(key, (*version, self.gone.now));
            }
            _ => {}
        }
        decided
    }

    /// From now on a group is so, or is not there.
    fn set_group(&mut self, policy: &mut PolicyWriter<'_>, id: GroupId, group: Option<&Group>) {
        match group {
            Some(group) => {
                let put = policy.put_group(id, group.rules.clone());
                debug_assert!(put.is_ok(), "rules are checked when they come in: {put:?}");
                self.groups.insert(id, (group.version, group.name.clone()));
            }
            None => {
                policy.remove_group(id);
                self.groups.remove(&id);
            }
        }
    }

    fn port(&mut self, policy: &mut PolicyWriter<'_>, statement: &Statement<Port>) -> Outcome {
        let address = statement.key();
        let bound = self.ports.get(&address).copied();
        let known = bound.map(|bound| bound.version);
        let (decided, forgotten) = decide(
            known,
            self.gone.ports.get(&address).map(|(version, _)| *version),
            statement,
            || {
                let groups = bound.and_then(|bound| policy.groups_of(bound.profile));
                matches!(statement, Statement::Put(port) if groups == Some(&*port.groups))
            },
        );
        match statement {
            Statement::Put(port) if decided.is_change() => {
                self.bind(policy, address, Some(port));
                self.gone.ports.remove(&address);
            }
            Statement::Delete(_, version) if forgotten => {
                self.bind(policy, address, None);
                self.gone.ports.insert(address, (*version, self.gone.now));
            }
            _ => {}
        }
        decided
    }

    /// From now on groups are bound to an address, or none.
    fn bind(&mut self, policy: &mut PolicyWriter<'_>, address: TenantAddress, port: Option<&Port>) {
        let before = match port {
            Some(port) => {
                let profile = policy.profile(&port.groups);
                let (version, is_placeholder) = (port.version, lost::is_placeholder(port));
                *self.users.entry(profile).or_default().entry(address.vni).or_default() += 1;
                self.unused.retain(|(unused, _)| *unused != profile);
                let bound = Bound {
                    profile,
                    version,
                    is_placeholder,
                };
                self.ports.insert(address, bound)
            }
            None => self.ports.remove(&address),
        };
        if let Some(Bound { profile, .. }) = before
            && let Some(users) = self.users.get_mut(&profile)
            && let Some(there) = users.get_mut(&address.vni)
        {
            *there -= 1;
            if *there == 0 {
                users.remove(&address.vni);
            }
            if users.is_empty() {
                self.users.remove(&profile);
                self.unused.push((profile, Instant::now()));
            }
        }
    }

    fn apply_neighbors(&mut self, changes: &[Change], outcomes: &mut [Outcome]) -> Applied {
        let mut applied = Applied::default();
        let tables = Arc::clone(&self.tables);
        let mut writer = tables.neighbors.write();
        let mut reader = None;
        for (change, outcome) in changes.iter().zip(outcomes) {
            let Change::Neighbor(statement) = change else { continue };
            let address = statement.key();
            if self.hold(address.vni) {
                applied.networks.push(address.vni);
            }
            let version = statement.version();
            let gone = self.gone.neighbors.get(&address).map(|(version, _)| *version);
            *outcome = match statement {
                Statement::Put(_) if gone.is_some_and(|gone| gone >= version) => Outcome::Older,
                Statement::Put(object) => {
                    let neighbor = table::Neighbor {
                        mac: object.mac,
                        host: tables.hosts.intern(object.host),
                        policy: self.policy_of(address),
                        version,
                    };
                    let put = writer.put(address, neighbor);
                    if matches!(put, Put::New | Put::Replaced(_)) {
                        self.gone.neighbors.remove(&address);
                        applied.changed.push(address);
                    }
                    match put {
                        Put::New => Outcome::Created,
                        Put::Replaced(_) => Outcome::Replaced,
                        Put::Older(_) => Outcome::Older,
                        Put::Known => {
                            let reader = reader.get_or_insert_with(|| tables.neighbors.reader());
                            match reader.find(address) {
                                Some(known) if known == neighbor => Outcome::Unchanged,
                                _ => Outcome::Conflict,
                            }
                        }
                    }
                }
                Statement::Delete(..) => {
                    let removed = writer.remove(address, version);
                    let (outcome, is_newest) = match removed {
                        Removed::Gone(_) => {
                            applied.changed.push(address);
                            (Outcome::Deleted, true)
                        }
                        Removed::Older(_) => (Outcome::Older, false),
                        Removed::Unknown => unknown(gone, version),
                    };
                    if is_newest {
                        self.gone.neighbors.insert(address, (version, self.gone.now));
                    }
                    outcome
                }
            };
        }
        applied
    }

    /// What a store has loaded: as [`Book::apply`], with the times at which things were deleted.
    pub(super) fn load(&mut self, changes: &[Change], deleted: &[i64]) {
        self.apply(changes);
        for (change, when) in changes.iter().zip(deleted) {
            match change {
                Change::Neighbor(Statement::Delete(address, version)) => {
                    self.gone.neighbors.insert(*address, (*version, *when));
                }
                Change::Port(Statement::Delete(address, version)) => {
                    self.gone.ports.insert(*address, (*version, *when));
                }
                Change::Group(statement) => {
                    if let Statement::Delete(key, version) = &**statement {
                        self.gone.groups.insert(*key, (*version, *when));
                    }
                }
                _ => {}
            }
        }
    }

    /// Forgets what was deleted before a time.
    pub(super) fn forget(&mut self, before: i64) {
        self.gone.neighbors.retain(|_, (_, when)| *when >= before);
        self.gone.ports.retain(|_, (_, when)| *when >= before);
        self.gone.groups.retain(|_, (_, when)| *when >= before);
        self.tables.tombstones.store(self.gone.len(), Ordering::Relaxed);
    }

    /// Forgets profiles that nothing has been bound to for some time. No decision depends on them any more: that was told when the
    /// last address got another one.
    pub(super) fn tidy(&mut self, now: Instant) {
        let is_old = |(_, since): &(ProfileId, Instant)| now.duration_since(*since) >= LINGER;
        if !self.unused.iter().any(is_old) {
            return;
        }
        let mut policy = self.tables.policy.write();
        self.unused.retain(|unused| {
            let old = is_old(unused);
            if old {
                policy.remove_profile(unused.0);
            }
            !old
        });
        policy.publish();
    }
}

impl Gone {
    fn len(&self) -> usize {
        self.neighbors.len() + self.ports.len() + self.groups.len()
    }
}
