//! The book of groups and profiles, and what workers see of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Cache};
use foldhash::fast::RandomState;

use super::compiled::{Compiled, Denied, Subject};
use super::rule::{Direction, GroupId, ProfileId, Remote, Rule, RuleError, RuleId, Service};

/// All groups and profiles: read through [`PolicyReader`]s, changed through one [`PolicyWriter`] at a time.
///
/// ```
/// use ringside_gateway_core::policy::{Denied, Direction, GroupId, Policy, Remote, Rule, RuleId, Service, Subject};
/// use ringside_wire::Protocol;
///
/// let policy = Policy::new();
/// let mut writer = policy.write();
/// let web = writer.profile(&[GroupId(1)]);
/// writer.put_group(GroupId(1), vec![Rule {
///     id: RuleId(11),
///     direction: Direction::Ingress,
///     family: None,
///     service: Service::Ports(Protocol::TCP, 80..=80),
///     remote: Remote::Any,
/// }])?;
/// writer.publish();
///
/// let mut reader = policy.reader();
/// let subject = Subject {
///     source: "10.0.0.1".parse()?,
///     destination: "10.0.0.2".parse()?,
///     protocol: Protocol::TCP,
///     service: 80,
/// };
/// let rules = reader.load();
/// assert_eq!(rules.judge(&subject, None, Some(web)), Ok(()));
/// let other = Subject { service: 81, ..subject };
/// assert_eq!(rules.judge(&other, None, Some(web)), Err(Denied::Ingress));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Policy {
    shared: Arc<ArcSwap<Snapshot>>,
    book: Mutex<Book>,
}

/// The generation without rules. Nothing was ever decided in generation 0.
const FIRST: u64 = 1;

/// What the control plane has said.
#[derive(Debug, Clone, Default)]
struct Book {
    groups: BTreeMap<GroupId, Arc<[Rule]>>,
    /// Sets of groups, in order, each once.
    known: HashMap<Arc<[GroupId]>, ProfileId>,
    profiles: BTreeMap<ProfileId, Arc<[GroupId]>>,
    last: u32,
    generation: u64,
}

impl Book {
    /// One that no profile has had.
    fn number(&mut self) -> ProfileId {
        self.last = self.last.checked_add(1).expect("fewer profiles than 2^32");
        ProfileId::new(self.last).expect("one more than something is not 0")
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            shared: Arc::new(ArcSwap::from_pointee(Snapshot {
                generation: FIRST,
                profiles: HashMap::default(),
            })),
            book: Mutex::new(Book {
                generation: FIRST,
                ..Book::default()
            }),
        }
    }
}

impl Policy {
    /// Without groups.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader, for one thread.
    #[must_use]
    pub fn reader(&self) -> PolicyReader {
        PolicyReader(Cache::new(Arc::clone(&self.shared)))
    }

    /// The right to change it; waits for others who have it.
    pub fn write(&self) -> PolicyWriter<'_> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        PolicyWriter {
            next: book.clone(),
            book,
            shared: &self.shared,
            changed: HashSet::new(),
            added: HashSet::new(),
            turns: HashMap::new(),
        }
    }

    /// The generation that is published.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.load().generation
    }

    /// Bytes that the compiled rules take.
    #[must_use]
    pub fn memory(&self) -> usize {
        let snapshot = self.shared.load();
        snapshot.profiles.values().map(|profile| profile.rules.memory()).sum()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

/// Changes that are not published yet. Dropped without [`PolicyWriter::publish`], they have never been.
#[derive(Debug)]
pub struct PolicyWriter<'a> {
    book: MutexGuard<'a, Book>,
    shared: &'a ArcSwap<Snapshot>,
    next: Book,
    changed: HashSet<GroupId>,
    added: HashSet<ProfileId>,
    turns: HashMap<(Side, Side), ProfileId>,
}

