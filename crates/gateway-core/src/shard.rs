//! Which gateway of a fleet serves which network.
//!
//! Networks are hashed to a fixed number of shards, and each shard has an owner. Owners are chosen by weighted rendezvous hashing:
//! each member has a score for each shard, and the highest one has it. A member that comes or goes moves its own shards and no
//! others, and everybody who knows the members comes to the same result, whatever the order in which they are told. Maglev's
//! table would be looked up faster and moves some shards without need; here nothing is looked up per packet, and a moved shard costs
//! connections.
//!
//! What is preferred is not always done at once: see [`plan`].

use std::collections::BTreeMap;

use crate::Vni;

mod planner;

pub use planner::Planner;

/// Shards of a fleet. Changing it moves nearly everything: it belongs to the schema.
pub const SHARDS: u32 = 1024;

/// The number of a shard, below [`SHARDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(u32);

impl Shard {
    /// The one that a network belongs to.
    #[must_use]
    pub const fn of(vni: Vni) -> Self {
        Self((mixed(vni.number() as u64, 0x5368_6172_6400_0001) >> 32) as u32 % SHARDS)
    }

    /// None from [`SHARDS`] on.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number < SHARDS { Some(Self(number)) } else { None }
    }

    /// As a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }
}

/// What a gateway is named by in its fleet. It keeps it over restarts, so that it gets back what it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

/// A gateway that lives: its lease has not run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub id: MemberId,
    /// Its share, beside the others'. 0 gets nothing unless there is nobody else.
    pub weight: u32,
    /// It knows all that the fleet knew when it joined: it may have shards of others that live.
    pub is_synced: bool,
    /// It is to be taken out of service: its shards go elsewhere.
    pub is_draining: bool,
}

/// splitmix64's finalizer over both.
const fn mixed(a: u64, b: u64) -> u64 {
    let mut mixed = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// -log2 of a number in (0, 1), with 32 bits behind the point. In whole numbers, for a logarithm of floating point may differ from
/// machine to machine, and with it who owns what.
#[allow(clippy::cast_possible_truncation, reason = "below 2^64, as said there")]
const fn minus_log2(random: u64) -> u64 {
    // In (0, 1): never 0.
    let random = random | 1;
    let whole = random.leading_zeros() as u64;
    // In [1, 2), with 63 bits behind the point.
    let mut rest = random << whole;
    let mut log = 0_u64;
    let mut bit = 1_u64 << 31;
    while bit != 0 {
        // Squared, so that the next bit of its logarithm comes before the point.
        let square = (rest as u128 * rest as u128) >> 63;
        if square >> 64 != 0 {
            log |= bit;
            rest = (square >> 1) as u64;
        } else {
            rest = square as u64;
        }
        bit >>= 1;
    }
    ((whole + 1) << 32) - log
}

/// A member beside a shard: its name, its weight, and a number by chance, the same for everybody.
#[derive(Debug, Clone, Copy)]
struct Score {
    id: MemberId,
    weight: u32,
    random: u64,
}

impl Score {
    const fn of(shard: Shard, id: MemberId, weight: u32) -> Self {
        let random = mixed(id.0, (shard.0 as u64) << 32 | 0x6f77_6e65);
        Self { id, weight, random }
    }

    /// Whether this one is preferred: weight over -log of the number, and the name if that is the same.
    fn beats(self, other: Self) -> bool {
        // Of the same weight the larger number has it, unless logarithms may be equal. That spares most of them.
        if self.weight == other.weight && self.weight > 0 {
            if is_less(other.random, self.random) {
                return true;
            }
            if is_less(self.random, other.random) {
                return false;
            }
        }
        self.beats_exactly(other)
    }

    fn beats_exactly(self, other: Self) -> bool {
        // weight / cost > other_weight / other_cost
        let left = u128::from(self.weight) * u128::from(minus_log2(other.random));
        let right = u128::from(other.weight) * u128::from(minus_log2(self.random));
        (left, self.id) > (right, other.id)
    }
}

/// Whether a number is so much less than another that [`minus_log2`] tells them apart: a part in 2^30 is 1.4 of its last place but two.
const fn is_less(one: u64, other: u64) -> bool {
    one.saturating_add((one >> 30) + 1) < other
}

/// The member that is preferred for a shard, of those that are in question.
#[must_use]
pub fn preferred<'a>(shard: Shard, members: impl IntoIterator<Item = &'a Member>) -> Option<&'a Member> {
    let score = |member: &'a Member| (member, Score::of(shard, member.id, member.weight));
    let scores = members.into_iter().map(score);
    let best = scores.reduce(|best, one| if one.1.beats(best.1) { one } else { best });
    best.map(|(member, _)| member)
}

/// A shard that gets another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: Shard,
    /// Who has it now; None: nobody.
    pub from: Option<MemberId>,
    /// Who has it then.
    pub to: MemberId,
    /// Nobody serves it: its owner is gone.
    pub is_urgent: bool,
}

/// Which moves are to be made now.
///
/// - A shard without an owner that lives goes at once to the preferred member that is synced; if none is, to the preferred one: half
///   of what it has to know is better than nobody. Who drains is asked last.
/// - A shard of a member that drains goes to the preferred one that is synced and does not drain. If there is none it stays.
/// - Any other shard goes to the preferred one of all that do not drain only when that one is synced: who has just come takes nothing
///   away before it knows what the fleet knows.
///
/// Of moves that are not urgent there are `most` at the most, so that not all connections are handed over at once; they are to be
/// planned again when these are made.
#[must_use]
pub fn plan(owners: &BTreeMap<Shard, MemberId>, members: &[Member], most: usize) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut left = most;
    for shard in Shard::all() {
        let of_owner = owners.get(&shard).copied();
        let owner = members.iter().find(|member| Some(member.id) == of_owner);
        let serving = || members.iter().filter(|member| !member.is_draining);
        let synced = || serving().filter(|member| member.is_synced);
        let to = match owner {
            None => preferred(shard, synced())
                .or_else(|| preferred(shard, serving()))
                .or_else(|| preferred(shard, members)),
            Some(owner) if owner.is_draining => preferred(shard, synced()),
            Some(_) => preferred(shard, serving()).filter(|member| member.is_synced),
        };
        let Some(to) = to.filter(|to| Some(to.id) != of_owner) else {
            continue;
        };
        let is_urgent = owner.is_none();
        if !is_urgent {
            if left == 0 {
                continue;
            }
            left -= 1;
        }
        moves.push(Move {
            shard,
            from: of_owner,
            to: to.id,
            is_urgent,
        });
    }
    moves
}

#[cfg(test)]
mod tests;
