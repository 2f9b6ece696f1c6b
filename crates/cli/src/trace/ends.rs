//! The two ends of a path of our own: who sends, and who receives; or one end that asks, where the other is another machine's.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::pace::UnevenPace;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::trace::Heard;
use ringside_wire::flow::parse_udp;
use ringside_xsk::hints::{Layouts, Reader, RingsideRx};
use ringside_xsk::{Direction, Filter, Mode, Path, Port, QueueOptions, Wait};

use super::args::Receiver;
use super::board::Board;
use crate::clock::now_ns;
use crate::compare::{Bed, Side};
use crate::peer::Peer;
use crate::peer::packet::{Packet, Receive};
use crate::peer::udp::{Sending, Udp, Waiting};
use crate::session::{self, nanos};

/// Before a packet is due the sender looks at the clock: longer than a timer of a usual thread is late.
const AWAKE: Duration = Duration::from_micros(100);
/// How long a receiver sleeps at the most before it looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// For so long an answer is waited for.
const ANSWER_NS: u64 = 100_000_000;

/// Sends from one end, paced.
pub(crate) struct Sender {
    peer: Box<dyn Peer>,
    payload: Vec<u8>,
    session: u32,
    interval: Duration,
}

impl Sender {
    /// Through a socket that is there, payloads of a length, one in so much time on average.
    pub(crate) fn new(peer: Box<dyn Peer>, payload_len: usize, session: u32, interval: Duration) -> Self {
        Self {
            peer,
            payload: vec![0; payload_len.max(HEADER_LEN)],
            session,
            interval,
        }
    }

    /// UDP where the kernel would send it to the other end, else a packet socket, which goes past the queueing discipline; and what
    /// it is, in words.
    pub(super) fn open(bed: &Bed, size: u16, session: u32, interval: Duration) -> Result<(Self, &'static str)> {
        let (flow, frame) = bed.frame(true, size.into())?;
        let payload_len = frame.len() - flow.header_len();
        let index = bed.a.interface.index();
        let (peer, kind): (Box<dyn Peer>, _) = match bed.no_udp() {
            None => {
                let open = || Udp::open(flow.src, flow.dst, Waiting::Spinning, Sending::Single, payload_len);
                (Box::new(bed.a.run(open)?), "UDP socket")
            }
            Some(_) => {
                let open = || Packet::open(index, Receive::Nothing, flow, frame);
                (Box::new(bed.a.run(open)?), "packet socket")
            }
        };
        Ok((Self::new(peer, payload_len, session, interval), kind))
    }

    /// Sends until it is told to end.
    pub(super) fn run(mut self, board: &Board) -> Result<()> {
        let mut pace = UnevenPace::new(nanos(self.interval).max(1), now_ns(), self.session.into())?;
        let mut sequence = 0;
        while self.send(&mut pace, sequence, board)? {
            sequence += 1;
            board.sent.store(sequence, Ordering::Release);
        }
        self.peer.finish()
    }

    /// Sends the next packet at its time; false if it was told to end before.
    fn send(&mut self, pace: &mut UnevenPace, sequence: u64, board: &Board) -> Result<bool> {
        let intended_ns = pace.next(now_ns());
        while let Some(left) = intended_ns.checked_sub(now_ns()).filter(|left| *left > 0) {
            match Duration::from_nanos(left).checked_sub(AWAKE) {
                Some(asleep) => std::thread::sleep(asleep.min(LOOK)),
                None => std::hint::spin_loop(),
            }
            if board.is_quiet() {
                return Ok(false);
            }
        }
        if board.is_quiet() {
            return Ok(false);
        }
        let mut probe = Probe {
            kind: Kind::Request,
            clock: Clock::Monotonic,
            session: self.session,
            sequence,
            intended_ns,
            sent_ns: 0,
        };
        probe.sent_ns = now_ns();
        probe.encode(&mut self.payload)?;
        self.peer.ask(&self.payload)?;
        Ok(true)
    }
}

/// Sends, and hears the answer before it sends again.
pub(crate) struct Asker(Sender);

impl Asker {
    /// What asks; its socket hears, too.
    pub(crate) fn new(sender: Sender) -> Self {
        Self(sender)
    }

    /// Asks until it is told to end.
    pub(super) fn run(self, cpu: u32, board: &Board) -> Result<()> {
        let Self(mut sender) = self;
        let mut pace = UnevenPace::new(nanos(sender.interval).max(1), now_ns(), sender.session.into())?;
        let (session, mut sequence) = (sender.session, 0);
        while sender.send(&mut pace, sequence, board)? {
            let limit = now_ns() + ANSWER_NS;
            let mut is_answered = false;
            // Where it is looked at it has been sent.
            board.sent.store(sequence + 1, Ordering::Release);
            while !is_answered && !board.end.load(Ordering::Relaxed) && now_ns() < limit {
                sender.peer.hear(&mut |payload| {
                    let heard_ns = now_ns();
                    let told = tell(payload, session, (heard_ns, cpu), None, board);
                    is_answered |= told == Some(sequence);
                })?;
            }
            sequence += 1;
        }
        sender.peer.finish()
    }
}

