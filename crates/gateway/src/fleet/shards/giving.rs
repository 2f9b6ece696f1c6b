//! Shards that a member gives away: to all who are to have them at once, each with its connections first, and when it is its turn.
//!
//! ```text
//!   mine that are others' ──▶ connections to each of these ──all, or a second──▶ turn ──▶ one map
//! ```
//! Whenever a gateway has come, all others have something for it, and of maps written at the same time etcd takes one. So they go one
//! after the other: who has a lower name among those that have something to give is first, the next one follows when it hears of that map,
//! or a little later if there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringside_gateway_core::shard::{MemberId, Move};

use super::{Ask, Shards};
use crate::fleet::shards::Action;

/// Who is ready waits for others of the same map no longer.
const GATHER: Duration = Duration::from_secs(1);
/// What was handed over so long ago is handed over again: connections have begun since.
const STALE: Duration = Duration::from_secs(2);
/// Times that a map takes, for each of those before it.
const PACES: u32 = 2;
/// Shortest and longest time for each of those before it.
const PACE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Those that wait longer for those before them; the others wait as long as this one and a random time.
const RANKS: u32 = 8;

/// Shards that are being given away.
#[derive(Debug, Default)]
pub(super) struct Giving {
    moves: Vec<Move>,
    since: Duration,
    to: BTreeMap<MemberId, Hand>,
}

/// The connections for one of those who get something.
#[derive(Debug, Default)]
struct Hand {
    ask: Ask,
    /// Since when they cannot be handed over.
    stuck: Option<Duration>,
    /// It has them (true), or will not have them (false).
    done: Option<bool>,
    /// What is asked is about other shards.
    is_old: bool,
}

/// When it is this member's turn to write a map.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Behind this map.
    behind: u64,
    at: Duration,
    /// How long a map took the last time.
    took: Duration,
}

impl Giving {
    fn begin(&mut self, moves: Vec<Move>, now: Duration) {
        self.since = now;
        // What is under way was for others' sake.
        self.to.values_mut().for_each(|hand| hand.is_old = hand.ask.is_asked);
        for one in &moves {
            self.to.entry(one.to).or_default();
        }
        self.moves = moves;
    }

    fn is_asked(&self) -> bool {
        self.to.values().any(|hand| hand.ask.is_asked)
    }

    /// All that can be given now, and whether there is nothing more to wait for.
    fn ready(&self) -> (Vec<Move>, bool) {
        let is_done = |one: &&Move| self.to.get(&one.to).is_some_and(|hand| hand.done.is_some());
        let ready: Vec<Move> = self.moves.iter().filter(is_done).copied().collect();
        let all = ready.len() == self.moves.len();
        (ready, all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// When something is to be done, if nothing is heard; a map not before `turn`.
    pub(super) fn wake(&self, turn: Duration) -> Duration {
        let open = self
            .to
            .values()
            .filter(|hand| hand.done.is_none() && !hand.ask.is_asked);
        let retry = open.map(|hand| hand.ask.next).min().unwrap_or(Duration::MAX);
        let map = match self.ready() {
            (ready, _) if ready.is_empty() => Duration::MAX,
            (_, true) => turn,
            (_, false) => turn.max(self.since + GATHER),
        };
        retry.min(map)
    }
}

impl Shards {
    /// Gives away what is to be another's: first the connections, then the shards.
    pub(super) fn give(&mut self, now: Duration) {
        let mut giving = self.giving.take().unwrap_or_default();
        self.keep_what_holds(&mut giving);
        if giving.moves.is_empty() && self.propose.is_due(now) {
            let most = self.view.mine().iter().take(self.timing.most);
            giving.begin(most.copied().collect(), now);
            // Others may have begun, too.
            self.turn.at = Duration::ZERO;
        }
        if giving.to.is_empty() {
            return;
        }
        for (to, hand) in &mut giving.to {
            if hand.done.is_none() && hand.ask.is_due(now) {
                hand.ask.begin(now);
                let of = giving.moves.iter().filter(|one| one.to == *to);
                let shards = of.map(|one| one.shard).collect();
                self.actions.push_back(Action::HandOver { to: *to, shards });
            }
        }
        let (ready, all) = giving.ready();
        let may = !ready.is_empty() && (all || now >= giving.since + GATHER);
        let bare = giving.to.iter().filter(|(_, hand)| hand.done == Some(false));
        let bare: BTreeSet<MemberId> = bare.map(|(to, _)| *to).collect();
        self.giving = Some(giving);
        if may && self.is_turn(now) && self.propose.is_due(now) {
            self.propose(now, ready, bare);
        }
    }

    /// Whom something is given to may have changed, and what is done is done.
    fn keep_what_holds(&self, giving: &mut Giving) {
        giving.moves.retain(|one| self.view.target(one.shard) == Some(*one));
        let moves = &giving.moves;
        // An answer that is still to come is heard as that.
        (giving.to).retain(|to, hand| hand.ask.is_asked || moves.iter().any(|one| one.to == *to));
    }

    /// Whether those who come first have had their turn.
    fn is_turn(&mut self, now: Duration) -> bool {
        if self.turn.behind != self.view.map_revision() || self.turn.at == Duration::ZERO {
            let rank = u32::try_from(self.view.givers_before_me()).unwrap_or(u32::MAX);
            let pace = (self.turn.took * PACES).clamp(PACE[0], PACE[1]);
            let mut wait = pace * rank.min(RANKS);
            if rank > RANKS {
                wait += self.chance.up_to(pace * RANKS);
            }
            self.turn.behind = self.view.map_revision();
            self.turn.at = now + wait;
        }
        now >= self.turn.at
    }

    /// Not before then the next map is written.
    pub(super) fn next_map(&self) -> Duration {
        self.propose.next.max(self.turn.at)
    }

    /// A map was answered, whatever came of it.
    pub(super) fn map_took(&mut self, time: Duration) {
        self.turn.took = time;
    }

    /// A map met another's, or got lost: what was handed over for it a while ago is handed over again.
    pub(super) fn not_given(&mut self, now: Duration) {
        if self
            .giving
            .as_ref()
            .is_some_and(|giving| now >= giving.since + STALE && !giving.is_asked())
        {
            self.giving = None;
        }
    }

    pub(super) fn handed_over(&mut self, now: Duration, to: MemberId, result: Result<bool, String>) {
        let (patience, is_cut_off) = (self.timing.hand_over, self.record.cut_off);
        let hand = self.giving.as_mut().and_then(|giving| giving.to.get_mut(&to));
        let Some(hand) = hand.filter(|hand| hand.ask.is_asked) else {
            return;
        };
        if std::mem::take(&mut hand.is_old) {
            return hand.ask.done(now);
        }
        match result {
            Ok(has_them) => {
                hand.done = Some(has_them);
                hand.ask.done(now);
            }
            Err(why) => {
                let since = *hand.stuck.get_or_insert(now);
                // Without a link no host reaches it: their packets wait for nobody.
                if is_cut_off || now.saturating_sub(since) >= patience {
                    hand.done = Some(false);
                }
                let tries = hand.ask.tries;
                let pause = self.pause(tries);
                self.error = Some(why);
                if let Some(hand) = self.giving.as_mut().and_then(|giving| giving.to.get_mut(&to)) {
                    hand.ask.failed(now, pause);
                }
            }
        }
    }
}
