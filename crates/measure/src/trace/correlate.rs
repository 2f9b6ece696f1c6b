//! What belongs to one packet.

use std::collections::{HashMap, VecDeque};

use super::queue::Queue;
use super::{Event, Id, Place, Point};

/// Packets of unknown identity that are remembered for each CPU: what a busy XDP socket gets in a quarter of a second.
const REMEMBERED: usize = 1 << 18;
/// When readers of a socket took packets, at the most: more than its memory holds by default.
const TAKEN: usize = 1 << 14;

/// A point that a packet has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When, in nanoseconds.
    pub ns: u64,
    /// Which.
    pub point: Point,
    /// Where.
    pub place: Place,
}

/// What the application knows of a packet that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// When it was to be sent, as it says itself.
    pub intended_ns: u64,
    /// When it was sent, as it says itself.
    pub call_ns: u64,
    /// When the application had it.
    pub heard_ns: u64,
    /// The application's CPU.
    pub cpu: u32,
    /// When and on which CPU the XDP program saw it, if it told.
    pub xdp: Option<(u64, u32)>,
}

/// All that is known of a packet, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Which.
    pub id: Id,
    /// The points that it passed.
    pub stamps: Vec<Stamp>,
    /// By how much the clocks of application and kernel contradict each other about it: something would have been before its
    /// cause. The stamp was moved by it.
    pub disorder_ns: u64,
    /// What it took as its application measures it, from when it was to be sent until it had it (or its answer): by no stamp of the kernel's, and moved by nothing.
    pub measured_ns: Option<u64>,
}

impl Packet {
    /// From the first point to the last one.
    #[must_use]
    pub fn whole_ns(&self) -> u64 {
        match (self.stamps.first(), self.stamps.last()) {
            (Some(first), Some(last)) => last.ns - first.ns,
            _ => 0,
        }
    }
}

/// Brings together what different observers tell of packets.
///
/// A packet on its way to an XDP socket is looked into by the XDP program, which tells its time and CPU to the application, and by nobody else
/// where the kernel does not let functions be entered. What the kernel then does with it next has only a time ([`unnamed`](Self::unnamed)), and is that packet's whose
/// program ran last before on the same CPU.
#[derive(Debug, Default)]
pub struct Correlator {
    open: HashMap<Id, Vec<Stamp>>,
    unnamed: HashMap<u64, Vec<Stamp>>,
    /// When packets were given to XDP sockets, by CPU, which is what they are called in `unnamed`.
    given: HashMap<u32, VecDeque<u64>>,
    /// Which socket a packet was told of by.
    sockets: HashMap<Id, u64>,
    /// When readers took packets from sockets, and where.
    taken: HashMap<u64, VecDeque<(u64, Place)>>,
    /// No application tells anything. What lies in the queues of sockets then: probes, and packets that are none.
    queues: Option<HashMap<u64, Queue>>,
}

impl Correlator {
    /// One that knows of no packet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose packets are those of other programs: [`heard`](Self::heard) is never called, and which packet a reader takes from
    /// a socket follows from the order in which the socket got them.
    #[must_use]
    pub fn of_others() -> Self {
        Self {
            queues: Some(HashMap::new()),
            ..Self::default()
        }
    }

    /// A packet passed a point.
    pub fn passed(&mut self, event: &Event) {
        let stamps = self.open.entry(event.id).or_default();
        note(stamps, event);
        if let Some(socket) = event.socket {
            self.sockets.insert(event.id, socket);
            let came = stamps
                .iter()
                .filter(|stamp| is_arrival(stamp.point) && !stamp.point.is_of_reader());
            let since_ns = came.map(|stamp| stamp.ns).filter(|ns| *ns <= event.ns).max();
            self.enqueue(socket, Some(event.id), since_ns.unwrap_or(event.ns));
        }
        if event.point == Point::Waking
            && let Some(queues) = &mut self.queues
            && let Some(queue) = self.sockets.get(&event.id).and_then(|socket| queues.get_mut(socket))
        {
            queue.slept(event.id, event.task);
        }
    }

    /// A socket got a packet that is no probe, or one that is not traced, which was not there before `since_ns`.
    pub fn other(&mut self, socket: u64, since_ns: u64) {
        self.enqueue(socket, None, since_ns);
    }

