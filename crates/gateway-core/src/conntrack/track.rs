//! What becomes of a packet.

use std::sync::atomic::Ordering;

use ringside_wire::Protocol;
use ringside_wire::tcp::Flags;

use super::entry::{ConnectionId, Entry, FROM_HIGHER, HANDED_OVER, ONLY_ANSWERS};
use super::key::{From, Key};
use super::room::Room;
use super::state::State;
use super::stripe::Part;
use super::tcp::{Seen, Tcp};
use super::{Connection, Conntrack, End, Passed, Profiles, Received, Refused};
use crate::Vni;
use crate::flow::{About, Ends, Flow, Query, QueryKind, Segment, Upper};
use crate::policy::{Snapshot, Subject};

/// What is asked about a packet.
struct Ask<'a> {
    packet: &'a Received<'a>,
    now: u64,
    vni: Vni,
    flow: &'a Flow,
    policy: &'a Snapshot,
    /// Of the packet's source and destination.
    profiles: Profiles,
    key: Key,
    from: From,
    hash: u64,
    stripe: usize,
}

impl Ask<'_> {
    /// Asks the rules about this packet, as the first of a connection.
    fn judge(&self) -> Result<(), Refused> {
        let subject = Subject {
            source: self.flow.source,
            destination: self.flow.destination,
            protocol: self.flow.protocol,
            service: self.flow.service().unwrap_or(0),
        };
        let [source, destination] = self.profiles;
        self.policy
            .judge(&subject, source, destination)
            .map_err(Refused::Denied)
    }

    /// Asks the rules about a connection that the other side has begun, and to which this belongs.
    fn judge_second(&self) -> bool {
        let Some(service) = self.flow.answered_service() else {
            return false;
        };
        let subject = Subject {
            source: self.flow.destination,
            destination: self.flow.source,
            protocol: self.flow.protocol,
            service,
        };
        let [source, destination] = self.profiles;
        self.policy.judge(&subject, destination, source).is_ok()
    }

    /// What a packet begins whose own direction the rules do not allow: a connection that the other side has begun, and that is allowed. Of
    /// TCP it is in the middle of one; while the network changes hands the answer to what went by another gateway does, too.
    fn begin_second(&self, pick_up: bool, is_moving: bool) -> Option<(Tcp, State)> {
        let begun = match &self.flow.upper {
            Upper::Tcp(segment) if pick_up => Tcp::picked_up(segment, 1, is_moving)?,
            Upper::Ports(_) | Upper::Query(Query { asks: false, .. }) | Upper::Other if is_moving => {
                (Tcp::default(), State::first(self.flow.protocol))
            }
            _ => return None,
        };
        self.judge_second().then_some(begun)
    }

    /// True for a TCP segment whose header the fast path does not look at.
    fn is_unfollowed(&self) -> bool {
        matches!(self.flow.upper, Upper::Tcp(_)) && self.flow.fragment.is_some()
    }

    fn passed(&self, connection: Option<ConnectionId>, established: bool) -> Passed {
        Passed {
            connection,
            established,
            let_go: false,
            generation: self.policy.generation(),
        }
    }
}

impl Conntrack {
    /// Takes in a packet that has ends ([`Flow::ends`]): one of a connection passes, another begins one if the rules allow
    /// it.
    pub(crate) fn track(
        &self,
        packet: &Received<'_>,
        ends: Ends,
        policy: &Snapshot,
        profiles: Profiles,
    ) -> Result<Passed, Refused> {
        let &Received { now, vni, flow, .. } = packet;
        let found = Key::new(vni, flow.source, flow.destination, flow.protocol, ends);
        let (key, from) = found.ok_or(Refused::SameEnds)?;
        let hash = key.hash(&self.random);
        let stripe = self.stripe_of(hash);
        let ask = Ask {
            packet,
            now,
            vni,
            flow,
            policy,
            profiles,
            key,
            from,
            hash,
            stripe,
        };
        self.with_room(stripe, now, |part, room| self.track_in(part, &ask, room))
    }

