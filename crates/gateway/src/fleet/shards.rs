//! Which gateway owns which networks: a member of a fleet, without sockets and clock.
//!
//! ```text
//!  lease ──▶ own key under it: v1/gateways/ID ──▶ keep-alive, a third of the lease apart
//!  list of members and map, watch from there ──▶ what has to move (gateway-core's `Planner`, weighted rendezvous)
//!      a shard of mine that is another's now ──▶ its connections are handed over ──▶ ┐ one transaction: the map is as it was, who
//!      a shard whose owner has no key ──▶ I take care, if nobody before me does ──▶  ┘ gets and who writes are there, who lost is not
//! ```
//! **There is no planner to be elected.** A member gives away its own shards, and nobody takes them while its key is there; shards
//! of the dead any member may share out, the first one at once and each further one a little later. All come to the same result,
//! and etcd takes one: the map is written by compare-and-swap on its revision. An elected planner would be one more lease to wait
//! for when it dies together with what it looks after.
//!
//! **A gateway that no packet reaches** ([`Input::Link`]) gives its shards away as one that drains, and takes them back, though etcd hears of
//! it all the while.
//!
//! **A lease decides who lives**, not what members think of each other. A gateway that was stopped for longer or cut off has no key
//! any more: whatever it still sends to etcd is refused, for its key is compared in each transaction. Meanwhile it sends packets on as before
//! ([`Tenure::Held`]): it knows all networks, and its owner is who hosts should send to, not who may send.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ringside_gateway_core::shard::{MemberId, Move, Shard};

use super::chance::Chance;

mod giving;
mod link;
pub mod map;
mod moving;
pub mod record;
mod terms;
mod view;

use giving::{Giving, Turn};
use link::Link;
pub use map::Map;
pub use record::Record;
pub use terms::{
    Action, Changed, Counts, Entry, Input, Listed, MapEntry, Membership, Outcome, Proposal, Registration, Tenure,
    Timing,
};
pub use view::{Peer, View};

/// For how long shards may be without an owner that lives before that is a problem.
const ORPHANED: Duration = Duration::from_secs(3);

/// A question that is asked now and then, one at a time.
#[derive(Debug, Default)]
struct Ask {
    is_asked: bool,
    /// When it was.
    at: Duration,
    next: Duration,
    tries: u32,
}

impl Ask {
    const fn is_due(&self, now: Duration) -> bool {
        !self.is_asked && now.as_nanos() >= self.next.as_nanos()
    }

    const fn begin(&mut self, now: Duration) {
        self.is_asked = true;
        self.at = now;
    }

    const fn done(&mut self, next: Duration) {
        self.is_asked = false;
        self.tries = 0;
        self.next = next;
    }

    fn failed(&mut self, now: Duration, pause: Duration) {
        self.is_asked = false;
        self.tries = (self.tries + 1).min(4);
        self.next = now + pause;
    }
}

