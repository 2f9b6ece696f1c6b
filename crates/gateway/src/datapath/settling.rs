//! Numbers of TCP connections that settle in the fast path.
//!
//! ```text
//!   put ── SETTLED ──▶ workers' numbers are merged ── IN_FORCE ──▶ they settle
//! ```
//! Workers may have packets of a connection from before it was put, and follow their numbers until
//! none has one any more. Then the program adds what they have seen to what it has seen itself.

use std::collections::{HashMap, VecDeque};

use anyhow::Result;
use ringside_bpf::gateway::{Amendment, ConnectionKey, GatewayProgram, TcpSide};
use ringside_gateway_core::conntrack::{ConnectionId, Conntrack, Said};

/// Nanoseconds after which no worker has a packet any more that came before its connection was put.
pub(super) const SETTLED: u64 = 1_000_000_000;
/// Connections whose numbers may be about to settle at once. They need 9 MiB.
pub(super) const MAX_UNSETTLED: usize = 1 << 16;
/// Connections whose numbers settle at a time, which takes some milliseconds: others want the cache
/// as well.
pub(super) const MAX_SETTLED: usize = 512;
/// Nanoseconds after which the program has no packet any more that came before a change of its
/// entry.
const IN_FORCE: u64 = 100_000_000;

/// A connection that was handed over with numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    pub(super) key: ConnectionKey,
    pub(super) id: ConnectionId,
    /// Its first packet came from the higher end of its key.
    pub(super) from_higher: bool,
    /// What both sides had said when it was handed over.
    pub(super) said: [Said; 2],
}

/// Connections that were handed over with numbers which are about to settle.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Connections whose numbers workers follow, too, and until when, in the order of that.
    followed: VecDeque<(u64, Followed)>,
    /// Those whose numbers settle next, in the same way.
    merged: VecDeque<(u64, Followed)>,
    /// When the numbers of each settle next. Another connection may get the same name meanwhile. An
    /// entry of a queue with another time belongs to the connection before.
    due: HashMap<ConnectionId, u64>,
}

impl Settling {
    /// Returns whether there may be another one.
    pub(super) fn has_room(&self) -> bool {
        self.followed.len() + self.merged.len() < MAX_UNSETTLED
    }

    /// Settles numbers of a connection at this time, and not at one before.
    pub(super) fn follow(&mut self, due: u64, connection: Followed) {
        self.due.insert(connection.id, due);
        self.followed.push_back((due, connection));
    }

    /// Settles numbers of some connections that were put long enough ago. To be called often, and
    /// soon again if it returns true: then there may be more of them. After an error the next call
    /// goes on with the same connection, and ends its check if workers do not know its numbers any
    /// more.
    pub(super) fn settle(&mut self, program: &GatewayProgram, conntrack: &Conntrack, now: u64) -> Result<bool> {
        self.settle_with(conntrack, now, |connection, wanted| {
            Ok(program.amend(&connection.key, connection.id.to_bits(), wanted)?)
        })
    }

    /// Does the same, and changes the program by `amend`.
    pub(super) fn settle_with(
        &mut self,
        conntrack: &Conntrack,
        now: u64,
        amend: impl Fn(&Followed, Amendment) -> Result<bool>,
    ) -> Result<bool> {
        let mut left = MAX_SETTLED;
        while left > 0
            && let Some((due, connection)) = first_due(&self.merged, now)
        {
            if self.due.get(&connection.id) == Some(&due) {
                amend(&connection, Amendment::Settle)?;
                self.due.remove(&connection.id);
            }
            self.merged.pop_front();
            left -= 1;
        }
        while left > 0
            && let Some((due, connection)) = first_due(&self.followed, now)
        {
            let id = connection.id;
            if self.due.get(&id) == Some(&due) {
                if let Some(said) = conntrack.settle(id) {
                    let [from, to] = [connection.said, said].map(|said| sides(said, connection.from_higher));
                    amend(&connection, Amendment::Merge { from, to })?;
                    let due = now + IN_FORCE;
                    self.due.insert(id, due);
                    self.merged.push_back((due, connection));
                } else {
                    // It is over, or workers do not know any more.
                    amend(&connection, Amendment::Forget)?;
                    self.due.remove(&id);
                }
            }
            self.followed.pop_front();
            left -= 1;
        }
        Ok(left == 0)
    }
}

/// Returns the first connection of a queue if its time has come.
fn first_due(queue: &VecDeque<(u64, Followed)>, now: u64) -> Option<(u64, Followed)> {
    queue.front().copied().filter(|(due, _)| *due <= now)
}

/// Returns what both sides have said, the lower end's first.
pub(super) fn sides([first, second]: [Said; 2], from_higher: bool) -> [TcpSide; 2] {
    let sides = if from_higher { [second, first] } else { [first, second] };
    sides.map(|said| TcpSide {
        end: said.end,
        limit: said.limit,
        window: said.window,
        scale: said.scale,
    })
}