    /// The reader of a socket got its next packet.
    pub fn taken(&mut self, socket: u64, ns: u64, place: Place) {
        match &mut self.queues {
            Some(queues) => {
                let next = queues.entry(socket).or_default().take(ns, place);
                self.copied(next, ns, place);
            }
            None => {
                let taken = self.taken.entry(socket).or_default();
                taken.push_back((ns, place));
                if taken.len() > TAKEN {
                    taken.pop_front();
                }
            }
        }
    }

    fn enqueue(&mut self, socket: u64, id: Option<Id>, since_ns: u64) {
        let Some(queues) = &mut self.queues else { return };
        if let Some((ns, place)) = queues.entry(socket).or_default().put(id, since_ns) {
            self.copied(id, ns, place);
        }
    }

    fn copied(&mut self, id: Option<Id>, ns: u64, place: Place) {
        if let Some(stamps) = id.and_then(|id| self.open.get_mut(&id)) {
            let point = Point::Copy;
            stamps.push(Stamp { ns, point, place });
        }
    }

    /// What the reader of a packet's socket took last before the application had the packet.
    fn copy(&mut self, id: Id, heard_ns: u64) -> Option<Stamp> {
        let socket = self.sockets.remove(&id)?;
        let taken = self.taken.get_mut(&socket)?;
        let count = taken.partition_point(|(ns, _)| *ns <= heard_ns);
        let (ns, place) = taken.drain(..count).next_back()?;
        let point = Point::Copy;
        Some(Stamp { ns, point, place })
    }

    /// A packet that nobody looked into passed a point; what it is called by is the sequence, the time when it was given to an
    /// XDP socket.
    pub fn unnamed(&mut self, event: &Event) {
        let name = event.id.sequence;
        if event.point == Point::Socket {
            let given = self.given.entry(event.place.cpu).or_default();
            given.push_back(name);
            if given.len() > REMEMBERED
                && let Some(old) = given.pop_front()
            {
                self.unnamed.remove(&old);
            }
        }
        note(self.unnamed.entry(name).or_default(), event);
    }

    /// The application has a packet, and all that the kernel told of it has been handed in: it is complete.
    pub fn heard(&mut self, id: Id, heard: Heard) -> Packet {
        let mut stamps = self.open.remove(&id).unwrap_or_default();
        stamps.retain(|stamp| !matches!(stamp.point, Point::Intended | Point::Call));
        let mut others = stamps.iter().filter(|stamp| !stamp.point.is_of_reader());
        let is_later = |copy: &Stamp| others.all(|stamp| stamp.ns <= copy.ns);
        let copy = self.copy(id, heard.heard_ns).filter(is_later);
        stamps.extend(copy);
        let place = Place {
            cpu: heard.cpu,
            ..Place::default()
        };
        if let Some((ns, cpu)) = heard.xdp {
            let place = Place {
                cpu,
                ..Place::default()
            };
            let is_named = |stamp: &&Stamp| stamp.point == Point::Socket && stamp.place.cpu == cpu && stamp.ns >= ns;
            let named = stamps.iter().find(is_named).map(|stamp| stamp.place);
            let ring = match named {
                Some(_) => None,
                None => self.given_after(ns, cpu, heard.heard_ns),
            };
            let place = named.unwrap_or(place);
            let place = ring.iter().flatten().next().map_or(place, |stamp| stamp.place);
            // Generic XDP tells of it only after the readers were woken up.
            let is_ready = |ns| stamps.iter().any(|stamp| stamp.point == Point::Ready && stamp.ns <= ns);
            let ring = ring.into_iter().flatten();
            let ring: Vec<Stamp> = ring
                .filter(|stamp| stamp.point != Point::Socket || !is_ready(stamp.ns))
                .collect();
            stamps.extend(ring);
            stamps.push(Stamp {
                ns,
                point: Point::Xdp,
                place,
            });
        }
        // What tells of the socket may come after a reader that looks for itself has the packet.
        stamps.retain(|stamp| stamp.ns <= heard.heard_ns || !stamp.point.is_of_reader());
        let first = stamps.iter().map(|stamp| stamp.ns).min();
        let last = stamps.iter().map(|stamp| stamp.ns).max();
        let (mut call_ns, mut heard_ns) = (heard.call_ns, heard.heard_ns);
        let mut disorder_ns = 0;
        if let Some(first) = first.filter(|first| *first < call_ns) {
            disorder_ns = call_ns - first;
            call_ns = first;
        }
        if let Some(last) = last.filter(|last| *last > heard_ns) {
            disorder_ns = disorder_ns.max(last - heard_ns);
            heard_ns = last;
        }
        let sender = stamps.iter().find(|stamp| stamp.point.is_sending());
        let sender = sender.map_or(place, |stamp| stamp.place);
        for (point, ns, place) in [
            (Point::Intended, heard.intended_ns.min(call_ns), sender),
            (Point::Call, call_ns, sender),
            (Point::Application, heard_ns, place),
        ] {
            stamps.push(Stamp { ns, point, place });
        }
        Packet {
            measured_ns: Some(heard.heard_ns.saturating_sub(heard.intended_ns)),
            ..self.finish(id, stamps, disorder_ns)
        }
    }

