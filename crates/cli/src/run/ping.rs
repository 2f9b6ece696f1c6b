//! `ringside ping`: round trips to a `ringside echo`, one or more probes in flight, by demand or by schedule.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use ringside_measure::counters::Ledger;
use ringside_measure::latency::{LiveLatency, RttRecorder};
use ringside_measure::pace::Pacer;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::schema::{LatencyResult, Operation};
use ringside_measure::sequence::{Counts, Tracker};
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_wire::udp::ChecksumState;
use ringside_xsk::{Direction, Filter, Queue, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::whole::Whole;
use super::{account, conclude, rates};
use crate::args::PingArgs;
use crate::clock::FastClock;
use crate::live::{self, Offer};
use crate::session::{self, Ran, Worker};
use crate::stop::Stop;
use crate::{output, system, target};

pub(crate) fn run(args: &PingArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let filter = Filter::UdpPort(args.flow.from_port);
    // Resolved before the port is opened: with the kernel's own neighbour table in the state the user knows.
    let interface = session::interface(&args.port, &args.run.output)?;
    let web = live::listen(&args.run)?;
    let flow = target::flow(&interface, &args.flow)?;
    let mut port = session::open(interface.clone(), &args.port, Direction::Both, filter, None)?;
    let smallest = u32::try_from(flow.header_len() + HEADER_LEN).expect("small");
    let size = args.size.unwrap_or(smallest);
    let link = session::link(&port)?;
    let template = target::packet(&flow, size, HEADER_LEN, &port, link.mtu)?;
    // What it gives goes back at once.
    if port.queues_mut().next().is_none_or(|queue| queue.alloc().is_none()) {
        bail!(
            "--frames {}: all of them wait for packets; a ping needs twice as many as one packet takes, to receive into and \
             to send from",
            port.queues()[0].report().frames
        );
    }
    output::note(port.report());
    output::note(target::describe(&flow, size));

    let mut pinger = Pinger::new(args, flow, template);
    let offer = Offer::start("ping", &[&port], web)?;
    let queues: Vec<&mut Queue> = port.queues_mut().collect();
    let wait = session::wait(&args.port);
    // One thread does it all: the answers may come in on any queue.
    let lanes = vec![(queues, &mut pinger)];
    let ran = session::run(
        lanes,
        &[interface],
        &args.port,
        &args.run,
        &stop,
        |(mut queues, pinger), worker| pinger.run(&mut queues, &worker, &offer, wait),
    )?;

    let stats = port.stats()?;
    let mut result = session::result(Operation::Ping, &ran, session::counters(&port)?);
    let counts = pinger.tracker.counts();
    // What the socket dropped is among the probes without an answer, and in the counters of the queues.
    result.packets = Ledger {
        generated: counts.sent,
        sent: counts.sent,
        received: counts.received,
        losses: Vec::new(),
    };
    result.packets.lose("no answer", counts.lost);
    account(&mut result);
    result.sequence = Some(counts);
    result.frame_bytes = Some(u64::from(size));
    result.payload_bytes = Some(u64::from(size) - pinger.flow.header_len() as u64);
    #[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    {
        result.target_pps = args.rate.map(|rate| rate as f64);
    }
    // With a schedule alone the depth only bounds memory.
    result.depth_packets = args.depth.map(u64::from).or(args.rate.is_none().then_some(1));
    let headers = pinger.flow.header_len();
    result.received = rates(stats.own.rx_packets, stats.own.rx_bytes, headers, &ran);
    result.transmitted = rates(stats.own.tx_packets, stats.own.tx_bytes, headers, &ran);
    result.latency = Some(LatencyResult::round_trip(&pinger.rtt, Clock::Monotonic));
    let record = system::interface(port.interface(), &link, Some(port.report()));
    drop(port);
    let invalid = pinger.invalid;
    output::finish(&args.run, vec![record], result)?;
    if invalid != 0 {
        output::note(format_args!(
            "ringside: {invalid} answer(s) had a wrong UDP checksum and were not counted"
        ));
    }
    no_answers(ran, args, &counts)
}

fn no_answers(ran: Ran, args: &PingArgs, counts: &Counts) -> Result<()> {
    let hint = format!(
        "{} probe(s) sent, none answered: is `ringside echo` running there, on UDP port {}?",
        counts.sent, args.flow.to_port
    );
    conclude(ran, counts.received, &format!("ping {}", args.port.interface), &hint)
}

