//! `ringside listener`: what comes of a talker's classes, by when it comes.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use ringside_measure::counters::{Ledger, LossCause};
use ringside_measure::probe::{Clock, Kind, Probe};
use ringside_measure::schedule::{Listener, Received, Schedule, StreamPart, Verdict, nanos};
use ringside_measure::schema::{ArrivalStamps, Operation, QueueCounters, RunResult, ScheduleResult};
use ringside_measure::sequence::Counts;
use ringside_nic::Interface;
use ringside_nic::clock::{Discipline, Monotonic, Offset, Tai, Timestamp};
use ringside_wire::flow::parse_udp;
use ringside_wire::vlan::Tag;
use ringside_xsk::hints::{Layouts, Reader, RingsideRx};
use ringside_xsk::{Direction, Filter, Queue, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::streams::{Arrivals, ClockArgs, Gate, ScheduleArgs};
use super::whole::Whole;
use super::{account, conclude, rates};
use crate::args::{PortArgs, RunArgs, ViaArg, WaitArg, bad_value};
use crate::peer::packet::Tap;
use crate::session::{self, POLL, Ran, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system};

const EXAMPLES: &str = "\
Examples:
  ringside listener eth0 --class 5:0us:300us
  ringside listener eth0 --class 5:0us:100us:200:2,3:200us:300us:1000 -t 10
  ringside listener eth0 --class 5:0us:300us --via af-xdp --cpus 1
  ringside listener eth0 --class 5:0us:300us --path 20us --json
  ringside listener eth0 --class 5:0us:300us --max-clock-offset 1us";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct ListenerArgs {
    #[command(flatten)]
    port: PortArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    schedule: ScheduleArgs,
    #[command(flatten)]
    clock: ClockArgs,
    /// What it receives from: a packet socket, whose packets go up the stack too, or XDP sockets
    #[arg(long, value_enum, default_value_t = ViaArg::AfPacket)]
    via: ViaArg,
    /// UDP port of the talker's packets
    #[arg(long = "port", default_value_t = ringside_measure::probe::DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    udp_port: u16,
    /// What the path is known to take: by so much windows are later here than at the talker
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = nanos)]
    path: u64,
    /// Session to listen to, as the talker tells it [default: the first that comes]
    #[arg(long, value_name = "HEX", value_parser = session_number)]
    session: Option<u32>,
    /// Write down when each packet came, for `ringside lab`, which knows the clock of a talker in a guest
    #[arg(long, value_name = "FILE", hide = true)]
    arrivals: Option<PathBuf>,
}

fn session_number(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| format!("{text:?} is no session: eight hexadecimal digits"))
}

pub(crate) fn run(args: &ListenerArgs) -> Result<()> {
    // What makes no sense by itself, before anything is looked up.
    Schedule::new(args.schedule.cycle, args.schedule.classes.clone())?;
    for (given, option) in [
        (args.run.prometheus.prometheus.is_some(), "--prometheus"),
        (args.run.until_ci.is_some(), "--until-ci"),
    ] {
        if given {
            bad_value!("{option} is not for a listener");
        }
    }
    if args.via == ViaArg::AfPacket && args.port.queues.is_some() {
        bad_value!("--queues: a packet socket has the packets of all queues");
    }
    let stop = Stop::on_signals()?;
    let interface = session::interface(&args.port, &args.run.output)?;
    let schedule = args.schedule.schedule(&interface)?;
    let gate = Gate::read(&args.clock, &interface);
    gate.check()?;
    output::note(gate.note());
    let heard = Heard::new(args, schedule)?;
    match args.via {
        ViaArg::AfPacket => by_packet(args, &interface, gate, heard, &stop),
        ViaArg::AfXdp => by_xdp(args, &interface, gate, heard, &stop),
    }
}