    /// What was told of a packet whose application tells nothing, and of which no more will be told.
    pub fn over(&mut self, id: Id) -> Packet {
        let stamps = self.open.remove(&id).unwrap_or_default();
        self.sockets.remove(&id);
        self.finish(id, stamps, 0)
    }

    /// Packets about which nothing was told since `before_ns`: those that were lost, or whose application tells nothing. They
    /// are handed over in the order of their beginning.
    pub fn settled(&mut self, before_ns: u64) -> Vec<Packet> {
        let over = |stamps: &[Stamp]| stamps.iter().all(|stamp| stamp.ns < before_ns);
        let mut settled: Vec<(Id, Vec<Stamp>)> = self.open.extract_if(|_, stamps| over(stamps)).collect();
        // In this order each finds its own among the packets without a name.
        settled.sort_unstable_by_key(|(_, stamps)| stamps.iter().map(|stamp| stamp.ns).min());
        let packets = settled.into_iter().map(|(id, stamps)| self.finish(id, stamps, 0));
        let packets: Vec<Packet> = packets.collect();
        self.sockets.retain(|id, _| self.open.contains_key(id));
        for given in self.given.values_mut() {
            while let Some(name) = given.front().copied().filter(|name| *name < before_ns) {
                given.pop_front();
                self.unnamed.remove(&name);
            }
        }
        self.unnamed.retain(|name, _| *name >= before_ns);
        packets
    }

    /// The first packet that was given to an XDP socket on a CPU after its program had run there.
    fn given_after(&mut self, ns: u64, cpu: u32, until_ns: u64) -> Option<Vec<Stamp>> {
        let given = self.given.get_mut(&cpu)?;
        let at = given.partition_point(|name| *name < ns);
        let name = given.get(at).copied().filter(|name| *name <= until_ns)?;
        given.remove(at);
        self.unnamed.remove(&name)
    }

    /// Puts stamps in order, with what an XDP socket on the way got, and without soft interrupts that were asked for before the
    /// packet was there: they were not its.
    fn finish(&mut self, id: Id, mut stamps: Vec<Stamp>, disorder_ns: u64) -> Packet {
        stamps.sort_by_key(|stamp| (stamp.ns, stamp.point));
        while let Some(forwarder) = self.forwarder(&stamps) {
            stamps.extend(forwarder);
            stamps.sort_by_key(|stamp| (stamp.ns, stamp.point));
        }
        let is_local = stamps.iter().any(|stamp| stamp.point.is_sending());
        let kept = (0..stamps.len()).filter(|index| {
            let is_asked = matches!(stamps[*index].point, Point::Raised | Point::SoftIrq);
            let was_sent = stamps[..*index].iter().any(|stamp| is_sent(stamp.point));
            let mut later = stamps[*index..].iter().take_while(|stamp| !is_arrival(stamp.point));
            let is_its = (was_sent || !is_local) && !later.any(|stamp| is_sent(stamp.point));
            !is_asked || is_its && !is_of_backlog(&stamps, *index)
        });
        let mut stamps: Vec<Stamp> = kept.map(|index| stamps[index]).collect();
        // A reader that is awake takes a packet before it is told of it. One that has sent it on has put it in the next ring.
        let (mut is_taken, mut is_sent_on) = (false, false);
        stamps.retain(|stamp| {
            match stamp.point {
                Point::Copy => (is_taken, is_sent_on) = (true, false),
                Point::Ring if is_sent_on => is_taken = false,
                point if point.is_sending() => is_sent_on = true,
                point if !point.is_of_reader() => is_taken = false,
                _ => {}
            }
            !(is_taken && stamp.point.is_of_reader())
        });
        Packet {
            id,
            stamps,
            disorder_ns,
            measured_ns: None,
        }
    }

