//! Connections: which packets belong to one that was allowed.
//!
//! A connection begins with a packet that the rules allow, and what belongs to it passes in both directions, without
//! asking them again: replies, and ICMP errors about its packets. It remembers between which profiles and in which
//! generation of the policy it was allowed. After a change its next packet, of either direction, is judged as the first
//! was: if that would not be allowed now, the connection ends there. So for each packet either the rules before a change
//! hold or those after it, never neither.
//!
//! # How it is kept
//! One table for all networks, in up to 256 stripes with a lock each; both directions of a connection have the same key and
//! so the same stripe and entry, whichever workers their packets come to. A lock is held for a look-up and a few words,
//! tens of nanoseconds; two workers want the same one at the same time once in hundreds of packets. Lock-free entries
//! would have to be freed by epochs and could not hold lists, and a table for each worker would need both directions on one
//! queue, which no NIC promises for what is inside of a tunnel. An entry is 128 bytes ([`Conntrack::BYTES`] with its
//! share of the index). The address space is reserved at the beginning, and a place takes memory
//! when it is first used: the kernel clears a page for 32 of them. Its words may be read without
//! the lock, which [`Conntrack::look_ahead`] does to fetch them for a whole burst.
//!
//! # What the fast path does not show
//! Packets of a connection that [`Conntrack::hand_over`] gave to the fast path are not seen here
//! any more. Numbers of TCP are not checked here from then on: the fast path goes on from what both
//! sides have said ([`Conntrack::hand_over_with_numbers`]), also with segments that it sends up,
//! and a connection of which it cannot read all is let go. It has to
//! - send up TCP segments with SYN, FIN or RST, all fragments, all ICMP but echoes, and what answers
//!   a connection that is [`State::is_one_way`];
//! - let go of what is handed over when a packet of it passes here with [`Passed::let_go`], before
//!   that packet is sent on, or when the policy's generation
//!   or the profile of one of its addresses is another than it was;
//! - say by [`Conntrack::touch`] what it has sent on lately, more often than the shortest time-out of
//!   a connection that it has (30 s of unreplied UDP, unless limits say otherwise) and than
//!   [`Conntrack::idle`], and let go of what is gone here.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;

use crate::Vni;
use crate::flow::{Flow, is_intact};
use crate::policy::{Denied, ProfileId, Snapshot};
use crate::shard::Shard;

mod carried;
mod entry;
mod fragments;
mod key;
mod moving;
mod room;
mod slot;
mod state;
mod stripe;
mod tcp;
mod tenants;
mod track;

pub use entry::{Connection, ConnectionId};
pub use state::{Limits, Rank, State, Timeouts};
pub use tcp::Said;

use entry::{Entry, HANDED_OVER, NONE};
use fragments::Fragments;
use key::Key;
use moving::Moving;
use slot::Slot;
use stripe::{Part, Stripe, ticks};
use tenants::Tenants;

/// Why a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// It belongs to no connection, and rules do not allow that it begins one.
    Denied(Denied),
    /// Its connection was allowed once, and is no longer. This packet has ended it.
    NoLongerAllowed(Denied),
    /// It belongs to no connection, and is none that can begin one: a TCP segment of its middle, an answer to no question.
    NoConnection,
    /// It would begin a connection or change the state of one, and one of its checksums is wrong.
    Damaged,
    /// TCP flags that exclude each other, or none at all.
    BadFlags,
    /// TCP numbers outside of what the sender may send.
    OutOfWindow,
    /// A TCP segment that cannot come at this point of its connection.
    OutOfState,
    /// An ICMP error that is not about a connection of its receiver.
    Unrelated,
    /// A later fragment of which the first was not allowed, or has not come yet.
    UnknownFragment,
    /// Source and destination are the same.
    SameEnds,
    /// The network has as many connections as it may have.
    TenantFull,
    /// There are as many connections as there may be, and none can be evicted.
    TableFull,
    /// No connection begins any more ([`Conntrack::drain`]).
    Draining,
}

/// A packet that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// The connection that it belongs to. None: nothing is remembered of it.
    pub connection: Option<ConnectionId>,
    /// What comes behind it in this direction may go through the fast path: see [`crate::conntrack`].
    pub established: bool,
    /// Its two ends are in the fast path, and may not be there any longer: it is ending, or another one before it was.
    pub let_go: bool,
    /// The generation of the policy by which it was allowed.
    pub generation: u64,
}

/// How many connections there are, and what became of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// How many are in each state, as in [`State::ALL`].
    pub states: [u32; State::COUNT],
    /// Begun since the start.
    pub begun: u64,
    /// Ended because no packet came for too long.
    pub timed_out: u64,
    /// Ended because rules changed.
    pub no_longer_allowed: u64,
    /// Ended because their ports began another connection.
    pub replaced: u64,
    /// Ended to make room: unreplied, closing, established and idle.
    pub evicted: [u64; 3],
}