/// The packets of a run.
struct Heard {
    listener: Listener,
    udp_port: u16,
    bytes: u64,
    counted: u64,
    /// What CLOCK_TAI shows more than CLOCK_REALTIME: whole seconds.
    tai: u64,
    /// The same of CLOCK_MONOTONIC, which changes when somebody sets the clock.
    monotonic: Offset<Monotonic, Tai>,
    compared: Instant,
    arrivals: Option<Arrivals>,
}

impl Heard {
    fn new(args: &ListenerArgs, schedule: Schedule) -> Result<Self> {
        let discipline = Discipline::read().context("asking the kernel for its clock's discipline")?;
        let tai = u64::try_from(discipline.tai_offset_s).unwrap_or(0) * 1_000_000_000;
        Ok(Self {
            listener: Listener::new(schedule, args.path, args.session),
            udp_port: args.udp_port,
            bytes: 0,
            counted: 0,
            tai,
            monotonic: Offset::measure(),
            compared: Instant::now(),
            arrivals: args.arrivals.as_ref().map(|_| Arrivals::new()),
        })
    }

    /// A frame that came at this time of CLOCK_TAI. `tag`: the VLAN tag that was taken out of it. Whether it was a packet of the
    /// schedule.
    fn take(&mut self, frame: &[u8], tag: Option<u16>, at_ns: u64) -> bool {
        let Ok(packet) = parse_udp(frame) else { return false };
        let payload = frame.get(packet.payload.clone()).unwrap_or_default();
        if packet.dst.port() != self.udp_port {
            return false;
        }
        let (Ok(probe), Some(part)) = (Probe::decode(payload), StreamPart::decode(payload)) else {
            return false;
        };
        if probe.kind != Kind::Request || probe.clock != Clock::Tai {
            return false;
        }
        let tag = tag.map(Tag).or(packet.vlan);
        let packet = Received {
            probe,
            part,
            pcp: tag.map(Tag::priority),
            at_ns,
        };
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.keep(&packet);
        }
        let verdict = self.listener.record(&packet);
        let counts = matches!(verdict, Verdict::InWindow | Verdict::Early | Verdict::Late);
        if counts {
            self.bytes += frame.len() as u64;
            self.counted += 1;
        }
        counts
    }

    /// A time of CLOCK_MONOTONIC.
    fn by_tai(&mut self, monotonic_ns: u64) -> u64 {
        if self.compared.elapsed().as_millis() >= 100 {
            (self.monotonic, self.compared) = (Offset::measure(), Instant::now());
        }
        let at = self.monotonic.convert(Timestamp::<Monotonic>::from_nanos(monotonic_ns));
        at.map_or(0, |at| at.at.as_nanos())
    }

    /// Writes down when packets came, if that is wanted.
    fn keep(&self, args: &ListenerArgs) -> Result<()> {
        match args.arrivals.as_ref().zip(self.arrivals.as_ref()) {
            Some((path, arrivals)) => arrivals.write(path),
            None => Ok(()),
        }
    }

    fn result(&self, ran: &Ran, queues: Vec<QueueCounters>, path: u64, state: Gate, by: ArrivalStamps) -> RunResult {
        let mut result = session::result(Operation::Listener, ran, queues);
        let streams = self.listener.streams();
        let sum = |field: fn(&ringside_measure::schedule::Stream) -> u64| streams.iter().map(field).sum::<u64>();
        let skipped = sum(|stream| stream.skipped());
        let counts = Counts {
            sent: sum(|stream| stream.expected()) - skipped,
            received: sum(|stream| stream.received()),
            lost: sum(|stream| stream.lost()),
            duplicated: sum(|stream| stream.duplicated),
            reordered: sum(|stream| stream.reordered),
            longest_reordering: streams
                .iter()
                .map(|stream| stream.longest_reordering)
                .max()
                .unwrap_or(0),
            late: sum(|stream| stream.too_old),
            unexpected: self.listener.other_session() + self.listener.other_schedule(),
        };
        result.packets = Ledger {
            generated: counts.sent + skipped,
            sent: counts.sent,
            received: Some(counts.received),
            ..Ledger::default()
        };
        result.packets.lose(LossCause::MissingNumber, counts.lost);
        result.sequence = Some(counts);
        result.received = rates(self.counted, self.bytes, 0, ran.received);
        account(&mut result);
        result.schedule = Some(ScheduleResult {
            stamps: Some(by),
            path_ns: Some(path),
            ..ScheduleResult::listener(&self.listener, state.state)
        });
        result
    }
}

