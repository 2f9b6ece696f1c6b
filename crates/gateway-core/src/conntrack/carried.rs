//! What the fast path has of the connections.

use std::sync::atomic::Ordering;

use super::Conntrack;
use super::entry::{Connection, ConnectionId, Entry, HANDED_OVER, ONLY_ANSWERS};
use super::state::State;
use super::tcp::Said;

/// A connection, and what its two sides have said if that is known.
type HandedOver = (Connection, Option<[Said; 2]>);

impl Conntrack {
    /// Sets how many connections that are [`State::is_brief`] may be in the fast path: none, unless this
    /// was called.
    pub fn limit_brief(&self, most: u32) {
        self.most_brief.store(most, Ordering::Relaxed);
    }

    /// Returns how many of the fast path's connections are [`State::is_brief`], and how many may.
    #[must_use]
    pub fn brief(&self) -> (u32, u32) {
        (
            self.brief.load(Ordering::Relaxed),
            self.most_brief.load(Ordering::Relaxed),
        )
    }

    /// Marks a connection as one whose packets go through the fast path from now on, and returns it. To
    /// be called before they do. None, and nothing has changed, if it is gone, or not one that may.
    #[must_use]
    pub fn hand_over(&self, connection: ConnectionId) -> Option<Connection> {
        let (connection, _) = self.hand_over_in(connection, false)?;
        Some(connection)
    }

    /// The same, with what both sides of a TCP connection have said, who began it first. None: it
    /// is not known, because not all of the connection was seen here. Else what comes here of the
    /// connection is followed on until [`settle`](Self::settle), also if it is handed over again
    /// meanwhile, and not refused for its numbers.
    #[must_use]
    pub fn hand_over_with_numbers(&self, connection: ConnectionId) -> Option<HandedOver> {
        self.hand_over_in(connection, true)
    }

    fn hand_over_in(&self, connection: ConnectionId, follow: bool) -> Option<HandedOver> {
        self.with(connection, |part, slot| {
            let mut entry = part.entry(slot);
            let may = match entry.state {
                State::ResetSeen => false,
                state if state.is_brief() => self.may_carry_brief(&entry),
                state => state.is_open(),
            };
            if !may {
                return None;
            }
            // Of one that was there before the fast path has seen more; what was begun goes on.
            let is_new = entry.marks & HANDED_OVER == 0;
            let said = entry.tcp.said().filter(|_| follow && is_new);
            self.set_handed_over(&mut entry, true);
            if said.is_none() && is_new {
                entry.tcp.stop_checking();
            }
            part.put(slot, &entry);
            Some((entry.tell(connection), said))
        })
    }

    /// Returns what both sides of a connection have said that was handed over [with
    /// numbers](Self::hand_over_with_numbers), with all that came here since. To be called when
    /// nothing is under way any more that came before. From now on numbers are not followed here.
    #[must_use]
    pub fn settle(&self, connection: ConnectionId) -> Option<[Said; 2]> {
        self.with(connection, |part, slot| {
            let mut entry = part.entry(slot);
            let said = entry.tcp.said().filter(|_| entry.marks & HANDED_OVER != 0)?;
            entry.tcp.stop_checking();
            part.put(slot, &entry);
            Some(said)
        })
    }

    /// Returns how many connections of TCP have ended without a word to who has them in the fast
    /// path: by a time-out, a change of rules, or for want of room. See [`let_go`](Self::let_go).
    #[must_use]
    pub fn lingering(&self) -> u64 {
        self.lingering.load(Ordering::Relaxed)
    }

    /// Notes that the fast path may have connections that are not known here.
    pub fn expect_lingering(&self) {
        self.lingering.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that of those that had ended by a [count](Self::lingering) none is in the fast path
    /// any more. Until then each connection that begins may have the ports of one that is.
    pub fn let_go(&self, lingering: u64) {
        self.let_go.fetch_max(lingering, Ordering::Relaxed);
    }

    /// Sets whether the fast path follows the numbers of TCP connections, as it does unless this
    /// was called. Where it does not, connections that linger there concern nobody.
    pub fn follow_numbers(&self, follows: bool) {
        self.follows_numbers.store(follows, Ordering::Relaxed);
    }

    /// True if the fast path may have the numbers of a connection that has ended.
    pub(super) fn has_lingering(&self) -> bool {
        self.follows_numbers.load(Ordering::Relaxed) && self.lingering() > self.let_go.load(Ordering::Relaxed)
    }

    /// Marks a connection as one that the fast path had no room for, or has no longer.
    pub fn take_back(&self, connection: ConnectionId) {
        _ = self.with(connection, |part, slot| {
            let mut entry = part.entry(slot);
            self.set_handed_over(&mut entry, false);
            part.put(slot, &entry);
            Some(())
        });
    }

    /// True if the fast path has a brief connection, or may have it.
    pub(super) fn may_carry_brief(&self, entry: &Entry) -> bool {
        let (brief, most) = self.brief();
        entry.marks & HANDED_OVER != 0 || (entry.marks & ONLY_ANSWERS == 0 && brief < most)
    }

    /// Marks whether the fast path has a connection; it is not put back yet.
    fn set_handed_over(&self, entry: &mut Entry, handed_over: bool) {
        let was_brief = entry.is_carried_brief();
        let was_handed_over = entry.marks & HANDED_OVER != 0;
        if handed_over {
            entry.marks |= HANDED_OVER;
        } else if was_handed_over {
            entry.marks &= !HANDED_OVER;
            // Not all of it has come here.
            entry.tcp.stop_checking();
        }
        self.count_brief(was_brief, entry.is_carried_brief());
    }

    pub(super) fn count_brief(&self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => _ = self.brief.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.brief.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Notes when the fast path has sent on a packet of a connection, in nanoseconds. False if the
    /// connection is gone: then what was handed over has to be let go.
    #[must_use]
    pub fn touch(&self, connection: ConnectionId, seen: u64) -> bool {
        self.with(connection, |part, slot| {
            let mut entry = part.entry(slot);
            let alive = entry.state == State::ResetSeen && seen > entry.seen;
            let state = if alive { State::Established } else { entry.state };
            self.refresh(part, slot, &mut entry, state, seen);
            part.put(slot, &entry);
            Some(())
        })
        .is_some()
    }
}