impl Counts {
    /// How many there are in a state.
    #[must_use]
    pub const fn of(&self, state: State) -> u32 {
        self.states[state.at()]
    }

    /// How many there are in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.states.iter().map(|count| u64::from(*count)).sum()
    }
}

/// What becomes of a connection that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    TimedOut,
    NoLongerAllowed,
    Replaced,
    Evicted(Rank),
}

/// All connections. Any number of threads may use it at once.
#[derive(Debug)]
pub struct Conntrack {
    parts: Box<[Stripe]>,
    random: RandomState,
    limits: Limits,
    /// By state, in nanoseconds.
    timeouts: [AtomicU64; State::COUNT],
    tenants: Tenants,
    fragments: Fragments,
    total: AtomicU32,
    /// Those that may have to make room for any other.
    weak: AtomicU32,
    /// Where to look next for one that has to.
    cursor: AtomicUsize,
    draining: AtomicBool,
    moving: Moving,
    /// Of those in the fast path, how many are [`State::is_brief`], and how many may be.
    brief: AtomicU32,
    most_brief: AtomicU32,
    /// Those that have ended while they were in the fast path, and how many of these are not any
    /// more.
    lingering: AtomicU64,
    let_go: AtomicU64,
    follows_numbers: AtomicBool,
}

impl Conntrack {
    /// Bytes that a connection takes: its entry, and its share of the index.
    pub const BYTES: usize = Slot::BYTES + 2 * size_of::<u32>();