const HINT: &str = "no packet of the schedule came: does the talker run, with the same --cycle and classes, and to this interface's MAC address?";

/// What is known of the clock when the run is over; what was asked for has to hold until then.
fn later(gate: Gate, args: &ListenerArgs, interface: &Interface) -> (Gate, Result<()>) {
    let gate = gate.and_then(Gate::read(&args.clock, interface));
    let checked = gate.check();
    (gate, checked)
}

fn by_packet(args: &ListenerArgs, interface: &Interface, gate: Gate, heard: Heard, stop: &Stop) -> Result<()> {
    let longest = heard
        .listener
        .schedule()
        .classes()
        .iter()
        .map(|class| class.frame_bytes)
        .max();
    let tap = Tap::open(interface.index(), longest.unwrap_or(0))?;
    output::note(format_args!("{interface}: a packet socket listens"));
    let kept = Mutex::new(None);
    let lanes = vec![(tap, heard)];
    let ran = session::run(
        lanes,
        Watched::link(interface),
        &args.port,
        &args.run,
        stop,
        |lane, worker| {
            let (mut tap, mut heard) = lane;
            let ended = from_packet(&mut tap, &mut heard, &worker, args.port.wait);
            *kept.lock().map_err(|_| anyhow!("a thread panicked"))? = Some(heard);
            ended
        },
    )?;
    let heard = kept
        .into_inner()
        .ok()
        .flatten()
        .context("the listening thread left no result")?;
    heard.keep(args)?;
    let state = interface.state()?;
    let queue = QueueCounters {
        interface: interface.name().to_owned(),
        queue: 0,
        received_packets: heard.counted,
        sent_packets: 0,
        kicks: 0,
        waits: 0,
        rx_starved: 0,
        xdp_statistics: None,
        xdp_verdicts: None,
    };
    let (gate, checked) = later(gate, args, interface);
    let result = heard.result(&ran, vec![queue], args.path, gate, ArrivalStamps::Kernel);
    let record = system::interface(interface, &state, None);
    output::finish(&args.run, vec![record], result)?;
    checked?;
    conclude(ran, heard.counted, &format!("listener {interface}"), HINT)
}

/// When a listener reads: until it is stopped, and then what has already arrived.
struct Looks<'w> {
    worker: &'w Worker<'w>,
    stopped: Option<Instant>,
}

impl<'w> Looks<'w> {
    /// Longest time that a stopped listener reads.
    const LONGEST_END: Duration = Duration::from_secs(1);

    fn new(worker: &'w Worker<'w>) -> Self {
        Self { worker, stopped: None }
    }

    /// Before each read: `Some(true)` if the listener is stopped, and must not wait; `None` at the end.
    fn next(&mut self, found_something: bool) -> Option<bool> {
        if !self.worker.stop.is_set() {
            return Some(false);
        }
        match self.stopped {
            None if self.worker.has_its_count() => None,
            None => {
                self.stopped = Some(Instant::now());
                Some(true)
            }
            Some(stopped) => (found_something && stopped.elapsed() < Self::LONGEST_END).then_some(true),
        }
    }
}

