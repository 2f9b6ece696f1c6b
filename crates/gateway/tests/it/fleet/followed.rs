//! What packets show of changes: by which version of an object a gateway sent each one on; and whether that can be.
//!
//! Objects change in steps, one after the other: a step begins when the one before was answered for all of them, and every gateway's
//! packets have followed. What each stream of packets is to do in a step is known, so a packet that arrives says by which step the
//! gateway that it went through has treated it: the newest one that is told of there, or the one before. Of what does not arrive those
//! packets tell that do, by what was changed later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::time::Duration;

/// Streams of packets through each gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// To an address that moves from one host to the other in each step.
    Moved,
    /// What a rule allows in odd steps; the rule is withdrawn in even ones. It is one flow all the time.
    Odd,
    /// What another rule of the same group allows in even steps.
    Even,
    /// To an address that is deleted in even steps.
    Gone,
    /// To an address whose port allows nothing; the port is deleted in even steps, and everything is allowed.
    Bare,
    /// To an address that stays as it is.
    Always,
}

impl What {
    pub(crate) const ALL: [Self; 6] = [Self::Moved, Self::Odd, Self::Even, Self::Gone, Self::Bare, Self::Always];

    /// At which of two hosts it arrives in a step, the first of which is 1. None: it does not.
    pub(crate) fn place(self, step: usize) -> Option<usize> {
        let is_odd = !step.is_multiple_of(2);
        match self {
            Self::Moved => Some(usize::from(!is_odd)),
            Self::Odd | Self::Gone => is_odd.then_some(1),
            Self::Even | Self::Bare => (!is_odd).then_some(1),
            Self::Always => Some(1),
        }
    }

    /// What it depends on, of [`OBJECTS`]. None: on nothing that changes.
    pub(crate) const fn object(self) -> Option<usize> {
        match self {
            Self::Odd | Self::Even => Some(0),
            Self::Bare => Some(1),
            Self::Gone => Some(2),
            Self::Moved => Some(3),
            Self::Always => None,
        }
    }
}

/// What changes, in this order: the group, the port that is deleted, the neighbour that is deleted, the neighbour that moves, whose packets
/// always arrive. It is the order of a list, too: groups, ports, neighbours by their addresses.
pub(crate) const OBJECTS: usize = 4;
/// Gateways.
pub(crate) const GATEWAYS: usize = 3;

/// One object's change in a step. Times are since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// When the first gateway was told.
    pub(crate) begun: Duration,
    /// Which one answered that it is made, and when.
    pub(crate) answered: Option<(usize, Duration)>,
}

/// A packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) gateway: usize,
    pub(crate) what: What,
    /// Its number.
    pub(crate) number: usize,
    /// At which host.
    pub(crate) place: usize,
    pub(crate) at: Duration,
}

/// What must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A gateway sent a packet by an older version than it is known to have had: it answered, or other packets have shown it.
    Backwards {
        gateway: usize,
        what: What,
        number: usize,
        place: usize,
        /// The step that it had, and the newest one that anybody was told.
        had: usize,
        newest: usize,
    },
    /// A packet was sent by an older version for too long after that was to be over.
    Late {
        gateway: usize,
        what: What,
        number: usize,
        place: usize,
        /// The step that it should have had.
        due: usize,
    },
    /// What was to go on by the last state that was known did not, for so many packets one after the other.
    Broken { gateway: usize, what: What, packets: usize },
    /// Nothing changed while it happened.
    Nothing,
    /// A packet of somebody else.
    Foreign(String),
}

/// What was done and seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    /// By object, from step 1 on.
    pub(crate) made: [Vec<Change>; OBJECTS],
    /// When the packets of each number were sent; through all gateways one after the other, at that time or later.
    pub(crate) sent: Vec<Duration>,
    pub(crate) arrived: Vec<Arrival>,
    /// When each gateway was ended, and begun anew with what it had known before, for etcd was late.
    pub(crate) restarts: [Vec<(Duration, Duration)>; GATEWAYS],
    pub(crate) foreign: Vec<String>,
}

/// When it happened what the changes are looked at for, and what is to hold.
#[derive(Debug, Clone)]
pub(crate) struct During {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// So long after a change was answered, and what happened is over, no packet goes by what was before.
    pub(crate) bound: Duration,
    /// By gateway: how many packets one after the other may not arrive of those that always do.
    pub(crate) lost: [Option<usize>; GATEWAYS],
}

