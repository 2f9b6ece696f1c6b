//! The two ends of a path of our own: who sends, and who receives.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::pace::UnevenPace;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::trace::Heard;
use ringside_wire::flow::parse_udp;
use ringside_xsk::hints::{Layouts, Reader, RingsideRx};
use ringside_xsk::{Direction, Filter, Mode, Path, Port, QueueOptions, Wait};

use super::args::{Args, Receiver};
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

/// Sends from one end, paced.
pub(super) struct Sender {
    peer: Box<dyn Peer>,
    payload: Vec<u8>,
    session: u32,
    interval: Duration,
    /// What it is, in words.
    pub(super) kind: &'static str,
}

impl Sender {
    /// UDP where the kernel would send it to the other end, else a packet socket, which goes past the queueing discipline.
    pub(super) fn open(args: &Args, bed: &Bed, session: u32) -> Result<Self> {
        let (flow, frame) = bed.frame(true, args.size.into())?;
        let payload = vec![0; frame.len() - flow.header_len()];
        let index = bed.a.interface.index();
        let (peer, kind): (Box<dyn Peer>, _) = match bed.no_udp() {
            None => {
                let open = || Udp::open(flow.src, flow.dst, Waiting::Spinning, Sending::Single, payload.len());
                (Box::new(bed.a.run(open)?), "UDP socket")
            }
            Some(_) => {
                let open = || Packet::open(index, Receive::Nothing, flow, frame);
                (Box::new(bed.a.run(open)?), "packet socket")
            }
        };
        Ok(Self {
            peer,
            payload,
            session,
            interval: args.interval(),
            kind,
        })
    }

    /// Sends until it is told to end.
    pub(super) fn run(mut self, board: &Board) -> Result<()> {
        let mut pace = UnevenPace::new(nanos(self.interval).max(1), now_ns(), self.session.into())?;
        let mut sequence = 0;
        while !board.is_quiet() {
            let intended_ns = pace.next(now_ns());
            while let Some(left) = intended_ns.checked_sub(now_ns()).filter(|left| *left > 0) {
                match Duration::from_nanos(left).checked_sub(AWAKE) {
                    Some(asleep) => std::thread::sleep(asleep.min(LOOK)),
                    None => std::hint::spin_loop(),
                }
                if board.is_quiet() {
                    return self.peer.finish();
                }
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
            sequence += 1;
            board.sent.store(sequence, Ordering::Release);
        }
        self.peer.finish()
    }
}

/// Receives at the other end.
pub(super) enum Hearer {
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
    pub(super) fn open(kind: Receiver, args: &Args, bed: &Bed) -> Result<Self> {
        if kind.is_udp()
            && let Some(reason) = bed.no_udp()
        {
            bail!(reason);
        }
        let (flow, frame) = bed.frame(false, args.size.into())?;
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
            Receiver::AfXdpNative => Self::xsk(&bed.b, Path::NativeCopy, Wait::Spin),
            Receiver::AfXdpPoll => Self::xsk(&bed.b, Path::NativeCopy, Wait::Poll(LOOK)),
            Receiver::AfXdpGeneric => Self::xsk(&bed.b, Path::Generic, Wait::Spin),
        }
    }

    fn xsk(side: &Side, path: Path, wait: Wait) -> Result<Self> {
        let (layouts, reader) = Layouts::ringside();
        let layouts = std::sync::Arc::new(layouts);
        // A sleeper of several queues would look at one after the other.
        let filter = side
            .filter()
            .unwrap_or(Filter::UdpPort(ringside_measure::probe::DEFAULT_PORT));
        let open = || {
            session::patiently(|timeout| {
                let options = QueueOptions::new()
                    .direction(Direction::Receive)
                    .hints(std::sync::Arc::clone(&layouts))
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

/// Puts a packet on the board, if it is one of ours.
fn tell(payload: &[u8], session: u32, (heard_ns, cpu): (u64, u32), xdp: Option<(u64, u32)>, board: &Board) {
    if payload.len() < HEADER_LEN {
        return;
    }
    if let Ok(probe) = Probe::decode(payload)
        && probe.session == session
    {
        let heard = Heard {
            intended_ns: probe.intended_ns,
            call_ns: probe.sent_ns,
            heard_ns,
            cpu,
            xdp,
        };
        board.put(probe.sequence, &heard);
    }
}