fn from_packet(tap: &mut Tap, heard: &mut Heard, worker: &Worker<'_>, wait: WaitArg) -> Result<()> {
    let mut looks = Looks::new(worker);
    let mut found_something = true;
    while let Some(is_last) = looks.next(found_something) {
        let tai = heard.tai;
        let took = tap.next(|frame, told| heard.take(frame, told.tag, told.at_ns + tai));
        found_something = took.is_some();
        match took {
            Some(true) => {
                worker.received(1);
                worker.took(1);
            }
            Some(false) => {}
            None if is_last => {}
            None if wait == WaitArg::Spin => std::hint::spin_loop(),
            None => {
                let mut fds = [PollFd::from_borrowed_fd(tap.as_fd(), PollFlags::IN)];
                match poll(&mut fds, Some(&Timespec::try_from(POLL)?)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => bail!("poll(): {errno}"),
                }
            }
        }
    }
    Ok(())
}

fn by_xdp(args: &ListenerArgs, interface: &Interface, gate: Gate, heard: Heard, stop: &Stop) -> Result<()> {
    let (layouts, reader) = Layouts::ringside();
    let layouts = std::sync::Arc::new(layouts);
    let mut port = session::open_with(
        interface.clone(),
        &args.port,
        Direction::Receive,
        Filter::UdpPort(args.udp_port),
        None,
        |(builder, options)| Ok((builder, options.hints(std::sync::Arc::clone(&layouts)))),
    )?;
    output::opened(args.run.verbose, port.report());
    let kept = Mutex::new(None);
    // One thread for all queues: a class's packets may come by any.
    let watched = Watched::ports([&port]);
    let queues: Vec<&mut Queue> = port.queues_mut().collect();
    let lanes = vec![(queues, heard)];
    let wait = session::wait(&args.port);
    let ran = session::run(lanes, watched, &args.port, &args.run, stop, |lane, worker| {
        let (mut queues, mut heard) = lane;
        let ended = from_xdp(&mut queues, &mut heard, &worker, wait, reader);
        *kept.lock().map_err(|_| anyhow!("a thread panicked"))? = Some(heard);
        ended
    })?;
    let heard = kept
        .into_inner()
        .ok()
        .flatten()
        .context("the listening thread left no result")?;
    heard.keep(args)?;
    let queues = session::counters(&port)?;
    let record = system::interface(interface, &session::link(&port)?, Some(port.report()));
    drop(port);
    let (gate, checked) = later(gate, args, interface);
    let result = heard.result(&ran, queues, args.path, gate, ArrivalStamps::Xdp);
    output::finish(&args.run, vec![record], result)?;
    checked?;
    conclude(ran, heard.counted, &format!("listener {interface}"), HINT)
}

fn from_xdp(
    queues: &mut [&mut Queue],
    heard: &mut Heard,
    worker: &Worker<'_>,
    wait: Wait,
    reader: Reader<RingsideRx>,
) -> Result<()> {
    let several = queues.len() > 1;
    let mut whole = Whole::new(false);
    let mut looks = Looks::new(worker);
    let mut found_something = true;
    while let Some(is_last) = looks.next(found_something) {
        let wait = if is_last { Wait::Spin } else { wait };
        if let (true, Wait::Poll(timeout)) = (several, wait) {
            session::poll_any(queues.iter().map(|queue| &**queue), timeout)?;
        }
        found_something = false;
        for queue in &mut *queues {
            let wait = match (several, wait) {
                (true, Wait::Poll(_)) => Wait::Spin,
                (_, wait) => wait,
            };
            let Some(mut burst) = worker.unless_down(queue.recv(wait))? else {
                continue;
            };
            let mut counted = 0;
            for (packet, hints) in burst.with_hints(reader) {
                found_something = true;
                // Without hints it is not known when it came, which would be a fault of our own program.
                let at_ns = hints.map_or(0, |hints| hints.rx_ktime);
                let at_ns = heard.by_tai(at_ns);
                counted += u32::from(heard.take(whole.read(&packet), None, at_ns));
            }
            drop(burst);
            worker.received(counted.into());
            worker.took(counted);
        }
    }
    Ok(())
}