/// The times that are of interest for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    /// Steps that were made in all, and that were begun while it happened.
    pub(crate) steps: usize,
    pub(crate) meanwhile: usize,
    /// From the answer until all packets went by it: the longest while it happened, by the gateway that was quickest and the one
    /// that was slowest, and the longest afterwards, from its end or the answer on.
    pub(crate) quickest: Duration,
    pub(crate) slowest: Duration,
    pub(crate) afterwards: Duration,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [quickest, slowest, afterwards] =
            [self.quickest, self.slowest, self.afterwards].map(|time| time.as_secs_f64());
        write!(
            f,
            "packets followed {} changes of 4 objects, {} of them meanwhile: within {quickest:.2} s by the best gateway, {slowest:.2} s by the \
             worst, {afterwards:.2} s when it was over",
            self.steps, self.meanwhile
        )
    }
}

/// What is known of how far a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Floor {
    /// It has answered, or it is too late for anything else. `is_due`: the latter.
    Firm { step: usize, is_due: bool },
    /// Packets have shown it, which a restart without etcd may take back to what is in its copy.
    Shown(usize),
}

impl Record {
    /// The newest step of an object that anybody was told by then.
    fn newest(&self, object: usize, at: Duration) -> usize {
        self.made[object].partition_point(|change| change.begun <= at)
    }

    /// Everything that must not be.
    pub(crate) fn violations(&self, during: &During) -> Vec<Wrong> {
        let mut found: Vec<Wrong> = self.foreign.iter().cloned().map(Wrong::Foreign).collect();
        for gateway in 0..GATEWAYS {
            self.older(gateway, during, &mut found);
            if let Some(most) = during.lost[gateway] {
                for what in [What::Moved, What::Always] {
                    let packets = self.missing(gateway, what);
                    if packets > most {
                        found.push(Wrong::Broken { gateway, what, packets });
                    }
                }
            }
        }
        if self.meanwhile(during) == 0 {
            found.push(Wrong::Nothing);
        }
        found
    }

    /// Steps that were begun while it happened; where nobody could write meanwhile one that nobody had answered before its end.
    fn meanwhile(&self, during: &During) -> usize {
        let begun = self.made[0].iter().map(|change| change.begun);
        begun.filter(|begun| (during.from..=during.to).contains(begun)).count()
    }

    /// When nobody may go by what was before a change any more: if it was made while something happened, after that is over.
    fn due(change: &Change, during: &During) -> Option<Duration> {
        let (_, answered) = change.answered?;
        let reached = match answered + during.bound < during.from {
            true => answered,
            false => answered.max(during.to),
        };
        Some(reached + during.bound)
    }

    /// Packets that went by an older version than is possible.
    fn older(&self, gateway: usize, during: &During, found: &mut Vec<Wrong>) {
        let mut arrived: Vec<&Arrival> = (self.arrived.iter())
            .filter(|arrival| arrival.gateway == gateway && arrival.what.object().is_some())
            .collect();
        arrived.sort_by_key(|arrival| arrival.number);
        // By object, what is known from some time on.
        let mut waiting: [BinaryHeap<Reverse<(Duration, Floor)>>; OBJECTS] = Default::default();
        for (made, waiting) in self.made.iter().zip(&mut waiting) {
            for (change, step) in made.iter().zip(1..) {
                if let Some((_, answered)) = change.answered.filter(|(by, _)| *by == gateway) {
                    waiting.push(Reverse((answered, Floor::Firm { step, is_due: false })));
                }
                if let Some(due) = Self::due(change, during) {
                    waiting.push(Reverse((due, Floor::Firm { step, is_due: true })));
                }
            }
        }
        // One that has not answered the first step may not have heard of it yet: some of that is as in any even one.
        let (mut firm, mut due) = ([0; OBJECTS], [0; OBJECTS]);
        let mut shown = [(Duration::ZERO, 0); OBJECTS];
        for arrival in arrived {
            let Some(object) = arrival.what.object() else { continue };
            let (sent, restarts) = (self.sent[arrival.number], &self.restarts[gateway]);
            for object in 0..OBJECTS {
                while let Some(Reverse((at, floor))) = waiting[object].peek().copied()
                    && at < sent
                {
                    waiting[object].pop();
                    match floor {
                        Floor::Firm { step, is_due: false } => firm[object] = step.max(firm[object]),
                        Floor::Firm { step, is_due: true } => due[object] = step.max(due[object]),
                        Floor::Shown(step) if step >= shown[object].1 => shown[object] = (at, step),
                        Floor::Shown(_) => {}
                    }
                }
                // What was shown by the one before is not known of the one after.
                let is_over = |(ended, begun): &(Duration, Duration)| shown[object].0 <= *begun && arrival.at >= *ended;
                if restarts.iter().any(is_over) {
                    shown[object] = (Duration::ZERO, 1);
                }
            }
            let had = firm[object].max(shown[object].1);
            let newest = self.newest(object, arrival.at);
            let from = |floor: usize| {
                let mut steps = floor..=newest;
                steps.find(|step| arrival.what.place(*step) == Some(arrival.place))
            };
            let &Arrival {
                what, number, place, ..
            } = arrival;
            match (from(had), from(due[object].max(had))) {
                (None, _) => found.push(Wrong::Backwards {
                    gateway,
                    what,
                    number,
                    place,
                    had,
                    newest,
                }),
                (Some(_), None) => found.push(Wrong::Late {
                    gateway,
                    what,
                    number,
                    place,
                    due: due[object],
                }),
                (Some(_), Some(step)) => {
                    // One is begun when the one before was answered: who has it has what came before it as well.
                    for (other, waiting) in waiting.iter_mut().enumerate() {
                        let shown = if other <= object { step } else { step.saturating_sub(1) };
                        waiting.push(Reverse((arrival.at, Floor::Shown(shown))));
                    }
                }
            }
        }
    }