/// Who takes part in this process.
pub(crate) enum Ends {
    /// Both ends of the path.
    Two(Sender, Hearer),
    /// The near one: another machine answers.
    One(Asker),
}

/// Receives at the other end.
pub(crate) enum Hearer {
    /// Sockets that only give packets.
    Peer(Box<dyn Peer>),
    /// XDP sockets, which give the XDP program's time with them.
    Xsk {
        port: Box<Port>,
        reader: Reader<RingsideRx>,
        wait: Wait,
    },
}

impl Hearer {
    pub(super) fn open(kind: Receiver, bed: &Bed, size: u16) -> Result<Self> {
        if kind.is_udp()
            && let Some(reason) = bed.no_udp()
        {
            bail!(reason);
        }
        let (flow, frame) = bed.frame(false, size.into())?;
        let payload_len = frame.len() - flow.header_len();
        let udp = |waiting| -> Result<Self> {
            let open = || Udp::open(flow.src, flow.dst, waiting, Sending::Single, payload_len);
            Ok(Self::Peer(Box::new(bed.b.run(open)?)))
        };
        match kind {
            Receiver::UdpBlocking => udp(Waiting::Blocking),
            Receiver::UdpSpin => udp(Waiting::Spinning),
            Receiver::AfPacket => {
                let index = bed.b.interface.index();
                let open = || Packet::open(index, Receive::Frames, flow, frame.clone());
                Ok(Self::Peer(Box::new(bed.b.run(open)?)))
            }
            Receiver::AfXdpNative => Self::xsk(&bed.b, Path::NativeCopy, false),
            Receiver::AfXdpPoll => Self::xsk(&bed.b, Path::NativeCopy, true),
            Receiver::AfXdpGeneric => Self::xsk(&bed.b, Path::Generic, false),
            Receiver::AfXdpZeroCopy => Self::xsk(&bed.b, Path::ZeroCopy, false),
        }
    }

    /// XDP sockets on a side, with the time and the CPU of the XDP program.
    pub(crate) fn xsk(side: &Side, path: Path, sleeps: bool) -> Result<Self> {
        let wait = if sleeps { Wait::Poll(LOOK) } else { Wait::Spin };
        let (layouts, reader) = Layouts::ringside();
        let layouts = std::sync::Arc::new(layouts);
        // A sleeper of several queues would look at one after the other.
        let filter = side
            .filter()
            .unwrap_or(Filter::UdpPort(ringside_measure::probe::DEFAULT_PORT));
        let open = || {
            session::patiently(&side.interface, |timeout| {
                let options = QueueOptions::new()
                    .direction(Direction::Receive)
                    .hints(std::sync::Arc::clone(&layouts))
                    // The sender may have a port, too.
                    .memory_shares(2)
                    .busy_timeout(timeout);
                let builder = Port::builder(side.interface.clone());
                let builder = builder.mode(Mode::Require(path)).filter(filter);
                Ok(builder.options(options).open()?)
            })
        };
        let port = side.run(open).context("opening the XDP sockets of the receiver")?;
        Ok(Self::Xsk {
            port: Box::new(port),
            reader,
            wait,
        })
    }

    /// Receives until it is told to end.
    pub(super) fn run(mut self, session: u32, cpu: u32, board: &Board) -> Result<()> {
        board.ready.store(true, Ordering::Release);
        while !board.end.load(Ordering::Relaxed) {
            match &mut self {
                Self::Peer(peer) => peer.hear(&mut |payload| {
                    let heard_ns = now_ns();
                    tell(payload, session, (heard_ns, cpu), None, board);
                })?,
                Self::Xsk { port, reader, wait } => {
                    let wait = match *wait {
                        Wait::Poll(timeout) if port.queues().len() > 1 => {
                            session::poll_any(port.queues(), timeout)?;
                            Wait::Spin
                        }
                        wait => wait,
                    };
                    for queue in port.queues_mut() {
                        let mut burst = queue.recv(wait)?;
                        if burst.is_empty() {
                            continue;
                        }
                        let heard_ns = now_ns();
                        for (packet, hints) in burst.with_hints(*reader) {
                            let xdp = hints.map(|hints| (hints.rx_ktime, hints.rx_cpu));
                            let frame = packet.data();
                            if let Ok(udp) = parse_udp(frame) {
                                let payload = frame.get(udp.payload).unwrap_or_default();
                                tell(payload, session, (heard_ns, cpu), xdp, board);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Puts a packet on the board, if it is one of ours; its number.
fn tell(
    payload: &[u8],
    session: u32,
    (heard_ns, cpu): (u64, u32),
    xdp: Option<(u64, u32)>,
    board: &Board,
) -> Option<u64> {
    if payload.len() < HEADER_LEN {
        return None;
    }
    let probe = Probe::decode(payload).ok().filter(|probe| probe.session == session)?;
    let heard = Heard {
        intended_ns: probe.intended_ns,
        call_ns: probe.sent_ns,
        heard_ns,
        cpu,
        xdp,
    };
    board.put(probe.sequence, &heard);
    Some(probe.sequence)
}
