//! Security groups: which packets the rules of an address allow.
//!
//! A [`Rule`] allows something; what no rule allows is denied. Rules stand in groups, and what is bound to an address is a
//! *profile*: a set of groups, each set once. An address without a profile may send and get anything. A packet from an
//! address with a profile needs an egress rule of it, a packet to one an ingress rule. A rule may name another group
//! instead of a prefix: then it allows addresses whose profile has that group, however many they are, because the
//! caller looks up the other address's profile with its neighbour anyway ([`Bindings`](crate::table::Bindings) has that of a sender
//! that is none).
//!
//! # How a packet is matched
//! The rules of a profile, direction and address family are numbered, and each property of a packet leads to a row of
//! bits, one for each rule that this property meets: the service (protocol with port, or ICMP type and code) and the
//! remote address through a binary search over the intervals that the rules cut the numbers into, each group of the remote
//! address's profile by its number. `service & (address | group | group …)` is what allows the packet. (Lakshman and
//! Stiliadis, SIGCOMM 1998.) It costs two binary searches and a few words, whether there are ten rules or hundreds, and
//! tells which rule it was.
//!
//! # How it changes
//! Workers read an immutable [`Snapshot`]; a [`PolicyWriter`] makes the next one, which shares with it all profiles that
//! did not change. Each profile knows since which generation it says what it says: a decision of that or a later
//! generation still holds. What is bound to several addresses may become otherwise with the rules, at once
//! ([`PolicyWriter::publish_and_bind`]): each address has a profile of its own meanwhile, a *turn*, which a snapshot turns with
//! all others from what was to what is.

mod compiled;
mod publish;
mod rows;
mod rule;

pub use compiled::{Denied, Subject};
pub use publish::{Bind, Policy, PolicyReader, PolicyWriter, Side, Snapshot};
pub use rule::{Direction, Family, GroupId, ProfileId, Remote, Rule, RuleError, RuleId, Service};

#[cfg(test)]
pub(crate) mod tests;