impl PolicyWriter<'_> {
    /// Makes a group's rules these, in the place of those it had.
    ///
    /// # Errors
    /// [`RuleError`] for a rule that makes no sense; the group is then what it was.
    pub fn put_group(&mut self, group: GroupId, rules: Vec<Rule>) -> Result<(), RuleError> {
        rules.iter().try_for_each(Rule::check)?;
        if self.next.groups.get(&group).is_none_or(|before| **before != *rules) {
            self.next.groups.insert(group, rules.into());
            self.changed.insert(group);
        }
        Ok(())
    }

    /// Forgets a group. Profiles that have it keep its place, in which nothing is allowed any more. False if it is not
    /// known.
    pub fn remove_group(&mut self, group: GroupId) -> bool {
        let known = self.next.groups.remove(&group).is_some();
        if known {
            self.changed.insert(group);
        }
        known
    }

    /// The profile of a set of groups, a new one if it is not known yet. A group that is not known (yet) allows nothing.
    ///
    /// To be published before it is bound to an address. The empty set is a profile too: it allows nothing.
    ///
    /// # Panics
    /// After 4,294,967,295 profiles.
    pub fn profile(&mut self, groups: &[GroupId]) -> ProfileId {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        let groups: Arc<[GroupId]> = groups.into();
        if let Some(&known) = self.next.known.get(&groups) {
            return known;
        }
        let id = self.next.number();
        self.next.known.insert(Arc::clone(&groups), id);
        self.next.profiles.insert(id, groups);
        self.added.insert(id);
        id
    }

    /// Forgets a profile, once no address has it. What still names it is denied everything. False if it is not known.
    pub fn remove_profile(&mut self, profile: ProfileId) -> bool {
        self.added.remove(&profile);
        let groups = self.next.profiles.remove(&profile);
        groups.is_some_and(|groups| self.next.known.remove(&groups).is_some())
    }

    /// The rules of a group; None if it is not known.
    #[must_use]
    pub fn group(&self, group: GroupId) -> Option<&[Rule]> {
        self.next.groups.get(&group).map(|rules| &**rules)
    }

    /// The groups of a profile; None if it is not known.
    #[must_use]
    pub fn groups_of(&self, profile: ProfileId) -> Option<&[GroupId]> {
        self.next.profiles.get(&profile).map(|groups| &**groups)
    }

    /// The profiles that were known before and have other rules now: once that is published, what was decided about addresses that
    /// have them may no longer hold, and all else still does.
    #[must_use]
    pub fn changed(&self) -> Vec<ProfileId> {
        let profiles = self.next.profiles.iter();
        let changed = profiles.filter(|(id, groups)| is_changed((&self.changed, &self.added), **id, groups));
        changed.map(|(id, _)| *id).collect()
    }

    /// A profile that stands for one of these sides until [`PolicyWriter::publish_and_bind`] publishes, and for the other from then on: for an
    /// address of which something else is bound from then on.
    ///
    /// # Panics
    /// As [`PolicyWriter::profile`].
    pub fn turn(&mut self, before: Side, after: Side) -> ProfileId {
        if let Some(known) = self.turns.get(&(before, after)) {
            return *known;
        }
        let id = self.next.number();
        self.turns.insert((before, after), id);
        id
    }

    /// Lets workers see all changes at once, and says in which generation. It is the one before if no rule of a known
    /// profile changed: then all decisions still hold.
    pub fn publish(self) -> u64 {
        self.publish_and_bind(|_| ())
    }

    /// As [`PolicyWriter::publish`], where what is bound to several addresses becomes otherwise with it, at once: who has looked up the profiles of a
    /// packet in one generation, and judges it by the rules of the same, judges it by all that was before or by all that is after.
    ///
    /// `bind` is called twice, the first time only if there are turns: to bind them ([`PolicyWriter::turn`]), each of which says what is bound to its
    /// address already; and when they say what is to be bound, to bind that in their place.
    pub fn publish_and_bind(self, mut bind: impl FnMut(Bind)) -> u64 {
        let Self {
            mut book,
            shared,
            mut next,
            changed,
            added,
            turns,
        } = self;
        let before = shared.load_full();
        let has_turns = !turns.is_empty();
        if has_turns {
            let mut profiles = before.profiles.clone();
            let sides = turns
                .iter()
                .map(|((side, _), id)| (id.number(), side.of(&before.profiles, FIRST)));
            profiles.extend(sides);
            shared.store(Arc::new(Snapshot { profiles, ..*before }));
            bind(Bind::Turns);
        }
        let is_changed = |id: &ProfileId, groups: &[GroupId]| is_changed((&changed, &added), *id, groups);
        let gone = before.profiles.len() + added.len() > next.profiles.len();
        if gone || has_turns || next.profiles.iter().any(|(id, groups)| is_changed(id, groups)) {
            next.generation += 1;
        }
        let compile = |id: &ProfileId, groups: &[GroupId]| {
            let kept = before.profiles.get(&id.number());
            if let Some(kept) = kept.filter(|_| !is_changed(id, groups)) {
                return kept.clone();
            }
            let rules = groups
                .iter()
                .filter_map(|group| next.groups.get(group))
                .flat_map(|rules| rules.iter());
            Profile {
                since: next.generation,
                rules: Arc::new(Compiled::new(groups, rules)),
            }
        };
        let profiles: Profiles = (next.profiles.iter())
            .map(|(id, groups)| (id.number(), compile(id, groups)))
            .collect();
        if has_turns {
            let mut all = profiles.clone();
            for ((_, side), id) in &turns {
                let since = next.generation;
                all.insert(
                    id.number(),
                    Profile {
                        since,
                        ..side.of(&profiles, since)
                    },
                );
            }
            shared.store(Arc::new(Snapshot {
                generation: next.generation,
                profiles: all,
            }));
            bind(Bind::Profiles);
            // Who has found a turn looks again.
            next.generation += 1;
        }
        shared.store(Arc::new(Snapshot {
            generation: next.generation,
            profiles,
        }));
        if !has_turns {
            bind(Bind::Profiles);
        }
        let generation = next.generation;
        *book = next;
        generation
    }
}