    /// What an XDP socket got between the transmission of a packet and where it was seen next, in another soft interrupt: a
    /// forwarder's, then. Only where the soft interrupt for receiving is asked for by who transmits, as on a veth, do the two
    /// have a CPU in common.
    fn forwarder(&mut self, stamps: &[Stamp]) -> Option<Vec<Stamp>> {
        let gaps = stamps
            .iter()
            .enumerate()
            .filter(|(_, stamp)| stamp.point == Point::Transmit);
        for (index, sent) in gaps {
            let next = stamps[index..].iter().find(|stamp| is_arrival(stamp.point));
            let Some(next) = next.filter(|next| next.point != Point::Application) else {
                continue;
            };
            let Some(given) = self.given.get(&sent.place.cpu) else {
                continue;
            };
            let at = given.partition_point(|name| *name < sent.ns);
            let Some(name) = given.get(at).copied().filter(|name| *name < next.ns) else {
                continue;
            };
            let Some(found) = self.unnamed.get(&name) else { continue };
            let began = |stamps: &[Stamp]| {
                let began = stamps.iter().filter(|stamp| stamp.point == Point::SoftIrq);
                began.map(|stamp| stamp.ns).rfind(|ns| *ns <= next.ns)
            };
            if began(found).is_some_and(|ns| ns >= sent.ns) && began(found) != began(&stamps[index..]) {
                return self.given_after(name, sent.place.cpu, next.ns);
            }
        }
        None
    }
}

fn note(stamps: &mut Vec<Stamp>, event: &Event) {
    let earlier = match event.point.is_sending() {
        true => [Point::Intended, Point::Call],
        false => [Point::Raised, Point::SoftIrq],
    };
    for (point, ns) in earlier.into_iter().zip(event.before) {
        let Some(ns) = ns.filter(|ns| *ns <= event.ns) else {
            continue;
        };
        // Each point of a hop tells the same again.
        if stamps.iter().all(|stamp| stamp.point != point || stamp.ns != ns) {
            stamps.push(Stamp {
                ns,
                point,
                place: event.place,
            });
        }
    }
    stamps.push(Stamp {
        ns: event.ns,
        point: event.point,
        place: event.place,
    });
}

/// It is on its way.
fn is_sent(point: Point) -> bool {
    matches!(point, Point::Call | Point::Queue | Point::Transmit)
}

/// Whether a soft interrupt is the one that took the packet from a CPU's backlog. It may have begun before the packet was put there, by another CPU.
fn is_of_backlog(stamps: &[Stamp], index: usize) -> bool {
    let (before, after) = stamps.split_at(index);
    let is_passed = |stamp: &&Stamp| stamp.point.is_sending() || is_arrival(stamp.point);
    let waits = before
        .iter()
        .rfind(is_passed)
        .is_some_and(|stamp| stamp.point == Point::Backlog);
    let next = after.iter().find(|stamp| is_arrival(stamp.point));
    let is_elsewhere = |next: &Stamp| {
        let comes_to_backlog = matches!(next.point, Point::Driver | Point::Backlog);
        comes_to_backlog && next.place.cpu != stamps[index].place.cpu
    };
    waits || next.is_some_and(is_elsewhere)
}

/// Points that are passed by the packet itself, on the receiving side.
fn is_arrival(point: Point) -> bool {
    !point.is_sending() && !matches!(point, Point::Raised | Point::SoftIrq)
}

#[cfg(test)]
#[path = "correlate_tests.rs"]
mod tests;