#[derive(Debug)]
struct Lease {
    id: i64,
    /// Until then etcd keeps it for sure.
    until: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Shards {
    timing: Timing,
    chance: Chance,
    id: MemberId,
    record: Record,
    /// It was asked to.
    drains: bool,
    link: Link,
    view: View,
    has_view: bool,
    list: Ask,
    is_watching: bool,
    grant: Ask,
    lease: Option<Lease>,
    keep: Ask,
    register: Ask,
    /// With which lease, and what it is to hold.
    registering: Option<(i64, Record)>,
    /// The own key: when it was changed last, with which lease, and what it held.
    own: Option<(u64, i64, Record)>,
    /// When it was taken away, though the lease had time left.
    robbed: Option<Duration>,
    /// It has been there.
    was_member: bool,
    is_lapsed: bool,
    replaced: Option<String>,
    error: Option<String>,
    propose: Ask,
    proposed: Vec<Move>,
    /// Who of these gets shards without their connections.
    bare: BTreeSet<MemberId>,
    giving: Option<Giving>,
    turn: Turn,
    /// Since when shards are without an owner that lives, and this member is to look after them.
    orphaned: Option<Duration>,
    /// Since when there are shards without an owner that lives.
    has_orphans: Option<Duration>,
    actions: VecDeque<Action>,
    counts: Counts,
}

impl Shards {
    /// A member that is to be. `record.synced` and `record.draining` are what is known so far; `seed` spreads tries over time.
    #[must_use]
    pub fn new(record: Record, timing: Timing, seed: u64) -> Self {
        let id = record.id();
        Self {
            timing,
            chance: Chance::new(seed),
            id,
            drains: record.draining,
            record,
            link: Link::default(),
            view: View::new(id),
            has_view: false,
            list: Ask::default(),
            is_watching: false,
            grant: Ask::default(),
            lease: None,
            keep: Ask::default(),
            register: Ask::default(),
            registering: None,
            own: None,
            robbed: None,
            was_member: false,
            is_lapsed: false,
            replaced: None,
            error: None,
            propose: Ask::default(),
            proposed: Vec::new(),
            bare: BTreeSet::new(),
            giving: None,
            turn: Turn::default(),
            orphaned: None,
            has_orphans: None,
            actions: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// The number of its name.
    #[must_use]
    pub const fn id(&self) -> MemberId {
        self.id
    }

    /// Members and map, as far as is known.
    #[must_use]
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// What it says of itself.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// What was done so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether it is a member.
    #[must_use]
    pub fn membership(&self, now: Duration) -> Membership {
        if let Some(why) = &self.replaced {
            return Membership::Replaced(why.clone());
        }
        if self.is_member(now) {
            return Membership::Member;
        }
        if self.was_member {
            let why = self.error.clone();
            return Membership::Lapsed(why.unwrap_or_else(|| "its lease ran out".to_owned()));
        }
        Membership::Joining(self.error.clone())
    }

    /// How long etcd keeps its lease for sure, unless it says something.
    #[must_use]
    pub fn lease_left(&self, now: Duration) -> Option<Duration> {
        self.lease.as_ref().map(|lease| lease.until.saturating_sub(now))
    }

    /// What this gateway is to a shard.
    #[must_use]
    pub fn tenure(&self, now: Duration, shard: Shard) -> Tenure {
        match (self.view.map().owner(shard) == Some(self.id), self.is_member(now)) {
            (true, true) => Tenure::Owner,
            (true, false) => Tenure::Held,
            (false, _) => Tenure::Foreign,
        }
    }

    /// True when it was asked to drain and nothing is left to it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let says_so = self.own.as_ref().is_some_and(|(_, _, record)| record.draining);
        self.drains && says_so && self.view.map().count(self.id) == 0
    }

    /// Its key is there, under a lease that lives.
    fn is_member(&self, now: Duration) -> bool {
        let lives = self.lease.as_ref().filter(|lease| now < lease.until);
        let own = self.own.as_ref().map(|(_, lease, _)| *lease);
        self.replaced.is_none() && lives.is_some_and(|lease| Some(lease.id) == own)
    }

    /// Before the next try.
    fn pause(&mut self, tries: u32) -> Duration {
        let retry = self.timing.retry * 2_u32.pow(tries.min(4));
        retry + self.chance.up_to(retry)
    }

    /// When something has to be done at the latest, if nothing is heard before.
    #[must_use]
    pub fn wake(&self) -> Duration {
        let mut wake = Duration::MAX;
        let mut at = |is_open: bool, time: Duration| wake = if is_open { wake.min(time) } else { wake };
        at(!self.list.is_asked, self.list.next);
        let link = self.link.due(self.timing.without_link);
        at(link.is_some(), link.unwrap_or_default());
        if self.replaced.is_none() {
            let has_lease = self.lease.is_some();
            at(!has_lease && !self.grant.is_asked, self.grant.next);
            at(has_lease && !self.keep.is_asked, self.keep.next);
            at(
                self.has_view && self.has_to_register() && !self.register.is_asked,
                self.register.next,
            );
            let until = self.lease.as_ref().map_or(Duration::MAX, |lease| lease.until);
            at(!self.is_lapsed, until);
            at(self.orphaned.is_some() && !self.propose.is_asked, self.propose.next);
            let may_give = self.is_watching && self.own.is_some() && !self.is_lapsed && self.orphaned.is_none();
            if may_give && !self.propose.is_asked {
                match self.giving.as_ref().filter(|giving| !giving.is_empty()) {
                    Some(giving) => at(true, giving.wake(self.next_map())),
                    None => at(!self.view.mine().is_empty(), self.propose.next),
                }
            }
        }
        wake
    }

    /// What to do now, one after the other, until there is nothing more.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        if self.actions.is_empty() {
            self.think(now);
        }
        self.actions.pop_front()
    }

