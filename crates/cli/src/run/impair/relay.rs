//! The thread that hands packets on: takes what came, asks what is to become of it, holds it, and sends what is due.

use std::time::Duration;

use anyhow::Result;
use ringside_measure::impair::{Counts, Impairment};
use ringside_measure::schema::ImpairedDirection;
use ringside_wire::flow::complete_checksum;
use ringside_xsk::{Frame, Packet, Queue, SendError, Wait};

use super::super::whole::Whole;
use super::select::{Matching, turn_a_bit};
use crate::clock::FastClock;
use crate::live::Teller;
use crate::session::{self, Worker};

/// What is due so soon is not slept for: a timer may be as late.
const NO_SLEEP_NS: u64 = 100_000;

/// How long packets that are held when the run ends may take to leave.
const LAST: Duration = Duration::from_secs(1);

/// A packet that is held, and the number of the queue that it came from: a flow stays on one queue.
type Held = (Frame, usize);

/// One direction.
pub(super) struct Way {
    path: Impairment<Held>,
    /// One that is due, but its link was down.
    stuck: Option<Held>,
    unimpaired: u64,
    too_long: u64,
    link_down: u64,
    /// All that were received.
    seen: u64,
    /// The longest packet that can leave.
    longest: usize,
}

impl Way {
    pub(super) fn new(path: Impairment<Held>, longest: usize) -> Self {
        Self {
            path,
            stuck: None,
            unimpaired: 0,
            too_long: 0,
            link_down: 0,
            seen: 0,
            longest,
        }
    }

    /// Packets that were received and decided about.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn counts(&self) -> Counts {
        self.path.counts()
    }

    pub(super) fn result(&self, from: &str, to: &str, settings: String) -> ImpairedDirection {
        ImpairedDirection {
            from: from.to_owned(),
            to: to.to_owned(),
            settings,
            counts: self.counts(),
            unimpaired_packets: self.unimpaired,
            too_long_packets: self.too_long,
            link_down_packets: self.link_down,
            left_packets: self.path.held() as u64 + u64::from(self.stuck.is_some()),
            asked: self.path.asked().summary(),
            held: self.path.took().summary(),
            late: self.path.late().summary(),
        }
    }

    /// When it has something to send, if nothing comes.
    fn next_ns(&self) -> Option<u64> {
        match self.stuck {
            Some(_) => Some(0),
            None => self.path.next_due_ns(),
        }
    }

    fn is_empty(&self) -> bool {
        self.path.held() == 0 && self.stuck.is_none()
    }
}

/// Both directions.
pub(super) struct Relay {
    matching: Matching,
    ways: [Way; 2],
    wait: Wait,
    batch: u32,
    whole: Whole,
    clock: FastClock,
}

/// The queues of the two interfaces.
pub(super) type Ends<'a> = [Vec<&'a mut Queue>; 2];

impl Relay {
    pub(super) fn new(matching: Matching, ways: [Way; 2], wait: Wait, batch: u32, multi_buffer: bool) -> Self {
        Self {
            matching,
            ways,
            wait,
            batch,
            whole: Whole::new(multi_buffer),
            clock: FastClock::new(),
        }
    }

    pub(super) fn ways(&self) -> &[Way; 2] {
        &self.ways
    }

