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
//! share of the index); all memory is reserved at the beginning, and touched as it is needed.
//!
//! # What the fast path does not show
//! Packets of a connection that [`Conntrack::hand_over`] gave to the fast path are not seen here any more. Numbers of TCP
//! are not checked from then on (as in Linux's flow tables). The fast path has to
//! - send up TCP segments with SYN, FIN or RST, all fragments, and all ICMP;
//! - let go of what is handed over when a packet of it passes here with [`Passed::established`] false, or when the policy's
//!   generation or the profile of one of its addresses is another than it was;
//! - say by [`Conntrack::touch`] what it has sent on lately, more often than the shortest time-out of an open connection
//!   (120 s of UDP), and let go of what is gone here.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::Vni;
use crate::flow::Flow;
use crate::policy::{Denied, ProfileId, Snapshot};

mod entry;
mod fragments;
mod key;
mod room;
mod state;
mod stripe;
mod tcp;
mod tenants;
mod track;

pub use entry::{Connection, ConnectionId};
pub use state::{Limits, Rank, State, Timeouts};

use entry::{Entry, HANDED_OVER};
use fragments::Fragments;
use stripe::{Stripe, ticks};
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
}

/// A packet that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// The connection that it belongs to. None: nothing is remembered of it.
    pub connection: Option<ConnectionId>,
    /// What comes behind it in this direction may go through the fast path: see [`crate::conntrack`].
    pub established: bool,
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

/// A stripe with what has happened in it, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Part {
    stripe: Stripe,
    counts: Counts,
}

/// All connections. Any number of threads may use it at once.
#[derive(Debug)]
pub struct Conntrack {
    parts: Box<[Mutex<Part>]>,
    random: RandomState,
    limits: Limits,
    /// By state, in nanoseconds.
    timeouts: [u64; State::COUNT],
    tenants: Tenants,
    fragments: Fragments,
    total: AtomicU32,
    /// Those that may have to make room for any other.
    weak: AtomicU32,
    /// Where to look next for one that has to.
    cursor: AtomicUsize,
}

impl Conntrack {
    /// Bytes that a connection takes: its entry, and its share of the index.
    pub const BYTES: usize = size_of::<Entry>() + 2 * size_of::<u32>();

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
        let part = || Part {
            stripe: Stripe::new(most),
            counts: Counts::default(),
        };
        let nanoseconds = |state: &State| u64::try_from(limits.timeouts.of(*state).as_nanos()).unwrap_or(u64::MAX);
        let mut timeouts = [0; State::COUNT];
        for (timeout, state) in timeouts.iter_mut().zip(State::ALL) {
            *timeout = nanoseconds(state);
        }
        Self {
            parts: (0..stripes).map(|_| Mutex::new(part())).collect(),
            random: RandomState::default(),
            timeouts,
            tenants: Tenants::new(limits.per_tenant),
            fragments: Fragments::new(),
            total: AtomicU32::new(0),
            weak: AtomicU32::new(0),
            cursor: AtomicUsize::new(0),
            limits,
        }
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

    /// How many connections a network has.
    #[must_use]
    pub fn tenant_len(&self, vni: Vni) -> usize {
        self.tenants.count(vni) as usize
    }

    /// Sets how many connections a network may have; None: as many as [`Limits::per_tenant`] says. If it has more, it keeps
    /// them.
    pub fn limit_tenant(&self, vni: Vni, connections: Option<u32>) {
        self.tenants.limit(vni, connections);
    }

    /// Bytes that are reserved.
    #[must_use]
    pub fn memory(&self) -> usize {
        (0..self.parts.len()).map(|at| self.lock(at).stripe.memory()).sum()
    }

