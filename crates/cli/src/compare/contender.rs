//! One variant on the path: what is opened for it, on which side, and what is counted.

use anyhow::{Context as _, Result, bail};
use ringside_bpf::PriorityTag;
use ringside_measure::probe::DEFAULT_PORT;
use ringside_xsk::Direction;

use super::bed::{Bed, Side};
use super::options::Bench;
use super::slot::{Count, Load, Place, Reading, Slot, Worker};
use super::under::{Beside, Under};
use super::variant::{Kind, Operation};
use crate::args::PortArgs;
use crate::peer::Peer;
use crate::peer::packet::{Packet, Receive};
use crate::peer::udp::{Sending, Udp, Waiting};
use crate::peer::xsk::{SetUp, Xsk};
use crate::stop::Stop;

/// A variant that has its turn.
pub(crate) struct Contender<'a> {
    pub(super) bed: &'a Bed,
    pub(super) bench: &'a Bench,
    pub(super) operation: Operation,
    pub(super) kind: Kind,
    /// What another machine's end is, if that is another one.
    pub(super) far_kind: Option<Kind>,
    pub(super) frame_bytes: usize,
    /// How an AF_XDP socket is set up, if not as is best for most.
    tuning: Option<&'a PortArgs>,
    /// What loads the path of round trips meanwhile.
    pub(super) under: Under,
    /// AF_PACKET and AF_XDP wait for packets asleep.
    pub(super) sleeps: bool,
    /// VLAN priority of probes.
    pub(super) pcp: Option<u8>,
    /// Of UDP sockets that ask.
    pub(super) priority: Option<u8>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(bed: &'a Bed, bench: &'a Bench, operation: Operation, kind: Kind, frame_bytes: u16) -> Self {
        Self {
            bed,
            bench,
            operation,
            kind,
            far_kind: None,
            frame_bytes: frame_bytes.into(),
            tuning: None,
            under: Under::IDLE,
            sleeps: false,
            pcp: None,
            priority: None,
        }
    }

    /// With load beside the round trips.
    pub(crate) fn under(self, under: Under) -> Self {
        Self { under, ..self }
    }

    /// With another variant at another machine's end.
    pub(crate) fn to(self, far_kind: Option<Kind>) -> Self {
        Self { far_kind, ..self }
    }

    /// With receivers that sleep until they are woken, where AF_PACKET and AF_XDP spin otherwise.
    pub(crate) fn sleeping(self, sleeps: bool) -> Self {
        Self { sleeps, ..self }
    }

    /// With a VLAN priority in the probes that are sent; of UDP sockets it is [`Contender::tag`] that gives it.
    pub(crate) fn tagged(self, pcp: Option<u8>) -> Self {
        Self { pcp, ..self }
    }

    /// With a priority of the UDP socket that asks (`SO_PRIORITY`), which queueing disciplines and VLAN devices go by.
    pub(crate) fn prioritised(self, priority: Option<u8>) -> Self {
        Self { priority, ..self }
    }

    /// AF_XDP set up in this way, at both ends where both use it, and the end that is measured in this place.
    pub(crate) fn tuned(self, tuning: &'a PortArgs) -> Self {
        Self {
            tuning: Some(tuning),
            ..self
        }
    }

    /// Opens everything, measures, takes everything down. The generator is made when first needed, and kept.
    pub(crate) fn turn(&self, load: &mut Option<Load>, stop: &Stop) -> Result<Reading> {
        if self.kind.is_udp()
            && let Some(reason) = self.bed.no_udp()
        {
            bail!(reason);
        }
        let slot = Slot {
            bench: self.bench,
            stop,
        };
        let needs_load = match self.operation {
            Operation::Rx | Operation::Fwd => true,
            Operation::Tx => self.kind == Kind::XdpLimit,
            Operation::Ping => false,
        };
        if needs_load && let Some(reason) = self.bed.no_generator(self.kind) {
            bail!(reason);
        }
        if needs_load && load.is_none() {
            *load = Some(Load::open(self.bed, self.frame_bytes).context("the generator")?);
        }
        let load = load.as_mut().filter(|_| needs_load);
        if let Some(turns) = &self.bed.turns {
            return self.far_turn(turns, &slot, load);
        }
        match self.operation {
            Operation::Rx => self.rx(&slot, load),
            Operation::Tx => self.tx(&slot, load),
            Operation::Fwd => self.fwd(&slot, load),
            Operation::Ping => self.ping(&slot),
        }
    }

    fn rx(&self, slot: &Slot<'_>, load: Option<&mut Load>) -> Result<Reading> {
        // Many NICs send redirected frames only while they have a program themselves.
        let _enabling = (!self.bed.is_lab()).then(|| self.bed.sink(&self.bed.a)).transpose()?;
        if self.kind == Kind::XdpLimit {
            let (sink, _link) = self.bed.sink(&self.bed.b)?;
            return slot.rate(None, load, Count::Sink(&sink));
        }
        let _cut = self.cut(&self.bed.b)?;
        let worker = self.worker(|peer| peer.receive())?;
        slot.rate(Some(worker), load, Count::Worker)
    }

    fn tx(&self, slot: &Slot<'_>, load: Option<&mut Load>) -> Result<Reading> {
        let (sink, _link) = self.bed.sink(&self.bed.b)?;
        let _enabling = (!self.bed.is_lab() && load.is_some())
            .then(|| self.bed.sink(&self.bed.a))
            .transpose()?;
        let worker = match self.kind {
            Kind::XdpLimit => None,
            _ => Some(Worker {
                peer: self.open(&self.bed.a)?,
                place: self.place(self.bench.sender_cpu()),
                work: |peer| peer.transmit(),
            }),
        };
        slot.rate(worker, load, Count::Sink(&sink))
    }

    fn fwd(&self, slot: &Slot<'_>, load: Option<&mut Load>) -> Result<Reading> {
        let (sink, _link) = self.bed.sink(&self.bed.a)?;
        if self.kind == Kind::XdpLimit {
            let _reflector = Bed::reflect(&self.bed.b)?;
            return slot.rate(None, load, Count::Sink(&sink));
        }
        let _cut = self.cut(&self.bed.b)?;
        let worker = self.worker(|peer| peer.send_back())?;
        slot.rate(Some(worker), load, Count::Sink(&sink))
    }

    fn ping(&self, slot: &Slot<'_>) -> Result<Reading> {
        let (flow, frame) = self.bed.frame(true, self.frame_bytes)?;
        let payload_len = frame.len() - flow.header_len();
        let beside = Beside::open(self.under, self.bed, Place::on(self.bench.sender_cpu()))?;
        if self.kind == Kind::XdpLimit {
            let _answerer = Bed::answer(&self.bed.b)?;
            let client = self.open_as(&self.bed.a, Kind::AfXdpNative)?;
            return slot.ping(client, Place::on(self.bench.sender_cpu()), None, payload_len, beside);
        }
        let _cuts = (self.cut(&self.bed.a)?, self.cut(&self.bed.b)?);
        let server = Worker {
            place: Place::on(self.bench.receiver_cpu()),
            ..self.worker(|peer| peer.answer().map(|()| 0))?
        };
        let client = self.open(&self.bed.a)?;
        let place = self.place(self.bench.sender_cpu());
        slot.ping(client, place, Some(server), payload_len, beside)
    }

    /// The variant on the receiving side.
    pub(crate) fn worker(&self, work: fn(&mut dyn Peer) -> Result<u64>) -> Result<Worker> {
        Ok(Worker {
            peer: self.open(&self.bed.b)?,
            place: self.place(self.bench.receiver_cpu()),
            work,
        })
    }

    /// Where the end runs that is measured.
    fn place(&self, cpu: u32) -> Place {
        match self.tuning {
            None => Place::on(cpu),
            Some(tuning) => Place {
                cpu: tuning.cpus.as_ref().and_then(|cpus| cpus.0.first().copied()),
                priority: tuning.priority,
            },
        }
    }

    /// What keeps the IP stack away from packets that a packet socket has seen.
    pub(crate) fn cut(&self, side: &Side) -> Result<Option<ringside_bpf::Link>> {
        (self.kind == Kind::AfPacket)
            .then(|| Bed::cut_stack_off(side))
            .transpose()
    }

    /// What gives the probes of UDP sockets their VLAN priority, at the end that asks.
    pub(crate) fn tag(&self) -> Result<Option<ringside_bpf::Link>> {
        let attach = |pcp| -> Result<_> {
            let tag = PriorityTag::load(pcp, DEFAULT_PORT)?;
            let side = &self.bed.a;
            Ok(side.run(|| tag.attach(side.interface.index()))?)
        };
        let pcp = self.pcp.filter(|_| self.kind.is_udp());
        pcp.map(attach).transpose()
    }

    /// The variant's socket on a side.
    pub(crate) fn open(&self, side: &Side) -> Result<Box<dyn Peer>> {
        self.open_as(side, self.kind)
    }

    pub(super) fn open_as(&self, side: &Side, kind: Kind) -> Result<Box<dyn Peer>> {
        let (flow, frame) = self.bed.frame(std::ptr::eq(side, &self.bed.a), self.frame_bytes)?;
        let udp = |waiting, sending| -> Result<Box<dyn Peer>> {
            let payload = frame.len() - flow.header_len();
            let socket = side.run(|| Udp::open(flow.src, flow.dst, waiting, sending, payload))?;
            if let Some(priority) = self.priority.filter(|_| std::ptr::eq(side, &self.bed.a)) {
                socket.prioritise(priority)?;
            }
            Ok(Box::new(socket))
        };
        let sending = match (kind, self.operation) {
            (Kind::UdpGso, _) => Sending::Segmented,
            (Kind::UdpBlocking, Operation::Tx) => Sending::Single,
            (_, Operation::Ping) => Sending::Single,
            _ => Sending::Many,
        };
        match kind {
            Kind::UdpBlocking | Kind::UdpSendmmsg | Kind::UdpGso => udp(Waiting::Blocking, sending),
            Kind::UdpSpin => udp(Waiting::Spinning, sending),
            Kind::AfPacket => {
                let receive = match self.operation {
                    Operation::Rx | Operation::Fwd => Receive::Blocks,
                    Operation::Ping => Receive::Frames,
                    Operation::Tx => Receive::Nothing,
                };
                let index = side.interface.index();
                let packet = side.run(|| Packet::open(index, receive, flow, frame))?;
                Ok(Box::new(packet.sleeping(self.sleeps).tagged(self.pcp)))
            }
            Kind::AfXdpGeneric | Kind::AfXdpNative | Kind::AfXdpCopy | Kind::AfXdpZeroCopy => {
                let direction = match self.operation {
                    Operation::Rx => Direction::Receive,
                    Operation::Tx => Direction::Transmit,
                    Operation::Fwd | Operation::Ping => Direction::Both,
                };
                let set_up = match self.tuning {
                    Some(tuning) => SetUp::tuned(tuning, direction),
                    None => SetUp::usual(kind.path().context("AF_XDP has a path")?, direction).sleeping(self.sleeps),
                };
                // What only sends has no program that could filter.
                let set_up = match direction {
                    Direction::Transmit => set_up,
                    Direction::Receive | Direction::Both => set_up.filter(side.filter()),
                };
                let open = || Xsk::open(&side.interface, set_up, flow, frame, self.pcp);
                Ok(Box::new(side.run(open)?))
            }
            Kind::XdpLimit => bail!("the kernel's limit has no socket"),
        }
    }
}