    pub(super) fn run(&mut self, mut ends: Ends<'_>, worker: &Worker<'_>, mut teller: Teller) -> Result<()> {
        while !worker.stop.is_set() {
            teller.tell(ends.iter_mut().flatten().map(|queue| &mut **queue));
            let mut idle = true;
            for way in 0..2 {
                let (from, to) = both(&mut ends, way);
                for (lane, from) in from.iter_mut().enumerate() {
                    idle &= !self.take(way, lane, from, to, worker)?;
                }
                idle &= !self.send(way, to, worker)?;
            }
            if idle {
                self.rest(&mut ends, worker)?;
            }
        }
        // What came leaves, as late as it was to be.
        let end = self.clock.now_ns() + session::nanos(LAST);
        while self.ways.iter().any(|way| !way.is_empty()) && self.clock.now_ns() < end {
            let mut idle = true;
            for way in 0..2 {
                idle &= !self.send(way, both(&mut ends, way).1, worker)?;
            }
            if idle {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        ends.into_iter().flatten().try_for_each(|queue| worker.drain(queue))
    }

    /// Takes a burst of one queue; true when there was one.
    fn take(
        &mut self,
        way: usize,
        lane: usize,
        from: &mut Queue,
        to: &mut [&mut Queue],
        worker: &Worker<'_>,
    ) -> Result<bool> {
        let wait = match self.wait {
            Wait::Poll(_) => Wait::Spin,
            wait => wait,
        };
        let Some(mut burst) = worker.unless_down(from.recv(wait))? else {
            return Ok(false);
        };
        if burst.is_empty() {
            return Ok(false);
        }
        let way = &mut self.ways[way];
        let before = way.path.counts().offered;
        let out = lane % to.len();
        let to = &mut *to[out];
        // Not before the packets were there.
        let now = self.clock.now_in_order_ns();
        let (mut all, mut unimpaired) = (0, 0);
        for mut packet in &mut burst {
            all += 1;
            if packet.len() > way.longest || !packet.fits_mtu(to.mtu()) {
                way.too_long += 1;
                packet.drop();
                continue;
            }
            self.whole
                .edit(&mut packet, |frame| complete_checksum(frame).unwrap_or(false));
            if !self.matching.wants(self.whole.read(&packet)) {
                unimpaired += 1;
                continue;
            }
            let Some(ticket) = way.path.offer(now, packet.len() as u64) else {
                packet.drop();
                continue;
            };
            if let Some(number) = ticket.corruption() {
                self.whole.edit(&mut packet, |frame| turn_a_bit(frame, number));
            }
            let copy = if ticket.twice() { copy(&packet, to) } else { None };
            way.path
                .hold(ticket, (packet.keep(), out), copy.map(|frame| (frame, out)));
        }
        way.seen += u64::from(all);
        let sent_before = to.counters().tx_packets;
        let done = burst.send_on(to);
        worker.unless_down(done)?;
        let sent = to.counters().tx_packets - sent_before;
        way.unimpaired += sent;
        way.link_down += unimpaired - sent;
        worker.received(u64::from(all));
        worker.sent(sent);
        worker.took(u32::try_from(way.path.counts().offered - before).unwrap_or(all));
        Ok(true)
    }

    /// Sends what is due, a batch at the most; true when something was.
    fn send(&mut self, way: usize, to: &mut [&mut Queue], worker: &Worker<'_>) -> Result<bool> {
        let way = &mut self.ways[way];
        let mut sent = 0;
        for _ in 0..self.batch {
            let now = self.clock.now_ns();
            let Some((frame, out)) = way.stuck.take().or_else(|| way.path.due(now)) else {
                break;
            };
            if let Err(SendError { error, frame }) = to[out].send(frame) {
                // The MTU was lowered while the packet was held.
                if !frame.fits_mtu(to[out].mtu()) {
                    way.too_long += 1;
                    continue;
                }
                way.stuck = Some((frame, out));
                worker.unless_down::<()>(Err(error))?;
                break;
            }
            sent += 1;
        }
        if sent == 0 {
            return Ok(false);
        }
        for queue in to {
            worker.unless_down(queue.flush())?;
        }
        worker.sent(sent);
        Ok(true)
    }

    /// What to do when there is nothing to do.
    fn rest(&mut self, ends: &mut Ends<'_>, worker: &Worker<'_>) -> Result<()> {
        let mut under_way = false;
        for queue in ends.iter_mut().flatten() {
            // Frames that come back are needed where the next packets come in.
            if queue.in_flight() != 0 {
                worker.unless_down(queue.drain(Duration::ZERO))?;
                under_way |= queue.in_flight() != 0;
            }
        }
        let Wait::Poll(longest) = self.wait else { return Ok(()) };
        let longest = if under_way { Duration::from_millis(1) } else { longest };
        let now = self.clock.now_ns();
        let next = self.ways.iter().filter_map(Way::next_ns).min();
        let left = next.map_or(u64::MAX, |next| next.saturating_sub(now));
        if left < NO_SLEEP_NS {
            return Ok(());
        }
        let timeout = longest.min(Duration::from_nanos(left - NO_SLEEP_NS));
        session::poll_any(ends.iter().flatten().map(|queue| &**queue), timeout)
    }
}

/// The queues that packets of a direction come in at, and those that they leave by.
fn both<'e, 'a>(ends: &'e mut Ends<'a>, way: usize) -> (&'e mut [&'a mut Queue], &'e mut [&'a mut Queue]) {
    let [a, b] = ends;
    if way == 0 { (a, b) } else { (b, a) }
}

/// The packet once more, in a frame of its own; `None` where no frame is free.
fn copy(packet: &Packet<'_>, to: &mut Queue) -> Option<Frame> {
    let mut frame = to.alloc()?;
    if packet.len() == packet.data().len() {
        return frame.write(packet.data()).then_some(frame);
    }
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(&mut bytes);
    frame.write(&bytes).then_some(frame)
}