    /// Number of shards that have been without an owner that lives for longer than it takes to give
    /// them one.
    #[must_use]
    pub fn orphans(&self, now: Duration) -> usize {
        let is_long = self.has_orphans.is_some_and(|since| now >= since + ORPHANED);
        if is_long { self.view.orphans() } else { 0 }
    }

    fn think(&mut self, now: Duration) {
        let has_orphans = self.has_view && self.view.has_orphans();
        self.has_orphans = has_orphans.then(|| self.has_orphans.unwrap_or(now));
        self.look_at_link(now);
        if self.list.is_due(now) {
            self.list.begin(now);
            if std::mem::take(&mut self.is_watching) {
                self.actions.push_back(Action::Unwatch);
            }
            self.actions.push_back(Action::List);
        }
        if self.replaced.is_some() {
            return;
        }
        match &self.lease {
            None if self.grant.is_due(now) => {
                self.grant.begin(now);
                self.actions.push_back(Action::Grant(self.timing.lease));
            }
            Some(lease) if self.keep.is_due(now) => {
                let action = Action::Keep(lease.id, self.timing.patience());
                self.keep.begin(now);
                self.actions.push_back(action);
            }
            _ => {}
        }
        if self.lease.as_ref().is_some_and(|lease| now >= lease.until) && !std::mem::replace(&mut self.is_lapsed, true)
        {
            self.counts.lapses += u64::from(self.was_member);
        }
        // Who has this name is known before it is taken.
        if self.has_view && self.has_to_register() && self.register.is_due(now) {
            self.register.begin(now);
            let expected = match (&self.own, self.was_member) {
                (Some((revision, ..)), _) => Some(*revision),
                // Unless somebody has overwritten it.
                (None, true) => Some(self.view.revision_of_absent(self.id)),
                // Whoever had it before this run is gone, or goes.
                (None, false) => None,
            };
            let lease = self.lease.as_ref().map_or(0, |lease| lease.id);
            self.registering = Some((lease, self.record.clone()));
            self.actions.push_back(Action::Register(Registration {
                id: self.id,
                lease,
                value: self.record.encode(),
                expected,
            }));
        }
        self.move_shards(now);
    }

    /// Without a link it is as if it was asked to drain.
    fn look_at_link(&mut self, now: Duration) {
        self.record.cut_off = self.link.is_given_up(now, self.timing.without_link);
        self.record.draining = self.drains || self.record.cut_off;
    }

    /// Its key is not there, or holds something else, or goes with another lease.
    fn has_to_register(&self) -> bool {
        let Some(lease) = &self.lease else { return false };
        (self.own.as_ref()).is_none_or(|(_, under, record)| *under != lease.id || *record != self.record)
    }

