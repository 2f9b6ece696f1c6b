//! What TCP's two sides have said, in numbers that do not wrap, by the words of `conntrack/tcp.rs` and RFC 5961.

use ringside_wire::tcp::Flags;

use crate::conntrack::State;

const LEAST_LAG: i64 = 66_000;

/// A segment as its sender counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    pub(super) flags: Flags,
    /// Which say nothing about a connection.
    pub(super) others: Flags,
    pub(super) first: i64,
    /// One behind its last number.
    pub(super) end: i64,
    pub(super) acknowledges: i64,
    pub(super) window: i64,
    pub(super) scale: Option<u8>,
}

/// What is known of a side. Its numbers are nobody's before its SYN.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Side {
    pub(super) syn: Option<i64>,
    /// Behind the last number it has sent.
    pub(super) end: i64,
    /// What the other side has offered to take, and has acknowledged.
    pub(super) limit: i64,
    pub(super) acked: i64,
    /// The largest window it has offered, in bytes; and what its windows are to be multiplied by.
    largest: i64,
    offers: Option<u8>,
    unit: i64,
    is_acked: bool,
    fin: bool,
    is_fin_acked: bool,
}

/// What becomes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Becomes {
    Passes,
    /// It changes nothing, and has to be allowed by itself.
    PassesAlone,
    /// It begins another connection in the place of this one.
    Begins,
    OutOfWindow,
    OutOfState,
    BadFlags,
}

/// A connection; side 0 has begun it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tcp {
    pub(super) sides: [Side; 2],
    pub(super) state: State,
    /// Seen from its beginning.
    is_checked: bool,
    is_one_sided: bool,
    /// What a SYN on it has asked for, or what an answer to its SYN acknowledged wrongly.
    pub(super) again: Option<i64>,
}

fn syn_of(said: &Said) -> Side {
    Side {
        syn: Some(said.first),
        end: said.end,
        limit: said.end,
        acked: said.first,
        largest: said.window.max(1),
        offers: said.scale,
        unit: 1,
        ..Side::default()
    }
}

impl Side {
    /// A closed window is probed with one byte.
    fn sent(&self) -> i64 {
        self.end.min(self.limit + 1)
    }

    /// An acknowledgment of its SYN, and of nothing that it has not sent.
    fn is_opened_by(&self, number: i64) -> bool {
        let least = if self.is_acked { self.acked } else { self.acked + 1 };
        (least..=self.end).contains(&number)
    }
}

impl Tcp {
    /// None: it cannot be the first.
    pub(super) fn begin(said: &Said, pick_up: bool) -> Option<Self> {
        let mut tcp = Self {
            sides: [Side::default(); 2],
            state: State::SynSent,
            is_checked: true,
            is_one_sided: false,
            again: None,
        };
        if said.flags == Flags::SYN {
            tcp.sides[0] = syn_of(said);
        } else if pick_up && said.flags.has(Flags::ACK) && !said.flags.has(Flags::SYN) && !said.flags.has(Flags::RST) {
            tcp.is_checked = false;
            tcp.is_one_sided = true;
            tcp.close(0, said);
            tcp.state = tcp.now();
        } else {
            return None;
        }
        Some(tcp)
    }

    /// Known from elsewhere, of which only the state is known.
    pub(super) fn restored(state: State) -> Self {
        let side = Side {
            syn: Some(i64::MIN),
            is_acked: true,
            unit: 1,
            ..Side::default()
        };
        Self {
            sides: [side; 2],
            state,
            is_checked: false,
            is_one_sided: false,
            again: None,
        }
    }

    /// Not all of it is seen any more.
    pub(super) fn stop_checking(&mut self) {
        self.is_checked = false;
    }

