//! What TCP's two sides have said, and whether a segment fits to it.
//!
//! Nobody here is an end of the connection: segments may be lost or come twice on either side of the gateway, so all that
//! is known are bounds. For a segment from S to R (van Rooij, "Real Stateful TCP Packet Filtering in IP Filter", 2001; Linux
//! does the same in `nf_conntrack_proto_tcp.c`):
//!
//! ```text
//!   sequence        ≤ what R has offered to take + 1                   S.limit + 1
//!                     and with data the largest window of R + 1 more
//!   sequence + len  ≥ what S has sent − the largest window of R − 2    S.sent() − R.window − 2
//!   acknowledgment  ≤ what R has sent                                  R.end
//!   acknowledgment  ≥ what R has sent − twice the largest window of S − 2 (66000 if less)
//! ```
//! R takes acknowledgments that are up to the largest window of S before what S has acknowledged
//! last (RFC 5961 §5.2), and can have sent one window more than that. An acknowledgment that others
//! have overtaken is that old: they acknowledge what filled a gap, and R has sent on.
//!
//! S may begin a segment one byte behind what R has offered to take: so a closed window is probed.
//! R may have offered more than was seen here, so R may acknowledge all of the segment. As a
//! lower bound it counts up to that byte only ([`Side::sent`]). So a forged segment in the window
//! does not move the bounds so far that a right one does not fit any more. Several can: each moves
//! what the next one may say.
//!
//! Some send data beyond the window, which receivers take that have offered more before. Linux lets
//! up to one window of it pass, too (commit cf97769c761a).
//!
//! Resets and SYNs on an open connection are what RFC 5961 makes of them: a reset ends the connection if it has exactly the
//! number that its receiver expects; another one in the window passes, and its receiver asks back. A SYN of who opened the
//! connection passes, changes nothing, and is asked back about, too.

use ringside_wire::tcp::{Flags, MAX_WINDOW_SCALE};

use super::state::State;
use crate::flow::Segment;

/// What one side has said.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    /// One behind the last number it has sent.
    end: u32,
    /// The last number that the other side has offered to take, and one more.
    limit: u32,
    /// What the other side has acknowledged; its first number before that.
    acked: u32,
    /// The largest window it has offered, not shifted.
    window: u16,
    /// The shift of its windows.
    scale: u8,
    facts: u8,
}

/// What one side of a TCP connection has said, for the fast path to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// One behind the last number that it has sent.
    pub end: u32,
    /// The last number that the other side has offered to take, and one more.
    pub limit: u32,
    /// The largest window that it has offered, not shifted.
    pub window: u16,
    /// The shift of its windows.
    pub scale: u8,
}

const SENT_SYN: u8 = 1;
const SYN_ACKED: u8 = 2;
const SENT_FIN: u8 = 4;
const FIN_ACKED: u8 = 8;
const SCALES: u8 = 16;

/// Both sides, who opened the connection first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tcp {
    sides: [Side; 2],
    /// A number that makes sense of what comes next: see [`AGAIN`].
    again: u32,
    marks: u8,
}

/// Numbers are not checked: the connection was not seen from its beginning, or not all of it is seen.
const UNCHECKED: u8 = 1;
/// Seen from its middle on, and one side only: who opened it, unless it is [`SECOND`].
const PICKED_UP: u8 = 2;
/// `again` is the end of a SYN on an open connection, which a SYN and ACK may still answer; or, before it is open, what was
/// acknowledged that does not fit, to which a reset is the answer.
const AGAIN: u8 = 4;
/// The side that was seen of one that was picked up is not the one that opened it.
const SECOND: u8 = 8;

/// The least that acknowledgments may lag behind: more than any window without a shift.
const LEAST_LAG: u32 = 66_000;
/// The most, with one window of what was sent beyond a window: less than 2^31.
const MOST_LAG: u32 = 0x7fff_0000;

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It fits; the connection is this now.
    Fits(State),
    /// It begins a new connection in the place of this one.
    Begins,
    /// It would begin one against the direction of this one, which it does not change.
    Turned,
    /// It is outside of what its sender may send.
    OutOfWindow,
    /// It is not what can come in this state.
    OutOfState,
    /// It cannot come in any.
    BadFlags,
}