    /// Takes notice of something.
    pub fn handle(&mut self, now: Duration, input: Input) {
        match input {
            Input::Granted(Ok((id, lives))) => {
                let until = self.grant.at + lives;
                self.lease = Some(Lease { id, until });
                self.is_lapsed = false;
                self.keep.done(self.grant.at + lives / 3);
                self.grant.done(now);
            }
            Input::Granted(Err(why)) => {
                let pause = self.pause(self.grant.tries);
                self.error = Some(why);
                self.grant.failed(now, pause);
            }
            Input::Kept(kept) => self.kept(now, kept),
            Input::Registered(registered) => self.registered(now, registered),
            Input::Listed(Ok(listed)) => {
                let next = self.timing.list + self.chance.up_to(self.timing.list / 4);
                self.list.done(now + next);
                self.actions.push_back(Action::Watch(listed.revision + 1));
                self.is_watching = true;
                self.has_view = true;
                self.view.list(listed);
                self.look_at_own(now);
            }
            Input::Listed(Err(why)) => {
                let pause = self.pause(self.list.tries);
                self.error = Some(why);
                self.list.failed(now, pause);
            }
            Input::Changed(changed) => {
                self.view.change(changed);
                self.look_at_own(now);
            }
            Input::Ended(why) => {
                self.is_watching = false;
                if !self.list.is_asked {
                    let pause = self.pause(self.list.tries);
                    self.error = Some(why);
                    self.list.failed(now, pause);
                }
            }
            Input::HandedOver(to, result) => self.handed_over(now, to, result),
            Input::Proposed(result) => self.outcome(now, result),
            Input::Synced(synced) => self.record.synced = synced,
            Input::Drain(drain) => {
                self.drains = drain;
                self.look_at_link(now);
            }
            Input::Link(is_there) => {
                self.link.tell(now, is_there);
                self.look_at_link(now);
            }
        }
    }

    fn kept(&mut self, now: Duration, kept: Result<Duration, String>) {
        let Some(lease) = &mut self.lease else { return };
        match kept {
            Ok(Duration::ZERO) => {
                // Its key is gone with it, and its shards are others' by now: before it is a member again it has to know whose.
                self.robbed = (now < lease.until).then_some(now).or(self.robbed);
                self.lease = None;
                self.own = None;
                self.has_view = false;
                self.list.next = now;
                self.error = Some("etcd let its lease run out".to_owned());
                self.counts.lapses += u64::from(self.was_member && !self.is_lapsed);
                self.keep.done(now);
                self.grant.next = now;
                // What was tried with that lease was in vain, and says nothing of the next one.
                self.register.tries = 0;
                self.register.next = now;
            }
            Ok(lives) => {
                lease.until = self.keep.at + lives;
                self.is_lapsed = false;
                self.error = None;
                self.keep.done(self.keep.at + self.timing.lease / 3);
            }
            Err(why) => {
                self.error = Some(why);
                // Who watches at a member of etcd that says nothing would not hear of the others either: once for each time that it is so.
                if self.keep.tries == 0 && !self.list.is_asked {
                    self.list.next = self.list.next.min(now + self.chance.up_to(self.timing.lease / 24));
                }
                let next = (self.keep.at + self.timing.patience()).max(now);
                self.keep.failed(next, Duration::ZERO);
            }
        }
    }

    fn registered(&mut self, now: Duration, registered: Result<Option<u64>, String>) {
        match registered {
            Ok(Some(revision)) => {
                self.was_member = true;
                self.register.done(now);
                if let Some((lease, record)) = self.registering.take() {
                    self.view.change([Changed::Member(Entry {
                        id: self.id,
                        value: Some(record.encode()),
                        revision,
                        lease,
                    })]);
                    self.look_at_own(now);
                }
            }
            Ok(None) => {
                let pause = self.pause(self.register.tries);
                self.register.failed(now, pause);
                self.list.next = now;
            }
            Err(why) => {
                let pause = self.pause(self.register.tries);
                self.error = Some(why);
                self.register.failed(now, pause);
                self.list.next = now;
            }
        }
    }

    /// What became of the own key.
    fn look_at_own(&mut self, now: Duration) {
        let Some(peer) = self.view.peer(self.id) else {
            // Nobody has it. If its lease lives, somebody took it away.
            if self.own.take().is_some() {
                self.keep.next = now;
                let lives = self.lease.as_ref().is_some_and(|lease| now < lease.until);
                self.robbed = lives.then_some(now).or(self.robbed);
            }
            return;
        };
        if peer.record.run == self.record.run {
            self.was_member = true;
            self.own = Some((peer.revision, peer.lease, peer.record.clone()));
        } else if self.was_member {
            self.own = None;
            self.replaced = Some(format!(
                "another gateway was started under the name {:?}: give each its own (fleet.name), and start this one again",
                self.record.name
            ));
        }
    }
}

#[cfg(test)]
mod tests;