    /// A table without connections.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let connections = limits.connections.max(1) as usize;
        // Stripes of fewer than a thousand would be too uneven.
        let stripes = (connections / 1024)
            .next_power_of_two()
            .clamp(1, 256)
            .max(connections.div_ceil(1 << 21));
        let stripes = stripes.next_power_of_two().min(ConnectionId::MOST_STRIPES);
        let mean = connections.div_ceil(stripes);
        // Connections are spread at random: six standard deviations, so that the limit in total is met before a stripe's.
        let most = if stripes == 1 {
            mean
        } else {
            mean + 6 * mean.isqrt() + 16
        };
        let most = most.min(ConnectionId::MOST_SLOTS);
        let conntrack = Self {
            parts: (0..stripes).map(|_| Stripe::new(most)).collect(),
            random: RandomState::default(),
            timeouts: Default::default(),
            tenants: Tenants::new(limits.per_tenant),
            fragments: Fragments::new(),
            total: AtomicU32::new(0),
            weak: AtomicU32::new(0),
            cursor: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            moving: Moving::new(),
            brief: AtomicU32::new(0),
            most_brief: AtomicU32::new(0),
            lingering: AtomicU64::new(0),
            let_go: AtomicU64::new(0),
            follows_numbers: AtomicBool::new(true),
            limits,
        };
        conntrack.set_timeouts(&conntrack.limits.timeouts);
        conntrack
    }

    /// How long connections live without packets from now on, those that there are, too. What the fast path has sent on has to be told
    /// before ([`Conntrack::touch`]).
    pub fn set_timeouts(&self, timeouts: &Timeouts) {
        for (timeout, state) in self.timeouts.iter().zip(State::ALL) {
            let nanoseconds = u64::try_from(timeouts.of(*state).as_nanos()).unwrap_or(u64::MAX);
            timeout.store(nanoseconds, Ordering::Relaxed);
        }
    }

    /// How long they live.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        let mut timeouts = Timeouts::default();
        for state in State::ALL {
            timeouts.set(*state, Duration::from_nanos(self.timeout(*state)));
        }
        timeouts
    }

    /// How many connections each network may have that has no limit of its own ([`Conntrack::limit_tenant`]).
    pub fn limit_each(&self, connections: u32) {
        self.tenants.limit_each(connections);
    }

    /// How many connections there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total.load(Ordering::Relaxed) as usize
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    pub(crate) fn weak(&self) -> u32 {
        self.weak.load(Ordering::Relaxed)
    }

    /// How many connections a network has.
    #[must_use]
    pub fn tenant_len(&self, vni: Vni) -> usize {
        self.tenants.count(vni) as usize
    }

    /// Sets how many connections a network may have; None: as many as [`Limits::per_tenant`] says. If it has more, it keeps
    /// them, but for one that is not established with each new one that is refused.
    pub fn limit_tenant(&self, vni: Vni, connections: Option<u32>) {
        self.tenants.limit(vni, connections);
    }

    /// Lets no connection begin from now on, or lets them begin again. Those that there are go on.
    pub fn drain(&self, drain: bool) {
        self.draining.store(drain, Ordering::Relaxed);
    }

    /// The networks of a shard go from one gateway to another, and this is one of the two. Until then, by the clock of
    /// [`crate::Firewall::judge`], some hosts send to the one and some to the other. So what the rules allow as an answer passes though the
    /// connection is not known here, and numbers of TCP do not count, if [`Limits::pick_up`] allows such.
    pub fn changes_hands(&self, shard: Shard, until: u64) {
        self.moving.set(shard, until);
    }

    /// Returns the bytes that it takes: the index, and the entries of as many connections as there
    /// were at one time.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.parts.iter().map(Stripe::memory).sum()
    }

    /// Returns the bytes that it takes when there are as many connections as there may be.
    #[must_use]
    pub fn max_memory(&self) -> usize {
        self.parts.iter().map(Stripe::max_memory).sum()
    }

    /// How many connections are in which state, and what became of others. It counts nothing: each stripe is asked.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for at in 0..self.parts.len() {
            let mut part = self.lock(at);
            for state in State::ALL {
                sum.states[state.at()] += part.count(*state);
            }
            let counts = *part.counts();
            sum.begun += counts.begun;
            sum.timed_out += counts.timed_out;
            sum.no_longer_allowed += counts.no_longer_allowed;
            sum.replaced += counts.replaced;
            for (sum, count) in sum.evicted.iter_mut().zip(counts.evicted) {
                *sum += count;
            }
        }
        sum
    }

    /// Where a packet's connection is kept, for [`Conntrack::look_ahead`]. None if it has none.
    #[must_use]
    pub fn place(&self, vni: Vni, flow: &Flow) -> Option<Place> {
        let (key, _) = Key::new(vni, flow.source, flow.destination, flow.protocol, flow.ends()?)?;
        Some(Place(key.hash(&self.random)))
    }

    /// Fetches from memory what will be needed to judge a burst of packets, for all of them at once: with many connections
    /// that is most of the time that judging takes.
    pub fn look_ahead(&self, burst: &[Place]) {
        const AT_ONCE: usize = 32;
        for burst in burst.chunks(AT_ONCE) {
            // Nothing here waits for what another round loads, so all loads are under way together.
            let mut guesses = [(0, NONE); AT_ONCE];
            for (guess, Place(hash)) in guesses.iter_mut().zip(burst) {
                let stripe = self.stripe_of(*hash);
                *guess = (stripe, self.parts[stripe].guess(*hash));
            }
            let fetched = guesses[..burst.len()].iter();
            let fetched = fetched.fold(0, |sum, (stripe, slot)| sum ^ self.parts[*stripe].fetch(*slot));
            std::hint::black_box(fetched);
        }
    }

    /// Calls for each connection. What changes meanwhile may be seen as it was or as it is. No lock is held during a
    /// call.
    pub fn for_each(&self, mut each: impl FnMut(&Connection)) {
        const AT_ONCE: u32 = 256;
        let mut copied = Vec::with_capacity(AT_ONCE as usize);
        for stripe in 0..self.parts.len() {
            let mut next = 0;
            loop {
                let part = self.lock(stripe);
                let end = part.used().min(next + AT_ONCE);
                let told = (next..end).filter_map(|slot| Some((slot, part.told(slot)?)));
                copied.extend(told.map(|(slot, (entry, serial))| entry.tell(ConnectionId::new(stripe, slot, serial))));
                let done = end == part.used();
                drop(part);
                copied.drain(..).for_each(|connection| each(&connection));
                next = end;
                if done {
                    break;
                }
            }
        }
    }

    /// A connection by its name; None if it is gone.
    #[must_use]
    pub fn find(&self, connection: ConnectionId) -> Option<Connection> {
        self.with(connection, |part, slot| Some(part.entry(slot).tell(connection)))
    }

    /// How long a connection lives without packets in this state, in nanoseconds.
    #[must_use]
    pub fn timeout(&self, state: State) -> u64 {
        self.timeouts[state.at()].load(Ordering::Relaxed)
    }

    /// How long an established connection has been without packets that may have to make room for another.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.limits.idle
    }

    /// Ends the connections that have had no packet for too long, and says how many. To be called every second or so, by
    /// one thread; it holds each lock for some ten microseconds at the most.
    pub fn sweep(&self, now: u64) -> usize {
        let mut ended = 0;
        for at in 0..self.parts.len() {
            loop {
                const AT_ONCE: usize = 64;
                let some = self.sweep_some(&mut self.lock(at), now, AT_ONCE);
                ended += some;
                if some < AT_ONCE {
                    break;
                }
            }
        }
        ended
    }

    fn sweep_some(&self, part: &mut Part<'_>, now: u64, most: usize) -> usize {
        let mut ended = 0;
        for state in State::ALL {
            while ended < most
                && let Some(slot) = part.first(*state)
                && let entry = part.entry(slot)
                && self.has_ended(&entry, now)
            {
                self.end(part, slot, &entry, End::TimedOut);
                ended += 1;
            }
        }
        ended
    }

    fn with<T>(&self, connection: ConnectionId, work: impl FnOnce(&mut Part<'_>, u32) -> Option<T>) -> Option<T> {
        let (stripe, slot, serial) = connection.parts();
        let mut part = self.parts.get(stripe)?.lock();
        if part.is_named(slot, serial) {
            work(&mut part, slot)
        } else {
            None
        }
    }

    fn lock(&self, at: usize) -> Part<'_> {
        self.parts[at].lock()
    }

    fn stripe_of(&self, hash: u64) -> usize {
        usize::try_from(hash & (self.parts.len() as u64 - 1)).unwrap_or(0)
    }

    fn has_ended(&self, entry: &Entry, now: u64) -> bool {
        now.saturating_sub(entry.seen) > self.timeout(entry.state)
    }

    /// Notes a packet of a connection, and what the connection is now; the entry is not put back yet.
    fn refresh(&self, part: &mut Part<'_>, slot: u32, entry: &mut Entry, state: State, now: u64) {
        let before = entry.state;
        // One that was reset has to end, whatever still comes.
        if (before, state) == (State::Closed, State::Closed) {
            return;
        }
        let was_brief = entry.is_carried_brief();
        entry.seen = entry.seen.max(now);
        entry.state = state;
        if !state.is_open() && !state.is_brief() {
            entry.marks &= !HANDED_OVER;
        }
        self.count_brief(was_brief, entry.is_carried_brief());
        if state == before {
            let age = ticks(now).wrapping_sub(part.placed(slot)).cast_signed();
            if i64::from(age) > i64::from(ticks(self.timeout(state) / 8)) {
                part.move_to(slot, state, state, now);
            }
            return;
        }
        part.move_to(slot, before, state, now);
        match (before.rank() < Rank::Established, state.rank() < Rank::Established) {
            (true, false) => _ = self.weak.fetch_sub(1, Ordering::Relaxed),
            (false, true) => _ = self.weak.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Ends a connection.
    fn end(&self, part: &mut Part<'_>, slot: u32, entry: &Entry, why: End) {
        let Entry { key, state, .. } = entry;
        self.count_brief(entry.is_carried_brief(), false);
        if entry.is_followed() && why != End::Replaced {
            self.expect_lingering();
        }
        part.remove(slot, *state, key.hash(&self.random));
        self.tenants.leave(key.vni());
        self.total.fetch_sub(1, Ordering::Relaxed);
        if state.rank() < Rank::Established {
            self.weak.fetch_sub(1, Ordering::Relaxed);
        }
        let counts = part.counts();
        match why {
            End::TimedOut => counts.timed_out += 1,
            End::NoLongerAllowed => counts.no_longer_allowed += 1,
            End::Replaced => counts.replaced += 1,
            End::Evicted(rank) => counts.evicted[rank as usize] += 1,
        }
    }

    /// Remembers a first fragment that was allowed.
    pub(crate) fn allow_fragments(&self, now: u64, vni: Vni, flow: &Flow, generation: u64, profiles: Profiles) {
        self.fragments.allow(now, vni, flow, generation, profiles);
    }

    /// Tells whether a later fragment passes.
    pub(crate) fn later_fragment(
        &self,
        packet: &Received<'_>,
        policy: &Snapshot,
        profiles: Profiles,
    ) -> Result<Passed, Refused> {
        let &Received { now, vni, flow, .. } = packet;
        if self.fragments.allows(now, vni, flow, policy, profiles) {
            Ok(Passed::once(policy))
        } else {
            Err(Refused::UnknownFragment)
        }
    }
}

/// A packet that is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) now: u64,
    pub(crate) vni: Vni,
    pub(crate) flow: &'a Flow,
    /// The IP packet, to verify its checksums if it begins a connection or changes one's state. None:
    /// they are right.
    pub(crate) bytes: Option<&'a [u8]>,
}

impl Received<'_> {
    /// Returns true if no checksum is wrong.
    fn is_intact(&self) -> bool {
        self.bytes.is_none_or(is_intact)
    }
}

/// Where a connection is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u64);

/// Those of source and destination.
type Profiles = [Option<ProfileId>; 2];

impl Passed {
    /// A packet of which nothing is remembered, and that says nothing about those behind it.
    pub(crate) fn once(policy: &Snapshot) -> Self {
        Self {
            connection: None,
            established: false,
            let_go: false,
            generation: policy.generation(),
        }
    }
}