/// True if `a` comes before `b`, in numbers that wrap.
fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// True if `number` is neither before `first` nor behind `last`.
fn within(number: u32, first: u32, last: u32) -> bool {
    !before(number, first) && !before(last, number)
}

fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

impl Segment {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.len)
    }
}

impl Side {
    fn of_syn(segment: &Segment) -> Self {
        Self {
            end: segment.end(),
            limit: segment.end(),
            acked: segment.sequence,
            window: segment.window.max(1),
            scale: segment.scale.unwrap_or(0),
            facts: SENT_SYN | if segment.scale.is_some() { SCALES } else { 0 },
        }
    }

    fn has(&self, facts: u8) -> bool {
        self.facts & facts == facts
    }

    /// The largest window it has offered, in bytes; at the most 2^30, so that differences keep their sign.
    fn bytes(&self) -> u32 {
        u32::from(self.window.max(1)) << self.scale
    }

    /// Returns one behind the last number that it has sent, for lower bounds: at most one behind
    /// what the other side has offered to take.
    fn sent(&self) -> u32 {
        let most = self.limit.wrapping_add(1);
        if before(most, self.end) { most } else { self.end }
    }

    /// Returns how far behind what the other side has sent segments may be that are on their way.
    fn lag(&self) -> u32 {
        (self.bytes() + 1).max(LEAST_LAG)
    }

    /// Returns how far behind what the other side has sent its acknowledgments may be.
    fn acknowledgment_lag(&self) -> u32 {
        let own = self.bytes() + 1;
        (2 * own).min(MOST_LAG - own).max(LEAST_LAG)
    }

    /// True if this is the number of its SYN, as long as the connection is not open.
    fn began_with(&self, sequence: u32) -> bool {
        sequence.wrapping_add(u32::from(self.has(SYN_ACKED))) == self.acked
    }

    /// True if this acknowledges its SYN, and nothing that it has not sent.
    fn opened_by(&self, acknowledgment: u32) -> bool {
        let first = self.acked.wrapping_add(u32::from(!self.has(SYN_ACKED)));
        within(acknowledgment, first, self.end)
    }
}

impl Tcp {
    pub(super) fn to_words(self) -> [u64; 5] {
        let [[a, b], [c, d]] = self.sides.map(|side| {
            let first = u64::from(side.end) << 32 | u64::from(side.limit);
            let flags = u64::from(side.scale) << 8 | u64::from(side.facts);
            [
                first,
                u64::from(side.acked) << 32 | u64::from(side.window) << 16 | flags,
            ]
        });
        [a, b, c, d, u64::from(self.again) << 8 | u64::from(self.marks)]
    }

    pub(super) fn from_words([a, b, c, d, rest]: [u64; 5]) -> Self {
        let side = |first: u64, second: u64| {
            let [a, b, c, d, e, f, g, h] = first.to_be_bytes();
            let [i, j, k, l, m, n, scale, facts] = second.to_be_bytes();
            Side {
                end: u32::from_be_bytes([a, b, c, d]),
                limit: u32::from_be_bytes([e, f, g, h]),
                acked: u32::from_be_bytes([i, j, k, l]),
                window: u16::from_be_bytes([m, n]),
                scale,
                facts,
            }
        };
        let [_, _, _, e, f, g, h, marks] = rest.to_be_bytes();
        Self {
            sides: [side(a, b), side(c, d)],
            again: u32::from_be_bytes([e, f, g, h]),
            marks,
        }
    }

    /// From the first segment that is seen of a connection. None for one with which none can begin.
    pub(super) fn begin(segment: &Segment, pick_up: bool) -> Option<(Self, State)> {
        let mut tcp = Self::default();
        let flags = segment.flags.of_state();
        if flags == Flags::SYN {
            tcp.sides[0] = Side::of_syn(segment);
        } else if pick_up {
            return Self::picked_up(segment, 0, false);
        } else {
            return None;
        }
        Some((tcp, tcp.state()))
    }

    /// From a segment in the middle of a connection, said by the side that opened it (`way` 0) or the other one. None: it is none, unless
    /// the answer to a SYN that went elsewhere counts, too.
    pub(super) fn picked_up(segment: &Segment, way: usize, with_answers: bool) -> Option<(Self, State)> {
        let flags = segment.flags.of_state();
        let is_answer = way == 1 && flags == Flags::SYN | Flags::ACK;
        if flags != Flags::ACK && flags != Flags::FIN | Flags::ACK && !(with_answers && is_answer) {
            return None;
        }
        let mut tcp = Self {
            marks: UNCHECKED | PICKED_UP | if way == 1 { SECOND } else { 0 },
            ..Self::default()
        };
        tcp.note_fin(way, segment);
        Some((tcp, tcp.state()))
    }