/// Probes under way and what is known of those that came back.
struct Pinger {
    flow: UdpFlow,
    template: Vec<u8>,
    session: u32,
    depth: usize,
    /// Probes to send between two looks for answers.
    batch: u32,
    timeout_ns: u64,
    rate: Option<u64>,
    tracker: Tracker,
    rtt: RttRecorder,
    /// Sequence and time of sending of the probes in flight, oldest first; 0 as time: answered.
    in_flight: VecDeque<(u64, u64)>,
    unanswered: usize,
    next: u64,
    invalid: u64,
    clock: FastClock,
}

impl Pinger {
    fn new(args: &PingArgs, flow: UdpFlow, template: Vec<u8>) -> Self {
        // With a rate the depth is no limit unless it was given: the schedule is kept also when answers are late.
        let depth = args.depth.unwrap_or(if args.rate.is_some() { 65_536 } else { 1 }) as usize;
        let timeout_ns = session::nanos(args.timeout);
        let mut clock = FastClock::new();
        Self {
            flow,
            template,
            session: u32::try_from(clock.now_ns() & 0xffff_ffff).expect("masked") ^ std::process::id().rotate_left(16),
            depth,
            batch: args.port.batch,
            timeout_ns,
            rate: args.rate,
            // A second at 1 M probes/s: an answer that comes after as many others is still known.
            tracker: Tracker::new(1 << 20),
            rtt: RttRecorder::new(),
            in_flight: VecDeque::with_capacity(depth + 1),
            unanswered: 0,
            next: 0,
            invalid: 0,
            clock,
        }
    }

    fn run(&mut self, queues: &mut [&mut Queue], worker: &Worker<'_>, offer: &Offer, wait: Wait) -> Result<()> {
        // Allocated before the first probe.
        offer.times(worker.live.times());
        let mut teller = offer.teller();
        let mut whole = Whole::new(queues[0].report().multi_buffer);
        let start = self.clock.now_ns();
        let mut pacer = match self.rate {
            Some(rate) => Pacer::per_second(rate, start)?,
            None => Pacer::unlimited(start),
        };
        let mut claimed_all = false;
        while !worker.stop.is_set() {
            teller.tell(queues.iter_mut().map(|queue| &mut **queue));
            let now = self.clock.now_ns();
            self.expire(now);
            // Sending comes first: a schedule does not wait for answers. But not for long, else they find no room.
            for _ in 0..self.batch {
                if claimed_all || self.unanswered >= self.depth || !pacer.is_due(now) {
                    break;
                }
                if worker.claim(1) == 0 {
                    claimed_all = true;
                    break;
                }
                let sequence = pacer.position();
                let intended = pacer.intended_ns(sequence);
                if self.send(queues[0], worker, intended)? {
                    pacer.take(now, 1);
                    worker.live.sent(1);
                } else {
                    worker.give_back(1);
                    break;
                }
            }
            if claimed_all && self.unanswered == 0 {
                worker.stop.set();
                break;
            }
            let next =
                (self.rate.is_some() && !claimed_all && self.unanswered < self.depth).then(|| pacer.next_due_ns());
            let wait = self.sleep(wait, next);
            self.receive(queues, worker, wait, &mut whole)?;
        }
        // Late answers still count: for the time-out, or a second when somebody waits for the end.
        let mut now = self.clock.now_ns();
        let impatient = now + self.timeout_ns.min(1_000_000_000);
        let end = now.saturating_add(self.timeout_ns);
        while self.unanswered != 0 && now < if worker.stop.is_signal() { impatient } else { end } {
            self.expire(now);
            let wait = self.sleep(wait, None);
            self.receive(queues, worker, wait, &mut whole)?;
            now = self.clock.now_ns();
        }
        Ok(())
    }

    /// How long to sleep for an answer: not beyond the next probe of the schedule.
    fn sleep(&mut self, wait: Wait, next_ns: Option<u64>) -> Wait {
        let Wait::Poll(longest) = wait else { return wait };
        let until = next_ns.map_or(longest, |next| {
            Duration::from_nanos(next.saturating_sub(self.clock.now_ns()))
        });
        Wait::Poll(until.min(longest).min(Duration::from_nanos(self.timeout_ns)))
    }