    fn track_in(&self, part: &mut Part<'_>, ask: &Ask<'_>, room: Room) -> Option<Result<Passed, Refused>> {
        let Some(slot) = part.find(&ask.key, ask.hash) else {
            return self.begin(part, ask, None, room);
        };
        let mut entry = part.entry(slot);
        if self.has_ended(&entry, ask.now) {
            self.end(part, slot, &entry, End::TimedOut);
            return self.begin(part, ask, None, room);
        }
        let way = usize::from(ask.from != entry.origin());
        let only_answers = entry.marks & ONLY_ANSWERS != 0;
        if only_answers && way == 1 && !self.is_moving(ask) {
            // By now its question would have come here, too.
            self.end(part, slot, &entry, End::TimedOut);
            return self.begin(part, ask, None, room);
        }
        let [source, destination] = ask.profiles;
        let profiles = if way == 0 { ask.profiles } else { [destination, source] };
        if let Err(refused) = self.still_allowed(part, slot, &mut entry, ask.policy, profiles) {
            return Some(Err(refused));
        }
        let seen = match &ask.flow.upper {
            Upper::Tcp(segment) => {
                // How far its later fragments reach is not known.
                if ask.flow.fragment.is_some() {
                    entry.tcp.stop_checking();
                }
                let handed_over = entry.marks & HANDED_OVER != 0;
                // What its end goes by has to be of the whole connection.
                if handed_over && segment.flags.of_state() != Flags::ACK {
                    entry.tcp.stop_checking();
                }
                match entry.tcp.see(entry.state, way, segment) {
                    Seen::OutOfState | Seen::OutOfWindow if self.is_moving(ask) => {
                        entry.tcp.see_some(entry.state, way, segment)
                    }
                    // The fast path has seen more, and has checked it.
                    Seen::OutOfWindow if handed_over => {
                        entry.tcp.stop_checking();
                        entry.tcp.see(entry.state, way, segment)
                    }
                    seen => seen,
                }
            }
            // A question against the direction: somebody's number of it is the same as the kind that stands for the other.
            Upper::Query(Query { asks: true, .. }) if way == 1 => Seen::Turned,
            _ if way == 1 && !only_answers => Seen::Fits(entry.state.replied()),
            _ if way == 0 && only_answers => {
                entry.marks &= !ONLY_ANSWERS;
                Seen::Fits(entry.state.replied())
            }
            _ => Seen::Fits(entry.state),
        };
        let changes = matches!(seen, Seen::Fits(state) if state != entry.state);
        // Its receiver will not take a damaged one, so nothing follows from it.
        if changes && !ask.packet.is_intact() {
            return Some(Err(Refused::Damaged));
        }
        let handed_over = entry.marks & HANDED_OVER != 0;
        let is_renumbered = match &ask.flow.upper {
            Upper::Tcp(segment) => entry.tcp.is_renumbered_by(way, segment),
            _ => false,
        };
        let done = match seen {
            Seen::Fits(state) => {
                let is_same = state == entry.state;
                self.refresh(part, slot, &mut entry, state, ask.now);
                let kept = entry.marks & HANDED_OVER != 0;
                let established = match state {
                    State::ResetSeen => kept,
                    // Not with the first packet, nor the first answer: many have no others.
                    _ if state.is_brief() => kept || (is_same && way == 0 && self.may_carry_brief(&entry)),
                    _ => state.is_open(),
                };
                let id = ConnectionId::new(ask.stripe, slot, part.serial(slot));
                // The fast path has not read what numbers a fragment has.
                let is_followed = !ask.is_unfollowed() && !is_renumbered;
                Ok(Passed {
                    let_go: handed_over && (!established || !is_followed),
                    ..ask.passed(Some(id), established)
                })
            }
            Seen::Begins => return self.begin(part, ask, Some((slot, &entry)), room),
            // If both ends have lost it, what follows is another one with its numbers.
            Seen::Turned if entry.is_followed() => ask.judge().map(|()| {
                let id = ConnectionId::new(ask.stripe, slot, part.serial(slot));
                Passed {
                    let_go: true,
                    ..ask.passed(Some(id), false)
                }
            }),
            Seen::Turned => ask.judge().map(|()| ask.passed(None, false)),
            Seen::OutOfWindow => Err(Refused::OutOfWindow),
            Seen::OutOfState => Err(Refused::OutOfState),
            Seen::BadFlags => Err(Refused::BadFlags),
        };
        part.put(slot, &entry);
        Some(done)
    }