    /// Takes in a segment of a connection of which others have gone by another gateway: numbers do not count.
    pub(super) fn see_some(&mut self, state: State, way: usize, segment: &Segment) -> Seen {
        let mut unchecked = *self;
        unchecked.stop_checking();
        let seen = match unchecked.see(state, way, segment) {
            seen @ (Seen::OutOfState | Seen::OutOfWindow) => match Self::picked_up(segment, way, true) {
                Some((picked_up, state)) => {
                    unchecked = picked_up;
                    Seen::Fits(state)
                }
                None => seen,
            },
            seen => seen,
        };
        if matches!(seen, Seen::Fits(_)) {
            *self = unchecked;
        }
        seen
    }

    /// From a connection of which only the state is known.
    pub(super) fn restored() -> Self {
        let mut tcp = Self {
            marks: UNCHECKED,
            ..Self::default()
        };
        tcp.open();
        tcp
    }

    /// From now on not all of the connection is seen, so numbers do not count any more.
    pub(super) fn stop_checking(&mut self) {
        self.marks |= UNCHECKED;
    }

    /// Returns what both sides have said, if it is known.
    pub(super) fn said(&self) -> Option<[Said; 2]> {
        let has_both = self.sides.iter().all(|side| side.has(SENT_SYN));
        (has_both && self.marks & UNCHECKED == 0).then(|| {
            self.sides.map(|side| Said {
                end: side.end,
                limit: side.limit,
                window: side.window.max(1),
                scale: side.scale,
            })
        })
    }

    /// True if the number that an ICMP error quotes, of a segment of this side, can be one that is on its way.
    pub(super) fn may_have_sent(&self, way: usize, sequence: u32) -> bool {
        let (side, other) = (&self.sides[way], &self.sides[1 - way]);
        let first = side.sent().wrapping_sub(other.lag());
        let may_be = side.has(SENT_SYN) && !before(sequence, first) && before(sequence, side.end);
        may_be || self.marks & UNCHECKED != 0
    }

    /// Takes in a segment; `way` is 0 if it comes from who opened the connection. Only one that fits changes anything.
    pub(super) fn see(&mut self, state: State, way: usize, segment: &Segment) -> Seen {
        let flags = segment.flags.of_state();
        if flags.has(Flags::RST) {
            return match flags.0 & !(Flags::RST.0 | Flags::ACK.0) {
                0 => self.see_reset(state, way, segment),
                _ => Seen::BadFlags,
            };
        }
        if flags == Flags::SYN {
            self.see_syn(state, way, segment)
        } else if flags == Flags::SYN | Flags::ACK {
            self.see_syn_ack(state, way, segment)
        } else if flags == Flags::ACK || flags == Flags::FIN | Flags::ACK {
            self.see_others(state, way, segment)
        } else {
            Seen::BadFlags
        }
    }

    fn see_syn(&mut self, state: State, way: usize, segment: &Segment) -> Seen {
        match (state, way) {
            (State::Closed | State::TimeWait | State::ResetSeen, _) => Seen::Begins,
            // Another number: its sender gave up, and tries anew.
            (State::SynSent, 0) if !self.sides[0].began_with(segment.sequence) => Seen::Begins,
            (State::SynSent, 0) => Seen::Fits(state),
            // Both open at once.
            (State::SynSent, _) => {
                self.answer(segment);
                Seen::Fits(self.state())
            }
            (State::SynReceived, way) if self.sides[way].began_with(segment.sequence) => {
                // The answer may be another one now: of a server that has forgotten its first.
                if way == 0 {
                    self.again = segment.end();
                    self.marks |= AGAIN;
                }
                Seen::Fits(state)
            }
            (State::PickedUp, 0) => Seen::Begins,
            (_, 0) => {
                self.again = segment.end();
                self.marks |= AGAIN;
                Seen::Fits(state)
            }
            _ => Seen::Turned,
        }
    }