/// What is bound to an address at one side of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// This profile.
    Profile(ProfileId),
    /// Nothing, and it may send and get anything.
    Open,
    /// Nothing, and it may neither send nor get anything.
    Closed,
}

/// What is to be bound now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// To each address that has one, its turn.
    Turns,
    /// Profiles, or nothing.
    Profiles,
}

impl Side {
    /// The same as a profile. `since`: the generation since which one that is none of these is so.
    fn of(self, profiles: &Profiles, since: u64) -> Profile {
        let known = match self {
            Self::Profile(id) => profiles.get(&id.number()).cloned(),
            Self::Open | Self::Closed => None,
        };
        let anything = [Direction::Ingress, Direction::Egress].map(|direction| Rule {
            id: RuleId(0),
            direction,
            family: None,
            service: Service::Any,
            remote: Remote::Any,
        });
        let rules = if self == Self::Open { &anything[..] } else { &[] };
        known.unwrap_or_else(|| Profile {
            since,
            rules: Arc::new(Compiled::new(&[], rules.iter())),
        })
    }
}

/// True if a profile was there before and one of its groups has other rules.
fn is_changed(
    (changed, added): (&HashSet<GroupId>, &HashSet<ProfileId>),
    profile: ProfileId,
    groups: &[GroupId],
) -> bool {
    !added.contains(&profile) && groups.iter().any(|group| changed.contains(group))
}

/// A profile as workers see it.
#[derive(Debug, Clone)]
struct Profile {
    /// The generation in which its rules became what they are.
    since: u64,
    rules: Arc<Compiled>,
}

/// All profiles, as they are in one generation.
#[derive(Debug)]
pub struct Snapshot {
    generation: u64,
    profiles: Profiles,
}

/// By their numbers.
type Profiles = HashMap<u32, Profile, RandomState>;

impl Snapshot {
    /// Its number: higher than those before.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// True if a decision between these two of a generation is still what it would be now.
    #[must_use]
    pub fn holds(&self, generation: u64, source: Option<ProfileId>, destination: Option<ProfileId>) -> bool {
        let since = |profile: Option<ProfileId>| match profile {
            None => 0,
            // One that is gone allows nothing, which is no longer what was decided.
            Some(profile) => self.find(profile).map_or(u64::MAX, |profile| profile.since),
        };
        generation >= self.generation || generation >= since(source).max(since(destination))
    }

    /// Tells whether egress rules of the source and ingress rules of the destination allow it. No profile allows all.
    ///
    /// # Errors
    /// [`Denied`], by which side.
    pub fn judge(
        &self,
        subject: &Subject,
        source: Option<ProfileId>,
        destination: Option<ProfileId>,
    ) -> Result<(), Denied> {
        if let Some(source) = source {
            self.allows(source, Direction::Egress, subject, destination)?;
        }
        if let Some(destination) = destination {
            self.allows(destination, Direction::Ingress, subject, source)?;
        }
        Ok(())
    }

    /// The rule of a profile that allows something, where `remote` is the other side's profile.
    ///
    /// # Errors
    /// [`Denied`] if none does.
    pub fn allows(
        &self,
        profile: ProfileId,
        direction: Direction,
        subject: &Subject,
        remote: Option<ProfileId>,
    ) -> Result<RuleId, Denied> {
        let own = self.find(profile).ok_or(Denied::UnknownProfile)?;
        let remote = remote.and_then(|remote| self.find(remote));
        let groups = remote.map_or(&[][..], |remote| &remote.rules.groups);
        own.rules.allows(direction, subject, groups).ok_or(match direction {
            Direction::Ingress => Denied::Ingress,
            Direction::Egress => Denied::Egress,
        })
    }

    fn find(&self, profile: ProfileId) -> Option<&Profile> {
        self.profiles.get(&profile.number())
    }
}

/// A reader of the policy, for one thread. It never waits.
#[derive(Clone)]
pub struct PolicyReader(Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>);

impl PolicyReader {
    /// What holds now.
    pub fn load(&mut self) -> &Snapshot {
        self.0.load()
    }
}

impl fmt::Debug for PolicyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyReader").finish_non_exhaustive()
    }
}
