//! What the fast path takes over from workers.

use ringside_wire::Protocol;

use crate::TenantAddress;
use crate::conntrack::ConnectionId;
use crate::flow::{Flow, Query, QueryKind, Upper};
use crate::table::Neighbor;

/// What the fast path may do by itself from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cacheable {
    /// Nothing.
    Nothing,
    /// Forward to this address, whoever sends: no rules are bound to either end.
    Neighbor(TenantAddress),
    /// Forward packets of this connection, in this direction, while the policy is of this generation.
    Connection {
        /// Which.
        connection: ConnectionId,
        /// By which it was allowed.
        generation: u64,
    },
    /// No longer anything between the two ends of this connection.
    Ended(ConnectionId),
}

impl Cacheable {
    /// Of a packet that workers send on, and the next like it: with another encapsulation or family than it came with, or with a
    /// checksum that was left to a NIC. Where senders count its receiver is told all the same, for it may be a sender whose packets
    /// the fast path takes; what was handed over is let go all the same.
    pub(super) fn of_worker(self, senders_count: bool) -> Self {
        match self {
            Self::Neighbor(_) if senders_count => self,
            Self::Ended(_) => self,
            Self::Nothing | Self::Neighbor(_) | Self::Connection { .. } => Self::Nothing,
        }
    }
}

/// The program knows connections of no other protocols, and of nobody who is no neighbour.
pub(super) fn may_be_taken(flow: &Flow, sender: Option<Neighbor>) -> bool {
    let is_echo = matches!(
        flow.upper,
        Upper::Query(Query {
            kind: QueryKind::Echo,
            ..
        })
    );
    (is_echo || matches!(flow.protocol, Protocol::TCP | Protocol::UDP)) && sender.is_some()
}