    fn see_syn_ack(&mut self, state: State, way: usize, segment: &Segment) -> Seen {
        let acknowledgment = segment.acknowledgment;
        match (state, way) {
            (State::SynSent, 0) => Seen::OutOfState,
            (State::SynSent, _) if self.sides[0].opened_by(acknowledgment) => {
                self.answer(segment);
                self.note_ack(way, segment);
                Seen::Fits(self.state())
            }
            (State::SynSent, _) => self.wrong_answer(segment),
            (State::SynReceived, way)
                if self.sides[way].began_with(segment.sequence) && self.sides[1 - way].opened_by(acknowledgment) =>
            {
                self.note_ack(way, segment);
                Seen::Fits(self.state())
            }
            // The other side knew nothing of the connection: it is a new one now.
            (_, 1) if self.marks & AGAIN != 0 && acknowledgment == self.again && !self.is_late(state, segment) => {
                self.reopen(segment);
                Seen::Fits(self.state())
            }
            (State::SynReceived, _) => Seen::OutOfWindow,
            _ if self.fits(way, segment) => Seen::Fits(state),
            _ => Seen::OutOfWindow,
        }
    }

    /// True if a segment answers a SYN on an open connection, so both sides may go on with other
    /// numbers. It may acknowledge less than was sent with the SYN (RFC 7413).
    pub(super) fn is_renumbered_by(&self, way: usize, segment: &Segment) -> bool {
        way == 1 && self.marks & AGAIN != 0 && segment.flags.of_state() == Flags::SYN | Flags::ACK
    }

    /// True if a SYN and ACK is that of the open connection once more, after its SYN has come late, too.
    fn is_late(&self, state: State, segment: &Segment) -> bool {
        state != State::SynReceived && self.marks & UNCHECKED == 0 && self.fits(1, segment)
    }

    fn see_reset(&mut self, state: State, way: usize, segment: &Segment) -> Seen {
        let (side, other) = (&self.sides[way], &self.sides[1 - way]);
        let opened = state == State::Established || state == State::ResetSeen;
        match (state, way) {
            (State::Closed | State::TimeWait, _) => Seen::Fits(state),
            // A refusal acknowledges the SYN. (RFC 9293 §3.10.7.3)
            (State::SynSent, 1) if segment.flags.has(Flags::ACK) && other.opened_by(segment.acknowledgment) => {
                Seen::Fits(State::Closed)
            }
            (State::SynSent, 1) => Seen::OutOfWindow,
            (State::SynSent, _) if self.marks & AGAIN != 0 && segment.sequence == self.again => Seen::Fits(state),
            (State::SynSent, _) if within(segment.sequence, side.acked, side.end) => Seen::Fits(State::Closed),
            _ if self.marks & UNCHECKED != 0 => Seen::Fits(if opened { State::ResetSeen } else { state }),
            (State::SynReceived, _) if within(segment.sequence, side.acked, side.end) => Seen::Fits(State::Closed),
            _ if segment.sequence == side.acked => Seen::Fits(State::Closed),
            (State::SynSent, _) => Seen::OutOfWindow,
            _ if within(
                segment.sequence,
                side.sent().wrapping_sub(other.bytes() + 1),
                side.limit.wrapping_add(1),
            ) =>
            {
                Seen::Fits(if opened { State::ResetSeen } else { state })
            }
            _ => Seen::OutOfWindow,
        }
    }

    fn see_others(&mut self, state: State, way: usize, segment: &Segment) -> Seen {
        match (state, way) {
            // Who answers a SYN so has an older connection of these ports in mind (RFC 5961 §4, RFC 9293 §3.5.1).
            (State::SynSent, 1) => return self.wrong_answer(segment),
            (State::SynSent, _) => return Seen::OutOfState,
            (State::SynReceived, way) if !self.sides[1 - way].opened_by(segment.acknowledgment) => {
                return Seen::OutOfWindow;
            }
            (State::PickedUp, way) if (way == 0) == (self.marks & SECOND != 0) => {
                self.marks &= !PICKED_UP;
                self.open();
            }
            _ => {}
        }
        if !self.fits(way, segment) {
            return Seen::OutOfWindow;
        }
        if state == State::Closed {
            return Seen::Fits(state);
        }
        self.note_ack(way, segment);
        if self.marks & UNCHECKED == 0 {
            let side = &mut self.sides[way];
            side.end = later(side.end, segment.end());
            side.window = side.window.max(segment.window);
        }
        self.note_fin(way, segment);
        Seen::Fits(self.state())
    }