    /// Judges a connection again if that could come out another way than before, and ends it if it is no longer allowed.
    fn still_allowed(
        &self,
        part: &mut Part<'_>,
        slot: u32,
        entry: &mut Entry,
        policy: &Snapshot,
        profiles: Profiles,
    ) -> Result<(), Refused> {
        let [source, destination] = profiles;
        let same = entry.profiles == profiles;
        if same && entry.generation >= policy.generation() {
            return Ok(());
        }
        if !same || !policy.holds(entry.generation, source, destination) {
            if let Err(denied) = policy.judge(&entry.subject(), source, destination) {
                self.end(part, slot, entry, End::NoLongerAllowed);
                return Err(Refused::NoLongerAllowed(denied));
            }
            entry.profiles = profiles;
        }
        entry.generation = policy.generation();
        Ok(())
    }

    /// Its network changes hands, and what the other gateway has seen is not to be missed.
    fn is_moving(&self, ask: &Ask<'_>) -> bool {
        self.limits.pick_up && self.moving.is(ask.vni, ask.now)
    }

    /// Begins a connection, in the place of another if there was one of the same ends.
    fn begin(
        &self,
        part: &mut Part<'_>,
        ask: &Ask<'_>,
        replaced: Option<(u32, &Entry)>,
        room: Room,
    ) -> Option<Result<Passed, Refused>> {
        let begun = match &ask.flow.upper {
            Upper::Tcp(segment) => Tcp::begin(segment, self.limits.pick_up).ok_or_else(|| no_beginning(segment)),
            Upper::Query(Query { asks: false, .. }) => Err(Refused::NoConnection),
            _ => Ok((Tcp::default(), State::first(ask.flow.protocol))),
        };
        if let Err(refused) = begun
            && !self.is_moving(ask)
        {
            return Some(Err(refused));
        }
        if self.draining.load(Ordering::Relaxed) {
            return Some(Err(Refused::Draining));
        }
        let [source, destination] = ask.profiles;
        let mut marks = 0;
        let ((tcp, state), from, profiles) = match begun.and_then(|begun| ask.judge().map(|()| begun)) {
            Ok(begun) => (begun, ask.from, ask.profiles),
            Err(refused) => match ask.begin_second(self.limits.pick_up, self.is_moving(ask)) {
                Some(begun) => {
                    if !matches!(ask.flow.upper, Upper::Tcp(_)) {
                        marks = ONLY_ANSWERS;
                    }
                    (begun, ask.from.other(), [destination, source])
                }
                None => return Some(Err(refused)),
            },
        };
        if !ask.packet.is_intact() {
            return Some(Err(Refused::Damaged));
        }
        if let Some((slot, entry)) = replaced {
            self.end(part, slot, entry, End::Replaced);
        }
        let entry = Entry {
            key: ask.key,
            state,
            marks: marks | if from == From::Higher { FROM_HIGHER } else { 0 },
            seen: ask.now,
            generation: ask.policy.generation(),
            profiles,
            tcp,
        };
        let was_followed = replaced.is_some_and(|(_, entry)| entry.is_followed());
        let inserted = self.insert(part, &entry, ask.hash, ask.now, room);
        if was_followed && !matches!(inserted, Some(Ok(_))) {
            // The one that was replaced is still in the fast path.
            self.expect_lingering();
        }
        let slot = match inserted? {
            Ok(slot) => slot,
            Err(refused) => return Some(Err(refused)),
        };
        let id = ConnectionId::new(ask.stripe, slot, part.serial(slot));
        let is_tcp = matches!(ask.flow.upper, Upper::Tcp(_));
        Some(Ok(Passed {
            let_go: was_followed || (is_tcp && self.has_lingering()),
            ..ask.passed(Some(id), false)
        }))
    }

    /// Takes in an ICMP error: it passes if it is about a connection of its receiver that is still allowed, and changes
    /// nothing about it.
    pub(crate) fn related(
        &self,
        packet: &Received<'_>,
        about: &About,
        policy: &Snapshot,
        [source, destination]: Profiles,
    ) -> Result<Passed, Refused> {
        let &Received { now, vni, flow, .. } = packet;
        let quoted = about.packet.filter(|quoted| quoted.source == flow.destination);
        let quoted = quoted.ok_or(Refused::Unrelated)?;
        let key = Key::new(vni, quoted.source, quoted.destination, quoted.protocol, quoted.ends);
        let (key, from) = key.ok_or(Refused::Unrelated)?;
        let hash = key.hash(&self.random);
        let stripe = self.stripe_of(hash);
        let mut part = self.lock(stripe);
        let slot = part.find(&key, hash).ok_or(Refused::Unrelated)?;
        let mut entry = part.entry(slot);
        let way = usize::from(from != entry.origin());
        // The fast path has sent on what nobody has followed here.
        let may_be = entry.marks & HANDED_OVER != 0
            || quoted
                .sequence
                .is_none_or(|sequence| entry.tcp.may_have_sent(way, sequence));
        if !may_be || self.has_ended(&entry, now) {
            return Err(Refused::Unrelated);
        }
        // Who sends the error may be neither of the two; then the other's profile is the one that was known last.
        let mut profiles = entry.profiles;
        profiles[way] = destination;
        if flow.source == quoted.destination {
            profiles[1 - way] = source;
        }
        self.still_allowed(&mut part, slot, &mut entry, policy, profiles)?;
        part.put(slot, &entry);
        Ok(Passed {
            connection: Some(ConnectionId::new(stripe, slot, part.serial(slot))),
            ..Passed::once(policy)
        })
    }