    /// How many packets of a stream that always arrives did not, one after the other at the most.
    fn missing(&self, gateway: usize, what: What) -> usize {
        let mut numbers: Vec<usize> = (self.arrived.iter())
            .filter(|arrival| (arrival.gateway, arrival.what) == (gateway, what))
            .map(|arrival| arrival.number)
            .collect();
        numbers.sort_unstable();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return self.sent.len();
        };
        let between = numbers.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(1));
        let ends = [*first, self.sent.len() - 1 - *last];
        between.chain(ends).max().unwrap_or(0)
    }

    /// How long after a change was answered all packets of a stream, which came in this order, went by it.
    fn follows(&self, came: &[&Arrival], what: What, step: usize) -> Option<Duration> {
        let made = &self.made[what.object()?];
        let (_, answered) = made.get(step - 1)?.answered?;
        let until = made.get(step).map_or(Duration::MAX, |next| next.begun);
        let first = came.partition_point(|arrival| self.sent[arrival.number] < answered);
        let end = came.partition_point(|arrival| self.sent[arrival.number] < until);
        let came = || came[first..end].iter().filter(|arrival| arrival.at < until);
        let place = what.place(step);
        let is_new = |arrival: &&&Arrival| Some(arrival.place) == place;
        let first = came().filter(is_new).map(|arrival| arrival.at).min();
        let last = came()
            .filter(|arrival| !is_new(arrival))
            .map(|arrival| arrival.at)
            .max();
        let at = match place {
            Some(_) => first?.max(last.unwrap_or_default()),
            None => last.unwrap_or(answered),
        };
        Some(at.saturating_sub(answered))
    }

    pub(crate) fn times(&self, during: &During) -> Times {
        let mut came: BTreeMap<(usize, What), Vec<&Arrival>> = BTreeMap::new();
        for arrival in &self.arrived {
            came.entry((arrival.gateway, arrival.what)).or_default().push(arrival);
        }
        came.values_mut()
            .for_each(|came| came.sort_by_key(|arrival| arrival.number));
        let mut times = Times {
            steps: self.made.iter().map(Vec::len).min().unwrap_or(0),
            meanwhile: self.meanwhile(during),
            ..Times::default()
        };
        let mut slowest = [Duration::ZERO; GATEWAYS];
        for ((gateway, what), came) in came {
            let Some(object) = what.object() else { continue };
            for (change, step) in self.made[object].iter().zip(1..) {
                let Some((_, answered)) = change.answered.filter(|(_, at)| *at >= during.from) else {
                    continue;
                };
                let Some(time) = self.follows(&came, what, step) else {
                    continue;
                };
                if answered <= during.to {
                    slowest[gateway] = slowest[gateway].max(time);
                }
                let afterwards = (answered + time).saturating_sub(answered.max(during.to));
                times.afterwards = times.afterwards.max(afterwards);
            }
        }
        times.quickest = slowest.iter().min().copied().unwrap_or_default();
        times.slowest = slowest.iter().max().copied().unwrap_or_default();
        times
    }
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