    fn fits(&self, way: usize, segment: &Segment) -> bool {
        let (side, other) = (&self.sides[way], &self.sides[1 - way]);
        let oldest = other.sent().wrapping_sub(side.acknowledgment_lag());
        let has_data = segment.len != 0 && !segment.flags.has(Flags::SYN);
        let beyond = if has_data { other.bytes() + 1 } else { 0 };
        self.marks & UNCHECKED != 0
            // A refused one has but one side's numbers.
            || side.has(SENT_SYN)
                && other.has(SENT_SYN)
                && !before(side.limit.wrapping_add(1 + beyond), segment.sequence)
                && !before(segment.end(), side.sent().wrapping_sub(other.bytes() + 2))
                && within(segment.acknowledgment, oldest, other.end)
    }

    /// The second SYN.
    fn answer(&mut self, segment: &Segment) {
        let mut second = Side::of_syn(segment);
        let first = &mut self.sides[0];
        second.limit = second.end.wrapping_add(u32::from(first.window));
        // A shift counts if both offer one, and never for a SYN's own window (RFC 7323 §2.2).
        let scales = first.has(SCALES) && second.has(SCALES);
        for side in [&mut *first, &mut second] {
            if scales {
                side.window = side.window.div_ceil(1 << side.scale);
            } else {
                side.scale = 0;
            }
        }
        self.sides[1] = second;
        self.marks &= !AGAIN;
    }

    /// A SYN on what seemed an open connection was answered as such: what it offered is not known any more.
    fn reopen(&mut self, segment: &Segment) {
        self.sides[0] = Side {
            end: self.again,
            limit: self.again,
            acked: self.again.wrapping_sub(1),
            window: u16::MAX,
            scale: MAX_WINDOW_SCALE,
            facts: SENT_SYN | SCALES,
        };
        self.marks = 0;
        self.answer(segment);
        self.note_ack(1, segment);
    }

    fn wrong_answer(&mut self, segment: &Segment) -> Seen {
        self.again = segment.acknowledgment;
        self.marks |= AGAIN;
        Seen::Fits(State::SynSent)
    }

    /// Takes in the acknowledgment and the window of a segment.
    fn note_ack(&mut self, way: usize, segment: &Segment) {
        // The window of a SYN is never shifted.
        let scale = if segment.flags.has(Flags::SYN) {
            0
        } else {
            self.sides[way].scale
        };
        let acknowledgment = segment.acknowledgment;
        let other = &mut self.sides[1 - way];
        if other.has(SENT_FIN) && !before(acknowledgment, other.end) {
            other.facts |= FIN_ACKED;
        }
        if other.has(SENT_SYN) {
            other.facts |= SYN_ACKED;
        }
        if self.marks & UNCHECKED == 0 {
            other.acked = later(other.acked, acknowledgment);
            let limit = acknowledgment.wrapping_add(u32::from(segment.window) << scale);
            other.limit = later(other.limit, limit);
        }
    }

    fn note_fin(&mut self, way: usize, segment: &Segment) {
        if segment.flags.has(Flags::FIN) {
            let side = &mut self.sides[way];
            if self.marks & UNCHECKED != 0 {
                side.end = segment.end();
            }
            side.facts |= SENT_FIN;
        }
    }

    /// Both sides are known to be open.
    fn open(&mut self) {
        for side in &mut self.sides {
            side.facts |= SENT_SYN | SYN_ACKED;
        }
    }

    fn state(&self) -> State {
        let both = |facts| self.sides.iter().all(|side| side.has(facts));
        let one = |facts| self.sides.iter().any(|side| side.has(facts));
        if both(SENT_FIN) {
            if both(FIN_ACKED) {
                State::TimeWait
            } else {
                State::LastAck
            }
        } else if one(SENT_FIN) {
            if one(FIN_ACKED) {
                State::CloseWait
            } else {
                State::FinWait
            }
        } else if self.marks & PICKED_UP != 0 {
            State::PickedUp
        } else if both(SYN_ACKED) {
            State::Established
        } else if both(SENT_SYN) {
            State::SynReceived
        } else {
            State::SynSent
        }
    }
}