    /// Puts in a connection that another gateway had, or this one before it was started anew. Its next packet is judged by
    /// the rules as its first was, and numbers of TCP are not checked. False if there is no room, or its ends have one already:
    /// of that numbers count no more, for its packets may have gone elsewhere.
    pub fn restore(&self, now: u64, connection: &Connection) -> bool {
        let &Connection {
            vni,
            source,
            destination,
            protocol,
            ports: [port, other],
            ..
        } = connection;
        let ends = match (protocol, other) {
            (Protocol::ICMP | Protocol::ICMPV6, kind) => Ends::Query(Query {
                kind: if kind == 13 { QueryKind::Time } else { QueryKind::Echo },
                identifier: port,
                asks: true,
            }),
            _ if protocol.has_ports() => Ends::Ports([port, other]),
            _ => Ends::None,
        };
        let Some((key, from)) = Key::new(vni, source, destination, protocol, ends) else {
            return false;
        };
        // What it had of TCP's closing is not known; what is open may go on, the rest is asked to begin anew.
        let first = State::first(protocol);
        let state = connection.state;
        let is_brief = state.is_brief() && [first, first.replied()].contains(&state);
        if !(state.is_open() || is_brief) || source.is_ipv4() != destination.is_ipv4() {
            return false;
        }
        let hash = key.hash(&self.random);
        let handed_over = if connection.handed_over && !is_brief {
            HANDED_OVER
        } else {
            0
        };
        let entry = Entry {
            key,
            state: connection.state,
            marks: if from == From::Higher { FROM_HIGHER } else { 0 } | handed_over,
            seen: connection.seen.min(now),
            generation: 0,
            profiles: connection.profiles,
            tcp: Tcp::restored(),
        };
        let inserted = self.with_room(self.stripe_of(hash), now, |part, room| {
            if let Some(slot) = part.find(&key, hash) {
                let mut known = part.entry(slot);
                known.tcp.stop_checking();
                if known.marks & ONLY_ANSWERS != 0 {
                    // Its question has been seen.
                    known.marks &= !ONLY_ANSWERS;
                    let state = known.state.replied();
                    self.refresh(part, slot, &mut known, state, now);
                }
                part.put(slot, &known);
                return Some(Err(Refused::SameEnds));
            }
            self.insert(part, &entry, hash, now, room)
        });
        inserted.is_ok()
    }
}

fn no_beginning(segment: &Segment) -> Refused {
    let flags = segment.flags.of_state();
    let sensible = [
        Flags::SYN | Flags::ACK,
        Flags::ACK,
        Flags::FIN | Flags::ACK,
        Flags::RST,
        Flags::RST | Flags::ACK,
    ];
    if sensible.contains(&flags) {
        Refused::NoConnection
    } else {
        Refused::BadFlags
    }
}

impl State {
    /// That of the first packet of a protocol other than TCP.
    fn first(protocol: Protocol) -> Self {
        match protocol {
            Protocol::UDP | Protocol::UDP_LITE => Self::UdpUnreplied,
            Protocol::ICMP | Protocol::ICMPV6 => Self::IcmpUnreplied,
            _ => Self::OtherUnreplied,
        }
    }

    /// What it becomes when the other side answers.
    fn replied(self) -> Self {
        match self {
            Self::UdpUnreplied => Self::UdpReplied,
            Self::IcmpUnreplied => Self::IcmpReplied,
            Self::OtherUnreplied => Self::OtherReplied,
            other => other,
        }
    }
}