    pub(super) fn see(&mut self, way: usize, said: &Said) -> Becomes {
        const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);
        if said.flags.has(Flags::RST) {
            if said.flags.has(Flags::SYN) || said.flags.has(Flags::FIN) {
                return Becomes::BadFlags;
            }
            return self.reset(way, said);
        }
        match said.flags {
            Flags::SYN => self.syn(way, said),
            SYN_ACK => self.syn_ack(way, said),
            other if other.has(Flags::ACK) && !other.has(Flags::SYN) => self.other(way, said),
            _ => Becomes::BadFlags,
        }
    }

    fn syn(&mut self, way: usize, said: &Said) -> Becomes {
        let is_same = self.sides[way].syn == Some(said.first);
        match self.state {
            State::Closed | State::TimeWait | State::ResetSeen => Becomes::Begins,
            State::PickedUp if way == 0 => Becomes::Begins,
            State::SynSent if way == 0 && is_same => Becomes::Passes,
            State::SynSent if way == 0 => Becomes::Begins,
            State::SynSent => {
                self.answer(said);
                self.state = self.now();
                Becomes::Passes
            }
            State::SynReceived if is_same && way == 1 => Becomes::Passes,
            _ if way == 0 => {
                self.again = Some(said.end);
                Becomes::Passes
            }
            _ => Becomes::PassesAlone,
        }
    }

    fn syn_ack(&mut self, way: usize, said: &Said) -> Becomes {
        let opens = self.sides[1 - way].is_opened_by(said.acknowledges);
        // The first ones once more.
        let is_late = self.state != State::SynReceived && self.is_checked && self.fits(way, said);
        if self.state == State::SynSent {
            if way == 0 {
                return Becomes::OutOfState;
            }
            if !opens {
                self.again = Some(said.acknowledges);
                return Becomes::Passes;
            }
            self.answer(said);
        } else if self.state == State::SynReceived && opens && self.sides[way].syn == Some(said.first) {
        } else if way == 1 && self.again == Some(said.acknowledges) && !is_late {
            // Who was asked anew did not know of the connection: what the other offered is not known.
            let asked = Side {
                syn: Some(said.acknowledges - 1),
                end: said.acknowledges,
                limit: said.acknowledges,
                acked: said.acknowledges - 1,
                largest: 65_535,
                offers: Some(14),
                unit: 1,
                ..Side::default()
            };
            self.sides[0] = asked;
            (self.is_checked, self.is_one_sided) = (true, false);
            self.answer(said);
        } else if self.state == State::SynReceived || !self.fits(way, said) {
            return Becomes::OutOfWindow;
        } else {
            return Becomes::Passes;
        }
        self.acknowledge(way, said);
        self.state = self.now();
        Becomes::Passes
    }

    fn reset(&mut self, way: usize, said: &Said) -> Becomes {
        let (side, other) = (self.sides[way], self.sides[1 - way]);
        let is_of_beginning = (side.acked..=side.end).contains(&said.first);
        let mut ends = false;
        match self.state {
            State::Closed | State::TimeWait => return Becomes::Passes,
            State::SynSent if way == 1 => {
                ends = said.flags.has(Flags::ACK) && other.is_opened_by(said.acknowledges);
                if !ends {
                    return Becomes::OutOfWindow;
                }
            }
            State::SynSent => {
                if self.again == Some(said.first) {
                    return Becomes::Passes;
                }
                // Of one that may have gone on elsewhere its numbers are not all known.
                if !is_of_beginning && self.is_checked {
                    return Becomes::OutOfWindow;
                }
                ends = is_of_beginning;
            }
            _ if !self.is_checked => {}
            State::SynReceived if is_of_beginning => ends = true,
            _ if said.first == side.acked => ends = true,
            _ if (side.sent() - other.largest - 1..=side.limit + 1).contains(&said.first) => {}
            _ => return Becomes::OutOfWindow,
        }
        if ends {
            self.state = State::Closed;
        } else if self.state == State::Established {
            self.state = State::ResetSeen;
        }
        Becomes::Passes
    }

    fn other(&mut self, way: usize, said: &Said) -> Becomes {
        match self.state {
            State::SynSent if way == 0 => return Becomes::OutOfState,
            State::SynSent => {
                self.again = Some(said.acknowledges);
                return Becomes::Passes;
            }
            State::SynReceived if !self.sides[1 - way].is_opened_by(said.acknowledges) => return Becomes::OutOfWindow,
            State::PickedUp if way == 1 => {
                self.is_one_sided = false;
                for side in &mut self.sides {
                    side.syn = side.syn.or(Some(i64::MIN));
                    side.is_acked = true;
                }
            }
            _ => {}
        }
        if !self.fits(way, said) {
            return Becomes::OutOfWindow;
        }
        if self.state == State::Closed {
            return Becomes::Passes;
        }
        self.acknowledge(way, said);
        let side = &mut self.sides[way];
        if self.is_checked {
            side.end = side.end.max(said.end);
            side.largest = side.largest.max(said.window * side.unit);
        }
        self.close(way, said);
        self.state = self.now();
        Becomes::Passes
    }

    /// True if a segment answers a SYN on an open connection.
    pub(super) fn is_renumbered(&self, way: usize, said: &Said) -> bool {
        way == 1 && said.flags == Flags::SYN | Flags::ACK && self.again.is_some()
    }

    /// The four bounds, of two that have both said something.
    fn fits(&self, way: usize, said: &Said) -> bool {
        let (side, other) = (&self.sides[way], &self.sides[1 - way]);
        let has_data = said.end > said.first && !said.flags.has(Flags::SYN);
        // As much as has been offered before.
        let beyond = if has_data { other.largest + 1 } else { 0 };
        !self.is_checked
            || side.syn.and(other.syn).is_some()
                && said.first <= side.limit + 1 + beyond
                && said.end >= side.sent() - other.largest - 2
                && said.acknowledges <= other.end
                && said.acknowledges >= other.sent() - (2 * (side.largest + 1)).max(LEAST_LAG)
    }

    fn answer(&mut self, said: &Said) {
        let mut second = syn_of(said);
        second.limit = second.end + self.sides[0].largest;
        self.sides[1] = second;
        let offers = self.sides.map(|side| side.offers);
        if let [Some(_), Some(_)] = offers {
            for side in &mut self.sides {
                side.unit = 1 << side.offers.unwrap();
                // What it offered in its SYN, as it could say it from now on.
                side.largest = (side.largest + side.unit - 1) / side.unit * side.unit;
            }
        }
        self.again = None;
    }

    fn acknowledge(&mut self, way: usize, said: &Said) {
        let unit = if said.flags.has(Flags::SYN) {
            1
        } else {
            self.sides[way].unit
        };
        let other = &mut self.sides[1 - way];
        other.is_fin_acked |= other.fin && said.acknowledges >= other.end;
        other.is_acked |= other.syn.is_some();
        if self.is_checked {
            other.acked = other.acked.max(said.acknowledges);
            other.limit = other.limit.max(said.acknowledges + said.window * unit);
        }
    }

    fn close(&mut self, way: usize, said: &Said) {
        if said.flags.has(Flags::FIN) {
            let side = &mut self.sides[way];
            side.fin = true;
            if !self.is_checked {
                side.end = said.end;
            }
        }
    }

    fn now(&self) -> State {
        let [a, b] = &self.sides;
        match (a.fin, b.fin) {
            (true, true) if a.is_fin_acked && b.is_fin_acked => State::TimeWait,
            (true, true) => State::LastAck,
            (true, false) | (false, true) if a.is_fin_acked || b.is_fin_acked => State::CloseWait,
            (true, false) | (false, true) => State::FinWait,
            _ if self.is_one_sided => State::PickedUp,
            _ if a.is_acked && b.is_acked => State::Established,
            _ if a.syn.is_some() && b.syn.is_some() => State::SynReceived,
            _ => State::SynSent,
        }
    }

    /// An ICMP error may be about a segment of this side with this number.
    pub(super) fn may_have_sent(&self, way: usize, number: i64) -> bool {
        let (side, other) = (&self.sides[way], &self.sides[1 - way]);
        let lag = (other.largest + 1).max(LEAST_LAG);
        !self.is_checked || side.syn.is_some() && (side.sent() - lag..side.end).contains(&number)
    }
}