    /// How many connections are in which state, and what became of others. It counts nothing: each stripe is asked.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for at in 0..self.parts.len() {
            let part = self.lock(at);
            for state in State::ALL {
                sum.states[state.at()] += part.stripe.count(*state);
            }
            sum.begun += part.counts.begun;
            sum.timed_out += part.counts.timed_out;
            sum.no_longer_allowed += part.counts.no_longer_allowed;
            sum.replaced += part.counts.replaced;
            for (sum, count) in sum.evicted.iter_mut().zip(part.counts.evicted) {
                *sum += count;
            }
        }
        sum
    }

    /// Calls for each connection. What changes meanwhile may be seen as it was or as it is. No lock is held during a
    /// call.
    pub fn for_each(&self, mut each: impl FnMut(&Connection)) {
        const AT_ONCE: usize = 256;
        let mut copied = Vec::with_capacity(AT_ONCE);
        for stripe in 0..self.parts.len() {
            let mut from = 0_u32;
            loop {
                let part = self.lock(stripe);
                let rest = part.stripe.entries().get(from as usize..).unwrap_or_default();
                for (slot, entry) in (from..).zip(rest).take(AT_ONCE) {
                    if !entry.is_free(slot) {
                        copied.push(entry.tell(ConnectionId::new(stripe, slot, entry.serial)));
                    }
                    from = slot + 1;
                }
                let done = rest.len() <= AT_ONCE;
                drop(part);
                copied.drain(..).for_each(|connection| each(&connection));
                if done {
                    break;
                }
            }
        }
    }

    /// Says that packets of a connection go through the fast path from now on. To be called before they do. False, and
    /// nothing has changed, if it is gone, or not one that may.
    #[must_use]
    pub fn hand_over(&self, connection: ConnectionId) -> bool {
        self.with(connection, |_, part, slot| {
            let entry = part.stripe.entry(slot);
            let open = entry.state.is_open() && entry.state != State::ResetSeen;
            if open {
                entry.marks |= HANDED_OVER;
                entry.tcp.stop_checking();
            }
            open
        })
    }

    /// Says that the fast path has sent on a packet of a connection, when in nanoseconds. False if the connection is gone:
    /// then what was handed over has to be let go.
    #[must_use]
    pub fn touch(&self, connection: ConnectionId, seen: u64) -> bool {
        self.with(connection, |table, part, slot| {
            let entry = part.stripe.entry(slot);
            let alive = entry.state == State::ResetSeen && seen > entry.seen;
            let state = if alive { State::Established } else { entry.state };
            table.refresh(part, slot, state, seen);
            true
        })
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

    fn sweep_some(&self, part: &mut Part, now: u64, most: usize) -> usize {
        let mut ended = 0;
        for state in State::ALL {
            while ended < most
                && let Some(slot) = part.stripe.first(*state)
                && self.has_ended(part.stripe.entry(slot), now)
            {
                self.end(part, slot, End::TimedOut);
                ended += 1;
            }
        }
        ended
    }

    fn with(&self, connection: ConnectionId, work: impl FnOnce(&Self, &mut Part, u32) -> bool) -> bool {
        let (stripe, slot, serial) = connection.parts();
        if stripe >= self.parts.len() {
            return false;
        }
        let mut part = self.lock(stripe);
        part.stripe.named(slot, serial).is_some() && work(self, &mut part, slot)
    }

    /// A panic under the lock leaves nothing half done that matters more than all further packets.
    fn lock(&self, at: usize) -> MutexGuard<'_, Part> {
        self.parts[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stripe_of(&self, hash: u64) -> usize {
        usize::try_from(hash & (self.parts.len() as u64 - 1)).unwrap_or(0)
    }

    fn has_ended(&self, entry: &Entry, now: u64) -> bool {
        now.saturating_sub(entry.seen) > self.timeouts[entry.state.at()]
    }

    /// Notes a packet of a connection, and what the connection is now.
    fn refresh(&self, part: &mut Part, slot: u32, state: State, now: u64) {
        let entry = part.stripe.entry(slot);
        let before = entry.state;
        // One that was reset has to end, whatever still comes.
        if (before, state) == (State::Closed, State::Closed) {
            return;
        }
        entry.seen = entry.seen.max(now);
        if !state.is_open() {
            entry.marks &= !HANDED_OVER;
        }
        if state == before {
            let age = ticks(now).wrapping_sub(entry.placed).cast_signed();
            if i64::from(age) > i64::from(ticks(self.timeouts[state.at()] / 8)) {
                part.stripe.move_to(slot, state, now);
            }
            return;
        }
        part.stripe.move_to(slot, state, now);
        match (before.rank() < Rank::Established, state.rank() < Rank::Established) {
            (true, false) => _ = self.weak.fetch_sub(1, Ordering::Relaxed),
            (false, true) => _ = self.weak.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Ends a connection.
    fn end(&self, part: &mut Part, slot: u32, why: End) {
        let Entry { key, state, .. } = *part.stripe.entry(slot);
        part.stripe.remove(slot, key.hash(&self.random));
        self.tenants.leave(key.vni());
        self.total.fetch_sub(1, Ordering::Relaxed);
        if state.rank() < Rank::Established {
            self.weak.fetch_sub(1, Ordering::Relaxed);
        }
        match why {
            End::TimedOut => part.counts.timed_out += 1,
            End::NoLongerAllowed => part.counts.no_longer_allowed += 1,
            End::Replaced => part.counts.replaced += 1,
            End::Evicted(rank) => part.counts.evicted[rank as usize] += 1,
        }
    }

    /// Remembers a first fragment that was allowed.
    pub(crate) fn allow_fragments(&self, now: u64, vni: Vni, flow: &Flow, generation: u64, profiles: Profiles) {
        self.fragments.allow(now, vni, flow, generation, profiles);
    }

    /// Tells whether a later fragment passes.
    pub(crate) fn later_fragment(
        &self,
        now: u64,
        vni: Vni,
        flow: &Flow,
        policy: &Snapshot,
        profiles: Profiles,
    ) -> Result<Passed, Refused> {
        if self.fragments.allows(now, vni, flow, policy, profiles) {
            Ok(Passed::once(policy))
        } else {
            Err(Refused::UnknownFragment)
        }
    }
}

/// Those of source and destination.
type Profiles = [Option<ProfileId>; 2];

impl Passed {
    /// A packet of which nothing is remembered, and that says nothing about those behind it.
    pub(crate) fn once(policy: &Snapshot) -> Self {
        Self {
            connection: None,
            established: false,
            generation: policy.generation(),
        }
    }
}