    /// Sends the next probe; false when no frame was free or the link is down.
    fn send(&mut self, queue: &mut Queue, worker: &Worker<'_>, intended: Option<u64>) -> Result<bool> {
        let before = queue.counters().tx_packets;
        let (headers, length) = (self.flow.header_len(), self.template.len() - self.flow.header_len());
        let sequence = self.next;
        let mut sent_ns = 0;
        let sent = queue.send_with(1, |slot| {
            sent_ns = self.clock.now_ns();
            let probe = Probe {
                kind: Kind::Request,
                clock: Clock::Monotonic,
                session: self.session,
                sequence,
                intended_ns: intended.unwrap_or(sent_ns),
                sent_ns,
            };
            let written = probe.encode(&mut self.template[headers..]).is_ok()
                && self.flow.write(&mut self.template, length).is_ok();
            debug_assert!(written, "the template has room for a probe");
            let fits = slot.write(&self.template);
            debug_assert!(fits, "the size was checked against the room");
        });
        worker.unless_down(sent)?;
        // Also a link that is down has a TX ring with some room.
        if queue.counters().tx_packets == before {
            return Ok(false);
        }
        self.next += 1;
        self.tracker.on_sent(sequence);
        self.in_flight.push_back((sequence, sent_ns.max(1)));
        self.unanswered += 1;
        Ok(true)
    }

    fn receive(&mut self, queues: &mut [&mut Queue], worker: &Worker<'_>, wait: Wait, whole: &mut Whole) -> Result<()> {
        let wait = match wait {
            Wait::Poll(timeout) if queues.len() > 1 => {
                poll_any(queues, timeout)?;
                Wait::Spin
            }
            wait => wait,
        };
        for queue in queues {
            let Some(mut burst) = worker.unless_down(queue.recv(wait))? else {
                continue;
            };
            if burst.is_empty() {
                continue;
            }
            // Not before the answer was there.
            let now = self.clock.now_in_order_ns();
            let mut answers = 0;
            for packet in &mut burst {
                answers += u64::from(self.answer(whole.read(&packet), now, worker.live.times()));
            }
            worker.live.received(answers);
        }
        Ok(())
    }

    /// Takes one received packet; true when it is the first answer to one of our probes.
    fn answer(&mut self, frame: &[u8], now: u64, times: &LiveLatency) -> bool {
        let Ok(udp) = parse_udp(frame) else { return false };
        let Ok(probe) = Probe::decode(&frame[udp.payload.clone()]) else {
            return false;
        };
        if probe.kind != Kind::Reply {
            return false;
        }
        if probe.session != self.session {
            self.tracker.on_foreign();
            return false;
        }
        if udp.checksum_state(frame) == ChecksumState::Invalid {
            self.invalid += 1;
            return false;
        }
        if !self.tracker.on_received(probe.sequence).is_first() {
            return false;
        }
        self.rtt.record(probe.intended_ns, probe.sent_ns, now);
        if let Some(ns) = now.checked_sub(probe.sent_ns) {
            times.record(ns);
        }
        if let Some(front) = self.in_flight.front().map(|entry| entry.0)
            && let Some(at) = probe.sequence.checked_sub(front)
            && let Some(entry) = usize::try_from(at).ok().and_then(|at| self.in_flight.get_mut(at))
            && entry.1 != 0
        {
            entry.1 = 0;
            self.unanswered -= 1;
        }
        true
    }

    /// Forgets probes that were answered, and those for which the time is over.
    fn expire(&mut self, now: u64) {
        while let Some(&(_, sent)) = self.in_flight.front() {
            if sent != 0 {
                if now.saturating_sub(sent) < self.timeout_ns {
                    break;
                }
                self.unanswered -= 1;
            }
            self.in_flight.pop_front();
        }
    }
}

/// Sleeps until one of the queues has something.
fn poll_any(queues: &[&mut Queue], timeout: Duration) -> Result<()> {
    let mut fds: Vec<PollFd<'_>> = queues
        .iter()
        .map(|queue| PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN))
        .collect();
    match poll(&mut fds, Some(&Timespec::try_from(timeout)?)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(anyhow!("poll(): {errno}")),
    }
}
